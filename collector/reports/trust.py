"""Beside each number: how far false devices can have moved it, the median of cohorts, and the cohorts that stand out.

Rules of this file: fields only; none of them replaces an estimate. `without_false` is the band in which the number
lies without any `false_devices` of its contributors; `median_of_cohorts` is null where there are fewer than three;
whoever is named in `standing_out` is so at a rate of false alarms that stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from collector.combination import beginning
from collector.poisoning import SHARE, bands, false_devices
from collector.reports.text import format_instant
from collector.robust import ERROR, cohorts_of, median_of_cohorts
from collector.slices import label_of, sliced
from collector.standing_out import RATE, standing_out

if TYPE_CHECKING:
    from client_sdk.plan import Metric
    from collector.combination import Combined, Pool
    from collector.release import ReleasedSum
    from collector.standing_out import StandingOut

METRIC_FIELDS: Final = ("false_devices", "cohorts", "false_alarm_rate", "standing_out")
ROW_FIELDS: Final = ("without_false", "median_of_cohorts", "median_of_cohorts_error")
COLUMNS: Final = (
    "false_devices", "without_false_low", "without_false_high", "median_of_cohorts", "median_of_cohorts_error",
    "cohorts", "standing_out",
)  # fmt: skip

MOST_NAMED: Final = 100
"""Cohorts in a document; `standing_out` of the CSV counts all."""


def trust_of_metric(
    rows: Sequence[ReleasedSum], metrics: Mapping[bytes, Metric], contributors: int, assumed: Fraction | int = SHARE
) -> dict[str, Any]:
    """METRIC_FIELDS. assumed: a number of false devices, or a share of the contributors. metrics: by plan hash."""
    verdict = standing_out(rows, metrics)
    of_round = {row.round_id: metrics[row.plan_hash] for row in rows}
    named = sorted(verdict.found, key=lambda one: one.p)[:MOST_NAMED]
    return {
        "false_devices": false_devices(contributors, assumed),
        "cohorts": len(cohorts_of(rows)),
        "false_alarm_rate": RATE if verdict.tests else None,
        "standing_out": [_named(one, of_round[one.round_id]) for one in named],
    }


def _named(one: StandingOut, metric: Metric) -> dict[str, Any]:
    mechanism = metric.mechanism
    if mechanism.answer == "slices":
        label = label_of(sliced(metric), one.row)
    else:
        label = mechanism.labels[1 if mechanism.answer == "optional_mean" else one.row]
    return {
        "round": one.round_id,
        "period": format_instant(one.period_start),
        "label": label,
        "per_report": one.share,
        "per_report_of_others": one.others,
        "p": one.p,
    }


def trust_of_rows(
    rows: Sequence[ReleasedSum],
    metrics: Mapping[bytes, Metric],
    pools: Sequence[Pool],
    combined: Combined,
    devices: int,
) -> list[dict[str, Any]]:
    """ROW_FIELDS, one object per row of `combined`, of a vector of its `beginning`."""
    combined = beginning(combined)
    errors = combined.estimate.population_errors or (None,) * len(combined.labels)
    columns = zip(
        bands(pools, combined, devices), median_of_cohorts(rows, metrics, pools, combined), errors, strict=True
    )
    return [
        {
            "without_false": [None, None] if band is None else list(band),
            "median_of_cohorts": median,
            "median_of_cohorts_error": None if median is None or error is None else ERROR * error,
        }
        for band, median, error in columns
    ]


def cells(metric: Mapping[str, Any], row: Mapping[str, Any]) -> list[Any]:
    """A document's row in COLUMNS."""
    middle = row["median_of_cohorts"], row["median_of_cohorts_error"]
    return [metric["false_devices"], *row["without_false"], *middle, metric["cohorts"], len(metric["standing_out"])]
