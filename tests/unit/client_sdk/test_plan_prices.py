"""What `plan check` says of errors before anybody reports: against formulas, and against what `estimate` prints."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from client_sdk.mechanisms.choice import cheapest, costs
from client_sdk.mechanisms.quantiles import reference_shares
from client_sdk.mechanisms.verdict import FEWEST
from client_sdk.plan import check_plan, format_check
from client_sdk.plan.build import LABELS as WORDS
from client_sdk.plan.prices import (
    REFERENCE,
    _expected_cells,
    _typical_total,
    _whole,
    choices,
    expected_error,
    usable_from,
)
from tests.unit.client_sdk.test_plan_check import section
from tests.unit.client_sdk.test_plan_mechanisms import HISTOGRAM, LABELS, NUMBER, QUANTILES, metric_of, plan_of


def word(name: str) -> str:
    return f'mechanism = "{name}"\n'


# Wang, Blocki, Li, Jha 2017: p and q of the real-valued mechanisms at epsilon 1 over k = 4 labels.
E, H = math.e, math.exp(0.5)
LAWS = {
    "randomized_response": (E / (E + 3), 1 / (E + 3)),
    "symmetric_unary": (H / (H + 1), 1 / (H + 1)),
    "optimized_unary": (0.5, 1 / (E + 1)),
    "subset_selection": (E / (E + 3), 1 / (E + 3)),
    "hadamard": (E / (E + 1), 0.5),
}


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("kind", [LABELS, HISTOGRAM + "bins = 4\n"])
def test_a_counts_error_is_the_formula_at_equal_shares(name: str, kind: str) -> None:
    p, q = LAWS[name]
    metric = metric_of(kind + word(name))
    for n in (100, 1_000, 100_000):
        found = expected_error(metric, n)
        wanted = math.sqrt(n * (p * (1 - p) / 4 + 3 / 4 * q * (1 - q))) / (p - q)
        assert found.standard_error == pytest.approx(wanted, rel=1e-9)
        assert found.percent == pytest.approx(100 * wanted / n)


@pytest.mark.parametrize("name", WORDS)
def test_the_reference_total_decodes_to_equal_shares(name: str) -> None:
    """So a quantile's error is of the reference that it claims."""
    metric = metric_of(HISTOGRAM + "bins = 11\n" + word(name))
    inner = metric.mechanism.inner  # type: ignore[attr-defined]
    n = 10**12
    for shares in ([1 / 11] * 11, reference_shares(11)):
        cells = _expected_cells(inner, shares)
        total = _whole(cells, n)
        assert sum(cells) == pytest.approx(inner.ones or 11 * float(inner.q + (inner.p - inner.q) / 11))
        assert sum(total) == pytest.approx(n * sum(cells), abs=1)
        assert inner.estimate(total, n).values == pytest.approx([n * share for share in shares], rel=1e-7, abs=100)


def test_a_square_waves_reference_is_its_law() -> None:
    inner = metric_of(HISTOGRAM + word("square_wave")).mechanism.inner  # type: ignore[attr-defined]
    cells = _expected_cells(inner, [1 / inner.k] * inner.k)
    # by hand: cell c lies in the window of the places c - window + 1 .. c, as far as there are such
    seen = [sum(0 <= c - place < inner.window for place in range(inner.k)) for c in range(inner.length)]
    assert cells == pytest.approx([float((s * inner.p + (inner.k - s) * inner.q) / inner.k) for s in seen])
    assert sum(cells) == pytest.approx(1)


@pytest.mark.parametrize("name", ["laplace", "one_bit", "piecewise", "hybrid"])
def test_a_means_error_is_of_readings_in_the_middle(name: str) -> None:
    metric = metric_of(NUMBER + word(name))
    error = expected_error(metric, 1_000).standard_error
    assert error is not None
    # Variances for the range [-1, 1] at the middle (Wang et al. 2019), rounding on the lattice aside; for the
    # piecewise mechanism a sum does not show how far readings lie apart: its error is that of the ends.
    variance = {
        "laplace": 8.0,
        "one_bit": ((E + 1) / (E - 1)) ** 2,
        "piecewise": 1 / (H - 1) + (H + 3) / (3 * (H - 1) ** 2),
        "hybrid": (H + 3) / (3 * H * (H - 1)) + (E + 1) ** 2 / (H * (E - 1) ** 2),
    }[name]
    wanted = 2500 * math.sqrt(variance / 1_000)
    if name == "piecewise":  # its window is the best on the lattice, a little better than the paper's
        assert 0.95 * wanted < error < wanted
    else:
        assert error == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        *(NUMBER + word(name) for name in ("laplace", "one_bit", "hybrid")),
        *(LABELS + word(name) for name in WORDS),
        NUMBER.replace("epsilon = 1", "epsilon = 30"),
        LABELS.replace("epsilon = 1", "epsilon = 0.1"),
        LABELS.replace('"c"]', ", ".join(f'"c{i}"' for i in range(98)) + "]"),  # 2 % are more than an equal share
        HISTOGRAM,
        NUMBER + "optional = true\npresence_share = 0.01",
        NUMBER + "optional = true",
    ],
)
def test_usable_from_is_where_the_verdict_turns(text: str) -> None:
    metric = metric_of(text)
    n = usable_from(metric)
    assert n is not None

    def is_usable(contributors: int) -> bool:
        error = expected_error(metric, contributors).standard_error
        if error is None or contributors < FEWEST:
            return False
        width = 2 * 1.959964 * error
        if metric.mechanism.answer == "counts":
            return width <= contributors * max(1 / len(metric.mechanism.labels), 0.02)
        return width <= 0.1 * float(metric.upper - metric.lower)  # type: ignore[operator]

    # even numbers: of an optional number half of the bits are set, and half a bit can be a hundred devices
    assert is_usable(2 * math.ceil(n * 1.001 / 2) + 2)
    assert not is_usable(2 * math.floor(n * 0.999 / 2) - 2)


def test_what_other_mechanisms_would_cost() -> None:
    metric = metric_of(LABELS + word("auto"))
    found = choices(metric)
    assert [choice.mechanism for choice in found] == list(WORDS)
    assert [choice.standard_error for choice in found] == pytest.approx(
        [math.sqrt(REFERENCE * cost) for cost in costs(4, Decimal(1)).values()]
    )
    assert [choice.mechanism for choice in found if choice.chosen] == [cheapest(4, Decimal(1))]
    numbers = choices(metric_of(NUMBER + word("auto")))
    errors = {choice.mechanism: choice.standard_error for choice in numbers}
    assert min(errors, key=lambda name: errors[name] or math.inf) == "hybrid"
    assert errors["laplace"] == pytest.approx(2500 * math.sqrt(8 / REFERENCE), rel=1e-3)
    assert errors["one_bit"] == pytest.approx(2500 * (E + 1) / (E - 1) / 100, rel=1e-6)
    metric = metric_of(NUMBER + 'optional = true\nmechanism = "one_bit"')
    optional = {choice.mechanism: choice for choice in choices(metric)}
    # at 3/4 of epsilon, the sum over everybody's noise over the half that had a reading
    assert optional["one_bit"].standard_error == pytest.approx(2 * 2500 / math.tanh(0.375) / 100, rel=1e-3)
    assert optional["one_bit"].standard_error == expected_error(metric, REFERENCE).standard_error, "one reference"
    bins = [choice.mechanism for choice in choices(metric_of(HISTOGRAM))]
    assert bins == [*WORDS, "square_wave"]
    assert [choice.mechanism for choice in choices(metric_of(HISTOGRAM + "optional = true"))] == list(WORDS)


def test_only_what_can_be_memoised_is_offered_to_a_memoised_metric() -> None:
    text = LABELS + word("optimized_unary")
    assert "hadamard" in {choice.mechanism for choice in choices(metric_of(text))}
    memoised = {choice.mechanism for choice in choices(metric_of(text + "memoize = true\n"))}
    assert memoised == {"randomized_response", "optimized_unary"}


def test_an_optional_number_has_no_answer_over_too_few() -> None:
    metric = metric_of(NUMBER + "optional = true\npresence_share = 0.05\n")
    first = expected_error(metric, 100)
    assert (first.standard_error, first.percent) == (None, None)
    # a bit at epsilon 1/20 has a count's error of root n p(1-p) / (2p-1), and half the devices must be four of these
    keep = Fraction(math.exp(0.05) / (1 + math.exp(0.05)))
    least = 16 * keep * (1 - keep) / (2 * keep - 1) ** 2 * 4
    assert expected_error(metric, 2 * math.floor(least / 2) - 2).standard_error is None
    assert expected_error(metric, 2 * math.ceil(least / 2) + 2).standard_error is not None
    assert usable_from(metric) >= least


@pytest.mark.parametrize("more", ["", "optional = true\n"])
@pytest.mark.parametrize("bins", [12, 20, 50])
def test_quantiles_are_usable_from_where_their_widened_interval_stays_narrow(bins: int, more: str) -> None:
    metric = metric_of(QUANTILES + f"bins = {bins}\n" + more + word("subset_selection"))
    n = usable_from(metric)
    assert n is not None

    def widest(contributors: int) -> float:
        mechanism: Any = metric.mechanism
        rows = mechanism.estimate(_typical_total(mechanism, contributors), contributors).interval(0.95)
        return max((row[1] - row[0] for row in rows if row is not None), default=math.inf)

    tolerance = 0.1 * float(metric.upper - metric.lower)  # type: ignore[operator]
    assert widest(math.floor(n * 0.99) - 1) > tolerance * (1 + 1e-9)
    for factor in (1.01, 1.1, 2, 5, 50):
        assert widest(math.ceil(n * factor)) <= tolerance * (1 + 1e-9)


def test_bins_that_are_wider_than_the_verdict_allows_are_never_usable() -> None:
    text = QUANTILES.replace("epsilon = 1", "epsilon = 6") + "bins = 5\n"
    assert usable_from(metric_of(text)) is None
    check = check_plan(plan_of(text))
    assert any("metrics.m0: bins too coarse for a usable quantile" in line for line in check.warnings)
    assert check.metrics[0].devices is None
    assert min(error.percent or 0 for error in check.metrics[0].errors) >= 10, "half a bin at least"
    assert "never (bins too coarse)" in format_check(check)
    fine = check_plan(plan_of(text.replace("bins = 5", "bins = 50")))
    assert not any("too coarse" in line for line in fine.warnings)


def test_expected_quantiles_get_better_with_more_reports() -> None:
    metric = metric_of(QUANTILES + word("subset_selection"))
    errors = [expected_error(metric, n).standard_error for n in (10_000, 100_000, 1_000_000)]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(errors))


def test_the_text_prices_every_choice_and_says_what_auto_came_to() -> None:
    plan = plan_of(NUMBER + word("auto"), LABELS, NUMBER + "optional = true\n", head="sample_metrics = 2")
    check = check_plan(plan)
    text = format_check(check)
    metrics = section(text, "metrics")
    assert metrics[1][:2] == ["m0", "hybrid (auto)"]
    assert metrics[3][4] == "no reading (0.25 of epsilon says so)"
    assert metrics[4][0].startswith("each report holds 2 of these 3")
    prices = section(text, "standard error over 10,000")
    assert [row[0] for row in prices] == ["m0", "m1", "m2", prices[3][0]]
    assert prices[0][4].startswith("hybrid* ")
    assert prices[1][1].startswith("randomized_response* ")
    assert prices[3][0].startswith("m0: auto came to hybrid, the least variance")
    usable = section(text, "standard error to expect")
    assert usable[0] == ["name", "100", "1,000", "10,000", "100,000", "usable from"]
    for row, metric in zip(usable[1:4], check.metrics, strict=True):
        assert row[5] == f"{metric.usable_from:,} (of {metric.devices:,} devices)"
        assert metric.devices == math.ceil(metric.usable_from * 3 / 2)
    document = json.loads(json.dumps(check.as_dict(), allow_nan=False))
    assert document["sample_metrics"] == 2
    assert document["metrics"][0]["why"].startswith("least variance")
    assert document["metrics"][1]["choices"][0] == {
        "mechanism": "randomized_response",
        "standard_error": expected_error(plan.metrics["m1"], REFERENCE).standard_error,
        "chosen": True,
    }


def test_what_a_cohort_tells_of_a_sampled_metric_is_less() -> None:
    weak = [metric.replace("epsilon = 1", "epsilon = 0.25") for metric in (NUMBER, NUMBER, NUMBER)]
    assert not any("tells nothing" in line for line in check_plan(plan_of(*weak)).warnings)
    sampled = check_plan(plan_of(*weak, head="sample_metrics = 1"))
    assert sum("one cohort of 200 tells nothing" in line for line in sampled.warnings) == 3


def test_many_smoothed_bins_are_priced_by_fewer() -> None:
    """A smoothed share of half a bin has half of its error, a quantile the same: from 128 bins to 256, and to 1,024."""
    for kind, share in ((HISTOGRAM, 2), (QUANTILES, 1)):
        few, more = (
            expected_error(metric_of(f"{kind}bins = {bins}\n" + word("square_wave")), REFERENCE).standard_error
            for bins in (128, 256)
        )
        assert few is not None
        assert more is not None
        assert few / more == pytest.approx(share, rel=0.05)
    fine = metric_of(HISTOGRAM + "bins = 1024\n" + word("square_wave"))
    coarse = metric_of(HISTOGRAM + "bins = 512\n" + word("square_wave"))
    found, wanted = (expected_error(metric, REFERENCE).standard_error for metric in (fine, coarse))
    assert found == pytest.approx((wanted or 0) / 2)
