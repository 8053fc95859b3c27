"""The spool's rows: perturbed reports on their way out, sealed -> handed over -> counted | given up.

Rules of this file: every function works inside the caller's write transaction; whatever leaves the spool
leaves a row in the log (digest, epsilon, what became of it) and a count by reason; nothing leaves it because
somebody said "accepted". One process at a time works on a folder's spool: the lease says which.
What it does not do: it opens nothing, commits nothing and never refunds a charge.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from client_sdk.device.database import meta, set_meta
from client_sdk.device.records import SealedReport, WaitingReport
from client_sdk.errors import RefusalReason
from client_sdk.report import report_digest

Alive = Callable[[int], bool]
"""Does a process of this id live on this machine?"""

MAX_REPORTS = 100
MAX_BYTES = 32 * 1024 * 1024

_LEASE = "lease"


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """One waiting report. `report` is the same on every attempt; `resent`: it may have left already."""

    plan_name: str
    period_start: int
    plan_hash: bytes
    plan_text: str = field(repr=False)
    report: bytes = field(repr=False)
    attempts: int
    resent: bool
    min_cohort: int

    @property
    def key(self) -> tuple[str, int]:
        """What names it over all plan versions."""
        return self.plan_name, self.period_start


@dataclass(frozen=True, slots=True)
class ConfirmedSum:
    """A sum as a round's status proved it to this device, which has signed that; maybe it was stored."""

    round_id: str
    contributors: int
    roster_size: int
    resent_contributors: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may work on this folder's spool, and until when."""

    owner: bytes
    pid: int
    node: str
    until: float


def count(db: sqlite3.Connection, reason: str, amount: int = 1) -> None:
    """Add to a counter that outlives the process."""
    db.execute(
        "INSERT INTO counters (reason, count) VALUES (?, ?) "
        "ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count",
        (reason, amount),
    )


def insert(db: sqlite3.Connection, sealed: SealedReport) -> None:
    """A report begins to wait, with the plan that it was made under; the oldest beyond the caps are given up."""
    db.execute(
        "INSERT OR IGNORE INTO plans VALUES (?, ?, ?, NULL, NULL)",
        (sealed.plan_hash, sealed.plan_name, sealed.plan_text),
    )
    db.execute(
        "INSERT INTO spool (plan_name, period_start, plan_hash, report, micro_epsilon, sealed_at, expires_at, "
        "not_before, min_cohort) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            sealed.plan_name,
            sealed.period_start,
            sealed.plan_hash,
            sealed.report,
            sealed.micro_epsilon,
            sealed.sealed_at,
            sealed.expires_at,
            sealed.not_before,
            sealed.min_cohort,
        ),
    )
    count(db, "sealed")
    _keep_within_caps(db, sealed.sealed_at)


def waiting(db: sqlite3.Connection) -> int:
    """Reports in the spool."""
    return int(db.execute("SELECT count(*) FROM spool").fetchone()[0])


def next_due(db: sqlite3.Connection) -> float | None:
    """When the next report wants to leave or expires; None where none waits."""
    row = db.execute("SELECT min(min(not_before, expires_at)) FROM spool").fetchone()
    return None if row[0] is None else float(row[0])


def due(db: sqlite3.Connection, now: float, *, everything: bool) -> list[SpoolEntry]:
    """Reports that may leave now, oldest period first; with `everything`, all that wait."""
    rows = db.execute(
        "SELECT s.*, p.text FROM spool s JOIN plans p ON p.hash = s.plan_hash "
        "WHERE :everything OR s.not_before <= :now ORDER BY s.period_start, s.plan_name",
        {"everything": everything, "now": now},
    )
    return [
        SpoolEntry(
            row["plan_name"],
            row["period_start"],
            row["plan_hash"],
            row["text"],
            row["report"],
            row["attempts"],
            row["hand_overs"] > 0,
            row["min_cohort"],
        )
        for row in rows
    ]


def listing(db: sqlite3.Connection) -> list[WaitingReport]:
    """Everything that waits, oldest period first, for the host to read."""
    rows = db.execute(
        "SELECT plan_name, period_start, plan_hash, micro_epsilon, report, hand_overs > 0 AS resent, not_before, "
        "expires_at FROM spool ORDER BY period_start, plan_name"
    )
    return [WaitingReport(**{**dict(row), "resent": bool(row["resent"])}) for row in rows]


def expire(db: sqlite3.Connection, now: float) -> int:
    """Give up what is older than its plan's max_delay. Stays charged."""
    return _give_up_where(db, RefusalReason.EXPIRED, now, "expires_at <= ?", (now,))


def give_up(db: sqlite3.Connection, key: tuple[str, int], reason: RefusalReason, now: float) -> None:
    """Give up one report. Stays charged."""
    _give_up_where(db, reason, now, "plan_name = ? AND period_start = ?", key)


def give_up_all(db: sqlite3.Connection, reason: RefusalReason, now: float) -> int:
    """Give up everything that waits. Stays charged."""
    return _give_up_where(db, reason, now, "1", ())


def _keep_within_caps(db: sqlite3.Connection, now: float) -> None:
    """Give up the oldest reports beyond the spool's caps of count and bytes."""
    rows = db.execute(
        "SELECT plan_name, period_start, length(report) AS size FROM spool ORDER BY period_start DESC, sealed_at DESC"
    ).fetchall()
    reports = size = 0
    for row in rows:
        reports, size = reports + 1, size + row["size"]
        if reports > MAX_REPORTS or size > MAX_BYTES:
            give_up(db, (row["plan_name"], row["period_start"]), RefusalReason.SPOOL_FULL, now)


def _give_up_where(
    db: sqlite3.Connection, reason: RefusalReason, now: float, where: str, arguments: tuple[object, ...]
) -> int:
    rows = db.execute(f"SELECT plan_name, period_start FROM spool WHERE {where}", arguments).fetchall()  # noqa: S608 - constants of this file
    for row in rows:
        finish(db, (row["plan_name"], row["period_start"]), reason.value, now)
        count(db, reason.value)
    return len(rows)


def hand_over(db: sqlite3.Connection, key: tuple[str, int], *, resent: bool, direct: bool = False) -> bool:
    """From now on the report may have left the device: every later attempt is `resent`.

    resent: what this attempt says. direct: it leaves unmasked. False: the report waits no more, or it has left
    meanwhile although the attempt calls it fresh (two attempts overlapped); then this one must not send it.
    """
    changed = db.execute(
        "UPDATE spool SET hand_overs = hand_overs + 1, direct_hand_overs = direct_hand_overs + ? "
        "WHERE plan_name = ? AND period_start = ? AND (? OR hand_overs = 0)",
        (direct, *key, resent),
    )
    return changed.rowcount == 1


def confirm(db: sqlite3.Connection, key: tuple[str, int], held: ConfirmedSum) -> None:
    """Remember the sum that this device is about to confirm: its sizes are known then, even if its receipt is lost."""
    db.execute(
        "UPDATE spool SET confirmed_round = ?, confirmed_contributors = ?, confirmed_roster = ?, confirmed_resent = ? "
        "WHERE plan_name = ? AND period_start = ?",
        (held.round_id, held.contributors, held.roster_size, held.resent_contributors, *key),
    )


def postpone(db: sqlite3.Connection, key: tuple[str, int], not_before: float, *, failed: bool) -> None:
    """Try this report again no earlier than `not_before`; only a failure lengthens the next backoff."""
    db.execute(
        "UPDATE spool SET not_before = ?, attempts = CASE WHEN ? THEN attempts + 1 ELSE 0 END "
        "WHERE plan_name = ? AND period_start = ?",
        (not_before, failed, *key),
    )


def postpone_all(db: sqlite3.Connection, not_before: float) -> None:
    """The collector cannot be reached: nothing leaves before `not_before`."""
    db.execute("UPDATE spool SET not_before = max(not_before, ?)", (not_before,))


def finish(
    db: sqlite3.Connection,
    key: tuple[str, int],
    outcome: str,
    now: float,
    *,
    round_id: str | None = None,
    contributors: int | None = None,
    roster_size: int | None = None,
    resent_contributors: int | None = None,
    direct: bool = False,
) -> bool:
    """Move a report from the spool to the log, where only its digest remains. False: it was not there.

    direct: this attempt counted it, unmasked. Of one that a sum held already, that sum's sizes are those that this
    device has confirmed, if it is that very sum. One that ever left unmasked is taken to be counted so.
    """
    row = db.execute("SELECT * FROM spool WHERE plan_name = ? AND period_start = ?", key).fetchone()
    if row is None:
        return False
    was_confirmed = round_id is not None and (round_id, contributors) == (
        row["confirmed_round"],
        row["confirmed_contributors"],
    )
    if was_confirmed and roster_size is None:
        roster_size, resent_contributors = row["confirmed_roster"], row["confirmed_resent"]
    direct = direct or row["direct_hand_overs"] > 0
    db.execute(
        "INSERT OR REPLACE INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            row["plan_hash"],
            report_digest(row["report"]),
            row["micro_epsilon"],
            outcome,
            row["hand_overs"] > 1,
            round_id,
            contributors,
            roster_size,
            now,
            resent_contributors,
            row["hand_overs"] > 0,
            "direct" if direct else "interactive",
        ),
    )
    db.execute("DELETE FROM spool WHERE plan_name = ? AND period_start = ?", key)
    return True


def take_lease(db: sqlite3.Connection, wanted: Lease, now: float, longest_s: float, alive: Alive) -> bool:
    """Become the one that works on the spool, unless another living process is at it.

    A lease ends by itself; one that reaches much further than any lease can was written before the clock was set
    back (by up to a lease's length it still holds).
    """
    found = meta(db, _LEASE)
    if found is not None:
        held = _parse_lease(str(found))
        in_time = now < held.until <= now + 2 * longest_s
        lives = held.node != wanted.node or alive(held.pid)
        if held.owner != wanted.owner and in_time and lives:
            return False
    set_meta(db, _LEASE, f"{wanted.owner.hex()} {wanted.pid} {wanted.until!r} {wanted.node}")
    return True


def drop_lease(db: sqlite3.Connection, owner: bytes) -> None:
    """Give the spool back, if it is this owner's."""
    db.execute("DELETE FROM meta WHERE key = ? AND value LIKE ?", (_LEASE, owner.hex() + " %"))


def _parse_lease(text: str) -> Lease:
    owner, pid, until, node = text.split(" ", 3)
    return Lease(bytes.fromhex(owner), int(pid), node, float(until))
