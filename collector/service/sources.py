"""Where `report` and `privacy` read from: a store, an export of one (`--from-parquet`), and by which engine.

Rules of this file: a store whose sums an engine adds up is read once, in one transaction, into an export of its own
that is gone afterwards; nothing of its devices is in that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError, MissingExtraError
from collector.service.engines.choice import DUCKDB, ENGINES, MOST_PYTHON_CELLS, PYTHON, SPARK, is_installed, require
from collector.service.remote import add_source

if TYPE_CHECKING:
    from collector.service.engines.exported import Exported
    from collector.service.report_answers import Reading
    from collector.service.report_windows import Question


def add_sources(parser: argparse.ArgumentParser) -> None:
    """`--db`, `--from-parquet` or `--server`, and `--engine` with what goes with it."""
    which = add_source(parser)
    which.add_argument("--from-parquet", type=Path, metavar="DIR", help="an export of a store, in place of the store")
    parser.add_argument(
        "--engine", choices=ENGINES, help="what adds up; the numbers are the same (default: duckdb for an export, and "
        f"for a report over more than {MOST_PYTHON_CELLS:,} released cells where it is installed)",
    )  # fmt: skip
    parser.add_argument("--master", metavar="URL", help="with --engine spark: the cluster (default: this machine)")


def check_sources(args: argparse.Namespace) -> None:
    """Raises ConfigurationError, MissingExtraError."""
    if args.engine is not None and args.server is not None:
        raise ConfigurationError("--engine goes with --db or --from-parquet: a collector chooses its own")
    if args.master is not None and args.engine != SPARK:
        raise ConfigurationError("--master goes with --engine spark")
    if args.from_parquet is not None and not is_installed(DUCKDB):
        raise MissingExtraError("--from-parquet", "reports")
    if args.engine is not None:
        require(args.engine)


@contextmanager
def export_of(args: argparse.Namespace) -> Iterator[Exported]:
    """Of `--from-parquet`. Raises ExportError, EngineError."""
    from collector.service.engines.exported import open_export

    with open_export(args.from_parquet, args.engine or DUCKDB, args.master) as exported:
        yield exported


@contextmanager
def reading(args: argparse.Namespace, question: Question) -> Iterator[Reading]:
    """What a report is made of, of `--from-parquet` or `--db`."""
    if args.from_parquet is not None:
        from collector.service.report_export import ExportReading

        with export_of(args) as exported:
            yield ExportReading(exported)
        return
    from collector.service.report_store import StoreReading
    from collector.service.storage import CollectorStore
    from collector.service.storage_cells import released_cells

    store = CollectorStore.open(args.db, read_only=True)
    try:
        engine = args.engine
        if engine is None and is_installed(DUCKDB):
            cells = store.look(lambda conn: released_cells(conn, question.metric, question.since, question.until))
            engine = DUCKDB if cells > MOST_PYTHON_CELLS else PYTHON
        if engine in {None, PYTHON}:
            yield StoreReading(store)
            return
        from collector.service.report_export import large_store

        with large_store(store, question, engine, args.master) as found:
            yield found
    finally:
        store.close()
