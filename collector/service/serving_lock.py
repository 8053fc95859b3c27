"""Notices a second collector on one SQLite file: an advisory lock on an empty file beside it.

Rules of this file: the system lets go of the lock however a process ends, so nothing is ever left to clean up; the file
stays, for one that is removed could be locked by two. Where no lock can be had (a system without them, a folder that
may not be written), nothing is said. What it does not do: it keeps nobody out; the store's own transactions see to
it that a report counts once.
"""

from __future__ import annotations

import os
from pathlib import Path


class ServingLock:
    """Held by every collector of a store, from its start to its end. shared: another one was there already."""

    def __init__(self, store: Path) -> None:
        self.shared = False
        self._descriptor: int | None = None
        try:
            import fcntl

            path = store.with_name(store.name + "-serving")
            self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.shared = True
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # all hold it: the next one sees any of them
        except (ImportError, OSError):
            self.close()

    def close(self) -> None:
        """Let go."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
