"""The device's memory of memoised metrics: which answers it has given, and what the next report of them costs.

Rules of this file:
- every function works inside the caller's write transaction;
- no value and no answer rests on the disk: a permanent answer's coins are made of the identity's seed, the host's
  `seal_key` where it gives one, and the value, so the same identity always gives the same answer, also after its
  database was lost; of a value that was answered for there is a keyed digest, to know it again;
- a value beyond `max_distinct` is given the answer of the value that was last answered for: which one that is follows
  from when values changed, never from the new value; where no value may be answered for at all, an answer drawn from no
  value; a report refused after that has used its value's place;
- no value is answered for once the ledger was damaged or while the key is another one (what was answered for is not
  known then): each report has the same answer, of no value, until the user opts out and in again: another identity,
  other answers, and a price paid anew; reports that wait when damage is found are given up, and none of values begins
  to wait after it: a restored backup may have answered anew before anybody could know;
- the price is counted by reports (`client_sdk.accounting.memo`): how many values there were never shows in it.
What it does not do: hide digests from whoever has the folder and the key: the values of a plan can all be tried. The
key is the seed in the same folder, so without a `seal_key` from the platform's keystore the folder alone tells which
values were answered for.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from client_sdk.accounting.memo import MemoCharge
from client_sdk.device import spool
from client_sdk.device.database import meta, seed_of, set_meta
from client_sdk.errors import RefusalReason
from client_sdk.sampling import uniform_below

if TYPE_CHECKING:
    from client_sdk.device.records import SealedReport
    from client_sdk.mechanisms.memoized import Memoized
    from client_sdk.plan import Plan

DIGEST_BYTES = 16
BEYOND = "memoised_answer_kept"
"""Counts reports whose value was not answered for, beyond `max_distinct` or after damage; on this device only."""

CLOSED = "memos_closed"
_CHECK = "memos_key"


@dataclass(frozen=True, slots=True)
class Answers:
    """Permanent answers by metric. of_values: those of values; else each is drawn from no value."""

    by_metric: Mapping[str, int] = field(repr=False)
    of_values: bool


@dataclass(frozen=True, slots=True)
class MemoView:
    """One memoised metric, as its own device may read it. distinct: values that it ever answered for.

    reports: made of it by this identity. micro_epsilon: what they were charged, from their number alone.
    exact_micro_epsilon: what they can have told by the number of distinct values; the collector never learns it.
    """

    plan_name: str
    metric: str
    reports: int
    distinct: int
    max_distinct: int
    micro_epsilon: int
    exact_micro_epsilon: int


def secret_of(seed: bytes, seal_key: bytes | None) -> bytes:
    """32 bytes, different for every identity and every key of the host."""
    return hmac.new(seed, b"ldp-telemetry memo 1" + (seal_key or b""), hashlib.sha256).digest()


def answers(
    db: sqlite3.Connection, plan: Plan, codes: Mapping[str, int], seal_key: bytes | None, *, keep: bool
) -> Answers:
    """The permanent answer of each memoised metric for the label at this place of its labels.

    keep: remember what was answered for; without it nothing is changed, and the answers are those that would be given.
    """
    secret = secret_of(seed_of(db), seal_key)
    is_open = _is_open(db, secret, keep=keep)
    given = {
        name: _Memory(db, plan, name, secret, is_open=is_open, keep=keep).answer(code) for name, code in codes.items()
    }
    return Answers(given, of_values=is_open)


def _is_open(db: sqlite3.Connection, secret: bytes, *, keep: bool) -> bool:
    """May values be answered for? Not after damage, nor with another key than the answers so far."""
    check = hmac.new(secret, b"key", hashlib.sha256).hexdigest()
    known = meta(db, _CHECK)
    if known is None and keep:
        set_meta(db, _CHECK, check)
    return known in (None, check) and not is_closed(db)


@dataclass(frozen=True, slots=True)
class _Memory:
    """Of one metric."""

    db: sqlite3.Connection
    plan: Plan
    metric: str
    secret: bytes = field(repr=False)
    is_open: bool
    keep: bool

    @property
    def _charge(self) -> MemoCharge:
        return self.plan.memos[self.metric]

    @property
    def _mechanism(self) -> Memoized:
        return cast("Memoized", self.plan.metrics[self.metric].mechanism)

    def answer(self, code: int) -> int:
        own = self._digest(code)
        chosen = self._chosen(own)
        if chosen != own and self.keep:
            spool.count(self.db, BEYOND)
        if chosen is None:
            coins = self._coins(b"of no value")
            return self._mechanism.permanent(uniform_below(self._mechanism.k, coins), coins)
        code = code if chosen == own else next(c for c in range(self._mechanism.k) if self._digest(c) == chosen)
        return self._mechanism.permanent(code, self._coins(chosen))

    def _chosen(self, own: bytes) -> bytes | None:
        """The digest of the value to answer for: `own` where it may be, else the last; None: of no value.

        Closed, none: the last one may be a value that a restored backup has answered for anew, beyond `max_distinct`.
        """
        if not self.is_open:
            return None
        rows = self.db.execute(
            "SELECT digest FROM memo_values WHERE plan_name = ? AND memo = ? ORDER BY place DESC", self._key
        ).fetchall()
        known = [bytes(row[0]) for row in rows]
        if own in known or len(known) < self._charge.max_distinct:
            if self.keep:
                self._remember(own)
            return own
        return known[0] if known else None

    def _remember(self, own: bytes) -> None:
        place = "(SELECT coalesce(max(place), 0) + 1 FROM memo_values WHERE plan_name = :name AND memo = :memo)"
        self.db.execute(
            f"INSERT OR REPLACE INTO memo_values VALUES (:name, :memo, :digest, {place})",  # noqa: S608 - our text
            {"name": self._key[0], "memo": self._key[1], "digest": own},
        )

    @property
    def _key(self) -> tuple[str, bytes]:
        return self.plan.name, self._charge.key

    def _digest(self, code: int) -> bytes:
        label = self._mechanism.labels[code].encode()
        message = hashlib.sha256(self.plan.name.encode()).digest() + self._charge.key + label
        return hmac.new(self.secret, b"value" + message, hashlib.sha256).digest()[:DIGEST_BYTES]

    def _coins(self, what: bytes) -> Callable[[int], bytes]:
        """Bytes that nobody without the secret can tell from random ones, the same whenever they are asked for."""
        name = hashlib.sha256(self.plan.name.encode()).digest()
        return _Coins(hmac.new(self.secret, b"coins" + name + self._charge.key + what, hashlib.sha256).digest())


class _Coins:
    """SHAKE-256 of a secret as an endless stream."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._blocks = 0
        self._left = b""

    def __call__(self, count: int) -> bytes:
        while len(self._left) < count:
            block = self._key + self._blocks.to_bytes(8, "big")
            self._left += hashlib.shake_256(block).digest(max(4096, count))
            self._blocks += 1
        taken, self._left = self._left[:count], self._left[count:]
        return taken


# --- prices -----------------------------------------------------------------------------------------


def priced(db: sqlite3.Connection, sealed: SealedReport) -> SealedReport:
    """The report at its price, which its memoised metrics' earlier reports decide; what `charge` then books."""
    if not sealed.memos:
        return sealed
    return replace(sealed, micro_epsilon=sealed.micro_epsilon + sum(_costs(db, sealed).values()))


def _costs(db: sqlite3.Connection, sealed: SealedReport) -> dict[bytes, int]:
    return {memo.key: memo.of_report(_reports(db, sealed.plan_name, memo.key)) for memo in sealed.memos}


def prices(db: sqlite3.Connection, plan: Plan) -> dict[str, int]:
    """By memoised metric, what its next report costs."""
    return {name: memo.of_report(_reports(db, plan.name, memo.key)) for name, memo in plan.memos.items()}


def _reports(db: sqlite3.Connection, plan_name: str, key: bytes) -> int:
    row = db.execute("SELECT reports FROM memos WHERE plan_name = ? AND memo = ?", (plan_name, key)).fetchone()
    return 0 if row is None else int(row[0])


def charge(db: sqlite3.Connection, sealed: SealedReport) -> None:
    """Count the report: the next one's price follows from that."""
    costs = _costs(db, sealed)
    for memo in sealed.memos:
        given = (memo.first_micro, memo.inf_micro, memo.max_distinct)
        db.execute(
            "INSERT INTO memos VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET reports = reports + 1",
            (sealed.plan_name, memo.key, *given),
        )
        db.execute(
            "INSERT OR REPLACE INTO memo_reports VALUES (?, ?, ?, ?)",
            (sealed.plan_name, sealed.period_start, memo.key, costs[memo.key]),
        )


_UNSENT = """
SELECT m.plan_name, m.memo, m.first_micro, m.inf_micro, m.max_distinct, m.reports, count(*) AS unsent,
    sum(r.micro_epsilon) AS charged
FROM memos m JOIN memo_reports r ON r.plan_name = m.plan_name AND r.memo = m.memo
LEFT JOIN spool s ON s.plan_name = r.plan_name AND s.period_start = r.period_start
LEFT JOIN log g ON g.plan_name = r.plan_name AND g.period_start = r.period_start
WHERE s.hand_overs = 0 OR g.left_device = 0
GROUP BY m.plan_name, m.memo
"""


def unsent_correction(db: sqlite3.Connection) -> int:
    """What unsent reports were charged for memoised metrics beyond what their number takes off the price of all.

    The collector counts the reports that reached it, in the order in which they did: it may book the first report's
    price for the third. So of all that were charged, what the *number* of the others costs can be in its total.
    """
    beyond = 0
    for row in db.execute(_UNSENT):
        memo = MemoCharge(row["memo"], row["first_micro"], row["inf_micro"], row["max_distinct"])
        beyond += row["charged"] - (memo.total(row["reports"]) - memo.total(row["reports"] - row["unsent"]))
    return beyond


# --- the end, and what may be read ------------------------------------------------------------------


def is_closed(db: sqlite3.Connection) -> bool:
    """Was the ledger damaged under this identity?"""
    return meta(db, CLOSED) is not None


def close(db: sqlite3.Connection, now: float) -> None:
    """What was answered for is not known any more: no value is answered for under this identity.

    Reports with answers do not leave any more, counted and still charged: among them may be answers beyond
    `max_distinct`. Also one that was handed over: of a round that gave no sum its answer is not known yet.
    """
    set_meta(db, CLOSED, 1)
    waiting = db.execute(
        "SELECT DISTINCT s.plan_name, s.period_start FROM spool s JOIN memo_reports r "
        "ON r.plan_name = s.plan_name AND r.period_start = s.period_start"
    ).fetchall()
    for row in waiting:
        spool.give_up(db, (row["plan_name"], row["period_start"]), RefusalReason.LEDGER_DAMAGED, now)


def forget(db: sqlite3.Connection) -> None:
    """The identity goes, and with it its answers. The next one has others, and they are paid for anew."""
    for table in ("memo_values", "memo_reports", "memos"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
    db.execute("DELETE FROM meta WHERE key IN (?, ?)", (CLOSED, _CHECK))


def view(db: sqlite3.Connection, plan: Plan) -> list[MemoView]:
    """Of each memoised metric of the plan."""
    return [_view(db, plan, name, memo) for name, memo in plan.memos.items()]


def _view(db: sqlite3.Connection, plan: Plan, name: str, memo: MemoCharge) -> MemoView:
    reports = _reports(db, plan.name, memo.key)
    found = db.execute("SELECT count(*) FROM memo_values WHERE plan_name = ? AND memo = ?", (plan.name, memo.key))
    distinct = int(found.fetchone()[0])
    exact = memo.total(reports) if reports <= 1 else max(distinct, 1) * memo.inf_micro
    return MemoView(
        plan.name, name, reports, distinct, memo.max_distinct, memo.total(reports), min(exact, memo.total(reports))
    )
