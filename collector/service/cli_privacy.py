"""`ldp-collector privacy`: what the devices have spent, as booked here. Reading it changes nothing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from client_sdk.errors import ConfigurationError
from client_sdk.wire.messages import GetPrivacyRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD
from collector.reports import privacy
from collector.reports.text import Cell
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
  ldp-collector privacy --db sqlite:///collector.db
  ldp-collector privacy --db sqlite:///collector.db --device 3f0c9f0e6c1b4f0f8d7f6b9d0c2a1e55
  ldp-collector privacy --db sqlite:///collector.db --all --format csv > privacy.csv
  ldp-collector privacy --server collector.example:443 --access-token-file anna.token

The rows show who takes part and when: keep them to those who need them. Over the network --device and --all are for
operators."""

NOTE = (
    "Pure local epsilon by basic composition: the bound against somebody who sees every report unmasked. "
    "Windows are sliding, by the time of the charge; the lifetime never shrinks."
)


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `privacy`."""
    parser = new_parser(subparsers, "privacy", "print what the devices have spent", EXAMPLE)
    add_source(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--device", metavar="ID", help="one device: its windows and its lifetime")
    which.add_argument("--all", action="store_true", help="one row per device")
    add_format(parser, "table", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """The distribution, one device, or all. An unknown device raises."""
    if args.raw_text and args.format != "csv":
        raise ConfigurationError("--raw-text goes with --format csv")
    remote = remote_of(args)
    if remote is None:
        _print(_from_store(args), args)
        return 0
    with readable(remote):
        _print(_from_server(remote, args), args)
    return 0


def _from_store(args: argparse.Namespace) -> Mapping[str, Any]:
    from collector.service import documents
    from collector.service.storage import CollectorStore

    store = CollectorStore.open(args.db, read_only=True)
    try:
        if args.device is not None:
            return documents.device_document(store, args.device.lower(), time.time())
        return documents.all_devices_document(store, time.time()) if args.all else documents.fleet_document(store)
    finally:
        store.close()


def _from_server(remote: Remote, args: argparse.Namespace) -> Mapping[str, Any]:
    if args.device == "":
        raise ConfigurationError("--device: give a device's id; --all lists them")
    with wrong_question():
        return fetch(remote, GET_PRIVACY_METHOD, GetPrivacyRequest((args.device or "").lower(), args.all))


def _print(document: Mapping[str, Any], args: argparse.Namespace) -> None:
    if args.format == "json":
        print_json(document)
    elif args.device is not None:
        rows = privacy.device_rows(document)
        _print_rows(f"Device {document['device']}", privacy.DEVICE_COLUMNS, rows, args)
        if args.format == "table":
            _print_device_note(document)
    elif args.all:
        _print_rows("Epsilon per device", privacy.ALL_COLUMNS, privacy.all_rows(document), args)
    else:
        _print_rows("Lifetime epsilon per device", privacy.FLEET_COLUMNS, privacy.fleet_rows(document), args)


def _print_device_note(document: Mapping[str, Any]) -> None:
    console().print(
        f"Periods {document['first_period'] or '-'} to {document['last_period'] or '-'}, "
        f"{document['resent_reports']} of the reports sent again (charged once). Best certainty of a guess "
        f"between two equally likely histories: {document['best_certainty']:.1%}."
    )


def _print_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], args: argparse.Namespace) -> None:
    if args.format == "csv":
        print_csv(header, rows, raw_text=args.raw_text)
        return
    out = console()
    words = [column.replace("_", " ") for column in header]
    print_table(out, title, words, (["-" if cell is None else str(cell) for cell in row] for row in rows))
    out.print(NOTE)
