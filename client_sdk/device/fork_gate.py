"""Keeps forks out of code that a forked child could not recover from.

SQLite keeps its file locks and mutexes per process: a child that was forked while another thread held one
finds the store locked for ever. So a fork waits for the end of the running transaction, a few milliseconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_FORK_DELAY_S = 2.0

_gate = threading.RLock()
_held: list[bool] = []


@contextmanager
def closed() -> Iterator[None]:
    """No fork of this process begins within the block."""
    with _gate:
        yield


def _before() -> None:
    _held.append(_gate.acquire(timeout=LONGEST_FORK_DELAY_S))


def _after_in_parent() -> None:
    if _held.pop():
        _gate.release()


def _after_in_child() -> None:
    global _gate  # noqa: PLW0603 - whoever held it is not in this process
    _held.clear()
    _gate = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
