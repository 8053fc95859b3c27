"""Combining: each version with its own mechanism, split cohorts add up, orders change nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from client_sdk.plan import Plan
from collector.combination import Combined, Pool, combine, metric_estimate, pool_sums
from collector.release import ReleasedSum
from tests.unit.collector.plans import make_plan, plan_of, pool


def rows(combined: Combined) -> dict[str, float | None]:
    return dict(zip(combined.labels, combined.estimate.values, strict=True))


# case G03
def test_categories_added_and_removed_between_versions() -> None:
    v1, v2 = make_plan(1, "1.0", ("x", "y")), make_plan(2, "3.0", ("x", "z"))
    combined = combine([pool(v1, "colour", [500, 500], 1000), pool(v2, "colour", [900, 100], 1000)])
    assert combined.labels == ("x", "z", "y"), "the newest version's first, then what only older ones had"
    values = rows(combined)
    assert values["x"] == pytest.approx(1441.917, abs=0.01)
    assert values["y"] == pytest.approx(500, abs=0.01)
    assert values["z"] == pytest.approx(58.083, abs=0.01)
    assert sum(v or 0.0 for v in values.values()) == pytest.approx(2000, abs=1e-6)
    assert combined.estimate.contributors == 2000


# case A09
def test_estimates_and_interval_ends_are_not_cut() -> None:
    plan = make_plan()
    low = combine([pool(plan, "colour", [200, 800], 1000)]).estimate
    assert low.values[0] == pytest.approx(-149.186, abs=0.01)
    assert sum(v or 0.0 for v in low.values) == pytest.approx(1000, abs=1e-6)
    even = combine([pool(plan, "colour", [5000, 5000], 10000)]).estimate
    assert even.values[0] == pytest.approx(5000, abs=1e-6)
    interval = even.interval(0.95)[0]
    assert interval is not None
    half_width = (interval[1] - interval[0]) / 2
    assert 187 <= half_width <= 213
    assert half_width == pytest.approx(1.959964 * (even.standard_errors[0] or 0.0), rel=1e-6)


# case A03
def test_nobody_is_null_and_never_nan() -> None:
    plan = make_plan()
    for name, empty_rows in (("colour", 2), ("seconds", 1)):
        metric = plan.metrics[name]
        for estimate in (metric_estimate(metric, [0] * empty_rows, 0), combine([Pool(metric)]).estimate):
            assert estimate.values == (None,) * empty_rows
            assert estimate.standard_errors == (None,) * empty_rows
            assert estimate.contributors == 0


def test_an_empty_version_changes_nothing() -> None:
    v1, v2 = make_plan(1), make_plan(2, "2.0")
    alone = combine([pool(v1, "seconds", [600], 10)])
    assert combine([pool(v1, "seconds", [600], 10), Pool(v2.metrics["seconds"])]) == alone


def test_means_weigh_by_contributors_and_errors_by_independence() -> None:
    v1, v2 = make_plan(1, "1.0"), make_plan(2, "4.0")
    few, many = pool(v1, "seconds", [0], 10), pool(v2, "seconds", [90_000], 90)  # means -10 and +10
    combined = combine([few, many]).estimate
    assert combined.values == pytest.approx((8.0,))
    a, b = few.estimate().standard_errors[0], many.estimate().standard_errors[0]
    assert a is not None
    assert b is not None
    assert combined.standard_errors == pytest.approx((math.sqrt((0.1 * a) ** 2 + (0.9 * b) ** 2),))


def test_other_stays_last_when_versions_name_it_differently() -> None:
    v1, v2 = make_plan(1, categories=("x", "rest"), other="misc"), make_plan(2, categories=("z", "x"), other="rest")
    labels = combine([Pool(v1.metrics["colour"]), Pool(v2.metrics["colour"])]).labels
    assert labels == ("z", "x", "rest", "misc")
    plain = combine([Pool(make_plan(1, categories=("x", "y"), other="other").metrics["colour"]),
                     Pool(make_plan(2, categories=("x", "z"), other="other").metrics["colour"])]).labels  # fmt: skip
    assert plain == ("x", "z", "y", "other")


def test_kinds_do_not_mix() -> None:
    plan = make_plan()
    with pytest.raises(ValueError, match="kind"):
        combine([Pool(plan.metrics["colour"]), Pool(plan.metrics["seconds"])])
    with pytest.raises(ValueError, match="kind"):
        combine([])


def test_a_sum_of_another_shape_is_no_sum_of_this_metric() -> None:
    plan = make_plan()
    with pytest.raises(ValueError, match="cells"):
        Pool(plan.metrics["colour"]).add([1, 2, 3], 6)
    with pytest.raises(ValueError, match="contributors"):
        Pool(plan.metrics["colour"]).add([1, 2], -1)
    with pytest.raises(KeyError):
        pool_sums({}, [ReleasedSum("r", plan.hash, 0, "colour", (1, 2), 3)])


@st.composite
def split_cohorts(draw: st.DrawFn) -> tuple[list[tuple[list[int], int]], list[int]]:
    """One-hot sums of several rounds: empty rounds, lone contributors and one-sided rounds by construction."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 57, 1000]), min_size=1, max_size=8))
    cohorts = []
    for n in sizes:
        first = draw(st.sampled_from([0, n, n // 2]))
        cohorts.append(([first, n - first], n))
    order = draw(st.permutations(range(len(cohorts))))
    return cohorts, order


VERSIONS = [make_plan(version + 1) for version in range(8)]


@settings(max_examples=150, deadline=None)
@given(split_cohorts())
def test_rounds_of_one_version_add_up_to_one_round(case: tuple[list[tuple[list[int], int]], list[int]]) -> None:
    cohorts, order = case
    plan = VERSIONS[0]
    event("nobody at all" if not any(n for _, n in cohorts) else "somebody")
    sums = [ReleasedSum(f"r{i}", plan.hash, i, "colour", tuple(cohorts[i][0]), cohorts[i][1]) for i in order]
    pooled = pool_sums({plan.hash: plan}, sums)[plan.hash, "colour"]
    together = [sum(totals[cell] for totals, _ in cohorts) for cell in range(2)]
    assert pooled.estimate() == metric_estimate(plan.metrics["colour"], together, sum(n for _, n in cohorts))


@settings(max_examples=150, deadline=None)
@given(split_cohorts(), st.integers(0, 2**30))
def test_combining_versions_of_equal_parameters_changes_no_estimate(
    case: tuple[list[tuple[list[int], int]], list[int]], lattice_total: int
) -> None:
    """Versions that differ in name only: decoded apart and combined, they say what one version would."""
    cohorts, order = case
    plans = VERSIONS[: len(cohorts)]
    for metric, part in (("colour", lambda totals, n: totals), ("seconds", lambda totals, n: [lattice_total * n])):
        parts = [pool(plans[i], metric, part(*cohorts[i]), cohorts[i][1]) for i in order]
        one = Pool(plans[0].metrics[metric])
        for totals, n in cohorts:
            one.add(part(totals, n), n)
        combined, expected = combine(parts).estimate, one.estimate()
        assert combined.contributors == expected.contributors
        if expected.contributors == 0:
            assert combined.values == expected.values == (None,) * len(expected.values)
            continue
        assert combined.values == pytest.approx(expected.values, rel=1e-9, abs=1e-6)
        # k-RR's variance is linear in counts and n, the mean's noise in n: errors combine exactly too
        assert combined.standard_errors == pytest.approx(expected.standard_errors, rel=1e-6)


# --- other kinds of answers ----------------------------------------------------------------------------


OPTIONAL = """
[metrics.colour]
kind = "categorical"
categories = [{categories}]
{other}
optional = true
epsilon = 1
"""


def test_no_reading_stays_last_of_all() -> None:
    """And `other` right before it, under whatever names the versions had for it."""
    one = plan_of(OPTIONAL.format(categories='"x", "y"', other='other = "misc"'))
    two = plan_of(OPTIONAL.format(categories='"z", "x"', other='other = "rest"'), version=2)
    pools = [Pool(plan.metrics["colour"]) for plan in (one, two)]
    assert combine(pools).labels == ("z", "x", "y", "rest", "misc", "(no reading)")


RARE = """
[metrics.rare]
kind = "numeric"
lower = {lower}
upper = 10
epsilon = {epsilon}
optional = true
"""


def test_ratios_are_combined_from_their_parts_not_from_each_other() -> None:
    """100 of 1,000 had a reading in one version, 900 of 1,000 in the next, of another range: 2 and 8 give 7.4."""
    one, two = (plan_of(RARE.format(lower=lower, epsilon=30), version=v) for v, lower in ((1, 0), (2, -10)))
    pools = [
        pool(one, "rare", [200 * 100 + 500 * 900, 100], 1000),
        pool(two, "rare", [900 * 900 + 500 * 100, 900], 1000),
    ]
    means = [p.estimate().values[0] for p in pools]
    assert means == pytest.approx([2.0, 8.0], abs=0.02), "the bit's noise is small at this epsilon, not nothing"
    combined = combine(pools)
    assert combined.labels == ("mean", "present")
    assert combined.estimate.values == pytest.approx((7.4, 1000.0), abs=0.02)
    errors = [p.estimate().standard_errors for p in pools]
    assert combined.estimate.standard_errors[1] == pytest.approx(math.hypot(errors[0][1] or 0, errors[1][1] or 0))


MIDDLE = """
[metrics.middle]
kind = "quantiles"
edges = [{edges}]
mechanism = "optimized_unary"
quantiles = [{quantiles}]
epsilon = 30
"""


def exact(plan: Plan, counts: Sequence[int]) -> Pool:
    """What unary reports would add up to without noise in the others' bits."""
    n, mechanism = sum(counts), plan.metrics["middle"].mechanism
    p, q = mechanism.inner.p, mechanism.inner.q  # type: ignore[attr-defined]
    return pool(plan, "middle", [round(c * p + (n - c) * q) for c in counts], n)


def test_quantiles_come_from_the_mixed_distribution() -> None:
    """All of 1,000 below 2, all of 3,000 from 6 to 8: the median of both lies in the second version's bin."""
    one = plan_of(MIDDLE.format(edges="0, 2, 4, 8", quantiles="0.5, 0.9"))
    two = plan_of(MIDDLE.format(edges="0, 6, 8", quantiles="0.125, 0.5"), version=2)
    combined = combine([exact(one, (1000, 0, 0)), exact(two, (0, 3000))])
    assert combined.labels == ("p12.5", "p50"), "the newest version asks"
    assert combined.estimate.contributors == 4000
    assert combined.estimate.values == pytest.approx((1.0, 6 + 2 / 3), abs=0.05)
    alone = combine([exact(one, (1000, 0, 0)), Pool(two.metrics["middle"])])
    assert alone.labels == ("p50", "p90"), "nobody was asked the newest version's"


def test_a_smoothed_version_makes_the_whole_smoothed() -> None:
    text = '[metrics.bins]\nkind = "histogram"\nlower = 0\nupper = 4\nbins = 2\nepsilon = 2\nmechanism = "{}"\n'
    one, two = plan_of(text.format("square_wave")), plan_of(text.format("randomized_response"), version=2)
    length = one.metrics["bins"].mechanism.length
    smoothed, unbiased = pool(one, "bins", [*[0] * (length - 1), 10], 10), pool(two, "bins", [5, 5], 10)
    assert not combine([unbiased]).smoothed
    assert combine([smoothed]).smoothed
    both = combine([smoothed, unbiased])
    assert both.smoothed
    assert both.influence is None, "no bound is known for one of them"
    assert both.estimate.contributors == 20


def test_population_errors_are_combined_too() -> None:
    v1, v2 = make_plan(1, "1.0"), make_plan(2, "3.0")
    for metric, totals in (("colour", [500, 500]), ("seconds", [400_000])):
        pools = [pool(v1, metric, totals, 1000), pool(v2, metric, totals, 1000)]
        apart = [p.estimate().population_errors[0] or 0.0 for p in pools]
        weight = 1.0 if metric == "colour" else 0.5
        assert combine(pools).estimate.population_errors[0] == pytest.approx(weight * math.hypot(*apart))


def test_a_pool_knows_reports_that_do_not_hold_its_metric() -> None:
    made = Pool(make_plan().metrics["colour"])
    made.add([30, 10], 40, reports=100)
    made.add([20, 30], 50)
    assert (made.contributors, made.reports, made.largest) == (90, 150, 100)
