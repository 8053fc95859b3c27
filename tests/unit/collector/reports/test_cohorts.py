"""Sizes of cohorts and dropouts."""

from __future__ import annotations

from collector.reports.cohorts import RoundsOfPeriod, cohort_counts, cohorts_by_window
from collector.reports.windows import Window

A, B = b"a" * 32, b"b" * 32
ROUNDS = [
    RoundsOfPeriod(A, 100, None, 2, 30, 25, 10, 15, {"shares": 3, "masked_input": 2}),
    RoundsOfPeriod(B, 100, None, 1, 8, 8, 8, 8, {"unmask": 1}),
    RoundsOfPeriod(A, 100, "too_few_survivors", 3, 12, 0, 0, 0, {"shares": 9}),
    RoundsOfPeriod(A, 50, "timeout", 1, 4, 0, 0, 0),
    RoundsOfPeriod(A, 200, None, 1, 5, 5, 5, 5),
]


def test_rounds_without_a_sum_have_no_size() -> None:
    assert cohort_counts(ROUNDS) == {
        "rounds": 4, "joined": 43, "contributors": 38, "smallest": 5, "mean": 9.5, "largest": 15,
        "dropouts": {"shares": 3, "masked_input": 2, "confirm": 0, "unmask": 1},
        "aborted": 4, "reasons": {"timeout": 1, "too_few_survivors": 3},
    }  # fmt: skip


def test_nothing_is_nulls() -> None:
    counts = cohort_counts([])
    assert (counts["rounds"], counts["smallest"], counts["mean"], counts["largest"]) == (0, None, None, None)


def test_each_window_has_its_own() -> None:
    windows = [Window("early", 50, 100), Window("late", 100, 200), Window("last", 200, 300), Window("b", 0, 999, B)]
    document = cohorts_by_window(reversed(ROUNDS), windows)
    assert document["rounds"] == 4
    assert [(one["window"], one["rounds"], one["aborted"]) for one in document["windows"]] == [
        ("early", 0, 1), ("late", 3, 3), ("last", 1, 0), ("b", 1, 0),
    ]  # fmt: skip
