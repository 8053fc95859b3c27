"""One device's life with a fault at one write point after another, and the next life that has to go on from there.

    python -m tests.unit.client_sdk.device.faulty_lives SCENARIO FOLDER ERRNO-OR-0 WHICH

Runs SCENARIO's job once to list its write points, then from the same start again for each of them that WHICH chooses
(`all`, `ends` or `sample`, see `chosen`): killed before it, or with all calls from it on failing with ERRNO. After each
of them the folder must hold a sound ledger that agrees with what the collector has counted, and a next life without
faults must bring everything to its end, once. Prints the points that it has tried, one a line.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from client_sdk import StorageError
from client_sdk.device import uploader
from client_sdk.device.files import DATABASE_NAME, MIRROR_NAME, read_mirror
from client_sdk.report import report_digest
from client_sdk.secagg.messages import Joined
from client_sdk.testing import FakeClock, InMemoryCollector
from tests.unit.client_sdk.device.helpers import plan_text
from tests.write_points import Fault, Traced, run

from client_sdk.plan import parse_plan  # isort: skip

PLAN = parse_plan(
    plan_text(period="1m", max_delay="7d", lifetime="1000000", rolling_24h="1000000", min_size=2).replace(
        'upload_window = "6h"', 'upload_window = "30s"'
    )
)
COST = PLAN.report_micro_epsilon
START = 1_767_268_800.0
MINUTE_S = 60.0
SEAL_KEY = bytes(range(32))


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """Breaks an upload off on purpose."""


class Durable(InMemoryCollector):
    """What it has counted, and who is forgotten, outlives the process, like a real collector's store."""

    def __init__(self, home: Path, clock: FakeClock) -> None:
        super().__init__(PLAN, clock=clock)
        self._counted = home / "counted.txt"
        self._gone = home / "gone.txt"

    def counted(self) -> list[int]:
        return [int(line) for line in self._counted.read_text().split()] if self._counted.exists() else []

    def gone(self) -> list[str]:
        return self._gone.read_text().split() if self._gone.exists() else []

    def is_counted(self, device_id: str, period_start: int) -> bool:
        return period_start in self.counted()

    def spent(self, device_id: str) -> Joined:
        return Joined(len(self.counted()), len(self.counted()) * COST)

    def count(self, device_id: str, period_start: int, *_: Any, **__: Any) -> None:
        with self._counted.open("a") as file:
            file.write(f"{period_start}\n")

    def forget(self, device_id: str) -> None:
        with self._gone.open("a") as file:
            file.write(f"{device_id}\n")


class Home:
    """A device's folder, and beside it what its collector knows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "d"

    def copy(self, to: Path) -> Home:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.path, to)
        return Home(to)

    def life(self, minute: int, work: Callable[[Any, FakeClock], None], **settings: Any) -> None:
        """One process's time with the folder, from that minute on. Only StorageError may come out of `work`."""
        clock = FakeClock(START + minute * MINUTE_S)
        client = Durable(self.path, clock).client(self.folder, **settings)
        try:
            with suppress(StorageError):
                work(client, clock)
        finally:
            client.close()

    def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / DATABASE_NAME)) as db:
            return db.execute(query).fetchall()

    def periods(self, table: str) -> list[int]:
        return sorted(row[0] for row in self.rows(f"SELECT period_start FROM {table}"))  # noqa: S608 - our own names


# --- what is done with a folder ------------------------------------------------------------------------


def report(client: Any, clock: FakeClock) -> None:
    """A reading, the end of its period, an upload of all that waits."""
    client.record("cold_start_ms", 1)
    clock.advance(MINUTE_S)
    client.flush()
    asyncio.run(client.upload())


def cut_off(client: Any, clock: FakeClock) -> None:
    """A report that has left and was never heard of again."""

    def stop(step: str) -> None:
        if step == "confirm":
            raise Stopped

    client.record("cold_start_ms", 1)
    clock.advance(MINUTE_S)
    client.flush()
    with suppress(Stopped):
        asyncio.run(client.upload(stop))


def opt_out(client: Any, clock: FakeClock) -> None:
    client.opt_out()
    asyncio.run(client.upload())


def reset(client: Any, clock: FakeClock) -> None:
    client.reset_ledger()
    report(client, clock)


def keep(client: Any, clock: FakeClock) -> None:
    """An open period that the next process is to go on with (kept when the client closes)."""
    client.record("cold_start_ms", 1)


# --- the scenarios: how a folder comes to be, and the job that meets the fault ------------------------------


def used(home: Home) -> None:
    home.life(0, report)
    home.life(1, cut_off)


def without_ledger(home: Home) -> None:
    used(home)
    (home.folder / DATABASE_NAME).unlink()


def kept(home: Home) -> None:
    home.life(0, report)
    home.life(1, keep, seal_key=SEAL_KEY)


SCENARIOS: dict[str, tuple[Callable[[Home], None], Callable[[Any, FakeClock], None], dict[str, Any]]] = {
    "first start": (lambda home: None, report, {}),
    "later": (used, report, {}),
    "opt out": (used, opt_out, {}),
    "reset": (without_ledger, reset, {}),
    "keep": (kept, report, {"seal_key": SEAL_KEY}),
}
JOB_MINUTE, NEXT_MINUTE = 3, 6


def job_of(name: str, home: Home) -> Callable[[], None]:
    _, work, settings = SCENARIOS[name]
    return lambda: home.life(JOB_MINUTE, work, **settings)


def start_of(name: str, path: Path) -> Home:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    home = Home(path)
    SCENARIOS[name][0](home)
    return home


# --- what must hold ------------------------------------------------------------------------------------


def check_left_behind(home: Home, before: Home, name: str) -> None:
    """Right after the fault, before anybody else has looked at the folder."""
    counted = Durable(home.path, FakeClock()).counted()
    assert len(set(counted)) == len(counted), "counted once"
    if not (home.folder / DATABASE_NAME).exists():
        assert counted == Durable(before.path, FakeClock()).counted()
        return
    assert home.rows("PRAGMA integrity_check") == [("ok",)]
    if not home.rows("SELECT 1 FROM sqlite_master WHERE name = 'ledger'"):
        return  # the schema is made in one transaction
    charged, waiting, ended = (home.periods(table) for table in ("ledger", "spool", "log"))
    assert sorted(waiting + ended) == charged, "each charged report is somewhere, once"
    known = home.rows("SELECT period_start FROM log WHERE outcome IN ('counted', 'already_counted')")
    assert {row[0] for row in known} <= set(counted), "acknowledged means counted"
    if name != "reset":
        assert set(counted) <= set(charged), "charged before it left"
        mirror = read_mirror(str(home.folder))
        assert mirror is None or mirror.highest_micro >= len(charged) * COST, "the mirror is ahead of the ledger"


def check_next_life(home: Home, before: Home, name: str, device_id: str | None) -> None:
    """A process without faults goes on from there and ends everything."""
    collector = Durable(home.path, FakeClock(START + NEXT_MINUTE * MINUTE_S))
    clock = collector.clock
    assert isinstance(clock, FakeClock)
    client = collector.client(home.folder, **SCENARIOS[name][2])
    try:
        gone = client.device_id is None
        if name == "reset" and client.spent().damaged:
            client.reset_ledger()
        assert client.spent().damaged is None, "a fault is no damage"
        assert gone or device_id in (None, client.device_id), "the same identity"
        report(client, clock)
        check_end(home, before, name, gone=gone, collector=collector)
        left_behind = {path.name for path in home.folder.iterdir()} - {DATABASE_NAME, MIRROR_NAME}
        assert left_behind <= {"device.db.damaged"}, "no scraps"
    finally:
        client.close()


def check_end(home: Home, before: Home, name: str, *, gone: bool, collector: Durable) -> None:
    counted, charged = collector.counted(), home.periods("ledger")
    assert home.periods("spool") == []
    assert len(set(counted)) == len(counted)
    if gone:
        assert name == "opt out"
        assert len(set(collector.gone())) == 1, "its wish has arrived"
        assert home.rows("SELECT count(*) FROM deletions") == [(0,)]
        assert counted == Durable(before.path, FakeClock()).counted(), "nothing was sent any more"
        return
    assert collector.gone() == []
    total = sum(row[0] for row in home.rows("SELECT micro_epsilon FROM ledger"))
    carried = sum(row[0] for row in home.rows("SELECT micro_epsilon FROM carried"))
    mirror = read_mirror(str(home.folder))
    assert mirror is not None
    assert (mirror.total_micro, mirror.pending_micro) == (total + carried, None)
    if name == "reset":
        assert total + carried >= len(counted) * COST, "what is known elsewhere is not forgotten"
        assert set(charged) <= set(counted)
    else:
        assert (sorted(counted), carried, total) == (charged, 0, len(charged) * COST)
    digests = dict(home.rows("SELECT period_start, digest FROM log"))
    if (before.folder / DATABASE_NAME).exists():
        for period, spooled in before.rows("SELECT period_start, report FROM spool"):
            assert digests[period] == report_digest(spooled), "the very same bytes"


# --- one after another ----------------------------------------------------------------------------------


ALL, ENDS, SAMPLE = "all", "ends", "sample"

MIRROR_WRITTEN = f"rename {MIRROR_NAME}"
"""The mirror holds the new total: the step that has to come before each charge commits."""
COMMITTED = f"unlink {DATABASE_NAME}-journal"

SHARES = 4


def chosen(points: list[str], which: str, share: int = 0) -> list[int]:
    """ALL; ENDS: of a run of like calls the first and the last; SAMPLE: of all like calls the one in the middle.

    share: which of SHARES parts of the kinds a sample holds; the mirror's step and the commit's are in each.
    """
    if which == SAMPLE:
        places = {kind: [index for index, point in enumerate(points) if point == kind] for kind in points}
        kinds = [
            kind
            for number, kind in enumerate(places)
            if number % SHARES == share % SHARES or kind in (MIRROR_WRITTEN, COMMITTED)
        ]
        return sorted(places[kind][len(places[kind]) // 2] for kind in kinds)
    return [
        index
        for index, point in enumerate(points)
        if which == ALL or points[index - 1 : index] != [point] or points[index + 1 : index + 2] != [point]
    ]


def device_of(home: Home) -> str | None:
    if not (home.folder / MIRROR_NAME).exists():
        return None
    client = Durable(home.path, FakeClock(START)).client(home.folder)
    try:
        return client.device_id
    finally:
        client.close()


def main(name: str, path: Path, code: int, which: str) -> list[str]:
    before = start_of(name, path / "start")
    device_id = device_of(before.copy(path / "look"))
    job_of(name, before.copy(path / "warm"))()  # imports: the children are to write, not to read
    whole = run(job_of(name, home := before.copy(path / "whole")), home.folder)
    assert whole.status == 0
    check_left_behind(home, before, name)
    # others of the same scenario's kinds where the disk fails
    tried = chosen(whole.points, which, list(SCENARIOS).index(name) + 2 * bool(code))
    for at in tried:
        home = before.copy(path / "home")
        traced = run(job_of(name, home), home.folder, Fault(at, code or None))
        check_fault(traced, code, f"{name}: point {at} of {len(whole.points)}, {whole.points[at]}")
        check_left_behind(home, before, name)
        check_next_life(home, before, name, device_id)
    return [whole.points[at] for at in tried]


def check_fault(traced: Traced, code: int, where: str) -> None:
    sys.stderr.write(f"{where}\n")  # what a failing check was about
    assert traced.killed, "it was reached"
    assert traced.status == (0 if code else -9), "a failing disk raises nothing but StorageError"


if __name__ == "__main__":
    uploader.LONGEST_SLEEP_S = 0.05
    for point in main(sys.argv[1], Path(sys.argv[2]), getattr(errno, sys.argv[3], 0), sys.argv[4]):
        sys.stdout.write(f"{point}\n")
    sys.stdout.flush()
    os._exit(0)
