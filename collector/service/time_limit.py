"""One time limit for the many short waits of a stream.

Rules of this file: a wait that lasts longer than the limit ends in TimeoutError, as within `asyncio.timeout`; one timer
serves all waits of its task, one after the other, because most are over long before it rings.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class TimeLimit:
    """For the task that makes it. `with limit:` around each wait, not one inside another; `close` when all is done."""

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be limited")
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._cancelling = 0
        self._expired = False

    def __enter__(self) -> None:
        self._cancelling = self._task.cancelling()
        self._due = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._due = None
        if not self._expired:
            return
        self._expired = False
        # more requests to end than ours: then the task ends, whatever the time
        if self._task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def close(self) -> None:
        """No more waits: let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._due is None:
            return  # between two waits; the next one sets it again
        if self._due > self._loop.time():
            self._timer = self._loop.call_at(self._due, self._look)
            return
        self._expired = True
        self._task.cancel()
