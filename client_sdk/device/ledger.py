"""The ledger's rows: what this identity has spent, and whether one more report may be made.

Rules of this file: every function works inside the caller's write transaction, so that check and charge are
one step over all processes; the plan's limits count the plan's name over all versions, the host's own limits
count every name in the folder; spending known only from elsewhere (`carried`) counts for both. A charge is
never refunded. What it does not do: it opens nothing and commits nothing.

Lives. Who opts out ends an identity. The device's limits go on over all identities; the next one's total at the
collector begins at nothing. So of everything charged two amounts cannot be in the total that a collector holds of
today's identity (`elsewhere_micro` is both together):
  unsent          what reports cost that never left, of any life: rows that are here say so;
  earlier_lives   what earlier identities were charged, less what was unsent when the last of them ended.
A third one is kept for the mirror alone, so that a ledger which has to begin without these rows loses nothing:
  earlier_unsent  what was unsent when the last of them ended.
The mirror has the two earlier ones as one sum (`earlier_micro`). A ledger made of it has no rows of anything unsent, so
there all of that sum is `earlier_lives` (`remember_earlier`). An older copy of a ledger never makes the mirror's less.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from client_sdk.accounting.budget import Limits, charge_time, check_charge, check_rho, spent_in_window
from client_sdk.device import memos
from client_sdk.device.database import meta, set_meta
from client_sdk.device.records import SealedReport
from client_sdk.errors import RefusalReason

MAX_MICRO_EPSILON = 2**62
"""A total from elsewhere is cut to this: still more than any budget, and two of them fit SQLite's integers."""

_DAMAGE, _CLAIMED = "damage", "claimed_micro_epsilon"
_EARLIER_LIVES, _EARLIER_UNSENT = "earlier_lives_micro", "earlier_unsent_micro"


@dataclass(frozen=True, slots=True)
class Spent:
    """Micro-epsilon spent in the rolling 24 hours and ever, and zero-concentrated loss in millionths."""

    rolling_24h_micro: int
    lifetime_micro: int
    rolling_24h_micro_rho: int = 0
    lifetime_micro_rho: int = 0


def spent(db: sqlite3.Connection, now: float, plan_name: str | None = None) -> Spent:
    """By one plan's name, or by all of them. A clock set back renews nothing.

    Of what is known only in epsilon, rho is at most that: of pure mechanisms, and of Gaussians at any delta of a plan.
    """
    rows = [
        (row["charged_at"], row["micro_epsilon"], row["micro_rho"])
        for row in db.execute(
            "SELECT charged_at, micro_epsilon, coalesce(micro_rho, micro_epsilon) AS micro_rho FROM ledger "
            "WHERE :name IS NULL OR plan_name = :name "
            "UNION ALL SELECT noted_at, micro_epsilon, micro_epsilon FROM carried",
            {"name": plan_name},
        )
    ]
    window_end, missing = charge_time(now, last_charge(db)), missing_micro(db)
    rows.append((window_end, missing, missing))
    return Spent(
        spent_in_window([(at, micro) for at, micro, _ in rows], window_end),
        sum(micro for _, micro, _ in rows),
        spent_in_window([(at, rho) for at, _, rho in rows], window_end),
        sum(rho for _, _, rho in rows),
    )


def last_charge(db: sqlite3.Connection) -> float | None:
    """When the newest charge of any plan was booked."""
    row = db.execute(
        "SELECT max(at) FROM (SELECT max(charged_at) AS at FROM ledger UNION ALL SELECT max(noted_at) FROM carried)"
    ).fetchone()
    return None if row[0] is None else float(row[0])


def total_micro(db: sqlite3.Connection) -> int:
    """Everything ever charged on this device, to this identity and to those before it."""
    row = db.execute(
        "SELECT (SELECT coalesce(sum(micro_epsilon), 0) FROM ledger) "
        "+ (SELECT coalesce(sum(micro_epsilon), 0) FROM carried)"
    ).fetchone()
    return int(row[0])


def unsent_micro(db: sqlite3.Connection) -> int:
    """Charged for reports that have not left this device: those that wait, and those given up before they left."""
    row = db.execute(
        "SELECT (SELECT coalesce(sum(micro_epsilon), 0) FROM spool WHERE hand_overs = 0) "
        "+ (SELECT coalesce(sum(micro_epsilon), 0) FROM log WHERE left_device = 0)"
    ).fetchone()
    return int(row[0]) - memos.unsent_correction(db)


def elsewhere_micro(db: sqlite3.Connection) -> int:
    """Charged, and no part of what a collector can have booked for this identity."""
    return unsent_micro(db) + int(meta(db, _EARLIER_LIVES) or 0)


def earlier_micro(db: sqlite3.Connection) -> int:
    """Charged to the identities before this one, whether it left the device or not."""
    return int(meta(db, _EARLIER_LIVES) or 0) + int(meta(db, _EARLIER_UNSENT) or 0)


def remember_earlier(db: sqlite3.Connection, micro_epsilon: int) -> None:
    """What the mirror of a lost ledger says of them."""
    set_meta(db, _EARLIER_LIVES, micro_epsilon)


def end_life(db: sqlite3.Connection) -> None:
    """All that is known becomes earlier ones', of a ledger not to be believed too: `reset` will book it."""
    unsent = unsent_micro(db)
    set_meta(db, _EARLIER_LIVES, known_micro(db) - unsent)
    set_meta(db, _EARLIER_UNSENT, unsent)


def check(
    db: sqlite3.Connection,
    plan_name: str,
    cost_micro: int,
    plan_limits: Limits,
    host_limits: Limits,
    now: float,
    cost_micro_rho: int | None = None,
) -> None:
    """Pass silently, or BudgetExceededError naming the first limit that the charge would break."""
    rho = cost_micro if cost_micro_rho is None else cost_micro_rho
    for limits, by in ((plan_limits, spent(db, now, plan_name)), (host_limits, spent(db, now))):
        check_charge(limits, by.rolling_24h_micro, by.lifetime_micro, cost_micro)
        check_rho(limits, by.rolling_24h_micro_rho, by.lifetime_micro_rho, rho)


def plan_limits(db: sqlite3.Connection, plan_name: str, stated: Limits) -> Limits:
    """What all versions of this plan's name allow: a version may lower a device's limits, never raise them."""
    row = db.execute(
        "SELECT rolling_24h, lifetime, rolling_24h_rho, lifetime_rho FROM plan_limits WHERE plan_name = ?", (plan_name,)
    ).fetchone()
    return stated if row is None else stated.lowered_to(Limits(**dict(row)))


def remember_plan(db: sqlite3.Connection, sealed: SealedReport) -> RefusalReason | None:
    """Keep the strictest limits seen under this plan's name. A reason: it contradicts what was used before."""
    row = db.execute("SELECT period_s FROM plan_limits WHERE plan_name = ?", (sealed.plan_name,)).fetchone()
    if row is not None and row["period_s"] != sealed.period_s:
        return RefusalReason.PLAN_PERIOD_CHANGED
    if not remember_version(db, sealed.plan_name, sealed.plan_version, sealed.plan_hash):
        return RefusalReason.PLAN_CHANGED_WITHOUT_VERSION
    limits = plan_limits(db, sealed.plan_name, sealed.plan_limits)
    db.execute(
        "INSERT OR REPLACE INTO plan_limits (plan_name, period_s, rolling_24h, lifetime, rolling_24h_rho, "
        "lifetime_rho) VALUES (?, ?, ?, ?, ?, ?)",
        (
            sealed.plan_name,
            sealed.period_s,
            limits.rolling_24h,
            limits.lifetime,
            limits.rolling_24h_rho,
            limits.lifetime_rho,
        ),
    )
    return None


def remember_version(db: sqlite3.Connection, plan_name: str, version: int, plan_hash: bytes) -> bool:
    """From now on this number is this plan's. False: it is another one's."""
    if not is_same_version(db, plan_name, version, plan_hash):
        return False
    db.execute("INSERT OR IGNORE INTO plan_versions VALUES (?, ?, ?)", (plan_name, version, plan_hash))
    return True


def is_same_version(db: sqlite3.Connection, plan_name: str, version: int, plan_hash: bytes) -> bool:
    """Is this what stood under the number before, if anything did?"""
    row = db.execute(
        "SELECT plan_hash FROM plan_versions WHERE plan_name = ? AND version = ?", (plan_name, version)
    ).fetchone()
    return row is None or row["plan_hash"] == plan_hash


def damage(db: sqlite3.Connection) -> tuple[str, int] | None:
    """Why the ledger cannot be believed, and the largest total known; None for a sound one."""
    why = meta(db, _DAMAGE)
    return None if why is None else (str(why), int(meta(db, _CLAIMED)))


def missing_micro(db: sqlite3.Connection) -> int:
    """What a damaged ledger is known to lack: spent, although no row says when."""
    found = damage(db)
    return 0 if found is None else max(0, found[1] - total_micro(db))


def known_micro(db: sqlite3.Connection) -> int:
    """The largest total known: what `reset` books, of a sound ledger what it holds."""
    return total_micro(db) + missing_micro(db)


def mark_damaged(db: sqlite3.Connection, why: str, claimed_micro: int) -> None:
    """From here the budget counts as used up, until `reset`. The largest claim and the first reason stay.

    What waits may have left the device in the life that this ledger does not remember: it is `resent` then; reports of
    memoised metrics are given up, as of the last charge.
    """
    before = damage(db)
    if before is not None:
        why, claimed_micro = before[0], max(before[1], claimed_micro)
    set_meta(db, _DAMAGE, why)
    set_meta(db, _CLAIMED, min(claimed_micro, MAX_MICRO_EPSILON))
    db.execute("UPDATE spool SET hand_overs = max(hand_overs, 1)")
    memos.close(db, last_charge(db) or 0.0)


def reset(db: sqlite3.Connection, now: float) -> int:
    """Believe the ledger again, with the largest total known booked as spent now. Returns that total.

    When the missing charges were made nobody knows, so they fill the rolling window from now on.
    """
    found = damage(db)
    if found is None:
        return total_micro(db)
    missing = missing_micro(db)
    if missing > 0:
        db.execute(
            "INSERT INTO carried (micro_epsilon, noted_at) VALUES (?, ?)",
            (missing, charge_time(now, last_charge(db))),
        )
    db.execute("DELETE FROM meta WHERE key IN (?, ?)", (_DAMAGE, _CLAIMED))
    return total_micro(db)


def earlier_seal(db: sqlite3.Connection, sealed: SealedReport) -> sqlite3.Row | None:
    """The row of whoever sealed this plan's period before, over all processes and versions."""
    row: sqlite3.Row | None = db.execute(
        "SELECT seal_id, sealed_by, charged_at FROM ledger WHERE plan_name = ? AND period_start = ?",
        (sealed.plan_name, sealed.period_start),
    ).fetchone()
    return row


def why_not_again(earlier: sqlite3.Row, sealed: SealedReport) -> RefusalReason | None:
    """None: it is this very sealing, whose commit went through although it looked otherwise."""
    if earlier["seal_id"] == sealed.seal_id:
        return None
    if earlier["sealed_by"] != sealed.sealed_by and earlier["charged_at"] >= sealed.opened_at:
        return RefusalReason.OTHER_PROCESS
    return RefusalReason.PERIOD_SEALED


def charge(db: sqlite3.Connection, sealed: SealedReport) -> None:
    """Book one report. The primary key refuses a second one for the same plan name and period."""
    db.execute(
        "INSERT INTO ledger (plan_name, period_start, plan_hash, micro_epsilon, charged_at, seal_id, sealed_by, "
        "micro_rho) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            sealed.plan_name,
            sealed.period_start,
            sealed.plan_hash,
            sealed.micro_epsilon,
            charge_time(sealed.sealed_at, last_charge(db)),
            sealed.seal_id,
            sealed.sealed_by,
            sealed.micro_rho,
        ),
    )
