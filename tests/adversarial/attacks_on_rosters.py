"""Attacks before anybody has masked: who is in the cohort, under which parameters, and who shares with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from client_sdk.certificate import Role
from client_sdk.errors import AbortReason
from client_sdk.identity import IdentityKey
from client_sdk.secagg.dealing import pair_hashes, split_pairs
from client_sdk.secagg.merkle import Tree
from client_sdk.secagg.messages import Advert, Roster, SealedShares
from client_sdk.secagg.transcript import roster_digest, roster_leaf
from tests.adversarial.attacks import Attack, Spoils, sparse
from tests.adversarial.dishonest_collector import Liar
from tests.adversarial.puppets import Puppet
from tests.adversarial.weakening import Line, Other
from tests.fleet import PERIOD_START, PLAN_HASH, certified, rules

VECTORS = [[i, 10 * i] for i in range(1, 8)]
VICTIM = frozenset({0})
COUNTS = Other("checks.check_count", "nothing is too few", lambda have, need, reason: None)


def spoils(liar: Liar, members: Sequence[int], victims: frozenset[int] = VICTIM) -> Spoils:
    return Spoils(liar.open(members), liar.truth(members), liar.refusals, victims)


def alone_among(puppets: Sequence[Puppet]) -> Spoils:
    """One honest member; with all others in the collector's hands its report is there for the taking."""
    liar = Liar(rules(min_size=3), VECTORS[:1], puppets)
    liar.begin()
    liar.deliver(0)
    return spoils(liar, [0])


# --- adverts ---------------------------------------------------------------------------------------


def self_made_adverts() -> Spoils:
    """Seven devices that no registrar knows: the collector signs their certificates with a key of its own."""
    own = IdentityKey(bytes(range(32)))
    puppets = [Puppet(f"self-made {i}") for i in range(6)]
    for puppet in puppets:
        puppet.certificate = certified(puppet.identity.public_key, registrar=own)
    return alone_among(puppets)


def expired_certificates() -> Spoils:
    """Identities of devices thrown away long ago, each with a certificate that was good once."""
    puppets = [Puppet(f"expired {i}") for i in range(6)]
    for puppet in puppets:
        puppet.certificate = certified(puppet.identity.public_key, expires_at=PERIOD_START)
    return alone_among(puppets)


def analysts_as_devices() -> Spoils:
    puppets = [Puppet(f"analyst {i}") for i in range(6)]
    for puppet in puppets:
        puppet.certificate = certified(puppet.identity.public_key, role=Role.ANALYST)
    return alone_among(puppets)


def swapped_adverts() -> Spoils:
    """Identities and certificates of six honest devices, round keys of the collector's: it sits in between."""
    devices = [IdentityKey(bytes([i]) * 32) for i in range(1, 7)]

    class Double(Puppet):
        def advert(self) -> Advert:
            """Signed with a key of its own: it has not the device's."""
            return replace(super().advert(), identity_key=self.device, certificate=certified(self.device))

    puppets = []
    for place, device in enumerate(devices):
        double = Double(f"double {place}")
        double.device = device.public_key
        puppets.append(double)
    return alone_among(puppets)


def one_member_in_many_places() -> Spoils:
    """The one device that the collector has in its hands, six times over, each time with other keys."""
    identity = IdentityKey(b"i" * 32)
    return alone_among([Puppet(f"place {i}", identity) for i in range(6)])


def different_plans() -> Spoils:
    """The others report under another plan, in which what they report is known: all zeros."""
    others = dict.fromkeys(range(1, 7), bytes(reversed(PLAN_HASH)))
    liar = Liar(rules(min_size=3), [VECTORS[0], *[[0, 0]] * 6], plan_hashes=others)
    liar.begin()
    liar.deliver_all()
    liar.finish(liar.honest)
    return Spoils(liar.open(liar.honest), VECTORS[0], liar.refusals, frozenset(liar.honest))


# --- numbers ---------------------------------------------------------------------------------------


def shrunken_cohort() -> Spoils:
    """One honest member and two puppets, where the plan wants five. It is a resent one, so it asks for no fresh."""
    liar = Liar(rules(min_size=5), VECTORS[:1], 2, resent={0})
    liar.begin()
    liar.deliver(0)
    return spoils(liar, [0])


def a_devices_own_floor_ignored() -> Spoils:
    """Seven contributors, which the plan allows; one of them is set to take part in sums of twenty only."""
    liar = Liar(rules(min_size=3), VECTORS, min_cohorts={0: 20}, resent={0})
    liar.begin()
    liar.deliver_all()
    liar.finish(liar.honest)
    return spoils(liar, liar.honest)


def lowered_threshold() -> Spoils:
    """Two puppets among seven; five shares are needed. Told: two are enough."""
    liar = Liar(rules(min_size=3, corrupt="2/7"), VECTORS[:5], 2)
    adverts = liar.adverts()
    assert liar.commit(adverts).threshold == 5
    liar.roster.threshold = liar.threshold_told = 2
    liar.roster.digest = digest_over(liar, adverts, threshold=2)
    liar.deal()
    liar.deliver(0)
    return spoils(liar, [0], frozenset(liar.honest))


def digest_over(liar: Liar, adverts: Sequence[Advert], threshold: int | None = None) -> bytes:
    roster = liar.roster
    root = Tree([roster_leaf(index, advert) for index, advert in enumerate(adverts)]).root
    return roster_digest(
        roster.round_id, liar.rules, roster.size, roster.degree, threshold or roster.threshold, roster.bits,
        roster.formed_at, root,
    )  # fmt: skip


def searched_for_too_long() -> Spoils:
    """The collector tries cohorts until all neighbours of its victim are puppets: one that it can try takes a second.

    Six puppets among twenty-four and four neighbours: in the time that a device waits it does not find one.
    """
    with sparse(4, 3):
        liar = Liar(rules(min_size=12), [[i, 10 * i] for i in range(18)], 6)
        adverts = liar.adverts()
        seconds = 0
        while True:
            liar.commit(adverts)
            if set(liar.roster.graph.neighbours(0)) <= set(liar.played):
                break
            seconds += 1
            adverts[18] = liar.played[18].advert()  # the same keys, another nonce of its own
        assert seconds > 90, "too quick to be an attack that waiting allows"
        liar.now += seconds
        liar.deal()
        liar.deliver(0)
        return spoils(liar, [0])


def fresh_among_resent() -> Spoils:
    """A sum over six reports; then the same six once more, with one that is new: the difference is the new one."""
    first = Liar(rules(min_size=4), VECTORS[1:], name="before")
    first.begin()
    first.deliver_all()
    first.finish(first.honest)
    known = first.open(first.honest)
    assert known == first.truth(first.honest)
    again = Liar(rules(min_size=4), VECTORS, resent=range(1, 7), name="again")
    again.begin()
    again.deliver_all()
    again.finish(again.honest)
    both = again.open(again.honest)
    learnt = None if both is None else [b - k for b, k in zip(both, known, strict=True)]
    return Spoils(learnt, VECTORS[0], again.refusals, VICTIM)


# --- the graph -------------------------------------------------------------------------------------

SPARSE_RULES = rules(min_size=3, dropout="0.02")
"""Nobody corrupt: twelve neighbours, seven shares, from 257 members on."""


def neighbours_of_the_collectors_choice() -> Spoils:
    """257 members, twelve of them puppets: told to be just the victim's neighbours."""
    liar = Liar(SPARSE_RULES, [[i, 2 * i] for i in range(245)], 12)
    liar.commit(liar.adverts())
    puppets = tuple(liar.played)
    assert liar.roster.degree == 12
    assert not liar.roster.is_complete
    liar.holders_told[0] = puppets
    for index in puppets:
        liar.holders_told[index] = (0,)
        liar.sealed[index] = puppet_deals_to(liar, index, 0)
    for reply in liar.say(0, chosen(liar, puppets)):
        liar.sealed[0] = reply
    liar.deliver(0)
    return spoils(liar, [0])


def chosen(liar: Liar, neighbours: tuple[int, ...]) -> Roster:
    """Member 0's roster with these neighbours: their true adverts, a true proof."""
    roster = liar.roster.for_member(0)
    proof = liar.roster._tree.prove((0, *neighbours))
    adverts = tuple(liar.roster.adverts[i] for i in neighbours)
    return replace(roster, neighbours=neighbours, adverts=adverts, proof=proof)


def puppet_deals_to(liar: Liar, index: int, reader: int) -> SealedShares:
    """A puppet's pair for one member that is no neighbour of it."""
    puppet = liar.played[index]
    pairs = split_pairs(puppet.secrets, (reader,), 1, puppet.entropy)
    sealed = puppet._seal(liar.roster, index, reader, pairs[reader])
    return SealedShares((reader,), (sealed,), pair_hashes(liar.roster.digest, index, reader, pairs[reader]), bytes(64))


def own_advert_altered() -> Spoils:
    """The victim's advert stands in the tree with another commitment, again and again, until the graph suits.

    Nobody has to be asked for that, and every try gives another graph.
    """
    with sparse(4, 3):
        liar = Liar(rules(min_size=6), [[i, 10 * i] for i in range(8)], 6)
        adverts = liar.adverts()
        true, tries = adverts[0], 0
        while True:
            altered = replace(true, self_mask_commitment=tries.to_bytes(32, "big"))
            liar.commit([altered, *adverts[1:]])
            if set(liar.roster.graph.neighbours(0)) <= set(liar.played):
                break
            tries += 1
        liar.roster.adverts = tuple(adverts)
        liar.deal()
        liar.deliver(0)
        return spoils(liar, [0])


NOT_CERTIFIED = "if not _is_signed(data, registrar_key):"
GRAPH_TOLD = """graph = type("Told", (), {
        "neighbours": lambda self, index: roster.neighbours, "holders": lambda self, index: roster.neighbours})()"""

ROSTER_ATTACKS = {
    "self-made adverts": Attack(
        self_made_adverts, (Line("certificate.check", NOT_CERTIFIED, "if False:"),), AbortReason.BAD_CERTIFICATE
    ),
    "expired certificates": Attack(
        expired_certificates,
        (Line("certificate.check", "if at >= certificate.expires_at:", "if False:"),),
        AbortReason.BAD_CERTIFICATE,
    ),
    "another role's certificates": Attack(
        analysts_as_devices,
        (Line("certificate.check", "if certificate.role is not role:", "if False:"),),
        AbortReason.BAD_CERTIFICATE,
    ),
    "swapped adverts": Attack(
        swapped_adverts,
        (
            Line(
                "cohort._check_signatures",
                "if not verify(advert.identity_key, advert.signature, advert_message(advert)):",
                "if False:",
            ),
        ),
        AbortReason.BAD_ADVERT,
    ),
    "one member in many places": Attack(
        one_member_in_many_places,
        (Line("cohort.check_roster", "if not are_distinct(adverts.values()):", "if False:"),),
        AbortReason.DUPLICATE_KEY,
    ),
    "different plans": Attack(
        different_plans,
        (
            Line(
                "cohort._check_advert",
                "if (advert.plan_hash, advert.period_start) != (own.plan_hash, own.period_start):",
                "if False:",
            ),
        ),
        AbortReason.BAD_ADVERT,
    ),
    "shrunken cohort": Attack(shrunken_cohort, (COUNTS,), AbortReason.COHORT_TOO_SMALL),
    "a device's own floor ignored": Attack(a_devices_own_floor_ignored, (COUNTS,), AbortReason.COHORT_TOO_SMALL),
    "lowered threshold": Attack(
        lowered_threshold,
        (
            Line(
                "cohort._check_parameters",
                "if (roster.threshold, roster.bits, roster.length) != expected:",
                "if False:",
            ),
        ),
        AbortReason.WEAK_PARAMETERS,
    ),
    "a roster searched for too long": Attack(
        searched_for_too_long,
        (Line("cohort._check_parameters", "if waited_s > rules.max_wait_s + ROSTER_GRACE_S:", "if False:"),),
        AbortReason.WEAK_PARAMETERS,
    ),
    "a fresh report among resent ones": Attack(
        fresh_among_resent,
        (Other("checks.is_thin", "fresh and resent count alike", lambda fresh, min_size: False),),
        AbortReason.COHORT_TOO_SMALL,
    ),
    "a chosen graph": Attack(
        neighbours_of_the_collectors_choice,
        (Line("cohort.check_roster", "graph = graph_of(roster.size, degree, roster.digest)", GRAPH_TOLD),),
        AbortReason.WRONG_GRAPH,
    ),
    "own advert altered": Attack(
        own_advert_altered,
        (Line("cohort._check_digest", "if roster.digest != expected:", "if False:"),),
        AbortReason.ROSTER_DIGEST,
    ),
}
