"""The device's SQLite file: its schema, one connection per transaction, errors named after what to do.

Rules of this file: no connection outlives its transaction, so no descriptor is held, and no fork happens inside
one (SQLite's own locks would stay taken in the child for good); rollback journal with synchronous=EXTRA (FULL plus
the folder's entry), because "charged" and "handed over" must hold before a byte leaves the device; a newer
version's file is refused before anything is written. What it does not do: it knows nothing of budgets or reports.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from client_sdk.device import fork_gate
from client_sdk.device.files import SEED_BYTES, StoreDamagedError, StoreUnavailableError, refuse_link
from client_sdk.errors import StorageError

SCHEMA_VERSION = 4
BUSY_TIMEOUT_S = 5.0
BUSY_STEP_S = 0.1
"""How long SQLite itself waits for a lock; longer waits happen outside the gate, where they hold up no fork."""

BUSY_PAUSE_S = 0.01
COMMIT_WAIT_S = 1.0
"""Within the gate: shorter than the longest time a fork is held up."""

JOURNAL_SUFFIX = "-journal"

SCHEMA = """
CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), seed BLOB NOT NULL, enrolled_at REAL,
    certificate BLOB);
-- signature: the operator's, where the plan was fetched with one
CREATE TABLE plans (hash BLOB PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, pinned_at REAL, signature BLOB);
-- a version never changes: the first that was used under its number
CREATE TABLE plan_versions (plan_name TEXT NOT NULL, version INTEGER NOT NULL, plan_hash BLOB NOT NULL,
    PRIMARY KEY (plan_name, version));
-- what was charged (micro_rho: NULL where it is not known, at most micro_epsilon then): never deleted, and the reason
-- why one period has one report whatever happens
CREATE TABLE ledger (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, plan_hash BLOB NOT NULL,
    micro_epsilon INTEGER NOT NULL, charged_at REAL NOT NULL, seal_id BLOB NOT NULL, sealed_by BLOB NOT NULL,
    micro_rho INTEGER, PRIMARY KEY (plan_name, period_start));
-- the strictest limits of any version of a plan's name, and its one period
CREATE TABLE plan_limits (plan_name TEXT PRIMARY KEY, period_s INTEGER NOT NULL, rolling_24h INTEGER, lifetime INTEGER,
    rolling_24h_rho INTEGER, lifetime_rho INTEGER);
-- spending known only from elsewhere (mirror, collector) after a damaged ledger: counts for every plan name
CREATE TABLE carried (micro_epsilon INTEGER NOT NULL, noted_at REAL NOT NULL);
-- perturbed reports on their way: sealed (hand_overs 0), then handed over; how each ended stands in log. hand_overs: on
-- either way; direct_hand_overs: unmasked. confirmed_*: the sum of the last round whose status this device signed
CREATE TABLE spool (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, plan_hash BLOB NOT NULL,
    report BLOB NOT NULL, micro_epsilon INTEGER NOT NULL, sealed_at REAL NOT NULL, expires_at REAL NOT NULL,
    not_before REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, hand_overs INTEGER NOT NULL DEFAULT 0,
    min_cohort INTEGER NOT NULL, direct_hand_overs INTEGER NOT NULL DEFAULT 0, confirmed_round TEXT,
    confirmed_contributors INTEGER, confirmed_roster INTEGER, confirmed_resent INTEGER,
    PRIMARY KEY (plan_name, period_start));
CREATE TABLE log (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, plan_hash BLOB NOT NULL,
    digest BLOB NOT NULL, micro_epsilon INTEGER NOT NULL, outcome TEXT NOT NULL, resent INTEGER NOT NULL,
    round_id TEXT, contributors INTEGER, roster_size INTEGER, finished_at REAL NOT NULL,
    resent_contributors INTEGER, left_device INTEGER NOT NULL DEFAULT 1,
    delivery TEXT NOT NULL DEFAULT 'interactive', PRIMARY KEY (plan_name, period_start));
-- readings of an open period, sealed with the host's key
CREATE TABLE open_periods (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, plan_hash BLOB NOT NULL,
    sealed BLOB NOT NULL, kept_at REAL NOT NULL, PRIMARY KEY (plan_name, period_start));
-- signed when the user opted out, repeated until the collector acknowledges; not_before, attempts: as in spool
CREATE TABLE deletions (identity_key BLOB PRIMARY KEY, certificate BLOB NOT NULL, requested_at INTEGER NOT NULL,
    signature BLOB NOT NULL, not_before REAL NOT NULL, attempts INTEGER NOT NULL);
-- memoised metrics: price and number of this identity's reports; keyed digests of the values that were answered for, by
-- when they last were (never a value or an answer); what each report was charged for each of them
CREATE TABLE memos (plan_name TEXT NOT NULL, memo BLOB NOT NULL, first_micro INTEGER NOT NULL,
    inf_micro INTEGER NOT NULL, max_distinct INTEGER NOT NULL, reports INTEGER NOT NULL,
    PRIMARY KEY (plan_name, memo));
CREATE TABLE memo_values (plan_name TEXT NOT NULL, memo BLOB NOT NULL, digest BLOB NOT NULL, place INTEGER NOT NULL,
    PRIMARY KEY (plan_name, memo, digest));
CREATE TABLE memo_reports (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, memo BLOB NOT NULL,
    micro_epsilon INTEGER NOT NULL, PRIMARY KEY (plan_name, period_start, memo));
CREATE TABLE counters (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""

MIGRATIONS = {
    1: (
        "ALTER TABLE identity ADD COLUMN certificate BLOB",
        "ALTER TABLE plans ADD COLUMN signature BLOB",
        "CREATE TABLE plan_versions (plan_name TEXT NOT NULL, version INTEGER NOT NULL, plan_hash BLOB NOT NULL, "
        "PRIMARY KEY (plan_name, version))",
        "CREATE TABLE deletions (identity_key BLOB PRIMARY KEY, certificate BLOB NOT NULL, "
        "requested_at INTEGER NOT NULL, signature BLOB NOT NULL, not_before REAL NOT NULL, attempts INTEGER NOT NULL)",
    ),
    2: (
        "ALTER TABLE log ADD COLUMN resent_contributors INTEGER",
        # what became of a report before nobody can say any more: it may have left
        "ALTER TABLE log ADD COLUMN left_device INTEGER NOT NULL DEFAULT 1",
    ),
    3: (
        "ALTER TABLE ledger ADD COLUMN micro_rho INTEGER",
        "ALTER TABLE plan_limits ADD COLUMN rolling_24h_rho INTEGER",
        "ALTER TABLE plan_limits ADD COLUMN lifetime_rho INTEGER",
        "ALTER TABLE spool ADD COLUMN direct_hand_overs INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE spool ADD COLUMN confirmed_round TEXT",
        "ALTER TABLE spool ADD COLUMN confirmed_contributors INTEGER",
        "ALTER TABLE spool ADD COLUMN confirmed_roster INTEGER",
        "ALTER TABLE spool ADD COLUMN confirmed_resent INTEGER",
        "ALTER TABLE log ADD COLUMN delivery TEXT NOT NULL DEFAULT 'interactive'",
        "CREATE TABLE memos (plan_name TEXT NOT NULL, memo BLOB NOT NULL, first_micro INTEGER NOT NULL, "
        "inf_micro INTEGER NOT NULL, max_distinct INTEGER NOT NULL, reports INTEGER NOT NULL, "
        "PRIMARY KEY (plan_name, memo))",
        "CREATE TABLE memo_values (plan_name TEXT NOT NULL, memo BLOB NOT NULL, digest BLOB NOT NULL, "
        "place INTEGER NOT NULL, PRIMARY KEY (plan_name, memo, digest))",
        "CREATE TABLE memo_reports (plan_name TEXT NOT NULL, period_start INTEGER NOT NULL, memo BLOB NOT NULL, "
        "micro_epsilon INTEGER NOT NULL, PRIMARY KEY (plan_name, period_start, memo))",
    ),
}
"""What brings a file of version N to N + 1. A released one is never edited."""

_UNAVAILABLE = {
    "SQLITE_FULL": "the disk is full; free some space, nothing was sent or lost",
    "SQLITE_BUSY": "locked by another process",
    "SQLITE_LOCKED": "locked by another connection",
    "SQLITE_READONLY": "the file or its file system is read-only",
    "SQLITE_IOERR": "the disk does not answer (full or failing?)",
    "SQLITE_CANTOPEN": "cannot be opened (permissions, disk full, or too many open files?)",
    "SQLITE_NOMEM": "out of memory",
    "SQLITE_PERM": "permission denied",
}
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


@contextmanager
def transaction(path: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Iterator[sqlite3.Connection]:
    """One write transaction on the file at `path`: committed when the block ends, else rolled back.

    Raises StoreUnavailableError (try again later), StoreDamagedError, or StorageError (a newer schema).
    """
    if not refuse_link(path):
        raise StoreDamagedError(f"{path}: missing")
    refuse_link(path + JOURNAL_SUFFIX)
    deadline = time.monotonic() + busy_timeout_s
    while True:
        with fork_gate.closed(), _errors_translated(path), closing(_connect(path)) as connection:
            if _begin(connection, path, last_try=time.monotonic() >= deadline):
                yield from _committed(connection)
                return
        time.sleep(BUSY_PAUSE_S)


def _begin(connection: sqlite3.Connection, path: str, *, last_try: bool) -> bool:
    """False: another process is writing, and there is time to try again."""
    try:
        # already these look at the file, and find it locked while another process's commit goes to the disk
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA secure_delete = ON")  # dropped is written over, whatever the default
        version = schema_version(connection)
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"{path}: written by a newer version (schema {version}, this one knows {SCHEMA_VERSION}); "
                "update ldp-telemetry; nothing was changed"
            )
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if last_try or not error.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise
        return False
    return True


def _committed(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
        _commit(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _commit(connection: sqlite3.Connection) -> None:
    """Commit; a reader from outside (a backup, a curious shell) holds up only this last step."""
    deadline = time.monotonic() + COMMIT_WAIT_S
    while True:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if time.monotonic() >= deadline or not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                raise
            time.sleep(BUSY_PAUSE_S)
        else:
            return


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_STEP_S, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def schema_version(connection: sqlite3.Connection) -> int:
    """0 for an empty file, else the version that wrote it."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create_schema(connection: sqlite3.Connection, path: str) -> None:
    """All tables, in the caller's transaction. StorageError where the file holds somebody else's."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StorageError(f"{path}: not a store of this package; choose another data_dir")
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring an older file to this version, in the caller's transaction. Nothing for an empty or a current one."""
    version = schema_version(connection)
    if version in (0, SCHEMA_VERSION):
        return
    for older in range(version, SCHEMA_VERSION):
        for statement in MIGRATIONS[older]:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def seed_of(db: sqlite3.Connection) -> bytes:
    """The identity's seed: 32 bytes, secret."""
    row = db.execute("SELECT seed FROM identity").fetchone()
    if row is None or not isinstance(row[0], bytes) or len(row[0]) != SEED_BYTES:
        raise StoreDamagedError("the identity is not readable")
    return bytes(row[0])


def meta(db: sqlite3.Connection, key: str) -> Any:
    """What is kept under `key`, or None."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(db: sqlite3.Connection, key: str, value: object) -> None:
    """Keep it in place of what was there."""
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def check_integrity(connection: sqlite3.Connection, path: str) -> None:
    """StoreDamagedError where the pages do not fit together."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise StoreDamagedError(f"{path}: damaged")


@contextmanager
def _errors_translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(_DAMAGED):
            raise StoreDamagedError(f"{path}: damaged") from None
        for prefix, advice in _UNAVAILABLE.items():
            if name.startswith(prefix):
                raise StoreUnavailableError(f"{path}: {advice}") from None
        # its text may quote a statement, never a bound value; the class is enough to find the place
        raise StorageError(f"{path}: {type(error).__name__} ({name or 'unknown'})") from error
