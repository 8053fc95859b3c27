"""`ldp-collector report`: estimates from released sums, of a store or of a running collector.

A store is opened read-only, while a collector may write.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from client_sdk.errors import ConfigurationError
from client_sdk.mechanisms.verdict import RULE
from client_sdk.wire.messages import GetReportRequest
from client_sdk.wire.methods import GET_REPORT_METHOD
from collector.reports import parse_instant
from collector.reports.estimates import INTERVALS
from collector.reports.privacy import rounded_up
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import plain
from collector.service import quantities
from collector.service.cli_common import (
    Subparsers,
    add_format,
    console,
    new_parser,
    print_csv,
    print_json,
    print_table,
)
from collector.service.cli_numbers import add_false_devices
from collector.service.remote import Remote, add_source, fetch, readable, remote_of, wrong_question

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = """examples:
  ldp-collector report --db sqlite:///collector.db
  ldp-collector report --db sqlite:///collector.db --metric network --since 2026-01-01 --until 2026-02-01
  ldp-collector report --db sqlite:///collector.db --format csv > report.csv
  ldp-collector report --db sqlite:///collector.db --population --simultaneous
  ldp-collector report --server collector.example:443 --access-token-file anna.token

--since and --until select periods by their start, half open; a bare date is 00:00Z."""

MOST_NAMED = 10
"""Cohorts of one metric that a table names."""

MOST_ROWS = 500
"""Of one metric, in a table."""

NOTE = (
    "Estimates are unbiased for the clipped values, unless they are labelled ratio, quantile or smoothed. "
    "Nothing is cut to what is possible, no interval's end either: a count below 0 is noise."
)
COHORT_NOTE = "Standard errors are for these contributors: only the noise and the rounding are random."
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


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `report`."""
    parser = new_parser(subparsers, "report", "print estimates from the sums that were released", EXAMPLE)
    add_source(parser)
    parser.add_argument("--metric", metavar="NAME", help="only this metric")
    parser.add_argument("--since", metavar="T", help="periods that start at T or later (ISO 8601)")
    parser.add_argument("--until", metavar="T", help="periods that start before T (ISO 8601)")
    parser.add_argument(
        "--population",
        action="store_true",
        help="table: errors for the population that the contributors are a sample of, not for these contributors",
    )
    parser.add_argument(
        "--simultaneous", action="store_true", help="table: intervals that all rows of a metric lie in together"
    )
    add_false_devices(parser)
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """Exit 0, an empty window included; wrong input and a store that cannot be read raise."""
    since, until = _instant("--since", args.since), _instant("--until", args.until)
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    if (args.population or args.simultaneous) and args.format != "table":
        raise ConfigurationError("--population and --simultaneous choose a table's columns; JSON and CSV have all")
    remote = remote_of(args)
    if remote is None:
        _print(_from_store(args.db, args.metric, since, until, args.false_devices), args)
        return 0
    with readable(remote):
        _print(_from_server(remote, args.metric, since, until, args.false_devices), args)
    return 0


def _from_store(
    db: str, metric: str | None, since: int | None, until: int | None, false_devices: str
) -> Mapping[str, Any]:
    from collector.service.documents import report_document
    from collector.service.storage import CollectorStore

    store = CollectorStore.open(db, read_only=True)
    try:
        return report_document(store, metric, since, until, quantities.false_devices(false_devices))
    finally:
        store.close()


def _from_server(
    remote: Remote, metric: str | None, since: int | None, until: int | None, false_devices: str
) -> Mapping[str, Any]:
    if until is not None and until <= 0:
        raise ConfigurationError("--until: nothing was collected before 1970")
    with wrong_question():
        request = GetReportRequest(metric or "", max(since or 0, 0), until or 0, false_devices)
        return fetch(remote, GET_REPORT_METHOD, request)


def _instant(option: str, value: str | None) -> int | None:
    try:
        return None if value is None else parse_instant(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _print(document: Mapping[str, Any], args: argparse.Namespace) -> None:
    if args.format == "json":
        print_json(document)
    elif args.format == "csv":
        print_csv(COLUMNS, report_rows(document), raw_text=args.raw_text)
    else:
        _print_tables(document, Columns(population=args.population, simultaneous=args.simultaneous))


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


def _print_tables(document: Mapping[str, Any], columns: Columns) -> None:
    out = console()
    out.print(f"Periods from {document['since'] or 'the first'} until {document['until'] or 'the last'}")
    if not document["metrics"]:
        out.print("No plan in this store yet: start `ldp-collector serve` with one.")
        return
    for metric in document["metrics"]:
        _print_metric(out, metric, columns)
    notes = [NOTE, *columns.notes, FALSE_NOTE]
    if any(row["normalised"] is not None for metric in document["metrics"] for row in metric["estimates"]):
        notes.append(NORMALISED_NOTE)
    out.print(" ".join([*notes, f"Verdicts: {RULE}."]))


def _print_metric(out: Console, metric: Mapping[str, Any], columns: Columns) -> None:
    rows = metric["estimates"]
    is_normalised = any(row["normalised"] is not None for row in rows)
    more = [*(["sum"] if metric["kind"] == "numeric" else []), *(["normalised"] if is_normalised else [])]
    is_robust = any(row.get("median_of_cohorts") is not None for row in rows)
    more += [*(["without_false"] if "false_devices" in metric else []), *(["median_of_cohorts"] if is_robust else [])]
    named = {name: name.replace("_", " ") for name in more}
    named["without_false"] = f"without any {metric.get('false_devices', 0):,} of them"
    header = ("value", _number_header(rows), *columns.header, *(named[name] for name in more), "verdict")
    shown = _largest(rows)
    print_table(out, _title(metric), header, (_cells(row, columns, more) for row in shown))
    if (vector := metric.get("vector")) is not None and vector["dimension"] > len(rows):
        out.print(
            f"Of {vector['dimension']:,} coordinates the first {len(rows):,} have rows; --format json has them all."
        )
    if len(shown) < len(rows):
        out.print(f"The {len(shown)} largest of {len(rows):,} rows; --format csv and json have them all.")
    _print_epsilons(out, metric)
    _print_standing_out(out, metric)
    if (influence := metric.get("one_false_report")) is None:
        return
    kinds = {"categorical": "count", "histogram": "count", "quantiles": "quantile", "vector": "coordinate"}
    what = kinds.get(metric["kind"], "mean")
    out.print(f"One well-formed false report among them moves a {what} by at most {influence:,.4g};")
    reach = metric["one_broken_device"]
    far = "by any amount" if reach is None else f"in one round, by anything up to {reach:,.4g}"
    out.print(
        f"a device that breaks the protocol can move it, {far} (all that passes the plausibility check of a sum)."
    )


def _print_standing_out(out: Console, metric: Mapping[str, Any]) -> None:
    """An older collector's document has no such fields."""
    if (rate := metric.get("false_alarm_rate")) is None:
        return
    named = metric["standing_out"]
    alarm = f"false alarms: at most {100 * rate:g} %"
    if not named:
        out.print(f"None of its {metric['cohorts']:,} cohorts stands out ({alarm}).")
    for one in named[:MOST_NAMED]:
        out.print(
            f"Round {one['round']} of period {one['period']} stands out in {one['label']}: {one['per_report']:.4g} a "
            f"report, in the others {one['per_report_of_others']:.4g} (p {one['p']:.2g}; {alarm})."
        )
    if len(named) > MOST_NAMED:
        out.print(f"And {len(named) - MOST_NAMED} more, which --format json names.")


def _print_epsilons(out: Console, metric: Mapping[str, Any]) -> None:
    if (central := metric.get("epsilon_central")) is None:
        return
    # an older collector's document has no such field
    but = f" but for delta {plain(delta)}" if (delta := metric.get("delta_local")) else ""
    out.print(
        f"One report costs epsilon {plain(metric['epsilon_local'])}{but} against whoever sees it; at delta "
        f"{plain(metric['delta'])} it costs {rounded_up(central)} (n_h {metric['n_h']:,}, {metric['central_method']}) "
        f"{metric['central_conditions']}."
    )


def _largest(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Those that a table shows, in their order: nobody reads a hundred thousand rows."""
    if len(rows) <= MOST_ROWS:
        return rows
    by_size = sorted(range(len(rows)), key=lambda place: -(_number(rows[place]) or 0.0))
    return [rows[place] for place in sorted(by_size[:MOST_ROWS])]


def _number(row: Mapping[str, Any]) -> float | None:
    value: float | None = row["estimate"] if row["smoothed"] is None else row["smoothed"]
    return value


def _number_header(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of a metric are, where they are not simply unbiased."""
    kinds = {row["estimator"] for row in rows} - {"unbiased"}
    return " or ".join(["estimate", *sorted(f"({kind})" for kind in kinds)]).replace("estimate or", "estimate")


def _title(metric: Mapping[str, Any]) -> str:
    versions = ", ".join(str(v) for v in metric["plan_versions"])
    plan = f"{metric['plan']} version {versions}" if versions else f"{metric['plan']}, no sum in this window"
    kind = f"{metric['kind']}, {_mechanisms(metric)}"
    if metric["expires"] is not None:
        kind += f", not asked for in periods from {metric['expires']} on"
    sampled = "" if metric["reports"] == metric["contributors"] else f" of {metric['reports']:,} reports"
    # an older collector's document has no such field
    bare = f", {direct:,} of them unmasked" if (direct := metric.get("direct")) else ""
    return f"{metric['name']}: {kind}, {metric['contributors']:,} contributors{sampled}{bare} ({plan})"


def _mechanisms(metric: Mapping[str, Any]) -> str:
    """Every mechanism and epsilon of the versions used, with the versions where there are several."""
    used: dict[str, list[int]] = {}
    for version in metric["versions"] or [{**metric, "version": 0}]:
        used.setdefault(f"{version['mechanism']}, epsilon {plain(version['epsilon'])}", []).append(version["version"])
    if len(used) == 1:
        return next(iter(used))
    return "; ".join(f"{what} (version {', '.join(map(str, versions))})" for what, versions in used.items())


def _cells(row: Mapping[str, Any], columns: Columns, more: Sequence[str]) -> tuple[str, ...]:
    value = _number(row)
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


def rounded(value: float, standard_error: float) -> str:
    """As many decimals as show two digits of the standard error; more would be noise."""
    if standard_error <= 0:
        return f"{value:,.6g}"
    return f"{value:,.{min(9, max(0, 1 - math.floor(math.log10(standard_error))))}f}"
