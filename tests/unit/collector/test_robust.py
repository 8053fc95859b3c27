"""The median over cohorts: what it is of, when there is one, and how far a few cohorts move it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from client_sdk.mechanisms import Answer
from client_sdk.plan import Plan
from collector.combination import Combined, combine, is_count, pool_sums
from collector.release import ReleasedSum
from collector.robust import median_of_cohorts
from tests.unit.collector.plans import make_plan, plan_of


def medians(plans: Sequence[Plan], metric: str, rows: Sequence[ReleasedSum]) -> tuple[Combined, list[float | None]]:
    by_hash = {plan.hash: plan for plan in plans}
    pools = list(pool_sums(by_hash, rows).values())
    combined = combine(pools)
    return combined, median_of_cohorts(rows, {plan.hash: plan.metrics[metric] for plan in plans}, pools, combined)


def seconds(plan: Plan, cells: Sequence[int], sizes: Sequence[int], delivery: str = "interactive") -> list[ReleasedSum]:
    """Each cohort's reports all of one cell."""
    found = enumerate(zip(cells, sizes, strict=True))
    return [ReleasedSum(f"r{i}", plan.hash, 0, "seconds", (c * n,), n, n, 0, delivery) for i, (c, n) in found]


PLAN = make_plan()


def test_the_middle_cohort_by_contributors() -> None:
    _, (middle,) = medians([PLAN], "seconds", seconds(PLAN, [100, 500, 900], [10, 10, 10]))
    assert middle == pytest.approx(0.0)
    _, (middle,) = medians([PLAN], "seconds", seconds(PLAN, [100, 500, 900], [50, 10, 10]))
    assert middle == pytest.approx(-8.0), "half of all devices are in the first"
    _, (middle,) = medians([PLAN], "seconds", seconds(PLAN, [100, 500, 700, 900], [10] * 4))
    assert middle == pytest.approx(2.0), "between the two in the middle"


def test_a_minority_of_cohorts_moves_it_to_a_neighbour_at_most() -> None:
    cells = [480, 490, 500, 510, 520]
    _, (before,) = medians([PLAN], "seconds", seconds(PLAN, cells, [20] * 5))
    combined, (after,) = medians([PLAN], "seconds", seconds(PLAN, [46_000, 46_000, *cells[2:]], [20] * 5))
    assert (before, after) == (pytest.approx(0.0), pytest.approx(0.4))
    assert (combined.estimate.values[0] or 0.0) > 300


def test_counts_are_of_all_contributors_and_versions() -> None:
    v1, v2 = make_plan(1, "1.0", ("x", "y")), make_plan(2, "3.0", ("x", "z"))
    p1, p2 = (float(plan.metrics["colour"].mechanism.p) for plan in (v1, v2))  # type: ignore[attr-defined]
    rows = [
        ReleasedSum(f"r{i}", plan.hash, i, "colour", (round(1000 * p), 1000 - round(1000 * p)), 1000, 1000)
        for i, (plan, p) in enumerate([(v1, p1), (v1, p1), (v1, p1), (v2, p2), (v2, p2)])
    ]
    combined, found = medians([v1, v2], "colour", rows)
    by_label = dict(zip(combined.labels, found, strict=True))
    assert by_label["x"] == pytest.approx(5000, abs=10), "all of them said x"
    assert by_label["z"] is None, "two cohorts are too few"
    assert by_label["y"] == pytest.approx(0, abs=10)


def test_a_label_of_some_versions_counts_their_contributors_alone() -> None:
    """As the estimate beside it does: the others were never asked."""
    v1, v2 = make_plan(1, "1.0", ("x", "y")), make_plan(2, "3.0", ("x", "z"))
    p1, p2 = (float(plan.metrics["colour"].mechanism.p) for plan in (v1, v2))  # type: ignore[attr-defined]
    rows = [
        ReleasedSum(f"r{i}", plan.hash, i, "colour", (1000 - round(1000 * p), round(1000 * p)), 1000, 1000)
        for i, (plan, p) in enumerate([(v1, p1)] * 4 + [(v2, p2)] * 3)
    ]
    combined, found = medians([v1, v2], "colour", rows)
    for label, value, median in zip(combined.labels, combined.estimate.values, found, strict=True):
        assert median == pytest.approx(value, abs=10), label
    assert dict(zip(combined.labels, found, strict=True))["z"] == pytest.approx(3000, abs=10)


def test_none_where_it_would_be_nothing() -> None:
    two = seconds(PLAN, [100, 500], [10, 10])
    assert medians([PLAN], "seconds", two)[1] == [None]
    direct = seconds(PLAN, [100, 500, 900], [10, 10, 10], "direct")
    assert medians([PLAN], "seconds", direct)[1] == [None]


@pytest.mark.parametrize(
    ("answer", "counts"),
    [("counts", [True] * 3), ("mean", [False] * 3), ("quantiles", [False] * 3), ("vector", [False] * 3),
     ("optional_mean", [False, True, False])],
)  # fmt: skip
def test_which_rows_are_numbers_of_devices(answer: Answer, counts: list[bool]) -> None:
    assert [is_count(answer, place) for place in range(3)] == counts


def test_of_an_optional_number_the_mean_stays_and_the_count_is_of_all() -> None:
    plan = plan_of('[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 10\noptional = true\nepsilon = 40')
    mechanism: Any = plan.metrics["m"].mechanism
    middle = mechanism.inner.levels // 2
    # every device with a reading of 7.5; 6, 8 and 10 of ten have one
    rows = [
        ReleasedSum(f"r{i}", plan.hash, i, "m", (1000 * middle + 100 * have * middle // 2, 100 * have), 1000, 1000)
        for i, have in enumerate((6, 8, 10))
    ]
    combined, (mean, present) = medians([plan], "m", rows)
    assert mean == pytest.approx(7.5, abs=0.01)
    assert present == pytest.approx(2400, rel=1e-4), "eight of ten, of all three thousand"
    assert combined.estimate.contributors == 3000


def test_cohorts_are_decoded_and_nothing_else_is_computed_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a lie moves a cohort's number nobody asks, and it costs more than the number."""
    combined, _ = medians([PLAN], "seconds", seconds(PLAN, [100, 500, 900], [10, 10, 10]))
    monkeypatch.setattr("collector.combination.influence", lambda *_: pytest.fail("computed of a cohort"))
    rows = seconds(PLAN, [100, 500, 900], [10, 10, 10])
    pools = list(pool_sums({PLAN.hash: PLAN}, rows).values())
    assert median_of_cohorts(rows, {PLAN.hash: PLAN.metrics["seconds"]}, pools, combined) == [pytest.approx(0.0)]
