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
    DAMAGED = "damaged"
    INPUT_OUTPUT = "input_output"
    REFUSED = "refused"


_REMEDIES: Final = {
    StoreProblem.LOCKED: "is locked by another process; nothing was written, try again or stop what holds it",
    StoreProblem.FULL: "the disk is full, nothing of this write was kept; free some space and try again",
    StoreProblem.READ_ONLY: "is read-only; let the collector's user write to the file and its folder",
    StoreProblem.CANNOT_OPEN: "cannot be opened; check that its folder exists and may be used by this user",
    StoreProblem.DAMAGED: "is damaged or no SQLite file; restore a backup or move the file away",
    StoreProblem.INPUT_OUTPUT: "cannot be read or written; check the disk (device, space, quota)",
    StoreProblem.REFUSED: "refused a row that contradicts what it holds; nothing was written",
}


class StoreError(StorageError):
    """One line: which file, what is wrong with it, what to do. `problem` says the same to a program."""

    def __init__(self, path: Path, problem: StoreProblem, text: str = "") -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {text or _REMEDIES[problem]}")
