"""`ldp-collector privacy`: what the devices have spent, as booked here. Reading it changes nothing."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from client_sdk.errors import ConfigurationError
from client_sdk.wire.messages import GetPrivacyRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD
from collector.accounting.figures import DELTA
from collector.reports import fleet, privacy
from collector.reports.text import Cell, plain
from collector.service.cli_common import (
    Subparsers,
    add_format,
    console,
    new_parser,
    print_csv,
    print_json,
    print_table,
)
from collector.service.cli_numbers import add_corrupt, add_delta
from collector.service.quantities import share_text
from collector.service.remote import Remote, fetch, readable, remote_of, wrong_question
from collector.service.sources import add_sources, check_sources, export_of

if TYPE_CHECKING:
    from collector.service.documents import FleetSource

EXAMPLE = """examples:
  ldp-collector privacy --db sqlite:///collector.db
  ldp-collector privacy --db sqlite:///collector.db --window 30d --corrupt 0.5
  ldp-collector privacy --db sqlite:///collector.db --device 3f0c9f0e6c1b4f0f8d7f6b9d0c2a1e55
  ldp-collector privacy --db sqlite:///collector.db --device 3f0c9f0e6c1b4f0f8d7f6b9d0c2a1e55 --ledger > ledger.json
  ldp-collector privacy --db sqlite:///collector.db --all --format csv > privacy.csv
  ldp-collector privacy --from-parquet exported --window 30d
  ldp-collector privacy --server collector.example:443 --access-token-file anna.token

The rows show who takes part and when: keep them to those who need them. Over the network --device and --all are for
operators; there the fleet's local epsilon is its closed form's, over the lifetime, unless --window, --delta or
--corrupt asks for more. The histories of a large fleet are rounded there, so figures may be higher than with --db."""

FIGURES_NOTE = (
    "All hold for replacing one value. Local, pure: with certainty, against somebody who sees every report unmasked; "
    "local: the same at delta {delta}; central: at delta {delta} {conditions}. "
    "Windows are sliding, by the time of the charge; the lifetime never shrinks. "
    "Reports that left a device and are in no sum, only the device's own ledger knows."
)
PERCENTILES_NOTE = "p95: 95 % of the devices have spent no more than that."
PLAIN_SUM_NOTE = "{count:,} of them by the plain sum: a plan changed after sums were seen, or spending has no rows."
MOST_FALLBACKS: Final = 20
"""Rounds that are named under a table."""

MOST_IN_WORDS: Final = 2
"""Windows of which it says in words what they mean; the lifetime is the last."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `privacy`."""
    parser = new_parser(subparsers, "privacy", "print what the devices have spent", EXAMPLE)
    add_sources(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--device", metavar="ID", help="one device: its windows and its lifetime")
    which.add_argument("--all", action="store_true", help="every device: a row for each window")
    parser.add_argument(
        "--window", choices=privacy.ALL_WINDOWS, help="beside the lifetime (default: of one device all, else none)"
    )
    add_delta(parser)
    add_corrupt(parser, "as each plan says")
    parser.add_argument("--ledger", action="store_true", help="with --device: its ledger as JSON, for `recompute`")
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """The distribution, one device, or all. An unknown device raises."""
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    if args.ledger and args.device is None:
        raise ConfigurationError("--ledger goes with --device: it is one device's")
    check_sources(args)
    if args.engine is not None and args.from_parquet is None:
        raise ConfigurationError("--engine goes with --from-parquet: a store's own database adds up what devices spent")
    remote = remote_of(args)
    if remote is None:
        _print(_from_store(args) if args.from_parquet is None else _from_export(args), args)
        return 0
    with readable(remote):
        _print(_from_server(remote, args), args)
    return 0


def _windows(args: argparse.Namespace) -> Sequence[str]:
    """Those asked for, the lifetime always."""
    if args.window is None:
        return privacy.ALL_WINDOWS if args.device is not None else (privacy.LIFETIME,)
    return tuple(dict.fromkeys((args.window, privacy.LIFETIME)))


def _from_store(args: argparse.Namespace) -> Mapping[str, Any]:
    from collector.service import documents
    from collector.service.storage import CollectorStore

    store = CollectorStore.open(args.db, read_only=True)
    try:
        if args.device is not None:
            return _figured(documents.device_document(store, args.device.lower(), time.time()), args)
        return _of_fleet(store, time.time(), args)
    finally:
        store.close()


def _from_export(args: argparse.Namespace) -> Mapping[str, Any]:
    """As of the moment that it shows: what was spent later, it does not know."""
    from collector.service import documents
    from collector.service.engines.one_device import one_device

    with export_of(args) as exported:
        fleet_source = exported.spending()
        if args.device is None:
            return _of_fleet(fleet_source, exported.as_of, args)
        with one_device(exported.engine, args.device.lower()) as store:
            return _figured(documents.device_document(store, args.device.lower(), exported.as_of), args)


def _of_fleet(source: FleetSource, now: float, args: argparse.Namespace) -> Mapping[str, Any]:
    from collector.service import documents

    assumed = documents.Assumed(args.delta, args.corrupt)
    with _progress() as progress:
        if args.all:
            return documents.all_devices_document(source, now, _windows(args), assumed, progress)
        return documents.exact_fleet_document(source, now, _windows(args), assumed, progress)


def _from_server(remote: Remote, args: argparse.Namespace) -> Mapping[str, Any]:
    if args.device == "":
        raise ConfigurationError("--device: give a device's id; --all lists them")
    with wrong_question():
        document = fetch(remote, GET_PRIVACY_METHOD, _request(args))
    return _figured(document, args) if args.device is not None else document


def _request(args: argparse.Namespace) -> GetPrivacyRequest:
    """Of one device its ledger, to compute from here."""
    if args.device is not None:
        return GetPrivacyRequest(args.device.lower())
    window = args.window or (privacy.LIFETIME if args.all else "")
    delta = "" if args.delta == DELTA else repr(args.delta)
    return GetPrivacyRequest("", args.all, window, delta, "" if args.corrupt is None else share_text(args.corrupt))


def _figured(document: Mapping[str, Any], args: argparse.Namespace) -> Mapping[str, Any]:
    if args.ledger:
        return document
    return privacy.with_figures(document, _windows(args), args.delta, args.corrupt)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, where somebody looks at it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("histories", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# --- output -----------------------------------------------------------------------------------------


def _print(document: Mapping[str, Any], args: argparse.Namespace) -> None:
    if args.ledger:
        print_json(document["ledger"])
    elif args.format == "json":
        print_json(document)
    elif args.format == "csv":
        _print_csv(document, args)
    elif args.device is not None:
        _print_device(document)
    elif args.all:
        _print_all(document)
    else:
        _print_fleet(document)


def _print_csv(document: Mapping[str, Any], args: argparse.Namespace) -> None:
    header: Sequence[str] = fleet.FLEET_COLUMNS
    if args.device is not None:
        header, rows = privacy.DEVICE_COLUMNS, privacy.device_rows(document)
    elif args.all:
        header, rows = privacy.ALL_COLUMNS, privacy.all_rows(document)
    else:
        rows = fleet.fleet_rows(document)
    print_csv(header, rows, raw_text=args.raw_text)


def _print_device(document: Mapping[str, Any]) -> None:
    _print_table(f"Device {document['device']}", privacy.TABLE_COLUMNS, privacy.table_rows(document))
    out, lifetime = console(), document["windows"][-1]
    out.print(
        f"Periods {document['first_period'] or '-'} to {document['last_period'] or '-'}, "
        f"{document['resent_reports']} of the reports sent again (charged once)."
    )
    for row in document["windows"][-MOST_IN_WORDS:]:
        words, n_h = document["in_words"][row["window"]], f"n_h {row['n_h']}, {row['central_method']}"
        out.print(f"{row['window']}, who sees every report: {words['local']}.")
        out.print(f"{row['window']}, who sees only sums ({n_h}): {words['central']}.")
    for row in lifetime["fallback_rounds"][:MOST_FALLBACKS]:
        where = f"round {row['round']}" if row["round"] else f"{row['reports']} older reports"
        out.print(f"As local, because {row['reason'].replace('_', ' ')}: {where}, period {row['period'] or '-'}.")
    if (more := len(lifetime["fallback_rounds"]) - MOST_FALLBACKS) > 0:
        out.print(f"And {more} more, which --format json names.")
    _print_note(out, document, document["conditions"])


def _print_all(document: Mapping[str, Any]) -> None:
    _print_table("Epsilon per device", privacy.ALL_TABLE_COLUMNS, privacy.all_table_rows(document))
    if document["devices"]:
        _print_note(console(), {**document["devices"][0], "delta": document["delta"]}, document["conditions"])


def _print_fleet(document: Mapping[str, Any]) -> None:
    _print_table(f"Epsilon over {document['devices']:,} devices", fleet.TABLE_COLUMNS, fleet.table_rows(document))
    out = console()
    out.print(PERCENTILES_NOTE)
    if count := document["windows"][-1]["by_plain_sum"]:
        out.print(PLAIN_SUM_NOTE.format(count=count))
    _print_note(out, document, document["conditions"])


def _print_note(out: Any, shown: Mapping[str, Any], conditions: str) -> None:
    delta = plain(shown["windows"][-1]["eps_delta"])
    out.print(FIGURES_NOTE.format(delta=delta, conditions=conditions))
    if (summed := shown["windows"][-1].get("delta_pure")) is not None:
        out.print(f"Gaussian noise is pure at no epsilon: those sums hold but for delta {plain(summed)}.")
    elif shown["delta"] is None:
        out.print("Gaussian noise is pure at no epsilon: those sums hold but for the sums of their reports' deltas.")


def _print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    words = [column.replace("_", " ") if column not in {"n_h", "n_min"} else column for column in header]
    print_table(console(), title, words, (["-" if cell is None else str(cell) for cell in row] for row in rows))
