"""Rows from window to window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collector.reports.series import Point, chosen, is_count, series_of


def row(label: str, value: float | None, *, smoothed: bool = False, estimator: str = "unbiased") -> dict[str, Any]:
    return {
        "label": label, "estimate": None if smoothed else value, "smoothed": value if smoothed else None,
        "standard_error": None if value is None else 1.0, "population_error": 2.0, "estimator": estimator,
        "ci95": [None, None] if value is None else [value - 2, value + 2], "population_ci95": [0.0, 9.0],
        "verdict": "too few" if value is None else "usable",
    }  # fmt: skip


def metric(name: str, rows: Sequence[dict[str, Any]], kind: str = "categorical", plan: str = "p") -> dict[str, Any]:
    return {"name": name, "plan": plan, "kind": kind, "contributors": 10, "estimates": list(rows)}


def window(label: str, *metrics: dict[str, Any]) -> dict[str, Any]:
    return {"window": label, "metrics": list(metrics)}


def test_the_largest_labels_over_all_time_keep_their_order() -> None:
    whole = {"metrics": [metric("m", [row("a", 1.0), row("b", 9.0), row("c", 5.0), row("d", -3.0)])]}
    days = [window("1", metric("m", [row("c", 4.0), row("a", 9.0), row("b", 1.0)])), window("2", metric("m", []))]
    labels, (series,) = series_of(whole, iter(days), most_labels=2)
    assert labels == ["1", "2"]
    assert (series.rows, [line.label for line in series.lines]) == (4, ["b", "c"])
    b, c = series.lines
    assert b.points == [Point(10, 1.0, 1.0, -1.0, 3.0, "usable"), Point(10)]
    assert [point.value for point in c.points] == [4.0, None]


def test_a_metric_that_changed_its_kind_or_became_optional_is_two() -> None:
    optional = [row("mean", 1.0, estimator="ratio"), row("present", 7.0)]
    every = [metric("m", [row("mean", 2.0)], "numeric"), metric("m", optional, "numeric"), metric("m", [row("x", 3.0)])]
    other = metric("m", [row("mean", 99.0)], "numeric", plan="q")
    _, found = series_of({"metrics": every}, [window("1", other, *reversed(every))], most_labels=5)
    assert [[line.points[0].value for line in series.lines] for series in found] == [[2.0], [1.0, 7.0], [3.0]]
    assert [[line.is_count for line in series.lines] for series in found] == [[False], [False, True], [True]]


def test_slices_have_means_and_numbers_of_devices() -> None:
    names = [f"{label}: {what}" for label in ("wifi", "cellular", "offline") for what in ("mean", "present")]
    rows = [row(name, 7.0, estimator="ratio" if "mean" in name else "unbiased") for name in names]
    sliced = metric("m", rows, "numeric")
    optional = metric("m", [row("mean", 1.0, estimator="ratio"), row("present", 7.0)], "numeric")
    assert [is_count(sliced, place) for place in range(6)] == [False, True] * 3
    assert [one["label"] for one in chosen(sliced, 4)] == [names[0], names[1], names[2], names[4]], "means first"
    _, found = series_of({"metrics": [sliced, optional]}, [window("1", optional, sliced)], most_labels=6)
    assert [len(series.lines) for series in found] == [6, 2], "a metric that came to be sliced is two"
    assert [series.lines[0].points[0].value for series in found] == [7.0, 1.0]


def test_a_window_without_the_metric_is_a_point_without_a_number() -> None:
    whole = {"metrics": [metric("m", [row("a", 1.0)])]}
    _, (series,) = series_of(whole, [window("1"), window("2", metric("m", [row("a", None)]))], most_labels=5)
    assert series.lines[0].points == [Point(0), Point(10, None, None, None, None, "too few")]


def test_errors_and_intervals_that_were_asked_for() -> None:
    whole = {"metrics": [metric("m", [row("a", 1.0, smoothed=True)])]}
    _, (series,) = series_of(
        whole, [window("1", *whole["metrics"])], most_labels=1, error="population_error", interval="population_ci95"
    )
    assert series.lines[0].points == [Point(10, 1.0, 2.0, 0.0, 9.0, "usable")]
