"""What a device keeps: its identity, its ledger, its spool. One SQLite file and a small mirror beside it.

Rules of this file: a charge and the report it pays for are one transaction; the mirror (identity and lifetime
total) is on the disk before that transaction commits; a ledger that is missing, damaged or lower than its
mirror, or than what the collector has booked, counts as used up until `reset_ledger`, which takes the largest
total known; one report per plan name and period, over all processes. No handle outlives a call, so a fork or
a second process finds nothing half open.
What it does not do: it keeps no reading and no round secret, and it cannot see a folder restored together
with its mirror: only the collector's total can.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from client_sdk.accounting.budget import Limits
from client_sdk.device import forgetting, ledger, memos, spool
from client_sdk.device.database import seed_of
from client_sdk.device.files import write_mirror
from client_sdk.device.opening import compare, mirror_of, readable_mirror
from client_sdk.device.records import LogEntry, SealedReport
from client_sdk.device.store_deletions import DeletionStore
from client_sdk.device.store_memos import MemoStore
from client_sdk.device.store_plans import PlanStore
from client_sdk.device.store_spool import SpoolStore
from client_sdk.errors import BudgetExceededError, RefusalReason


class _RollBackError(Exception):
    """Ends a transaction that was only tried; never leaves this file."""


class DeviceStore(SpoolStore, PlanStore, DeletionStore, MemoStore):
    """The device's store in `data_dir`: its identity and ledger here; its spool, plans and deletions in its bases."""

    # --- identity -------------------------------------------------------------------------------------

    def identity(self) -> bytes:
        """The identity's seed (32 bytes, secret)."""
        with self._transaction() as db:
            return seed_of(db)

    def certificate(self) -> bytes | None:
        """The registrar's word for the identity, as it was kept, or None."""
        with self._transaction() as db:
            found = db.execute("SELECT certificate FROM identity").fetchone()[0]
            return None if found is None else bytes(found)

    def keep_certificate(self, certificate: bytes, reason: str, now: float) -> None:
        """Keep a certificate in place of the one before, counted under `reason`."""
        with self._transaction() as db:
            db.execute(
                "UPDATE identity SET certificate = ?, enrolled_at = coalesce(enrolled_at, ?)", (certificate, now)
            )
            spool.count(db, reason)

    # --- the ledger -----------------------------------------------------------------------------------

    def seal(self, sealed: SealedReport, host_limits: Limits) -> RefusalReason | None:
        """Charge and spool in one transaction. None: done. A reason: nothing was charged, nothing will leave."""
        refused = self._seal(sealed, host_limits)
        if refused is None:
            self._settle_mirror()
        return refused

    def _seal(self, sealed: SealedReport, host_limits: Limits) -> RefusalReason | None:
        with self._transaction() as db:
            earlier = ledger.earlier_seal(db, sealed)
            if earlier is not None:
                return ledger.why_not_again(earlier, sealed)
            sealed = memos.priced(db, sealed)
            refused = self._refusal(db, sealed, host_limits)
            if refused is not None:
                return refused
            total, before = ledger.total_micro(db), readable_mirror(self.folder)[0]
            write_mirror(self.folder, mirror_of(db, before, total, total + sealed.micro_epsilon))
            ledger.charge(db, sealed)
            memos.charge(db, sealed)
            spool.insert(db, sealed)
        return None

    def _refusal(self, db: sqlite3.Connection, sealed: SealedReport, host_limits: Limits) -> RefusalReason | None:
        """Why this charge is not to be made, or None."""
        compare(db, readable_mirror(self.folder)[0])
        if forgetting.is_over(db, sealed.life):
            return RefusalReason.OPTED_OUT
        if ledger.damage(db) is not None or (sealed.of_values and memos.is_closed(db)):
            return RefusalReason.LEDGER_DAMAGED
        if len(sealed.report) > spool.MAX_BYTES:
            return RefusalReason.TOO_LARGE
        contradiction = ledger.remember_plan(db, sealed)
        if contradiction is not None:
            return contradiction
        plan_limits = ledger.plan_limits(db, sealed.plan_name, sealed.plan_limits)
        try:
            ledger.check(
                db,
                sealed.plan_name,
                sealed.micro_epsilon,
                plan_limits,
                host_limits,
                sealed.sealed_at,
                sealed.micro_rho,
            )
        except BudgetExceededError as error:
            return error.reason
        return None

    def would_refuse(self, sealed: SealedReport, host_limits: Limits) -> RefusalReason | None:
        """What `seal` would answer to this report, with nothing changed."""
        refused = None
        with suppress(_RollBackError), self._transaction() as db:
            if ledger.earlier_seal(db, sealed) is not None:
                refused = RefusalReason.PERIOD_SEALED
            else:
                refused = self._refusal(db, memos.priced(db, sealed), host_limits)
            raise _RollBackError
        return refused

    def is_sealed(self, plan_name: str, period_start: int) -> bool:
        """Has any process sealed this period of this plan's name?"""
        with self._transaction() as db:
            row = db.execute(
                "SELECT 1 FROM ledger WHERE plan_name = ? AND period_start = ?", (plan_name, period_start)
            ).fetchone()
            return row is not None

    def plan_limits(self, plan_name: str, stated: Limits) -> Limits:
        """The strictest of what any version of this plan's name allowed, `stated` among them."""
        with self._transaction() as db:
            return ledger.plan_limits(db, plan_name, stated)

    def spent(self, plan_name: str, now: float) -> tuple[ledger.Spent, ledger.Spent]:
        """Spent by this plan's name, and by all names of this folder."""
        with self._transaction() as db:
            return ledger.spent(db, now, plan_name), ledger.spent(db, now)

    def damage(self) -> str | None:
        """Why the budget counts as used up, or None for a sound ledger."""
        with self._transaction() as db:
            found = ledger.damage(db)
            return None if found is None else found[0]

    def note_collector_total(self, micro_epsilon: int, seed: bytes | None = None) -> bool:
        """What the collector has booked for this identity. False: more than has left here, so ours was rolled back.

        seed: whose total it is; None: today's. Of one that the user has left meanwhile it says nothing about today's.
        What cannot be in its total (`ledger`, *Lives*), counted as if it were, would hide as much that a restored
        ledger has forgotten. One that is unsent here and in that total (a restored folder) counts twice: too high,
        never too low.
        """
        with self._transaction() as db:
            elsewhere, of_today = ledger.elsewhere_micro(db), seed in (None, seed_of(db))
            if of_today and min(micro_epsilon, ledger.MAX_MICRO_EPSILON) > ledger.total_micro(db) - elsewhere:
                why = "the collector has booked more than the ledger holds"
                ledger.mark_damaged(db, why, micro_epsilon + elsewhere)
            return ledger.damage(db) is None

    def reset_ledger(self, now: float) -> int:
        """The host's explicit word that a damaged ledger may be used again. Returns the lifetime total, micro."""
        with self._transaction() as db:
            total = ledger.reset(db, now)
        self._settle_mirror()
        return total

    # --- open periods, sealed with the host's key -----------------------------------------------------

    def keep_open_period(
        self, plan_name: str, plan_hash: bytes, period_start: int, sealed: bytes, now: float, life: int | None
    ) -> bool:
        """Keep an open period's ciphertext for the next process. False: the user has opted out meanwhile."""
        with self._transaction() as db:
            if forgetting.is_over(db, life):
                return False
            db.execute(
                "INSERT OR REPLACE INTO open_periods VALUES (?, ?, ?, ?, ?)",
                (plan_name, period_start, plan_hash, sealed, now),
            )
        return True

    def take_open_periods(self, plan_name: str) -> list[tuple[bytes, int, bytes]]:
        """(plan hash, period start, ciphertext) of every kept period, oldest first; they are here no more."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT plan_hash, period_start, sealed FROM open_periods WHERE plan_name = ? ORDER BY period_start",
                (plan_name,),
            ).fetchall()
            if rows:
                db.execute("DELETE FROM open_periods WHERE plan_name = ?", (plan_name,))
            return [(row[0], row[1], row[2]) for row in rows]

    # --- counters and log -----------------------------------------------------------------------------

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Keep what a process has counted in memory."""
        with self._transaction() as db:
            for reason, amount in counts.items():
                spool.count(db, reason, amount)

    def counters(self) -> dict[str, int]:
        """Everything counted so far, by reason."""
        with self._transaction() as db:
            return {row["reason"]: row["count"] for row in db.execute("SELECT * FROM counters ORDER BY reason")}

    def history(self) -> list[LogEntry]:
        """What became of every report, oldest first."""
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM log ORDER BY finished_at, period_start, plan_name").fetchall()
        flags = ("resent", "left_device")
        return [LogEntry(**{**dict(row), **{name: bool(row[name]) for name in flags}}) for row in rows]

    def export_ledger(self, now: float) -> dict[str, Any]:
        """The ledger as a document, JSON-ready. Nothing is changed."""
        from client_sdk.device import ledger_export

        with self._transaction() as db:
            return ledger_export.exported(db, now).to_json()
