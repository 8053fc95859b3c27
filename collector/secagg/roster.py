"""The committed roster of a round, as the collector proves it: parameters, graph, and a tree over every advert.

Rules of this file: everything that a participant recomputes is computed here by the same functions (sizes from the
plan's rules, digest and leaves from `transcript`, the graph from the digest); nothing of it changes once it is made.
What it does not do: it checks no signature and no certificate (`collector.intake` does, before anybody waits).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from client_sdk.errors import LocalProtocolError
from client_sdk.secagg.checks import are_distinct
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.merkle import Tree
from client_sdk.secagg.messages import Advert, Roster
from client_sdk.secagg.parameters import MAX_ROSTER
from client_sdk.secagg.transcript import roster_digest, roster_leaf

if TYPE_CHECKING:
    from client_sdk.secagg.parameters import RoundRules


class CommittedRoster:
    """One cohort, in roster order, and what all of it follows from.

    Raises LocalProtocolError for a cohort that no participant would accept (wrong size, mixed, a key twice), PlanError
    for one whose sum could wrap or for which there is no graph.
    """

    def __init__(self, round_id: str, rules: RoundRules, adverts: Sequence[Advert], formed_at: int) -> None:
        _check_cohort(rules, adverts)
        self.round_id, self.rules, self.formed_at = round_id, rules, formed_at
        self.adverts = tuple(adverts)
        self.size = len(adverts)
        self.degree = rules.degree(self.size)
        self.threshold = rules.threshold(self.size)
        self.bits = rules.bits(self.size)
        self._tree = Tree([roster_leaf(index, advert) for index, advert in enumerate(adverts)])
        self.digest = roster_digest(
            round_id, rules, self.size, self.degree, self.threshold, self.bits, formed_at, self._tree.root
        )
        self.graph = graph_of(self.size, self.degree, self.digest)
        # Is everybody everybody's neighbour? Then whatever is not addressed to one member is the same for all.
        self.is_complete = self.graph.is_complete

    @property
    def resent(self) -> int:
        """Members whose report may have left its device before."""
        return self._tree.root.second

    def neighbourhood(self, index: int) -> tuple[int, ...]:
        """Member `index` and its neighbours."""
        return (*self.graph.neighbours(index), index)

    def holders(self, owner: int) -> tuple[int, ...]:
        """Who holds a share of `owner`'s seeds, ascending: the share of place i has x = i + 1.

        Neighbours are so mutually, therefore it is also whose shares `owner` holds.
        """
        return self.graph.holders(owner)

    def places(self, owners: Sequence[int], holder: int) -> Sequence[int]:
        """Where `holder` stands among each owner's holders."""
        if self.is_complete:
            return [holder] * len(owners)
        return [self.graph.share_x(owner, holder) - 1 for owner in owners]

    def proof(self, index: int) -> tuple[bytes, ...]:
        """The tree's nodes that member `index` cannot compute from its neighbourhood's adverts."""
        return () if self.is_complete else self._tree.prove(self.neighbourhood(index))

    def for_member(self, index: int) -> Roster:
        """The roster as member `index` gets it."""
        neighbours = self.graph.neighbours(index)
        return Roster(
            round_id=self.round_id,
            index=index,
            size=self.size,
            threshold=self.threshold,
            bits=self.bits,
            length=self.rules.length,
            formed_at=self.formed_at,
            neighbours=neighbours,
            adverts=tuple(self.adverts[neighbour] for neighbour in neighbours),
            digest=self.digest,
            resent=self.resent,
            proof=self.proof(index),
        )

    def resent_among(self, members: Collection[int]) -> int:
        """How many of these members are resent."""
        return sum(self.adverts[index].resent for index in members)


def _check_cohort(rules: RoundRules, adverts: Sequence[Advert]) -> None:
    if not rules.min_roster <= len(adverts) <= MAX_ROSTER:
        sizes = f"{rules.min_roster} to {MAX_ROSTER}"
        raise LocalProtocolError(f"a cohort of {len(adverts)} cannot be; the plan and the protocol allow {sizes}")
    if len({(advert.plan_hash, advert.period_start) for advert in adverts}) != 1:
        raise LocalProtocolError("a cohort holds one plan and one period")
    if not are_distinct(adverts):
        raise LocalProtocolError("a cohort holds no identity and no key twice")
