"""Decoding and combining: each version with its own mechanism, split cohorts add up, impossible sums are caught."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.plan import Plan, parse_plan
from collector.release import (
    Combined,
    Pool,
    ReleasedSum,
    check_plausible,
    combine,
    implausible_metrics,
    metric_estimate,
    pool_sums,
)


def make_plan(version: int = 1, epsilon: str = "1.0", categories: Sequence[str] = ("x", "y"), other: str = "") -> Plan:
    quoted = ", ".join(f'"{category}"' for category in categories)
    return parse_plan(f"""
[plan]
name = "p"
version = {version}
period = "1d"
[cohort]
min_size = 2
target_size = 10
max_wait = "30s"
[budget]
lifetime = 365
[metrics.colour]
kind = "categorical"
categories = [{quoted}]
{f'other = "{other}"' if other else ""}
epsilon = {epsilon}
[metrics.seconds]
kind = "numeric"
lower = -10
upper = 10
epsilon = {epsilon}
""")


def pool(plan: Plan, metric: str, totals: Sequence[int], contributors: int) -> Pool:
    made = Pool(plan.metrics[metric])
    made.add(totals, contributors)
    return made


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


# case H05
def test_influence_is_what_one_more_report_can_do_to_a_count() -> None:
    """Ten categories at epsilon 1: (1 - q) / (p - q) = 6.238, whatever the others say; any other report does less."""
    plan = make_plan(categories=tuple("abcdefghij"))
    totals = [
        130,
        *[97] * 9,
    ]
    before = pool(plan, "colour", totals, sum(totals))
    far = combine([before]).influence
    assert far == pytest.approx(6.2378, abs=1e-4)
    for label in range(10):
        after = pool(plan, "colour", [n + (i == label) for i, n in enumerate(totals)], sum(totals) + 1)
        moved = [abs(b - a) for a, b in zip(before.estimate().values, after.estimate().values, strict=True)]
        assert max(moved) == pytest.approx(far)
        assert moved.index(max(moved)) == label


# case H05
def test_influence_is_what_one_report_can_do_to_a_mean() -> None:
    plan = make_plan()
    mechanism = plan.metrics["seconds"].mechanism
    others = 999
    for true_cell in (0, 400, mechanism.levels):  # means within the metric's range
        before = pool(plan, "seconds", [true_cell * others], others)
        for lie in (-mechanism.tail, 0, mechanism.levels, mechanism.bound):
            after = pool(plan, "seconds", [true_cell * others + lie], others + 1)
            moved = abs(after.estimate().values[0] - before.estimate().values[0])
            assert moved <= combine([after]).influence * (1 + 1e-9)
            if (true_cell, lie) == (0, mechanism.bound):
                assert moved == pytest.approx(combine([after]).influence)


# case H05
def test_reach_is_all_that_passes_the_check_in_the_largest_round() -> None:
    """Whatever the others sent and whatever one adds: within it where the sum passes; and it is that wide."""
    plan = make_plan()
    for metric, lowest, highest in (("colour", 0, 12), ("seconds", -45_000 * 12, 46_000 * 12)):
        length = plan.metrics[metric].mechanism.length
        widest = 0.0
        for others in (lowest * 11 // 12, 0, 5, highest * 11 // 12):
            for total in (lowest, 5, highest):
                before = pool(plan, metric, [others, 11 - others][:length], 11)
                after = pool(plan, metric, [total, 12 - total][:length], 12)
                for one in (before, after):  # another round, in which nobody lies
                    one.add([2, 2][:length], 4)
                moved = abs((combine([after]).estimate.values[0] or 0) - (combine([before]).estimate.values[0] or 0))
                widest = max(widest, moved)
                assert combine([after]).influence * 0.9 < combine([after]).reach
                assert moved <= combine([after]).reach * (1 + 1e-9)
        assert widest >= 0.9 * combine([after]).reach
    assert combine([Pool(plan.metrics["colour"])]).reach is None


def test_influence_over_versions_is_that_of_the_version_where_it_is_most() -> None:
    old, new = make_plan(1, "1.0"), make_plan(2, "2.0")
    both = [pool(old, "colour", [5, 5], 10), pool(new, "colour", [5, 5], 10)]
    assert combine(both).influence == combine(both[:1]).influence
    assert combine(both[:1]).influence > combine(both[1:]).influence
    assert combine([pool(old, "colour", [0, 0], 0)]).influence is None


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


@settings(max_examples=150, deadline=None)
@given(split_cohorts())
def test_rounds_of_one_version_add_up_to_one_round(case: tuple[list[tuple[list[int], int]], list[int]]) -> None:
    cohorts, order = case
    plan = make_plan()
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
    plans = [make_plan(version + 1) for version in range(len(cohorts))]
    for metric, part in (("colour", lambda totals, n: totals), ("seconds", lambda totals, n: [lattice_total * n])):
        parts = [pool(plans[i], metric, part(*cohorts[i]), cohorts[i][1]) for i in order]
        one = Pool(plans[0].metrics[metric])
        for totals, n in cohorts:
            one.add(part(totals, n), n)
        combined, expected = combine(parts).estimate, one.estimate()
        assert combined.contributors == expected.contributors
        if expected.contributors == 0:
            assert combined == expected
            continue
        assert combined.values == pytest.approx(expected.values, rel=1e-9, abs=1e-6)
        # k-RR's variance is linear in counts and n, the mean's noise in n: errors combine exactly too
        assert combined.standard_errors == pytest.approx(expected.standard_errors, rel=1e-6)


# --- plausibility -----------------------------------------------------------------------------------


def vector(plan: Plan, colour: Sequence[int], seconds: int) -> list[int]:
    totals = [0] * plan.length
    totals[plan.slices["colour"]] = colour
    totals[plan.slices["seconds"]] = [seconds]
    return totals


def test_sums_of_real_reports_are_plausible() -> None:
    plan = make_plan(epsilon="0.01")
    for n in (1, 2, 40):
        totals = [0] * plan.length
        for i in range(n):
            for name, value in (("colour", ("x", "y")[i % 2]), ("seconds", 10.0 * (-1) ** i)):
                part = plan.slices[name]
                report = plan.metrics[name].mechanism.perturb(value, os.urandom)
                totals[part] = [a + b for a, b in zip(totals[part], report, strict=True)]
        assert implausible_metrics(plan, totals, n) == []


def test_the_ends_of_the_range_are_plausible_and_one_further_is_not() -> None:
    plan = make_plan()
    tail = plan.metrics["seconds"].mechanism.bound - 1000
    for colour in ([0, 7], [7, 0], [3, 4]):
        assert implausible_metrics(plan, vector(plan, colour, 0), 7) == []
    for colour in ([-1, 8], [8, -1], [3, 3], [4, 4], [0, 0], [7, 7]):
        assert implausible_metrics(plan, vector(plan, colour, 0), 7) == ["colour"]
    for seconds in (-7 * tail, 7 * (1000 + tail)):
        assert implausible_metrics(plan, vector(plan, [3, 4], seconds), 7) == []
    for seconds in (-7 * tail - 1, 7 * (1000 + tail) + 1):
        assert implausible_metrics(plan, vector(plan, [3, 4], seconds), 7) == ["seconds"]
    assert implausible_metrics(plan, [1, 2], 3) == ["colour", "seconds"]


def test_an_implausible_sum_aborts_the_round() -> None:
    plan = make_plan()
    check_plausible(plan, vector(plan, [3, 4], 0), 7)
    with pytest.raises(RoundAbortedError) as caught:
        check_plausible(plan, vector(plan, [30, 4], 0), 7)
    assert caught.value.reason is AbortReason.IMPLAUSIBLE_SUM
    assert "34" not in str(caught.value)
