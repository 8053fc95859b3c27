"""The collector's daily tidying up: what it keeps, `retention` decides; here are only the clock and the counters.

Rules of this file: the first run waits ten minutes, because at a start the devices of an outage come back; a run that
fails is said, counted and tried again the next day; so is one by a clock that may be wrong (`retention`). Of several
collectors on one database one is at work at a time, and what the others find then is already tidy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from client_sdk.errors import PlanError
from collector.service.logs import fields
from collector.service.monitoring import Monitor
from collector.service.retention import ClockError, Retention, Tidied
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError
from collector.service.store_access import StoreAccess

log = logging.getLogger(__name__)

FIRST_S: Final = 600.0
EVERY_S: Final = 86_400.0


class Housekeeping:
    """Of one collector. clock: seconds since the epoch. last_success_at: of this process, by that clock."""

    def __init__(
        self, store: StoreAccess[CollectorStore], monitor: Monitor, clock: Callable[[], float], keep: Retention
    ) -> None:
        self._store = store
        self._keep = keep
        self._monitor = monitor
        self._clock = clock
        self.last_success_at: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            await self.once()
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        """Now, piece by piece: devices' calls come in between. What fails waits for the next time."""
        done = []
        try:
            now = await self._store.call(CollectorStore.agreed_time, self._clock())
            pieces = await self._store.call(CollectorStore.house_pieces, now, self._keep)
            while (piece := await self._store.call(keep_house, pieces)) is not None:
                done.append(piece)
        except ClockError as error:
            self._monitor.count("housekeeping.failures")
            log.error("housekeeping: %s", error, extra=fields("housekeeping_clock"))
            return
        except (StoreError, PlanError):  # a plan that this version cannot read: then nothing is known to be old
            self._monitor.count("housekeeping.failures")
            log.warning("housekeeping failed; tried again tomorrow", extra=fields("housekeeping_failed"))
            return
        self.last_success_at = self._clock()
        tidied = Tidied.all_of(done)
        for table, rows in tidied._asdict().items():
            self._monitor.count(f"housekeeping.{table}", rows)
        log.info(
            "housekeeping: %d old spends folded; dropped: %d rows of who contributed to old periods, %d old rounds "
            "without a sum", *tidied, extra=fields("housekeeping", **tidied._asdict()),
        )  # fmt: skip


def keep_house(_store: CollectorStore, pieces: Iterator[Tidied]) -> Tidied | None:
    """One piece, in the store's thread; None: all is done."""
    return next(pieces, None)
