"""A store in one database: opened, created, migrated, closed. What it holds, its subclass knows.

Rules of this file: every `_reading` and `_writing` is one transaction, on disk before it returns, or nothing at all;
`_write`, `_write_alone` and `_tidy` begin again where the engine rolled one back for another's sake. Whatever goes
wrong in one leaves as a StoreError, so that who serves or tidies up goes on: also what a row holds that nobody expects,
and a value that no row can hold. Its text repeats no value. Which engine stands below, how it locks and what its faults
mean, its backend knows (`storage_sqlite.py`, `storage_postgres.py`).
Which write failed last is remembered until one works: in an outage `probe` goes through that very write once more and
takes it back, because a lock or a fault may lie on a row or a table that nothing else touches. No device is asked for
anything meanwhile. Housekeeping is not remembered: it may take minutes, and devices' writes may work without it.
A store whose tables are not all there is refused when it is opened for writing.
What it does not do: it repeats nothing that may have been committed. A commit whose answer is lost is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine, false, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from client_sdk.errors import TelemetryError
from collector.service.storage_backend import Backend, Writer, backend_of
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_schema import Schema, not_current, revision_of, upgrade

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 5.0
"""How long a writer waits for another process's write before it answers that the store is locked."""

ATTEMPTS: Final = 5

_PACKAGE: Final = Path(__file__).parent

_NO_VALUE: Final = (UnicodeEncodeError, OverflowError)
"""Half a character, and a number beyond 64 bits: drivers raise these past SQLAlchemy."""


class Store:
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

    schema: ClassVar[Schema]

    def __init__(self, backend: Backend, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        self._failed: Callable[[Connection], Any] | None = None

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open, and unless `read_only` create or migrate. Other processes may be at work on it meanwhile.

        url: see `backend_of`. Raises StoreError, or ConfigurationError for a URL of another kind.
        """
        backend = backend_of(url, busy_timeout_s)
        if read_only:
            return cls(backend, backend.for_reading(cls.schema))
        return cls._opened(backend, cls._migrate)

    @classmethod
    def open_existing(cls, url: str, *, migrate: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """`open` for writing, of a store that must be there: a new one in its place would have forgotten everything.

        migrate: for who serves. An older one is refused otherwise, as it is for reading: replicas may be at work on it.
        """
        backend = backend_of(url, busy_timeout_s)
        backend.require_store(cls.schema)
        return cls._opened(backend, cls._migrate if migrate else cls._require_current)

    @classmethod
    def _opened(cls, backend: Backend, begin: Callable[[Self], None]) -> Self:
        store = cls(backend, backend.for_writing(cls.schema))
        try:
            begin(store)
            store._require_tables()
        except BaseException:
            store.close()
            raise
        return store

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
        """Could what is asked of it be written now, every table and the write that failed last? Leaves nothing behind.

        Raises StoreError. That write refused for what it holds is an answer, and the store has given it.
        """
        failed = self._failed
        try:
            with self._writing() as conn:
                self._backend.probe(conn, self.schema)
                self._touch(conn)
                if failed is not None:
                    with conn.begin_nested() as rehearsal:
                        failed(conn)
                        rehearsal.rollback()
        except TelemetryError as error:
            if failed is None or _is_outage(error):
                raise
        if self._failed is failed:
            self._failed = None

    def _touch(self, conn: Connection) -> None:
        """Takes the locks that rows need, in each table, and writes none."""
        for table in self.schema.metadata.sorted_tables:
            nothing = select(table).where(false())
            conn.execute(insert(table).from_select(table.columns.keys(), nothing, include_defaults=False))

    # --- for subclasses ---

    def _reading(self, *, quick: bool = False) -> AbstractContextManager[Connection]:
        """quick: asked while devices wait, and given up after seconds."""
        return self._told(self._backend.reading(self._engine, quick=quick))

    def _writing(self, kind: Writer = Writer.BESIDE) -> AbstractContextManager[Connection]:
        return self._told(self._backend.writing(self._engine, kind))

    @contextmanager
    def _told(self, transaction: AbstractContextManager[Connection]) -> Iterator[Connection]:
        """The transaction, whose every fault is a TelemetryError."""
        try:
            with transaction as conn:
                yield conn
        except (TelemetryError, ModuleNotFoundError):  # an extra that is not installed is named by who asked
            raise
        except Exception as error:  # noqa: BLE001 - the one place for whatever nobody thought of
            # without the cause: it may repeat the values of a row
            raise StoreError(self.where, StoreProblem.REFUSED, _said(error), code=type(error).__name__) from None

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
        try:
            with self._writing(kind) as conn:
                found = work(conn)
        except StoreError as error:
            if kind is not Writer.HOUSEKEEPING and _is_outage(error):
                self._failed = work
            raise
        if kind is not Writer.HOUSEKEEPING:
            self._failed = None
        return found

    def _require_current(self) -> None:
        with self._reading() as conn:
            revision = revision_of(conn, self.schema)
        if revision != self.schema.head:
            raise not_current(self.where, self.schema, revision)
        self._backend.settle()

    def _require_tables(self) -> None:
        with self._reading() as conn:
            there = inspect(conn)
            lost = [table.name for table in self.schema.metadata.sorted_tables if not there.has_table(table.name)]
        if lost:
            what = f"table {', '.join(lost)} is missing; run `ldp-collector doctor`, restore a backup"
            raise StoreError(self.where, StoreProblem.DAMAGED, what)

    def _migrate(self) -> None:
        self._backend.settle()
        with self._reading() as conn:
            if revision_of(conn, self.schema) == self.schema.head:
                return
        with self._writing(Writer.MIGRATION) as conn:
            upgrade(conn, self.schema)  # looks again at what is there: another process may have been quicker


def _is_outage(error: TelemetryError) -> bool:
    """Else it is about one call's rows."""
    return isinstance(error, StoreError) and error.problem is not StoreProblem.REFUSED


def _said(error: Exception) -> str:
    """Which fault, and where of ours; nothing of what it was about."""
    frames = [frame for frame in extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    name, place = type(error).__name__, f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, _NO_VALUE):
        return (
            f"was given a value that no row can hold ({name}{place}); nothing of this step was kept, give another one"
        )
    return f"failed with {name}{place}; nothing of this step was kept, run `ldp-collector doctor`"
