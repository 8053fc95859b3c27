"""The statements that a fleet's spending is read with, whether its devices are named or only counted.

Rules of this file: plain SQL of every engine; it asks nothing by itself. What is not certain counts against privacy: a
report hid among as many as hold the metric that the fewest hold; spending without a history is bounded by the plain
sum alone.
What it does not do: it computes no epsilon (`collector.accounting` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from sqlalchemy import ColumnElement, CompoundSelect, Select, case, distinct, func, literal, select, true, union_all

from client_sdk.accounting.ledger import WINDOWS
from collector.service import tables as t
from collector.service.storage_rows import DIRECT

LIFETIME: Final = "lifetime"


def of_devices(now: int, window: str, micro_rhos: Mapping[bytes, int]) -> Select[Any]:
    """Per device that has a total: cost, rho, carried, whole."""
    plan = _by_plan(now, window).subquery().c
    of_plan = [(plan.plan_hash == known, micro) for known, micro in micro_rhos.items()]
    rho = case(*of_plan, else_=0) if of_plan else literal(0)
    in_window = plan.reports > 0
    known = case((plan.plan_hash.in_(list(micro_rhos)), 1), else_=0)
    sums = select(
        plan.device,
        func.sum(plan.cost).label("cost"),
        func.sum(plan.reports * rho).label("rho"),
        func.min(plan.first).label("first"),
        func.max(case((in_window, plan.used))).label("used"),
        func.min(case((in_window, known), else_=1)).label("known"),
    )
    of_device = sums.group_by(plan.device).subquery()
    c, total = of_device.c, t.device_totals
    carried = carried_over() if window in _CARRIED_IN else literal(0)
    # a plan that was first used after a report under another one had left may have been chosen by what came of that
    whole = case((carried > 0, 0), (c.first < c.used, 0), (c.known == 0, 0), else_=1)
    return select(
        total.c.device,
        (func.coalesce(c.cost, 0) + carried).label("cost"),
        func.coalesce(c.rho, 0).label("rho"),
        carried.label("carried"),
        whole.label("whole"),
    ).select_from(total.outerjoin(of_device, c.device == total.c.device))


def _by_plan(now: int, window: str) -> Select[Any]:
    """Per device and plan, what lies in the window: reports, cost, first charge; and `used`, the first charge ever."""
    c = _either_kind(*within(now, window)).subquery().c
    sums = func.sum(c.reports).label("reports"), func.sum(c.cost).label("cost"), func.min(c.first).label("first")
    return select(c.device, c.plan_hash, *sums, func.min(c.used).label("used")).group_by(c.device, c.plan_hash)


def _either_kind(live: ColumnElement[bool], folded: ColumnElement[bool]) -> CompoundSelect[Any]:
    """`_by_plan` of `spends` and of `folded_spends`, one after the other."""
    s, f, held = t.spends.c, t.folded_spends.c, t.folded_cohorts.c
    rows = select(
        s.device,
        s.plan_hash,
        func.count(distinct(case((live, s.period_start)))).label("reports"),  # a row for each metric
        func.sum(case((live, s.micro_epsilon), else_=0)).label("cost"),
        func.min(case((live, s.charged_at))).label("first"),
        func.min(s.charged_at).label("used"),
    )
    kept = select(
        f.device,
        held.plan_hash,
        func.sum(case((folded, f.reports), else_=0)).label("reports"),
        func.sum(case((folded, f.micro_epsilon), else_=0)).label("cost"),
        func.min(case((folded, f.first_charged_at))).label("first"),
        func.min(f.first_charged_at).label("used"),
    ).join(t.folded_cohorts, held.cohort == f.cohort)
    return union_all(rows.group_by(s.device, s.plan_hash), kept.group_by(f.device, held.plan_hash))


_CARRIED_IN: Final = ("365d", LIFETIME)
"""What no row explains was folded when it was older than all windows of its time, the longest of which had 30 days."""


def carried_over() -> ColumnElement[int]:
    """What no row explains of a device's lifetime, beside its row of `device_totals`."""
    f, total = t.folded_spends.c, t.device_totals.c
    kept = select(func.coalesce(func.sum(f.micro_epsilon), 0)).where(f.device == total.device).scalar_subquery()
    return total.folded_micro_epsilon - kept


def within(now: int, window: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Conditions on rows of `spends` and of `folded_spends`."""
    if window == LIFETIME:
        return true(), true()
    since = now - WINDOWS[window]
    return t.spends.c.charged_at > since, t.folded_spends.c.last_charged_at > since


# --- which sums hid the reports ---------------------------------------------------------------------


def reports_by_n_h(now: int, window: str, corrupt: Mapping[bytes, Fraction]) -> Select[Any]:
    """Per device, plan and n_h: reports, first (charge), least (contributors of a sum).

    corrupt: per plan, the share of a roster that is assumed to collude; a plan that is not among them hides nobody.
    """
    live, folded = within(now, window)
    # n_h has a subquery of its own: PostgreSQL takes two bound values for different ones, in GROUP BY too.
    row = union_all(_live(live, corrupt), _folded(folded, corrupt)).subquery().c
    counts = func.sum(row.reports).label("reports"), func.min(row.first).label("first")
    least = func.min(row.contributors).label("least")
    return select(row.device, row.plan_hash, row.n_h, *counts, least).group_by(row.device, row.plan_hash, row.n_h)


def _live(inside: ColumnElement[bool], corrupt: Mapping[bytes, Fraction]) -> Select[Any]:
    """A row for each report, not for each of its metrics."""
    s, held = t.spends.c, released().subquery().c
    falls_back = s.central_falls_back | (held.delivery == DIRECT)
    n_h = _honest(s.plan_hash, held.contributors - held.resent, held.roster, falls_back, corrupt)
    one = literal(1).label("reports"), s.charged_at.label("first")
    size = _size(held.contributors, held.delivery).label("contributors")
    query = select(s.device, s.plan_hash, n_h, *one, size, s.period_start)
    report = query.where(inside, held.round == s.round).distinct().subquery().c
    return select(report.device, report.plan_hash, report.n_h, report.reports, report.first, report.contributors)


def released() -> Select[Any]:
    """Per released round: contributors of the metric that the fewest hold, of those that anybody holds."""
    heads = [
        select(c.round, c.contributors, c.roster, c.resent, c.delivery).where(c.contributors > 0, *first)
        for c, first in ((t.released_sums.c, [t.released_sums.c.cell == 0]), (t.released_vectors.c, []))
    ]
    c = union_all(*heads).subquery().c
    sizes = func.max(c.roster).label("roster"), func.max(c.resent).label("resent")
    least = func.min(c.contributors).label("contributors")
    return select(c.round, least, *sizes, func.min(c.delivery).label("delivery")).group_by(c.round)


def _size(contributors: ColumnElement[int], delivery: ColumnElement[str]) -> ColumnElement[int | None]:
    """Contributors of a sum that hides, None of one that does not."""
    return case((delivery != DIRECT, contributors))


def _folded(inside: ColumnElement[bool], corrupt: Mapping[bytes, Fraction]) -> Select[Any]:
    """Alike ones in a row."""
    f, held = t.folded_spends.c, t.folded_cohorts.c
    falls_back = f.central_falls_back | (held.delivery == DIRECT)
    n_h = _honest(held.plan_hash, held.least_contributors, held.roster, falls_back, corrupt)
    size = _size(held.least_contributors, held.delivery)
    query = select(f.device, held.plan_hash, n_h, f.reports, f.first_charged_at, size)
    return query.where(inside, held.cohort == f.cohort)


def _honest(
    plan_hash: ColumnElement[bytes],
    contributors: ColumnElement[int],
    roster: ColumnElement[int],
    falls_back: ColumnElement[bool],
    corrupt: Mapping[bytes, Fraction],
) -> ColumnElement[int]:
    """contributors - ceil(corrupt x roster), at least 1."""
    by_plan = [
        (plan_hash == plan, contributors - (roster * share.numerator + share.denominator - 1) // share.denominator)
        for plan, share in corrupt.items()
    ]
    honest = case((falls_back, 1), *by_plan, else_=1)
    return case((honest > 1, honest), else_=1).label("n_h")
