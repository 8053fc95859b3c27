"""What became of every member, proven to each: the survivor status, and what its confirmations make of it.

Rules of this file: one status a round, made once; the tree covers all members, also those that dealt no shares, so
that both sums are proven over the whole cohort; a confirmation counts with its owner's signature over this status.
What it does not do: it does not decide who survived.

In the complete graph every member knows every leaf, so all get one and the same message, without a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from client_sdk.identity import verify
from client_sdk.secagg.merkle import Tree
from client_sdk.secagg.messages import Confirm, SurvivorStatus, UnmaskRequest
from client_sdk.secagg.transcript import Status, confirm_message, status_leaf, status_root
from collector.secagg.roster import CommittedRoster


class CommittedStatus:
    """Status of a round's members. sharers, survivors: ascending, survivors among the sharers."""

    def __init__(self, roster: CommittedRoster, sharers: Sequence[int], survivors: Sequence[int]) -> None:
        self._roster = roster
        self._survived, dealt = frozenset(survivors), frozenset(sharers)
        self._dropped = dealt - self._survived
        self._tree = Tree(
            [
                status_leaf(roster.digest, index, _status(index, dealt, self._survived), resent=advert.resent)
                for index, advert in enumerate(roster.adverts)
            ]
        )
        self.root = status_root(roster.digest, self._tree.root)
        self._confirmed = confirm_message(roster.digest, self.root)
        self._confirmations: dict[int, bytes] = {}

    @property
    def dropped(self) -> tuple[int, ...]:
        """Sharers without survivors, ascending."""
        return tuple(sorted(self._dropped))

    def survivors_among(self, members: Sequence[int]) -> tuple[int, ...]:
        """The survivors among these members, ascending."""
        return tuple(sorted(self._survived.intersection(members)))

    # --- status ---

    def for_member(self, index: int) -> SurvivorStatus:
        """The status as member `index` gets it."""
        return self._for_all if self._roster.is_complete else self._of(self._roster.neighbourhood(index))

    @cached_property
    def _for_all(self) -> SurvivorStatus:
        return self._of(range(self._roster.size))

    def _of(self, neighbourhood: Sequence[int]) -> SurvivorStatus:
        return SurvivorStatus(
            survivors=self.survivors_among(neighbourhood),
            contributors=self._tree.root.first,
            resent_survivors=self._tree.root.second,
            root=self.root,
            proof=() if self._roster.is_complete else self._tree.prove(neighbourhood),
        )

    # --- confirmations ---

    def confirm(self, index: int, message: Confirm) -> bool:
        """Note member `index`'s confirmation of this very status. Does its signature hold?"""
        if not verify(self._roster.adverts[index].identity_key, message.signature, self._confirmed):
            return False
        self._confirmations[index] = message.signature
        return True

    def request_for(self, index: int) -> UnmaskRequest:
        """What member `index` is asked: with the dropouts it knows, and whom of its holders has confirmed."""
        return self._request_for_all if self._roster.is_complete else self._request(self._roster.holders(index))

    @cached_property
    def _request_for_all(self) -> UnmaskRequest:
        return self._request(range(self._roster.size))

    def _request(self, members: Sequence[int]) -> UnmaskRequest:
        confirmed = tuple(member for member in members if member in self._confirmations)
        return UnmaskRequest(
            dropped=tuple(sorted(self._dropped.intersection(members))),
            confirmed_by=confirmed,
            confirmations=tuple(self._confirmations[member] for member in confirmed),
        )


def _status(index: int, sharers: frozenset[int], survivors: frozenset[int]) -> Status:
    if index in survivors:
        return Status.SURVIVED
    return Status.DROPPED if index in sharers else Status.ABSENT
