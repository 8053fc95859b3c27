"""What a participant refuses once it has a roster (that itself: `cohort.py`). One function per message that commits it.

Rules of this file: the collector is the adversary; a function returns nothing (or the facts it proved) and raises
RemoteProtocolError with one reason otherwise; every number that can be computed here is computed here and compared,
never taken over; what a member cannot see itself is folded into a root together with what it does see. Cheap checks
first, signatures last.
What it does not do: it keeps no state and answers nothing (`participant.py` does).

The list follows Bonawitz et al. 2017 sections 6 and 7 and the refusals of a deployed client for the same protocol:
called dead myself, a dead peer twice, an unknown peer, a peer revived, too few alive, keys not as I sent them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.identity import verify
from client_sdk.secagg import merkle
from client_sdk.secagg.messages import (
    SHARE_HASH_PAIR_BYTES,
    Advert,
    DeliveredShares,
    SurvivorStatus,
    UnmaskRequest,
)
from client_sdk.secagg.transcript import Status, status_leaf, status_root

if TYPE_CHECKING:
    from client_sdk.secagg.cohort import Cohort
    from client_sdk.secagg.parameters import RoundRules


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What I have signed, and whose signatures over the same bytes count: those of my holders that survived.

    keys: their identity keys by roster index, mine left out. own: 1 where I am a holder of my own shares, else 0.
    """

    message: bytes
    threshold: int
    index: int
    own: int
    keys: Mapping[int, bytes]


# --- shares ----------------------------------------------------------------------------------------


def check_delivered(delivered: DeliveredShares, cohort: Cohort) -> None:
    """May I mask with this committed set of sharers? Whether their pairs open is the caller's next question."""
    sharers, owners = delivered.sharers, delivered.owners
    if not (is_index_list(sharers, cohort.size) and is_index_list(owners, cohort.size)):
        raise RemoteProtocolError(AbortReason.MALFORMED, "indices are not ascending members of the roster")
    if len(owners) != len(delivered.sealed) or len(delivered.share_hashes) != SHARE_HASH_PAIR_BYTES * len(owners):
        raise RemoteProtocolError(AbortReason.MALFORMED, "owners, sealed pairs and hashes differ in number")
    if cohort.index not in sharers:
        raise RemoteProtocolError(AbortReason.MALFORMED, "I am no sharer")
    if not cohort.adverts.keys() >= set(sharers):
        raise RemoteProtocolError(AbortReason.MALFORMED, "a sharer is none of my neighbours")
    if not set(owners) <= set(sharers) - {cohort.index}:
        raise RemoteProtocolError(AbortReason.MALFORMED, "a pair comes from no other sharer")
    _check_sharers(sharers, cohort)


def _check_sharers(sharers: Sequence[int], cohort: Cohort) -> None:
    if not cohort.sees_all:
        # How many shared in the whole cohort shows in the status; here, whether my seeds could be opened at all.
        check_count(len(set(sharers) & set(cohort.holders)), cohort.threshold, AbortReason.TOO_FEW_SHARERS)
        return
    check_count(len(sharers), _floor(cohort), AbortReason.TOO_FEW_SHARERS)
    fresh = sum(not cohort.adverts[index].resent for index in sharers)
    fresh_floor = least_fresh(cohort.own, cohort.rules)
    if not cohort.own.resent and is_thin(fresh, fresh_floor):
        too_few_fresh(AbortReason.TOO_FEW_SHARERS, fresh, fresh_floor)


# --- status ----------------------------------------------------------------------------------------


def check_status(status: SurvivorStatus, cohort: Cohort, sharers: tuple[int, ...]) -> None:
    """May the self-masks of these survivors be opened? Then `status.root` is what I confirm."""
    survivors, fresh = status.survivors, status.contributors - status.resent_survivors
    if not is_index_list(survivors, cohort.size):
        raise RemoteProtocolError(AbortReason.MALFORMED, "survivors are not ascending members of the roster")
    if cohort.index not in survivors:
        raise RemoteProtocolError(AbortReason.NOT_A_SURVIVOR, "I am called a dropout")
    if not set(survivors) <= set(sharers):
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "a survivor is no sharer")
    check_count(status.contributors, _floor(cohort), AbortReason.TOO_FEW_SURVIVORS)
    # Also where I am resent myself: fresh members must not be opened with the help of resent ones.
    fresh_floor = least_fresh(cohort.own, cohort.rules)
    if is_thin(fresh, fresh_floor):
        too_few_fresh(AbortReason.TOO_FEW_SURVIVORS, fresh, fresh_floor)
    if status.resent_survivors > cohort.resent or fresh > cohort.size - cohort.resent:
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "more survivors of a kind than the roster has members")
    _check_root(status, cohort, frozenset(sharers))


def _check_root(status: SurvivorStatus, cohort: Cohort, sharers: Collection[int]) -> None:
    """The root commits to the statuses that I was told, resent flags as signed in the adverts, and to both sums."""
    survivors = frozenset(status.survivors)
    leaves = {
        index: status_leaf(cohort.digest, index, _status_of(index, sharers, survivors), resent=advert.resent)
        for index, advert in cohort.adverts.items()
    }
    root = folded(AbortReason.STATUS_MISMATCH, cohort.size, leaves, status.proof)
    if (root.first, root.second) != (status.contributors, status.resent_survivors):
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "the status tree counts other survivors")
    if status.root != status_root(cohort.digest, root):
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "the root does not fit the statuses I was told")


def check_met(survivors: Collection[int], usable: Collection[int], cohort: Cohort) -> None:
    """In the complete graph: are enough of the survivors members that take part in this very round?

    usable: owners of the pairs that opened, which takes their channel key and this roster's digest. An advert alone
    proves less: a collector may keep one from an aborted round, with the mask key that was opened there, and call its
    owner a survivor whenever it is short of one. In a sparse graph only the threshold of usable pairs and of
    confirmations stands against that, neighbourhood by neighbourhood.
    """
    if not cohort.sees_all:
        return
    met = set(survivors) & set(usable)
    check_count(len(met), _floor(cohort), AbortReason.TOO_FEW_SURVIVORS)
    fresh, fresh_floor = sum(not cohort.adverts[index].resent for index in met), least_fresh(cohort.own, cohort.rules)
    if is_thin(fresh, fresh_floor):
        too_few_fresh(AbortReason.TOO_FEW_SURVIVORS, fresh, fresh_floor)


def _status_of(index: int, sharers: Collection[int], survivors: Collection[int]) -> Status:
    if index in survivors:
        return Status.SURVIVED
    return Status.DROPPED if index in sharers else Status.ABSENT


# --- unmask ----------------------------------------------------------------------------------------


def check_unmask(request: UnmaskRequest, dropped: tuple[int, ...], confirmed: Confirmed) -> None:
    """May I reveal? Only what was confirmed, and only once enough of those who see me have signed the same status.

    dropped: exactly the sharers of my neighbourhood that did not survive, ascending: nobody else may be called
    dropped, and nobody twice.
    """
    if request.dropped != dropped:
        raise RemoteProtocolError(AbortReason.UNMASK_MISMATCH, "dropped is not sharers without survivors")
    signers = request.confirmed_by
    if len(signers) != len(request.confirmations) or not _is_ascending(signers):
        raise RemoteProtocolError(AbortReason.MALFORMED, "signers are not ascending members with a signature each")
    others = [pair for pair in zip(signers, request.confirmations, strict=True) if not _is_mine(pair[0], confirmed)]
    if not confirmed.keys.keys() >= {signer for signer, _ in others}:
        raise RemoteProtocolError(AbortReason.BAD_CONFIRMATION, "a signer is no surviving holder of my shares")
    need = confirmed.threshold - confirmed.own
    check_count(len(others), need, AbortReason.TOO_FEW_CONFIRMATIONS)
    for signer, signature in others[:need]:
        if not verify(confirmed.keys[signer], signature, confirmed.message):
            raise RemoteProtocolError(AbortReason.BAD_CONFIRMATION, "a confirmation's signature does not hold")


def _is_mine(signer: int, confirmed: Confirmed) -> bool:
    """My own signature, sent back to me where I am one of my holders: it counts, once, without being looked at."""
    return bool(confirmed.own) and signer == confirmed.index


# --- what several of them need -----------------------------------------------------------------------


def are_distinct(adverts: Collection[Advert]) -> bool:
    """Does no identity appear twice, and no X25519 key, be it as mask or as channel key?

    Over both kinds: a mask key's seed may be revealed, so it must not be somebody's channel key either.
    """
    identities = {advert.identity_key for advert in adverts}
    keys = {key for advert in adverts for key in (advert.mask_key, advert.channel_key)}
    return len(identities) == len(adverts) and len(keys) == 2 * len(adverts)


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


def _floor(cohort: Cohort) -> int:
    return max(cohort.rules.floor(cohort.size), cohort.own.min_cohort)


def check_count(have: int, need: int, reason: AbortReason) -> None:
    """Refuse what is fewer than it must be."""
    if have < need:
        raise RemoteProtocolError(reason, f"{have} of at least {need}")


def least_fresh(own: Advert, rules: RoundRules) -> int:
    """The fewest fresh contributors that I take where there are any.

    A fresh report asks for as many of its kind as its device wants to stand among: a resent one may be known already
    and hides nobody. For a resent one the plan's floor is enough, for it stands at its local epsilon anyhow.
    """
    return rules.min_size if own.resent else max(rules.min_size, own.min_cohort)


def too_few_fresh(reason: AbortReason, fresh: int, least: int) -> NoReturn:
    """The refusal where `is_thin`."""
    raise RemoteProtocolError(reason, f"{fresh} not resent of at least {least}")


def folded(reason: AbortReason, size: int, leaves: Mapping[int, merkle.Node], proof: Sequence[bytes]) -> merkle.Node:
    """The root over `size` leaves from those I know and the proof; refused for `reason` where they do not fit."""
    try:
        return merkle.root_from(size, leaves, proof)
    except ValueError as error:
        raise RemoteProtocolError(reason, str(error)) from error


def is_index_list(indices: Sequence[int], size: int) -> bool:
    """Strictly ascending, and each a member of a roster of `size`?"""
    return _is_ascending(indices) and (not indices or (indices[0] >= 0 and indices[-1] < size))


def _is_ascending(indices: Iterable[int]) -> bool:
    return all(a < b for a, b in pairwise(indices))
