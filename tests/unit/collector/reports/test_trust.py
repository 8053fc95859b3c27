"""The fields beside each number: which cohort, which label, and where there is nothing to say."""

from __future__ import annotations

from typing import Any

import pytest

from client_sdk.plan import Plan
from collector.release import ReleasedSum
from collector.reports import trust
from collector.reports.trust import COLUMNS, METRIC_FIELDS, cells, trust_of_metric
from tests.unit.collector.plans import plan_of

LABELS = plan_of('[metrics.m]\nkind = "categorical"\ncategories = ["a", "b"]\nepsilon = 1')
OPTIONAL = plan_of('[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 1\noptional = true\nepsilon = 1')
DAY_S = 86_400


def trusted(plan: Plan, totals: list[tuple[int, ...]], n: int = 1000) -> dict[str, Any]:
    rows = [ReleasedSum(f"r{i}", plan.hash, DAY_S, "m", cells, n, n) for i, cells in enumerate(totals)]
    return trust_of_metric(rows, {plan.hash: plan.metrics["m"]}, n * len(rows))


def test_a_cohort_is_named_with_its_round_period_label_and_shares() -> None:
    found = trusted(LABELS, [(900, 100), *[(500, 500)] * 5])
    assert tuple(found) == METRIC_FIELDS
    assert (found["cohorts"], found["false_devices"], found["false_alarm_rate"]) == (6, 60, 0.01)
    (one,) = found["standing_out"]
    assert (one["round"], one["period"], one["label"]) == ("r0", "1970-01-02T00:00:00Z", "a")
    assert (one["per_report"], one["per_report_of_others"]) == (0.9, 0.5)
    assert 0.0 < one["p"] < 0.01


def test_of_an_optional_number_it_is_the_bit_that_is_compared() -> None:
    """The one row that is tested is the number's second: who had a reading."""
    found = trusted(OPTIONAL, [(500_000, 900), *[(500_000, 500)] * 5])
    (one,) = found["standing_out"]
    assert one["label"] == OPTIONAL.metrics["m"].mechanism.labels[1] == "present"
    assert (one["per_report"], one["per_report_of_others"]) == (0.9, 0.5)


def test_nothing_was_tested_so_no_rate_is_stated() -> None:
    found = trusted(LABELS, [(900, 100)])
    assert (found["cohorts"], found["false_alarm_rate"], found["standing_out"]) == (1, None, [])


def test_the_least_likely_are_listed_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MOST_NAMED", 2)
    found = trusted(LABELS, [(900, 100), (980, 20), (990, 10), *[(500, 500)] * 30])
    assert [one["round"] for one in found["standing_out"]] == ["r2", "r1"]
    row = {"without_false": [1.0, 2.0], "median_of_cohorts": 3.0, "median_of_cohorts_error": 0.5}
    assert dict(zip(COLUMNS, cells(found, row), strict=True)) == {
        "false_devices": 330, "without_false_low": 1.0, "without_false_high": 2.0, "median_of_cohorts": 3.0,
        "median_of_cohorts_error": 0.5, "cohorts": 33, "standing_out": 2,
    }  # fmt: skip
