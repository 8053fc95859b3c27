"""What a plan's text may ask for: work is counted, not timed; and a plan is the same plan in every decimal context."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms import hybrid, piecewise
from client_sdk.mechanisms.choice import numeric_choice
from client_sdk.plan import Plan, bins, build, canonical_form, metrics, parse_plan, ranges
from client_sdk.plan.bins import equal_edges
from client_sdk.plan.check import check_plan
from client_sdk.plan.check_text import format_check
from client_sdk.plan.diff import diff_plans, format_diff

HEAD = """
[plan]
name = "app-health"
version = 3
period = "1d"
[cohort]
min_size = 50
target_size = 200
[budget]
lifetime = 1000000
"""
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 1\n'
BINNED = 'kind = "quantiles"\nlower = 0\nupper = 1\nepsilon = 1\n'
LABELS = 'kind = "categorical"\ncategories = ["a", "b"]\nepsilon = 1\n'


def text_of(*tables: str) -> str:
    return HEAD + "".join(f"[metrics.m{i}]\n{table}\n" for i, table in enumerate(tables))


def plan_of(*tables: str) -> Plan:
    return parse_plan(text_of(*tables))


def only_problem(*tables: str) -> str:
    with pytest.raises(PlanError) as caught:
        plan_of(*tables)
    (line,) = caught.value.problems
    return line


class Counter:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
        self.calls, inner = 0, getattr(where, name)

        def counted(*args: object, **named: object) -> object:
            self.calls += 1
            return inner(*args, **named)

        monkeypatch.setattr(where, name, counted)


# --- the limits -------------------------------------------------------------------------------------

EPSILONS = [f"epsilon = 1.{i:029d}\n" for i in range(1, 202)]
TOO_MUCH: dict[str, tuple[Callable[[], list[str]], str]] = {
    "metrics": (lambda: [LABELS] * 1001, "1001 metrics; a plan has at most 1000"),
    "bins": (lambda: [BINNED + "bins = 4093\n"] * 200, "818600 bins over all metrics; a plan has at most 65536"),
    "edges": (
        lambda: [f'kind = "histogram"\nepsilon = 1\nedges = {list(range(4097))}\n'] * 17,
        "69632 bins over all metrics",
    ),
    "labels": (
        lambda: [f'kind = "categorical"\nepsilon = 1\ncategories = {["a"] * 65_000}\n'] * 2,
        "a report would have 130000 elements or more; the limit is 100000 elements",
    ),
    "auto": (lambda: [NUMBER + 'mechanism = "auto"\n' + epsilon for epsilon in EPSILONS], "201 different settings"),
    "levels": (
        lambda: [NUMBER + f'mechanism = "hybrid"\nepsilon = 1\nlevels = {2**20 - i}\n' for i in range(65)],
        "65 different settings",
    ),
    "shares": (
        lambda: [
            NUMBER + f'mechanism = "piecewise"\nepsilon = 1\noptional = true\npresence_share = 0.{i}\n'
            for i in range(200, 265)
        ],
        "65 different settings",
    ),
}


@pytest.mark.parametrize("shape", TOO_MUCH)
def test_what_asks_for_too_much_is_refused_before_anything_is_made(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, line = TOO_MUCH[shape]
    monkeypatch.setattr("client_sdk.plan.parse.MAX_LENGTH", 100_000)
    made = [Counter(monkeypatch, ranges, "equal_edges"), Counter(monkeypatch, build, "number")]
    made.append(Counter(monkeypatch, metrics, "read_range"))
    found = only_problem(*make())
    assert found.startswith(f"metrics: {line}")
    assert [counter.calls for counter in made] == [0, 0, 0]


@pytest.mark.parametrize(
    "tables",
    [
        [LABELS] * 1000,
        [BINNED + "bins = 64\n"] * 500,
        [NUMBER + 'mechanism = "laplace"\n' + epsilon for epsilon in EPSILONS],
        [NUMBER + 'mechanism = "hybrid"\nepsilon = 2\n'] * 200,
    ],
    ids=["labels", "bins", "laplace", "one setting"],
)
def test_what_a_large_plan_may_have(tables: list[str]) -> None:
    assert len(plan_of(*tables).metrics) == len(tables)


@pytest.mark.parametrize(
    "metric",
    [
        "bins = 1e9",
        'bins = "4"',
        "bins = -4\nedges = 3",
        "categories = 7",
        'mechanism = ["auto"]\nepsilon = [1]',
        'mechanism = "auto"\nepsilon = nan',
        "kind = [1]",
    ],
)
def test_what_is_no_number_is_named_by_its_own_reader(metric: str) -> None:
    for kind in ("numeric", "categorical", "histogram", "quantiles"):
        text = metric if metric.startswith("kind") else f'kind = "{kind}"\n{metric}\n'
        with pytest.raises(PlanError) as caught:
            plan_of(text)
        assert all(line.startswith("metrics.m0") for line in caught.value.problems)


def test_a_setting_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hybrid._best_mixture.cache_clear()
    piecewise.best_size.cache_clear()
    numeric_choice.cache_clear()
    searches = [Counter(monkeypatch, module, "valley") for module in (hybrid, piecewise)]
    plan_of(*[NUMBER + 'mechanism = "auto"\nepsilon = 3\n'] * 50)
    assert [counter.calls for counter in searches] == [2, 1], "a window and a gap, and a window"


def test_edges_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canonical form compares them, and stops at the first that is another."""
    made = Counter(monkeypatch, ranges, "equal_edges")
    placed = Counter(monkeypatch, bins, "_nearest")
    plan_of(BINNED + "bins = 100\n")
    assert made.calls == 1
    assert placed.calls == 2 * 99
    plan_of('kind = "histogram"\nepsilon = 1\nedges = [0, 1, 100, 1000]\n')
    assert placed.calls == 2 * 99 + 1


def by_fractions(lower: Decimal, upper: Decimal, count: int) -> Iterator[Decimal]:
    """The same edges, each looked at as a fraction."""
    exact = [Fraction(lower) + (Fraction(upper) - Fraction(lower)) * step / count for step in range(count + 1)]

    def digits(edge: Fraction) -> int:
        return next((n for n in range(31) if 10**n % edge.denominator == 0), 31)

    places = max(map(digits, exact))
    if places > 30:
        places = next(n for n in range(400) if (exact[1] - exact[0]) * 10**n >= 1000)
    return (Decimal(f"{round(edge * 10**places)}E-{places}") for edge in exact)


@pytest.mark.parametrize("ends", [("0", "1"), ("-1.5", "7"), ("0.1", "0.3"), ("1e-29", "3e-29"), ("-1e29", "1e29")])
def test_edges_by_integers_are_those_by_fractions(ends: tuple[str, str]) -> None:
    lower, upper = map(Decimal, ends)
    for count in (2, 3, 7, 16, 20, 96, 125, 1000):
        assert equal_edges(lower, upper, count) == tuple(by_fractions(lower, upper, count))


def test_many_removed_labels_are_looked_up_not_searched() -> None:
    labels, gone = [f"a{i}" for i in range(40_000)], [f"b{i}" for i in range(40_000)]
    plan = plan_of(f'kind = "categorical"\nepsilon = 1\ncategories = {labels}\nremoved = {gone}\n')
    assert len(plan.metrics["m0"].removed) == 40_000  # minutes, where each is compared with all others


# --- square_wave ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["histogram", "quantiles"])
def test_a_square_wave_has_1024_bins_at_most(kind: str) -> None:
    wave = BINNED.replace("quantiles", kind) + 'mechanism = "square_wave"\n'
    assert plan_of(wave + "bins = 1024\n").length > 1024
    line = only_problem(wave + "bins = 1025\n")
    assert line.startswith("metrics.m0.mechanism: square_wave takes at most 1024 bins")
    assert "not 1025" in line


def test_auto_picks_no_square_wave_above_1024_bins() -> None:
    few, many = (plan_of(BINNED + f"bins = {count}\n").metrics["m0"] for count in (1024, 1025))
    assert few.mechanism.name == "square_wave"
    assert many.mechanism.name != "square_wave"
    priced = check_plan(plan_of(BINNED.replace("quantiles", "histogram") + "bins = 1025\n")).metrics[0].choices
    assert "square_wave" not in [choice.mechanism for choice in priced]


# --- the caller's decimal context -------------------------------------------------------------------

EXACTING = text_of(
    'kind = "numeric"\noptional = true\npresence_share = 0.3333333333333333\nlower = 0.1\n'
    "upper = 10.123456789012345678901234567\nepsilon = 0.123456789012345678901\n",
    'kind = "quantiles"\nquantiles = [0.123456, 0.5]\nlower = 0\nupper = 1\nepsilon = 1\nbins = 7\n',
    'kind = "numeric"\nmechanism = "auto"\nlower = 0.1\nupper = 0.7\nepsilon = 1.0000000000000000000001\n',
).replace("min_size = 50", "min_size = 50\ncorrupt_fraction = 0.123456789")


def everything(text: str) -> list[object]:
    plan = parse_plan(text)
    later = parse_plan(text.replace("version = 3", "version = 4").replace("= 1000000", "= 12345.678901"))
    return [
        canonical_form(plan),
        [metric.mechanism.labels for metric in plan.metrics.values()],
        [metric.losses for metric in plan.metrics.values()],
        format_check(check_plan(plan)),
        format_diff(diff_plans(plan, later)),
    ]


CONTEXTS = {
    "short": Context(prec=5),
    "one digit, upwards": Context(prec=1, rounding=decimal.ROUND_UP),
    "traps": Context(prec=28, traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation, decimal.Subnormal]),
    "small exponents": Context(prec=9, Emin=-3, Emax=3, clamp=1),
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_plan_is_the_same_in_every_decimal_context(context: str) -> None:
    wanted = everything(EXACTING)
    with localcontext(CONTEXTS[context]):
        found = everything(EXACTING)
    assert found == wanted


def test_quantiles_that_differ_have_labels_that_differ() -> None:
    text = BINNED + "quantiles = [0.00001, 0.01, 0.1, 0.5, 0.500000000000000000000000000001, 0.999, 0.99950]\n"
    labels = plan_of(text).metrics["m0"].mechanism.labels
    long = "p50.0000000000000000000000000001"
    assert labels == ("p0.001", "p1", "p10", "p50", long, "p99.9", "p99.95")
    assert all(a < b for a, b in pairwise(Decimal(label[1:]) for label in labels))
