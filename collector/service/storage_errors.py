"""What can be wrong with the collector's store: known without a database driver, so that every edge can ask."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

from client_sdk.errors import StorageError


class StoreProblem(Enum):
    """What is wrong with a store, for whoever turns it into an exit or a gRPC status."""

    MISSING = "missing"
    NOT_A_STORE = "not_a_store"
    NEWER = "newer"
    OLDER = "older"
    LOCKED = "locked"
    FULL = "full"
    READ_ONLY = "read_only"
    CANNOT_OPEN = "cannot_open"
    UNREACHABLE = "unreachable"
    NOT_ALLOWED = "not_allowed"
    DAMAGED = "damaged"
    INPUT_OUTPUT = "input_output"
    REFUSED = "refused"


_REMEDIES: Final = {
    StoreProblem.LOCKED: "is locked by another process; nothing was written, try again or stop what holds it",
    StoreProblem.FULL: "the disk is full, nothing of this write was kept; free some space and try again",
    StoreProblem.READ_ONLY: "is read-only; let the collector's user write to the file and its folder",
    StoreProblem.CANNOT_OPEN: "cannot be opened; check that its folder exists and may be used by this user",
    StoreProblem.UNREACHABLE: "cannot be reached; check that the database server runs and that the way to it is open",
    StoreProblem.NOT_ALLOWED: "does not let this user in, or not do this; check user, password and rights",
    StoreProblem.DAMAGED: "is damaged or no SQLite file; restore a backup or move the file away",
    StoreProblem.INPUT_OUTPUT: "cannot be read or written; check the disk (device, space, quota)",
    StoreProblem.REFUSED: "refused a row that contradicts what it holds; nothing was written",
}

LASTING: Final = frozenset({StoreProblem.DAMAGED})
"""What does not pass by itself: nothing more is written before somebody has looked at it and started again."""


class StoreError(StorageError):
    """One line: which store, what is wrong with it, what to do. `problem` says the same to a program.

    where: the file, or `postgresql://host:port/database`, without a password. code: the engine's own word.
    """

    def __init__(self, where: str | Path, problem: StoreProblem, text: str = "", *, code: str | None = None) -> None:
        self.where = str(where)
        self.problem = problem
        self.text = text or _REMEDIES[problem]
        self.code = code
        super().__init__(f"{self.where}: {self.text}")

    def again(self) -> StoreError:
        """The same for another caller: an exception that two raise would gather both their tracebacks."""
        return StoreError(self.where, self.problem, self.text, code=self.code)
