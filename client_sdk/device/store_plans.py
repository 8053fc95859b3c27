"""The store's plans: those that were fetched and are held on to, and what once stood under a version's number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_sdk.device import ledger
from client_sdk.device.store_base import StoreBase

if TYPE_CHECKING:
    from client_sdk.plan import Plan


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """A fetched plan: its text, the operator's signature under it (empty: it came without), when it was pinned."""

    text: str = field(repr=False)
    signature: bytes
    pinned_at: float


class PlanStore(StoreBase):
    """What a device knows of its plans."""

    def pinned_plans(self) -> list[PinnedPlan]:
        """Every plan that was ever fetched and accepted, the newest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT text, signature, pinned_at FROM plans WHERE pinned_at IS NOT NULL ORDER BY pinned_at DESC"
            ).fetchall()
        return [PinnedPlan(row["text"], row["signature"] or b"", row["pinned_at"]) for row in rows]

    def pin_plan(self, plan: Plan, signature: bytes, now: float) -> bool:
        """Keep a fetched plan for good. False: its number is another plan's, and it is not kept."""
        with self._transaction() as db:
            if not ledger.remember_version(db, plan.name, plan.version, plan.hash):
                return False
            db.execute(
                "INSERT INTO plans VALUES (?, ?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE "
                "SET pinned_at = coalesce(pinned_at, excluded.pinned_at), signature = excluded.signature",
                (plan.hash, plan.name, plan.text, now, signature),
            )
        return True

    def is_same_version(self, plan: Plan) -> bool:
        """Is this what was used under its name and number before, if anything was?"""
        with self._transaction() as db:
            return ledger.is_same_version(db, plan.name, plan.version, plan.hash)
