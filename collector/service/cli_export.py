"""`ldp-collector export`: a store as a folder of Parquet files, for `report`, `privacy` and other programs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError
from collector.reports import parse_instant
from collector.service.cli_common import Subparsers, add_db, console, new_parser
from collector.service.storage import CollectorStore

if TYPE_CHECKING:
    from collector.service.parquet_export import Written

EXAMPLE = """examples:
  ldp-collector export --db sqlite:///collector.db --out exported
  ldp-collector export --db sqlite:///collector.db --out exported --since 2026-01-01 --until 2026-02-01
  ldp-collector export --db sqlite:///collector.db --out sums --sums-only
  ldp-collector report --from-parquet exported

The folder then holds what the store holds at one moment, and nothing else: run again, it writes the days anew that have
changed (a late cohort, a device that opted out) and keeps the others. _schema.json names the columns, _manifest.json
the files that count. Without --sums-only it says who takes part and when: keep it to those who need it."""

DAY_S = 86_400


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `export`."""
    parser = new_parser(subparsers, "export", "write a store as Parquet files, by day", EXAMPLE)
    add_db(parser)
    parser.add_argument("--format", choices=("parquet",), default="parquet", help="of the files (parquet)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder: a new one, or an export's")
    parser.add_argument("--since", metavar="DAY", help="periods that start on this UTC day or later (2026-01-31)")
    parser.add_argument("--until", metavar="DAY", help="periods that start before this UTC day")
    parser.add_argument(
        "--sums-only", action="store_true", help="without the tables that say who takes part: enough for `report`"
    )


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the export is whole."""
    from collector.service.parquet_export import Asked, export

    since, until = _day("--since", args.since), _day("--until", args.until)
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    asked = Asked(since, until, devices=not args.sums_only)
    store = CollectorStore.open(args.db, read_only=True)
    try:
        with _progress() as step:
            written = store.look(lambda conn: export(conn, args.out, int(time.time()), asked, step))
    finally:
        store.close()
    console().print(_words(args.out, written))
    return 0


def _words(folder: Path, written: Written) -> str:
    days = f"{written.written:,} days of tables written, {written.kept:,} unchanged ones kept"
    return f"{folder}: {written.rows:,} rows; {days}."


def _day(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        instant = parse_instant(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if instant % DAY_S:
        raise ConfigurationError(f"{option} {text[:40]!r}: an export holds whole UTC days; give a date")
    return instant


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being written, on stderr, where somebody looks at it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
