"""Random plans of the whole catalogue: text, hash and pickle agree, and reports have the plan's length and bound."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from collections import Counter
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.plan import Plan, canonical_form, parse_plan
from client_sdk.plan.build import AUTO, LABELS, NUMBERS
from client_sdk.report import PeriodState, clipped_values, make_report, pack_vector, unpack_vector
from tests.entropy import seeded

Combination = tuple[str, str, bool]  # kind, word ("" where the plan names none), optional

COMBINATIONS: list[Combination] = [
    *product(["numeric"], [*NUMBERS, AUTO, ""], [False, True]),
    *product(["categorical"], [*LABELS, AUTO, ""], [False, True]),
    *product(["histogram", "quantiles"], [*LABELS, AUTO, ""], [False, True]),
    *product(["histogram", "quantiles"], ["square_wave"], [False]),
]
PER_PLAN = 3
NUMBER_RULES = ["last", "first", "sample", "mean", "sum", "max", "count"]


class Author:
    """Writes random plans; `written` counts what it has written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.written: Counter[tuple[str, str, bool, bool]] = Counter()

    def plans(self, *, sampled: bool) -> list[str]:
        """Each combination at least once, a few to a plan."""
        deck = list(COMBINATIONS)
        self.rng.shuffle(deck)
        deck += deck[: -len(deck) % PER_PLAN]
        return [self.plan(deck[at : at + PER_PLAN], sampled=sampled) for at in range(0, len(deck), PER_PLAN)]

    def plan(self, combinations: list[Combination], *, sampled: bool) -> str:
        text = '[plan]\nname = "random"\nversion = 1\nperiod = "1d"\n'
        if sampled:
            text += f"sample_metrics = {self.rng.randrange(1, len(combinations))}\n"
        if self.rng.random() < 0.3:
            text += 'removed_metrics = ["gone", "away"]\n'
        text += "[cohort]\nmin_size = 3\ntarget_size = 5\n[budget]\nlifetime = 1000\n"
        for number, combination in enumerate(combinations):
            self.written[(*combination, sampled)] += 1
            text += f"[metrics.{self.rng.choice('abc')}{number}]\n{self.metric(*combination)}"
        return text

    def metric(self, kind: str, word: str, optional: bool) -> str:
        lines = [f'kind = "{kind}"', f"epsilon = {self.epsilon()}"]
        lines += [f'mechanism = "{word}"'] if word else []
        lines += ["optional = true"] if optional else []
        rules = NUMBER_RULES if kind != "categorical" else NUMBER_RULES[:3]
        lines += [f'on_device = "{self.rng.choice(rules)}"'] if self.rng.random() < 0.7 else []
        lines += ["expires = 2027-01-01"] if self.rng.random() < 0.2 else []
        lines += self.labels() if kind == "categorical" else self.numbers(kind)
        if optional and kind == "numeric" and self.rng.random() < 0.5:
            lines.append(f"presence_share = {self.rng.choice(['0.1', '0.5', '0.75'])}")
        self.rng.shuffle(lines)
        return "\n".join(lines) + "\n"

    def epsilon(self) -> str:
        return self.rng.choice(["0.01", "0.3", "0.6", "0.61", "1", "1.0", "2.5", "8", "40"])

    def labels(self) -> list[str]:
        labels = [f"label {number}" for number in range(self.rng.choice([2, 3, 5, 17, 64]))]
        other = ['other = "rest"'] if self.rng.random() < 0.5 else []
        removed = ['removed = ["old", "older"]'] if self.rng.random() < 0.3 else []
        return [f"categories = {json.dumps(labels)}", *other, *removed]

    def numbers(self, kind: str) -> list[str]:
        lower, upper = sorted(self.rng.sample(["-1000", "-2.5", "0", "0.125", "1", "7", "1e4"], 2), key=Decimal)
        ends = [f"lower = {lower}", f"upper = {upper}"]
        if kind == "numeric":
            return ends + ([f"levels = {self.rng.choice([2, 10, 999])}"] if self.rng.random() < 0.5 else [])
        if self.rng.random() < 0.3:
            ends = [f"edges = [{lower}, {(Decimal(lower) * 3 + Decimal(upper)) / 4:f}, {upper}]"]
        elif self.rng.random() < 0.7:
            ends.append(f"bins = {self.rng.choice([2, 3, 7, 40])}")
        if kind == "quantiles" and self.rng.random() < 0.5:
            ends.append("quantiles = [0.1, 0.5]")
        return ends


def record(plan: Plan, state: PeriodState, rng: random.Random) -> None:
    for name, metric in plan.metrics.items():
        for _ in range(rng.randrange(3)):
            reading = rng.choice(metric.categories) if metric.kind == "categorical" else rng.uniform(-2e4, 2e4)
            state.add(name, reading, seeded("readings"))


def check_identity(plan: Plan, text: str) -> None:
    form = canonical_form(plan)
    assert plan.hash == hashlib.sha256(form.encode()).digest()
    assert form == json.dumps(json.loads(form), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    copy = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own bytes
    assert (copy.hash, copy.text, copy.slices, copy.counts) == (plan.hash, text, plan.slices, plan.counts)
    assert canonical_form(copy) == form
    for name, metric in plan.metrics.items():
        assert json.loads(form)["metrics"][name].get("mechanism", "") != AUTO
        assert len(repr(metric)) < 100


def check_report(plan: Plan, report: list[int]) -> None:
    assert len(report) == plan.length
    assert unpack_vector(pack_vector(report, plan.bound)) == report
    held = {name for name in plan.metrics if name not in plan.counts or report[plan.counts[name]] == 1}
    assert len(held) == (plan.sample_metrics or len(plan.metrics))
    for name, metric in plan.metrics.items():
        cells = report[plan.slices[name]]
        assert max(map(abs, cells)) <= metric.mechanism.bound <= plan.bound
        assert metric.mechanism.is_plausible(cells, 1) if name in held else not any(cells)


def check_layout(plan: Plan) -> None:
    covered = sorted([at for place in plan.slices.values() for at in range(place.start, place.stop)]
                     + list(plan.counts.values()))  # fmt: skip
    assert covered == list(range(plan.length))
    assert plan.report_micro_epsilon <= sum(metric.micro_epsilon for metric in plan.metrics.values())


@pytest.mark.parametrize("sampled", [False, True])
def test_random_plans(sampled: bool) -> None:
    written: Counter[tuple[str, str, bool, bool]] = Counter()

    @settings(max_examples=3, deadline=None)
    @given(st.randoms(use_true_random=False))
    def judge(rng: random.Random) -> None:
        author = Author(rng)
        for number, text in enumerate(author.plans(sampled=sampled)):
            plan = parse_plan(text)
            check_identity(plan, text)
            check_layout(plan)
            state = PeriodState(plan)
            for round_ in range(2):  # without a reading, then with some
                values = state.values()
                assert clipped_values(plan, values).keys() == plan.metrics.keys()
                assert PeriodState.load(plan, state.dump()).values() == values
                check_report(plan, make_report(plan, state, seeded(f"{number}/{round_}")))
                record(plan, state, rng)
        written.update(author.written)

    judge()
    assert set(written) == {(*combination, sampled) for combination in COMBINATIONS}, "by construction"
    assert min(written.values()) >= 1
