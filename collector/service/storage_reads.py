"""The questions to the collector's store, each over a connection whose transaction the caller owns.

Plain SQL of every engine; sums come back as Python integers.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, case, func, select

from collector.accounting.basic import WINDOWS, Amount, DeviceSpending
from collector.release import ReleasedSum
from collector.service import tables as t
from collector.service.storage_bulk import one_of
from collector.service.storage_rows import DROPOUT_STEPS, Blamed, Contribution, RoundRecord, Standing

T = TypeVar("T")

CHUNK = 500
"""Values of one `IN` list: below every engine's smallest limit on bound values."""


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """`values` in pieces that fit into an `IN` list."""
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def standings(conn: Connection, devices: Sequence[str], plan_name: str, period_start: int) -> dict[str, Standing]:
    """Per device: its totals, where its report of this plan's name and period is counted, and whether it is blamed."""
    c, mine, held = t.device_totals.c, t.contributions.c, t.rounds.c
    totals: dict[str, tuple[int, int]] = {}
    counted: dict[str, tuple[str, int]] = {}
    this_report = and_(mine.plan_name == plan_name, mine.period_start == period_start)
    where = select(mine.device, mine.round, held.contributors).join(t.rounds, held.round == mine.round)
    for chunk in chunks(devices):
        for row in conn.execute(select(c.device, c.reports, c.micro_epsilon).where(one_of(conn, c.device, chunk))):
            totals[row.device] = (row.reports, row.micro_epsilon)
        for row in conn.execute(where.where(this_report, one_of(conn, mine.device, chunk))):
            counted[row.device] = (row.round, row.contributors)
    blamed = blamed_devices(conn, devices, plan_name, period_start)
    gone = opted_out(conn, devices)
    return {
        device: Standing(*totals.get(device, (0, 0)), counted.get(device), device in blamed, device in gone)
        for device in devices
    }


def opted_out(conn: Connection, devices: Sequence[str]) -> set[str]:
    """Those of `devices` that are never taken again."""
    c = t.opt_outs.c
    return _those(conn, select(c.device), c.device, devices)


def counted_devices(conn: Connection, devices: Sequence[str], plan_name: str, period_start: int) -> set[str]:
    """Those of `devices` that a stored sum of this plan's name and period counts."""
    c = t.contributions.c
    query = select(c.device).where(c.plan_name == plan_name, c.period_start == period_start)
    return _those(conn, query, c.device, devices)


def _those(conn: Connection, query: Select[Any], column: ColumnElement[str], devices: Sequence[str]) -> set[str]:
    """What `query` finds of `devices`, which `column` names."""
    asked = (query.where(one_of(conn, column, chunk)) for chunk in chunks(devices))
    return {device for one in asked for device in conn.execute(one).scalars()}


def blamed_devices(conn: Connection, devices: Sequence[str], plan_name: str, period_start: int) -> set[str]:
    """Those of `devices` that a round of this plan's name and period blames."""
    b, held, plan = t.blames.c, t.rounds.c, t.plans.c
    joined = t.blames.join(t.rounds, held.round == b.round).join(t.plans, plan.hash == held.plan_hash)
    query = select(b.device).select_from(joined).where(plan.name == plan_name, held.period_start == period_start)
    return _those(conn, query, b.device, devices)


def report_costs(*conditions: ColumnElement[bool]) -> Select[Any]:
    """One row per report: device, when it was charged, its cost over all metrics."""
    c = t.spends.c
    cost, charged_at = func.sum(c.micro_epsilon).label("cost"), func.min(c.charged_at).label("charged_at")
    grouped = select(c.device, cost, charged_at).where(*conditions)
    return grouped.group_by(c.device, c.plan_name, c.plan_hash, c.period_start)


def _window(column: ColumnElement[int], since: int | None, until: int | None) -> list[ColumnElement[bool]]:
    """Half open: since <= column < until."""
    conditions = [] if since is None else [column >= since]
    return conditions if until is None else [*conditions, column < until]


def released_sums(conn: Connection, metric: str | None, since: int | None, until: int | None) -> list[ReleasedSum]:
    """One row per round and metric, by period, round and metric; cells of a metric together and in order."""
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    heads: dict[tuple[str, str], Row[Any]] = {}
    for row in _released(conn, t.released_sums, metric, since, until, t.released_sums.c.cell):
        heads.setdefault((row.round, row.metric), row)
        cells[row.round, row.metric].append(row.total)
    for row in _released(conn, t.released_vectors, metric, since, until):
        heads[row.round, row.metric] = row
        cells[row.round, row.metric] = list(struct.unpack(f"<{row.length}q", row.totals))
    found = [_released_sum(row, cells[key]) for key, row in heads.items()]
    return sorted(found, key=lambda s: (s.period_start, s.round_id, s.metric))


def _released(
    conn: Connection, table: Table, metric: str | None, since: int | None, until: int | None, *order: ColumnElement[int]
) -> Iterator[Row[Any]]:
    c, held = table.c, t.rounds.c
    reports = held.contributors.label("reports")
    query = select(table, reports).join(t.rounds, held.round == c.round).where(*_window(c.period_start, since, until))
    if metric is not None:
        query = query.where(c.metric == metric)
    yield from conn.execute(query.order_by(c.period_start, c.round, c.metric, *order))


def _released_sum(row: Row[Any], totals: Sequence[int]) -> ReleasedSum:
    return ReleasedSum(
        row.round, row.plan_hash, row.period_start, row.metric, tuple(totals),
        row.contributors, row.roster, row.resent, row.delivery, row.reports,
    )  # fmt: skip


def rounds(conn: Connection) -> list[RoundRecord]:
    """Every finished round, in the order in which they finished."""
    c, b = t.rounds.c, t.blames.c
    blamed: dict[str, list[Blamed]] = defaultdict(list)
    for row in conn.execute(select(t.blames).order_by(b.round, b.device, b.what)):
        blamed[row.round].append(Blamed(row.device, row.what))
    return [
        RoundRecord(
            row.round, row.plan_hash, row.period_start, row.joined, row.contributors,
            {step: getattr(row, f"dropped_{step}") for step in DROPOUT_STEPS},
            row.outcome, row.reason, row.seconds, row.finished_at, tuple(blamed[row.round]),
        )
        for row in conn.execute(select(t.rounds).order_by(c.finished_at, c.round))
    ]  # fmt: skip


def contributions(conn: Connection, device: str | None, since: int | None, until: int | None) -> list[Contribution]:
    """Who is counted where, by period, plan and device."""
    c = t.contributions.c
    query = select(t.contributions).where(*_window(c.period_start, since, until))
    if device is not None:
        query = query.where(c.device == device)
    ordered = query.order_by(c.period_start, c.plan_name, c.device)
    return [
        Contribution(row.device, row.plan_name, row.period_start, row.report_id, row.round, row.resent)
        for row in conn.execute(ordered)
    ]


def spending(conn: Connection, now: int, device: str | None) -> list[DeviceSpending]:
    """Every device that has a total (or the one asked for), by device, with its windows up to `now`."""
    reports = report_costs(*([] if device is None else [t.spends.c.device == device])).subquery()
    columns: list[ColumnElement[Any]] = []
    for name, window_s in WINDOWS.items():
        inside = reports.c.charged_at > now - window_s
        columns.append(func.sum(case((inside, 1), else_=0)).label(f"reports_{name}"))
        columns.append(func.sum(case((inside, reports.c.cost), else_=0)).label(f"cost_{name}"))
    windows = select(reports.c.device, *columns).group_by(reports.c.device).subquery()
    total = t.device_totals
    joined = total.outerjoin(windows, total.c.device == windows.c.device)
    query = select(total, *(windows.c[column.name] for column in columns)).select_from(joined)
    if device is not None:
        query = query.where(total.c.device == device)
    return [_device_spending(row) for row in conn.execute(query.order_by(total.c.device)).mappings()]


def _device_spending(row: Mapping[Any, Any]) -> DeviceSpending:
    windows = {name: Amount(int(row[f"reports_{name}"] or 0), int(row[f"cost_{name}"] or 0)) for name in WINDOWS}
    return DeviceSpending(row["device"], windows, Amount(row["reports"], row["micro_epsilon"]), row["resent_reports"])


def period_range(conn: Connection, device: str) -> tuple[int | None, int | None]:
    """First and last period in which the device is counted."""
    c = t.contributions.c
    row = conn.execute(select(func.min(c.period_start), func.max(c.period_start)).where(c.device == device)).one()
    return row[0], row[1]
