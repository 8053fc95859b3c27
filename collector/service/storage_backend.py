"""What differs from engine to engine under a store, and which engine a URL means."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine

from collector.service.storage_errors import StoreError
from collector.service.storage_schema import Schema


class Writer(Enum):
    """How a writer stands to others, and how long it may take."""

    BESIDE = "beside"
    """At work beside others: what must hold, keys see to it. Seconds."""
    ALONE = "alone"
    """What it has looked at still holds when it ends, whatever other processes do. Seconds."""
    HOUSEKEEPING = "housekeeping"
    """Alone, for minutes."""
    MIGRATION = "migration"
    """Alone, and it waits for another one's migration to end."""


class Backend(Protocol):
    """One place where a store is. Every method raises StoreError, and no other error of a driver."""

    @property
    def where(self) -> str:
        """Its name for people: without a password."""

    @property
    def file(self) -> Path | None:
        """The file that it is; None where a server keeps it."""

    def require_store(self, schema: Schema) -> None:
        """There must be one already: a new one in its place would have forgotten everything."""

    def for_reading(self, schema: Schema) -> Engine:
        """Of a store that is there and up to date; creates and changes nothing."""

    def for_writing(self, schema: Schema) -> Engine:
        """Of a place where a store is or may be made; what this version does not understand is refused untouched."""

    def settle(self) -> None:
        """Before the first transaction: what has to be done once to a place, outside of one."""

    def reading(self, engine: Engine, *, quick: bool) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment and holds up nobody. quick: it is given up after seconds."""

    def writing(self, engine: Engine, kind: Writer) -> AbstractContextManager[Connection]:
        """A transaction that is on disk when it ends without an error."""

    def probe(self, conn: Connection, schema: Schema) -> None:
        """In a writing transaction: could a release be stored now?"""

    def now(self, conn: Connection) -> float | None:
        """By the database's own clock, seconds since the epoch; None where that is this machine's."""

    def gave_way(self, error: StoreError) -> bool:
        """Was the transaction rolled back for another one's sake, so that it may be tried again at once?"""


def backend_of(url: str, busy_timeout_s: float) -> Backend:
    """By URL: `sqlite:///PATH` or a path; `postgresql+psycopg://...` or `postgresql://...`.

    Raises ConfigurationError for one of another kind, and where the extra of the engine is not installed.
    """
    if re.match(r"postgres(ql)?(\+\w+)?:", url):
        from collector.service.storage_postgres import PostgresBackend

        return PostgresBackend.of(url, busy_timeout_s)
    from collector.service.storage_sqlite import SqliteBackend, store_path

    return SqliteBackend(store_path(url), busy_timeout_s)
