"""The store's half of opting out: see `forgetting` for the rows."""

from __future__ import annotations

from client_sdk.device import forgetting
from client_sdk.device.files import remove_damaged
from client_sdk.device.store_base import StoreBase


class DeletionStore(StoreBase):
    """That a user has opted out, and what is still to be deleted elsewhere."""

    def opt_out(self, now: float) -> None:
        """Everything that waits goes, counted; the identity too, once its deletion request is signed. Idempotent."""
        with self._transaction() as db:
            forgetting.opt_out(db, now)
        self._settle_mirror()
        remove_damaged(self.folder)

    def opt_in(self) -> None:
        """Record again, as somebody new."""
        with self._transaction() as db:
            forgetting.opt_in(db)
        self._settle_mirror()

    def opted_out(self) -> bool:
        """Did the user opt out, and not in again?"""
        with self._transaction() as db:
            return forgetting.is_opted_out(db)

    def life(self) -> int:
        """How often the user has opted out."""
        with self._transaction() as db:
            return forgetting.life(db)

    def pending_deletions(self, now: float, *, everything: bool) -> list[forgetting.PendingDeletion]:
        """Requests to send now; with `everything`, all."""
        with self._transaction() as db:
            return forgetting.pending(db, now, everything=everything)

    def next_deletion(self) -> float | None:
        """When the next request wants to leave; None where none waits."""
        with self._transaction() as db:
            return forgetting.next_due(db)

    def deletion_acknowledged(self, identity_key: bytes) -> None:
        """The collector has done it."""
        with self._transaction() as db:
            forgetting.acknowledged(db, identity_key)

    def postpone_deletion(self, identity_key: bytes, not_before: float, reason: str) -> None:
        """Try again later, counted under `reason`."""
        with self._transaction() as db:
            forgetting.postpone(db, identity_key, not_before, reason)
