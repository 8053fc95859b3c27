"""Who is cancelled ends, also in the very step of the loop in which what it waits for comes true.

Every wait is cancelled so many steps after its event, for each number of steps that can make a difference: whoever
lives still must end as cancelled, or its server waits for it for ever.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import StorageError
from collector.service import health as health_module
from collector.service import store_access as access_module
from collector.service.health import NOT_SERVING, SERVING, WHOLE, Health
from collector.service.monitoring import Monitor
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.store_access import StoreAccess

ROOT = Path(__file__).resolve().parents[4]
STEPS = range(8)


class Storeless:
    """A store of which nothing is wanted but that it closes."""

    def __init__(self, ending: Callable[[], None] = lambda: None) -> None:
        self.close = ending


class Watching:
    """The context of a Watch: what was said in it."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    async def write(self, status: bytes) -> None:
        self.said.append(status)


def access_to(store: Storeless) -> StoreAccess[Any]:
    return StoreAccess[Any](store, Monitor())  # type: ignore[type-var]


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def ends_as_told(work: Coroutine[Any, Any, Any], happens: Callable[[], object], after: int) -> None:
    """Cancels `work` so many steps after `happens`: it ends as cancelled, if it has not ended before."""
    task = asyncio.ensure_future(work)
    await steps(20)
    happens()
    await steps(after)
    lived = task.cancel()
    assert lived or after, "the case was reached: it waits"
    done, _ = await asyncio.wait([task], timeout=10)
    assert done, "it lives on"
    assert task.cancelled() == lived


@pytest.mark.parametrize("after", STEPS)
async def test_who_is_patient_with_an_outage(after: int) -> None:
    access = access_to(Storeless())
    access._works.clear()
    await ends_as_told(access._patience(), access._works.set, after)
    assert await access.close(10)


@pytest.mark.parametrize("after", STEPS)
async def test_who_watches_a_server_that_stops(after: int) -> None:
    health, context = Health(answers, {}), Watching()
    await ends_as_told(health.watch(b"", context), health.stop, after)  # type: ignore[arg-type]
    assert context.said in ([SERVING], [SERVING, NOT_SERVING])
    assert health._watchers == 0


@pytest.mark.parametrize("after", STEPS)
async def test_who_asks_while_the_store_answers(after: int) -> None:
    answered = asyncio.Event()

    async def probe() -> None:
        await answered.wait()

    await ends_as_told(Health(probe, {}).serving(WHOLE), answered.set, after)


@pytest.mark.parametrize("after", STEPS)
async def test_who_closes_a_store(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    access, closed = access_to(Storeless()), asyncio.get_running_loop().create_future()

    async def in_thread(_work: object) -> None:
        await closed

    monkeypatch.setattr(access, "_in_thread", in_thread)
    await ends_as_told(access.close(10), lambda: closed.set_result(None), after)


async def answers() -> None:
    """A store that works."""


# --- each limit is one all the same -----------------------------------------------------------------------------------


async def test_a_store_that_does_not_answer_in_time_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[BaseException] = []

    async def probe() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            ended.append(error)
            raise

    monkeypatch.setattr(health_module, "PROBE_TIMEOUT_S", 0.01)
    assert not await Health(probe, {}).serving()
    assert len(ended) == 1, "nothing of it is left behind"


async def test_a_store_that_says_what_is_wrong_does_not_work() -> None:
    async def probe() -> None:
        raise StoreError("a.db", StoreProblem.FULL)

    assert not await Health(probe, {}).serving()


async def test_a_watcher_is_told_of_the_end_and_does_not_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "WATCH_EVERY_S", 600.0)
    health, context = Health(answers, {}), Watching()
    watch = asyncio.create_task(health.watch(b"", context))  # type: ignore[arg-type]
    await steps(20)
    assert context.said == [SERVING]
    health.stop()
    await steps(20)
    assert context.said == [SERVING, NOT_SERVING]
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch


async def test_a_watcher_looks_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    works, said = [True], asyncio.Event()

    async def probe() -> None:
        if not works[0]:
            raise StoreError("a.db", StoreProblem.FULL)

    class Told(Watching):
        async def write(self, status: bytes) -> None:
            await super().write(status)
            said.set()

    monkeypatch.setattr(health_module, "WATCH_EVERY_S", 0.01)
    monkeypatch.setattr(health_module, "FRESH_S", 0.0)
    context = Told()
    watch = asyncio.create_task(Health(probe, {}).watch(b"", context))  # type: ignore[arg-type]
    for expected in ([SERVING], [SERVING, NOT_SERVING]):
        async with asyncio.timeout(20):
            await said.wait()
        said.clear()
        assert context.said == expected
        works[0] = False
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "PATIENCE_S", 0.01)
    access = access_to(Storeless())
    access._works.clear()
    await access._patience()
    assert await access.close(10)


async def test_a_store_that_does_not_close_in_time_is_left_to_itself() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def ending() -> None:
        may_end.wait(60)
        ended.set()

    access = access_to(Storeless(ending))
    began = time.monotonic()
    assert not await access.close(0.01)
    assert time.monotonic() - began < 30, "it was not waited for"
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 60), "nor was it broken off"


async def test_a_store_that_fails_to_close_is_no_error_of_the_end() -> None:
    def ending() -> None:
        raise StorageError("the disk is full")

    assert not await access_to(Storeless(ending)).close(10)


def test_nothing_waits_in_the_way_that_can_swallow_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 returns its result where both come in one step; `asyncio.timeout` does not."""
    sources = [path for folder in ("client_sdk", "collector") for path in (ROOT / folder).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in sources if "asyncio.wait_for" in path.read_text()]
    assert found == []
    assert len(sources) > 300
