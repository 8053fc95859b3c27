"""Where an upload waits for the disk: off the loop of an asyncio host, inline in a thread of our own.

Rules of this file: a job that has begun ends before whoever awaits it goes on, cancelled or not; so no
transaction outlives its upload, and what follows it (the lease given back) finds it done. The threads are the
loop's default executor, the host's to size. What it does not do: it makes no two jobs of one upload overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def run_job(job: Callable[[], Result], *, off_loop: bool) -> Result:
    """What `job()` returns or raises."""
    if not off_loop:
        return job()
    try:
        running = asyncio.get_running_loop().run_in_executor(None, job)
    except RuntimeError:  # no more threads: a short wait on the loop is better than no report
        return job()
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _end_of(running)
        raise


async def _end_of(running: asyncio.Future[Result]) -> None:
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):  # the caller raises it, once, when the job has ended
            await asyncio.wait({running})
    if not running.cancelled():
        running.exception()  # seen: nobody else will ask
