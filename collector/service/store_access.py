"""The event loop's way to the store: one thread that touches it, and one memory of whether it works.

Rules of this file:
- the store is only ever touched from its one thread, so that its transactions have an order and the loop
  never waits for a disk; what is gathered meanwhile shares the next transaction;
- a store that fails begins an outage: one line in the log, and until it ends every call is answered at once
  with what is wrong, also those that queue already, instead of each waiting out a lock of its own;
- an outage ends by itself: a probe that touches every table and goes through the write that failed (and takes it back,
  see `storage_base`) is repeated until it succeeds. So one line begins an outage and one ends it, however long it is,
  and no device gives a masked input away for a trial. A damaged store is the exception: nothing more is written into
  it before somebody has looked at it and started again.
What it does not do: it repeats no call. Whoever is refused still holds its report and comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from client_sdk.errors import StorageError
from collector.service.group_commit import GroupCommit, rows_of
from collector.service.logs import fields
from collector.service.monitoring import Monitor
from collector.service.storage_base import Store
from collector.service.storage_errors import LASTING, StoreError, StoreProblem

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
AnyStore = TypeVar("AnyStore", bound=Store)

PROBE_EVERY_S: Final = 1.0

PATIENCE_S: Final = 5.0
"""How long a release waits for an outage to end: masked inputs have left their devices, so it is worth a wait."""

NO_OUTAGE: Final = frozenset({StoreProblem.REFUSED})
"""The fault of one call's rows, not of the store."""


class StoreAccess(Generic[AnyStore]):
    """Runs calls of one store, one after the other. Made and used on the event loop."""

    def __init__(self, store: AnyStore, monitor: Monitor) -> None:
        self._store = store
        self._monitor = monitor
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._outage: StoreError | None = None
        self._works = asyncio.Event()
        self._works.set()
        self._watch: asyncio.Task[None] | None = None
        self._groups: dict[Any, GroupCommit[Any]] = {}
        self.on_outage: Callable[[StoreProblem], None] = _nobody_cares

    # --- calls ---

    async def call(self, method: Callable[Concatenate[AnyStore, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`method(store, *args, **kwargs)` in the store's thread; raises what it raises, StoreError in an outage."""
        self.require_working()
        took: list[float] = []
        try:
            return await self._in_thread(lambda: self._unless_outage(took, method, *args, **kwargs))
        except StoreError as error:
            if error.problem in NO_OUTAGE:
                log.error("%s", error)
            self._begin_watch()
            raise
        finally:
            for seconds in took:
                self._monitor.database(method.__name__, seconds)

    async def call_gathered(
        self, method: Callable[[AnyStore, Sequence[Item]], Sequence[Exception | None]], item: Item, /
    ) -> None:
        """`call` of `method(store, items)`, with this item and whatever else queues for the same method.

        In an outage it waits up to PATIENCE_S for the end first. Raises what the method says of the item, or raises.
        """
        await self._patience()
        group = self._groups.get(method)
        if group is None:
            group = self._groups[method] = GroupCommit(lambda items: self.call(method, items), rows_of)
        await group.put(item)

    async def _patience(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._works.wait()

    def require_working(self) -> None:
        """Raises StoreError in an outage."""
        outage = self._outage
        if outage is not None:
            raise outage.again()

    @property
    def working(self) -> bool:
        """False in an outage, as far as is known."""
        return self._outage is None

    def _unless_outage(
        self, took: list[float], method: Callable[Concatenate[AnyStore, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """In the store's thread, which alone begins an outage: whoever queues behind a failure is not tried.

        took: gets the seconds of the call itself.
        """
        self.require_working()
        began = time.perf_counter()
        try:
            return method(self._store, *args, **kwargs)
        except StoreError as error:
            if error.problem not in NO_OUTAGE:
                self._outage = error
            raise
        finally:
            took.append(time.perf_counter() - began)

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
        lasting = "until this service is started again" if problem in LASTING else "until it works again"
        log.error(
            "store outage (%s): %s; devices are told to come back %s", problem.value, outage, lasting,
            extra=fields("outage", problem=problem.value),
        )  # fmt: skip

    async def _watch_outage(self, problem: StoreProblem) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._outage is not None:
            if self._outage.problem is not problem:  # it has become something else, with another remedy
                problem = self._outage.problem
                self._say(self._outage)
            await asyncio.sleep(PROBE_EVERY_S)
            if problem not in LASTING:
                await self._in_thread(self._probe)
        self._watch = None
        self._works.set()
        lasted_s = loop.time() - began
        said = fields("outage_over", problem=problem.value, seconds=round(lasted_s, 3))
        log.warning("store outage (%s) is over after %.0f s", problem.value, lasted_s, extra=said)

    def _probe(self) -> None:
        try:
            self._store.probe()
        except StoreError as error:  # whatever goes wrong is one: else nobody would ever end the outage
            self._outage = error
        else:
            self._outage = None

    # --- the end ---

    async def close(self, timeout_s: float) -> bool:
        """Close the store after everything that queues; False where it did not come back in time."""
        if self._watch is not None:
            self._watch.cancel()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._in_thread(self._store.close))
        except (TimeoutError, StorageError):
            return False
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)
        return True


def _nobody_cares(_problem: StoreProblem) -> None:
    """Until a lobby is there."""
