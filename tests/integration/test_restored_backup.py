"""An older backup is put back, of a file and of a database: nothing counts twice, and what is lost can be said."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from client_sdk.identity import device_id_of
from client_sdk.secagg.messages import AlreadyCounted, Receipt
from collector.service import cli
from collector.service.doctor import examine
from collector.service.storage import CollectorStore
from tests import postgres
from tests.integration.participants import Device, two_number_plan
from tests.integration.processes import PLAIN, ROOT, SERVE, Process, serving

PLAN = two_number_plan(min_size=2, target_size=3)
WATCHED = (*PLAIN, "--log-format", "json")


class Place:
    """Where a store is, and how it is copied and put back by the tools that the documents name."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._copy = folder / "backup"

    def back_up(self) -> None:
        raise NotImplementedError

    def put_back(self) -> None:
        raise NotImplementedError


class File(Place):
    def back_up(self) -> None:
        """With the command, as another process, while the collector is at work."""
        arguments = ("backup", "--db", self.url, "--out", str(self._copy))
        subprocess.run([*SERVE, *arguments], check=True, capture_output=True, cwd=ROOT)

    def put_back(self) -> None:
        path = Path(self.url.removeprefix("sqlite:///"))
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        shutil.copy(self._copy, path)


class Database(Place):
    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self._programs = postgres._programs()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(self._programs / program), *arguments], check=True, capture_output=True)

    @property
    def _name(self) -> str:
        return self.url.replace("+psycopg", "")

    def back_up(self) -> None:
        self._run("pg_dump", "--format=custom", f"--file={self._copy}", self._name)

    def put_back(self) -> None:
        options = ("--clean", "--if-exists", "--exit-on-error", "--single-transaction")
        self._run("pg_restore", *options, f"--dbname={self._name}", str(self._copy))


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return File(tmp_path, f"sqlite:///{tmp_path / 'collector.db'}")
    return Database(tmp_path, request.getfixturevalue("postgres_url"))


async def uploaded(running: Process, devices: list[Device], **how: Any) -> list[Any]:
    return await asyncio.gather(*(device.upload(running.address, **how) for device in devices))


async def end(running: Process) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert await running.wait(10) == 0


def devices_from(first: int, count: int) -> list[Device]:
    return [Device([n, 10 * n], PLAN) for n in range(first, first + count)]


def looked_at(place: Place) -> set[str]:
    """The released rounds of a store that is whole, but for the durability of the tests' own server."""
    store = CollectorStore.open(place.url, read_only=True)
    found = examine(store, time.time())
    rounds = {row.round_id for row in store.rounds() if row.outcome == "released"}
    store.close()
    assert {result.check.name for result in found.results if result.found} <= {"durability"}
    return rounds


def who_counts(place: Place) -> list[str]:
    store = CollectorStore.open(place.url, read_only=True)
    found = sorted(row.device_id for row in store.contributions())
    store.close()
    return found


async def test_after_an_older_backup_nothing_counts_twice(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = devices_from(1, 3), devices_from(4, 3), devices_from(7, 2)
    lost_receipt = second[0]
    async with serving(tmp_path, PLAN, *WATCHED, "--db", place.url) as running:
        kept = await uploaded(running, first)
        assert all(isinstance(one.outcome, Receipt) for one in kept)
        await asyncio.to_thread(place.back_up)
        heard = asyncio.gather(*(device.upload(running.address) for device in second[1:]))
        await lost_receipt.upload(running.address, leave_before="unmask")  # counted, and never told
        assert all(isinstance(one.outcome, Receipt) for one in await heard)
        await end(running)
        log = shutil.copy(running.log, tmp_path / "before.log")
    (lost_round,) = looked_at(place) - {kept[0].outcome.round_id}
    await asyncio.to_thread(place.put_back)

    assert looked_at(place) == {kept[0].outcome.round_id}
    capsys.readouterr()
    assert cli.main(["doctor", "--db", place.url, "--log", str(log)]) == 1
    out = capsys.readouterr().out
    assert f"does not have: 1\n         round {lost_round}\n" in out
    assert kept[0].outcome.round_id not in out

    async with serving(tmp_path, PLAN, *WATCHED, "--db", place.url) as running:
        again = await uploaded(running, first)
        assert [type(one.outcome) for one in again] == [AlreadyCounted] * 3, "the backup knows them"
        late = await uploaded(running, [lost_receipt, *third])
        assert all(isinstance(one.outcome, Receipt) for one in late), "who was not told comes again, and is counted"
        once_more = await uploaded(running, [lost_receipt, *third])
        assert [type(one.outcome) for one in once_more] == [AlreadyCounted] * 3
        await end(running)
    assert len(looked_at(place)) == 2
    counted = sorted(device_id_of(device.identity.public_key) for device in (*first, lost_receipt, *third))
    assert who_counts(place) == counted, (
        "once each; the sum of the two who were told is lost, and they do not come again"
    )
