"""The plan's hash: the same for every way of writing one plan, another for every other plan."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.plan import canonical_form, parse_plan

# One plan as sections of (field, value as TOML); and the fields that only repeat a default.
PLAN: dict[str, dict[str, str]] = {
    "plan": {"name": '"app-health"', "version": "3", "period": '"1d"', "max_delay": '"7d"'},
    "cohort": {"min_size": "50", "target_size": "200"},
    "budget": {"lifetime": "365"},
    "metrics.cold_start_ms": {
        "kind": '"numeric"', "lower": "0", "upper": "5000", "epsilon": "1.5", "on_device": '"mean"',
    },
    "metrics.network": {
        "kind": '"categorical"', "categories": '["wifi", "cellular", "offline"]', "other": '"other"', "epsilon": "0.25",
    },
    "metrics.crashes": {"kind": '"numeric"', "lower": "0", "upper": "5", "epsilon": "1", "on_device": '"sum"'},
}  # fmt: skip
DEFAULTS: dict[str, dict[str, str]] = {
    "plan": {"upload_window": '"6h"'},
    "cohort": {"max_wait": '"30s"', "corrupt_fraction": "0.1", "dropout_fraction": "0.10"},
    "budget": {"rolling_24h": "5.5"},
    "delivery": {"resend": '"same_bytes"', "delivery": '"interactive"', "fallback": '"none"'},
    "metrics.cold_start_ms": {"levels": "1_000", "default": "2500.0", "mechanism": '"laplace"'},
    "metrics.network": {"on_device": '"last"', "default": '"other"', "mechanism": '"randomized_response"'},
    "metrics.crashes": {"default": "-0.0", "levels": "0x3e8"},
}
SAME = {
    "365": ["365.0", "365.00", "3.65e2"],
    "0": ["0.0", "-0.0", "0e5", "-0"],
    "5000": ["5000.0", "5e3", "5_000", "5_000.000"],
    "5": ["5.0", "0.5e1"],
    "1.5": ["1.50", "15e-1"],
    "1": ["1.0", "1.00", "10e-1"],
    "0.25": ["0.250", "25E-2"],
    '"1d"': ['"24h"', '"1440m"', '"86400s"'],
    '"7d"': ['"168h"'],
    '"30s"': ["'30s'"],
    '"wifi"': ['"\\u0077ifi"'],
}
COUNTED = {"epsilon", "lifetime", "rolling_24h", "lower", "upper", "period", "max_delay", "max_wait", "default"}


@dataclass
class Writer:
    """Writes the same plan in another way each time; counts which liberties were taken."""

    rng: random.Random
    taken: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        names = [*PLAN, "delivery"]
        self.rng.shuffle(names)
        self.taken["order"] += names != [*PLAN, "delivery"]
        return "\n".join(self.section(name) for name in names)

    def section(self, name: str) -> str:
        fields = dict(PLAN.get(name, {}))
        for key, value in DEFAULTS.get(name, {}).items():
            if self.rng.random() < 0.5:
                fields[key] = value
                self.taken["default"] += 1
        if not fields:
            return ""
        items = list(fields.items())
        self.rng.shuffle(items)
        lines = [f"[{name}]" if self.rng.random() < 0.5 else f"[ {name} ]  # a table"]
        for key, value in items:
            lines += [*self.noise(), f"{' ' * self.rng.randrange(3)}{key} = {self.value(key, value)}"]
        return "\n".join(lines)

    def noise(self) -> list[str]:
        self.taken["comment"] += 1
        return [["# epsilon = 0x1"], [""], ["   "], []][self.rng.randrange(4) :][0]

    def value(self, key: str, value: str) -> str:
        choices = [value, *(SAME.get(value, []) if key in COUNTED else [])]
        if key in {"epsilon", "lifetime", "rolling_24h"}:
            choices = [c for c in choices if "_" not in c]
        chosen = self.rng.choice(choices)
        self.taken["spelling"] += chosen != value
        return chosen


def written(plan: dict[str, dict[str, str]]) -> str:
    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{k} = {v}" for k, v in fields.items()) for name, fields in plan.items()
    )


BASE = parse_plan(written(PLAN))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_hash_does_not_see_how_a_plan_is_written(rng: random.Random) -> None:
    text = Writer(rng).text()
    plan = parse_plan(text)
    assert canonical_form(plan) == canonical_form(BASE)
    assert plan.hash == BASE.hash
    assert plan.slices == BASE.slices
    assert plan.text == text


def test_the_writer_takes_every_liberty() -> None:
    writer, texts = Writer(random.Random(1)), set()
    for _ in range(50):
        texts.add(writer.text())
    assert len(texts) == 50
    assert min(writer.taken[what] for what in ("order", "default", "comment", "spelling")) > 50 // 2


CHANGES = [
    ("plan", "name", '"app-healthy"'),
    ("plan", "version", "4"),
    ("plan", "period", '"12h"'),
    ("plan", "max_delay", '"8d"'),
    ("plan", "upload_window", '"5h"'),
    ("cohort", "min_size", "51"),
    ("cohort", "target_size", "201"),
    ("cohort", "max_wait", '"31s"'),
    ("cohort", "corrupt_fraction", "0.1000001"),
    ("cohort", "dropout_fraction", "0.11"),
    ("budget", "lifetime", "365.000001"),
    ("budget", "rolling_24h", "5.4"),
    ("delivery", "resend", '"never"'),
    ("delivery", "delivery", '"direct"'),
    ("delivery", "fallback", '"direct"'),
    ("metrics.cold_start_ms", "lower", "-0.001"),
    ("metrics.cold_start_ms", "upper", "5001"),
    ("metrics.cold_start_ms", "epsilon", "1.5000000001"),
    ("metrics.cold_start_ms", "levels", "1001"),
    ("metrics.cold_start_ms", "on_device", '"max"'),
    ("metrics.cold_start_ms", "default", "2501"),
    ("metrics.network", "categories", '["cellular", "wifi", "offline"]'),
    ("metrics.network", "categories", '["wifi", "cellular"]'),
    ("metrics.network", "categories", '["wifi", "cellular", "Offline"]'),
    ("metrics.network", "other", '"else"'),
    ("metrics.network", "default", '"wifi"'),
    ("metrics.network", "on_device", '"first"'),
    ("metrics.network", "expires", "2027-01-01"),
    ("registrar", "address", '"r:1"\nkey = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"'),
    ("metrics.cold_start_ms", "mechanism", '"hybrid"'),
    ("metrics.cold_start_ms", "mechanism", '"one_bit"'),
    ("metrics.cold_start_ms", "optional", "true"),
    ("metrics.cold_start_ms", "optional", "true\npresence_share = 0.5"),
    ("metrics.network", "mechanism", '"hadamard"'),
    ("metrics.network", "optional", "true"),
    ("metrics.network", "removed", '["ethernet"]'),
    ("metrics.network", "removed", '["ethernet", "bluetooth"]'),
    ("metrics.cold_start_ms", "kind", '"histogram"'),
    ("metrics.cold_start_ms", "kind", '"histogram"\nbins = 10'),
    ("metrics.cold_start_ms", "kind", '"histogram"\nbins = 10\nmechanism = "hadamard"'),
    ("metrics.cold_start_ms", "kind", '"quantiles"'),
    ("metrics.cold_start_ms", "kind", '"quantiles"\nquantiles = [0.5]'),
    ("plan", "sample_metrics", "1"),
    ("plan", "sample_metrics", "2"),
    ("plan", "removed_metrics", '["old"]'),
    ("metrics.more", "kind", '"numeric"\nlower = 0\nupper = 1\nepsilon = 1'),
]


@pytest.mark.parametrize(("section", "name", "value"), CHANGES)
def test_every_change_is_another_plan(section: str, name: str, value: str) -> None:  # case D11
    changed = {key: dict(fields) for key, fields in PLAN.items()}
    changed.setdefault(section, {})[name] = value
    assert parse_plan(written(changed)).hash != BASE.hash


def test_changes_differ_among_themselves() -> None:
    hashes = set()
    for section, name, value in CHANGES:
        changed = {key: dict(fields) for key, fields in PLAN.items()}
        changed.setdefault(section, {})[name] = value
        hashes.add(parse_plan(written(changed)).hash)
    assert len(hashes) == len(CHANGES)


def test_canonical_form_is_what_another_language_would_write() -> None:
    expected = (
        '{"budget":{"lifetime":"365"},"cohort":{"min_size":50,"target_size":200},"metrics":{'
        '"cold_start_ms":{"epsilon":"1.5","kind":"numeric","lower":"0","on_device":"mean","upper":"5000"},'
        '"crashes":{"epsilon":"1","kind":"numeric","lower":"0","on_device":"sum","upper":"5"},'
        '"network":{"categories":["wifi","cellular","offline"],"epsilon":"0.25","kind":"categorical","other":"other"}},'
        '"plan":{"max_delay":604800,"name":"app-health","period":86400,"version":3}}'
    )
    assert canonical_form(BASE) == expected
    assert BASE.hash == hashlib.sha256(expected.encode()).digest()


def test_labels_stand_in_utf8_with_only_quotes_and_backslashes_escaped() -> None:
    changed = {key: dict(fields) for key, fields in PLAN.items()}
    changed["metrics.network"]["categories"] = "['wäi\"fi', 'a\\b', '日本']"
    form = canonical_form(parse_plan(written(changed)))
    assert '["wäi\\"fi","a\\\\b","日本"]' in form
    assert json.loads(form)["metrics"]["network"]["categories"] == ['wäi"fi', "a\\b", "日本"]


EVERY_OLD_FIELD = """
[plan]
name = "app-health"
version = 3
period = "1h"
max_delay = "7d"
upload_window = "5m"
[cohort]
min_size = 20
target_size = 300
max_wait = "1m"
corrupt_fraction = 0.2
dropout_fraction = 0.05
[budget]
lifetime = 100.5
rolling_24h = 4
[delivery]
resend = "never"
[registrar]
address = "registrar.example:443"
key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
[metrics.a]
kind = "numeric"
mechanism = "laplace"
lower = -0.25
upper = 1e3
levels = 65536
epsilon = 0.125
on_device = "mean"
default = 7
expires = 2027-01-01
[metrics.b]
kind = "categorical"
mechanism = "randomized_response"
categories = ["ä", "b\\"", "c"]
default = "c"
epsilon = 3
on_device = "sample"
"""


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        (written(PLAN), "2f891c4f8f73a68db0cf0796eac0b29bc3f7598cfa40eb3536901868841d91b8"),
        (EVERY_OLD_FIELD, "88a776c13dae6c93743eabef708a68a8b68889c3325baec90a6261a67b52c35f"),
    ],
    ids=["base", "every old field"],
)
def test_no_later_field_has_changed_the_hash_of_an_earlier_plan(text: str, pinned: str) -> None:
    """Hashes as they were before the catalogue came: devices in the field hold such plans."""
    assert parse_plan(text).hash.hex() == pinned
