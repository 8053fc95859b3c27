"""The store's calls for memoised metrics: one transaction each."""

from __future__ import annotations

from collections.abc import Mapping

from client_sdk.device import forgetting, memos
from client_sdk.device.store_base import StoreBase
from client_sdk.plan import Plan


class MemoStore(StoreBase):
    """See `memos`."""

    def memo_answers(
        self, plan: Plan, codes: Mapping[str, int], seal_key: bytes | None, life: int | None, *, keep: bool
    ) -> memos.Answers:
        """Permanent answers; committed before they are used. keep=False changes nothing.

        Nothing is kept either of a life that the user has ended meanwhile: its report will be refused.
        """
        with self._transaction() as db:
            keep = keep and not forgetting.is_over(db, life)
            return memos.answers(db, plan, codes, seal_key, keep=keep)

    def memo_prices(self, plan: Plan) -> dict[str, int]:
        """By memoised metric, what the next report of it costs in micro-epsilon."""
        with self._transaction() as db:
            return memos.prices(db, plan)

    def memo_views(self, plan: Plan) -> list[memos.MemoView]:
        """What the device alone knows of its memoised metrics."""
        with self._transaction() as db:
            return memos.view(db, plan)
