"""What is left of released sums: the same whatever the order, and enough for the same report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import PlanError
from client_sdk.plan import Plan
from collector import reduced
from collector.plan_texts import read_plan
from collector.reduced import Reduced, reduce_sums
from collector.release import ReleasedSum
from collector.reports import build_report, to_json
from tests.unit.collector.plans import make_plan

DAY_S = 86_400
PLAN = make_plan()


def sums(
    plan: Plan = PLAN, rounds: int = 4, days: int = 3, n: int = 40, delivery: str = "interactive", resent: int = 0
) -> list[ReleasedSum]:
    return [
        row
        for day in range(days)
        for i in range(rounds)
        for row in (
            ReleasedSum(
                f"{delivery}-{day}-{i}", plan.hash, day * DAY_S, "colour", (10 + i, n - 10 - i), n, n + 2, resent,
                delivery, n,
            ),
            ReleasedSum(
                f"{delivery}-{day}-{i}", plan.hash, day * DAY_S, "seconds", (-700 * i,), n, n + 2, resent, delivery, n
            ),
        )
    ]  # fmt: skip


def comparable(found: Reduced) -> tuple[object, ...]:
    """Whatever the order of heads."""
    totals = {key: tuple(cells) for key, cells in found.totals.items()}
    cohorts = {key: tuple(rows) for key, rows in found.cohorts.items()}
    return sorted(map(repr, found.heads)), totals, cohorts, found.not_compared


def test_like_rounds_are_one_head_and_totals_add_up_by_period() -> None:
    found = reduce_sums(sums())
    assert len(found.heads) == 6, "two metrics of three days"
    assert {head.rounds for head in found.heads} == {4}
    assert list(found.totals[PLAN.hash, "colour", DAY_S]) == [10 + 11 + 12 + 13, 30 + 29 + 28 + 27]
    assert list(found.totals[PLAN.hash, "seconds", 0]) == [-700 * 6]


def test_what_differs_in_any_number_is_another_head() -> None:
    row = sums(rounds=1, days=1)[0]
    others = [
        replace(row, contributors=39), replace(row, roster=41), replace(row, resent=1), replace(row, delivery="direct"),
        replace(row, reports=41), replace(row, period_start=DAY_S), replace(row, metric="seconds", totals=(1,)),
        replace(row, plan_hash=b"x"),
    ]  # fmt: skip
    assert len(reduce_sums([row, *others]).heads) == 1 + len(others)


def test_sums_past_64_bits_stay_exact() -> None:
    largest = 2**63 - 1
    rows = [ReleasedSum(f"r{i}", PLAN.hash, 0, "seconds", (largest,), 5) for i in range(5)]
    rows += [ReleasedSum(f"n{i}", PLAN.hash, DAY_S, "seconds", (-(2**63),), 5) for i in range(5)]
    found = reduce_sums(rows)
    assert list(found.totals[PLAN.hash, "seconds", 0]) == [5 * largest]
    assert list(found.totals[PLAN.hash, "seconds", DAY_S]) == [-5 * 2**63]


def test_direct_sums_and_those_over_nobody_are_no_cohorts() -> None:
    found = reduce_sums(sums(delivery="direct"))
    assert (found.cohorts, found.not_compared) == ({}, frozenset())
    nobody = ReleasedSum("r", PLAN.hash, 0, "seconds", (0,), 0, 5)
    assert reduce_sums([nobody]).cohorts == {}


def test_sums_of_unlike_lengths_are_refused() -> None:
    row = sums(rounds=1, days=1)[0]
    with pytest.raises(ValueError, match="cells"):
        reduce_sums([row, replace(row, totals=(1, 2, 3))])


@settings(max_examples=50, deadline=None)
@given(st.permutations(sums() + sums(delivery="direct", n=7, resent=1)))
def test_the_order_of_rows_means_nothing(rows: Sequence[ReleasedSum]) -> None:
    assert comparable(reduce_sums(rows)) == comparable(reduce_sums(sums() + sums(delivery="direct", n=7, resent=1)))


def reports(rows: Iterable[ReleasedSum], *window: int | None) -> tuple[str, str]:
    rows = list(rows)
    return to_json(build_report([PLAN], rows, *window)), to_json(build_report([PLAN], reduce_sums(rows), *window))


@pytest.mark.parametrize("window", [(), (DAY_S, None), (None, DAY_S), (DAY_S, 2 * DAY_S), (9 * DAY_S, None)])
def test_a_report_of_the_reduced_form_is_the_report_of_the_sums(window: tuple[int | None, ...]) -> None:
    rows = sums() + sums(delivery="direct", n=7, resent=1)
    plain, of_reduced = reports(rows, *window)
    assert plain == of_reduced
    assert plain == reports(rows[::-1], *window)[1]


def test_a_metric_with_too_many_cohorts_says_so_and_compares_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is of a metric's cells: two cells each of 12 cohorts, and one cell each."""
    before, _ = reports(sums())
    assert "cohorts_compared" not in before
    monkeypatch.setattr(reduced, "MOST_COHORT_CELLS", 23)
    colour, seconds = build_report([PLAN], sums())["metrics"]
    assert (colour["cohorts_compared"], colour["cohorts"], colour["false_alarm_rate"]) == (False, 12, None)
    assert {row["median_of_cohorts"] for row in colour["estimates"]} == {None}
    assert "cohorts_compared" not in seconds
    assert seconds["estimates"][0]["median_of_cohorts"] is not None
    monkeypatch.setattr(reduced, "MOST_COHORT_CELLS", 24)
    assert reports(sums())[0] == before


def test_the_other_numbers_do_not_depend_on_whether_cohorts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_report([PLAN], sums())["metrics"][0]
    monkeypatch.setattr(reduced, "MOST_COHORT_CELLS", 0)
    after = build_report([PLAN], sums())["metrics"][0]
    changed = {key for key in before if before[key] != after[key]}
    assert changed <= {"estimates", "false_alarm_rate", "standing_out"}
    for one, other in zip(before["estimates"], after["estimates"], strict=True):
        assert {key for key in one if one[key] != other[key]} <= {"median_of_cohorts", "median_of_cohorts_error"}


def test_a_plans_text_that_means_another_one_is_refused() -> None:
    assert read_plan(PLAN.text, PLAN.hash) == read_plan(PLAN.text, PLAN.hash.hex()) == PLAN
    with pytest.raises(PlanError, match="here; use the version that collected it"):
        read_plan(PLAN.text, b"\0" * 32)
