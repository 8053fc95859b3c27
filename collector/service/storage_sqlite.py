"""A store in one SQLite file.

Rules of this file: commits are on disk before they return (WAL, synchronous=FULL); writers queue at BEGIN
IMMEDIATE, so that what a writer checked still holds when it commits; readers see one snapshot and hold up
nobody. A file that this version does not understand is refused before the first byte of it changes. Every
fault leaves as one StoreError that names the file and what to do; bound values never reach its text.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from client_sdk.errors import ConfigurationError
from collector.service.storage_backend import Writer
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_schema import Schema, judged_revision, not_current, require_known

_BY_SQLITE_CODE: Final = {
    sqlite3.SQLITE_BUSY: StoreProblem.LOCKED,
    sqlite3.SQLITE_LOCKED: StoreProblem.LOCKED,
    sqlite3.SQLITE_FULL: StoreProblem.FULL,
    sqlite3.SQLITE_READONLY: StoreProblem.READ_ONLY,
    sqlite3.SQLITE_PERM: StoreProblem.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: StoreProblem.CANNOT_OPEN,
    sqlite3.SQLITE_CORRUPT: StoreProblem.DAMAGED,
    sqlite3.SQLITE_NOTADB: StoreProblem.DAMAGED,
    sqlite3.SQLITE_IOERR: StoreProblem.INPUT_OUTPUT,
    sqlite3.SQLITE_CONSTRAINT: StoreProblem.REFUSED,
}


_LOST: Final = re.compile(r"no such (table|column)|has no column named")
"""SQLite has no code of its own for what was there when the store was opened."""

_FULL_ERRNO: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_READ_ONLY_ERRNO: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


ROOM_BYTES: Final = 256 * 1024
"""What the release of a full cohort takes in the write-ahead log, about."""


@dataclass(frozen=True, slots=True)
class SqliteBackend:
    """The file at `path`. How its faults are told and its locks are waited for; see `Backend`."""

    path: Path
    busy_timeout_s: float

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def file(self) -> Path | None:
        """The path."""
        return self.path

    def require_store(self, schema: Schema) -> None:
        """It is there, and not empty."""
        if size_of(self.path, schema) == 0:
            raise not_current(self.where, schema, None)

    def for_reading(self, schema: Schema) -> Engine:
        """Where the folder may not be written too, as long as nobody writes."""
        size_of(self.path, schema)
        mode, revision = judge_for_reading(self.path, schema, self.busy_timeout_s)
        if revision != schema.head:
            raise not_current(self.where, schema, revision)
        return make_engine(self.path, mode, self.busy_timeout_s)

    def for_writing(self, schema: Schema) -> Engine:
        """Creates the file, empty."""
        create_file(self.path, schema)
        judge_for_writing(self.path, schema, self.busy_timeout_s)
        return make_engine(self.path, "rw", self.busy_timeout_s)

    def settle(self) -> None:
        """Write-ahead logging."""
        with translated(self.path):
            switch_to_wal(self.path, self.busy_timeout_s)

    @contextmanager
    def reading(self, engine: Engine, *, quick: bool) -> Iterator[Connection]:  # noqa: ARG002 - the disk is near
        """One snapshot."""
        with translated(self.path), engine.begin() as conn:
            yield conn

    @contextmanager
    def writing(self, engine: Engine, kind: Writer) -> Iterator[Connection]:  # noqa: ARG002
        """Writers queue, so each is alone."""
        with translated(self.path), engine.execution_options(writes=True).begin() as conn:
            yield conn

    def probe(self, conn: Connection, schema: Schema) -> None:  # noqa: ARG002
        """The lock is had; is there room?"""
        check_room(self.path)

    def now(self, conn: Connection) -> float | None:  # noqa: ARG002
        """None: there is one clock."""
        return None

    def gave_way(self, error: StoreError) -> bool:  # noqa: ARG002 - a writer that has begun is not overtaken
        """Never."""
        return False


def store_path(url: str) -> Path:
    """The file behind `sqlite:///PATH` or a bare path. Raises ConfigurationError; never repeats a foreign URL."""
    match = re.fullmatch(r"sqlite(?:\+pysqlite)?:///(.*)", url, re.DOTALL)
    path = match[1] if match else url
    scheme = re.match(r"([a-zA-Z][\w+.-]*):(//)?", path)
    if match is None and scheme is not None and (scheme[2] or scheme[1].startswith("sqlite")):
        raise ConfigurationError(
            f"store URL of kind {scheme[1]!r}: give sqlite:///PATH, the path of a file, or postgresql+psycopg://..."
        )
    if not path or "\0" in path or path == ":memory:" or (match and "?" in path):
        raise ConfigurationError("store URL: give sqlite:///PATH or a path, of a file that outlives the process")
    return Path(path)


def make_engine(path: Path, mode: str, busy_timeout_s: float) -> Engine:
    """`mode`: rw, ro, or immutable (nobody writes, and the folder may be read-only)."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: _connect(path, mode, busy_timeout_s),
        poolclass=QueuePool,
        hide_parameters=True,  # or SQLAlchemy would print bound values in its exceptions
    )
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    # Never a mode that creates: a file that vanishes must not come back empty.
    query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    uri = f"{path.absolute().as_uri()}?{query}"
    return sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    # None of these touches the file.
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _begin(conn: Connection) -> None:
    # A writer that began as a reader could find its snapshot overtaken; IMMEDIATE waits its turn instead.
    writes = conn.get_execution_options().get("writes", False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def translated(path: Path, *, judging: bool = False) -> Iterator[None]:
    """Turn what SQLite or SQLAlchemy raises inside into one StoreError about `path`.

    judging: whether it is a store at all is not known yet.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(path, error, judging=judging) from error
    except DBAPIError as error:
        raise _store_error(path, error.orig, judging=judging) from error


def _store_error(path: Path, error: BaseException | None, *, judging: bool) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    if judging and code == sqlite3.SQLITE_NOTADB:
        # Told by SQLite alone: who opens and closes the file beside it takes the process's locks on it away.
        what = "is no SQLite file; name the store, or restore its backup if this was it"
        return StoreError(path, StoreProblem.NOT_A_STORE, what)
    problem = None if code is None else _BY_SQLITE_CODE.get(code & 0xFF)
    if code == sqlite3.SQLITE_ERROR and _LOST.search(str(error)):
        what = "is damaged, or tables of it are gone; run `ldp-collector doctor`, restore a backup"
        return StoreError(path, StoreProblem.DAMAGED, what, code="SQLITE_ERROR")
    if problem is StoreProblem.INPUT_OUTPUT and _is_full(path):
        problem = StoreProblem.FULL  # the log's index cannot grow: SQLite has another word for it
    if problem is not None:
        return StoreError(path, problem, code=getattr(error, "sqlite_errorname", None))
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    what = f"SQLite failed ({name}); nothing of this step was kept"
    return StoreError(path, StoreProblem.INPUT_OUTPUT, what, code=name)


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < ROOM_BYTES
    except OSError:
        return False


def check_room(path: Path) -> None:
    """Raises StoreError unless ROOM_BYTES can be written beside the store. SQLite itself notices at a commit only."""
    try:
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as stream:
            if stream.write(bytes(ROOM_BYTES)) < ROOM_BYTES:
                raise StoreError(path, StoreProblem.FULL)
            os.fsync(stream.fileno())
    except OSError as error:
        raise StoreError(path, _problem_of_errno(error.errno)) from error


def _problem_of_errno(number: int | None) -> StoreProblem:
    if number in _FULL_ERRNO:
        return StoreProblem.FULL
    return StoreProblem.READ_ONLY if number in _READ_ONLY_ERRNO else StoreProblem.INPUT_OUTPUT


def size_of(path: Path, schema: Schema) -> int:
    """Of the file that must be there. Raises StoreError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(path, StoreProblem.MISSING, f"no such store; {schema.where}") from None
    except OSError as error:
        what = f"cannot be looked at ({error.strerror}); name a path that this user may reach"
        raise StoreError(path, StoreProblem.CANNOT_OPEN, what) from None
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(path, StoreProblem.MISSING, "is a folder; name the store's file in it")
    return found.st_size


def create_file(path: Path, schema: Schema) -> None:
    """An empty file for its owner only: it will say who takes part."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        size_of(path, schema)
    except FileNotFoundError:
        raise StoreError(path, StoreProblem.MISSING, f"folder {path.parent} does not exist; create it first") from None
    except OSError as error:
        raise StoreError(
            path, StoreProblem.READ_ONLY, f"cannot be created ({error.strerror}); choose a folder of this user"
        ) from None


def judge_for_reading(path: Path, schema: Schema, busy_timeout_s: float) -> tuple[str, str | None]:
    """(mode, revision) of an existing file, without writing."""
    try:
        return "ro", _judge(path, schema, "ro", busy_timeout_s)
    except StoreError as error:
        # Without the right to create its -shm file SQLite cannot read a WAL store, unless told that nobody
        # writes; without a -wal file that is so.
        log = path.with_name(path.name + "-wal")
        if error.problem not in {StoreProblem.CANNOT_OPEN, StoreProblem.READ_ONLY} or log.exists():
            raise
        return "immutable", _judge(path, schema, "immutable", busy_timeout_s)


def judge_for_writing(path: Path, schema: Schema, busy_timeout_s: float) -> None:
    """Refuse what this version does not understand before a byte of it changes."""
    if size_of(path, schema) == 0:
        return
    try:
        revision = _judge(path, schema, "ro", busy_timeout_s)
    except StoreError as error:
        if error.problem not in {StoreProblem.CANNOT_OPEN, StoreProblem.READ_ONLY}:
            raise
        revision = _judge(path, schema, "rw", busy_timeout_s)  # a crash while the file was made: needs its journal
    require_known(str(path), schema, revision)


def _judge(path: Path, schema: Schema, mode: str, busy_timeout_s: float) -> str | None:
    engine = make_engine(path, mode, busy_timeout_s)
    try:
        with translated(path, judging=True), engine.begin() as conn:
            return judged_revision(conn, str(path), schema)
    finally:
        engine.dispose()


def switch_to_wal(path: Path, busy_timeout_s: float) -> None:
    """Once per file. SQLite's own waiting does not cover this switch, so it is tried again until the deadline."""
    deadline = time.monotonic() + busy_timeout_s
    connection = _connect(path, "rw", busy_timeout_s)
    try:
        while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    finally:
        connection.close()
