"""The device's ledger as a document for its user: see `client_sdk.accounting.ledger` for its form.

Rules of this file: nothing is written and nothing is changed; no column that holds a report, a digest of one, or the
identity's seed is looked at, but for the id that is made of the seed. What is not certain is told against privacy:
times of charges are rounded up and the export's own down, so that no window loses a charge; a report whose row is
missing may have left; a cohort is told only where the round has proven all of it to this device (of a sum whose
receipt was lost, what it had confirmed of that very sum); a report that ever left unmasked is told as direct.
What it does not do: keep to itself when the device took part; that is what a ledger is. It does not forget: after
opting out and in again the charges of both lives are in it, under the name of the present one.
"""

from __future__ import annotations

import math
import sqlite3

from client_sdk.accounting.ledger import COUNTED, Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.device import forgetting, ledger
from client_sdk.device.database import seed_of
from client_sdk.errors import PlanError

_ENTRIES = """
SELECT l.plan_hash, l.period_start, l.charged_at, l.micro_epsilon, g.outcome, g.left_device, g.resent, g.round_id,
    g.contributors, g.roster_size, g.resent_contributors, g.delivery, s.hand_overs, s.direct_hand_overs
FROM ledger l
LEFT JOIN log g ON g.plan_name = l.plan_name AND g.period_start = l.period_start
LEFT JOIN spool s ON s.plan_name = l.plan_name AND s.period_start = l.period_start
ORDER BY l.charged_at, l.period_start, l.plan_name
"""

_PLANS = """
SELECT l.plan_hash, l.plan_name, v.version, p.text, min(l.charged_at) AS first_used_at
FROM ledger l
LEFT JOIN plan_versions v ON v.plan_hash = l.plan_hash
LEFT JOIN plans p ON p.hash = l.plan_hash
GROUP BY l.plan_hash ORDER BY first_used_at, l.plan_hash
"""


def exported(db: sqlite3.Connection, now: float) -> Ledger:
    """Everything that was ever charged in this folder, as of `now` (seconds since the epoch)."""
    damage = ledger.damage(db)
    carried, carried_until = _carried(db)
    return Ledger(
        source="device",
        device=_device(db),
        as_of=max(0, math.floor(now)),
        plans=tuple(map(_plan, db.execute(_PLANS))),
        entries=tuple(map(_entry, db.execute(_ENTRIES))),
        carried_micro_epsilon=carried + ledger.missing_micro(db),
        carried_until=None if damage is not None else carried_until,
        damaged=None if damage is None else damage[0],
    ).with_stated()


def _device(db: sqlite3.Connection) -> str | None:
    """The identity's public name; None while the user has opted out, for then it is nobody's yet."""
    from client_sdk.identity import IdentityKey

    return None if forgetting.is_opted_out(db) else IdentityKey(seed_of(db)).device_id


def _carried(db: sqlite3.Connection) -> tuple[int, int | None]:
    """Spending known only from elsewhere, and when the last of it was noted: it was made before that."""
    row = db.execute("SELECT coalesce(sum(micro_epsilon), 0), max(noted_at) FROM carried").fetchone()
    return int(row[0]), None if row[1] is None else math.ceil(row[1])


def _plan(row: sqlite3.Row) -> LedgerPlan:
    version = _version_of(row["text"]) if row["version"] is None else row["version"]
    return LedgerPlan(row["plan_hash"].hex(), row["plan_name"], version, math.ceil(row["first_used_at"]))


def _version_of(text: str | None) -> int | None:
    """Of a plan that was used before versions were kept: as its text says, where that can still be read."""
    from client_sdk.plan import parse_plan

    try:
        return None if text is None else parse_plan(text).version
    except PlanError:
        return None


def _entry(row: sqlite3.Row) -> LedgerEntry:
    outcome, left, resent, delivery = row["outcome"], row["left_device"], row["resent"], row["delivery"]
    if outcome is None and row["hand_overs"] is not None:
        outcome, left, resent = "waiting", row["hand_overs"] > 0, row["hand_overs"] > 1
        delivery = "direct" if row["direct_hand_overs"] else "interactive"
    return LedgerEntry(
        plan=row["plan_hash"].hex(),
        period_start=row["period_start"],
        charged_at=math.ceil(row["charged_at"]),
        micro_epsilon=row["micro_epsilon"],
        outcome=outcome or "unknown",
        # counted without having left: in a life that this folder does not remember
        left_device=left is None or bool(left) or outcome in COUNTED,
        resent=bool(resent),
        delivery=delivery or "interactive",
        round=row["round_id"],
        cohort=_cohort(row),
    )


def _cohort(row: sqlite3.Row) -> Cohort | None:
    sizes = row["contributors"], row["roster_size"], row["resent_contributors"]
    return None if None in sizes else Cohort(*sizes)
