"""What a dishonest collector tells member 0: a real round up to one message, and lies that fit as far as they can."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.merkle import Tree, root_from
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
    CollectorMessage,
    ComeBack,
    Receipt,
    Roster,
    RoundAborted,
    SurvivorStatus,
)
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.transcript import Status, advert_message, roster_digest, roster_leaf, status_leaf, status_root
from tests.fleet import Fleet, rules

RULES = rules(min_size=3, corrupt="0.1")
VECTORS = [[i, 10 * i] for i in range(1, 6)]

SPARSE_SIZE = 257
SPARSE_RULES = rules(min_size=3, dropout="0.02", bound=1000)
"""Nobody corrupt: so few neighbours (12, threshold 7) that a sparse round takes a second."""

OUTCOMES = (AlreadyCounted("r", 5), ComeBack(9, 1), RoundAborted("shutting_down", 0, 0))


def fleet_at(kind: type, drops: dict[int, str] | None = None, **options: Any) -> tuple[Fleet, CollectorMessage]:
    """A fleet (of five) in which member 0 waits for its first message of type `kind`, and that message."""
    fleet = Fleet(options.pop("vectors", VECTORS), options.pop("rules", RULES), **options)
    messages = fleet.join()
    for step in ("shares", "masked_input", "confirm", "unmask"):
        if isinstance(messages[0], kind):
            return fleet, messages[0]
        fleet.step(messages, [i for i, name in (drops or {}).items() if name == step])
        messages = fleet.round.close()
    return fleet, Receipt(fleet.round_id, len(fleet.round.survivors), fleet.round.size)


def sparse_at(kind: type, drops: dict[int, str] | None = None, **options: Any) -> tuple[Fleet, CollectorMessage]:
    """The same in a cohort whose members see twelve others each. Only member 0 is the caller's own."""
    resent = frozenset(options.pop("resent", ()))
    fleet, message = _sparse_at(kind, tuple((drops or {}).items()), resent, options.pop("rules", SPARSE_RULES))
    assert not options
    twin = copy.copy(fleet)
    # States are frozen, so whoever gets a copy of the machine around one cannot disturb the next.
    twin.participants = [copy.copy(fleet.participants[0]), *fleet.participants[1:]]
    twin.sent, twin.received, twin.refusals = list(fleet.sent), list(fleet.received), dict(fleet.refusals)
    return twin, message


@lru_cache
def _sparse_at(
    kind: type, drops: tuple[tuple[int, str], ...], resent: frozenset[int], round_rules: RoundRules
) -> tuple[Fleet, CollectorMessage]:
    vectors = [[index % 7, 1] for index in range(SPARSE_SIZE)]
    return fleet_at(kind, dict(drops), vectors=vectors, rules=round_rules, resent=resent)


def neighbours_of_0(fleet: Fleet) -> tuple[int, ...]:
    size = len(fleet.vectors)
    return graph_of(size, fleet.rules.degree(size), fleet.round.digest).neighbours(0)


def refused(fleet: Fleet, message: CollectorMessage, reason: AbortReason) -> None:
    """Member 0 refuses, for this reason, gives nothing away, and is done for."""
    participant = fleet.participants[0]
    with pytest.raises(RemoteProtocolError) as caught:
        participant.receive(message, fleet.now)
    assert caught.value.reason is reason
    for again in (message, *OUTCOMES):
        with pytest.raises(RemoteProtocolError) as caught:
            participant.receive(again, fleet.now)
        assert caught.value.reason is AbortReason.OUT_OF_ORDER
    assert participant.outcome is None


def own_advert(fleet: Fleet) -> Advert:
    return next(m for i, m in fleet.sent if i == 0 and isinstance(m, Advert))


def resigned(fleet: Fleet, index: int, advert: Advert) -> Advert:
    """The advert with a signature of its member that holds: a dishonest member, not a clumsy collector."""
    return replace(advert, signature=fleet.identities[index].sign(advert_message(advert)))


def with_neighbour(fleet: Fleet, roster: Roster, place: int, advert: Advert) -> Roster:
    """The roster with another advert at `place` of the neighbours, and the digest that fits it."""
    adverts = (*roster.adverts[:place], advert, *roster.adverts[place + 1 :])
    return redigested(fleet, replace(roster, adverts=adverts))


def redigested(fleet: Fleet, roster: Roster, round_rules: RoundRules | None = None, **parameters: int) -> Roster:
    """The roster with the count and the digest that fit its adverts, its proof and, if named, other parameters."""
    known = {roster.index: own_advert(fleet), **dict(zip(roster.neighbours, roster.adverts, strict=True))}
    root = root_from(roster.size, {i: roster_leaf(i, advert) for i, advert in known.items()}, roster.proof)
    digest = roster_digest(
        roster.round_id,
        round_rules or fleet.rules,
        roster.size,
        parameters.get("degree", len(roster.neighbours)),
        parameters.get("threshold", roster.threshold),
        parameters.get("bits", roster.bits),
        roster.formed_at,
        root,
    )
    return replace(roster, digest=digest, resent=root.second)


def told_status(
    fleet: Fleet, survivors: Collection[int], *, sharers: Collection[int] | None = None, resent: Collection[int] = ()
) -> SurvivorStatus:
    """A status of the collector's own making as member 0 gets it: root, sums and proof fit these sets."""
    digest, size = fleet.round.digest, fleet.round.size
    dealt = fleet.round.sharers if sharers is None else sharers
    statuses = [
        Status.SURVIVED if i in survivors else Status.DROPPED if i in dealt else Status.ABSENT for i in range(size)
    ]
    tree = Tree([status_leaf(digest, i, status, resent=i in resent) for i, status in enumerate(statuses)])
    seen = {0, *neighbours_of_0(fleet)}
    return SurvivorStatus(
        survivors=tuple(index for index in survivors if index in seen or not 0 <= index < size),
        contributors=tree.root.first,
        resent_survivors=tree.root.second,
        root=status_root(digest, tree.root),
        proof=tree.prove(seen),
    )
