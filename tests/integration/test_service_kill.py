"""kill -9 at any point: what was acknowledged is there, nothing is there twice, and devices finish by themselves.

A fleet keeps uploading while its collector dies and comes back on the same port and store, again and again. Each
life brings a new period to report on; what is left of earlier ones is still under way.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import AlreadyCounted, ParticipantMessage, Receipt
from tests.integration.participants import TWO_NUMBERS, Device
from tests.integration.processes import SERVE, Process
from tests.unit.collector.service.stores import connection

STEPS = ("hello", "join", "shares", "masked_input", "confirm", "unmask", "receipt")
COMMITS = ("before the commit", "after the commit")

SERVE_WITH_A_TRAP = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from collector.service.cli import main
from collector.service.storage import CollectorStore

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def store_releases(store, releases, real=CollectorStore.store_releases):
    if when == "before the commit":
        event.listen(Engine, "commit", die)
    real(store, releases)
    die()

when = sys.argv.pop(1)
CollectorStore.store_releases = store_releases
sys.exit(main(sys.argv[1:]))
"""


def plan_for(members: int) -> Plan:
    """Cohorts of the whole fleet; reports of many past periods are welcome."""
    text = TWO_NUMBERS.format(min_size=2, target_size=members, name="test", version=1)
    return parse_plan(text.replace('period = "1d"', 'period = "1d"\nmax_delay = "200d"'))


@dataclass
class Owner:
    """A device that holds its reports until it hears that they are counted, as the SDK does."""

    plan: Plan
    number: int
    identity: IdentityKey = field(default_factory=lambda: IdentityKey(os.urandom(32)))
    handed_over: set[int] = field(default_factory=set)
    counted: dict[int, str] = field(default_factory=dict)
    heard: Counter[type] = field(default_factory=Counter)

    def vector(self, period_start: int) -> list[int]:
        """Another one for each device and period, so that a sum tells who is in it."""
        return [self.number, period_start // self.plan.period_s % 97]

    async def report(self, period_start: int, address: str, on_step: Callable[[str], None]) -> None:
        """Come back until the report is counted."""

        def note(step: str, message: ParticipantMessage) -> ParticipantMessage:
            on_step(step)
            if step == "masked_input":
                self.handed_over.add(period_start)
            return message

        for attempt in count():
            resent = period_start in self.handed_over
            device = Device(self.vector(period_start), self.plan, self.identity, period_start, resent)
            ended = await device.upload(address, on_message=note)
            self.heard[type(ended.outcome)] += 1
            if isinstance(ended.outcome, (Receipt, AlreadyCounted)):
                self.counted[period_start] = ended.outcome.round_id
                on_step("receipt")
                return
            # a plan's own times of coming back are hours
            await asyncio.sleep(random.uniform(0.5, 1.5) * min(0.1 * 2**attempt, 1.0))


class Fleet:
    """Owners and their uploads; kills the collector at a step of somebody's, where it is told to."""

    def __init__(self, folder: Path, db: str, members: int) -> None:
        self.folder, self.db = folder, db
        self.plan = plan_for(members)
        self.owners = [Owner(self.plan, number) for number in range(1, members + 1)]
        self.uploads: set[asyncio.Task[None]] = set()
        self.due: list[tuple[Owner, int]] = []
        self.address = "127.0.0.1:0"
        self.running: Process
        self._kill_at: tuple[str, int] | None = None

    async def start(self, trap: str | None = None) -> None:
        """A collector on the store and port of the one before."""
        program = SERVE if trap is None else (sys.executable, "-c", SERVE_WITH_A_TRAP, trap)
        options = ("--listen", self.address, "--insecure", "--step-timeout", "5s")
        self.running = await asyncio.to_thread(
            lambda: Process(self.folder, self.plan, *options, program=program, db=self.db)
        )
        self.address = self.running.address

    def begin(self, owners: list[Owner], period_start: int) -> None:
        """A period to report on."""
        for owner in owners:
            self.due.append((owner, period_start))
            self.uploads.add(asyncio.create_task(owner.report(period_start, self.address, self._on_step)))

    def missing(self) -> list[tuple[Owner, int]]:
        """Reports that are due and not known to be counted."""
        return [(owner, period) for owner, period in self.due if period not in owner.counted]

    def heard(self) -> Counter[type]:
        """How often each outcome was heard, by anybody."""
        return sum((owner.heard for owner in self.owners), Counter())

    def kill_at(self, step: str, number: int) -> None:
        """Before the `number`-th message of that step, or right after the `number`-th receipt."""
        self._kill_at = (step, number)

    def _on_step(self, step: str) -> None:
        if self._kill_at is None or self._kill_at[0] != step:
            return
        self._kill_at = (step, self._kill_at[1] - 1)
        if self._kill_at[1] == 0:
            self._kill_at = None
            self.running.process.kill()

    async def dead(self) -> None:
        """Wait until the collector was killed, and look at what it left."""
        assert await self.running.wait(30) == -signal.SIGKILL
        self.running.end(killed=True)
        self.check_acknowledged()

    def check_acknowledged(self) -> None:
        """Every acknowledged report is stored, in the round that its receipt names."""
        acknowledged = {
            (owner.identity.device_id, period): round_id
            for owner in self.owners
            for period, round_id in owner.counted.items()
        }
        with connection(self.db) as conn:
            if self.db.startswith("sqlite"):
                assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            stored = {(d, p): r for d, p, r in conn.execute("SELECT device, period_start, round FROM contributions")}
        assert acknowledged.items() <= stored.items()

    async def finish(self) -> None:
        """Peace: all come through. Late pairs keep a last fresh report from waiting for company in vain."""
        await self.start()
        for number in range(1001, 1061, 2):
            await asyncio.wait(self.uploads, timeout=3)
            if not self.missing():
                break
            late = [Owner(self.plan, number), Owner(self.plan, number + 1)]
            self.owners += late
            for period in {period for _, period in self.missing()}:
                self.begin(late, period)
        await asyncio.gather(*(upload for upload in self.uploads if upload.done()))
        assert all(upload.done() for upload in self.uploads)
        self.running.process.terminate()
        assert await self.running.wait(20) == 0
        self.running.end()
        self.check_acknowledged()

    def check_everything(self) -> None:
        """The store holds each report once, each sum is its contributors', each device paid once a report."""
        vectors = {(o.identity.device_id, period): o.vector(period) for o, period in self.due}
        with connection(self.db) as conn:
            rows = conn.execute("SELECT device, period_start, round FROM contributions").fetchall()
            assert sorted((device, period) for device, period, _ in rows) == sorted(vectors), "each of them, once"
            expected: dict[str, list[int]] = defaultdict(lambda: [0, 0])
            for device, period, round_id in rows:
                for cell, value in enumerate(vectors[device, period]):
                    expected[round_id][cell] += value
            found: dict[str, list[int]] = defaultdict(list)
            for round_id, total in conn.execute("SELECT round, total FROM released_sums ORDER BY round, metric"):
                found[round_id].append(total)
            assert found == expected
            totals = dict(conn.execute("SELECT device, reports * 1000000000 + micro_epsilon FROM device_totals"))
            reports = Counter(device for device, _ in vectors)
            cost = self.plan.report_micro_epsilon
            assert totals == {device: n * 1_000_000_000 + n * cost for device, n in reports.items()}
            spends = conn.execute("SELECT count(*), sum(micro_epsilon) FROM spends").fetchone()
            assert spends == (2 * len(vectors), cost * len(vectors))


def periods(plan: Plan) -> Iterator[int]:
    """Today's, yesterday's and so on."""
    start = plan.period_start(time.time())
    while True:
        yield start
        start -= plan.period_s


async def live_through(fleet: Fleet, deaths: Sequence[str | float]) -> list[float]:
    """One life a death: at a step, around a commit, or after so many seconds. How long each start took."""
    started_in_s = []
    for death, period in zip(deaths, periods(fleet.plan), strict=False):
        await fleet.start(str(death) if death in COMMITS else None)
        started_in_s.append(fleet.running.started_in_s)
        if death in STEPS:
            most = len(fleet.missing()) // 2 if death == "receipt" else 0
            fleet.kill_at(str(death), random.randint(1, max(most, len(fleet.owners))))
        fleet.begin(fleet.owners, period)
        if isinstance(death, float):
            await asyncio.sleep(death)
            fleet.running.process.kill()
        await fleet.dead()
    return started_in_s


@asynccontextmanager
async def fleet_of(members: int, folder: Path, db: str) -> AsyncIterator[Fleet]:
    fleet = Fleet(folder, db, members)
    try:
        yield fleet
    finally:
        fleet.running.process.kill()
        for upload in fleet.uploads:
            upload.cancel()


# case F04
# case E04
@pytest.mark.slow_on_postgres
@pytest.mark.slow
async def test_killed_at_every_kind_of_moment(tmp_path: Path, store_url: str) -> None:
    deaths = ["join", "shares", COMMITS[0], "masked_input", "confirm", COMMITS[1], "receipt", "unmask", 0.2]
    async with fleet_of(6, tmp_path, store_url) as fleet:
        await live_through(fleet, deaths)
        heard_before_peace = fleet.heard()
        await fleet.finish()
        fleet.check_everything()
        assert fleet.heard()[AlreadyCounted] >= 6, "a sum was stored without a receipt; its devices heard of it later"
        came_through = heard_before_peace[Receipt] + heard_before_peace[AlreadyCounted]
        assert came_through >= 1, "some came through between two kills"


# case F04
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_hundred_kills(tmp_path: Path, store_url: str) -> None:
    kinds: list[str | float] = [*STEPS, *COMMITS, *["receipt"] * 4, *(random.uniform(0.0, 2.0) for _ in range(4))]
    async with fleet_of(20, tmp_path, store_url) as fleet:
        started_in_s = await live_through(fleet, random.choices(kinds, k=100))
        await fleet.finish()
        fleet.check_everything()
        assert max(started_in_s) < 5
        assert sum(len(owner.counted) for owner in fleet.owners) >= 2000
