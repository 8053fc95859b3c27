"""A cohort that a participant accepts, and all that it refuses in a roster.

Rules of this file: the collector is the adversary; every number that plan and size give is computed here and compared,
never taken over; the adverts of the neighbours are folded, with the proof, into the root that the digest commits to,
and the digest alone gives the graph. Constant checks first, the tree and the graph next, signatures last.
What it does not do: members outside the neighbourhood are counted, not seen. Whose neighbours they are sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from client_sdk import certificate
from client_sdk.errors import AbortReason, PlanError, RemoteProtocolError
from client_sdk.identity import verify
from client_sdk.secagg.checks import (
    are_distinct,
    check_count,
    folded,
    is_index_list,
    is_thin,
    least_fresh,
    too_few_fresh,
)
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.keys import is_valid_public
from client_sdk.secagg.messages import (
    DIGEST_BYTES,
    NONCE_BYTES,
    REPORT_ID_BYTES,
    SIGNATURE_BYTES,
    Advert,
    Roster,
)
from client_sdk.secagg.parameters import MAX_ROSTER, ROSTER_GRACE_S, RoundRules
from client_sdk.secagg.transcript import advert_message, roster_digest, roster_leaf


@dataclass(frozen=True, slots=True)
class Cohort:
    """An accepted roster as member `index` sees it; all of it public.

    adverts: those of my neighbourhood by roster index, mine included. holders: who holds shares of my seeds, ascending.
    resent: resent members of the whole roster, as proven.
    """

    round_id: str
    index: int
    size: int
    threshold: int
    bits: int
    digest: bytes
    adverts: Mapping[int, Advert]
    holders: tuple[int, ...]
    resent: int
    rules: RoundRules

    @property
    def own(self) -> Advert:
        return self.adverts[self.index]

    @property
    def sees_all(self) -> bool:
        """Is everybody in my neighbourhood? Then I count the members myself, and hold a pair of my own shares."""
        return len(self.adverts) == self.size


def check_roster(roster: Roster, own: Advert, rules: RoundRules, registrar_key: bytes, waited_s: float) -> Cohort:
    """The cohort, if I may share secrets with it.

    registrar_key: who alone says which identities are devices. waited_s: seconds since I sent my advert. No roster that
    holds my advert can be older, whatever `formed_at` says and however wrong this device's clock is; a longer wait gave
    the collector time to search for members.
    """
    _check_size(roster, own, rules)
    _check_shape(roster)
    degree = _check_parameters(roster, rules, waited_s)
    adverts = {roster.index: own, **dict(zip(roster.neighbours, roster.adverts, strict=True))}
    if not are_distinct(adverts.values()):
        raise RemoteProtocolError(AbortReason.DUPLICATE_KEY, "two members share an identity or a key")
    for advert in roster.adverts:
        _check_advert(advert, own)
    _check_digest(roster, rules, degree, adverts)
    fresh, fresh_floor = roster.size - roster.resent, least_fresh(own, rules)
    if not own.resent and is_thin(fresh, fresh_floor):
        too_few_fresh(AbortReason.COHORT_TOO_SMALL, fresh, fresh_floor)
    graph = graph_of(roster.size, degree, roster.digest)
    if roster.neighbours != graph.neighbours(roster.index):
        raise RemoteProtocolError(AbortReason.WRONG_GRAPH, "my neighbours are not those that the roster gives")
    for advert in roster.adverts:
        _check_signatures(advert, registrar_key)
    return Cohort(
        round_id=roster.round_id,
        index=roster.index,
        size=roster.size,
        threshold=roster.threshold,
        bits=roster.bits,
        digest=roster.digest,
        adverts=adverts,
        holders=graph.holders(roster.index),
        resent=roster.resent,
        rules=rules,
    )


def _check_size(roster: Roster, own: Advert, rules: RoundRules) -> None:
    check_count(roster.size, max(rules.min_roster, own.min_cohort), AbortReason.COHORT_TOO_SMALL)
    if roster.size > MAX_ROSTER:
        raise RemoteProtocolError(AbortReason.MALFORMED, f"{roster.size} members, at most {MAX_ROSTER}")


def _check_shape(roster: Roster) -> None:
    if not 0 <= roster.index < roster.size or roster.index in roster.neighbours:
        raise RemoteProtocolError(AbortReason.OWN_ADVERT_MISSING, "I am not at my own place in the roster")
    if not is_index_list(roster.neighbours, roster.size) or len(roster.adverts) != len(roster.neighbours):
        raise RemoteProtocolError(AbortReason.MALFORMED, "neighbours are not ascending members with an advert each")
    if not roster.round_id:
        raise RemoteProtocolError(AbortReason.MALFORMED, "the round has no id")


def _check_parameters(roster: Roster, rules: RoundRules, waited_s: float) -> int:
    """The graph's degree, once all that plan and size give is as it should be."""
    try:
        degree = rules.degree(roster.size)
        expected = (rules.threshold(roster.size), rules.bits(roster.size), rules.length)
    except PlanError as error:
        raise RemoteProtocolError(AbortReason.WEAK_PARAMETERS, "the plan allows no round of this size") from error
    if (roster.threshold, roster.bits, roster.length) != expected:
        raise RemoteProtocolError(
            AbortReason.WEAK_PARAMETERS, "threshold, bits and length are not what the plan and the size give"
        )
    if waited_s > rules.max_wait_s + ROSTER_GRACE_S:
        raise RemoteProtocolError(AbortReason.WEAK_PARAMETERS, "the roster came too late to be fresh")
    if len(roster.neighbours) != degree:
        raise RemoteProtocolError(AbortReason.WRONG_GRAPH, f"{len(roster.neighbours)} neighbours instead of {degree}")
    return degree


def _check_advert(advert: Advert, own: Advert) -> None:
    if (advert.plan_hash, advert.period_start) != (own.plan_hash, own.period_start):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour is in another plan or period")
    if not (is_valid_public(advert.mask_key) and is_valid_public(advert.channel_key)):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's key is no acceptable X25519 encoding")
    sizes = (advert.report_id, advert.nonce, advert.self_mask_commitment, advert.signature)
    if tuple(map(len, sizes)) != (REPORT_ID_BYTES, NONCE_BYTES, DIGEST_BYTES, SIGNATURE_BYTES):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's advert has a field of the wrong length")


def _check_digest(roster: Roster, rules: RoundRules, degree: int, adverts: Mapping[int, Advert]) -> None:
    """The digest commits to these parameters and to these adverts at these places, and counts every member once."""
    leaves = {index: roster_leaf(index, advert) for index, advert in adverts.items()}
    root = folded(AbortReason.ROSTER_DIGEST, roster.size, leaves, roster.proof)
    if (root.first, root.second) != (roster.size, roster.resent):
        raise RemoteProtocolError(AbortReason.ROSTER_DIGEST, "the roster's tree counts other members")
    expected = roster_digest(
        roster.round_id, rules, roster.size, degree, roster.threshold, roster.bits, roster.formed_at, root
    )
    if roster.digest != expected:
        raise RemoteProtocolError(AbortReason.ROSTER_DIGEST, "the roster is not what its digest commits to")


def _check_signatures(advert: Advert, registrar_key: bytes) -> None:
    # At the period's start, which I know myself: neither the collector nor a wrong clock decides what has expired.
    try:
        role, at = certificate.Role.DEVICE, advert.period_start
        certificate.check(advert.certificate, registrar_key, advert.identity_key, role, at)
    except certificate.CertificateError as error:
        detail = f"a neighbour's certificate does not hold: {error.reason}"
        raise RemoteProtocolError(AbortReason.BAD_CERTIFICATE, detail) from error
    if not verify(advert.identity_key, advert.signature, advert_message(advert)):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's signature does not hold")
