"""The event loop's way to the store: one thread that touches it, and one memory of whether it works.

Rules of this file:
- the store is only ever touched from its one thread, so that its transactions have an order and the loop
  never waits for a disk;
- a store that fails begins an outage: one line in the log, and until it ends every call is answered at once
  with what is wrong, also those that queue already, instead of each waiting out a lock of its own;
- an outage ends by itself: a probe that writes as a release would is repeated until it succeeds. A damaged
  file is the exception: nothing more is written into it before somebody has looked at it and started again.
What it does not do: it repeats no call. Whoever is refused still holds its report and comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar

from client_sdk.errors import StorageError
from collector.service.monitoring import Monitor
from collector.service.storage_base import SqliteStore
from collector.service.storage_errors import StoreError, StoreProblem

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Store = TypeVar("Store", bound=SqliteStore)

PROBE_EVERY_S: Final = 1.0

PATIENCE_S: Final = 5.0
"""How long a release waits for an outage to end: masked inputs have left their devices, so it is worth a wait."""

NO_OUTAGE: Final = frozenset({StoreProblem.REFUSED})
"""The fault of one call's rows, not of the store."""


class StoreAccess(Generic[Store]):
    """Runs calls of one store, one after the other. Made and used on the event loop."""

    def __init__(self, store: Store, monitor: Monitor) -> None:
        self._store = store
        self._monitor = monitor
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._outage: StoreError | None = None
        self._works = asyncio.Event()
        self._works.set()
        self._watch: asyncio.Task[None] | None = None
        self.on_outage: Callable[[StoreProblem], None] = _nobody_cares

    # --- calls ---

    async def call(self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`method(store, *args, **kwargs)` in the store's thread; raises what it raises, StoreError in an outage."""
        self.require_working()
        try:
            return await self._in_thread(lambda: self._unless_outage(method, *args, **kwargs))
        except StoreError as error:
            if error.problem in NO_OUTAGE:
                log.error("%s", error)
            self._begin_watch()
            raise

    async def call_patiently(
        self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`call`, which waits up to PATIENCE_S for an outage to end first."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._works.wait(), PATIENCE_S)
        return await self.call(method, *args, **kwargs)

    def require_working(self) -> None:
        """Raises StoreError in an outage."""
        outage = self._outage
        if outage is not None:
            raise StoreError(outage.path, outage.problem)

    def _unless_outage(self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """In the store's thread, which alone begins an outage: whoever queues behind a failure is not tried."""
        self.require_working()
        try:
            return method(self._store, *args, **kwargs)
        except StoreError as error:
            if error.problem not in NO_OUTAGE:
                self._outage = error
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    # --- outages ---

    def _begin_watch(self) -> None:
        if self._outage is None or self._watch is not None:
            return
        self._works.clear()
        self._say(self._outage)
        self._watch = asyncio.create_task(self._watch_outage(self._outage.problem), name="store outage")
        self.on_outage(self._outage.problem)

    def _say(self, outage: StoreError) -> None:
        problem = outage.problem
        self._monitor.count(f"outages.{problem.value}")
        lasting = "until this service is started again" if problem is StoreProblem.DAMAGED else "until it works again"
        log.error("store outage (%s): %s; devices are told to come back %s", problem.value, outage, lasting)

    async def _watch_outage(self, problem: StoreProblem) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._outage is not None:
            if self._outage.problem is not problem:  # it has become something else, with another remedy
                problem = self._outage.problem
                self._say(self._outage)
            await asyncio.sleep(PROBE_EVERY_S)
            if problem is not StoreProblem.DAMAGED:
                await self._in_thread(self._probe)
        self._watch = None
        self._works.set()
        log.warning("store outage (%s) is over after %.0f s", problem.value, loop.time() - began)

    def _probe(self) -> None:
        try:
            self._store.probe()
        except StoreError as error:
            self._outage = error
        else:
            self._outage = None

    # --- the end ---

    async def close(self, timeout_s: float) -> bool:
        """Close the store after everything that queues; False where it did not come back in time."""
        if self._watch is not None:
            self._watch.cancel()
        try:
            await asyncio.wait_for(asyncio.shield(self._in_thread(self._store.close)), timeout_s)
        except (TimeoutError, StorageError):
            return False
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)
        return True


def _nobody_cares(_problem: StoreProblem) -> None:
    """Until a lobby is there."""
