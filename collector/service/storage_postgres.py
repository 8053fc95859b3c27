"""A store in a PostgreSQL database, 15 or newer, shared by any number of collectors.

Rules of this file:
- a commit is on the server's disk before it returns: `synchronous_commit` is never `off`, whatever the role says;
- writers run at READ COMMITTED, beside one another; each holds a lock of ours, shared, until it ends, so that a writer
  that has to be alone (a migration, a device that is forgotten, housekeeping, a plan) can ask for it exclusively and
  then sees all that they wrote; readers are REPEATABLE READ, READ ONLY: one moment, and they hold up nobody;
- nothing waits for ever: neither for a lock, nor for a statement, nor for a server that no longer answers. Its own
  limits cannot help there, so the connection is cut from this side;
- every fault leaves as one StoreError that names the database and what to do. A password is nowhere in it, in no
  repr and in no log; bound values neither.
What it does not do: it creates no database and no role, and it pools no connections for others (`PgBouncer` has to
pool by session).
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from client_sdk.errors import MissingExtraError
from collector.service.postgres_faults import describe
from collector.service.postgres_url import Address, address_of
from collector.service.storage_backend import Writer
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_schema import Schema, judged_revision, not_current, require_known

try:
    import psycopg
    from psycopg.types.array import ListBinaryDumper
except ImportError as error:
    raise MissingExtraError("a store in PostgreSQL", "postgres") from error

OLDEST: Final = 150000
"""What `server_version_num` has to be at least."""

CONNECT_S: Final = 3.0
"""For a new connection, and for a kept one to show that it still lives."""

STATEMENT_S: Final = 10.0
"""For one statement of a writer, or of a reader for whom devices wait."""

QUICK_S: Final = 20.0
"""For such a transaction as a whole, after which its connection is cut."""

TIDY_S: Final = 300.0
LONG_S: Final = 1800.0
"""For a report or a migration."""

_ON_CONNECT: Final = """
SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false),
       set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)
"""

_DURABLE: Final = """set_config('synchronous_commit', CASE current_setting('synchronous_commit')
       WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"""

_LONG: Final = text("""SELECT set_config('statement_timeout', :limit, true),
       set_config('idle_in_transaction_session_timeout', :limit, true)""")
_PATIENT: Final = text("SELECT set_config('lock_timeout', :limit, true)")
_SHARED: Final = text(f"SELECT pg_advisory_xact_lock_shared(:key), {_DURABLE}")
_ALONE: Final = text(f"SELECT pg_advisory_xact_lock(:key), {_DURABLE}")

LOCK_KEY: Final = 0x6C64702D74656C65
"""`ldp-tele`: the advisory lock of the stores of this program, one database at a time."""

_KEEPALIVES: Final = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": int(QUICK_S * 1000),
    "connect_timeout": int(CONNECT_S),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PostgresBackend:
    """The database at `address`; see `Backend`."""

    address: Address
    busy_timeout_s: float

    @classmethod
    def of(cls, url: str, busy_timeout_s: float) -> PostgresBackend:
        """Raises ConfigurationError, which never repeats the URL."""
        return cls(address_of(url), busy_timeout_s)

    @property
    def where(self) -> str:
        """`postgresql://host:port/database`."""
        return self.address.where

    @property
    def file(self) -> Path | None:
        """None: a server keeps it."""
        return None

    def require_store(self, schema: Schema) -> None:
        """Tables are there."""
        engine = self._engine()
        try:
            if self._judge(engine, schema) is None:
                raise not_current(self.where, schema, None)
        finally:
            engine.dispose()

    def for_reading(self, schema: Schema) -> Engine:
        """Also of a standby."""
        engine = self._engine()
        try:
            revision = self._judge(engine, schema)
            if revision != schema.head:
                raise not_current(self.where, schema, revision)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def for_writing(self, schema: Schema) -> Engine:
        """The database must be there; it may be empty."""
        engine = self._engine()
        try:
            require_known(self.where, schema, self._judge(engine, schema))
        except BaseException:
            engine.dispose()
            raise
        return engine

    def settle(self) -> None:
        """Nothing."""

    @contextmanager
    def reading(self, engine: Engine, *, quick: bool) -> Iterator[Connection]:
        """One snapshot, of the moment of its first question."""
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._transaction(engine, options, QUICK_S if quick else LONG_S) as conn:
            if not quick:
                conn.execute(_LONG, {"limit": _ms(LONG_S)})
            yield conn

    @contextmanager
    def writing(self, engine: Engine, kind: Writer) -> Iterator[Connection]:
        """The lock comes first: each later statement sees what was committed before it was had."""
        with self._transaction(engine, _WRITER, _LIMITS[kind]) as conn:
            if kind in {Writer.HOUSEKEEPING, Writer.MIGRATION}:
                conn.execute(_LONG, {"limit": _ms(_LIMITS[kind])})
            if kind is Writer.MIGRATION:
                conn.execute(_PATIENT, {"limit": _ms(_LIMITS[kind])})
            conn.execute(_SHARED if kind is Writer.BESIDE else _ALONE, {"key": LOCK_KEY})
            yield conn

    def probe(self, conn: Connection, schema: Schema) -> None:
        """A write that changes nothing: it needs rights, room, and a server that takes writes."""
        table = schema.version_table
        conn.execute(text(f"UPDATE {table} SET version_num = version_num"))  # noqa: S608 - a constant of ours

    def now(self, conn: Connection) -> float | None:
        """The server's."""
        return float(conn.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def gave_way(self, error: StoreError) -> bool:
        """A deadlock, or a transaction that could not be put in order with another."""
        return error.code in {"40P01", "40001"}

    # --- connections ---

    def _engine(self) -> Engine:
        # the driver is asked for connections here, so that neither engine nor pool ever knows the password
        engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_timeout=self.busy_timeout_s,
            hide_parameters=True,  # or SQLAlchemy would print bound values in its exceptions
            use_native_hstore=False,
        )
        event.listen(engine, "checkout", _check_alive)
        return engine

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**{**_KEEPALIVES, **self.address.parameters})
        connection.adapters.register_dumper(
            list, ListBinaryDumper
        )  # in text, each element would be looked at for quotes
        try:
            with _limited(connection, _Limit(CONNECT_S)):
                limits = (_ms(self.busy_timeout_s), _ms(STATEMENT_S), _ms(QUICK_S))
                connection.execute(_ON_CONNECT, limits)
                connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _transaction(self, engine: Engine, options: dict[str, Any], limit_s: float) -> Iterator[Connection]:
        limit = _Limit(limit_s)
        with self._translated(limit), ExitStack() as held:
            with self._reached():
                conn = held.enter_context(engine.connect())
                conn.execution_options(**options)
                held.enter_context(_limited(conn.connection.driver_connection, limit))
            with conn.begin():  # the commit has to come in time too
                yield conn

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """What the way to a connection raises past SQLAlchemy's own translation: its pool gives a connection up whose
        check failed twice, and no descriptor or thread may be free for the time limit.
        """
        try:
            yield
        except (InvalidRequestError, psycopg.Error, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "new connections die at once"
            what = f"cannot be reached ({why}); look at the way to it, the server's log and this process's limits"
            raise StoreError(self.where, StoreProblem.UNREACHABLE, what) from error

    @contextmanager
    def _translated(self, limit: _Limit) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            if limit.is_over:
                what = (
                    f"did not finish within the time limit of {limit.seconds:g} s, and the connection was cut from "
                    "this side; look for what slows the server or the way to it"
                )
                raise StoreError(self.where, StoreProblem.UNREACHABLE, what) from error
            found = self._fault(error.orig)
            # these alone repeat the values of a row
            raise found from (None if found.problem is StoreProblem.REFUSED else error)
        except PoolTimeoutError as error:
            raise StoreError(self.where, StoreProblem.LOCKED, "all its connections are in use; try again") from error

    def _fault(self, error: BaseException | None) -> StoreError:
        problem, what = describe(error, self.address.password)
        return StoreError(self.where, problem, what, code=getattr(error, "sqlstate", None))

    def _judge(self, engine: Engine, schema: Schema) -> str | None:
        with self.reading(engine, quick=True) as conn:
            version = int(conn.execute(text("SHOW server_version_num")).scalar_one())
            if version < OLDEST:
                what = f"is PostgreSQL {version // 10000}; take {OLDEST // 10000} or newer"
                raise StoreError(self.where, StoreProblem.CANNOT_OPEN, what)
            encoding = conn.execute(text("SHOW server_encoding")).scalar_one()
            if encoding != "UTF8":
                what = f"is encoded as {encoding}; make it anew with encoding UTF8"
                raise StoreError(self.where, StoreProblem.CANNOT_OPEN, what)
            return judged_revision(conn, self.where, schema)


_WRITER: Final = {"isolation_level": "READ COMMITTED"}
_LIMITS: Final = {
    Writer.BESIDE: QUICK_S,
    Writer.ALONE: QUICK_S,
    Writer.HOUSEKEEPING: TIDY_S,
    Writer.MIGRATION: LONG_S,
}


def _ms(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))


def _check_alive(dbapi_connection: psycopg.Connection[Any], *_: object) -> None:
    """Before a kept connection is used: the server may have been restarted, or be gone without a word."""
    try:
        dbapi_connection.read_only = None  # as the role has it: what a reader leaves behind would say that it may write
        with _limited(dbapi_connection, _Limit(CONNECT_S)):
            dbapi_connection.execute("SELECT 1")
            dbapi_connection.rollback()
    except psycopg.Error as error:
        raise DisconnectionError from error


@dataclass(slots=True)
class _Limit:
    """How long something may take, and whether it was cut for that."""

    seconds: float
    is_over: bool = False


@contextmanager
def _limited(connection: Any, limit: _Limit) -> Iterator[None]:
    """Cut the connection when that takes longer. Whoever waits at it then is told that it is lost.

    Raises OSError, psycopg.Error: nothing could be limited, and nothing was done.
    """
    # a descriptor of our own: the driver may have closed its one, and the number be another file's, when time is up
    line = socket.socket(fileno=os.dup(connection.fileno()))
    timer = threading.Timer(limit.seconds, _cut, [line, limit])
    timer.daemon = True
    try:
        _start(timer)
        yield
    finally:
        timer.cancel()
        line.close()


def _start(timer: threading.Timer) -> None:
    try:
        timer.start()
    except RuntimeError as error:  # as the standard library has it
        raise OSError(errno.EAGAIN, "no thread is free") from error


def _cut(line: socket.socket, limit: _Limit) -> None:
    limit.is_over = True
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
