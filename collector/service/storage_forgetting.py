"""Opting out, and what is too old to be kept: the statements, over a connection whose transaction the caller owns.

Rules of this file: of a device that has opted out nothing is left but its id on the list of those that are never
taken again and, until their periods are too old to be sent, the rows that keep its reports from being counted twice;
sums stay as they were released. Whatever was free in a round when the request came ends without a ledger too.
What it does not do: it judges no request (`collector.intake` does).
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from collector.service import tables as t
from collector.service.retention import every_plan, taken_for_s
from collector.service.storage_reads import opted_out

_LEDGER = (t.spends, t.folded_spends, t.device_totals, t.memo_reports, t.blames)


def knows(conn: Connection, device: str) -> bool:
    """Is anything booked for this device, or has it opted out before?"""
    tables = (t.device_totals, t.contributions, t.blames, t.opt_outs)
    return any(conn.execute(select(table.c.device).where(table.c.device == device)).first() for table in tables)


def is_forgotten(conn: Connection, device: str) -> bool:
    """Has it opted out, and is nothing left of its ledger? Then nothing will come: a round that did not see the opt-out
    was waited for, and every later one sees it.
    """
    if not opted_out(conn, [device]):
        return False
    return not any(conn.execute(select(table.c.device).where(table.c.device == device)).first() for table in _LEDGER)


def forget(conn: Connection, device: str, now: int) -> bool:
    """Unlink the device's ledger and never take it again. False: that was done before, or nothing was left to do."""
    for table in _LEDGER:
        conn.execute(delete(table).where(table.c.device == device))
    if opted_out(conn, [device]):
        return False
    conn.execute(insert(t.opt_outs).values(device=device, acknowledged_at=now))
    return True


def drop_old_contributions(conn: Connection, now: int, piece: tuple[str, str | None]) -> int:
    """Rows of devices that opted out, for periods whose reports no version of their plan takes any more; how many.

    piece: one of `retention.SLICES`.
    """
    c, (first, end) = t.contributions.c, piece
    mine = [t.opt_outs.c.device >= first, *([] if end is None else [t.opt_outs.c.device < end])]
    gone = select(t.opt_outs.c.device).where(*mine)
    dropped = 0
    for name, longest_s in taken_for_s(every_plan(conn)).items():
        old = (c.plan_name == name, c.period_start <= now - longest_s, c.device.in_(gone))
        dropped += conn.execute(delete(t.contributions).where(*old)).rowcount
    return dropped
