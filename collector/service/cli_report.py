"""`ldp-collector report`: estimates from released sums, of a store or of a running collector.

A store is opened read-only, while a collector may write.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

from client_sdk.errors import ConfigurationError
from client_sdk.wire.messages import GetReportRequest
from client_sdk.wire.methods import GET_REPORT_METHOD
from collector.reports import parse_instant
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import plain
from collector.service.cli_common import (
    Subparsers,
    add_format,
    console,
    new_parser,
    print_csv,
    print_json,
    print_table,
)
from collector.service.remote import Remote, add_source, fetch, readable, remote_of, wrong_question

EXAMPLE = """examples:
  ldp-collector report --db sqlite:///collector.db
  ldp-collector report --db sqlite:///collector.db --metric network --since 2026-01-01 --until 2026-02-01
  ldp-collector report --db sqlite:///collector.db --format csv > report.csv
  ldp-collector report --server collector.example:443 --access-token-file anna.token

--since and --until select periods by their start, half open; a bare date is 00:00Z."""

NOTE = (
    "Estimates are unbiased for the clipped values; standard errors are for these contributors (only noise is random). "
    "The 95 % interval is 1.96 standard errors to each side. Nothing is cut to what is possible: "
    "a count below 0 is noise."
)


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `report`."""
    parser = new_parser(subparsers, "report", "print estimates from the sums that were released", EXAMPLE)
    add_source(parser)
    parser.add_argument("--metric", metavar="NAME", help="only this metric")
    parser.add_argument("--since", metavar="T", help="periods that start at T or later (ISO 8601)")
    parser.add_argument("--until", metavar="T", help="periods that start before T (ISO 8601)")
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """Exit 0, an empty window included; wrong input and a store that cannot be read raise."""
    since, until = _instant("--since", args.since), _instant("--until", args.until)
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    remote = remote_of(args)
    if remote is None:
        _print(_from_store(args.db, args.metric, since, until), args)
        return 0
    with readable(remote):
        _print(_from_server(remote, args.metric, since, until), args)
    return 0


def _from_store(db: str, metric: str | None, since: int | None, until: int | None) -> Mapping[str, Any]:
    from collector.service.documents import report_document
    from collector.service.storage import CollectorStore

    store = CollectorStore.open(db, read_only=True)
    try:
        return report_document(store, metric, since, until)
    finally:
        store.close()


def _from_server(remote: Remote, metric: str | None, since: int | None, until: int | None) -> Mapping[str, Any]:
    if until is not None and until <= 0:
        raise ConfigurationError("--until: nothing was collected before 1970")
    with wrong_question():
        return fetch(remote, GET_REPORT_METHOD, GetReportRequest(metric or "", max(since or 0, 0), until or 0))


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
        _print_tables(document)


def _print_tables(document: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"Periods from {document['since'] or 'the first'} until {document['until'] or 'the last'}")
    if not document["metrics"]:
        out.print("No plan in this store yet: start `ldp-collector serve` with one.")
        return
    for metric in document["metrics"]:
        header = ("value", "estimate", "standard error", "95 % interval")
        print_table(out, _title(metric), header, (_cells(row) for row in metric["estimates"]))
        if (influence := metric.get("one_false_report")) is not None:
            what = "count" if metric["kind"] == "categorical" else "mean"
            out.print(f"One well-formed false report among them moves a {what} by at most {influence:,.4g};")
            out.print(
                "a device that breaks the protocol can move it, in one round, by anything up to "
                f"{metric['one_broken_device']:,.4g} (all that passes the plausibility check of a sum)."
            )
    out.print(NOTE)


def _title(metric: Mapping[str, Any]) -> str:
    versions = ", ".join(str(v) for v in metric["plan_versions"])
    plan = f"{metric['plan']} version {versions}" if versions else f"{metric['plan']}, no sum in this window"
    kind = f"{metric['kind']}, {metric['mechanism']}, epsilon {plain(metric['epsilon'])}"
    if metric["expires"] is not None:
        kind += f", not asked for in periods from {metric['expires']} on"
    return f"{metric['name']}: {kind}, {metric['contributors']:,} contributors ({plan})"


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    value, error = row["estimate"], row["standard_error"]
    if value is None:
        return row["label"], "-", "-", "-"
    low, high = (rounded(end, error) for end in row["ci95"])
    return row["label"], rounded(value, error), rounded(error, error), f"{low} .. {high}"


def rounded(value: float, standard_error: float) -> str:
    """As many decimals as show two digits of the standard error; more would be noise."""
    if standard_error <= 0:
        return f"{value:,.6g}"
    return f"{value:,.{min(9, max(0, 1 - math.floor(math.log10(standard_error))))}f}"
