"""The collector's store: what a restart must find again.

Rules of this file: every method is one transaction, on disk before it returns, or nothing at all. Which engine
stands below, how it locks and what its faults mean, `storage_sqlite.py` knows; the statements stand in
`storage_reads.py` and are every engine's.

What it does not do: it keeps no report and no token, decides nothing about privacy beyond refusing a release
under `min_size`, and deletes nothing by itself.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from client_sdk.errors import ConfigurationError
from client_sdk.identity import PUBLIC_KEY_BYTES, device_id_of
from client_sdk.plan import Plan
from collector.accounting.basic import WINDOWS, DeviceSpending
from collector.release import ReleasedSum
from collector.service import migrations
from collector.service import storage_reads as reads
from collector.service import storage_sqlite as sqlite
from collector.service import storage_writes as writes
from collector.service import tables as t
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_rows import (
    Contribution,
    Contributor,
    DuplicateContributionError,
    Question,
    Release,
    RoundRecord,
    Standing,
    StoredPlan,
)

__all__ = [
    "CollectorStore",
    "Contribution",
    "Contributor",
    "DuplicateContributionError",
    "Question",
    "Release",
    "RoundRecord",
    "Standing",
    "StoreError",
    "StoreProblem",
    "StoredPlan",
]

BUSY_TIMEOUT_S: Final = 5.0
"""How long a writer waits for another process's write before it answers that the store is locked."""

TOKEN_TTL_S: Final = 30 * 86_400
MIN_KEPT_S: Final = max(WINDOWS.values())


class CollectorStore:
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

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
            sqlite.check_there(path)
            mode, revision = sqlite.judge_for_reading(path, busy_timeout_s)
            if revision != migrations.HEAD:
                raise sqlite.not_current(path, revision)
            return cls(path, sqlite.make_engine(path, mode, busy_timeout_s))
        sqlite.create_file(path)
        sqlite.judge_for_writing(path, busy_timeout_s)
        store = cls(path, sqlite.make_engine(path, "rw", busy_timeout_s))
        try:
            store._migrate(busy_timeout_s)
        except BaseException:
            store.close()
            raise
        return store

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
            if sqlite.revision_of(conn) == migrations.HEAD:
                return
        with self._writing() as conn:
            sqlite.upgrade(conn)

    # --- plans and enrolment --------------------------------------------------------------------

    def put_plan(self, plan: Plan, now: float) -> None:
        """Keep a plan version; idempotent. Raises PlanError for a changed version or period."""
        with self._writing() as conn:
            writes.put_plan(conn, plan, int(now))

    def plans(self) -> list[StoredPlan]:
        """Every plan version, by name and version."""
        c = t.plans.c
        with self._reading() as conn:
            rows = conn.execute(select(c.hash, c.name, c.version, c.text).order_by(c.name, c.version))
            return [StoredPlan(*row) for row in rows]

    def issue_token(self, now: float, ttl_s: int = TOKEN_TTL_S) -> str:
        """A fresh enrolment token, see `issue_tokens`."""
        return self.issue_tokens(1, now, ttl_s)[0]

    def issue_tokens(self, count: int, now: float, ttl_s: int = TOKEN_TTL_S) -> list[str]:
        """`count` single-use tokens of 32 random bytes, valid for `ttl_s` seconds; only hashes are stored."""
        tokens = [_new_token() for _ in range(count)]
        rows = [
            {"token_hash": _token_hash(token), "issued_at": int(now), "expires_at": int(now) + ttl_s}
            for token in tokens
        ]
        if rows:
            with self._writing() as conn:
                conn.execute(insert(t.tokens), rows)
        return tokens

    def enrol(self, token: str, identity_key: bytes, now: float) -> bool:
        """Use up `token` for this identity. True again for the same pair; False for any other bad token."""
        if len(identity_key) != PUBLIC_KEY_BYTES:
            return False
        with self._writing() as conn:
            return writes.enrol(conn, _token_hash(token), identity_key, device_id_of(identity_key), int(now))

    def is_enrolled(self, device_id: str) -> bool:
        """Has this identity used a token?"""
        with self._reading() as conn:
            return conn.execute(select(t.devices.c.device).where(t.devices.c.device == device_id)).first() is not None

    # --- rounds ---------------------------------------------------------------------------------

    def device_totals(self, device_id: str) -> tuple[int, int]:
        """(reports counted, micro-epsilon) over the device's whole life; zeros for an unknown one."""
        c = t.device_totals.c
        with self._reading() as conn:
            row = conn.execute(select(c.reports, c.micro_epsilon).where(c.device == device_id)).first()
            return (0, 0) if row is None else (row.reports, row.micro_epsilon)

    def standings(self, questions: Sequence[Question]) -> dict[Question, Standing]:
        """The enrolled ones among the devices that are asked about, all as of one moment."""
        devices: dict[tuple[str, int], list[str]] = defaultdict(list)
        for device_id, plan_name, period_start in questions:
            devices[plan_name, period_start].append(device_id)
        with self._reading() as conn:
            return {
                (device_id, *period): standing
                for period, asked in devices.items()
                for device_id, standing in reads.standings(conn, asked, *period).items()
            }

    def store_release(self, release: Release) -> None:
        """All of an opened sum, or nothing. When it returns, receipts may go out.

        Raises DuplicateContributionError naming the devices that are already counted.
        """
        try:
            with self._writing() as conn:
                writes.insert_release(conn, release)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            with self._reading() as conn:  # where writers do not queue, another one may have come between
                already = writes.already_counted(conn, release)
            if not already:
                raise
            raise DuplicateContributionError(already) from None

    def record_aborted(self, record: RoundRecord) -> None:
        """A round that ended without a sum: reason and counts only."""
        with self._writing() as conn:
            writes.insert_round(conn, record)

    def fold_spends(self, now: float, keep_s: int = MIN_KEPT_S) -> int:
        """Garbage collection: spends older than `keep_s` go, the lifetime stays. Returns the rows dropped.

        Raises ConfigurationError where `keep_s` is shorter than the longest window that is reported.
        """
        if keep_s < MIN_KEPT_S:
            raise ConfigurationError(f"spends must be kept for at least {MIN_KEPT_S} s, the longest window shown")
        with self._writing() as conn:
            return writes.fold_spends(conn, int(now) - keep_s)

    # --- for the reports ------------------------------------------------------------------------

    def rounds(self) -> list[RoundRecord]:
        """Every finished round, in the order in which they finished."""
        with self._reading() as conn:
            return reads.rounds(conn)

    def released_sums(
        self, metric: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[ReleasedSum]:
        """Per round and metric the opened totals, for since <= period_start < until."""
        with self._reading() as conn:
            return reads.released_sums(conn, metric, since, until)

    def contributions(
        self, device_id: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[Contribution]:
        """Who is counted where, for since <= period_start < until."""
        with self._reading() as conn:
            return reads.contributions(conn, device_id, since, until)

    def lifetimes_micro_epsilon(self) -> list[int]:
        """The lifetime of each device with a counted report, in no order."""
        with self._reading() as conn:
            return list(conn.execute(select(t.device_totals.c.micro_epsilon)).scalars())

    def spending(self, now: float, device_id: str | None = None) -> list[DeviceSpending]:
        """Per device with a counted report (or the one asked for) its windows up to `now` and its lifetime."""
        with self._reading() as conn:
            return reads.spending(conn, int(now), device_id)

    def period_range(self, device_id: str) -> tuple[int | None, int | None]:
        """First and last period in which the device is counted."""
        with self._reading() as conn:
            return reads.period_range(conn, device_id)


def _new_token() -> str:
    while True:
        token = secrets.token_urlsafe(32)
        if not token.startswith("-"):  # a command line would take it for an option
            return token


def _token_hash(token: str) -> bytes:
    # A token has 256 random bits: a plain hash is as good as a slow one.
    return hashlib.sha256(token.encode()).digest()
