"""`ldp-collector report`: estimates from released sums, of a store or of a running collector.

A store is opened read-only, while a collector may write.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from client_sdk.plan.slicing import why_no_slices
from collector.reports import parse_instant, to_csv, to_json
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import csv_rows, json_pieces
from collector.reports.windowed import COLUMNS as WINDOW_COLUMNS
from collector.reports.windowed import window_rows
from collector.reports.windows import BY
from collector.service import quantities
from collector.service.cli_common import Subparsers, add_format, new_parser
from collector.service.cli_numbers import add_false_devices
from collector.service.output import add_out, output
from collector.service.remote import readable, remote_of
from collector.service.report_answers import Answers, LocalAnswers, RemoteAnswers
from collector.service.report_page import page
from collector.service.report_tables import Columns, print_tables, print_windows
from collector.service.report_windows import UTC_NAME, Question, Zone, zone_of
from collector.service.sources import add_sources, check_sources, reading

EXAMPLE = """examples:
  ldp-collector report --db sqlite:///collector.db
  ldp-collector report --db sqlite:///collector.db --metric network --since 2026-01-01 --until 2026-02-01
  ldp-collector report --db sqlite:///collector.db --format csv > report.csv
  ldp-collector report --db sqlite:///collector.db --population --simultaneous
  ldp-collector report --db sqlite:///collector.db --by week --zone Europe/Zurich
  ldp-collector report --db sqlite:///collector.db --format html --out report.html
  ldp-collector report --from-parquet exported --engine spark --master spark://head:7077
  ldp-collector report --server collector.example:443 --access-token-file anna.token

--since and --until select periods by their start, half open; a bare date is 00:00 UTC, or in --zone. A period belongs,
whole, to the window of --by in which it starts. A page has charts by day, or by the shortest windows that it has room
for, and needs the `reports` extra."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `report`."""
    parser = new_parser(subparsers, "report", "print estimates from the sums that were released", EXAMPLE)
    add_sources(parser)
    parser.add_argument("--metric", metavar="NAME", help="only this metric")
    parser.add_argument(
        "--slice",
        metavar="NAME",
        help="--metric by the categories of this one, where its plan was collected so (slice_by)",
    )
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
    parser.add_argument("--by", choices=BY, help="one report for each day, week, month or plan version")
    parser.add_argument(
        "--zone", metavar="NAME", help="whose days --by means, and bare dates, such as Europe/Zurich (default UTC)"
    )
    add_format(parser, "table", "json", "csv", "html")
    add_out(parser, "html, json and csv")


def run(args: argparse.Namespace) -> int:
    """Exit 0, an empty window included; wrong input and a store that cannot be read raise."""
    _check(args)
    zone = zone_of(args.zone or UTC_NAME)
    since, until = _instant("--since", args.since, zone), _instant("--until", args.until, zone)
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    question = Question(args.metric, since, until, quantities.false_devices(args.false_devices))
    remote = remote_of(args)
    if remote is None:
        with reading(args, question) as found:
            answers = LocalAnswers(found, question)
            _check_slice(answers.plans, args)
            _print(answers, zone, args)
        return 0
    with readable(remote):
        _print(RemoteAnswers(remote, question, args.false_devices), zone, args)
    return 0


def _check(args: argparse.Namespace) -> None:
    check_sources(args)
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    if (args.population or args.simultaneous) and args.format != "table":
        raise ConfigurationError("--population and --simultaneous choose a table's columns; JSON and CSV have all")
    if args.slice is not None and args.metric is None:
        raise ConfigurationError("--slice goes with --metric: which number is to be had by category?")
    if args.slice is not None and args.server is not None:
        raise ConfigurationError("--slice needs the plans; give --db or --from-parquet in place of --server")
    if args.out is not None and args.format == "table":
        raise ConfigurationError("--out goes with --format html, json or csv; a table is for a terminal")


def _check_slice(plans: Sequence[Plan], args: argparse.Namespace) -> None:
    """A metric that was collected by slices has them as its rows; of another nobody can make any."""
    metrics = [metric for plan in plans for name, metric in plan.metrics.items() if name == args.metric]
    if args.slice is not None and metrics and (why := why_no_slices(metrics, args.slice)) is not None:
        raise ConfigurationError(f"--slice: {why}")


def _instant(option: str, value: str | None, zone: Zone) -> int | None:
    try:
        return None if value is None else parse_instant(value, zone.rules)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _print(answers: Answers, zone: Zone, args: argparse.Namespace) -> None:
    if args.format == "table":
        columns = Columns(population=args.population, simultaneous=args.simultaneous)
        if args.by is None:
            print_tables(answers.report(), columns)
        else:
            windowed = answers.windowed(args.by, zone, numbers_only=True)
            print_windows(answers.report(), windowed.header, windowed.documents(), columns)
        return
    with output(args.out) as out:
        out.writelines(_pieces(answers, zone, args))


def _pieces(answers: Answers, zone: Zone, args: argparse.Namespace) -> Iterator[str]:
    if args.format == "html":
        yield page(answers, args.by, zone)
    elif args.by is not None:
        windowed = answers.windowed(args.by, zone)
        if args.format == "json":
            yield from json_pieces(windowed.header, "windows", windowed.documents())
            yield "\n"
        else:
            yield to_csv((*WINDOW_COLUMNS, *COLUMNS), ())
            yield from (csv_rows(window_rows([one]), raw_text=args.raw_text) for one in windowed.documents())
    elif args.format == "json":
        yield to_json(answers.report()) + "\n"
    else:
        yield to_csv(COLUMNS, report_rows(answers.report()), raw_text=args.raw_text)
