"""Minutes of rounds at constant load: memory stays flat on the device and at the collector.

python -m pytest -n0 -s -m soak tests/soak                        # ten minutes; LDP_SOAK_S=60 for a look

A collector (SQLite or PostgreSQL), a process with seven devices, and one with a single device, which is what is
measured on that side. Everybody reports on one minute of the past after another, a round each PACE_S.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from client_sdk.plan import Plan, parse_plan
from tests.benchmarks.bench_collector import cpu_s
from tests.benchmarks.bench_idle import resident_kb
from tests.integration.processes import PLAIN, ROOT, SERVE, Process, child_pids
from tests.integration.real_fleet import read_books
from tests.integration.test_limits import small_plan
from tests.registrar import KEY_HEX

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SOAK_S = float(os.environ.get("LDP_SOAK_S", "600"))
PACE_S = 0.5
COHORT = 8
EVERY_S = 2.0
START_S = 5.0
"""Until everybody has started: the devices end that much before SOAK_S has passed for the watch."""
WARM_UP = 0.25
WARM_ROUNDS = 250
"""Share of the time, and rounds, after which memory counts: gRPC's memory levels off after a thousand connections or so
(eight a round), and caches have filled."""

MOST_GROWTH = 0.05


def soak_plan() -> Plan:
    """A minute's report of seven days; cohorts of all eight devices."""
    text = small_plan(COHORT, max_wait="20s", length=50).text
    text = text.replace('period = "1d"', 'period = "1m"\nmax_delay = "8d"')
    return parse_plan(text.replace("lifetime = 365", "lifetime = 1000000\nrolling_24h = 1000000"))


class Devices:
    """A process of them."""

    def __init__(self, name: str, folder: Path, address: str, count: int, first_minute: int) -> None:
        self.log = folder / f"{name}.log"
        arguments = [address, str(folder / "plan.toml"), str(folder / name), str(count), str(first_minute)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.devices", *arguments, str(SOAK_S), str(PACE_S)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )

    @property
    def counted(self) -> int:
        lines = self.log.read_text().split()
        return int(lines[-1]) if lines else 0

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class Course:
    """Kilobytes over time of one thing that is watched."""

    name: str
    pids: list[int]
    kb: list[int] = field(default_factory=list)

    def look(self) -> None:
        self.kb.append(sum(resident_kb(pid) for pid in self.pids))

    def growth(self, warm: int) -> float:
        """From look `warm` on: the last quarter against the first."""
        counts = self.kb[warm:]
        quarter = max(1, len(counts) // 4)
        return mean(counts[-quarter:]) / mean(counts[:quarter]) - 1

    def said(self, warm: int) -> str:
        first, then, last = self.kb[0], self.kb[warm], self.kb[-1]
        return f"{self.name}: {first} KB at first, {then} warm, {last} at the end: {self.growth(warm):+.2%}"


def start_collector(folder: Path, url: str, plan: Plan) -> Any:
    """A serving process; its store may be either engine's."""
    process = Process.__new__(Process)
    process.log = folder / "stderr.log"
    (folder / "plan.toml").write_text(plan.text, encoding="utf-8")
    options = ("--db", url, "--registrar-key", KEY_HEX, *PLAIN, "--max-joins", "100000")
    with process.log.open("w") as log:
        process.process = subprocess.Popen(
            [*SERVE, "serve", "--plan", str(folder / "plan.toml"), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
        )
    assert process.process.stdout is not None
    process.address = process.process.stdout.readline().removeprefix("listening on ").strip()
    return process


async def watch(courses: list[Course], devices: Devices) -> list[int]:
    """Until the time is over: reports counted, at each look."""
    counted, until = [], time.monotonic() + SOAK_S - START_S - EVERY_S
    while time.monotonic() < until and devices.process.poll() is None:
        for course in courses:
            course.look()
        counted.append(devices.counted)
        await asyncio.sleep(EVERY_S)
    return counted


async def test_memory_stays_flat(tmp_path: Path, store_url: str) -> None:
    plan = soak_plan()
    running = start_collector(tmp_path, store_url, plan)
    first_minute = plan.period_start(time.time()) - 7 * 86_400
    crowd = Devices("crowd", tmp_path, running.address, COHORT - 1, first_minute)
    one = Devices("one", tmp_path, running.address, 1, first_minute)
    try:
        await asyncio.sleep(START_S)
        pid = running.process.pid
        courses = [
            Course("collector", [pid]),
            Course("collector's workers", child_pids(pid)),
            Course("device", [one.process.pid]),
        ]
        counted = await watch(courses, one)
        cpu = cpu_s(pid)
        print(f"\n{counted[-1]} rounds of {COHORT} in {SOAK_S:.0f} s; the collector used {cpu:.0f} s CPU")
        warm = max(int(len(counted) * WARM_UP), sum(count < WARM_ROUNDS for count in counted))
        if warm >= len(counted) * 2 // 3:
            pytest.skip(
                f"too few rounds to tell: {counted[-1]} in {SOAK_S:.0f} s; give it more time, or a quieter machine"
            )
        for course in courses:
            print(f"  {course.said(warm)}")
        assert await asyncio.to_thread(crowd.process.wait, 60) == 0, crowd.log.read_text()[-2000:]
        assert await asyncio.to_thread(one.process.wait, 60) == 0, one.log.read_text()[-2000:]
    finally:
        for devices in (crowd, one):
            devices.end()
        running.end(killed=True)
    steps = [counted[len(counted) * part // 4] for part in range(1, 4)] + [counted[-1]]
    quarters = [after - before for before, after in pairwise(steps)]
    assert min(quarters) > 0.6 * max(quarters), f"constant load: {quarters}"
    books = read_books(store_url)
    assert 0 <= COHORT * len(books.sums) - len(books.rounds) <= COHORT, "all eight in each but the last"
    assert all(len(rounds) == 1 for rounds in books.rounds.values())
    assert len(books.sums) >= counted[-1]
    for course in courses:
        assert course.growth(warm) <= MOST_GROWTH, course.said(warm)
