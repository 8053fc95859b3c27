"""Finished rounds added up by plan version, period and how they ended: what a page shows of cohorts and dropouts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, exists, func, select

from collector.reports.cohorts import STEPS, RoundsOfPeriod
from collector.service import tables as t
from collector.service.storage_rows import DIRECT


def rounds_of_periods(conn: Connection, since: int | None, until: int | None) -> list[RoundsOfPeriod]:
    """For since <= period_start < until, in no order; sums of direct reports are no rounds of a cohort."""
    return [
        RoundsOfPeriod(
            row.plan_hash, row.period_start, row.reason, row.rounds, int(row.joined), int(row.contributors),
            row.least, row.most, {step: int(getattr(row, step)) for step in STEPS},
        )
        for row in conn.execute(_query(since, until))
    ]  # fmt: skip


def _query(since: int | None, until: int | None) -> Select[Any]:
    c = t.rounds.c
    sums = [func.sum(c[f"dropped_{step}"]).label(step) for step in STEPS]
    query = select(
        c.plan_hash, c.period_start, c.reason, func.count().label("rounds"), func.sum(c.joined).label("joined"),
        func.sum(c.contributors).label("contributors"), func.min(c.contributors).label("least"),
        func.max(c.contributors).label("most"), *sums,
    )  # fmt: skip
    if since is not None:
        query = query.where(c.period_start >= since)
    if until is not None:
        query = query.where(c.period_start < until)
    query = query.where(*(~_is_direct(table) for table in (t.released_sums, t.released_vectors)))
    return query.group_by(c.plan_hash, c.period_start, c.reason)


def _is_direct(table: Table) -> ColumnElement[bool]:
    return exists().where(table.c.round == t.rounds.c.round, table.c.delivery == DIRECT)
