"""Releases a second: cohorts of 100, one by one and by group commit, on SQLite (FULL) and on PostgreSQL.

    python -m pytest tests/benchmarks/bench_storage.py -m bench -n0 -s

Both commit to a real disk: SQLite with `synchronous = FULL`, PostgreSQL with `fsync` and `synchronous_commit` on. The
server runs on the same machine and shares its cores; its CPU is counted apart. Targets: 2,000 contributions a second on
SQLite, 5,000 on PostgreSQL.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from collector.service.group_commit import MOST
from collector.service.storage import CollectorStore, Release
from tests import postgres
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, make_plan, make_release

COHORT = 100
ROUNDS = 320
DEVICES = 8_000
PLAN = make_plan()
TARGETS = {"sqlite": 2_000, "postgresql": 5_000}

pytestmark = pytest.mark.bench


def releases(kind: str) -> list[Release]:
    """Each device once a period; a new period once all have been counted."""
    found = []
    for number in range(ROUNDS):
        first = number * COHORT % DEVICES
        start = PERIOD + number * COHORT // DEVICES * DAY_S
        found.append(make_release(PLAN, f"{kind}-{number}", range(first, first + COHORT), period_start=start))
    return found


def one_by_one(store: CollectorStore, todo: Sequence[Release]) -> None:
    for release in todo:
        store.store_release(release)


def gathered(store: CollectorStore, todo: Sequence[Release]) -> None:
    for start in range(0, len(todo), MOST):
        assert not any(store.store_releases(todo[start : start + MOST]))


def measure(
    url: str, label: str, way: Callable[[CollectorStore, Sequence[Release]], None], pids: Sequence[int]
) -> float:
    """Contributions a second; prints them, and the CPU of one here and at the server."""
    store = CollectorStore.open(url)
    store.put_plan(PLAN, NOW)
    todo = releases(label.replace(" ", "-"))
    shift = 0 if way is one_by_one else ROUNDS * COHORT // DEVICES + 1
    todo = [make_shifted(release, shift) for release in todo]
    store.store_release(make_release(PLAN, f"warm-{label}", range(COHORT), period_start=PERIOD - (1 + shift) * DAY_S))
    server, own, began = server_cpu(pids), time.process_time(), time.perf_counter()
    way(store, todo)
    seconds, own, server = time.perf_counter() - began, time.process_time() - own, server_cpu(pids) - server
    store.close()
    number = ROUNDS * COHORT
    print(
        f"{label:28s} {number / seconds:8.0f} contributions/s   "
        f"{own / number * 1e6:5.0f} us CPU here, {server / number * 1e6:5.0f} us at the server, each"
    )
    return number / seconds


def make_shifted(release: Release, periods: int) -> Release:
    import dataclasses

    return dataclasses.replace(release, period_start=release.period_start + periods * DAY_S)


def server_cpu(pids: Sequence[int]) -> float:
    """Seconds of all processes below these, living or ended."""
    total, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) in pids or int(stat.parent.name) in pids:
            total += sum(map(int, fields[11:13])) / ticks
            if int(stat.parent.name) in pids:
                total += sum(map(int, fields[13:15])) / ticks  # of sessions that have ended
    return total


def test_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'collector.db'}"
    for label, way in (("sqlite one by one", one_by_one), (f"sqlite groups of {MOST}", gathered)):
        rate = measure(url, label, way, [])
    print(f"target {TARGETS['sqlite']}: {'met' if rate >= TARGETS['sqlite'] else 'MISSED'}")


def test_postgresql() -> None:
    with postgres.durable_server() as server:
        url = server.new_database()
        for label, way in (("postgresql one by one", one_by_one), (f"postgresql groups of {MOST}", gathered)):
            rate = measure(url, label, way, [server.pid])
    print(f"target {TARGETS['postgresql']}: {'met' if rate >= TARGETS['postgresql'] else 'MISSED'}")
