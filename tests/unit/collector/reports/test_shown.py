"""Digits as people read them."""

from __future__ import annotations

import pytest

from collector.reports.shown import largest, rounded, standing_out


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (812.3456, 4.1, "812.3"), (-0.04, 2.0, "0.0"), (-0.4, 12.0, "0"), (-0.5, 0.1, "-0.50"),
        (1234567.0, 99.0, "1,234,567"),
        (0.0, 0.0, "0"), (3.0, 0.0, "3"), (-2.5e21, 1e19, "-2.5e+21"), (1.0, float("inf"), "1"), (5.0, 1e40, "5"),
        (-10.0, 12.0, "-10"),
    ],
)  # fmt: skip
def test_two_digits_of_the_error_and_no_negative_nothing(value: float, error: float, text: str) -> None:
    assert rounded(value, error) == text


def test_the_largest_keep_their_order() -> None:
    rows = [{"label": str(i), "estimate": v, "smoothed": None} for i, v in enumerate([3.0, None, 9.0, -8.0, 5.0])]
    assert [row["label"] for row in largest(rows, 2)] == ["2", "4"]
    assert largest(rows, 5) is rows


def test_cohorts_that_were_not_compared_are_said_to_be_too_many() -> None:
    metric = {"cohorts_compared": False, "cohorts": 1_000_001, "false_alarm_rate": None, "standing_out": []}
    assert standing_out(metric, 5) == ["Its 1,000,001 cohorts are too many to be compared with each other."]
    assert standing_out({}, 5) == [], "an older collector's"
