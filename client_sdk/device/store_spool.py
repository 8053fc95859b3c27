"""The store's half that holds the spool: who works on it, what is due, what left and what became of it.

Rules of this file: one transaction a call; that a report may have left is on the disk before its first byte leaves;
nothing that is dropped is refunded. What it does not do: decide anything about a report (`delivery` does).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client_sdk.device import ledger, spool
from client_sdk.device.records import WaitingReport
from client_sdk.device.store_base import StoreBase
from client_sdk.errors import RefusalReason

LEASE_S = 1800.0
"""How long one process may work on the spool before others take over, in seconds."""

COUNTED_DIRECT = "counted_direct"
"""Counted beside `counted` for a report that was counted unmasked."""


@dataclass(frozen=True, slots=True)
class DirectBooking:
    """One offered report. outcome: `counted`, `already_counted`, or why it waits on (then until `not_before`).

    round_id, contributors: of the sum that holds it.
    """

    key: tuple[str, int]
    outcome: str
    round_id: str | None = None
    contributors: int | None = None
    not_before: float | None = None


class SpoolStore(StoreBase):
    """Perturbed reports on their way out."""

    def waiting(self) -> int:
        """Reports in the spool."""
        with self._transaction() as db:
            return spool.waiting(db)

    def waiting_reports(self) -> list[WaitingReport]:
        """The spool as the host may read it, oldest period first."""
        with self._transaction() as db:
            return spool.listing(db)

    def give_up(self, key: tuple[str, int], reason: RefusalReason, now: float) -> None:
        """Drop one report, counted; nothing is refunded."""
        with self._transaction() as db:
            spool.give_up(db, key, reason, now)

    def next_due(self) -> float | None:
        """When the next report wants to leave; None where none waits or the ledger is not to be believed."""
        with self._transaction() as db:
            return None if ledger.damage(db) is not None else spool.next_due(db)

    def begin_run(
        self, lease: spool.Lease, now: float, *, everything: bool, alive: spool.Alive
    ) -> list[spool.SpoolEntry] | None:
        """Expire what is too old, take the lease, return what is due. None: another process is at it."""
        with self._transaction() as db:
            spool.expire(db, now)
            if ledger.damage(db) is not None:
                return []
            entries = spool.due(db, now, everything=everything)
            if entries and not spool.take_lease(db, lease, now, LEASE_S, alive):
                return None
            return entries

    def end_run(self, owner: bytes) -> None:
        """Give the lease back."""
        with self._transaction() as db:
            spool.drop_lease(db, owner)

    def hand_over(self, key: tuple[str, int], *, resent: bool) -> bool:
        """Commit that the report may have left, before its first byte does. False: it waits no more, send nothing."""
        with self._transaction() as db:
            return spool.hand_over(db, key, resent=resent)

    def hand_over_direct(self, entries: Sequence[spool.SpoolEntry]) -> list[bool]:
        """The same for reports that are about to leave unmasked, all in one transaction."""
        with self._transaction() as db:
            return [spool.hand_over(db, entry.key, resent=entry.resent, direct=True) for entry in entries]

    def confirm(self, key: tuple[str, int], held: spool.ConfirmedSum) -> None:
        """Remember the sum whose status is about to be confirmed."""
        with self._transaction() as db:
            spool.confirm(db, key, held)

    def finish(
        self,
        key: tuple[str, int],
        outcome: str,
        now: float,
        *,
        round_id: str | None = None,
        contributors: int | None = None,
        roster_size: int | None = None,
        resent_contributors: int | None = None,
    ) -> None:
        """The report is done with: out of the spool, into the log, counted under `outcome`."""
        with self._transaction() as db:
            if spool.finish(
                db,
                key,
                outcome,
                now,
                round_id=round_id,
                contributors=contributors,
                roster_size=roster_size,
                resent_contributors=resent_contributors,
            ):
                spool.count(db, outcome)

    def book_direct(self, booked: Sequence[DirectBooking], now: float) -> None:
        """What became of reports that were offered unmasked, all in one transaction."""
        with self._transaction() as db:
            for one in booked:
                _book_direct(db, one, now)

    def postpone(
        self,
        times: Mapping[tuple[str, int], float],
        reason: str,
        *,
        failed: bool,
        everything: bool = False,
        cause: str | None = None,
    ) -> None:
        """Try these reports again no earlier than at their times, each counted under `reason` (and `cause`).

        everything: the collector itself is out of reach, so nothing leaves before the first one's time (a later one of
        several draws would bring many devices back together).
        """
        with self._transaction() as db:
            for key, not_before in times.items():
                spool.postpone(db, key, not_before, failed=failed)
            if everything:
                spool.postpone_all(db, next(iter(times.values())))
            for counted in (reason, cause):
                if counted is not None:
                    spool.count(db, counted, len(times))

    def withdraw(self, reason: RefusalReason, now: float) -> None:
        """Drop everything that waits, counted, and open periods that were kept. Nothing is refunded."""
        with self._transaction() as db:
            spool.give_up_all(db, reason, now)
            db.execute("DELETE FROM open_periods")


def _book_direct(db: sqlite3.Connection, one: DirectBooking, now: float) -> None:
    if one.not_before is not None:
        spool.postpone(db, one.key, one.not_before, failed=True)
        spool.count(db, one.outcome)
        return
    direct = one.outcome == "counted"
    key, round_id, contributors = one.key, one.round_id, one.contributors
    if spool.finish(db, key, one.outcome, now, round_id=round_id, contributors=contributors, direct=direct):
        spool.count(db, one.outcome)
        if direct:
            spool.count(db, COUNTED_DIRECT)
