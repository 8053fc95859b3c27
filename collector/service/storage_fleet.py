"""What a fleet has spent, in as few rows as say it: what the figures of any number of devices are made of.

Rules of this file: reads only, over a connection whose transaction the caller owns; plain SQL of every engine. Out of
here come numbers of devices, and no device. What is not certain counts against privacy: a report hid among as many as
hold the metric that the fewest hold; spending without a history is bounded by the plain sum alone.
What it does not do: it computes no epsilon (`collector.accounting` does).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import groupby
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Row,
    Select,
    case,
    distinct,
    func,
    literal,
    select,
    true,
    union_all,
)

from client_sdk.accounting.ledger import WINDOWS
from collector.accounting.basic import FleetHistory, FleetSum
from collector.service import tables as t
from collector.service.storage_folding import rounded_down, rounded_up

LIFETIME: Final = "lifetime"

MOST_HISTORIES: Final = 4096
"""Different histories that are kept as they are; from there on they are rounded, so that a fleet has few of them."""

RATIO: Final = 0.1
"""By which share of n_h, and of a number of reports, at most."""


def fleet_sums(conn: Connection, now: int, window: str, micro_rhos: Mapping[bytes, int]) -> list[FleetSum]:
    """One query, whose answer is as long as there are different sums. A plan that `micro_rhos` does not name makes no
    history whole.
    """
    d = _devices(now, window, micro_rhos).subquery().c
    alike = select(func.count(), d.cost, d.rho, d.whole).group_by(d.cost, d.rho, d.whole).order_by(d.cost, d.rho)
    return [FleetSum(n, int(cost), int(rho), bool(whole)) for n, cost, rho, whole in conn.execute(alike)]


def _devices(now: int, window: str, micro_rhos: Mapping[bytes, int]) -> Select[Any]:
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
    carried = _carried() if window in _CARRIED_IN else literal(0)
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
    c = _either_kind(*_within(now, window)).subquery().c
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


def _carried() -> ColumnElement[int]:
    """What no row explains of a device's lifetime, beside its row of `device_totals`."""
    f, total = t.folded_spends.c, t.device_totals.c
    kept = select(func.coalesce(func.sum(f.micro_epsilon), 0)).where(f.device == total.device).scalar_subquery()
    return total.folded_micro_epsilon - kept


def _within(now: int, window: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Conditions on rows of `spends` and of `folded_spends`."""
    if window == LIFETIME:
        return true(), true()
    since = now - WINDOWS[window]
    return t.spends.c.charged_at > since, t.folded_spends.c.last_charged_at > since


def smallest_sum(conn: Connection, now: int, window: str) -> int | None:
    """Contributors of the smallest sum of the window; None where there is none."""
    c, held = _sums().subquery().c, t.rounds.c
    query = select(func.min(c.contributors)).where(held.round == c.round)
    if window != LIFETIME:
        query = query.where(held.finished_at > now - WINDOWS[window])
    found: int | None = conn.execute(query).scalar()
    return found


# --- histories --------------------------------------------------------------------------------------


def fleet_histories(
    conn: Connection, now: int, window: str, corrupt: Mapping[bytes, Fraction], most: int = MOST_HISTORIES
) -> list[FleetHistory]:
    """Every device's reports by plan and n_h, like histories together.

    corrupt: per plan, the share of a roster that is assumed to collude; a plan that is not among them hides nobody.
    Once there are more than `most` histories, n_h is rounded down and numbers of reports up, so that they bound all.
    """
    live, folded = _within(now, window)
    rows = union_all(_live(live, corrupt), _folded(folded, corrupt)).subquery()
    device = _devices(now, window, dict.fromkeys(corrupt, 0)).subquery()
    r, d = rows.c, device.c
    query: Select[Any] = select(d.device, d.whole, d.carried, r.plan_hash, r.n_h, r.reports, r.first)
    joined = device.outerjoin(rows, r.device == d.device)
    streamed = conn.execute(query.select_from(joined).order_by(d.device), execution_options={"yield_per": 1000})
    return _alike(streamed, most)


def _live(inside: ColumnElement[bool], corrupt: Mapping[bytes, Fraction]) -> Select[Any]:
    s, held = t.spends.c, _sums().subquery().c
    falls_back = s.central_falls_back | (held.delivery == "direct")
    n_h = _honest(s.plan_hash, held.contributors - held.resent, held.roster, falls_back, corrupt)
    reports, first = func.count(distinct(s.period_start)).label("reports"), func.min(s.charged_at).label("first")
    query = select(s.device, s.plan_hash, n_h, reports, first)
    return query.where(inside, held.round == s.round).group_by(s.device, s.plan_hash, n_h)


def _sums() -> Select[Any]:
    """Per released round: contributors of the metric that the fewest hold, of those that anybody holds."""
    heads = [
        select(c.round, c.contributors, c.roster, c.resent, c.delivery).where(c.contributors > 0, *first)
        for c, first in ((t.released_sums.c, [t.released_sums.c.cell == 0]), (t.released_vectors.c, []))
    ]
    c = union_all(*heads).subquery().c
    sizes = func.max(c.roster).label("roster"), func.max(c.resent).label("resent")
    least = func.min(c.contributors).label("contributors")
    return select(c.round, least, *sizes, func.min(c.delivery).label("delivery")).group_by(c.round)


def _folded(inside: ColumnElement[bool], corrupt: Mapping[bytes, Fraction]) -> Select[Any]:
    f, held = t.folded_spends.c, t.folded_cohorts.c
    falls_back = f.central_falls_back | (held.delivery == "direct")
    n_h = _honest(held.plan_hash, held.least_contributors, held.roster, falls_back, corrupt)
    reports, first = func.sum(f.reports).label("reports"), func.min(f.first_charged_at).label("first")
    query = select(f.device, held.plan_hash, n_h, reports, first)
    return query.where(inside, held.cohort == f.cohort).group_by(f.device, held.plan_hash, n_h)


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


_History = tuple[tuple[tuple[bytes, int, int], ...], bool, int]


def _alike(rows: Iterable[Row[Any]], most: int) -> list[FleetHistory]:
    """rows: of one device together."""
    found: Counter[_History] = Counter()
    rounded = False
    for _, group in groupby(rows, key=lambda row: row.device):
        history = _history(list(group))
        found[_rounded(history) if rounded else history] += 1
        if len(found) > most and not rounded:
            rounded, exact, found = True, found, Counter()
            for one, devices in exact.items():
                found[_rounded(one)] += devices
    return [FleetHistory(devices, *history) for history, devices in sorted(found.items())]


def _history(rows: list[Row[Any]]) -> _History:
    """Plans by when they were first used where that says which may have been chosen after sums were seen."""
    whole = bool(rows[0].whole)
    first: dict[bytes, int] = {}
    reports: Counter[tuple[bytes, int]] = Counter()
    for row in rows:
        if row.plan_hash is not None:
            reports[row.plan_hash, row.n_h] += int(row.reports)
            first[row.plan_hash] = 0 if whole else min(row.first, first.get(row.plan_hash, row.first))
    ordered = sorted(reports.items(), key=lambda item: (first[item[0][0]], *item[0]))
    return tuple((*key, count) for key, count in ordered), whole, int(rows[0].carried)


def _rounded(history: _History) -> _History:
    """One that bounds it: as many reports or more, hidden as well or less."""
    reports: Counter[tuple[bytes, int]] = Counter()
    for plan_hash, n_h, count in history[0]:
        reports[plan_hash, rounded_down(n_h, RATIO)] += count
    return tuple((*key, rounded_up(count, RATIO)) for key, count in reports.items()), *history[1:]
