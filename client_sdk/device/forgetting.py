"""The rows of opting out: that the user has, what is still to be deleted elsewhere, and an identity that is no more.

Rules of this file: every function works inside the caller's write transaction, so that the device is never half out;
the deletion request is signed in that transaction and the identity's seed is gone with it (deleted rows are written
over); the ledger stays, for opting in again is no refund and no period is sealed twice.
What it does not do: it sends nothing (`deletion`), and cannot reach copies of the folder that somebody made before.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from dataclasses import dataclass, field

from client_sdk.device import ledger, memos, spool
from client_sdk.device.database import meta, seed_of, set_meta
from client_sdk.device.files import SEED_BYTES
from client_sdk.errors import RefusalReason
from client_sdk.wire.messages import DeleteRequest


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """A deletion request that no collector has acknowledged yet. attempts: that failed, in a row."""

    request: DeleteRequest = field(repr=False)
    attempts: int


def is_opted_out(db: sqlite3.Connection) -> bool:
    """Did the user opt out, and not in again?"""
    return meta(db, "opted_out") is not None


def life(db: sqlite3.Connection) -> int:
    """How often the user has opted out. Readings of one life go into no report of the next, in any process."""
    return int(meta(db, "opt_outs") or 0)


def is_over(db: sqlite3.Connection, recorded_in: int | None) -> bool:
    """Did the life end in which readings were recorded? None: nobody could say which one that was."""
    return is_opted_out(db) or recorded_in not in (None, life(db))


def opt_out(db: sqlite3.Connection, now: float) -> None:
    """Drop what waits, sign the deletion request, draw the next identity. Again: only drop."""
    spool.give_up_all(db, RefusalReason.OPTED_OUT, now)
    db.execute("DELETE FROM open_periods")
    if is_opted_out(db):
        return
    _sign_deletion(db, now)
    memos.forget(db)
    remember_opt_out(db)
    set_meta(db, "left_seed", left_mark(seed_of(db)))
    db.execute("UPDATE identity SET seed = ?, certificate = NULL, enrolled_at = NULL", (os.urandom(SEED_BYTES),))


def remember_opt_out(db: sqlite3.Connection) -> None:
    """Only that it happened: where the mirror says so and the rest is lost."""
    ledger.end_life(db)
    set_meta(db, "opt_outs", life(db) + 1)
    set_meta(db, "opted_out", 1)


def _sign_deletion(db: sqlite3.Connection, now: float) -> None:
    """Without a certificate too: the database may be new, made of the mirror, and the collector knows the identity.

    Only where nothing was ever certified or charged can no collector have heard of it: a charge comes first, and is in
    the mirror before it is made.
    """
    from client_sdk.identity import IdentityKey, deletion_message

    row = db.execute("SELECT certificate, enrolled_at FROM identity").fetchone()
    never_charged = ledger.total_micro(db) == 0 and ledger.damage(db) is None
    if row["certificate"] is None and row["enrolled_at"] is None and never_charged:
        return
    identity, requested_at = IdentityKey(seed_of(db)), max(0, int(now))
    signature = identity.sign(deletion_message(identity.public_key, requested_at))
    db.execute(
        "INSERT OR IGNORE INTO deletions VALUES (?, ?, ?, ?, ?, 0)",
        (identity.public_key, row["certificate"] or b"", requested_at, signature, now),
    )


def opt_in(db: sqlite3.Connection) -> None:
    """Record again, under the identity that was drawn when the user opted out."""
    db.execute("DELETE FROM meta WHERE key = 'opted_out'")


def is_left(db: sqlite3.Connection, seed: bytes) -> bool:
    """Is `seed` that of the identity before this one? A mirror may still hold it, if the process died in between."""
    return bool(meta(db, "left_seed") == left_mark(seed))


def left_mark(seed: bytes) -> str:
    """A seed is 256 random bits, so a plain hash of it tells nothing about it."""
    return hashlib.sha256(b"left" + seed).hexdigest()


def pending(db: sqlite3.Connection, now: float, *, everything: bool) -> list[PendingDeletion]:
    """Requests to send now; with `everything`, all."""
    rows = db.execute(
        "SELECT * FROM deletions WHERE :everything OR not_before <= :now ORDER BY requested_at",
        {"everything": everything, "now": now},
    )
    return [
        PendingDeletion(
            DeleteRequest(row["identity_key"], row["certificate"], row["requested_at"], row["signature"]),
            row["attempts"],
        )
        for row in rows
    ]


def next_due(db: sqlite3.Connection) -> float | None:
    """When the next request wants to leave; None where none waits."""
    found = db.execute("SELECT min(not_before) FROM deletions").fetchone()[0]
    return None if found is None else float(found)


def acknowledged(db: sqlite3.Connection, identity_key: bytes) -> None:
    """The collector has done it: nothing of that identity is left here."""
    if db.execute("DELETE FROM deletions WHERE identity_key = ?", (identity_key,)).rowcount:
        spool.count(db, "deletion_acknowledged")


def postpone(db: sqlite3.Connection, identity_key: bytes, not_before: float, reason: str) -> None:
    """Try again later, counted under `reason`."""
    db.execute(
        "UPDATE deletions SET not_before = ?, attempts = attempts + 1 WHERE identity_key = ?",
        (not_before, identity_key),
    )
    spool.count(db, reason)
