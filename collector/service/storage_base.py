"""A store in one SQLite file: opened, created, migrated, closed. What it holds, its subclass knows.

Rules of this file: every `_reading` and `_writing` is one transaction, on disk before it returns, or nothing at
all. Which engine stands below, how it locks and what its faults mean, `storage_sqlite.py` knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from collector.service import storage_sqlite as sqlite

BUSY_TIMEOUT_S: Final = 5.0
"""How long a writer waits for another process's write before it answers that the store is locked."""


class SqliteStore:
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

    schema: ClassVar[sqlite.Schema]

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self._engine = engine

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open, and unless `read_only` create or migrate. A writer of the file may be at work meanwhile.

        url: `sqlite:///PATH` or a path. Raises StoreError, or ConfigurationError for a URL of another kind.
        """
        path = sqlite.store_path(url)
        if read_only:
            sqlite.check_there(path, cls.schema)
            mode, revision = sqlite.judge_for_reading(path, cls.schema, busy_timeout_s)
            if revision != cls.schema.head:
                raise sqlite.not_current(path, cls.schema, revision)
            return cls(path, sqlite.make_engine(path, mode, busy_timeout_s))
        sqlite.create_file(path, cls.schema)
        sqlite.judge_for_writing(path, cls.schema, busy_timeout_s)
        store = cls(path, sqlite.make_engine(path, "rw", busy_timeout_s))
        try:
            store._migrate(busy_timeout_s)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_existing(cls, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """`open` for writing, of a store that must be there: a new one in its place would have forgotten everything."""
        path = sqlite.store_path(url)
        sqlite.check_there(path, cls.schema)
        if path.stat().st_size == 0:
            raise sqlite.not_current(path, cls.schema, None)
        return cls.open(url, busy_timeout_s=busy_timeout_s)

    def close(self) -> None:
        """Let go of the file. The last one to close it folds the write-ahead log in."""
        with suppress(DBAPIError):
            self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with sqlite.translated(self.path), self._engine.begin() as conn:
            yield conn

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        engine = self._engine.execution_options(writes=True)
        with sqlite.translated(self.path), engine.begin() as conn:
            yield conn

    def probe(self) -> None:
        """Could a release be stored now? Raises StoreError; leaves nothing behind."""
        with self._writing():
            sqlite.check_room(self.path)

    def _migrate(self, busy_timeout_s: float) -> None:
        with sqlite.translated(self.path):
            sqlite.switch_to_wal(self.path, busy_timeout_s)
        with self._reading() as conn:
            if sqlite.revision_of(conn, self.schema) == self.schema.head:
                return
        with self._writing() as conn:
            sqlite.upgrade(conn, self.schema)
