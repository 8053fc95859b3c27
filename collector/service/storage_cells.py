"""How much a report would have to add up."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from collector.service import tables as t


def released_cells(conn: Connection, metric: str | None, since: int | None, until: int | None) -> int:
    """Of all rounds, for since <= period_start < until."""
    cells = 0
    for table, count in ((t.released_sums, func.count()), (t.released_vectors, func.sum(t.released_vectors.c.length))):
        query = select(count).select_from(table)
        if metric is not None:
            query = query.where(table.c.metric == metric)
        if since is not None:
            query = query.where(table.c.period_start >= since)
        if until is not None:
            query = query.where(table.c.period_start < until)
        cells += int(conn.execute(query).scalar() or 0)
    return cells
