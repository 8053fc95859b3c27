"""Processes that open sums: key agreements and small keystreams hold the interpreter's lock.

Rules of this file: workers are spawned, not forked (gRPC's threads do not survive a fork); they ignore the
terminal's and the supervisor's signals, because the collector decides when they stop, and they end with the
collector even when it is killed: each holds the reading end of a pipe whose writing end only the collector
has. What is left of a killed collector's semaphores goes with the interpreter's own resource tracker, in silence: its
warnings would be lines of another format in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from client_sdk.errors import AbortReason, RoundAbortedError, StorageError
from collector.secagg.blame import SeedsRefusedError
from collector.secagg.opening import Opening, open_sum

_WARNINGS = "PYTHONWARNINGS"

Refusal = tuple[AbortReason, int, int, tuple[int, ...]]
"""A RoundAbortedError as plain data, with the members it blames: keyword arguments do not survive pickling."""


class OpeningWorkers:
    """A pool of processes that open sums; started on first use, or ahead of it by `warm`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None
        self._leash: Connection | None = None

    async def warm(self) -> None:
        """Start a worker and let it import what it needs, before the first round asks for it."""
        with contextlib.suppress(BrokenProcessPool):
            await asyncio.get_running_loop().run_in_executor(self._start(), os.getpid)

    async def open(self, opening: Opening) -> list[int]:
        """The signed totals of one round. Raises what `open_sum` raises; a worker that died is replaced once."""
        loop = asyncio.get_running_loop()
        for _ in range(2):
            executor = self._start()
            try:
                result = await loop.run_in_executor(executor, _open_in_worker, opening)
            except BrokenProcessPool:
                if executor is self._executor:  # another round may have replaced it already
                    self.close()
                continue
            if isinstance(result, list):
                return result
            reason, have, need, blamed = result
            if blamed:
                raise SeedsRefusedError(blamed, have=have, need=need)
            raise RoundAbortedError(reason, have=have, need=need)
        raise StorageError("the process that opens sums died twice; see the machine's memory limits")

    def close(self) -> None:
        """End all workers at once, also one that is at work or still starting: the interpreter would wait for it."""
        if self._executor is not None:
            workers = tuple((self._executor._processes or {}).values())  # noqa: SLF001 - public from Python 3.14 on
            self._executor.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.kill()
        if self._leash is not None:
            self._leash.close()
        self._executor = self._leash = None

    def _start(self) -> ProcessPoolExecutor:
        if self._executor is None:
            _start_tracker()
            context = multiprocessing.get_context("spawn")
            watched, self._leash = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(
                self._workers, mp_context=context, initializer=_init_worker, initargs=(watched,)
            )
        return self._executor


def _start_tracker() -> None:
    """The process that removes semaphores; an interpreter of its own that reads its filters from the environment."""
    before = os.environ.get(_WARNINGS)
    os.environ[_WARNINGS] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[_WARNINGS]
        else:
            os.environ[_WARNINGS] = before


def _init_worker(watched: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_collector, args=(watched,), daemon=True).start()


def _end_with_collector(watched: Connection) -> None:
    """Nothing is ever written into the pipe: a reading end that stirs means that the writer is gone."""
    with contextlib.suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(0)


def _open_in_worker(opening: Opening) -> list[int] | Refusal:
    try:
        return open_sum(opening)
    except SeedsRefusedError as error:
        return (error.reason, error.have, error.need, tuple(blame.index for blame in error.blamed))
    except RoundAbortedError as error:
        return (error.reason, error.have, error.need, ())
