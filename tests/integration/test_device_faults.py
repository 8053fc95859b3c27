"""Devices whose folder was restored from a backup, copied, or emptied, before a real collector: what they had spent is
known there, nothing leaves before it is accounted for, and nothing is counted twice."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from client_sdk import TelemetryClient
from client_sdk.device.files import DATABASE_NAME, MIRROR_NAME, read_mirror
from client_sdk.plan import Plan, parse_plan
from collector.service.app import CollectorService
from tests.integration.callers import device_client, reading_collector
from tests.integration.real_fleet import read_books
from tests.integration.test_limits import delivered, small_plan

DAY_S = 86_400
PLAN: Plan = parse_plan(small_plan(3).text.replace('period = "1d"', 'period = "1d"\nmax_delay = "7d"'))
COST = PLAN.report_micro_epsilon


def device(folder: Path, service: CollectorService, days_ago: int = 0) -> TelemetryClient:
    return device_client(folder, service.address, PLAN, insecure=True, clock=lambda: time.time() - days_ago * DAY_S)


async def round_of(tmp_path: Path, service: CollectorService, days_ago: int, names: str = "abc") -> list[int]:
    """Each of these devices makes a report of that day and sends all that waits."""
    devices = [device(tmp_path / name, service, days_ago) for name in names]
    for client in devices:
        client.record("cold_start_ms", 100.0)
        client.flush(seal=True)
    return await delivered(devices)


def counted(tmp_path: Path) -> dict[str, int]:
    """Reports in the collector's sums, per device."""
    books = read_books(f"sqlite:///{tmp_path / 'collector.db'}")
    assert all(len(rounds) == 1 for rounds in books.rounds.values())
    assert {device: micro for device, (_, micro) in books.totals.items()} == books.spent
    return {device: reports for device, (reports, _) in books.totals.items()}


@pytest.mark.parametrize(("what", "known"), [("all of it", 3), ("ledger", 2), ("mirror", None)])
async def test_a_folder_restored_from_a_backup(tmp_path: Path, what: str, known: int | None) -> None:
    """Yesterday's charge is not in the backup, and today's covers the difference: caught all the same, before a byte of
    the report leaves."""
    async with reading_collector(tmp_path, PLAN) as service:
        assert await round_of(tmp_path, service, 2) == [1, 1, 1]
        shutil.copytree(tmp_path / "a", tmp_path / "backup")
        assert await round_of(tmp_path, service, 1) == [1, 1, 1]
        restored = {"all of it": (DATABASE_NAME, MIRROR_NAME), "ledger": (DATABASE_NAME,), "mirror": (MIRROR_NAME,)}
        for name in restored[what]:
            shutil.copy(tmp_path / "backup" / name, tmp_path / "a" / name)

        client = device(tmp_path / "a", service)
        client.record("cold_start_ms", 4000.0)
        client.flush(seal=True)
        if known is not None:
            steps: list[str] = []
            summary = await client.upload(steps.append)
            assert "masked_input" not in steps
            assert (summary.counted, client.spent().left_lifetime_micro) == (0, 0)
            assert client.spent().damaged
            assert client.reset_ledger() * 1_000_000 == known * COST, "the largest total that is known"
        client.close()

        assert await round_of(tmp_path, service, 0) == [1, 1, 1]
        assert set(counted(tmp_path).values()) == {3}, "three days, three reports each"
        client = device(tmp_path / "a", service)
        assert client.spent().lifetime_micro == 3 * COST
        client.close()


async def test_two_copies_of_one_folder_count_once(tmp_path: Path) -> None:
    """A disk image on two machines: one identity, one report a period, whoever comes first."""
    async with reading_collector(tmp_path, PLAN) as service:
        assert await round_of(tmp_path, service, 1) == [1, 1, 1]
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        assert await round_of(tmp_path, service, 0) == [1, 1, 1]
        client = device(tmp_path / "copy", service)
        client.record("cold_start_ms", 4000.0)
        client.flush(seal=True)
        steps: list[str] = []
        summary = await client.upload(steps.append)
        assert (summary.counted, client.spent().damaged is not None) == (0, True)
        assert "masked_input" not in steps, "other noise on the same day's reading would be a second answer"
        client.close()
        assert set(counted(tmp_path).values()) == {2}


@pytest.mark.parametrize("lost", [(DATABASE_NAME,), (DATABASE_NAME, MIRROR_NAME)])
async def test_a_folder_that_lost_its_files(tmp_path: Path, lost: tuple[str, ...]) -> None:
    """With the mirror the identity is known and its budget used up; without, it is another device."""
    async with reading_collector(tmp_path, PLAN) as service:
        assert await round_of(tmp_path, service, 1) == [1, 1, 1]
        before = device(tmp_path / "a", service)
        identity = before.device_id
        before.close()
        mirror = read_mirror(str(tmp_path / "a"))
        assert mirror is not None
        for name in lost:
            (tmp_path / "a" / name).unlink()
        client = device(tmp_path / "a", service)
        assert (client.device_id == identity) is (MIRROR_NAME not in lost)
        client.record("cold_start_ms", 1.0)
        client.flush(seal=True)
        if client.device_id == identity:
            assert client.spent().damaged
            assert client.counters()["ledger_damaged"] == 1
            assert client.reset_ledger() * 1_000_000 == mirror.total_micro
        client.close()
        with closing(sqlite3.connect(tmp_path / "a" / DATABASE_NAME)) as db:
            assert db.execute("SELECT count(*) FROM spool").fetchone()[0] == (client.device_id != identity)
