"""Two replicas on one PostgreSQL, real devices behind a load balancer that cuts connections, replicas that are killed,
a database that is restarted: afterwards each report is counted once, or still with its device, or expired there.

    LDP_CHAOS_DEVICES=2000 LDP_CHAOS_KILLS=50 python -m pytest -n0 -s -m soak tests/integration/test_replica_chaos.py

Replicas die by SIGKILL: after a random time, or when some device is about to send the message of a random step. The
database ends once in order and once as by a crash. Between replicas and database there is a bad line too, so that
commits are lost in either direction.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from client_sdk import TelemetryClient
from client_sdk.plan import Plan, parse_plan
from tests import postgres
from tests.integration.callers import device_client
from tests.integration.participants import until
from tests.integration.processes import ROOT, SERVE, Process
from tests.integration.real_fleet import FAR, RealFleet, read_books
from tests.integration.test_limits import small_plan
from tests.tcp_proxy import TcpProxy

STEPS = ("join", "shares", "masked_input", "confirm", "unmask")
CUTS, DATABASE_CUTS = 0.002, 0.0005
"""For each piece of data that passes: that its connection ends instead."""

MIN_SIZE, COHORT = 3, 12
WAVE = 96
DAY_S = 86_400.0
LATE = 0.02
"""Share of the devices that come back when their reports are too old."""


def chaos_plan() -> Plan:
    text = small_plan(COHORT, max_wait="1s").text
    return parse_plan(text.replace("min_size = 2", f"min_size = {MIN_SIZE}"))


class Replica:
    """One collector, as often as it takes: always on the same port."""

    def __init__(self, number: int, folder: Path, plan: Plan, db: str) -> None:
        self.name, self.address = f"replica-{number}", "127.0.0.1:0"
        self._folder, self._plan, self._db = folder, plan, db
        self.running: Process | None = None
        self.logs: list[str] = []

    async def start(self) -> None:
        """A start may fail where the database is cut off: then it is tried again, as any supervisor does."""
        options = ("--listen", self.address, "--insecure", "--step-timeout", "8s")
        for attempt in range(10):
            with suppress(AssertionError):
                self.running = await asyncio.to_thread(
                    lambda: Process(self._folder, self._plan, *options, db=self._db, name=self.name)
                )
                self.address = self.running.address
                return
            await asyncio.sleep(0.2 * attempt)
        raise AssertionError(f"{self.name} does not start: {(self._folder / f'{self.name}.log').read_text()[-2000:]}")

    async def kill(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.process.kill()
            assert await running.wait(30) == -signal.SIGKILL
            self.logs.append(running.log.read_text())
            running.end(killed=True)

    async def stop(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.process.terminate()
            assert await running.wait(30) == 0
            self.logs.append(running.log.read_text())
            running.end()


class Chaos:
    """What happens meanwhile, and how often it did."""

    def __init__(self, folder: Path, server: postgres.Server, rng: random.Random) -> None:
        self.server, self.rng, self.plan = server, rng, chaos_plan()
        self.url = server.new_database()
        self.line = TcpProxy("127.0.0.1", server.port, seed=rng.randrange(1 << 30))
        self.line.start()
        through = self.url.replace(f":{server.port}/", f":{self.line.port}/")
        self.replicas = [Replica(number, folder, self.plan, through) for number in (1, 2)]
        self.balancer = TcpProxy(seed=rng.randrange(1 << 30))
        self.happened: Counter[str] = Counter()
        self._armed: tuple[str, asyncio.Event] | None = None
        self._database = asyncio.Lock()

    def on_step(self, step: str) -> None:
        """What devices call before each step's first message."""
        if self._armed is not None and self._armed[0] == step:
            self._armed[1].set()

    async def begin(self) -> None:
        await asyncio.gather(*(replica.start() for replica in self.replicas))
        self.balancer.use(*(replica.address for replica in self.replicas))
        self.balancer.start()

    async def rage(self, kills: int, restarts: int) -> None:
        """Kill by kill, with the restarts spread among them."""
        self.balancer.cut_probability, self.line.cut_probability = CUTS, DATABASE_CUTS
        await self.cut_somebody()
        due = {kills * (n + 1) // (restarts + 1): n for n in range(restarts)}
        while self.happened["kills"] < kills:
            if self.happened["kills"] in due:
                await self._restart_database(due.pop(self.happened["kills"]))
            await self._kill_one()
        for number in due.values():
            await self._restart_database(number)
        self.balancer.cut_probability = self.line.cut_probability = 0.0

    async def _kill_one(self) -> None:
        replica, first = self.rng.choice(self.replicas), not self.happened["kills"]
        if first or self.rng.random() < 0.6:
            step, met = self.rng.choice(STEPS), asyncio.Event()
            self._armed = (step, met)
            with suppress(TimeoutError):
                await asyncio.wait_for(met.wait(), 60 if first else 4)
                self.happened[f"killed at {step}"] += 1
                await asyncio.sleep(self.rng.uniform(0, 0.05))  # the other ends of the round are near that step too
            self._armed = None
        else:
            await asyncio.sleep(self.rng.uniform(0.2, 2.5))
        await replica.kill()
        self.happened["kills"] += 1
        print(f"{time.strftime('%H:%M:%S')} kill {self.happened['kills']}", file=sys.stderr, flush=True)
        async with self._database:
            await replica.start()

    async def _restart_database(self, number: int) -> None:
        async with self._database:
            known = self._outages()
            await asyncio.to_thread(self.server.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
            await asyncio.sleep(self.rng.uniform(0.5, 2.0))
            with suppress(AssertionError):  # where no device needs the store meanwhile, no replica finds out
                await until(lambda: self._outages() > known, timeout_s=15)
            self.happened["outages"] += self._outages() > known
            await asyncio.to_thread(self.server.start)
        self.happened["database restarts"] += 1

    def _outages(self) -> int:
        """Lines that say that one began, of the replicas that run."""
        logs = [replica.running.log.read_text() for replica in self.replicas if replica.running is not None]
        return sum(log.count("store outage (unreachable): ") for log in logs)

    async def cut_somebody(self) -> None:
        """Whatever the odds of the bad lines were."""
        await until(lambda: self.balancer.open_connections > 0, timeout_s=30)
        self.happened["cuts"] += self.balancer.cut_all()

    async def end(self) -> None:
        for replica in self.replicas:
            await replica.stop()

    def remove(self) -> None:
        for replica in self.replicas:
            if replica.running is not None:
                replica.running.end(killed=True)
        self.line.stop()
        with suppress(RuntimeError):
            self.balancer.stop()


@asynccontextmanager
async def chaos(folder: Path, seed: int) -> AsyncIterator[Chaos]:
    with postgres.durable_server() as server:
        one = Chaos(folder, server, random.Random(seed))
        try:
            await one.begin()
            yield one
        finally:
            one.remove()


class Devices:
    """A fleet, and who of it still waits: looking into all their spools each time would be most of the work."""

    def __init__(self, fleet: RealFleet, one: Chaos) -> None:
        self.fleet, self.one = fleet, one
        self.waiting: list[TelemetryClient] = []

    async def add(self, number: int) -> None:
        """New ones, between which others get their turn."""
        for _ in range(number):
            self.fleet.add(1)
            self.waiting.append(self.fleet.clients[-1])
            await asyncio.sleep(0)

    async def attempt(self, most: int) -> None:
        """One of some of those who wait, all at once."""
        some = self.one.rng.sample(self.waiting, min(most, len(self.waiting)))
        done = await asyncio.gather(*(self._attempt(client) for client in some))
        gone = {id(client) for client, is_done in zip(some, done, strict=True) if is_done}
        self.waiting = [client for client in self.waiting if id(client) not in gone]

    async def _attempt(self, client: TelemetryClient) -> bool:
        summary = await client.upload(self.one.on_step)
        self.fleet.failures.update(summary.failed)
        return not summary.waiting


async def attempts(devices: Devices, number: int) -> None:
    """Waves of new ones, and whoever still waits, again and again."""
    while True:
        await devices.add(min(WAVE // 2, number - len(devices.fleet.clients)))
        await devices.attempt(WAVE)
        await asyncio.sleep(0.05)


async def storm(devices: Devices, number: int, kills: int, restarts: int) -> None:
    uploads = asyncio.create_task(attempts(devices, number))
    try:
        await devices.one.rage(kills, restarts)
        while len(devices.fleet.clients) < number:  # noqa: ASYNC110 - the other task adds them
            await asyncio.sleep(0.2)
    finally:
        uploads.cancel()
        with suppress(asyncio.CancelledError):
            await uploads


async def peace(devices: Devices, seconds: float) -> None:
    """Who has not been heard yet comes through, but for the last few that find no company."""
    over = time.monotonic() + seconds
    devices.waiting = devices.fleet.waiting()
    while devices.waiting and time.monotonic() < over:
        if len(devices.waiting) < 4 * COHORT:
            await devices.add(2 * MIN_SIZE)  # fresh ones: a round of reports that were all sent before hides nobody
        await devices.attempt(WAVE)


def check_acknowledged(fleet: RealFleet, url: str) -> int:
    """What a device holds as counted is stored; what is stored and not acknowledged, it still holds. How many wait."""
    stored, told = set(read_books(url).rounds), set()
    for client in fleet.clients:
        device = str(client.device_id)
        told |= {(device, entry.period_start) for entry in client.history() if entry.outcome in FAR}
    waiting = {(str(client.device_id), period) for client in fleet.clients for period, _ in fleet._waiting(client)}
    assert told <= stored
    assert stored - told <= waiting
    assert told | waiting == set(fleet.vectors)
    return len(waiting)


def check_late(late: RealFleet, url: str) -> None:
    """Too old: given up at the device, still charged there, and nowhere at the collector."""
    books = read_books(url)
    for client in late.clients:
        assert [entry.outcome for entry in client.history()] == ["expired"]
        assert client.spent().lifetime_micro == late.plan.report_micro_epsilon
        assert str(client.device_id) not in books.totals


def doctor(url: str) -> None:
    command = [*SERVE, "doctor", "--db", url]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


SIZE = int(os.environ.get("LDP_CHAOS_DEVICES", "2000"))
KILLS = int(os.environ.get("LDP_CHAOS_KILLS", "50"))


# cases C01 C03 E01 E04 F04, on PostgreSQL and from outside
@pytest.mark.parametrize(
    ("devices", "kills", "restarts", "peace_s"),
    [
        pytest.param(60, 3, 1, 30.0, marks=pytest.mark.slow),  # test_deployment kills a replica in each run
        pytest.param(SIZE, KILLS, 2, 1200.0, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
    ids=["a little", "at length"],
)
async def test_replicas_that_are_killed_count_each_report_once(
    tmp_path: Path, devices: int, kills: int, restarts: int, peace_s: float
) -> None:
    began, offset = time.monotonic(), [0.0]
    async with chaos(tmp_path, seed=devices) as one:

        def later(folder: Path, endpoint: str, plan: Plan) -> TelemetryClient:
            return device_client(folder, endpoint, plan, insecure=True, clock=lambda: time.time() + offset[0])

        fleet = RealFleet(tmp_path / "devices", one.balancer.address, one.plan, 0)
        late = RealFleet(tmp_path / "late", one.balancer.address, one.plan, max(1, int(devices * LATE)), make=later)
        crowd = Devices(fleet, one)
        await storm(crowd, devices, kills, restarts)
        raged_s = time.monotonic() - began
        await peace(crowd, peace_s)
        offset[0] = 10 * DAY_S
        await late.upload()
        await one.end()
        fleet.check_books(one.url, everybody=False)
        left = check_acknowledged(fleet, one.url)
        check_late(late, one.url)
        doctor(one.url)
        assert one.happened["kills"] >= kills
        assert one.happened["database restarts"] == restarts
        assert sum(times for what, times in one.happened.items() if what.startswith("killed at ")) > 0
        assert one.happened["outages"] > 0
        assert one.happened["cuts"] > 0
        assert fleet.failures, "and devices had to come back"
        assert left <= 0.02 * devices + 2 * MIN_SIZE, f"{left} reports found no round: {dict(fleet.failures)}"
        say(one, fleet, left, raged_s, time.monotonic() - began)
        for each in (fleet, late):
            each.close()


def say(one: Chaos, fleet: RealFleet, left: int, raged_s: float, all_s: float) -> None:
    already = sum(entry.outcome == "already_counted" for client in fleet.clients for entry in client.history())
    outages = sum(log.count("store outage") for replica in one.replicas for log in replica.logs)
    print(
        f"\n{len(fleet.clients)} devices, {left} still hold their report; {dict(one.happened)}; "
        f"{one.balancer.cuts} cuts at devices, {one.line.cuts} at the database, {outages} lines about outages; "
        f"{already} heard later that they were counted; attempts that failed {dict(fleet.failures)}; "
        f"{raged_s:.0f} s of storm, {all_s:.0f} s in all",
        file=sys.stderr,
    )
