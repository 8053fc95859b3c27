"""Where a participant's stream and the round that it is in meet.

Rules of this file: the stream's coroutine alone touches the network; a round, or the lobby, only puts
messages here, never waits for a slow reader, and never hears of statuses or sockets. What is put in after
the end is dropped, so that nobody has to ask first whether a participant is still there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_sdk.plan import Plan
from client_sdk.secagg.messages import Advert, CollectorMessage
from collector.service.statuses import Refusal

if TYPE_CHECKING:
    from collector.service.rounds import RoundDriver

SeatKey = tuple[str, str, int]
"""(device id, plan name, period start): what may be counted once, and what may have one stream."""

PoolKey = tuple[bytes, int]
"""(plan hash, period start): who may share a sum."""


@dataclass(frozen=True, slots=True)
class Ending:
    """No more messages. With a reason the stream ends as refused; without, the last message said it all."""

    reason: Refusal | None = None


Sendable = CollectorMessage | Callable[[], bytes]
"""A message, or the work of making and encoding it: done in the stream's turn, not in the round's."""

Item = Sendable | Ending


class Mailbox:
    """Messages on their way to one participant, in order, then one ending.

    Its length is bounded by the protocol: a round sends at most one message a step.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._ended = False

    def send(self, message: Sendable) -> None:
        """Put a message in; never waits."""
        if not self._ended:
            self._put(message)

    def end(self, message: CollectorMessage | None = None, *, reason: Refusal | None = None) -> None:
        """Put the last message in, if there is one, and the ending. Only the first end counts."""
        if message is not None:
            self.send(message)
        if not self._ended:
            self._ended = True
            self._put(Ending(reason))

    async def take(self) -> Item:
        """The next item; waits for it. One stream takes, nobody else."""
        while not self._items:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._items.popleft()

    def clear(self) -> None:
        """The stream has ended: let go of what nobody takes any more."""
        self._items.clear()

    def _put(self, item: Item) -> None:
        self._items.append(item)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


@dataclass(slots=True, eq=False)
class Member:
    """One participant whose advert holds: it waits for a cohort, then sits in a round at `index`.

    `connected` turns false when its stream has ended; `driver` is set while it sits in a round.
    """

    device_id: str
    plan: Plan
    advert: Advert = field(repr=False)
    joined_at: float
    mailbox: Mailbox = field(default_factory=Mailbox, repr=False)
    driver: RoundDriver | None = field(default=None, repr=False)
    index: int = -1
    connected: bool = True

    @property
    def seat_key(self) -> SeatKey:
        """What this member holds against a second stream: one report counts once over all plan versions."""
        return (self.device_id, self.plan.name, self.advert.period_start)

    @property
    def pool_key(self) -> PoolKey:
        """Whom this member may share a sum with: the same plan hash and the same period."""
        return (self.advert.plan_hash, self.advert.period_start)
