"""Keeps forks out of code that a forked child could not recover from, and tells a child what it must leave alone.

SQLite keeps its file locks and mutexes per process: a child that was forked while another thread held one
finds the store locked for ever. A module that another thread was importing stays half a module, its lock held.
So a fork waits for the end of the running transaction (milliseconds), and of our own thread's imports (once).
Before a fork, hooks run from the last one installed to the first: `logging` is imported above ours, because its hook
holds its lock, which half of all imports need, while ours waits.
gRPC cannot be waited for, an upload takes as long as its round does: a child that was forked meanwhile must not
use gRPC at all (its core aborts the process on the first call). Such a child has lost the network for good: what
it seals waits on disk for another process, as a rule for the parent, whose thread is at work on the same folder.
What it does not do: it sees no synchronous channel that the host itself has open.
"""

from __future__ import annotations

import logging  # noqa: F401 - see the rules
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_FORK_DELAY_S = 5.0
GRPC_POLLER = "_poll_wrapper"
"""In the name of the thread that lives as long as any asyncio channel or server of gRPC, ours or the host's."""


class _Held(threading.local):
    """Has this thread taken the gate for the fork that it is about to make?"""

    taken = False


_gate = threading.RLock()
_held = _Held()
_connections: list[None] = []
_network_was_live = False
_network_lost = False


@contextmanager
def closed() -> Iterator[None]:
    """No fork of this process begins within the block."""
    with _gate:
        yield


@contextmanager
def connected() -> Iterator[None]:
    """gRPC is in use within the block."""
    with _gate:  # not between the question and the fork
        _connections.append(None)
    try:
        yield
    finally:
        _connections.pop()


def network_lost() -> bool:
    """Was this process (or one that it comes from) forked while gRPC was in use? Then it must not use it."""
    return _network_lost


def _grpc_is_live() -> bool:
    polls = "grpc" in sys.modules and any(GRPC_POLLER in thread.name for thread in threading.enumerate())
    return polls or bool(_connections)


def _before() -> None:
    global _network_was_live  # noqa: PLW0603 - handed to the child's half of the fork
    _held.taken = _gate.acquire(timeout=LONGEST_FORK_DELAY_S)
    # not taken: somebody is in the middle of an import that never ended, and the child could not do without it
    _network_was_live = not _held.taken or _grpc_is_live()


def _after_in_parent() -> None:
    if _held.taken:
        _held.taken = False
        _gate.release()


def _after_in_child() -> None:
    global _gate, _network_lost  # noqa: PLW0603 - whoever held it is not in this process
    _held.taken = False
    _connections.clear()
    _gate = threading.RLock()
    _network_lost = _network_lost or _network_was_live


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
