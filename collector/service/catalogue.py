"""The plans that a collector serves: the operator's files, and the older versions that its store still knows.

Rules of this file: a report of an older version stays welcome until its period is too old, so versions that
the store knows of a served name are served too; which of them is newest decides only what GetPlan answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from client_sdk.plan import Plan
from client_sdk.secagg.parameters import PIECE_BYTES
from client_sdk.wire import limits

ENVELOPE_BYTES = 64 * 1024
BYTES_PER_MEMBER = 2 * (82 + 2 * 34 + 16)
"""A sealed pair with two hashes and its index, twice over."""


class Catalogue:
    """Plans by hash and by name. Read only once built."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._by_hash: dict[bytes, Plan] = {}
        self._newest: dict[str, Plan] = {}
        for plan in plans:
            self._by_hash[plan.hash] = plan
            known = self._newest.get(plan.name)
            if known is None or plan.version >= known.version:
                self._newest[plan.name] = plan

    def by_hash(self, plan_hash: bytes) -> Plan | None:
        """The plan with this identity."""
        return self._by_hash.get(plan_hash)

    def newest(self, name: str) -> Plan | None:
        """The newest version of the named plan; with an empty name, of the only one."""
        if not name and len(self._newest) == 1:
            return next(iter(self._newest.values()))
        return self._newest.get(name)

    @property
    def max_receive_bytes(self) -> int:
        """The longest message that any participant of these plans can have to send."""
        # A remainder joins the last cohort, so a roster stays below twice its target.
        members = 2 * max((plan.cohort.target_size for plan in self._by_hash.values()), default=1)
        longest = max(PIECE_BYTES, members * BYTES_PER_MEMBER) + ENVELOPE_BYTES
        return min(longest, limits.MAX_PARTICIPANT_MESSAGE_BYTES)
