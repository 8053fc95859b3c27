"""A report's tables for people: what `ldp-collector report` prints on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from client_sdk.mechanisms.verdict import RULE
from collector.reports.estimates import INTERVALS
from collector.reports.series import Point, Series, series_of
from collector.reports.shown import (
    COHORT_NOTE,
    NOTE,
    cost,
    largest,
    number,
    number_header,
    reach,
    rest,
    rounded,
    since_until,
    standing_out,
    title,
)
from collector.reports.text import printable
from collector.service.cli_common import console, print_table

if TYPE_CHECKING:
    from rich.console import Console

MOST_NAMED: Final = 10
"""Cohorts of one metric that a table names."""

MOST_LABELS: Final = 10
"""Of one metric, in a table by windows."""

MOST_ROWS: Final = 500
"""Of one metric, in a table."""

POPULATION_NOTE = (
    "Standard errors are for the population that the contributors are taken as a random sample of; the intervals of "
    "counts of one plan version are Wilson's, which hold for rare values too, those of counts combined from several "
    "are normal."
)
INTERVAL_NOTE = (
    "An interval that the normal law gives is 1.96 standard errors to each side; a quantile's is where the "
    "distribution's reaches it."
)
SIMULTANEOUS_NOTE = "All intervals of one metric hold together with 95 %."
FALSE_NOTE = (
    "Without any so many: where the number lies if those contributors' reports are left out, whatever they held "
    "(--false-devices). The median of cohorts is moved less by a few cohorts full of false reports, and is another "
    "quantity where cohorts differ."
)
NORMALISED_NOTE = (
    "Normalised counts are not below 0 and add up to the contributors (Norm-Sub): easier to draw, but biased; "
    "never add them up."
)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which error and which interval a table shows."""

    population: bool = False
    simultaneous: bool = False

    @property
    def error(self) -> str:
        """Its field in a row."""
        return "population_error" if self.population else "standard_error"

    @property
    def interval(self) -> str:
        """Its field in a row."""
        return INTERVALS[2 * self.population + self.simultaneous]

    @property
    def header(self) -> tuple[str, str]:
        """What stands above the two."""
        whose = "population" if self.population else "standard"
        return f"{whose} error", "95 % interval" + (" of all rows together" if self.simultaneous else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What they mean."""
        whose = POPULATION_NOTE if self.population else COHORT_NOTE
        return (whose, *([SIMULTANEOUS_NOTE] if self.simultaneous else [INTERVAL_NOTE]))


def print_tables(document: Mapping[str, Any], columns: Columns) -> None:
    """Every metric of one report: its rows, what they cost and who stands out, and what the numbers mean."""
    out = console()
    out.print(since_until(document))
    if not document["metrics"]:
        out.print("No plan in this store yet: start `ldp-collector serve` with one.")
        return
    for metric in document["metrics"]:
        _print_metric(out, metric, columns)
    notes = [NOTE, *columns.notes, FALSE_NOTE]
    if any(row["normalised"] is not None for metric in document["metrics"] for row in metric["estimates"]):
        notes.append(NORMALISED_NOTE)
    out.print(" ".join([*notes, f"Verdicts: {RULE}."]))


def print_windows(
    whole: Mapping[str, Any], header: Mapping[str, Any], windows: Iterable[Mapping[str, Any]], columns: Columns
) -> None:
    """Every metric from window to window. whole: the report over all of them."""
    out = console()
    out.print(printable(_windows_header(header)))
    if not whole["metrics"]:
        out.print("No plan in this store yet: start `ldp-collector serve` with one.")
        return
    labels, every = series_of(whole, windows, most_labels=MOST_LABELS, error=columns.error, interval=columns.interval)
    for series in every:
        _print_series(out, labels, series, columns)
    out.print(" ".join([NOTE, *columns.notes, f"Verdicts: {RULE}."]))


def _windows_header(header: Mapping[str, Any]) -> str:
    if header["by"] == "version":
        return "By plan version, each by itself"
    over = header["straddling"]
    warning = f"; periods of {', '.join(over)} reach over the end of a window" if over else ""
    return f"By {header['by']} in {header['zone']}, {header['rule']}{warning}"


def _print_series(out: Console, labels: Sequence[str], series: Series, columns: Columns) -> None:
    rows = [
        (window, f"{point.contributors:,}", line.label, *_point_cells(point))
        for place, window in enumerate(labels)
        for line in series.lines
        for point in (line.points[place],)
    ]
    names = ("window", "contributors", "value", number_header(series.metric["estimates"]), *columns.header, "verdict")
    print_table(out, title(series.metric), names, rows[-MOST_ROWS:])
    if len(rows) > MOST_ROWS:
        out.print(f"The last {MOST_ROWS} of {len(rows):,} rows; --format csv and json have them all.")
    if len(series.lines) < series.rows:
        out.print(f"The {len(series.lines)} largest of {series.rows:,} labels; --format csv and json have them all.")


def _point_cells(point: Point) -> tuple[str, ...]:
    if point.value is None:
        return ("-", "-", "-", point.verdict or "-")
    scale = point.error or 0.0
    ends = [None if end is None else rounded(end, scale) for end in (point.low, point.high)]
    interval = "-" if None in ends else f"{ends[0]} .. {ends[1]}"
    return (rounded(point.value, scale), _known(point.error, scale), interval, point.verdict)


def _print_metric(out: Console, metric: Mapping[str, Any], columns: Columns) -> None:
    rows = metric["estimates"]
    is_normalised = any(row["normalised"] is not None for row in rows)
    more = [*(["sum"] if metric["kind"] == "numeric" else []), *(["normalised"] if is_normalised else [])]
    is_robust = any(row.get("median_of_cohorts") is not None for row in rows)
    more += [*(["without_false"] if "false_devices" in metric else []), *(["median_of_cohorts"] if is_robust else [])]
    named = {name: name.replace("_", " ") for name in more}
    named["without_false"] = f"without any {metric.get('false_devices', 0):,} of them"
    header = ("value", number_header(rows), *columns.header, *(named[name] for name in more), "verdict")
    shown = largest(rows, MOST_ROWS)
    print_table(out, title(metric), header, (_cells(row, columns, more) for row in shown))
    for sentence in (*rest(metric, len(shown)), *_sentences(metric)):
        out.print(printable(sentence))


def _sentences(metric: Mapping[str, Any]) -> list[str]:
    costs = cost(metric)
    return [*([] if costs is None else [costs]), *standing_out(metric, MOST_NAMED), *reach(metric)]


def _cells(row: Mapping[str, Any], columns: Columns, more: Sequence[str]) -> tuple[str, ...]:
    value = number(row)
    error, (low, high) = row[columns.error], row[columns.interval]
    if value is None:
        return (row["label"], "-", "-", "-", *["-"] * len(more), row["verdict"])
    scale = row["standard_error"] or 0.0
    interval = "-" if low is None or high is None else f"{rounded(low, scale)} .. {rounded(high, scale)}"
    low, high = row.get("without_false") or (None, None)
    views = {
        "normalised": _known(row["normalised"], scale),
        "sum": _sum(row),
        "without_false": "-" if low is None or high is None else f"{rounded(low, scale)} .. {rounded(high, scale)}",
        "median_of_cohorts": _median(row),
    }
    known = (row["label"], rounded(value, scale), _known(error, scale), interval)
    return (*known, *(views[name] for name in more), row["verdict"])


def _median(row: Mapping[str, Any]) -> str:
    if (median := row.get("median_of_cohorts")) is None:
        return "-"
    error = row["median_of_cohorts_error"] or 0.0
    return f"{rounded(median, error)} ± {rounded(error, error)}"


def _sum(row: Mapping[str, Any]) -> str:
    """With its standard error for this cohort."""
    if (total := row["sum"]) is None:
        return "-"
    error = row["sum_standard_error"]
    return f"{rounded(total, error)} ± {rounded(error, error)}"


def _known(value: float | None, standard_error: float) -> str:
    return "-" if value is None else rounded(value, standard_error)
