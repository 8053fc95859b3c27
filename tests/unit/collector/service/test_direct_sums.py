"""Direct reports on their way into the store: one sum a moment, plan and period, exactly once, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import RejectionReason
from client_sdk.plan import Plan, parse_plan
from collector.service import direct_sums
from collector.service.direct_sums import ALREADY, DirectSums, Result, Stored, most_reports
from collector.service.monitoring import Monitor
from collector.service.rounds import RoundTools
from collector.service.storage import CollectorStore, Contributor
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.store_access import StoreAccess
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, make_release, plan_text


def direct_plan(version: int = 1, name: str = "app-health") -> Plan:
    return parse_plan(
        plan_text(version, name=name, min_size=50).replace("target_size = 10", "target_size = 100") + DIRECT
    )


DIRECT = '[delivery]\ndelivery = "direct"\n'
PLAN = direct_plan()
ELEMENTS = np.array([700, 0, 1, 0, 0], dtype=np.int64)


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(PLAN, NOW)
    yield opened
    opened.close()


@asynccontextmanager
async def sums(store: CollectorStore) -> AsyncIterator[tuple[DirectSums, Monitor]]:
    monitor = Monitor()
    access = StoreAccess(store, monitor)
    tools: Any = RoundTools(access, None, monitor, lambda: NOW, 5.0)  # type: ignore[arg-type]
    made = DirectSums(tools)
    try:
        yield made, monitor
    finally:
        await made.stop()
        access._executor.shutdown()


def add(
    made: DirectSums, number: int, *, plan: Plan = PLAN, period: int = PERIOD, resent: bool = False
) -> asyncio.Future[Result]:
    return made.add(plan, period, Contributor(device(number), number.to_bytes(16, "big"), resent), ELEMENTS)


async def test_what_comes_within_a_moment_is_one_sum(store: CollectorStore) -> None:
    async with sums(store) as (made, monitor):
        done = [add(made, number, resent=number == 2) for number in range(3)]
        stored = await asyncio.gather(*done)
        later = await add(made, 3)
    assert isinstance(stored[0], Stored)
    assert stored == [Stored(stored[0].round_id, 3)] * 3
    assert isinstance(later, Stored)
    assert later.round_id != stored[0].round_id
    cold, network = store.released_sums()[:2]
    first = store.released_sums("cold_start_ms")
    assert {(s.round_id, s.totals, s.contributors, s.roster, s.resent, s.delivery) for s in first} == {
        (stored[0].round_id, (2100,), 3, 3, 1, "direct"),
        (later.round_id, (700,), 1, 1, 0, "direct"),
    }
    assert {cold.metric, network.metric} <= {"cold_start_ms", "network"}
    assert [c.resent for c in store.contributions()] == [False, False, True, False]
    assert {round_.outcome for round_ in store.rounds()} == {"released"}
    assert {round_.joined for round_ in store.rounds()} == {3, 1}
    cost = PLAN.report_micro_epsilon
    assert [store.device_totals(device(number)) for number in range(4)] == [(1, cost)] * 4
    assert (monitor.counted("contributors.direct"), monitor.counted("direct.sums")) == (4, 2)
    assert monitor.counted("contributors") == monitor.counted("rounds.released") == 0, "no round, and no cohort"


async def test_plans_versions_and_periods_have_sums_of_their_own(store: CollectorStore) -> None:
    second, other = direct_plan(2), direct_plan(name="other")
    for plan in (second, other):
        store.put_plan(plan, NOW)
    async with sums(store) as (made, _):
        done = [add(made, 0), add(made, 1, plan=second), add(made, 0, plan=other), add(made, 0, period=PERIOD - DAY_S)]
        stored = [await one for one in done]
    assert len({one.round_id for one in stored if isinstance(one, Stored)}) == 4
    assert {s.contributors for s in store.released_sums()} == {1}


async def test_who_is_counted_already_is_left_out_and_the_rest_is_stored(store: CollectorStore) -> None:
    """Another replica, or a round that ended in between, was first."""
    store.store_release(make_release(PLAN, "first", range(100, 150), totals=[0, 50, 0, 0, 0]))
    async with sums(store) as (made, _):
        done = [add(made, number) for number in (7, 100, 8, 149)]
        stored = [await one for one in done]
    assert stored[1] == stored[3] == ALREADY
    assert stored[0] == stored[2]
    assert isinstance(stored[0], Stored)
    assert stored[0].contributors == 2
    assert {s.totals for s in store.released_sums("cold_start_ms")} == {(0,), (1400,)}
    assert store.device_totals(device(100)) == (1, PLAN.report_micro_epsilon)


async def test_all_counted_already_stores_nothing(store: CollectorStore) -> None:
    store.store_release(make_release(PLAN, "first", range(50), totals=[0, 50, 0, 0, 0]))
    async with sums(store) as (made, monitor):
        assert await asyncio.gather(add(made, 0), add(made, 1)) == [ALREADY, ALREADY]
    assert len(store.rounds()) == 1
    assert monitor.counted("direct.sums") == 0


async def test_an_outage_leaves_every_report_with_its_device(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError(store.where, StoreProblem.FULL)

    async with sums(store) as (made, monitor):
        with monkeypatch.context() as patched:
            patched.setattr(CollectorStore, "store_releases", full)
            patched.setattr("collector.service.store_access.PATIENCE_S", 0.01)
            patched.setattr("collector.service.store_access.PROBE_EVERY_S", 0.01)
            assert await asyncio.gather(add(made, 0), add(made, 1)) == [RejectionReason.STORAGE] * 2
        assert store.rounds() == []
        assert monitor.counted("outages.full") == 1
        again = await add(made, 0)
        assert isinstance(again, Stored)


async def test_a_slip_of_ours_keeps_nobody_waiting(store: CollectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def slip(*_: object) -> None:
        raise RuntimeError("a slip")

    monkeypatch.setattr(direct_sums._Sum, "release", slip)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with sums(store) as (made, _):
        assert await add(made, 0) is RejectionReason.STORAGE


async def test_a_full_sum_does_not_wait(store: CollectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_sums, "MOST", 2)
    monkeypatch.setattr(direct_sums, "GATHER_S", 60.0)
    async with sums(store) as (made, _):
        async with asyncio.timeout(10):
            stored = await asyncio.gather(add(made, 0), add(made, 1))
        waiting = add(made, 2)
        await asyncio.sleep(0)
        assert not waiting.done()
    assert isinstance(stored[0], Stored)
    assert stored[0].contributors == 2
    assert isinstance(waiting.result(), Stored), "stopping stores what is there"


async def test_what_comes_after_the_end_is_told_so_and_stays_with_its_device(store: CollectorStore) -> None:
    """A call that was on its way when the collector began to stop: nobody would store its report any more."""
    async with sums(store) as (made, _):
        before = add(made, 0)
        await made.stop()
        after = add(made, 1)
        assert after.done()
    assert isinstance(before.result(), Stored)
    assert after.result() is RejectionReason.SHUTTING_DOWN
    assert [one.device_id for one in store.contributions()] == [device(0)]
    assert made._open == {}


def test_no_sum_can_leave_64_bits() -> None:
    class Wide:
        bound = 2**61

    plan: Any = Wide()
    assert most_reports(plan) == 3
    assert 3 * plan.bound < 2**63 <= 4 * plan.bound
    assert most_reports(PLAN) == direct_sums.MOST


async def test_who_opted_out_meanwhile_is_in_the_sum_and_in_no_ledger(store: CollectorStore) -> None:
    async with sums(store) as (made, _):
        done = [add(made, 0), add(made, 1)]
        assert store.forget(device(0), NOW, certified=True)
        stored = await asyncio.gather(*done)
    assert stored[0] == stored[1]
    assert store.device_totals(device(0)) == (0, 0)
    assert store.device_totals(device(1)) == (1, PLAN.report_micro_epsilon)


async def test_a_caller_that_goes_away_takes_no_report_with_it(store: CollectorStore) -> None:
    async with sums(store) as (made, _):
        done = add(made, 0)

        async def caller() -> None:
            await asyncio.shield(done)

        task = asyncio.create_task(caller())
        await asyncio.sleep(0)
        task.cancel()
        assert isinstance(await done, Stored)
    assert len(store.contributions()) == 1
