"""One limit for many waits: each is measured by itself, and whoever else ends the task still does."""

from __future__ import annotations

import asyncio

import pytest

from collector.service.time_limit import TimeLimit

LONG_S = 60.0


async def test_a_wait_that_lasts_too_long_ends_alone() -> None:
    limit = TimeLimit(0.0)
    task = asyncio.current_task()
    assert task is not None
    for _ in range(2):  # the second time with a timer of its own
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()
        assert task.cancelling() == 0
    limit.close()


async def test_a_timer_that_rings_early_is_set_again() -> None:
    """It was set for an earlier wait: between waits, and while one still has time, nothing is late."""
    limit = TimeLimit(LONG_S)
    with limit:
        await asyncio.sleep(0)
    limit._look()
    assert limit._timer is None
    with limit:
        limit._look()
        await asyncio.sleep(0)
        assert limit._timer is not None
    limit.close()
    assert limit._timer is None


async def test_who_is_ended_by_others_is_not_late() -> None:
    entered = asyncio.Event()

    async def waits() -> None:
        with TimeLimit(LONG_S):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_ended_by_both_is_ended() -> None:
    """The timer rings and somebody else cancels before the task runs again: it must not live on as merely late."""
    limits: list[TimeLimit] = []

    async def waits() -> None:
        limits.append(TimeLimit(0.0))
        with limits[0]:
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    limits[0]._look()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_is_the_error() -> None:
    limit = TimeLimit(LONG_S)
    with pytest.raises(ValueError, match="ours"), limit:
        raise ValueError("ours")
    limit.close()
