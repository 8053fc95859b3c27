"""Rosters above the complete graph's size: neighbourhoods, proofs, edges, and what a dishonest member achieves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client_sdk.errors import AbortReason
from client_sdk.secagg import merkle
from client_sdk.secagg.messages import (
    DeliveredShares,
    ParticipantMessage,
    Roster,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.parameters import COMPLETE_UP_TO
from client_sdk.secagg.transcript import Status, roster_leaf, status_leaf, status_root
from collector.secagg.blame import Blame, Fault
from collector.secagg.status import CommittedStatus
from tests.fleet import Fleet, Result, column_sums, rules

SIZE = COMPLETE_UP_TO + 4
RULES = rules(min_size=200, corrupt="0.01", dropout="0.01")
"""Eight neighbours, threshold six: small enough for real participants in a test."""

VECTORS = [[i, -3 * i] for i in range(SIZE)]
DROPS = {3: "shares", 50: "masked_input", 51: "masked_input", 100: "confirm", 101: "unmask"}


def sparse_fleet() -> Fleet:
    fleet = Fleet(VECTORS, RULES, resent={7, 50})
    assert (RULES.degree(SIZE), RULES.threshold(SIZE)) == (8, 6)
    return fleet


def with_lies(fleet: Fleet, owner: int, rubbish: int, liar: int) -> None:
    """`owner` seals rubbish for the first `rubbish` of its neighbours; `liar` changes one share that it releases."""

    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if isinstance(message, SealedShares) and index == owner:
            return replace(message, sealed=(*(bytes(82),) * rubbish, *message.sealed[rubbish:]))
        if isinstance(message, UnmaskShares) and index == liar:
            return replace(message, shares=(bytes(33), *message.shares[1:]))
        return message

    fleet.up = up


@pytest.fixture(scope="module")
def finished() -> tuple[Fleet, Result]:
    """A round in which some drop at every step, member 120 deals rubbish to two neighbours and member 200 lies."""
    fleet = sparse_fleet()
    with_lies(fleet, owner=120, rubbish=2, liar=200)
    return fleet, fleet.run(DROPS)


def test_the_sum_is_exact(finished: tuple[Fleet, Result]) -> None:
    fleet, result = finished
    assert result.aborted is None
    assert result.refusals == {}
    assert result.total == column_sums(VECTORS, set(range(SIZE)) - {3, 50, 51})
    assert (fleet.round.roster.degree, fleet.round.threshold) == (8, 6)
    assert result.contributors == SIZE - 3
    assert result.dropouts == {"shares": 1, "masked_input": 2, "confirm": 1, "unmask": 1}


def test_a_holder_is_blamed_and_an_owner_that_opens_is_not(finished: tuple[Fleet, Result]) -> None:
    """Chance puts more liars around some members than there are on average; they shall not cost it its period."""
    fleet, _ = finished
    assert fleet.round.blamed == (Blame(200, Fault.WRONG_SHARE),)


def test_everybody_is_told_of_its_neighbourhood_only(finished: tuple[Fleet, Result]) -> None:
    fleet, _ = finished
    graph = fleet.round.roster.graph
    committed, survived = set(fleet.round.sharers), set(fleet.round.survivors)
    confirmed = survived - {100}
    seen = 0
    for index, message in fleet.received:
        near = set(graph.neighbours(index))
        match message:
            case Roster():
                assert set(message.neighbours) == near
                assert message.adverts == tuple(fleet.round.roster.adverts[i] for i in message.neighbours)
            case DeliveredShares():
                assert set(message.sharers) == (near | {index}) & committed
                assert set(message.owners) == near & committed
            case SurvivorStatus():
                assert set(message.survivors) == (near | {index}) & survived
            case UnmaskRequest():
                assert set(message.dropped) == near & (committed - survived)
                assert set(message.confirmed_by) == near & confirmed
            case _:
                continue
        seen += 1
    assert seen > 4 * (SIZE - 10)


def test_edges_are_opened_between_dropouts_and_surviving_neighbours_only(finished: tuple[Fleet, Result]) -> None:
    fleet, _ = finished
    opening = fleet.round.opening()
    graph = fleet.round.roster.graph
    assert [owner.owner for owner in opening.dropped] == [50, 51]
    for owner in opening.dropped:
        assert owner.survivors == tuple(i for i in graph.neighbours(owner.owner) if i in fleet.round.survivors)
    assert opening.mask_keys.keys() == {i for owner in opening.dropped for i in owner.survivors}
    assert all(owner.survivors == () for owner in opening.survivors)


def test_x_is_the_place_among_the_holders(finished: tuple[Fleet, Result]) -> None:
    fleet, _ = finished
    graph = fleet.round.roster.graph
    released = {i: dict(zip(m.owners, m.shares, strict=True)) for i, m in fleet.sent if isinstance(m, UnmaskShares)}
    for owner in fleet.round.opening().survivors:
        holders = graph.holders(owner.owner)
        assert len(owner.xs) == fleet.round.threshold
        for x, share in zip(owner.xs, owner.shares, strict=True):
            assert released[holders[x - 1]][owner.owner] == share


def test_a_starved_seed_ends_the_round_and_its_owner_is_blamed() -> None:
    """Member 120 deals rubbish to four of its eight neighbours: four shares are left, six are needed."""
    fleet = sparse_fleet()
    with_lies(fleet, owner=120, rubbish=4, liar=-1)
    result = fleet.run()
    assert result.total is None
    assert result.aborted is not None
    aborted = result.aborted
    assert (aborted.reason, aborted.have, aborted.need) == (AbortReason.TOO_FEW_RESPONSES, 4, 6)
    assert fleet.round.blamed == (Blame(120, Fault.UNUSABLE_SHARES),)


def test_as_many_neighbours_as_may_be_corrupt_cannot_have_an_owner_blamed() -> None:
    """With eight neighbours and a threshold of six, three may be: they would starve it too, and nobody can tell."""
    fleet = sparse_fleet()
    with_lies(fleet, owner=120, rubbish=3, liar=-1)
    result = fleet.run()
    assert result.aborted is not None
    assert (result.aborted.have, result.aborted.need) == (5, 6)
    assert fleet.round.blamed == ()


def test_proofs_hold_for_every_member() -> None:
    """From what a member knows and the proof it gets: the roots, with members, survivors and resent ones counted."""
    fleet = sparse_fleet()
    fleet.join()
    roster = fleet.round.roster
    sharers = tuple(i for i in range(SIZE) if i != 9)
    survivors = tuple(i for i in sharers if i not in (7, 8))
    status = CommittedStatus(roster, sharers, survivors)
    assert status.dropped == (7, 8)
    for index in range(SIZE):
        told, near = roster.for_member(index), roster.neighbourhood(index)
        adverts = dict(zip(told.neighbours, told.adverts, strict=True)) | {index: roster.adverts[index]}
        root = merkle.root_from(SIZE, {i: roster_leaf(i, adverts[i]) for i in near}, told.proof)
        assert (root.first, root.second, told.resent) == (SIZE, 2, 2)
        message = status.for_member(index)
        leaves = {}
        for i in near:
            alive = Status.SURVIVED if i in message.survivors else Status.DROPPED
            what = Status.ABSENT if i == 9 else alive
            leaves[i] = status_leaf(roster.digest, i, what, resent=adverts[i].resent)
        root = merkle.root_from(SIZE, leaves, message.proof)
        assert (root.first, root.second) == (message.contributors, message.resent_survivors) == (SIZE - 3, 1)
        assert status_root(roster.digest, root) == message.root
