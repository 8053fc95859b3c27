"""What a fleet has spent, in as few rows as say it: what the figures of any number of devices are made of.

Rules of this file: reads only, over a connection whose transaction the caller owns. Out of here come numbers of
devices; which device has which history, only `every_device` says. Where there are too many histories, they are
rounded: n_h down, numbers of reports up, so that a history bounds all that became it.
What it does not do: it computes no epsilon (`collector.accounting` does).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Row, Select, cast, func, null, select, union_all

from client_sdk.accounting.ledger import WINDOWS
from collector.accounting.basic import DeviceHistory, FleetHistory, FleetSum, FleetWindow, PlanSpend
from collector.service import tables as t
from collector.service.storage_folding import rounded_down, rounded_up
from collector.service.storage_rows import DIRECT
from collector.service.storage_statements import LIFETIME, of_devices, released, reports_by_n_h

MOST_HISTORIES: Final = 4096
"""Different histories that are kept as they are; from there on they are rounded, so that a fleet has few of them."""

RATIOS: Final = (0.1,)
"""By which share of n_h, and of a number of reports, at most: each once the one before leaves too many."""


def fleet_sums(conn: Connection, now: int, window: str, micro_rhos: Mapping[bytes, int]) -> list[FleetSum]:
    """One query, whose answer is as long as there are different sums. A plan that `micro_rhos` does not name makes no
    history whole.
    """
    d = of_devices(now, window, micro_rhos).subquery().c
    alike = select(func.count(), d.cost, d.rho, d.whole).group_by(d.cost, d.rho, d.whole).order_by(d.cost, d.rho)
    return [FleetSum(n, int(cost), int(rho), bool(whole)) for n, cost, rho, whole in conn.execute(alike)]


def smallest_sum(conn: Connection, now: int, window: str) -> int | None:
    """Contributors of the smallest sum of the window that hides reports; None where there is none."""
    c, held = released().subquery().c, t.rounds.c
    query = select(func.min(c.contributors)).where(held.round == c.round, c.delivery != DIRECT)
    if window != LIFETIME:
        query = query.where(held.finished_at > now - WINDOWS[window])
    found: int | None = conn.execute(query).scalar()
    return found


# --- histories --------------------------------------------------------------------------------------


Spent = Any
"""Of one device its reports of one plan and n_h (plan_hash, n_h, reports, first, least; None where it has none) beside
what is known of the device (whole, carried, cost): a row of `_by_device`, or what another engine has in its place."""


def fleet_histories(
    conn: Connection,
    now: int,
    window: str,
    corrupt: Mapping[bytes, Fraction],
    most: int = MOST_HISTORIES,
    ratios: Sequence[float] = RATIOS,
) -> list[FleetHistory]:
    """Every device's reports by plan and n_h, like histories together.

    corrupt: per plan, the share of a roster that is assumed to collude; a plan that is not among them hides nobody.
    Once there are more than `most` histories, they are rounded by the next of `ratios`.
    """
    return like_histories(_by_device(conn, now, window, corrupt), most, ratios)


def like_histories(
    groups: Iterable[tuple[str, Sequence[Spent]]], most: int = MOST_HISTORIES, ratios: Sequence[float] = RATIOS
) -> list[FleetHistory]:
    """The same of what any engine found: by device, in their order."""
    found: Counter[_History] = Counter()
    used, left = 0.0, list(ratios)
    for _, group in groups:
        found[_rounded(_history(group), used)] += 1
        while len(found) > most and left:
            used, finer, found = left.pop(0), found, Counter()
            for one, devices in finer.items():
                found[_rounded(one, used)] += devices
    return [FleetHistory(devices, *history) for history, devices in sorted(found.items())]


def every_device(
    conn: Connection,
    now: int,
    window: str,
    corrupt: Mapping[bytes, Fraction],
    most: int = MOST_HISTORIES,
    ratios: Sequence[float] = RATIOS,
) -> FleetWindow:
    """The same, and which device has which of them."""
    return each_history(_by_device(conn, now, window, corrupt), most, ratios)


def each_history(
    groups: Iterable[tuple[str, Sequence[Spent]]], most: int = MOST_HISTORIES, ratios: Sequence[float] = RATIOS
) -> FleetWindow:
    """The same of what any engine found."""
    place: dict[_History, int] = {}
    found = []
    for device, group in groups:
        reports = sum(int(row.reports) for row in group if row.plan_hash is not None)
        least = min((row.least for row in group if row.least is not None), default=None)
        mine = place.setdefault(_history(group), len(place))
        found.append(DeviceHistory(device, mine, reports, int(group[0].cost), least))
    kept = list(place)
    for ratio in ratios:
        if len(set(kept)) <= most:
            break
        kept = [_rounded(one, ratio) for one in place]
    order = {one: i for i, one in enumerate(sorted(set(kept)))}
    devices: Counter[int] = Counter(order[kept[one.history]] for one in found)
    return FleetWindow(
        tuple(FleetHistory(devices[i], *one) for one, i in order.items()),
        tuple(DeviceHistory(d.device_id, order[kept[d.history]], d.reports, d.micro_epsilon, d.least) for d in found),
    )


def _by_device(
    conn: Connection, now: int, window: str, corrupt: Mapping[bytes, Fraction]
) -> Iterator[tuple[str, list[Row[Any]]]]:
    rows = reports_by_n_h(now, window, corrupt).subquery()
    device = of_devices(now, window, dict.fromkeys(corrupt, 0)).subquery()
    r, d = rows.c, device.c
    query: Select[Any] = select(d.device, d.whole, d.carried, d.cost, r.plan_hash, r.n_h, r.reports, r.first, r.least)
    ordered = query.select_from(device.outerjoin(rows, r.device == d.device)).order_by(d.device)
    streamed = conn.execute(ordered, execution_options={"yield_per": 1000})
    for name, group in groupby(streamed, key=lambda row: row.device):
        yield name, list(group)


_History = tuple[tuple[tuple[bytes, int, int], ...], bool, int]


def _history(rows: Sequence[Spent]) -> _History:
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


def _rounded(history: _History, ratio: float) -> _History:
    """One that bounds it: as many reports or more, hidden as well or less. 0: as it is."""
    if not ratio:
        return history
    reports: Counter[tuple[bytes, int]] = Counter()
    for plan_hash, n_h, count in history[0]:
        reports[plan_hash, rounded_down(n_h, ratio)] += count
    return tuple((*key, rounded_up(count, ratio)) for key, count in reports.items()), *history[1:]


# --- what is left of budgets ------------------------------------------------------------------------


def plan_spends(conn: Connection) -> dict[str, tuple[PlanSpend, ...]]:
    """Per device, what its life has cost under each plan."""
    s, f, held = t.spends.c, t.folded_spends.c, t.folded_cohorts.c
    kept = select(f.device, held.plan_hash, f.micro_epsilon, cast(null(), BigInteger).label("period_start"))
    live = select(s.device, s.plan_hash, s.micro_epsilon, s.period_start)
    row = union_all(live, kept.join(t.folded_cohorts, held.cohort == f.cohort)).subquery().c
    sums = func.sum(row.micro_epsilon).label("cost"), func.max(row.period_start).label("last")
    query = select(row.device, row.plan_hash, *sums).group_by(row.device, row.plan_hash)
    found: dict[str, list[PlanSpend]] = defaultdict(list)
    for device, plan_hash, cost, last in conn.execute(query.order_by(row.device, row.plan_hash)):
        found[device].append(PlanSpend(plan_hash.hex(), int(cost), last))
    return {device: tuple(spends) for device, spends in found.items()}
