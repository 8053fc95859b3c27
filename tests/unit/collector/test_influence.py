"""How far one device reaches: what is printed is a bound, and nearly reached."""

from __future__ import annotations

import numpy as np
import pytest

from client_sdk.plan import Plan
from collector.combination import Pool, combine
from tests.entropy import seeded
from tests.unit.collector.plans import make_plan, plan_of, pool


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


# --- every mechanism ------------------------------------------------------------------------------------

COUNTS = ("randomized_response", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard")
MEANS = ("laplace", "one_bit", "piecewise", "hybrid")


def corner_reports(plan: Plan, metric: str) -> list[list[int]]:
    """The reports that reach furthest: all that one can be, where that is few; else one-hot, all ones, all zeros."""
    mechanism = plan.metrics[metric].mechanism
    length = mechanism.length
    bits = [[int(cell == one) for cell in range(length)] for one in range(length)]
    blocks = [[int(cell < width) for cell in range(length)] for width in range(length + 1)]
    numbers = [[cell] for cell in range(-mechanism.bound, mechanism.bound + 1)] if length == 1 else []
    return [report for report in (*bits, *blocks, *numbers) if mechanism.is_plausible(report, 1)]


@pytest.mark.parametrize("mechanism", COUNTS)
def test_influence_on_counts_of_every_mechanism(mechanism: str) -> None:
    names = ", ".join(f'"c{i}"' for i in range(12))
    plan = plan_of(
        f'[metrics.m]\nkind = "categorical"\ncategories = [{names}]\nepsilon = 1\nmechanism = "{mechanism}"\n'
    )
    reports = corner_reports(plan, "m")
    assert len(reports) >= 2 or mechanism == "subset_selection"
    before = pool(plan, "m", [sum(cells) * 50 for cells in zip(*reports, strict=True)], len(reports) * 50)
    moved = []
    for report in reports:
        totals = [a + b for a, b in zip(before.totals, report, strict=True)]
        after = pool(plan, "m", totals, before.contributors + 1)
        assert before.metric.mechanism.is_plausible(totals, after.contributors)
        steps = zip(before.estimate().values, after.estimate().values, strict=True)
        moved.append(max(abs((b or 0.0) - (a or 0.0)) for a, b in steps))
        assert moved[-1] <= (combine([after]).influence or 0.0) * (1 + 1e-9)
    assert max(moved) == pytest.approx(combine([before]).influence), "and it is reached"
    assert (combine([before]).reach or 0.0) > before.contributors


@pytest.mark.parametrize("mechanism", MEANS)
def test_influence_on_a_mean_of_every_mechanism(mechanism: str) -> None:
    plan = plan_of(
        f'[metrics.m]\nkind = "numeric"\nlower = 5\nupper = 15\nlevels = 20\nepsilon = 1\nmechanism = "{mechanism}"\n'
    )
    reports = [report[0] for report in corner_reports(plan, "m")]
    assert 0 in reports
    others = 400
    furthest = 0.0
    for honest in (5.0, 10.0, 15.0):
        low, high = min(reports), max(reports)
        ends = [plan.metrics["m"].mechanism.estimate([cell], 1).values[0] or 0.0 for cell in (low, high)]
        share = (honest - ends[0]) / (ends[1] - ends[0])
        total = round((low + share * (high - low)) * others)
        before = pool(plan, "m", [total], others)
        for lie in (low, 0, high):
            after = pool(plan, "m", [total + lie], others + 1)
            moved = abs((after.estimate().values[0] or 0.0) - (before.estimate().values[0] or 0.0))
            bound = combine([after]).influence or 0.0
            assert moved <= bound * (1 + 1e-3), "but for the honest total's rounding"
            furthest = max(furthest, moved / bound)
    assert furthest == pytest.approx(1.0, abs=0.01), "and it is reached"


def test_influence_and_reach_on_a_ratio() -> None:
    """Every lie of one report, and every plausible replacement of a round's sum, against what is said."""
    text = '[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 10\nlevels = 10\nepsilon = 4\noptional = true\n'
    plan = plan_of(text + 'mechanism = "one_bit"\n')
    honest = [300, 600]  # of a thousand reports
    furthest = 0.0
    for lie in ((0, 0), (0, 1), (1, 0), (1, 1)):
        after = pool(plan, "m", [a + b for a, b in zip(honest, lie, strict=True)], 1001)
        moved = abs((after.estimate().values[0] or 0.0) - (pool(plan, "m", honest, 1000).estimate().values[0] or 0.0))
        bound = combine([after]).influence or 0.0
        assert moved <= bound * (1 + 1e-9)
        furthest = max(furthest, moved / bound)
    assert furthest == pytest.approx(1.0)
    alone = pool(plan, "m", honest, 1000)
    assert combine([alone]).reach is None, "the one round there is can be made one in which nobody had a reading"
    alone.add([3, 6], 10)
    assert alone.largest == 1000
    small = Pool(plan.metrics["m"])
    for _ in range(100):
        small.add([3, 6], 10)
    reach = combine([small]).reach or 0.0
    before = small.estimate().values[0] or 0.0
    for number in range(11):
        for bits in range(11):
            after = pool(plan, "m", [small.totals[0] - 3 + number, small.totals[1] - 6 + bits], 1000)
            assert abs((after.estimate().values[0] or 0.0) - before) <= reach


@pytest.mark.parametrize("mechanism", ["randomized_response", "optimized_unary", "subset_selection"])
def test_influence_on_quantiles_is_a_bound_within_the_range(mechanism: str) -> None:
    plan = plan_of(
        f'[metrics.m]\nkind = "quantiles"\nlower = 0\nupper = 10\nbins = 10\nepsilon = 4\nmechanism = "{mechanism}"\n'
        "quantiles = [0.25, 0.5, 0.75]\n"
    )
    inner = plan.metrics["m"].mechanism.inner  # type: ignore[attr-defined]
    n = 20_000
    before = pool(plan, "m", inner.total_of(inner.perturb_codes(np.arange(n) % 10, seeded("m"))).tolist(), n)
    bound = combine([before]).influence
    assert bound is not None
    assert 0 < bound < 1, "a lie among twenty thousand moves no quartile of an even spread by a bin"
    for report in corner_reports(plan, "m"):
        after = pool(plan, "m", [a + b for a, b in zip(before.totals, report, strict=True)], n + 1)
        steps = zip(before.estimate().values, after.estimate().values, strict=True)
        assert max(abs((b or 0.0) - (a or 0.0)) for a, b in steps) <= bound * (1 + 1e-6)
    assert combine([before]).reach == 10.0, "one round alone: anywhere in the range"
