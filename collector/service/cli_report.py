"""`ldp-collector report`: estimates from released sums. Opens the store read-only, while a collector writes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

from client_sdk.errors import ConfigurationError
from collector.reports import build_report, parse_instant
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import plain
from collector.service.cli_common import (
    Subparsers,
    add_db,
    add_format,
    console,
    new_parser,
    print_csv,
    print_json,
    print_table,
)

EXAMPLE = """examples:
  ldp-collector report --db sqlite:///collector.db
  ldp-collector report --db sqlite:///collector.db --metric network --since 2026-01-01 --until 2026-02-01
  ldp-collector report --db sqlite:///collector.db --format csv > report.csv

--since and --until select periods by their start, half open; a bare date is 00:00Z."""

NOTE = (
    "Estimates are unbiased for the clipped values; standard errors are for these contributors (only noise is random). "
    "The 95 % interval is 1.96 standard errors to each side. Nothing is cut to what is possible: "
    "a count below 0 is noise."
)


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `report`."""
    parser = new_parser(subparsers, "report", "print estimates from the sums that were released", EXAMPLE)
    add_db(parser)
    parser.add_argument("--metric", metavar="NAME", help="only this metric")
    parser.add_argument("--since", metavar="T", help="periods that start at T or later (ISO 8601)")
    parser.add_argument("--until", metavar="T", help="periods that start before T (ISO 8601)")
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """Exit 0, an empty window included; wrong input and a store that cannot be read raise."""
    from collector.service.storage import CollectorStore

    since, until = _instant("--since", args.since), _instant("--until", args.until)
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    store = CollectorStore.open(args.db, read_only=True)
    try:
        rows = store.released_sums(args.metric, since, until)
        plans = store.plans()  # after the sums: a plan that comes between is one too many, never one too few
        document = build_report(plans, rows, since, until, args.metric)
    finally:
        store.close()
    _print(document, args)
    return 0


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
    out.print(NOTE)


def _title(metric: Mapping[str, Any]) -> str:
    versions = ", ".join(str(v) for v in metric["plan_versions"])
    plan = f"{metric['plan']} version {versions}" if versions else f"{metric['plan']}, no sum in this window"
    kind = f"{metric['kind']}, {metric['mechanism']}, epsilon {plain(metric['epsilon'])}"
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
