"""Group commit: what queues for the store while it writes goes into its next transaction together.

Rules of this file: nothing waits for company that is not there, a first item goes at once; nobody hears of an item
before the transaction that holds it is on disk; what is wrong with one of them is no other one's fault, so a group that
fails for its contents is done again one by one; a group has to end within the store's time limits, so that a backlog
of large items shrinks.
What it does not do: it repeats nothing that may have been stored. Where the store itself failed, all are told so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from client_sdk.errors import StorageError, TelemetryError
from collector.service.storage_errors import StoreError, StoreProblem

log = logging.getLogger(__name__)

Item = TypeVar("Item")

MOST: Final = 32
"""Items of one transaction: nearly all of what there is to win, and a lock that others wait for is soon free."""

MOST_ROWS: Final = 50_000
"""Rows of one transaction, about; one item always goes. A few seconds of a slow server, far from its time limit."""


def rows_of(item: object) -> int:
    """What an item says of itself, or 1."""
    return int(getattr(item, "rows", 1))


class GroupCommit(Generic[Item]):
    """`store`: per item None, or why it alone was not stored; raises for all of them. `rows`: of an item, about.

    Used on the event loop only.
    """

    def __init__(
        self,
        store: Callable[[Sequence[Item]], Awaitable[Sequence[Exception | None]]],
        rows: Callable[[Item], int] = rows_of,
    ) -> None:
        self._store = store
        self._rows = rows
        self._waiting: deque[tuple[Item, asyncio.Future[None]]] = deque()
        self._at_work: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> None:
        """Returns when the item is on disk; raises what says that it is not, or may not be.

        Raises StorageError where the store raised what is no error of this program.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._at_work is None:
            self._at_work = asyncio.create_task(self._run(), name="group commit")
        await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._next_group())
        finally:
            self._at_work = None
            for _, done in self._waiting:  # at the end of the loop: nobody waits for ever
                done.cancel()

    def _next_group(self) -> list[tuple[Item, asyncio.Future[None]]]:
        group = [self._waiting.popleft()]
        rows = self._rows(group[0][0])
        while self._waiting and len(group) < MOST:
            rows += self._rows(self._waiting[0][0])
            if rows > MOST_ROWS:
                break
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: list[tuple[Item, asyncio.Future[None]]]) -> None:
        try:
            outcomes = await self._store([item for item, _ in group])
        except TelemetryError as error:
            if len(group) > 1 and _of_contents(error):
                for one in group:
                    await self._commit([one])
                return
            for _, done in group:
                _tell(done, error.again() if isinstance(error, StoreError) else error)
        except Exception as error:  # a slip of ours: said, and each is told, or its round would wait or end unheard
            log.exception("a group of %d was not stored, or may not be", len(group))
            for _, done in group:
                _tell(done, StorageError(f"the store failed with {type(error).__name__}; see the log"))
        else:
            for (_, done), outcome in zip(group, outcomes, strict=True):
                _tell(done, outcome)
        finally:
            for _, done in group:  # at the end
                done.cancel()


def _of_contents(error: TelemetryError) -> bool:
    return not isinstance(error, StoreError) or error.problem is StoreProblem.REFUSED


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # its round has ended meanwhile
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
