"""What the doctor asks of the ledger: totals, spends, what is folded, and who opted out.

Rules of this file: each check yields one line per finding over a connection that only reads; plain SQL of every engine.
What garbage collection may have dropped or folded is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, false, func, or_, select

from client_sdk.accounting.budget import format_micro
from client_sdk.plan import Plan
from collector.service import tables as t
from collector.service.doctor_rounds import by_name
from collector.service.doctor_sums import readable_plans
from collector.service.retention import DAY_S, MARGIN_S, taken_for_s
from collector.service.storage_rows import DIRECT
from collector.service.storage_writes import report_costs_by_metric

YOUNG_S: Final = 364 * DAY_S
"""Spends that are younger are not folded yet, whatever is set."""


def _reports(*more: Any) -> Select[Any]:
    """One row per booked report."""
    c = t.spends.c
    key = (c.device, c.plan_name, c.plan_hash, c.period_start)
    return select(*key, func.sum(c.micro_epsilon).label("cost"), *more).group_by(*key)


def totals(conn: Connection, _now: int) -> Iterator[str]:
    """A lifetime is what is folded and what is not: micro-epsilon, and reports."""
    booked = _reports().subquery()
    spent = (
        select(booked.c.device, func.sum(booked.c.cost).label("cost"), func.count().label("reports"))
        .group_by(booked.c.device)
        .subquery()
    )
    total, s = t.device_totals.c, spent.c
    cost, reports = func.coalesce(s.cost, 0), func.coalesce(s.reports, 0)
    wrong = or_(
        total.micro_epsilon != total.folded_micro_epsilon + cost,
        total.reports != total.folded_reports + reports,
        total.resent_reports > total.reports,
        total.folded_micro_epsilon < 0,
        total.folded_reports < 0,
    )
    joined = t.device_totals.outerjoin(spent, s.device == total.device)
    columns = (total.device, total.micro_epsilon, (total.folded_micro_epsilon + cost).label("found"))
    counted = (total.reports, (total.folded_reports + reports).label("reports_found"))
    for row in conn.execute(select(*columns, *counted).select_from(joined).where(wrong).order_by(total.device)):
        yield (
            f"device {row.device}: {format_micro(row.micro_epsilon)} in {row.reports} reports, "
            f"its rows say {format_micro(int(row.found))} in {row.reports_found}"
        )
    lost = ~select(total.device).where(total.device == s.device).exists()
    for device in conn.execute(select(s.device).where(lost).order_by(s.device)).scalars():
        yield f"device {device}: has spends and no lifetime"


def folded(conn: Connection, _now: int) -> Iterator[str]:
    """What is folded with its history is no more than what is folded, and nothing of it is negative."""
    f, total = t.folded_spends.c, t.device_totals.c
    kept = (
        select(f.device, func.sum(f.micro_epsilon).label("cost"), func.sum(f.reports).label("reports"))
        .group_by(f.device)
        .subquery()
    )
    joined = kept.outerjoin(t.device_totals, total.device == kept.c.device)
    wrong = or_(
        total.device.is_(None),
        kept.c.cost > total.folded_micro_epsilon,
        kept.c.reports > total.folded_reports,
    )
    for device in conn.execute(
        select(kept.c.device).select_from(joined).where(wrong).order_by(kept.c.device)
    ).scalars():
        yield f"device {device}: more is folded with its history than in all"
    odd = or_(f.reports < 1, f.micro_epsilon < 0, f.first_charged_at > f.last_charged_at)
    for device in conn.execute(select(f.device).where(odd).distinct().order_by(f.device)).scalars():
        yield f"device {device}: a folded row is impossible"


def unbooked(conn: Connection, now: int) -> Iterator[str]:
    """A counted report of the last year is booked: its plan's cost, under its round, and falling back where it must.

    But for a device that opted out, which has no ledger.
    """
    c, held = t.contributions.c, t.rounds.c
    booked = _booked().subquery()
    b = booked.c
    same = and_(b.device == c.device, b.plan_name == c.plan_name, b.period_start == c.period_start)
    faults: dict[str, ColumnElement[bool]] = {
        "its report is not booked": b.device.is_(None),
        "its report is booked under another round or plan": or_(
            b.first_round != c.round, b.last_round != c.round, b.plan_hash != held.plan_hash
        ),
        "another amount is booked than its plan says": _other_amount(conn, held.plan_hash, b.cost, b.rows),
        "whether its central epsilon falls back is booked wrongly": b.falls_back
        != case((or_(c.resent, _is_direct()), 1), else_=0),
    }
    gone = select(t.opt_outs.c.device).where(t.opt_outs.c.device == c.device).exists()
    fault = case(*((wrong, name) for name, wrong in faults.items())).label("fault")
    joined = t.contributions.join(t.rounds, held.round == c.round).outerjoin(booked, same)
    young = (held.finished_at > now - YOUNG_S, ~gone, or_(*faults.values()))
    query = select(c.device, c.round, fault).select_from(joined).where(*young).order_by(c.round, c.device)
    for row in conn.execute(query):
        yield f"device {row.device}, round {row.round}: {row.fault}"


def _booked() -> Select[Any]:
    c = t.spends.c
    return _reports(
        func.count().label("rows"),
        func.min(c.round).label("first_round"),
        func.max(c.round).label("last_round"),
        func.max(case((c.central_falls_back, 1), else_=0)).label("falls_back"),
    )


def _other_amount(
    conn: Connection, plan_hash: ColumnElement[bytes], cost: ColumnElement[int], rows: ColumnElement[int]
) -> ColumnElement[bool]:
    """Is it not what a report of that plan costs, in as many rows?"""
    wrong = [
        and_(plan_hash == known, or_(_is_no_price(plan, cost), rows != len(report_costs_by_metric(plan))))
        for known, plan in readable_plans(conn).items()
    ]
    return or_(false(), *wrong)


def _is_no_price(plan: Plan, cost: ColumnElement[int]) -> ColumnElement[bool]:
    """A memoised metric's reports cost from one millionth to its dearest, by their number."""
    if not plan.memos:
        return cost != plan.report_micro_epsilon
    return or_(cost < plan.plain_micro_epsilon + len(plan.memos), cost > plan.report_micro_epsilon)


def _is_direct() -> ColumnElement[bool]:
    c, v, held = t.released_sums.c, t.released_vectors.c, t.rounds.c.round
    return or_(
        select(c.round).where(c.round == held, c.cell == 0, c.delivery == DIRECT).exists(),
        select(v.round).where(v.round == held, v.delivery == DIRECT).exists(),
    )


def uncounted(conn: Connection, now: int) -> Iterator[str]:
    """A booked report has its contribution, unless its period is so old that housekeeping may have dropped that."""
    s, c = t.spends.c, t.contributions.c
    same = and_(c.device == s.device, c.plan_name == s.plan_name, c.period_start == s.period_start)
    missing = ~select(c.device).where(same, c.round == s.round).exists()
    taken_s = by_name(s.plan_name, taken_for_s(readable_plans(conn).values()))
    young = s.period_start > now - MARGIN_S - taken_s
    lost = select(s.device, s.round).where(missing, young).distinct()
    for row in conn.execute(lost.order_by(s.round, s.device)):
        yield f"device {row.device}, round {row.round}: booked, and not among those who are counted"


def opted_out(conn: Connection, _now: int) -> Iterator[str]:
    """Nothing is booked for who opted out."""
    for table in (t.device_totals, t.spends, t.folded_spends, t.memo_reports, t.blames):
        column = table.c.device
        gone = select(t.opt_outs.c.device).where(t.opt_outs.c.device == column).exists()
        for device in conn.execute(select(column).where(gone).distinct().order_by(column)).scalars():
            yield f"device {device}: has rows in {table.name}"
