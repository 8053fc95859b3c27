"""How rounds end that do not end by themselves: the collector stops, or slips. All are answered, all is on record."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk.errors import LocalProtocolError
from client_sdk.secagg.messages import Receipt
from collector.cohorts import decide
from collector.service import lobby
from tests.integration.participants import Device, collector, two_number_plan, until

PLAN = two_number_plan(min_size=2, target_size=3)


def trio(first: int = 1) -> list[Device]:
    return [Device([i, 10 * i], PLAN) for i in range(first, first + 3)]


# case E07
async def test_a_round_cut_off_by_the_end_of_the_grace_is_on_record(tmp_path: Path, store_url: str) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=30.0, db_url=store_url) as running:
        devices = trio()
        jobs = [asyncio.create_task(d.upload(running.address, silent_before="masked_input")) for d in devices]
        await until(
            lambda: running.service.monitor.snapshot()["streams.open"] == 3 and running.service._lobby._rounds != {}
        )
        store = running.service.store
        started = time.monotonic()
        assert await running.service.stop(0.5)
        assert time.monotonic() - started < 2.5
        ended = await asyncio.gather(*jobs)
        assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
        (record,) = store.rounds()
        assert (record.outcome, record.joined, record.contributors) == ("aborted", 3, 0)


async def test_a_round_told_to_end_ends_at_once(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=30.0) as running:
        devices = trio()
        jobs = [asyncio.create_task(d.upload(running.address, silent_before="shares")) for d in devices]
        drivers = running.service._lobby._rounds
        await until(lambda: bool(drivers))
        for driver in tuple(drivers.values()):
            driver.stop()
        ended = await asyncio.wait_for(asyncio.gather(*jobs), 5)
        assert {one.outcome.reason for one in ended} == {"shutting_down"}
        await until(lambda: running.service.store.rounds() != [])
        (record,) = running.service.store.rounds()
        assert (record.outcome, record.reason) == ("aborted", "shutting_down")


@contextmanager
def halted_workers() -> Iterator[None]:
    """The processes that open sums get no processor."""
    workers = [process.pid for process in multiprocessing.active_children() if process.pid]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# case E07
async def test_a_sum_that_is_not_open_at_the_end_of_the_grace_is_on_record(tmp_path: Path, store_url: str) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=30.0, db_url=store_url) as running:
        devices = trio()
        await until(lambda: bool(multiprocessing.active_children()))
        with halted_workers():
            jobs = [asyncio.create_task(device.upload(running.address)) for device in devices]
            drivers = running.service._lobby._rounds
            await until(lambda: any(driver._opening is not None for driver in drivers.values()))
            store = running.service.store
            assert await running.service.stop(0.3)
            ended = await asyncio.gather(*jobs)
            await until(lambda: not multiprocessing.active_children())  # the end waits for no worker
        assert {one.outcome.reason for one in ended} == {"shutting_down"}
        (record,) = store.rounds()
        assert (record.outcome, record.reason) == ("aborted", "shutting_down")
        assert store.contributions() == []


class Slip:
    """Stands in for the round where forming it fails: once by an error of ours, once by one nobody thought of."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error
        self.times = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.times += 1
        raise self._error("a slip")


@pytest.mark.parametrize("error", [LocalProtocolError, ZeroDivisionError])
async def test_who_waits_is_answered_when_a_round_cannot_be_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        devices = trio()
        with monkeypatch.context() as patch:
            slip = Slip(error)
            patch.setattr(lobby, "Round", slip)
            started = time.monotonic()
            ended = await running.upload(*devices)
            assert slip.times == 1
            assert time.monotonic() - started < 3
        codes = {one.code for one in ended}
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
        assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNKNOWN}
        if error is LocalProtocolError:
            assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
            assert "could not be formed" in line.getMessage()
        again = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in again), "their seats are free again"


async def test_a_slip_does_not_forget_the_rest_of_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wait and nobody else comes; the timer's decision fails once, by an error that nobody thought of."""
    calls: list[int] = []

    def slip_the_second_time(*args: Any) -> Any:
        calls.append(len(args[0]))
        if len(calls) == 2:
            raise ZeroDivisionError
        return decide(*args)

    monkeypatch.setattr(lobby, "SAFETY_TIMER_S", 0.3)
    monkeypatch.setattr(lobby, "decide", slip_the_second_time)
    async with collector(tmp_path, PLAN, step_timeout_s=10.0) as running:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # it would be said on stderr
        devices = trio()[:2]
        ended = await asyncio.wait_for(running.upload(*devices), 5)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert calls == [1, 2, 2], "a join, the timer, and once more"
