"""Reports that came unmasked, on their way into the store: those of one moment become one sum per plan and period.

Rules of this file:
- a report is in memory for a moment only, and is stored as a part of a sum, never by itself (where nobody else came in
  that moment, the sum is of one: its device allowed that);
- sum, contributors and spends are one transaction, and only when it is on the disk anybody hears of it;
- where some are counted already (by another replica), the rest is stored without them; whatever else goes wrong leaves
  all reports with their devices.
What it does not do: it judges no report (`collector.direct` does), and hides nobody: every one is booked as direct.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from client_sdk.errors import RejectionReason, StorageError
from client_sdk.plan import Plan
from collector.service.lobby import ROUND_ID_BYTES
from collector.service.logs import fields
from collector.service.mailbox import PoolKey
from collector.service.rounds import RoundTools
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError
from collector.service.storage_rows import (
    DIRECT,
    DROPOUT_STEPS,
    Contributor,
    DuplicateContributionError,
    Release,
)

log = logging.getLogger(__name__)

GATHER_S: Final = 0.25
"""How long a report waits for company: a device's own call ends that much later."""

MOST: Final = 1000
"""Reports of one sum: what one transaction stores."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The sum that holds a report."""

    round_id: str
    contributors: int


ALREADY: Final = "already"
Result = Stored | RejectionReason | str
"""ALREADY: another sum holds it; ask the store which."""


@dataclass(frozen=True, slots=True)
class _Entry:
    contributor: Contributor = field(repr=False)
    elements: npt.NDArray[np.int64] = field(repr=False)
    done: asyncio.Future[Result]


class DirectSums:
    """Of one collector. Used on the event loop only."""

    def __init__(self, tools: RoundTools) -> None:
        self._tools = tools
        self._open: dict[PoolKey, _Sum] = {}
        self._storing: set[asyncio.Task[None]] = set()
        self._stopped = False

    def add(
        self, plan: Plan, period_start: int, contributor: Contributor, elements: npt.NDArray[np.int64]
    ) -> asyncio.Future[Result]:
        """What became of a report, once that is certain; the future is never cancelled and holds no exception."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._stopped:  # nobody would store it any more
            done.set_result(RejectionReason.SHUTTING_DOWN)
            return done
        key = (plan.hash, period_start)
        held = self._open.get(key)
        if held is None:
            held = self._open[key] = _Sum(plan, period_start)
            held.timer = asyncio.get_running_loop().call_later(GATHER_S, self._close, key)
        held.entries.append(_Entry(contributor, elements, done))
        if len(held.entries) >= most_reports(plan):
            self._close(key)
        return done

    def _close(self, key: PoolKey) -> None:
        held = self._open.pop(key, None)
        if held is None:
            return
        if held.timer is not None:
            held.timer.cancel()
        task = asyncio.create_task(self._store(held), name="direct sum")
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def stop(self) -> None:
        """Store what is there now, and take no more."""
        self._stopped = True
        for key in tuple(self._open):
            self._close(key)
        if self._storing:
            await asyncio.wait(tuple(self._storing), timeout=5.0)

    async def _store(self, held: _Sum) -> None:
        entries = held.entries
        try:
            while entries:
                entries = await self._try(held, entries)
        finally:  # by a slip of ours, or at the end: nobody waits for ever
            _answer(held.entries, RejectionReason.STORAGE)

    async def _try(self, held: _Sum, entries: list[_Entry]) -> list[_Entry]:
        """Those that are to be tried again, without those that are counted already."""
        release = held.release(entries, self._tools.clock())
        try:
            await self._tools.store.call_gathered(CollectorStore.store_releases, release)
        except DuplicateContributionError as error:
            twice = set(error.devices)
            _answer([entry for entry in entries if entry.contributor.device_id in twice], ALREADY)
            return [entry for entry in entries if entry.contributor.device_id not in twice]
        except StoreError:  # said in the log once an outage, by the store's access
            return []
        except StorageError as error:
            log.error("a direct sum of %d was not stored: %s", len(entries), error)
            return []
        self._tools.monitor.direct_stored(len(entries))
        log.info("direct sum %s: %d reports", release.round_id, len(entries), extra=_fields(release))
        _answer(entries, Stored(release.round_id, len(entries)))
        return []


@dataclass
class _Sum:
    plan: Plan
    period_start: int
    entries: list[_Entry] = field(default_factory=list, repr=False)
    timer: asyncio.TimerHandle | None = None
    began: float = field(default_factory=time.monotonic)

    def release(self, entries: Sequence[_Entry], now: float) -> Release:
        """Under a name of its own at each attempt: what became of an attempt that failed is not always known."""
        contributors = [entry.contributor for entry in entries]
        totals = np.add.reduce([entry.elements for entry in entries])
        return Release(
            round_id=secrets.token_urlsafe(ROUND_ID_BYTES),
            plan=self.plan,
            period_start=self.period_start,
            totals=totals.tolist(),
            contributors=contributors,
            roster_size=len(contributors),
            resent=sum(contributor.resent for contributor in contributors),
            dropouts=dict.fromkeys(DROPOUT_STEPS, 0),
            seconds=time.monotonic() - self.began,
            now=int(now),
            delivery=DIRECT,
        )


def most_reports(plan: Plan) -> int:
    """Of one sum: its cells are signed 64-bit integers."""
    return min(MOST, (2**63 - 1) // plan.bound)


def _answer(entries: Sequence[_Entry], result: Result) -> None:
    for entry in entries:
        if not entry.done.done():
            entry.done.set_result(result)


def _fields(release: Release) -> dict[str, object]:
    return fields("direct_sum_stored", round=release.round_id, contributors=len(release.contributors))
