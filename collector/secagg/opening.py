"""Opening a sum: from the survivors' masked total and the members' shares to the total itself.

Rules of this file: plain data in, plain integers out, so that it can run in another process (X25519 and short
keystreams hold the interpreter's lock). Of every owner exactly one seed is reconstructed: the self-mask seed of a
survivor, the mask-key seed of a dropout. Each seed is checked against what its owner advertised before it is used:
a wrong share can end the round, never change the sum.
What it does not do: it does not look for the wrong share (an owner has more shares here than it takes, so a later
check per share can leave some out), and it does not judge whether the sum is plausible.

What stands in the masked total of survivors S after masking with sharers H >= S: pairwise masks inside S cancel;
left are PRG(self-mask seed) of each survivor and, for each survivor and each dropout in H - S, their pairwise mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.secagg import keys, masking, shamir

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey


@dataclass(frozen=True, slots=True)
class OwnerShares:
    """The shares that were released of one owner's seed; `shares[i]` was held by roster index `holders[i]`.

    advertised: the self-mask commitment of a survivor, the mask key of a dropout: what the seed must fit.
    mask_key: the owner's mask key.
    """

    owner: int
    advertised: bytes
    mask_key: bytes
    holders: tuple[int, ...]
    shares: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Opening:
    """All that is needed to open one sum; picklable.

    masked_total: the survivors' masked inputs added modulo 2^bits, little endian.
    """

    bits: int
    threshold: int
    roster_digest: bytes
    masked_total: bytes = field(repr=False)
    survivors: tuple[OwnerShares, ...]
    dropped: tuple[OwnerShares, ...]


def open_sum(opening: Opening) -> list[int]:
    """The signed totals, one per element.

    Raises RoundAbortedError: TOO_FEW_RESPONSES where an owner has fewer than `threshold` shares, WRONG_SHARES where
    a reconstructed seed does not fit what its owner advertised (`have` = owners that fit so far, `need` = all).
    """
    total = masking.ring_from_bytes(opening.masked_total, opening.bits)
    masking.remove_masks(total, _remaining_masks(opening))
    return masking.from_ring(total)


def _remaining_masks(opening: Opening) -> Iterator[masking.Mask]:
    seeds = _Seeds(opening)
    for survivor in opening.survivors:
        yield keys.self_mask(seeds.self_mask(survivor), opening.roster_digest, survivor.owner), 1
    peers = [(survivor.owner, keys.load_public(survivor.mask_key)) for survivor in opening.survivors]
    for dropout in opening.dropped:
        private = seeds.mask_private(dropout)
        for survivor_index, peer in peers:
            yield _survivors_side(private, peer, opening.roster_digest, dropout.owner, survivor_index)


def _survivors_side(
    dropouts_key: X25519PrivateKey, peer: X25519PublicKey, roster_digest: bytes, dropout: int, survivor: int
) -> masking.Mask:
    # Derived with the dropout's key, but it stands in the total with the survivor's sign.
    seed, dropouts_sign = keys.pairwise_mask(dropouts_key, peer, roster_digest, dropout, survivor)
    return seed, -dropouts_sign


class _Seeds:
    """Reconstructs one seed an owner, and counts how many fitted."""

    def __init__(self, opening: Opening) -> None:
        self._threshold = opening.threshold
        self._owners = len(opening.survivors) + len(opening.dropped)
        self._fitted = 0

    def self_mask(self, survivor: OwnerShares) -> bytes:
        seed = self._reconstruct(survivor)
        self._require(keys.self_mask_commitment(seed) == survivor.advertised)
        return seed

    def mask_private(self, dropout: OwnerShares) -> X25519PrivateKey:
        private = keys.load_private(self._reconstruct(dropout))
        self._require(keys.public_bytes(private) == dropout.advertised)
        return private

    def _reconstruct(self, owner: OwnerShares) -> bytes:
        if len(owner.shares) < self._threshold:
            have, need = len(owner.shares), self._threshold
            raise RoundAbortedError(AbortReason.TOO_FEW_RESPONSES, have=have, need=need)
        xs = [holder + 1 for holder in owner.holders[: self._threshold]]
        try:
            return shamir.combine(xs, owner.shares[: self._threshold])
        except ValueError:
            raise self._wrong_shares() from None

    def _require(self, fits: bool) -> None:
        if not fits:
            raise self._wrong_shares()
        self._fitted += 1

    def _wrong_shares(self) -> RoundAbortedError:
        return RoundAbortedError(AbortReason.WRONG_SHARES, have=self._fitted, need=self._owners)
