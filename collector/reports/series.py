"""A metric's rows from window to window: what a table or a chart of them over time is made of.

Rules of this file: it picks numbers out of documents and computes none; of a metric with many labels it keeps those
that are largest over the whole time, so that what is held is bounded whatever the plan; a window in which a metric
has no sum is a point without a number, never a missing point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector.reports.shown import largest, number

COUNTED_KINDS: Final = frozenset({"categorical", "histogram"})


@dataclass(frozen=True, slots=True)
class Point:
    """One row of one window. value, error, low, high: None where the window has none."""

    contributors: int
    value: float | None = None
    error: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One label's points, one per window. is_count: its numbers are of devices, and a share is a number over all."""

    label: str
    is_count: bool
    points: list[Point] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over the windows. rows: how many labels it has in all."""

    metric: Mapping[str, Any]
    rows: int
    lines: Sequence[Line]


def series_of(
    whole: Mapping[str, Any],
    windows: Iterable[Mapping[str, Any]],
    *,
    most_labels: int,
    error: str = "standard_error",
    interval: str = "ci95",
) -> tuple[list[str], list[Series]]:
    """The windows' labels, and one series per metric of `whole`, the report over all of them together.

    windows: documents of `windowed`, taken one at a time. error, interval: fields of a row.
    """
    labels: list[str] = []
    every = {_key(metric): _empty(metric, most_labels) for metric in whole["metrics"]}
    for window in windows:
        labels.append(window["window"])
        found = {_key(metric): metric for metric in window["metrics"]}
        for key, series in every.items():
            _add(series, found.get(key), error, interval)
    return labels, list(every.values())


def is_count(metric: Mapping[str, Any], place: int) -> bool:
    """Is the row at `place` a number of devices? Beside a ratio those are that are none: how many had a reading."""
    return metric["kind"] in COUNTED_KINDS or (_is_ratio(metric) and metric["estimates"][place]["estimator"] != "ratio")


def is_mixed(metric: Mapping[str, Any]) -> bool:
    """Does it have means and numbers of devices?"""
    return metric["kind"] not in COUNTED_KINDS and _is_ratio(metric)


def chosen(metric: Mapping[str, Any], most: int) -> Sequence[Mapping[str, Any]]:
    """The `most` rows that are shown, in their order: the largest; of means and numbers of devices the first means."""
    rows: Sequence[Mapping[str, Any]] = metric["estimates"]
    if len(rows) <= most or not is_mixed(metric):
        return largest(rows, most)
    means_first = sorted(range(len(rows)), key=lambda place: is_count(metric, place))
    return [rows[place] for place in sorted(means_first[:most])]


def _is_ratio(metric: Mapping[str, Any]) -> bool:
    return bool(metric["estimates"]) and metric["estimates"][0]["estimator"] == "ratio"


def _key(metric: Mapping[str, Any]) -> tuple[str, str, str, bool, bool]:
    """A metric that changed its kind, became optional or came to be sliced, is two."""
    is_one = bool(metric["estimates"]) and metric["estimates"][0]["label"] == "mean"
    return metric["plan"], metric["name"], metric["kind"], _is_ratio(metric), is_one


def _empty(metric: Mapping[str, Any], most: int) -> Series:
    rows = metric["estimates"]
    shown = {id(row) for row in chosen(metric, most)}
    lines = [Line(row["label"], is_count(metric, place)) for place, row in enumerate(rows) if id(row) in shown]
    return Series(metric, len(rows), lines)


def _add(series: Series, metric: Mapping[str, Any] | None, error: str, interval: str) -> None:
    if metric is None:
        for line in series.lines:
            line.points.append(Point(0))
        return
    wanted = {line.label for line in series.lines}
    rows = {row["label"]: row for row in metric["estimates"] if row["label"] in wanted}
    for line in series.lines:
        line.points.append(_point(metric["contributors"], rows.get(line.label), error, interval))


def _point(contributors: int, row: Mapping[str, Any] | None, error: str, interval: str) -> Point:
    if row is None:
        return Point(contributors)
    low, high = row[interval]
    return Point(contributors, number(row), row[error], low, high, row["verdict"])
