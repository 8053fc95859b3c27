"""A store in one database: opened, created, migrated, closed. What it holds, its subclass knows.

Rules of this file: every `_reading` and `_writing` is one transaction, on disk before it returns, or nothing at all;
`_write`, `_write_alone` and `_tidy` begin again where the engine rolled one back for another's sake. Which engine
stands below, how it locks and what its faults mean, its backend knows (`storage_sqlite.py`, `storage_postgres.py`).
What it does not do: it repeats nothing that may have been committed. A commit whose answer is lost is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import ClassVar, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from collector.service.storage_backend import Backend, Writer, backend_of
from collector.service.storage_errors import StoreError
from collector.service.storage_schema import Schema, revision_of, upgrade

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 5.0
"""How long a writer waits for another process's write before it answers that the store is locked."""

ATTEMPTS: Final = 5


class Store:
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

    schema: ClassVar[Schema]

    def __init__(self, backend: Backend, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open, and unless `read_only` create or migrate. Other processes may be at work on it meanwhile.

        url: see `backend_of`. Raises StoreError, or ConfigurationError for a URL of another kind.
        """
        backend = backend_of(url, busy_timeout_s)
        if read_only:
            return cls(backend, backend.for_reading(cls.schema))
        store = cls(backend, backend.for_writing(cls.schema))
        try:
            store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_existing(cls, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """`open` for writing, of a store that must be there: a new one in its place would have forgotten everything."""
        backend_of(url, busy_timeout_s).require_store(cls.schema)
        return cls.open(url, busy_timeout_s=busy_timeout_s)

    @property
    def where(self) -> str:
        """The store's name for people."""
        return self._backend.where

    @property
    def file(self) -> Path | None:
        """The file that it is; None where a server keeps it."""
        return self._backend.file

    def close(self) -> None:
        """Let go of it. The last one to close a file folds its write-ahead log in."""
        with suppress(DBAPIError):
            self._engine.dispose()

    def probe(self) -> None:
        """Could a release be stored now? Raises StoreError; leaves nothing behind."""
        with self._writing() as conn:
            self._backend.probe(conn, self.schema)

    # --- for subclasses ---

    def _reading(self, *, quick: bool = False) -> AbstractContextManager[Connection]:
        """quick: asked while devices wait, and given up after seconds."""
        return self._backend.reading(self._engine, quick=quick)

    def _writing(self, kind: Writer = Writer.BESIDE) -> AbstractContextManager[Connection]:
        return self._backend.writing(self._engine, kind)

    def _write(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(conn, ...)` as one transaction, beside others."""
        return self._again_and_again(Writer.BESIDE, lambda conn: work(conn, *args, **kwargs))

    def _write_alone(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(conn, ...)` as one transaction while no other writer is at work."""
        return self._again_and_again(Writer.ALONE, lambda conn: work(conn, *args, **kwargs))

    def _tidy(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`_write_alone` for housekeeping, which may take minutes."""
        return self._again_and_again(Writer.HOUSEKEEPING, lambda conn: work(conn, *args, **kwargs))

    def _again_and_again(self, kind: Writer, work: Callable[[Connection], T]) -> T:
        for attempt in range(1, ATTEMPTS):
            try:
                return self._once(kind, work)
            except StoreError as error:
                if not self._backend.gave_way(error):
                    raise
                time.sleep(0.01 * attempt)
        return self._once(kind, work)

    def _once(self, kind: Writer, work: Callable[[Connection], T]) -> T:
        with self._writing(kind) as conn:
            return work(conn)

    def _migrate(self) -> None:
        self._backend.settle()
        with self._reading() as conn:
            if revision_of(conn, self.schema) == self.schema.head:
                return
        with self._writing(Writer.MIGRATION) as conn:
            upgrade(conn, self.schema)  # looks again at what is there: another process may have been quicker
