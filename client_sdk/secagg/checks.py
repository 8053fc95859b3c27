"""What a participant refuses. One function per message of the collector that commits the participant to something.

Rules of this file: the collector is the adversary; a function returns nothing (or the facts it proved) and raises
RemoteProtocolError with one reason otherwise; every number that can be computed here is computed here and compared,
never taken over. Cheap checks first, signatures last.
What it does not do: it keeps no state and answers nothing (`participant.py` does).

The list follows Bonawitz et al. 2017 sections 6 and 7 and the refusals of a deployed client for the same protocol:
called dead myself, a dead peer twice, an unknown peer, a peer revived, too few alive, keys not as I sent them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from client_sdk.errors import AbortReason, PlanError, RemoteProtocolError
from client_sdk.identity import verify
from client_sdk.secagg.keys import is_valid_public
from client_sdk.secagg.messages import (
    DIGEST_BYTES,
    NONCE_BYTES,
    REPORT_ID_BYTES,
    SIGNATURE_BYTES,
    Advert,
    DeliveredShares,
    Roster,
    SurvivorStatus,
    UnmaskRequest,
)
from client_sdk.secagg.parameters import MAX_ROSTER, ROSTER_GRACE_S, RoundRules
from client_sdk.secagg.transcript import advert_message, roster_digest, status_root


@dataclass(frozen=True, slots=True)
class Cohort:
    """An accepted roster as member `index` sees it; all of it public. `adverts` is in roster order, mine included."""

    round_id: str
    index: int
    threshold: int
    bits: int
    digest: bytes
    adverts: tuple[Advert, ...]
    rules: RoundRules

    @property
    def size(self) -> int:
        return len(self.adverts)

    @property
    def own(self) -> Advert:
        return self.adverts[self.index]

    @property
    def resent(self) -> frozenset[int]:
        """Members whose report may have left its device before."""
        return frozenset(index for index, advert in enumerate(self.adverts) if advert.resent)


def check_roster(roster: Roster, own: Advert, rules: RoundRules, waited_s: float) -> Cohort:
    """The cohort, if I may share secrets with it.

    waited_s: seconds since I sent my advert. No roster that holds my advert can be older, whatever `formed_at` says
    and however wrong this device's clock is; a longer wait gave the collector time to search for members.
    """
    _check_size(roster, own, rules)
    _check_shape(roster)
    _check_parameters(roster, rules, waited_s)
    adverts = (*roster.adverts[: roster.index], own, *roster.adverts[roster.index :])
    cohort = Cohort(roster.round_id, roster.index, roster.threshold, roster.bits, roster.digest, adverts, rules)
    if not are_distinct(adverts):
        raise RemoteProtocolError(AbortReason.DUPLICATE_KEY, "two members share an identity or a key")
    for advert in roster.adverts:
        _check_advert(advert, own)
    if not own.resent:
        _check_fresh(range(roster.size), cohort, AbortReason.COHORT_TOO_SMALL)
    expected = roster_digest(roster.round_id, rules, roster.threshold, roster.bits, roster.formed_at, adverts)
    if roster.digest != expected:
        raise RemoteProtocolError(AbortReason.ROSTER_DIGEST, "the roster is not what its digest commits to")
    for advert in roster.adverts:
        if not verify(advert.identity_key, advert.signature, advert_message(advert)):
            raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's signature does not hold")
    return cohort


def _check_size(roster: Roster, own: Advert, rules: RoundRules) -> None:
    need = max(rules.min_roster, own.min_cohort)
    if roster.size < need:
        raise RemoteProtocolError(AbortReason.COHORT_TOO_SMALL, f"{roster.size} members of at least {need}")
    if roster.size > MAX_ROSTER:
        raise RemoteProtocolError(AbortReason.MALFORMED, f"{roster.size} members, at most {MAX_ROSTER}")


def _check_shape(roster: Roster) -> None:
    if not 0 <= roster.index < roster.size or roster.index in roster.neighbours:
        raise RemoteProtocolError(AbortReason.OWN_ADVERT_MISSING, "I am not at my own place in the roster")
    others = (*range(roster.index), *range(roster.index + 1, roster.size))
    if roster.neighbours != others or len(roster.adverts) != len(others):
        raise RemoteProtocolError(AbortReason.MALFORMED, "neighbours are not all other members, ascending")
    if not roster.round_id:
        raise RemoteProtocolError(AbortReason.MALFORMED, "the round has no id")


def _check_parameters(roster: Roster, rules: RoundRules, waited_s: float) -> None:
    try:
        expected = (rules.threshold(roster.size), rules.bits(roster.size), rules.length)
    except PlanError as error:
        raise RemoteProtocolError(AbortReason.WEAK_PARAMETERS, "the plan's sum would not fit the ring") from error
    if (roster.threshold, roster.bits, roster.length) != expected:
        raise RemoteProtocolError(
            AbortReason.WEAK_PARAMETERS, "threshold, bits and length are not what the plan and the size give"
        )
    if waited_s > rules.max_wait_s + ROSTER_GRACE_S:
        raise RemoteProtocolError(AbortReason.WEAK_PARAMETERS, "the roster came too late to be fresh")


def are_distinct(adverts: Sequence[Advert]) -> bool:
    """Does no identity appear twice, and no X25519 key, be it as mask or as channel key?

    Over both kinds: a mask key's seed may be revealed, so it must not be somebody's channel key either.
    """
    identities = {advert.identity_key for advert in adverts}
    keys = {key for advert in adverts for key in (advert.mask_key, advert.channel_key)}
    return len(identities) == len(adverts) and len(keys) == 2 * len(adverts)


def _check_advert(advert: Advert, own: Advert) -> None:
    if (advert.plan_hash, advert.period_start) != (own.plan_hash, own.period_start):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour is in another plan or period")
    if not (is_valid_public(advert.mask_key) and is_valid_public(advert.channel_key)):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's key is no acceptable X25519 encoding")
    sizes = (advert.report_id, advert.nonce, advert.self_mask_commitment, advert.signature)
    if tuple(map(len, sizes)) != (REPORT_ID_BYTES, NONCE_BYTES, DIGEST_BYTES, SIGNATURE_BYTES):
        raise RemoteProtocolError(AbortReason.BAD_ADVERT, "a neighbour's advert has a field of the wrong length")


def check_delivered(delivered: DeliveredShares, cohort: Cohort) -> None:
    """May I mask with this committed set of sharers? Whether their pairs open is the caller's next question."""
    sharers, owners = delivered.sharers, delivered.owners
    if not (_is_index_list(sharers, cohort.size) and _is_index_list(owners, cohort.size)):
        raise RemoteProtocolError(AbortReason.MALFORMED, "indices are not ascending members of the roster")
    if len(owners) != len(delivered.sealed):
        raise RemoteProtocolError(AbortReason.MALFORMED, "owners and sealed pairs differ in number")
    if cohort.index not in sharers:
        raise RemoteProtocolError(AbortReason.MALFORMED, "I am no sharer")
    if not set(owners) <= set(sharers) - {cohort.index}:
        raise RemoteProtocolError(AbortReason.MALFORMED, "a pair comes from no other sharer")
    _check_count(sharers, cohort, AbortReason.TOO_FEW_SHARERS)
    if not cohort.own.resent:
        _check_fresh(sharers, cohort, AbortReason.TOO_FEW_SHARERS)


def check_status(status: SurvivorStatus, cohort: Cohort, sharers: tuple[int, ...]) -> None:
    """May the self-masks of these survivors be opened? Then `status.root` is what I confirm."""
    survivors = status.survivors
    if not _is_index_list(survivors, cohort.size):
        raise RemoteProtocolError(AbortReason.MALFORMED, "survivors are not ascending members of the roster")
    if cohort.index not in survivors:
        raise RemoteProtocolError(AbortReason.NOT_A_SURVIVOR, "I am called a dropout")
    if not set(survivors) <= set(sharers):
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "a survivor is no sharer")
    _check_count(survivors, cohort, AbortReason.TOO_FEW_SURVIVORS)
    # Also where I am resent myself: fresh members must not be opened with the help of resent ones.
    _check_fresh(survivors, cohort, AbortReason.TOO_FEW_SURVIVORS)
    resent = len(cohort.resent.intersection(survivors))
    expected = status_root(cohort.digest, sharers, survivors, resent)
    if status.resent_survivors != resent or status.root != expected:
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "root or resent count do not fit the survivors")


def check_unmask(request: UnmaskRequest, dropped: tuple[int, ...]) -> None:
    """Exactly the sharers that did not survive, ascending: nobody else may be called dropped, and nobody twice."""
    if request.dropped != dropped:
        raise RemoteProtocolError(AbortReason.UNMASK_MISMATCH, "dropped is not sharers without survivors")


def dropped_sharers(sharers: Sequence[int], survivors: Collection[int]) -> tuple[int, ...]:
    """Sharers without survivors, ascending."""
    alive = frozenset(survivors)
    return tuple(index for index in sharers if index not in alive)


def is_thin(fresh: int, min_size: int) -> bool:
    """Would reports that never left before stand in a sum with fewer than `min_size` of their kind?

    A resent report may already stand in another sum, so only fresh ones hide one another; a sum of resent reports
    alone is allowed, each at its local epsilon.
    """
    return 0 < fresh < min_size


def _check_count(members: Sequence[int], cohort: Cohort, reason: AbortReason) -> None:
    need = max(cohort.rules.floor(cohort.size), cohort.own.min_cohort)
    if len(members) < need:
        raise RemoteProtocolError(reason, f"{len(members)} of at least {need}")


def _check_fresh(members: Sequence[int], cohort: Cohort, reason: AbortReason) -> None:
    fresh = len(members) - len(cohort.resent.intersection(members))
    if is_thin(fresh, cohort.rules.min_size):
        raise RemoteProtocolError(reason, f"{fresh} not resent of at least {cohort.rules.min_size}")


def _is_index_list(indices: Sequence[int], size: int) -> bool:
    ascending = all(a < b for a, b in pairwise(indices))
    return ascending and (not indices or (indices[0] >= 0 and indices[-1] < size))
