"""Reports are read from the store while devices upload: nobody waits for a reader, and a reader sees whole rounds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from client_sdk.plan import parse_plan
from client_sdk.secagg.messages import Receipt
from tests.integration.participants import TWO_NUMBERS, Device, Ended, collector
from tests.integration.processes import ROOT

MEMBERS = 10
PERIODS = 6
PLAN = parse_plan(
    TWO_NUMBERS.format(min_size=2, target_size=MEMBERS, name="test", version=1).replace(
        'period = "1d"', 'period = "1d"\nmax_delay = "30d"'
    )
)


async def ask(path: Path, *arguments: str) -> Any:
    """What `ldp-collector` prints as JSON, from a process of its own."""
    command = [sys.executable, "-m", "collector.service", *arguments, "--db", str(path), "--format", "json"]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


# case F03
async def test_reports_while_devices_upload(tmp_path: Path) -> None:
    path = tmp_path / "collector.db"
    async with collector(tmp_path, PLAN, step_timeout_s=20.0) as running:
        devices = [Device([i, 10 * i], PLAN) for i in range(MEMBERS)]
        ended: list[Ended] = []
        done = asyncio.Event()

        async def upload() -> None:
            for period in range(PERIODS):
                start = devices[0].period_start - period * PLAN.period_s
                ended.extend(await running.upload(*(Device(d.vector, PLAN, d.identity, start) for d in devices)))
                await asyncio.sleep(0.2)
            done.set()

        async def read(*arguments: str) -> list[Any]:
            documents = []
            while not done.is_set():
                documents.append(await ask(path, *arguments))
            return [*documents, await ask(path, *arguments)]

        with closing(sqlite3.connect(path, isolation_level=None)) as job:  # reads one moment all the while
            job.execute("BEGIN")
            assert job.execute("SELECT count(*) FROM rounds").fetchone() == (0,)
            _, reports, ledgers = await asyncio.gather(upload(), read("report"), read("privacy", "--all"))
            assert job.execute("SELECT count(*) FROM rounds").fetchone() == (0,)
        assert len(ended) == PERIODS * MEMBERS
        assert all(isinstance(one.outcome, Receipt) for one in ended)

    seen = [{metric["contributors"] for metric in report["metrics"]} for report in reports]
    assert all(len(counts) == 1 for counts in seen), "a round is there with all its metrics or not at all"
    counts = [count for (count,) in seen]
    assert counts == sorted(counts)
    assert {count % MEMBERS for count in counts} == {0}
    assert counts[-1] == PERIODS * MEMBERS
    assert len(set(counts)) >= 2, "reports were made while uploads went on"
    reports_of_a_device = [{row["reports"] for row in ledger["devices"]} for ledger in ledgers]
    assert all(len(numbers) <= 1 for numbers in reports_of_a_device), "a round is charged to all or to nobody"
    assert reports_of_a_device[-1] == {PERIODS}
