"""What a participant refuses in a roster: one test a line of what a dishonest collector may try.

Each lie is made to fit as far as it can: adverts are signed by their members, digests are over what they commit to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.certificate import Role
from client_sdk.errors import AbortReason, PlanError
from client_sdk.identity import IdentityKey
from client_sdk.secagg import keys
from client_sdk.secagg.merkle import NODE_BYTES, Node, Tree
from client_sdk.secagg.messages import Advert, Roster, SealedShares
from client_sdk.secagg.parameters import MAX_ROSTER
from client_sdk.secagg.transcript import advert_message, roster_digest, roster_leaf
from tests.fleet import PERIOD_START, Fleet, certified, rules
from tests.unit.client_sdk.secagg.one_member import (
    RULES,
    VECTORS,
    fleet_at,
    own_advert,
    redigested,
    refused,
    resigned,
    sparse_at,
    with_neighbour,
)

RosterChange = Callable[[Roster], Roster]
WEAK, MALFORMED = AbortReason.WEAK_PARAMETERS, AbortReason.MALFORMED
ROSTER_LIES: dict[str, tuple[AbortReason, RosterChange]] = {
    "lower threshold": (WEAK, lambda r: replace(r, threshold=r.threshold - 1)),
    "higher threshold": (WEAK, lambda r: replace(r, threshold=r.threshold + 1)),
    "narrower ring": (WEAK, lambda r: replace(r, bits=8)),
    "wider ring": (WEAK, lambda r: replace(r, bits=64)),
    "other length": (WEAK, lambda r: replace(r, length=3)),
    "size above the members": (AbortReason.WRONG_GRAPH, lambda r: replace(r, size=6, threshold=4)),
    "size below the members": (MALFORMED, lambda r: replace(r, size=4)),
    "neighbour and advert missing": (
        AbortReason.WRONG_GRAPH,
        lambda r: replace(r, neighbours=r.neighbours[:-1], adverts=r.adverts[:-1]),
    ),
    "neighbour outside": (MALFORMED, lambda r: replace(r, neighbours=(1, 2, 3, 5))),
    "neighbour negative": (MALFORMED, lambda r: replace(r, neighbours=(-1, 1, 2, 3))),
    "advert missing": (MALFORMED, lambda r: replace(r, adverts=r.adverts[:-1])),
    "neighbour twice": (MALFORMED, lambda r: replace(r, neighbours=(1, 2, 3, 3))),
    "neighbours out of order": (MALFORMED, lambda r: replace(r, neighbours=(2, 1, 3, 4))),
    "no round id": (MALFORMED, lambda r: replace(r, round_id="")),
    "me among my neighbours": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, neighbours=(0, 1, 2, 3))),
    "my index outside": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, index=5)),
    "my index negative": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, index=-1)),
    "my place is another's": (
        AbortReason.ROSTER_DIGEST,
        lambda r: replace(r, index=1, neighbours=(0, 2, 3, 4)),
    ),
    "other digest": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, digest=bytes(32))),
    "digest cut": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, digest=r.digest[:31])),
    "formed at another time": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, formed_at=r.formed_at + 1)),
    "another round's id": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, round_id="round-2")),
    "more resent than signed so": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, resent=1)),
    "a proof where none is needed": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=(bytes(NODE_BYTES),))),
    "members swapped": (
        AbortReason.ROSTER_DIGEST,
        lambda r: replace(r, adverts=(r.adverts[1], r.adverts[0], *r.adverts[2:])),
    ),
}


@pytest.mark.parametrize("lie", ROSTER_LIES)
def test_roster_is_refused(lie: str) -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    reason, change = ROSTER_LIES[lie]
    refused(fleet, change(roster), reason)


@pytest.mark.parametrize("lie", ["lower threshold", "narrower ring", "other length"])
def test_weak_parameters_are_refused_with_a_fitting_digest_too(lie: str) -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, redigested(fleet, ROSTER_LIES[lie][1](roster)), AbortReason.WEAK_PARAMETERS)


@pytest.mark.parametrize("change", [{"min_size": 2}, {"corrupt_fraction": 0}, {"bound": 900}, {"max_wait_s": 31}])
def test_rules_of_another_plan_are_noticed(change: dict[str, Any]) -> None:
    """The digest binds the rules: a collector that works by others is found out, even if the numbers agree."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, redigested(fleet, roster, replace(RULES, **change)), AbortReason.ROSTER_DIGEST)


@pytest.mark.parametrize("name", ["degree", "threshold", "bits"])
def test_the_digest_binds_what_was_computed(name: str) -> None:
    """A digest over other numbers than those that plan and size give, which the roster itself states rightly."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, redigested(fleet, roster, **{name: 2}), AbortReason.ROSTER_DIGEST)


def test_more_members_than_one_works_for_are_refused() -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, replace(roster, size=MAX_ROSTER + 1), MALFORMED)


def test_a_size_for_which_no_graph_is_strong_enough_is_refused() -> None:
    """Half of the members corrupt and many of them: no number of neighbours holds."""
    plan = rules(min_size=3, corrupt="0.5", dropout="0.4")
    with pytest.raises(PlanError):
        plan.degree(10_000)
    fleet = Fleet(VECTORS, plan)
    fleet.advert_of(0)
    _, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, replace(roster, size=10_000), AbortReason.WEAK_PARAMETERS)


def test_own_advert_is_bound() -> None:
    """A roster that commits to another advert in my name (say, without `resent`) is none of mine."""
    fleet, roster = fleet_at(Roster, resent={0})
    assert isinstance(roster, Roster)
    own = own_advert(fleet)
    adverts = [resigned(fleet, 0, replace(own, resent=False)), *roster.adverts]
    root = Tree([roster_leaf(index, advert) for index, advert in enumerate(adverts)]).root
    digest = roster_digest(roster.round_id, RULES, 5, 4, roster.threshold, roster.bits, roster.formed_at, root)
    refused(fleet, replace(roster, digest=digest, resent=0), AbortReason.ROSTER_DIGEST)


def test_roster_below_the_smallest_is_refused() -> None:
    """min_size 5 and a tenth expected to drop: six have to begin."""
    _, roster = fleet_at(Roster)
    strict = Fleet(VECTORS, replace(RULES, min_size=5, dropout_fraction=RULES.corrupt_fraction))
    strict.advert_of(0)
    refused(strict, roster, AbortReason.COHORT_TOO_SMALL)


def test_roster_below_the_devices_own_floor_is_refused() -> None:
    fleet, roster = fleet_at(Roster, min_cohorts={0: 6})
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
    fleet, roster = fleet_at(Roster, min_cohorts={0: 5})
    assert fleet.participants[0].receive(roster, fleet.now)


def test_a_resent_member_counts_not_towards_the_floor_of_a_fresh_device() -> None:
    fleet, roster = fleet_at(Roster, resent={4}, min_cohorts={0: 5})
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
    fleet, roster = fleet_at(Roster, resent={4}, min_cohorts={0: 4})
    assert fleet.participants[0].receive(roster, fleet.now)


def test_too_few_fresh_members_are_refused_by_a_fresh_one_only() -> None:
    fleet, roster = fleet_at(Roster, resent={1, 2, 3})
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
    fleet, roster = fleet_at(Roster, resent={0, 1, 2})
    assert fleet.participants[0].receive(roster, fleet.now)


@pytest.mark.parametrize(("waited_s", "fits"), [(0, True), (90, True), (91, False), (10_000, False)])
def test_a_roster_that_came_late_is_refused(waited_s: int, fits: bool) -> None:
    """max_wait 30 s and 60 s of grace, by the participant's own clock since its advert, whatever `formed_at` says."""
    fleet, roster = fleet_at(Roster)
    fleet.now += waited_s
    if fits:
        assert fleet.participants[0].receive(roster, fleet.now)
    else:
        refused(fleet, redigested(fleet, replace(roster, formed_at=int(fleet.now))), AbortReason.WEAK_PARAMETERS)


AdvertChange = Callable[[Advert, Advert], Advert]
P = 2**255 - 19
ADVERT_LIES: dict[str, tuple[AbortReason, AdvertChange]] = {
    "another plan": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, plan_hash=bytes(32))),
    "another period": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, period_start=a.period_start + 86_400)),
    "report id too short": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, report_id=bytes(15))),
    "nonce too long": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, nonce=bytes(33))),
    "no commitment": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, self_mask_commitment=b"")),
    "mask key too short": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, mask_key=bytes(31))),
    "mask key zero": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, mask_key=bytes(32))),
    "channel key of order 8": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, channel_key=keys._ORDER_8_U[0].to_bytes(32, "little")),
    ),
    "mask key not reduced": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, mask_key=(P + 9).to_bytes(32, "little")),
    ),
    "channel key with the high bit": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, channel_key=a.channel_key[:31] + bytes([a.channel_key[31] | 128])),
    ),
    "identity twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, identity_key=o.identity_key)),
    "mask key twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, mask_key=o.mask_key)),
    "channel key twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, channel_key=o.channel_key)),
    "mask key is another's channel key": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, mask_key=o.channel_key)),
    "mask key is its own channel key": (AbortReason.DUPLICATE_KEY, lambda a, _: replace(a, mask_key=a.channel_key)),
}


@pytest.mark.parametrize("other", ["neighbour", "me"])
@pytest.mark.parametrize("lie", ADVERT_LIES)
def test_neighbours_advert_is_refused(lie: str, other: str) -> None:
    """Signed by the neighbour itself and committed to in the digest: refused for what it says."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    reason, change = ADVERT_LIES[lie]
    own = own_advert(fleet)
    advert = change(roster.adverts[2], own if other == "me" else roster.adverts[0])
    refused(fleet, with_neighbour(fleet, roster, 2, resigned(fleet, 3, advert)), reason)


SIGNED_FIELDS = {
    "mask_key": keys.public_bytes(keys.load_private(b"\x01" * 32)),
    "channel_key": keys.public_bytes(keys.load_private(b"\x02" * 32)),
    "self_mask_commitment": bytes(32),
    "nonce": bytes(32),
    "report_id": bytes(16),
    "resent": True,
    "min_cohort": 1,
    "signature": bytes(64),
}


@pytest.mark.parametrize("name", SIGNED_FIELDS)
def test_neighbours_signature_must_hold(name: str) -> None:
    """Any field changed on the way, keys above all, with a digest that fits the change."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    advert = replace(roster.adverts[3], **{name: SIGNED_FIELDS[name]})
    refused(fleet, with_neighbour(fleet, roster, 3, advert), AbortReason.BAD_ADVERT)


# --- certificates -----------------------------------------------------------------------------------

OTHER_REGISTRAR = IdentityKey(b"\x0f" * 32)
CERTIFICATE_LIES: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda key: b"",
    "cut": lambda key: certified(key)[:-1],
    "of another version": lambda key: b"\x02" + certified(key)[1:],
    "of another identity": lambda key: certified(OTHER_REGISTRAR.public_key),
    "by another registrar": lambda key: certified(key, registrar=OTHER_REGISTRAR),
    "an analyst's": lambda key: certified(key, role=Role.ANALYST),
    "expired when the period began": lambda key: certified(key, expires_at=PERIOD_START),
    "longer than signed": lambda key: certified(key)[:49] + b"\xff" + certified(key)[50:],
    "signature of zeros": lambda key: certified(key)[:50] + bytes(64),
}


@pytest.mark.parametrize("lie", CERTIFICATE_LIES)
def test_neighbours_certificate_must_hold(lie: str) -> None:
    """In an advert that its member signed, in a roster that commits to it: a made-up member is refused all the same."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    advert = replace(roster.adverts[2], certificate=CERTIFICATE_LIES[lie](roster.adverts[2].identity_key))
    refused(fleet, with_neighbour(fleet, roster, 2, resigned(fleet, 3, advert)), AbortReason.BAD_CERTIFICATE)


def test_a_member_of_the_collectors_own_making_is_refused() -> None:
    """A fresh identity, all keys and signatures its own: what it lacks is the registrar's word."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    made_up = IdentityKey(b"\x2a" * 32)
    for certificate in (certified(made_up.public_key, registrar=made_up), roster.adverts[2].certificate):
        fleet, roster = fleet_at(Roster)
        assert isinstance(roster, Roster)
        unsigned = replace(roster.adverts[2], identity_key=made_up.public_key, certificate=certificate)
        advert = replace(unsigned, signature=made_up.sign(advert_message(unsigned)))
        refused(fleet, with_neighbour(fleet, roster, 2, advert), AbortReason.BAD_CERTIFICATE)


def test_a_certificate_is_judged_at_the_periods_start() -> None:
    """It ran out a second later, long before this round: neither the collector's clock nor mine decides."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    key = roster.adverts[2].identity_key
    advert = resigned(fleet, 3, replace(roster.adverts[2], certificate=certified(key, expires_at=PERIOD_START + 1)))
    assert fleet.participants[0].receive(with_neighbour(fleet, roster, 2, advert), fleet.now)


def test_a_signed_advert_is_not_good_for_another_identity() -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    other = IdentityKey(b"\x2b" * 32)
    advert = replace(roster.adverts[3], identity_key=other.public_key, certificate=certified(other.public_key))
    refused(fleet, with_neighbour(fleet, roster, 3, advert), AbortReason.BAD_ADVERT)


# --- sparse graph -----------------------------------------------------------------------------------


def sparse_roster() -> tuple[Fleet, Roster]:
    fleet, roster = sparse_at(Roster, resent={1, 200})
    assert isinstance(roster, Roster)
    assert len(roster.neighbours) == 12
    assert roster.proof
    assert roster.resent == 2
    return fleet, roster


def test_a_sparse_roster_is_accepted() -> None:
    fleet, roster = sparse_roster()
    (shares,) = fleet.participants[0].receive(roster, fleet.now)
    assert isinstance(shares, SealedShares)
    assert shares.recipients == roster.neighbours
    assert len(shares.share_hashes) == 12 * 64, "nobody holds its own shares here"


def recounted(proof: tuple[bytes, ...], first: int, second: int) -> tuple[bytes, ...]:
    """The proof with other sums in the first node where they are not impossible by themselves."""
    nodes = [Node.from_bytes(node) for node in proof]
    place = next(i for i, n in enumerate(nodes) if 0 <= n.second + second <= n.first + first <= n.first)
    told = nodes[place]._replace(first=nodes[place].first + first, second=nodes[place].second + second)
    return (*proof[:place], told.to_bytes(), *proof[place + 1 :])


def unneighboured(roster: Roster) -> int:
    return next(index for index in range(1, roster.size) if index not in roster.neighbours)


SPARSE_LIES: dict[str, tuple[AbortReason, RosterChange]] = {
    "proof cut": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=r.proof[:-1])),
    "proof longer": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=(*r.proof, r.proof[0]))),
    "no proof": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=())),
    "node cut": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=(r.proof[0][:-1], *r.proof[1:]))),
    "nodes swapped": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=r.proof[::-1])),
    "a node changed": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, proof=(bytes(40), *r.proof[1:]))),
    "fewer resent": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, resent=r.resent - 1)),
    "more resent": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, resent=r.resent + 1)),
    "complete": (
        AbortReason.WRONG_GRAPH,
        lambda r: replace(r, neighbours=tuple(range(1, r.size)), adverts=(r.adverts * 30)[: r.size - 1]),
    ),
}


@pytest.mark.parametrize("lie", SPARSE_LIES)
def test_a_sparse_roster_is_refused(lie: str) -> None:
    fleet, roster = sparse_roster()
    reason, change = SPARSE_LIES[lie]
    refused(fleet, change(roster), reason)


@pytest.mark.parametrize(("first", "second"), [(-1, 0), (-1, -1), (0, 1)])
def test_members_may_not_be_counted_away_even_with_a_fitting_digest(first: int, second: int) -> None:
    """The digest commits to the lie; that all n are there once, and how many are resent, is checked beside it."""
    fleet, roster = sparse_roster()
    lie = redigested(fleet, replace(roster, proof=recounted(roster.proof, first, second)))
    refused(fleet, replace(lie, resent=roster.resent), AbortReason.ROSTER_DIGEST)


def test_a_graph_that_the_digest_does_not_give_is_refused() -> None:
    """One neighbour replaced by a member of the collector's choice, at its true place with its true advert."""
    fleet, roster = sparse_roster()
    chosen = unneighboured(roster)
    known = dict(zip(roster.neighbours, roster.adverts, strict=True))
    known[chosen] = fleet.round.roster.adverts[chosen]
    del known[roster.neighbours[5]]
    neighbours = tuple(sorted(known))
    tree = Tree([roster_leaf(index, advert) for index, advert in enumerate(fleet.round.roster.adverts)])
    lie = replace(
        roster,
        neighbours=neighbours,
        adverts=tuple(known[index] for index in neighbours),
        proof=tree.prove({0, *neighbours}),
    )
    assert redigested(fleet, lie) == lie, "proof and digest fit"
    refused(fleet, lie, AbortReason.WRONG_GRAPH)


def test_too_few_fresh_members_are_refused_by_their_number_alone() -> None:
    """Of 257 only two are fresh, I among them, and I see neither the other one nor most of the resent ones."""
    fleet, roster = sparse_at(Roster, resent=set(range(1, 256)))
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
