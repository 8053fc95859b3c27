"""The store fails under a running collector: the right status, one line, nothing acknowledged, and on it goes."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import event

from client_sdk.secagg.messages import Advert, AlreadyCounted, Challenge, ParticipantMessage, Receipt
from collector.service import store_access
from collector.service.mailbox import Member
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from tests.integration.participants import Device, Ended, Running, collector, two_number_plan, until

PLAN = two_number_plan(min_size=2, target_size=3)
TEN = two_number_plan(min_size=2, target_size=10)


def trio() -> list[Device]:
    return [Device([i, 10 * i], PLAN) for i in (1, 2, 3)]


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 0.1)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an operator who looks at errors and warnings only has to read."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def stored_and_acknowledged(running: Running, ended: list[Ended]) -> tuple[int, int]:
    return len(running.service.store.contributions()), sum(isinstance(one.outcome, Receipt) for one in ended)


def fill(path: Path) -> None:
    """Write until not one more byte goes in."""
    with path.open("wb", buffering=0) as stream:
        for size in (65_536, 4_096, 512, 1):
            try:
                while stream.write(b"x" * size) == size:
                    pass
            except OSError:
                pass


@contextmanager
def volume(folder: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs a small file system of its own")
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False)
    if mounted.returncode != 0:
        pytest.skip("may not mount here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


# case F01
async def test_a_full_disk_acknowledges_nothing_and_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with volume(tmp_path / "volume") as disk:
        async with collector(disk, PLAN, step_timeout_s=10.0) as running:
            devices = trio()
            older = [Device([1, 1], PLAN, device.identity, device.period_start - PLAN.period_s) for device in devices]
            assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*older))
            fill(disk / "ballast")
            ended = []
            for _ in range(20):
                ended += await running.upload(*devices)
            assert {one.code for one in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert not [one for one in ended if isinstance(one.outcome, (Receipt, AlreadyCounted))]
            assert ended[0].outcome.reason == "not_stored", "the first round came as far as its sum"
            assert ended[-1].received == [], "and later nobody wore out a report for nothing"
            assert running.sums() == [([3, 3], 3)], "what was there is there"
            (line,) = alarms(caplog)
            assert "disk is full" in line
            assert str(disk / "collector.db") in line

            (disk / "ballast").unlink()
            await until(lambda: len(alarms(caplog)) == 2)
            again = await running.upload(*devices)
            assert all(isinstance(one.outcome, Receipt) for one in again)
            assert sorted(running.sums()) == [([3, 3], 3), ([6, 60], 3)]
            assert "is over" in alarms(caplog)[1]
            assert len(alarms(caplog)) == 2
        assert integrity(disk / "collector.db") == "ok"


def integrity(path: Path) -> str:
    conn = sqlite3.connect(path)
    try:
        return str(conn.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        conn.close()


def writer_lock(folder: Path) -> sqlite3.Connection:
    lock = sqlite3.connect(folder / "collector.db", isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN IMMEDIATE")
    return lock


# case F03
async def test_a_lock_of_two_seconds_fails_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with collector(tmp_path, TEN, step_timeout_s=20.0) as running:
        devices = [Device([i, 10 * i], TEN) for i in range(50)]
        lock = writer_lock(tmp_path)
        asyncio.get_running_loop().call_later(2.0, lock.execute, "ROLLBACK")
        ended: list[Ended] = []
        for first in range(0, 50, 10):
            ended += await running.upload(*devices[first : first + 10])
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert stored_and_acknowledged(running, ended) == (50, 50)
        assert alarms(caplog) == []
        lock.close()


# case F03
async def test_a_long_lock_is_retryable_soon_and_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Held over one whole round: its members, nine who join and all who come meanwhile are answered in time."""
    async with collector(tmp_path, PLAN, step_timeout_s=20.0) as running:
        devices = trio()
        locks: list[sqlite3.Connection] = []

        def lock(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "unmask" and not locks:
                locks.append(writer_lock(tmp_path))
            return message

        started = time.monotonic()
        jobs = [asyncio.create_task(device.upload(running.address, on_message=lock)) for device in devices]
        await until(lambda: bool(locks))
        joins = await running.upload(*(Device([0, 0], PLAN) for _ in range(9)))
        ended = list(await asyncio.gather(*jobs))
        assert time.monotonic() - started < 15
        assert [one.code for one in joins] == [grpc.StatusCode.UNAVAILABLE] * 9
        assert [(one.outcome.reason, one.code) for one in ended] == [("not_stored", grpc.StatusCode.UNAVAILABLE)] * 3
        await asyncio.sleep(0.5)  # a probe waits for the lock now
        started = time.monotonic()
        meanwhile = await running.upload(*devices)
        assert {one.code for one in meanwhile} == {grpc.StatusCode.UNAVAILABLE}
        assert time.monotonic() - started < 4, "nobody waits out the 5 s of a lock that is known"
        assert stored_and_acknowledged(running, ended + meanwhile) == (0, 0)
        (line,) = alarms(caplog)
        assert "locked by another process" in line

        locks[0].close()
        await until(lambda: len(alarms(caplog)) == 2, timeout_s=10)
        again = await running.upload(*devices)
        assert stored_and_acknowledged(running, again) == (3, 3)
        assert running.sums() == [([6, 60], 3)]


@contextmanager
def read_only(store: CollectorStore) -> Iterator[None]:
    """As if the file system had been mounted read-only: SQLite answers alike."""

    def refuse_writes(dbapi: Any, *_: object) -> None:
        dbapi.execute("PRAGMA query_only = ON")

    def accept_writes(dbapi: Any, *_: object) -> None:
        dbapi.execute("PRAGMA query_only = OFF")

    event.listen(store._engine, "checkout", refuse_writes)
    event.listen(store._engine, "checkin", accept_writes)
    try:
        yield
    finally:
        event.remove(store._engine, "checkout", refuse_writes)


async def test_a_read_only_store_is_unavailable_and_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        devices = trio()
        with read_only(running.service.store):
            ended = await running.upload(*devices)
            await asyncio.sleep(0.5)
            ended += await running.upload(*devices)
            assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
            (line,) = alarms(caplog)
            assert "is read-only" in line
            assert stored_and_acknowledged(running, ended) == (0, 0)
        await until(lambda: len(alarms(caplog)) == 2)
        again = await running.upload(*devices)
        assert stored_and_acknowledged(running, again) == (3, 3)


def with_one_bad_page(path: Path, table: str) -> bytes:
    """The file's bytes, the first page of a table or index overwritten: everything else would still work."""
    conn = sqlite3.connect(path)
    page_bytes = conn.execute("PRAGMA page_size").fetchone()[0]
    (page,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    conn.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * page_bytes : page * page_bytes] = b"\xff" * page_bytes
    return bytes(content)


async def test_a_damaged_store_is_left_alone_until_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        devices = trio()
        running.service.store._engine.dispose()  # or its connections would go on from their caches
        path = tmp_path / "collector.db"
        sound = path.read_bytes()
        path.write_bytes(with_one_bad_page(path, "sqlite_autoindex_device_totals_1"))
        ended = await running.upload(*devices)
        assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
        (line,) = alarms(caplog)
        assert "is damaged" in line
        assert "started again" in line
        damaged = path.read_bytes()
        await asyncio.sleep(0.5)
        ended = await running.upload(*devices)
        assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
        assert len(alarms(caplog)) == 1
        assert path.read_bytes() == damaged, "nothing is written into a damaged file"
        path.write_bytes(sound)
    async with collector(tmp_path, PLAN) as running:
        assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*devices))


def fail(store: CollectorStore) -> None:
    raise StoreError(store.where, StoreProblem.INPUT_OUTPUT)


async def test_whoever_waits_for_a_cohort_is_sent_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 30.0)
    async with collector(tmp_path, TEN, step_timeout_s=10.0) as running:
        devices = [Device([i, i], TEN) for i in range(3)]
        waiting = [asyncio.create_task(device.upload(running.address)) for device in devices]
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 3)
        with pytest.raises(StoreError):
            await running.service._store_access.call(fail)
        ended = await asyncio.gather(*waiting)
        assert {(one.outcome, one.code) for one in ended} == {(None, grpc.StatusCode.UNAVAILABLE)}
        assert running.service.monitor.snapshot()["rejections.storage"] == 3
        assert "come_back" not in running.service.monitor.snapshot()


async def test_a_round_before_its_masked_inputs_ends_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A masked input that cannot be counted would make its report a resent one."""
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 30.0)
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        devices = trio()
        steps: list[str] = []

        async def break_store(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "shares" and "shares" not in steps:
                with pytest.raises(StoreError):
                    await running.service._store_access.call(fail)
            steps.append(step)
            return message

        ended = await asyncio.gather(*(device.upload(running.address, on_message=break_store) for device in devices))
        assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
        assert {one.outcome.reason for one in ended} == {"not_stored"}
        assert steps.count("shares") == 3
        assert "masked_input" not in steps


async def test_who_joined_just_before_an_outage_is_not_kept_waiting(tmp_path: Path) -> None:
    async with collector(tmp_path, TEN) as running:
        participant = Device([1, 1], TEN).participant()
        participant.hello()
        (advert,) = participant.receive(Challenge(bytes(32)), 0.0)
        assert isinstance(advert, Advert)
        member = Member("0" * 32, TEN, advert, joined_at=time.time())
        with pytest.raises(StoreError):
            await running.service._store_access.call(fail)
        with pytest.raises(StoreError):
            running.service._lobby.wait(member)


async def test_a_sum_waits_out_a_short_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its masked inputs have left already: the release is worth some patience."""
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 1.5)
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        devices = trio()

        async def break_store(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "unmask" and not alarms(caplog):
                with pytest.raises(StoreError):
                    await running.service._store_access.call(fail)
            return message

        ended = await asyncio.gather(*(device.upload(running.address, on_message=break_store) for device in devices))
        assert stored_and_acknowledged(running, ended) == (3, 3)
        assert len(alarms(caplog)) == 2
