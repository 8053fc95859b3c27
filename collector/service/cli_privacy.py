"""`ldp-collector privacy`: what the devices have spent, as booked here. Reading it changes nothing."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError
from collector.accounting.basic import WINDOWS, Amount, DeviceSpending
from collector.reports import all_devices, device_ledger, fleet_privacy, privacy
from collector.reports.text import Cell
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.service.storage import CollectorStore

EXAMPLE = """examples:
  ldp-collector privacy --db sqlite:///collector.db
  ldp-collector privacy --db sqlite:///collector.db --device 3f0c9f0e6c1b4f0f8d7f6b9d0c2a1e55
  ldp-collector privacy --db sqlite:///collector.db --all --format csv > privacy.csv

The rows show who takes part and when: keep them to those who need them."""

NOTE = (
    "Pure local epsilon by basic composition: the bound against somebody who sees every report unmasked. "
    "Windows are sliding, by the time of the charge; the lifetime never shrinks."
)


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `privacy`."""
    parser = new_parser(subparsers, "privacy", "print what the devices have spent", EXAMPLE)
    add_db(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--device", metavar="ID", help="one device: its windows and its lifetime")
    which.add_argument("--all", action="store_true", help="one row per device")
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """The distribution, one device, or all. An unknown device raises."""
    from collector.service.storage import CollectorStore

    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    store = CollectorStore.open(args.db, read_only=True)
    try:
        if args.device is not None:
            return _one(store, args)
        return _all(store, args) if args.all else _fleet(store, args)
    finally:
        store.close()


def _fleet(store: CollectorStore, args: argparse.Namespace) -> int:
    lifetimes = store.lifetimes_micro_epsilon()
    if args.format == "json":
        print_json(fleet_privacy(lifetimes))
    else:
        _print_rows("Lifetime epsilon per device", privacy.FLEET_COLUMNS, privacy.fleet_rows(lifetimes), args)
    return 0


def _all(store: CollectorStore, args: argparse.Namespace) -> int:
    spendings = store.spending(time.time())
    if args.format == "json":
        print_json(all_devices(spendings))
    else:
        _print_rows("Epsilon per device", privacy.ALL_COLUMNS, privacy.all_rows(spendings), args)
    return 0


def _one(store: CollectorStore, args: argparse.Namespace) -> int:
    spending = find_device(store, args.device.lower(), time.time())
    document = device_ledger(spending)
    if args.format == "json":
        print_json(document)
        return 0
    _print_rows(f"Device {spending.device_id}", privacy.DEVICE_COLUMNS, privacy.device_rows(spending), args)
    if args.format == "table":
        console().print(
            f"Periods {document['first_period'] or '-'} to {document['last_period'] or '-'}, "
            f"{document['resent_reports']} of the reports sent again (charged once). Best certainty of a guess "
            f"between two equally likely histories: {document['best_certainty']:.1%}."
        )
    return 0


def find_device(store: CollectorStore, device_id: str, now: float) -> DeviceSpending:
    """What the store has booked for a device; zeros for one that is enrolled only. Raises for an unknown one."""
    found = store.spending(now, device_id)
    if not found and not store.is_enrolled(device_id):
        raise ConfigurationError(f"--device {device_id[:64]!r}: no such device in {store.path}; --all lists them")
    first, last = store.period_range(device_id)
    known = found[0] if found else DeviceSpending(device_id, dict.fromkeys(WINDOWS, Amount(0, 0)), Amount(0, 0), 0)
    return DeviceSpending(device_id, known.windows, known.lifetime, known.resent_reports, first, last)


def _print_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], args: argparse.Namespace) -> None:
    if args.format == "csv":
        print_csv(header, rows, raw_text=args.raw_text)
        return
    out = console()
    words = [column.replace("_", " ") for column in header]
    print_table(out, title, words, (["-" if cell is None else str(cell) for cell in row] for row in rows))
    out.print(NOTE)
