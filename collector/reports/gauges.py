"""A window's report as gauges for Prometheus and OpenTelemetry: released estimates, and how sure they are.

Rules of this file: how many series there are is bounded whatever a plan says, and what is left out is a gauge, too; no
two series have the same labels. Nothing of a device is in here, and nothing that has not been released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector.reports.shown import largest, number

MOST_LABELS: Final = 100
"""Rows of one metric: the largest."""

MOST_SERIES: Final = 1_500
"""Rows of all metrics together; metrics that come when they are used up have none. OpenTelemetry's own limit is 2,000
for each gauge, and what lies beyond it has no name there."""

MOST_METRICS: Final = 1_500
"""Of the gauges with one series per metric."""

METRIC: Final = ("plan", "metric", "window")
ROW: Final = ("plan", "metric", "label", "window")


@dataclass(frozen=True, slots=True)
class Gauge:
    """name: as Prometheus writes it. series: (label values, value)."""

    name: str
    text: str
    labels: tuple[str, ...]
    series: list[tuple[tuple[str, ...], float]] = field(default_factory=list)


def gauges_of(report: Mapping[str, Any], window: str, until: int) -> list[Gauge]:
    """report: of the window that ends at `until`, seconds since the epoch."""
    estimate = Gauge("ldp_report_estimate", "Released estimate; not cut to what is possible.", ROW)
    error = Gauge("ldp_report_standard_error", "Its standard error, for these contributors.", ROW)
    contributors = Gauge("ldp_report_contributors", "Reports that the metric's estimates are made of.", METRIC)
    limit = f"Rows beyond the {MOST_LABELS} largest of a metric and the {MOST_SERIES} of all: they are in the report."
    left_out = Gauge("ldp_report_rows_left_out", limit, METRIC)
    end = Gauge("ldp_report_window_end_timestamp_seconds", "End of the window that the report is of.", ("window",))
    end.series.append(((window,), until))
    room = MOST_SERIES
    for metric in list(_newest(report["metrics"]))[:MOST_METRICS]:
        of_metric = metric["plan"], metric["name"]
        contributors.series.append(((*of_metric, window), metric["contributors"]))
        rows = [row for row in metric["estimates"] if number(row) is not None and row["standard_error"] is not None]
        shown = _distinct(largest(rows, min(MOST_LABELS, room))) if room else []
        room -= len(shown)
        left_out.series.append(((*of_metric, window), len(rows) - len(shown)))
        for row in shown:
            key = (*of_metric, row["label"], window)
            estimate.series.append((key, float(number(row) or 0.0)))
            error.series.append((key, float(row["standard_error"])))
    return [estimate, error, contributors, left_out, end]


def _newest(metrics: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """A metric that changed its kind is two in a report; of those the newest that has reports."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for metric in metrics:
        key = metric["plan"], metric["name"]
        if key not in found or _age(metric) >= _age(found[key]):
            found[key] = metric
    return found.values()


def _age(metric: Mapping[str, Any]) -> int:
    return max(metric["plan_versions"], default=0)


def _distinct(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({row["label"]: row for row in rows}.values())
