"""What is asked of an opened sum before it is stored: only what valid reports can add up to."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.plan import Plan
from collector.release import check_plausible, implausible_metrics, metric_contributors
from tests.unit.collector.plans import SAMPLED, make_plan


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


# --- reports that hold a sample of the metrics -------------------------------------------------------


def sampled(colour: Sequence[int], seconds: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Cells of each metric, its count last."""
    assert SAMPLED.slices["shape"] == slice(5, 8)
    return [*colour, *seconds, *shape]


def test_contributors_of_a_sampled_metric_come_out_of_the_sum() -> None:
    totals = sampled((3, 1, 4), (4000, 5), (2, 0, 1, 3))
    assert metric_contributors(SAMPLED, totals, 6) == {"colour": 4, "seconds": 5, "shape": 3}
    assert implausible_metrics(SAMPLED, totals, 6) == []
    plan = make_plan()
    assert metric_contributors(plan, [3, 4, 0], 7) == {"colour": 7, "seconds": 7}


def test_cells_of_a_sampled_metric_are_held_to_its_own_count() -> None:
    for colour in ((4, 1, 4), (3, 0, 4), (5, -1, 4)):
        assert implausible_metrics(SAMPLED, sampled(colour, (4000, 5), (2, 0, 1, 3)), 6) == ["colour"]
    bound = SAMPLED.metrics["seconds"].mechanism.bound
    assert implausible_metrics(SAMPLED, sampled((3, 1, 4), (5 * bound, 5), (2, 0, 1, 3)), 6) == []
    assert implausible_metrics(SAMPLED, sampled((3, 1, 4), (5 * bound + 1, 5), (2, 0, 1, 3)), 6) == ["seconds"]
    assert implausible_metrics(SAMPLED, sampled((3, 3, 6), (1, 0), (2, 3, 1, 6)), 6) == ["seconds"], "of nobody, not 0"
    assert implausible_metrics(SAMPLED, sampled((3, 3, 6), (0, 0), (2, 3, 1, 6)), 6) == []


@pytest.mark.parametrize(
    ("totals", "reports"),
    [
        (sampled((3, 1, 4), (4000, 5), (2, 0, 1, 3)), 5),
        (sampled((3, 1, 4), (4000, 5), (2, 0, 1, 3)), 7),
        (sampled((3, 1, 4), (4000, 5), (2, 0, 0, 2)), 6),
        (sampled((7, 0, 7), (4000, 5), (0, 0, 0, 0)), 6),
        (sampled((-1, 0, -1), (4000, 7), (4, 0, 2, 6)), 6),
    ],
)
def test_counts_of_all_sampled_metrics_add_up(totals: list[int], reports: int) -> None:
    """Two metrics in each report, no metric in more reports than there are, nor in fewer than none."""
    with pytest.raises(RoundAbortedError):
        check_plausible(SAMPLED, totals, reports)


def test_sums_of_real_sampled_reports_are_plausible() -> None:
    from client_sdk.report import PeriodState, make_report

    for n in (2, 5, 40):
        totals = [0] * SAMPLED.length
        for _ in range(n):
            state = PeriodState(SAMPLED)
            state.add("colour", "x", os.urandom)
            report = make_report(SAMPLED, state, os.urandom)
            totals = [a + b for a, b in zip(totals, report, strict=True)]
        assert implausible_metrics(SAMPLED, totals, n) == []
        assert sum(metric_contributors(SAMPLED, totals, n).values()) == 2 * n
