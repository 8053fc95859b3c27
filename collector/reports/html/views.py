"""What the page shows of a metric, as texts and coordinates; the template only puts them between tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from collector.reports.html import charts
from collector.reports.series import Line, Point, Series, chosen, is_count, is_mixed
from collector.reports.shown import (
    contributors,
    cost,
    kind,
    number,
    number_header,
    plan_versions,
    reach,
    rest,
    rounded,
    standing_out,
)

MOST_METRICS: Final = 100
MOST_ROWS: Final = 50
"""Of one metric, over all windows."""

MOST_PANELS: Final = 6
"""Labels of one metric that have a chart over the windows."""

MOST_NAMED: Final = 5
"""Cohorts of one metric that stand out."""

UNKNOWN: Final = "–"
VERDICTS: Final = {"usable": "usable", "too noisy": "noisy", "too few": "few"}
"""Their style."""


# --- one metric -------------------------------------------------------------------------------------


def metric_view(series: Series, labels: Sequence[str], place: int) -> dict[str, Any]:
    """place: of the metric, which makes its ids."""
    metric = series.metric
    rows = metric["estimates"]
    shown = chosen(metric, MOST_ROWS)
    costs = cost(metric)
    return {
        "id": f"m{place + 1}",
        "name": metric["name"],
        "plan": plan_versions(metric),
        "kind": kind(metric),
        "count": f"{metric['contributors']:,}",
        "contributors": contributors(metric),
        "number": headline(metric),
        "verdict": _verdict(best_verdict(shown)),
        "header": number_header(rows),
        "rows": _rows(metric, shown),
        "panels": [] if len(labels) < 2 else _panels(series, labels),
        "table": _table(series) if len(labels) > 1 else None,
        "sentences": [
            *rest(metric, len(shown)),
            *([] if costs is None else [costs]),
            *standing_out(metric, MOST_NAMED),
            *_together(reach(metric)),
        ],
    }


def _together(parts: Sequence[str]) -> list[str]:
    return [" ".join(parts)] if parts else []


def headline(metric: Mapping[str, Any]) -> str:
    """A metric in a few words: its mean, or its largest label."""
    rows = metric["estimates"]
    known = [row for row in rows if number(row) is not None]
    if not known:
        return "no number"
    if is_count(metric, 0):
        row = max(known, key=lambda one: number(one) or 0.0)
        return f"{row['label']} {_share(number(row), row['standard_error'], metric['contributors'])}"
    text = f"{known[0]['label']} {_with_error(number(known[0]), known[0]['standard_error'])}"
    return text if len(rows) == 1 or is_mixed(metric) else f"{text}, …"


def best_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """A metric is worth looking at where any of its rows is. `too few` without one."""
    found = {row["verdict"] for row in rows}
    return next((verdict for verdict in VERDICTS if verdict in found), "too few")


def _verdict(words: str) -> dict[str, str]:
    return {"words": words, "style": VERDICTS.get(words, "unknown")}


def _rows(metric: Mapping[str, Any], shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    places = {id(row): place for place, row in enumerate(metric["estimates"])}
    rows = [(row, _point(row), is_count(metric, places[id(row)])) for row in shown]
    axes = {
        counted: _axis(metric, [point for _, point, c in rows if c is counted], counted) for counted in (True, False)
    }
    return [
        {
            "label": row["label"],
            "bar": None if (axis := axes[counted]) is None else charts.bar(point.value, point.low, point.high, axis),
            "from_zero": _is_from_zero(metric, counted),
            **_numbers(metric, row, counted=counted),
            "verdict": _verdict(row["verdict"]),
        }
        for row, point, counted in rows
    ]


def _axis(metric: Mapping[str, Any], points: Sequence[Point], counted: bool) -> charts.Domain | None:
    """What rows that mean the same have in common; one alone has nothing to be compared with."""
    return charts.domain_of_rows(points, from_zero=_is_from_zero(metric, counted)) if len(points) > 1 else None


def _is_from_zero(metric: Mapping[str, Any], counted: bool) -> bool:
    """A number of devices and a coordinate are bars, a mean and a quantile a place."""
    return counted or metric["kind"] == "vector"


def _numbers(metric: Mapping[str, Any], row: Mapping[str, Any], *, counted: bool) -> dict[str, str | None]:
    """Number and interval; of a number of devices both as shares too."""
    value, error, ends, n = number(row), row["standard_error"], row["ci95"], metric["contributors"]
    is_share = counted and n and value is not None
    shares = [None if end is None else 100 * end / n for end in ends] if is_share else [None, None]
    return {
        "number": _with_error(value, error),
        "interval": _interval(ends, error),
        "share": _share(value, error, n) if is_share else None,
        "share_interval": f"{_interval(shares, 100 * (error or 0.0) / n)} %"
        if is_share and None not in shares
        else None,
    }


def _point(row: Mapping[str, Any]) -> Point:
    low, high = row["ci95"]
    return Point(0, number(row), row["standard_error"], low, high, row["verdict"])


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return UNKNOWN
    return rounded(value, error or 0.0) + (f" ± {rounded(error, error)}" if error else "")


def _share(value: float | None, error: float | None, count: int) -> str | None:
    if value is None or not count:
        return None
    share, error = 100 * value / count, 100 * (error or 0.0) / count
    return f"{rounded(share, error)} %"


def _interval(ends: Sequence[float | None], error: float | None) -> str:
    low, high = ends
    if low is None or high is None:
        return UNKNOWN
    return f"{rounded(low, error or 0.0)} … {rounded(high, error or 0.0)}"


# --- over the windows -------------------------------------------------------------------------------


def _panels(series: Series, labels: Sequence[str]) -> list[dict[str, Any]]:
    """One chart per label; shares of one metric have one scale, from nothing on."""
    lines = [Line(line.label, line.is_count, _shares(line)) for line in series.lines]
    shares = charts.domain_of((p for line in lines if line.is_count for p in line.points), from_zero=True)
    return [
        {
            "label": line.label,
            "unit": "% of contributors" if line.is_count else "",
            "chart": charts.over_windows(
                labels, line.points, shares if line.is_count else charts.domain_of(line.points), "%" * line.is_count
            ),
            "said": said(line, labels),
        }
        for line in lines
    ]


def _shares(line: Line) -> list[Point]:
    """Percent of the contributors, of a number of devices: windows differ in how many they have."""
    if not line.is_count:
        return line.points
    return [_as_share(point) for point in line.points]


def _as_share(point: Point) -> Point:
    def part(value: float | None) -> float | None:
        return None if value is None or not point.contributors else 100 * value / point.contributors

    return Point(
        point.contributors, part(point.value), part(point.error), part(point.low), part(point.high), point.verdict
    )


def said(line: Line, labels: Sequence[str]) -> str:
    """For whoever cannot see the chart: how it begins, how it ends, and between what it moves."""
    known = [(label, point) for label, point in zip(labels, line.points, strict=True) if point.value is not None]
    unit = " %" if line.is_count else ""
    if not known:
        return "No window has a number."
    (first, begin), (last, end) = known[0], known[-1]
    values = [point.value for _, point in known if point.value is not None]
    return (
        f"{len(known)} of {len(labels)} windows have a number; {first}: {begin.value:.4g}{unit}, {last}: "
        f"{end.value:.4g}{unit}, lowest {min(values):.4g}{unit}, highest {max(values):.4g}{unit}."
    )


def _table(series: Series) -> dict[str, Any]:
    """The same numbers as text: contributors, and of each label the number and its error."""
    counts = [max((line.points[i].contributors for line in series.lines), default=0) for i in _windows(series)]
    return {
        "labels": [line.label for line in series.lines],
        "rows": [
            (f"{counts[i]:,}", [_with_error(line.points[i].value, line.points[i].error) for line in series.lines])
            for i in _windows(series)
        ],
    }


def _windows(series: Series) -> range:
    return range(len(series.lines[0].points) if series.lines else 0)
