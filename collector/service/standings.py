"""What the store knows of devices that join, asked for many at once.

Rules of this file: the questions of one moment are asked together, because a look-up of twenty costs hardly more
than one; nothing is kept between two answers, so that no answer is older than its question.
"""

from __future__ import annotations

import asyncio

from collector.service.storage import CollectorStore, Question, Standing
from collector.service.storage_errors import StoreError
from collector.service.store_access import StoreAccess

GATHER_S = 0.03
"""How long a question waits for company; little beside a cohort's `max_wait`."""

Answer = asyncio.Future[Standing]


class Standings:
    """Asks one store. Used on the event loop only."""

    def __init__(self, store: StoreAccess[CollectorStore]) -> None:
        self._store = store
        self._waiting: list[tuple[Question, Answer]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Standing:
        """What is booked for the device. Raises StoreError."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="standings")
        return await answer

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(GATHER_S)
                batch, self._waiting = self._waiting, []
                await self._ask(batch)
        finally:
            self._asking = None

    async def _ask(self, batch: list[tuple[Question, Answer]]) -> None:
        try:
            found = await self._store.call(CollectorStore.standings, [question for question, _ in batch])
        except StoreError as error:
            for answer in _open(batch):
                answer.set_exception(error.again())
        else:
            for question, answer in batch:
                if not answer.done():  # else its stream has ended meanwhile
                    answer.set_result(found[question])
        finally:
            for answer in _open(batch):  # by a slip of ours, or at the end: nobody waits for ever
                answer.cancel()


def _open(batch: list[tuple[Question, Answer]]) -> list[Answer]:
    return [answer for _, answer in batch if not answer.done()]
