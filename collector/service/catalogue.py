"""The plans that a collector serves: the operator's files, and the older versions that its store still knows.

Rules of this file: a report of an older version stays welcome until its period is too old, so versions that
the store knows of a served name are served too; which of them is newest decides only what GetPlan answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from client_sdk.secagg.parameters import MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import limits

ENVELOPE_BYTES = 64 * 1024
BYTES_PER_MEMBER = 2 * (82 + 2 * 34 + 16)
"""A sealed pair with two hashes and its index, twice over."""

BYTES_PER_ELEMENT = 8
BYTES_PER_EDGE = 512
"""What a member keeps here for one neighbour, in a round's longest step: a sealed pair, two hashes, a share, a
confirmation, and the objects around them."""


class Catalogue:
    """Plans by hash and by name. Read only once built."""

    def __init__(self, plans: Iterable[Plan], signatures: Mapping[bytes, bytes] | None = None) -> None:
        """`signatures`: the operator's, by plan hash, for those plans that have one."""
        self._signatures = dict(signatures or {})
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

    def signature(self, plan: Plan) -> bytes:
        """The operator's signature under a plan, or nothing."""
        return self._signatures.get(plan.hash, b"")

    @property
    def max_receive_bytes(self) -> int:
        """The longest message that any participant of these plans can have to send."""
        members = max(map(_most_members, self._by_hash.values()), default=1)
        longest = max(PIECE_BYTES, members * BYTES_PER_MEMBER) + ENVELOPE_BYTES
        return min(longest, limits.MAX_PARTICIPANT_MESSAGE_BYTES)

    def check_memory(self, most_bytes: int) -> None:
        """Raises ConfigurationError for the first plan whose largest round may need more."""
        for plan in self._by_hash.values():
            members, needed = _most_members(plan), round_bytes(plan)
            if needed > most_bytes:
                raise ConfigurationError(
                    f"plan {plan.name!r} version {plan.version}: a round of up to {members:,} members and "
                    f"{plan.length:,} elements may need {_size_text(needed)}, above --max-round-memory "
                    f"({_size_text(most_bytes)}); raise that or lower the plan's cohort.target_size"
                )


def _size_text(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


def _most_members(plan: Plan) -> int:
    # A remainder joins the last cohort, so a roster stays below twice its target.
    return min(2 * plan.cohort.target_size, MAX_ROSTER)


def round_bytes(plan: Plan) -> int:
    """What the largest round of a plan may need at once, about: every member's vector and its neighbours' messages."""
    members = _most_members(plan)
    edges = plan.round_rules().degree(members)
    return members * (plan.length * BYTES_PER_ELEMENT + edges * BYTES_PER_EDGE)
