"""parse_plan: what is read, and that every fault is found at once, on one line that names its field."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from client_sdk.errors import PlanError
from client_sdk.files import load_plan
from client_sdk.plan import Metric, Plan, Registrar, canonical_form, parse_plan
from client_sdk.plan.fields import Table
from client_sdk.plan.parse import MAX_PLAN_BYTES, _check_vector
from client_sdk.secagg.merkle import Node
from client_sdk.secagg.transcript import roster_digest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"

HEAD = """
[plan]
name = "app-health"
version = 3
period = "1d"
"""
COHORT = """
[cohort]
min_size = 50
target_size = 200
"""
BUDGET = """
[budget]
lifetime = 365
"""
NUMBER = """
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1.0
"""
CATEGORY = """
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
epsilon = 1.0
"""
WHOLE = HEAD + COHORT + BUDGET + NUMBER + CATEGORY


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(PlanError) as caught:
        parse_plan(text)
    found = caught.value.problems
    assert found
    assert all(line == line.strip() and "\n" not in line and ": " in line for line in found)
    return found


def only_problem(text: str) -> str:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def with_line(section: str, line: str) -> str:
    """The whole plan with one field of `section` replaced or added."""
    field = line.split("=", maxsplit=1)[0].strip()
    out, here = [], False
    for old in WHOLE.splitlines():
        if old.startswith("["):
            here = old == f"[{section}]"
            out += [old, line] if here else [old]
        elif not (here and old.split("=")[0].strip() == field):
            out.append(old)
    text = "\n".join(out)
    return text if f"[{section}]" in text else f"{text}\n[{section}]\n{line}\n"


def test_sample_plan_says_what_the_model_holds() -> None:
    plan = load_plan(DEPLOY / "plan.toml")
    assert (plan.name, plan.version, plan.period_s, plan.max_delay_s, plan.upload_window_s) == (
        "app-health", 3, 86_400, 7 * 86_400, 6 * 3_600,
    )  # fmt: skip
    assert plan.cohort.corrupt_fraction == Fraction(1, 10)
    assert (plan.budget.lifetime_micro, plan.budget.rolling_24h_micro) == (365_000_000, 4_000_000)
    assert plan.metrics["network"].default == "offline"
    assert plan.metrics["network"].categories == ("wifi", "cellular", "offline")
    assert plan.metrics["cold_start_ms"].mechanism.name == "laplace"
    assert plan.text.startswith("# A plan is")
    assert len(plan.hash) == 32


def test_defaults() -> None:
    plan = parse_plan(WHOLE)
    assert (plan.max_delay_s, plan.upload_window_s, plan.cohort.max_wait_s) == (86_400, 21_600, 30)
    assert (plan.cohort.corrupt_fraction, plan.cohort.dropout_fraction) == (Fraction(1, 10), Fraction(1, 10))
    assert plan.budget.rolling_24h_micro == 2 * 2_000_000
    assert plan.delivery.resend == "same_bytes"
    number, category = plan.metrics["cold_start_ms"], plan.metrics["network"]
    assert (number.levels, number.on_device, number.default) == (1000, "last", Decimal(2500))
    assert (category.on_device, category.default) == ("last", "other")


@pytest.mark.parametrize(("period", "reports"), [("1h", 25), ("1d", 2), ("7d", 2), ("90s", 961)])
def test_rolling_default_is_one_report_more_than_fits(period: str, reports: int) -> None:
    plan = parse_plan(with_line("plan", f'period = "{period}"'))
    assert plan.budget.rolling_24h_micro == reports * plan.report_micro_epsilon


def test_defaults_without_a_reading() -> None:
    no_other = parse_plan(WHOLE.replace('other = "other"\n', ""))
    assert no_other.metrics["network"].default == "wifi"
    for rule in ("count", "sum"):
        plan = parse_plan(with_line("metrics.cold_start_ms", f'on_device = "{rule}"'))
        assert plan.metrics["cold_start_ms"].default == 0


def test_layout_follows_names_and_has_no_gaps() -> None:
    plan = parse_plan(HEAD + COHORT + BUDGET + CATEGORY + NUMBER)
    assert list(plan.metrics) == ["cold_start_ms", "network"]
    assert dict(plan.slices) == {"cold_start_ms": slice(0, 1), "network": slice(1, 5)}
    assert plan.length == 5
    assert plan.bound == 1000 + 45_000
    assert plan.report_micro_epsilon == 2_000_000
    rules = plan.round_rules()
    assert (rules.length, rules.bound, rules.min_size) == (5, 46_000, 50)


def test_plan_is_read_only_compares_by_hash_and_travels_as_text() -> None:
    plan = parse_plan(WHOLE)
    with pytest.raises(AttributeError):
        plan.version = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.metrics["x"] = plan.metrics["network"]  # type: ignore[index]
    copy = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own bytes
    assert copy == plan
    assert copy.text == plan.text
    assert {plan, copy} == {plan}
    assert len(repr(plan)) < 100
    assert "5000" not in repr(plan.metrics)


@pytest.mark.parametrize(
    ("now", "start"),
    [(0, 0), (86_399.999, 0), (86_400, 86_400), (86_400.0, 86_400), (172_800 - 1e-6, 86_400), (-1, -86_400)],
)
def test_periods_are_utc_and_half_open(now: float, start: int) -> None:
    assert parse_plan(WHOLE).period_start(now) == start


def test_micro_epsilon_of_a_metric_rounds_up() -> None:
    plan = parse_plan(with_line("metrics.network", "epsilon = 0.3333331"))
    assert plan.metrics["network"].micro_epsilon == 333_334
    assert plan.metrics["network"].epsilon == Decimal("0.3333331")


def test_all_errors_at_once() -> None:
    text = """
    [plan]
    name = "Bad Name"
    version = 0
    period = "yesterday"
    colour = "red"
    [cohort]
    min_size = 1
    target_size = "many"
    dropout_fraction = 0.5
    [budget]
    rolling_24h = -1
    [delivery]
    resend = "maybe"
    [metrics.a]
    kind = "numeric"
    lower = 5
    upper = 5
    epsilon = 0
    on_device = "median"
    [metrics.b]
    kind = "categorical"
    categories = ["x", "x"]
    epsilon = nan
    lower = 3
    [metrics.c]
    kind = "riddle"
    [surprise]
    """
    fields = [line.split(":")[0] for line in problems(text)]
    assert fields == [
        "plan.name", "plan.version", "plan.period", "plan.colour", "cohort.min_size", "cohort.target_size",
        "cohort.dropout_fraction", "metrics.a.epsilon", "metrics.a.on_device", "metrics.b.epsilon",
        "metrics.b.categories", "metrics.b.lower", "metrics.c.kind", "budget.lifetime", "budget.rolling_24h",
        "delivery.resend", "surprise",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "section", ["plan", "cohort", "budget", "delivery", "metrics.cold_start_ms", "metrics.network"]
)
def test_unknown_fields_are_refused_at_every_level(section: str) -> None:
    assert only_problem(with_line(section, "colour = 1")).startswith(f"{section}.colour: unknown field; known here: ")


@pytest.mark.parametrize("table", ["plan", "cohort", "budget"])
def test_missing_tables_are_named(table: str) -> None:
    text = WHOLE.replace(f"[{table}]", "[delivery]")
    assert any(line.startswith(f"{table}: missing") for line in problems(text))
    assert any(line.startswith("metrics: missing") for line in problems(HEAD + COHORT + BUDGET))
    assert only_problem(HEAD + COHORT + BUDGET + "[metrics]").startswith("metrics: a plan needs at least one")


def test_tables_must_be_tables() -> None:
    assert only_problem('delivery = "direct"\n' + WHOLE) == 'delivery: must be a table [delivery], not "direct"'
    assert only_problem(HEAD + COHORT + BUDGET + "[metrics]\nx = [1]").startswith("metrics.x: must be a table")


# case A03
@pytest.mark.parametrize(
    ("section", "line", "named"),
    [
        ("metrics.cold_start_ms", "lower = 5000", ("lower", "upper")),
        ("metrics.network", "categories = []", ("categories",)),
    ],
)
def test_degenerate_shapes_are_refused_by_name(section: str, line: str, named: tuple[str, ...]) -> None:
    found = only_problem(with_line(section, line))
    assert all(word in found for word in named)


def test_one_category_needs_an_other_cell() -> None:  # case A03
    alone = WHOLE.replace('["wifi", "cellular", "offline"]', '["wifi"]')
    assert parse_plan(alone).metrics["network"].mechanism.length == 2
    assert only_problem(alone.replace('other = "other"\n', "")).startswith("metrics.network.categories: ")


# case A04, case D08
@pytest.mark.parametrize("bounds", [("-1.7e308", "1.7e308"), ("nan", "1"), ("0", "inf"), ("10", "0"), ("-inf", "inf")])
def test_bad_bounds_are_refused(bounds: tuple[str, str]) -> None:
    text = with_line("metrics.cold_start_ms", f"lower = {bounds[0]}").replace("upper = 5000", f"upper = {bounds[1]}")
    assert all(
        line.startswith(("metrics.cold_start_ms.lower", "metrics.cold_start_ms.upper")) for line in problems(text)
    )


def test_bounds_may_be_negative_and_decimal() -> None:  # case D08
    plan = parse_plan(with_line("metrics.cold_start_ms", "lower = -0.25").replace("upper = 5000", "upper = -0.05"))
    assert plan.metrics["cold_start_ms"].default == Decimal("-0.15")


# case C05
@pytest.mark.parametrize(
    "amount",
    ["nan", "inf", "-inf", "-1", "0", "1e-320", "1e400", "", "1_000", "0x1", '"1"', '""', "true", "40.000001", "1_0.5",
     "0.0000009", "1e-999999999", "1e999999999999999999999", "[1]", pytest.param("9" * 5000, id="long"), "1979-05-27"],
)  # fmt: skip
def test_meaningless_epsilons_are_refused(amount: str) -> None:
    for found in problems(with_line("metrics.network", f"epsilon = {amount}")):
        assert len(found) < 500
        assert "epsilon" in found or found.startswith("plan: not valid TOML")


# case C05
@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "1e400", '"4"', "0x4", "1_000", "0.0000001", "1000000001"])
def test_meaningless_budgets_are_refused(amount: str) -> None:
    for field in ("lifetime", "rolling_24h"):
        assert all(field in found for found in problems(with_line("budget", f"{field} = {amount}")))


def test_zero_is_a_budget() -> None:  # case C05
    plan = parse_plan(with_line("budget", "lifetime = 0"))
    assert plan.budget.lifetime_micro == 0


def test_an_odd_amount_in_a_comment_is_only_a_comment() -> None:
    assert parse_plan(WHOLE + "# epsilon = 0x1 and lifetime = 1_000\n") == parse_plan(WHOLE)


# case H03
NAMES = [
    "../escape", "..\\escape", "a/b", "a\u0000b", ".", "..", "-rf", "CON", "x" * 240, "%2e%2e%2fescape", "", "a b", "ä",
    "a\n", "1a", "_a",
]  # fmt: skip


DEEP = ".".join(["a"] * 50_000)


@pytest.mark.parametrize(
    "line",
    [
        f"[{DEEP}]",
        f"{DEEP} = 1",
        " . ".join(['"a"', "'b'"] * 1000) + " = 1",
        f"x = {{a = '''t'''', {DEEP} = 'v'}}",
        f'x = {{a = """t"""", {DEEP} = "v"}}',
    ],
    ids=["header", "key", "quoted", "behind four quotes", "behind four double quotes"],
)
def test_paths_that_would_keep_the_reader_busy_for_an_hour_are_refused_first(line: str) -> None:
    began = time.process_time()
    text = WHOLE + line + "\n" + "".join(f"b{i} = 1\n" for i in range(2_000))
    assert "more than 32 dots outside of text in one line" in only_problem(text)
    assert time.process_time() - began < 2.0, "seconds, where the reader itself takes minutes"


def test_dots_in_labels_and_comments_are_text() -> None:
    labels = ("1.2.3", "com.example." * 10 + "app", "it's # no comment", 'a " quote.')
    line = "categories = [" + ", ".join(json.dumps(label) for label in labels) + "] # " + "." * 100
    assert parse_plan(with_line("metrics.network", line)).metrics["network"].categories == labels


@pytest.mark.parametrize("field", ["corrupt_fraction", "dropout_fraction"])
def test_shares_fit_into_a_rounds_transcript(field: str) -> None:
    exact = parse_plan(with_line("cohort", f"{field} = 0.100000000000000001"))
    assert roster_digest("r", exact.round_rules(), 3, 2, 2, 32, 0, Node(bytes(32), 3, 0))
    assert only_problem(with_line("cohort", f"{field} = 0.1000000000000000001")) == (
        f"cohort.{field}: may have at most 18 digits after the point, not 0.1000000000000000001"
    )


@pytest.mark.parametrize("name", NAMES)
def test_names_cannot_leave_their_place(name: str) -> None:
    escaped = name.replace("\\", "\\\\").replace("\u0000", "\\u0000").replace("\n", "\\n")
    assert only_problem(with_line("plan", f'name = "{escaped}"')).startswith("plan.name: ")
    found = only_problem(WHOLE.replace("[metrics.network]", f'[metrics."{escaped}"]'))
    assert found.startswith("metrics.")
    assert len(found) < 300


def test_longest_names_pass() -> None:
    assert parse_plan(with_line("plan", f'name = "{"a" * 63}"')).name == "a" * 63
    assert only_problem(with_line("plan", f'name = "{"a" * 64}"')).startswith("plan.name")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('categories = ["a", ""]', "categories"),
        ('categories = ["a", "b\\tc"]', "categories"),
        ('categories = ["a", "b\\u202Ec"]', "categories"),
        ('categories = ["a", "b\\u200B"]', "categories"),
        ('categories = ["a", " b"]', "categories"),
        ('categories = ["a", 1]', "categories"),
        ('categories = ["a", ["b"]]', "categories"),
        (f'categories = ["a", "{"b" * 129}"]', "categories"),
        ('categories = ["a", "b", "a"]', "categories"),
        ('categories = "ab"', "categories"),
        ('other = "wifi"', "other"),
        ("other = 1", "other"),
        ('other = ""', "other"),
        ('default = "satellite"', "default"),
        ("default = 1", "default"),
        ('on_device = "count"', "on_device"),
        ('on_device = "mean"', "on_device"),
        ('mechanism = "laplace"', "mechanism"),
        ("levels = 10", "levels"),
    ],
)
def test_faults_of_a_categorical_metric(line: str, field: str) -> None:
    assert only_problem(with_line("metrics.network", line)).startswith(f"metrics.network.{field}: ")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("levels = 1", "levels"),
        ("levels = 2.0", "levels"),
        ("levels = true", "levels"),
        ("default = -1", "default"),
        ("default = 5000.1", "default"),
        ('default = "0"', "default"),
        ('mechanism = "randomized_response"', "mechanism"),
        ('mechanism = "magic"', "mechanism"),
        ('categories = ["a", "b"]', "categories"),
        ('other = "b"', "other"),
        ('lower = "0"', "lower"),
        ("upper = 1e30", "upper"),
        ("upper = 0.0000000000000000000000000000001", "upper"),
    ],
)
def test_faults_of_a_numeric_metric(line: str, field: str) -> None:
    assert only_problem(with_line("metrics.cold_start_ms", line)).startswith(f"metrics.cold_start_ms.{field}: ")


def test_a_count_or_sum_without_readings_is_zero_and_nothing_else() -> None:
    text = with_line("metrics.cold_start_ms", 'on_device = "sum"')
    assert parse_plan(text.replace("lower = 0", "default = 0.0\nlower = 0")) == parse_plan(text)
    assert only_problem(text.replace("lower = 0", "default = 1\nlower = 0")).startswith(
        "metrics.cold_start_ms.default: "
    )


@pytest.mark.parametrize(
    ("section", "line", "field"),
    [
        ("delivery", 'mode = "direct"', "delivery.mode"),
        ("aggregation", "levels = 1", "aggregation"),
    ],
)
def test_what_is_not_built_yet_is_refused_in_so_many_words(section: str, line: str, field: str) -> None:
    found = only_problem(with_line(section, line))
    assert found.startswith(f"{field}: this version does not have ")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("version = 1.0", "version"),
        ("version = true", "version"),
        ('version = "3"', "version"),
        ("period = 86400", "period"),
        ('period = "59s"', "period"),
        ('period = "7h"', "period"),
        ('period = "36h"', "period"),
        ('period = "400d"', "period"),
        ('period = "1.5d"', "period"),
        ('period = "-1d"', "period"),
        ('period = "١d"', "period"),
        ('max_delay = "0s"', "max_delay"),
        ('max_delay = "5h"', "upload_window"),
        ('upload_window = "25h"', "upload_window"),
    ],
)
def test_faults_of_the_head(line: str, field: str) -> None:
    assert only_problem(with_line("plan", line)).startswith(f"plan.{field}: ")


@pytest.mark.parametrize("period", ["60s", "15m", "6h", "1d", "7d", "24h", "48h"])
def test_periods_that_keep_days_whole(period: str) -> None:
    plan = parse_plan(with_line("plan", f'period = "{period}"'))
    assert plan.period_start(86_400 * 28) == 86_400 * 28


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        (["target_size = 10001"], "target_size"),
        (["target_size = 10000", "dropout_fraction = 0.4"], "target_size"),
        (["target_size = 600", "corrupt_fraction = 0.3", "dropout_fraction = 0.3"], "target_size"),
        (["target_size = 55"], "target_size"),
        (["min_size = 1"], "min_size"),
        (["min_size = 50.0"], "min_size"),
        (['max_wait = "2h"'], "max_wait"),
        (["corrupt_fraction = 0.5"], "corrupt_fraction"),
        (["corrupt_fraction = -0.1"], "corrupt_fraction"),
        (["dropout_fraction = nan"], "dropout_fraction"),
        (["corrupt_fraction = 0.4", "dropout_fraction = 0.4"], "dropout_fraction"),
    ],
)
def test_cohorts_that_could_not_open_a_sum(lines: list[str], field: str) -> None:
    text = WHOLE
    for line in lines:
        name = line.split(" =")[0]
        text = "\n".join(old for old in text.splitlines() if not old.startswith(f"{name} ="))
        text = text.replace("[cohort]", f"[cohort]\n{line}")
    assert only_problem(text).startswith(f"cohort.{field}: ")


def test_a_plan_without_a_graph_for_its_rosters_is_refused_in_one_line() -> None:
    text = with_line("cohort", "dropout_fraction = 0.3").replace("target_size = 200", "target_size = {}")
    assert parse_plan(text.format(3000)).cohort.target_size == 3000
    # 4,000 have a graph, but where a remainder joins the last cohort, nearly twice as many may meet.
    assert only_problem(text.format(4000)) == (
        "cohort.target_size: a roster of 7999 has no graph of at most 1023 neighbours that holds with corrupt_fraction "
        "0.1 and dropout_fraction 0.3; lower one of them or the roster"
    )


def test_the_smallest_cohort_stands() -> None:
    text = with_line("cohort", "min_size = 3").replace("target_size = 200", "target_size = 4")
    assert parse_plan(text).cohort.target_size == 4


@dataclass(frozen=True)
class WideMechanism:
    """A mechanism of any shape: what a later version might bring."""

    length: int
    bound: int
    name: str = "wide"


def wide(length: int, bound: int) -> dict[str, Metric]:
    mechanism = WideMechanism(length, bound)
    return {"x": Metric("x", "numeric", mechanism, Decimal(1), 10**6, "last", Decimal(0))}  # type: ignore[arg-type]


def vector_problems(length: int, bound: int, target_size: int) -> list[str]:
    root = Table("", {}, [])
    _check_vector(root, wide(length, bound), target_size)
    return root.problems


def test_a_sum_that_could_wrap_is_refused_when_planned() -> None:  # case D07
    largest = 2**63 // 400 - 1
    assert vector_problems(1, largest, 200) == []
    (found,) = vector_problems(1, largest + 2, 200)
    assert found.startswith("metrics.x: ")
    assert str(largest + 2) in found
    assert "400" in found
    assert vector_problems(1, 536_870_912, 10) == []  # ten of these fit: the ring is 64 bits wide
    assert only_problem(with_line("metrics.cold_start_ms", "levels = 536870912")).startswith(
        "metrics.cold_start_ms.levels: "
    )


def test_a_vector_over_the_limit_is_refused_with_its_size() -> None:  # case D10
    assert vector_problems(1_000_000, 1, 200) == []
    (found,) = vector_problems(1_000_001, 1, 200)
    assert found == "metrics: a report would have 1000001 elements, 8000008 bytes; the limit is 1000000 elements"


def test_a_hundred_thousand_categories() -> None:  # case D10
    labels = ", ".join(f'"c{i}"' for i in range(100_000))
    text = WHOLE.replace('"wifi", "cellular", "offline"', labels)
    assert parse_plan(text).length == 100_002
    assert only_problem(text.replace('"c0"', '"c0", "d"')).startswith(
        "metrics.network.categories: must be a list of 1 to"
    )


@pytest.mark.parametrize(
    "text",
    ["[plan", "a = 1\na = 2", "x = " + "[" * 100_000, "a = " + "1" * 10_000, "\x00", "[plan]\nname = 'a\n'"],
)
def test_what_is_not_toml_is_one_line(text: str) -> None:
    found = only_problem(text)
    assert found.startswith("plan: not valid TOML: ")
    assert len(found) < 400


def test_size_limit() -> None:
    filler = "#" * (MAX_PLAN_BYTES - len(WHOLE.encode()) - 1) + "\n"
    assert isinstance(parse_plan(filler + WHOLE), Plan)
    assert "limit" in only_problem("#" + filler + WHOLE)
    assert "limit" in only_problem("# " + "ä" * (MAX_PLAN_BYTES // 2))


def test_deployed_plans_parse() -> None:
    for path in sorted(DEPLOY.glob("*.toml")):
        if path.name in {"plan.toml", "greenhub.toml"}:
            assert load_plan(path).metrics


KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # RFC 8032, test 1
REGISTRAR = f'\n[registrar]\naddress = "registrar.example:443"\nkey = "{KEY}"\n'


def test_a_plan_names_its_registrar_or_none() -> None:
    assert parse_plan(WHOLE).registrar is None
    named = parse_plan(WHOLE + REGISTRAR)
    assert named.registrar == Registrar("registrar.example:443", bytes.fromhex(KEY))
    assert parse_plan(WHOLE + REGISTRAR.replace(KEY, KEY.upper())).hash == named.hash
    assert json.loads(canonical_form(named))["registrar"] == {"address": "registrar.example:443", "key": KEY}
    assert "registrar" not in canonical_form(parse_plan(WHOLE))


@pytest.mark.parametrize("address", ["127.0.0.1:7444", "[::1]:65535", "a-b.example:1"])
def test_addresses_of_a_registrar(address: str) -> None:
    found = parse_plan(WHOLE + REGISTRAR.replace("registrar.example:443", address)).registrar
    assert found is not None
    assert found.address == address


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("\n[registrar]\n", "registrar.address"),
        ('\n[registrar]\naddress = "r:1"\n', "registrar.key"),
        (REGISTRAR.replace("example:443", "example"), "registrar.address"),
        (REGISTRAR.replace("example:443", "example:65536"), "registrar.address"),
        (REGISTRAR.replace("example:443", "example:0"), "registrar.address"),
        (REGISTRAR.replace("example:443", "example:443/x"), "registrar.address"),
        (REGISTRAR.replace("registrar.example", "https://registrar.example"), "registrar.address"),
        (REGISTRAR.replace('"registrar.example:443"', "443"), "registrar.address"),
        (REGISTRAR.replace(KEY, KEY[:-1]), "registrar.key"),
        (REGISTRAR.replace(KEY, KEY[:-1] + "g"), "registrar.key"),
        (REGISTRAR.replace(KEY, "01" + 31 * "00"), "registrar.key"),  # of small order: anybody's signature holds
        (REGISTRAR.replace(KEY, 32 * "ff"), "registrar.key"),  # another writing of y = 19: not its one encoding
        (REGISTRAR + 'name = "x"\n', "registrar.name"),
        ("\nregistrar = 1\n", "registrar"),
    ],
)
def test_a_registrar_that_nobody_could_ask(text: str, field: str) -> None:
    whole = text + WHOLE if text.startswith("\nregistrar") else WHOLE + text
    assert any(line.startswith(f"{field}: ") for line in problems(whole))


@pytest.mark.parametrize("day", ["2027-01-01", '"2027-01-01"'])
def test_a_metric_expires_with_the_first_period_that_starts_on_its_day(day: str) -> None:
    metric = parse_plan(with_line("metrics.network", f"expires = {day}")).metrics["network"]
    first = 1_798_761_600  # 2027-01-01T00:00Z
    assert metric.expires == date(2027, 1, 1)
    assert metric.is_expired(first)
    assert metric.is_expired(first + 86_400)
    assert not metric.is_expired(first - 1)
    assert not parse_plan(WHOLE).metrics["network"].is_expired(2**40)


def test_one_day_has_one_hash() -> None:
    hashes = {
        parse_plan(with_line("metrics.network", f"expires = {day}")).hash
        for day in ("2027-01-01", '"2027-01-01"', "2027-01-02")
    }
    assert len(hashes | {parse_plan(WHOLE).hash}) == 3


@pytest.mark.parametrize(
    "day",
    [
        '"2027-02-30"',
        '"soon"',
        "20270101",
        '"20270101"',
        "2027-01-01T00:00:00Z",
        "00:00:00",
        "1969-12-31",
        "true",
        '""',
    ],
)
def test_what_is_no_day(day: str) -> None:
    assert only_problem(with_line("metrics.network", f"expires = {day}")).startswith("metrics.network.expires: must be")


# --- delivery ---------------------------------------------------------------------------------------


def delivered(*lines: str) -> Plan:
    """Of a plan whose reports expire after a week."""
    head = WHOLE.replace('period = "1d"', 'period = "1d"\nmax_delay = "7d"')
    return parse_plan(head + "\n[delivery]\n" + "\n".join(lines) + "\n")


def test_who_sees_reports_is_nobody_by_default() -> None:
    rules = delivered().delivery
    assert (rules.resend, rules.delivery, rules.fallback, rules.fallback_after_s) == (
        "same_bytes", "interactive", "none", 0,
    )  # fmt: skip
    assert not rules.takes_direct
    assert not rules.goes_direct(0, 10**12)


def test_a_direct_plan_is_direct_from_the_start() -> None:
    rules = delivered('delivery = "direct"').delivery
    assert rules.takes_direct
    assert rules.goes_direct(10**12, 0)


def test_a_fallback_begins_half_of_max_delay_after_the_period() -> None:
    plan = delivered('fallback = "direct"')
    assert plan.delivery.fallback_after_s == plan.max_delay_s // 2
    assert plan.delivery.takes_direct
    end = 1_000_000
    assert not plan.delivery.goes_direct(end, end + plan.max_delay_s // 2 - 0.001)
    assert plan.delivery.goes_direct(end, end + plan.max_delay_s // 2)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (('delivery = "direct"', 'fallback = "direct"'), "delivery.fallback: must be left out beside"),
        (('fallback_after = "6h"',), "delivery.fallback_after: means nothing without fallback"),
        (('fallback = "none"', 'fallback_after = "6h"'), "delivery.fallback_after: means nothing without fallback"),
        (
            ('fallback = "direct"', 'fallback_after = "8d"'),
            "delivery.fallback_after: is 691200 s, not before max_delay",
        ),
        (('fallback = "direct"', 'fallback_after = "0s"'), "delivery.fallback_after: must be a duration"),
        (('fallback = "later"',), 'delivery.fallback: must be one of "none", "direct", not "later"'),
        (("delivery = true",), 'delivery.delivery: must be one of "interactive", "direct", not true'),
    ],
)
def test_what_delivery_cannot_be(lines: tuple[str, ...], problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        delivered(*lines)
    (found,) = caught.value.problems
    assert found.startswith(problem)
