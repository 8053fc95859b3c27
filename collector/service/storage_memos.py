"""What reports of memoised metrics cost, device by device: a function of how many there were, and of nothing else.

Rules of this file: the caller owns the transaction; the count goes up first, and that locks its row, so two writers
that hold a device never book the same report's price; rows in the order of plan name, memo and device, and those of
several sums all before the first of them is written, so that writers never wait in a circle. The count is never
collected, only forgotten with its device: without it the first report's price would be booked again and again.
What it does not do: know whether a value ever changed. Nobody here can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, select

from client_sdk.accounting.memo import MemoCharge
from client_sdk.plan import Plan
from collector.service import tables as t
from collector.service.storage_bulk import add_to_rows, one_of
from collector.service.storage_reads import chunks


def book_reports(conn: Connection, plan: Plan, devices: Sequence[str]) -> dict[str, Mapping[str, int]]:
    """One more report of each of these devices (different ones, in order): by metric, what it costs each of them."""
    by_key = sorted(plan.memos.items(), key=lambda memo: memo[1].key)
    return {name: _book(conn, plan.name, memo, devices) for name, memo in by_key}


Counts = Mapping[tuple[str, bytes], Sequence[str]]
"""By plan name and memo, both in order: devices, different ones, in order."""


def counts_of(reports: Iterable[tuple[Plan, Iterable[str]]]) -> Counts:
    """Those of plans and the devices that report under them."""
    devices: dict[tuple[str, bytes], set[str]] = defaultdict(set)
    for plan, some in reports:
        for memo in plan.memos.values():
            devices[plan.name, memo.key].update(some)
    return {key: sorted(devices[key]) for key in sorted(devices)}


def hold_counts(conn: Connection, counts: Counts) -> None:
    """Lock these rows until the transaction ends; one that is not there begins at 0. See `drop_unused`."""
    for (plan_name, key), devices in counts.items():
        _add(conn, plan_name, key, devices, 0)


def drop_unused(conn: Connection, counts: Counts) -> None:
    """Those that were only begun: their sum was refused."""
    c = t.memo_reports.c
    for (plan_name, key), devices in counts.items():
        for chunk in chunks(devices):
            same = and_(c.plan_name == plan_name, c.memo == key, one_of(conn, c.device, chunk))
            conn.execute(delete(t.memo_reports).where(same, c.reports == 0))


def _book(conn: Connection, plan_name: str, memo: MemoCharge, devices: Sequence[str]) -> Mapping[str, int]:
    _add(conn, plan_name, memo.key, devices, 1)
    c = t.memo_reports.c
    costs = {}
    for chunk in chunks(devices):
        same = and_(c.plan_name == plan_name, c.memo == memo.key, one_of(conn, c.device, chunk))
        for row in conn.execute(select(c.device, c.reports).where(same)):
            costs[row.device] = memo.of_report(row.reports - 1)
    return costs


def _add(conn: Connection, plan_name: str, key: bytes, devices: Sequence[str], reports: int) -> None:
    columns: dict[str, Sequence[Any]] = {
        "device": list(devices),
        "plan_name": [plan_name] * len(devices),
        "memo": [key] * len(devices),
        "reports": [reports] * len(devices),
    }
    add_to_rows(conn, t.memo_reports, ("device", "plan_name", "memo"), columns)
