"""How a device's store is reached: one transaction a call, repaired where it is damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk.device.database import BUSY_TIMEOUT_S, migrate, schema_version, transaction
from client_sdk.device.files import DATABASE_NAME, StoreDamagedError, StoreUnavailableError, prepare_folder
from client_sdk.device.opening import open_store, settle_mirror


class StoreBase:
    """The store in `data_dir`. Opening creates, checks, and repairs what is damaged.

    Raises StoreUnavailableError where it cannot be used now, StorageError where it never can.
    """

    def __init__(self, data_dir: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.folder = prepare_folder(data_dir)
        self.path = os.path.join(self.folder, DATABASE_NAME)
        self.busy_timeout_s = busy_timeout_s
        self._reopen()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder!r})"

    def _reopen(self) -> None:
        open_store(self.folder, self.path, self.busy_timeout_s)

    def _settle_mirror(self) -> None:
        settle_mirror(self.folder, self.path, self.busy_timeout_s)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self.path, self.busy_timeout_s) as db:
                if schema_version(db) == 0:
                    raise StoreDamagedError(f"{self.path}: empty")
                migrate(db)  # an older copy may have been put in its place meanwhile
                yield db
        except StoreDamagedError:
            self._reopen()
            raise StoreUnavailableError(
                f"{self.path}: was damaged and is put aside; the budget counts as used up until reset_ledger()"
            ) from None
