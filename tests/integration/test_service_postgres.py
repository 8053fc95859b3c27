"""Collectors on PostgreSQL: replicas that share a database, and a database that goes away under them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import grpc
import pytest
from grpc import aio

from client_sdk.plan import Plan
from client_sdk.secagg.messages import AlreadyCounted, ParticipantMessage, Receipt
from collector.service import store_access
from collector.service.health import CHECK, NOT_SERVING, SERVING
from collector.service.storage import CollectorStore
from collector.service.storage_backend import Writer
from tests import postgres
from tests.integration.participants import Device, Ended, Running, collector, two_number_plan, until
from tests.integration.test_service_bad_nights import alarms

PLAN = two_number_plan(min_size=2, target_size=3)
TEN = two_number_plan(min_size=2, target_size=10)


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 0.1)


@pytest.fixture(scope="module")
def own_server() -> Iterator[postgres.Server]:
    with postgres.durable_server() as own:
        yield own


def trio(plan: Plan = PLAN) -> list[Device]:
    return [Device([i, 10 * i], plan) for i in (1, 2, 3)]


@asynccontextmanager
async def replicas(folder: Path, url: str, number: int, *plans: Plan) -> AsyncIterator[list[Running]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(collector(folder, *plans, step_timeout_s=20.0, db_url=url))
            for _ in range(number)
        ]


async def health(address: str) -> bytes:
    async with aio.insecure_channel(address) as channel:
        answer: bytes = await channel.unary_unary(CHECK)(b"")
        return answer


# case C01
async def test_what_one_replica_has_counted_another_does_not_count(tmp_path: Path, postgres_url: str) -> None:
    """By name and period, over all versions."""
    newer = two_number_plan(min_size=2, target_size=3, version=2)
    async with replicas(tmp_path, postgres_url, 2, PLAN, newer) as (one, two):
        devices = trio()
        assert all(isinstance(ended.outcome, Receipt) for ended in await one.upload(*devices))
        late = [Device([9, 9], newer, device.identity) for device in devices]
        for again in (await two.upload(*devices), await two.upload(*late), await one.upload(*late)):
            assert all(isinstance(ended.outcome, AlreadyCounted) for ended in again)
        assert [ended.joined.reports for ended in again if ended.joined] == [1, 1, 1]
        assert two.sums() == [([6, 60], 3)]


# case C01 C03
async def test_the_same_reports_in_rounds_of_two_replicas_at_once_count_once(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path, postgres_url, 2, PLAN) as (one, two):
        devices = trio()
        twins = [Device(device.vector, PLAN, device.identity, resent=True) for device in devices]
        first, second = await asyncio.gather(one.upload(*devices), two.upload(*twins))
        ended = first + second
        kept = [isinstance(each.outcome, Receipt) for each in ended]
        assert kept in ([True] * 3 + [False] * 3, [False] * 3 + [True] * 3), "one of the rounds was stored"
        lost = [each for each, is_kept in zip(ended, kept, strict=True) if not is_kept]
        assert all(isinstance(each.outcome, AlreadyCounted) or each.outcome.reason == "not_stored" for each in lost)
        for each in (one, two):  # the round that was not stored, too, has given its seats back
            await until(lambda running=each: not running.service._lobby._seats)
        again = await two.upload(*devices) + await one.upload(*twins)
        assert [type(each.outcome) for each in again] == [AlreadyCounted] * 6, again
        assert one.sums() == two.sums() == [([6, 60], 3)]
        assert not [line for line in alarms(caplog) if "outage" in line]


# cases F01 and E04, as they are on a server
async def test_a_database_that_is_restarted_costs_a_round_and_no_report(
    tmp_path: Path, own_server: postgres.Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server.new_database()
    async with replicas(tmp_path, url, 1, PLAN) as (running,):
        devices = trio()
        assert await health(running.address) == SERVING

        def crash(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "unmask" and own_server.running:
                own_server.stop(signal.SIGQUIT)
            return message

        jobs = [asyncio.create_task(device.upload(running.address, on_message=crash)) for device in devices]
        ended: list[Ended] = list(await asyncio.gather(*jobs))
        assert [(one.outcome.reason, one.code) for one in ended] == [("not_stored", grpc.StatusCode.UNAVAILABLE)] * 3
        began = time.monotonic()
        meanwhile = await running.upload(*devices)
        assert {one.code for one in meanwhile} == {grpc.StatusCode.UNAVAILABLE}, "it forms no rounds"
        assert time.monotonic() - began < 3
        await asyncio.sleep(1.1)  # what it said of its health is forgotten after a second
        assert await health(running.address) == NOT_SERVING
        (line,) = alarms(caplog)
        assert "cannot be reached" in line
        assert f"postgresql://127.0.0.1:{own_server.port}/" in line

        await asyncio.to_thread(own_server.start)
        await until(lambda: len(alarms(caplog)) == 2, timeout_s=10)
        again = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in again)
        assert running.sums() == [([6, 60], 3)]
        await asyncio.sleep(1.1)
        assert await health(running.address) == SERVING


# case F03
async def test_who_holds_up_the_database_is_waited_for_and_then_said(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path, postgres_url, 1, TEN) as (running,):
        devices = [Device([i, 10 * i], TEN) for i in range(10)]
        with closing(CollectorStore.open(postgres_url)) as other:
            with other._writing(Writer.ALONE):
                job = asyncio.create_task(running.upload(*devices))
                await asyncio.sleep(2.0)
            assert all(isinstance(one.outcome, Receipt) for one in await job), "two seconds fail nobody"
            assert alarms(caplog) == []
            tomorrow = [Device([1, 1], TEN, one.identity, one.period_start - TEN.period_s) for one in devices]
            with other._writing(Writer.ALONE):
                ended = await running.upload(*tomorrow)
                assert [one.code for one in ended] == [grpc.StatusCode.UNAVAILABLE] * 10
                (line,) = alarms(caplog)
                assert "is held up" in line
            await until(lambda: len(alarms(caplog)) == 2, timeout_s=10)
        assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*tomorrow))
        assert sorted(running.sums()) == [([10, 10], 10), ([45, 450], 10)]


async def test_replicas_do_not_warn_of_each_other(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path, postgres_url, 3, PLAN):
        assert alarms(caplog) == []
