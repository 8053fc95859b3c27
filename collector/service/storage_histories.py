"""What one device has spent, with the sums that it hid in, as a ledger.

Rules of this file: reads only, over a connection whose transaction the caller owns; plain SQL of every engine. What is
not certain counts against privacy: what garbage collection left without a history is spent for a purpose that nobody
knows.
What it does not do: it computes no epsilon (`collector.accounting` does). The same over a whole fleet, without a
ledger for each: `storage_fleet`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    func,
    select,
    union_all,
)

from client_sdk.accounting.ledger import Cohort, FoldedReports, Ledger, LedgerEntry, LedgerPlan
from collector.service import tables as t
from collector.service.storage_reads import chunks
from collector.service.storage_rows import DIRECT


@dataclass(frozen=True, slots=True)
class Sum:
    """Whom an opened sum hid: reports in it, members of its roster, resent reports, reports that hold each metric."""

    plan_hash: bytes
    contributors: int
    roster: int
    resent: int
    delivery: str
    metric_contributors: dict[str, int] = field(default_factory=dict, hash=False)


def sums_of(conn: Connection, rounds: Sequence[str]) -> dict[str, Sum]:
    """Of each of these released rounds, by its id."""
    held, found = t.rounds.c, {}
    for chunk in chunks(rounds):
        of_metrics = [
            select(c.round, c.metric, c.contributors, c.roster, c.resent, c.delivery).where(c.round.in_(chunk), *first)
            for c, first in ((t.released_sums.c, [t.released_sums.c.cell == 0]), (t.released_vectors.c, []))
        ]
        metrics: dict[str, dict[str, int]] = defaultdict(dict)
        heads: dict[str, Row[Any]] = {}
        for row in conn.execute(union_all(*of_metrics)):
            metrics[row.round][row.metric], heads[row.round] = row.contributors, row
        for row in conn.execute(select(held.round, held.plan_hash, held.contributors).where(held.round.in_(chunk))):
            head = heads[row.round]
            found[row.round] = Sum(
                row.plan_hash, row.contributors, head.roster, head.resent, head.delivery, metrics[row.round]
            )
    return found


# --- one device -------------------------------------------------------------------------------------


def ledger_of(conn: Connection, device: str, now: int) -> Ledger | None:
    """What is booked for a device, as of `now`; None for one that has no counted report."""
    total = conn.execute(select(t.device_totals).where(t.device_totals.c.device == device)).first()
    if total is None:
        return None
    entries, folded = _entries(conn, device), _folded(conn, device)
    explained = sum(entry.micro_epsilon for entry in entries) + sum(row.micro_epsilon for row in folded)
    carried = total.micro_epsilon - explained
    return Ledger(
        source="collector",
        device=device,
        as_of=now,
        plans=_plans(conn, device),
        entries=entries,
        carried_micro_epsilon=carried,
        carried_until=_carried_until(conn, device) if carried else None,
        folded=folded,
    ).with_stated()


def _entries(conn: Connection, device: str) -> tuple[LedgerEntry, ...]:
    c = t.spends.c
    report = (c.plan_hash, c.period_start, c.round, c.charged_at, c.central_falls_back)
    query: Select[Any] = select(*report, func.sum(c.micro_epsilon).label("cost"), func.min(c.metric).label("metric"))
    ordered = query.where(c.device == device).group_by(*report).order_by(c.charged_at, c.period_start, c.plan_hash)
    rows = conn.execute(ordered).all()
    sums = sums_of(conn, [row.round for row in rows])
    return tuple(_entry(row, sums[row.round]) for row in rows)


def _entry(row: Row[Any], held: Sum) -> LedgerEntry:
    return LedgerEntry(
        plan=row.plan_hash.hex(),
        period_start=row.period_start,
        charged_at=row.charged_at,
        micro_epsilon=int(row.cost),
        outcome="counted",
        left_device=True,
        resent=_came_twice(row, held.delivery),
        delivery=held.delivery,  # type: ignore[arg-type]  # the store holds no other words
        round=row.round,
        cohort=Cohort(held.contributors, held.roster, held.resent),
        metric_contributors=held.metric_contributors if row.metric == t.SAMPLED else {},
    )


def _came_twice(row: Row[Any], delivery: str) -> bool:
    """Is that why the report stands at its local epsilon? A direct one does so whether or not it came twice."""
    return bool(row.central_falls_back) and delivery != DIRECT


def _folded(conn: Connection, device: str) -> tuple[FoldedReports, ...]:
    f, held = t.folded_spends.c, t.folded_cohorts.c
    joined = select(t.folded_spends, t.folded_cohorts).join(t.folded_cohorts, held.cohort == f.cohort)
    order = (f.last_charged_at, held.plan_hash, f.cohort, f.central_falls_back)
    return tuple(
        FoldedReports(
            plan=row.plan_hash.hex(),
            charged_at=row.last_charged_at,
            reports=row.reports,
            micro_epsilon=row.micro_epsilon,
            resent=_came_twice(row, row.delivery),
            delivery=row.delivery,
            cohort=Cohort(row.contributors, row.roster, 0),
            metric_contributors=json.loads(row.metric_contributors),
        )
        for row in conn.execute(joined.where(f.device == device).order_by(*order))
    )


def _plans(conn: Connection, device: str) -> tuple[LedgerPlan, ...]:
    """Those of its rows, by when the first of its reports under each was charged."""
    plan, s, f, held = t.plans.c, t.spends.c, t.folded_spends.c, t.folded_cohorts.c
    kept = select(held.plan_hash, f.first_charged_at).join(t.folded_cohorts, held.cohort == f.cohort)
    charges = union_all(select(s.plan_hash, s.charged_at).where(s.device == device), kept.where(f.device == device))
    charge = charges.subquery().c
    first = func.min(charge.charged_at).label("first")
    query = select(plan.hash, plan.name, plan.version, first).where(charge.plan_hash == plan.hash)
    rows = conn.execute(query.group_by(plan.hash, plan.name, plan.version).order_by(first, plan.hash))
    return tuple(LedgerPlan(row.hash.hex(), row.name, row.version, row.first) for row in rows)


def _carried_until(conn: Connection, device: str) -> int | None:
    """When the last of the charges without a row was made at the latest: of all reports that have none."""
    c, s, held = t.contributions.c, t.spends.c, t.rounds.c
    same = and_(s.device == c.device, s.plan_name == c.plan_name, s.period_start == c.period_start)
    joined = t.contributions.join(t.rounds, held.round == c.round).outerjoin(t.spends, same)
    last = select(func.max(held.finished_at)).select_from(joined).where(c.device == device, s.device.is_(None))
    found: int | None = conn.execute(last).scalar()
    return found
