"""The background thread: seals what has ended, sends what is due, sleeps on an event in between.

Rules of this file: one daemon thread per folder and process, started with its first client (a period without
any reading is sealed as well); its asyncio loop exists from the first upload on; nothing is live on the network
while it sleeps; stopping cancels what is on the way, for the spool is on disk. What it does not do: it knows no
values, and nobody waits for it but `flush()` and, for a round that others depend on, `close()`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from client_sdk.device import fork_gate
from client_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

LONGEST_SLEEP_S = 300.0
"""Clocks are set and machines are suspended: look at the time again at least this often."""

SHORTEST_SLEEP_S = 0.05
AFTER_FAULT_S = 60.0
DRAIN_S = 0.1
JOIN_S = 0.2

_running: dict[str, Uploader] = {}
_registry_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Tick:
    """`due`: there is something to send now. next_at: when to look again, in seconds since the epoch, or None."""

    due: bool
    next_at: float | None


class Member(Protocol):
    """A client as its uploader sees it."""

    def tick(self, *, everything: bool) -> Tick:
        """Seal what has ended and look what is due. Never raises."""

    def send(self, *, everything: bool) -> Coroutine[object, object, None]:
        """Send what is due, or with `everything` all that waits. Never raises."""


class Uploader:
    """Serves all clients of one folder in this process. Use `uploader_for` and `leave`."""

    def __init__(self, folder: str, endpoint: str, clock: Callable[[], float]) -> None:
        self.folder = folder
        self.endpoint = endpoint
        self._clock = clock
        self._members: list[Member] = []
        self._changed = threading.Condition()
        self._asked = 0
        self._served = 0
        self._everything = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._sending: Member | None = None

    def add(self, member: Member) -> bool:
        """Serve one more client; starts the thread for the first. False: it is ending, take another."""
        with self._changed:
            if self._stopping:
                return False
            if member not in self._members:
                self._members.append(member)
        self._start()
        return True

    def _start(self) -> None:
        with self._changed:
            if self._thread is not None or self._stopping:
                return
            self._thread = threading.Thread(target=self._main, name="ldp-telemetry-uploader", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending: the spool waits on disk
                self._thread = None

    @property
    def alive(self) -> bool:
        """Is somebody there to serve?"""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def ask(self, *, everything: bool = False) -> int:
        """Wake up; with `everything`, send all that waits. Returns a ticket for `wait`."""
        with self._changed:
            self._asked += 1
            self._everything = self._everything or everything
            self._changed.notify_all()
            return self._asked

    def wait(self, ticket: int, timeout_s: float) -> bool:
        """Has a pass that began after `ticket` ended within `timeout_s`?"""
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= ticket or not self.alive, timeout_s)

    def _interrupt(self, member: Member) -> None:
        """Break off what is on the way for this client; it stays in the spool."""
        with self._changed:
            loop, task = self._loop, self._task
            if loop is not None and task is not None and self._sending is member:
                loop.call_soon_threadsafe(task.cancel)

    def leave(self, member: Member, *, in_round: Callable[[], bool], timeout_s: float) -> None:
        """Serve this client no more. Waits up to `timeout_s` only for a round that others depend on."""
        if in_round():
            with self._changed:
                self._changed.wait_for(lambda: not in_round(), timeout_s)
        with self._changed:
            if member in self._members:
                self._members.remove(member)
            self._stopping = not self._members
            self._changed.notify_all()
        self._interrupt(member)
        if self._stopping:
            _forget(self)
            thread = self._thread
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOIN_S)

    def _main(self) -> None:
        try:
            while not self._stopping:
                ticket, everything = self._take_request()
                self._sleep(ticket, self._serve_safely(everything=everything))
        finally:
            self._close_loop()
            with self._changed:
                self._changed.notify_all()

    def _close_loop(self) -> None:
        """Let gRPC's own tasks see that they were cancelled: it complains about unfinished ones."""
        if self._loop is not None:
            import asyncio

            left = asyncio.all_tasks(self._loop)
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=DRAIN_S))
            self._loop.close()

    def _take_request(self) -> tuple[int, bool]:
        with self._changed:
            everything, self._everything = self._everything, False
            return self._asked, everything

    def _serve_safely(self, *, everything: bool) -> float:
        try:
            return self._serve(everything=everything)
        except Exception as error:  # noqa: BLE001 - our own fault must neither print into the host nor end the thread
            with fork_gate.closed():
                from client_sdk.device.reporting import logger

            logger().error("the uploader failed (%s) and goes on", type(error).__name__)
            return self._clock() + AFTER_FAULT_S

    def _serve(self, *, everything: bool) -> float:
        """One pass over all clients; when the next one is due, in seconds since the epoch."""
        ticks: list[Tick] = []
        for member in tuple(self._members):
            tick = member.tick(everything=everything)
            if tick.due and not self._stopping:
                self._run(member, everything=everything)
                tick = member.tick(everything=False)
            ticks.append(tick)
        latest = self._clock() + LONGEST_SLEEP_S
        return min((tick.next_at for tick in ticks if tick.next_at is not None), default=latest)

    def _run(self, member: Member, *, everything: bool) -> None:
        with fork_gate.closed():
            import asyncio  # a host that never uploads never pays for it

            from client_sdk.device import reporting  # noqa: F401 - `_keep_quiet` has no time for it

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_keep_quiet)
        task = self._loop.create_task(member.send(everything=everything))
        with self._changed:
            self._task, self._sending = task, member
            if member not in self._members:  # it left a moment ago
                task.cancel()
        try:
            self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            return
        finally:
            with self._changed:
                self._task = self._sending = None
                self._changed.notify_all()

    def _sleep(self, ticket: int, next_at: float) -> None:
        with self._changed:
            self._served = ticket
            self._changed.notify_all()
            wait_s = min(max(next_at - self._clock(), SHORTEST_SLEEP_S), LONGEST_SLEEP_S)
            self._changed.wait_for(lambda: self._stopping or self._asked != ticket, wait_s)


def _keep_quiet(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """In place of asyncio, which prints into the host.

    What ends in here is gRPC's: its one poller wakes the loops of all clients of a process for an event of one of them,
    and they find nothing to read, or the poller gone; no call fails of it.
    """
    from client_sdk.device.reporting import logger

    logger().debug("a callback failed in the uploader's loop (%s)", type(context.get("exception")).__name__)


def uploader_for(data_dir: str, endpoint: str, clock: Callable[[], float]) -> Uploader:
    """The folder's uploader in this process. ConfigurationError where it serves another collector."""
    folder = os.path.realpath(data_dir)
    with _registry_lock:
        _check_free(folder, endpoint)
        if folder not in _running:
            _running[folder] = Uploader(folder, endpoint, clock)
        return _running[folder]


def check_free(data_dir: str, endpoint: str) -> None:
    """ConfigurationError where the folder's uploader serves another collector."""
    with _registry_lock:
        _check_free(os.path.realpath(data_dir), endpoint)


def _check_free(folder: str, endpoint: str) -> None:
    found = _running.get(folder)
    if found is not None and found.endpoint != endpoint:
        raise ConfigurationError(f"data_dir {folder}: another client of this process sends it to {found.endpoint}")


def _forget(uploader: Uploader) -> None:
    with _registry_lock:
        if _running.get(uploader.folder) is uploader:
            del _running[uploader.folder]


def forget_all() -> None:
    """In a forked child: none of the threads came along."""
    global _registry_lock  # noqa: PLW0603 - the parent may have held it while it forked
    _registry_lock = threading.Lock()
    _running.clear()
