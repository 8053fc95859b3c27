"""Opening a sum: from the survivors' masked total and the members' shares to the total itself.

Rules of this file: plain data in, plain integers out, so that it can run in another process (X25519 and short
keystreams hold the interpreter's lock). Of every owner exactly one seed is reconstructed: the self-mask seed of a
survivor, the mask-key seed of a dropout. All seeds are checked against what their owners advertised before one is
used: a wrong seed can end the round, never change the sum. Its owner is to blame, because every share that gets here
is the one whose hash the owner signed.
What it does not do: it does not judge whether the sum is plausible.

What stands in the masked total of survivors S after masking with sharers H >= S: pairwise masks inside S cancel;
left are PRG(self-mask seed) of each survivor and, for each survivor and each neighbour of it in H - S, their
pairwise mask. Nothing stands between two dropouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.secagg import keys, masking, shamir
from collector.secagg.blame import SeedsRefusedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey


@dataclass(frozen=True, slots=True)
class OwnerShares:
    """Shares of one owner's seed, each the one that the owner signed; `shares[i]` is the value at `xs[i]`.

    advertised: the self-mask commitment of a survivor, the mask key of a dropout: what the seed must fit.
    survivors: of a dropout, its surviving neighbours, whose mask with it is to be removed; else empty.
    """

    owner: int
    advertised: bytes
    xs: tuple[int, ...]
    shares: tuple[bytes, ...] = field(repr=False)
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """All that is needed to open one sum; picklable.

    masked_total: the survivors' masked inputs added modulo 2^bits, little endian. mask_keys: those of the survivors
    that have a dropout among their neighbours.
    """

    bits: int
    threshold: int
    roster_digest: bytes
    masked_total: bytes = field(repr=False)
    survivors: tuple[OwnerShares, ...]
    dropped: tuple[OwnerShares, ...]
    mask_keys: Mapping[int, bytes]


def open_sum(opening: Opening) -> list[int]:
    """The signed totals, one per element.

    Raises RoundAbortedError(TOO_FEW_RESPONSES) where an owner has fewer than `threshold` shares, SeedsRefusedError
    (WRONG_SHARES; `have` = owners whose seed fits, `need` = all) where a seed is not what its owner advertised.
    """
    self_mask_seeds, mask_privates = _checked_seeds(opening)
    total = masking.ring_from_bytes(opening.masked_total, opening.bits)
    masking.remove_masks(total, _self_masks(opening, self_mask_seeds))
    masking.remove_masks(total, _pairwise_masks(opening, mask_privates))
    return masking.from_ring(total)


def _checked_seeds(opening: Opening) -> tuple[dict[int, bytes], dict[int, X25519PrivateKey]]:
    self_mask_seeds: dict[int, bytes] = {}
    mask_privates: dict[int, X25519PrivateKey] = {}
    wrong: list[int] = []
    for owner in opening.survivors:
        seed = _reconstruct(owner, opening.threshold)
        if seed is None or keys.self_mask_commitment(seed) != owner.advertised:
            wrong.append(owner.owner)
        else:
            self_mask_seeds[owner.owner] = seed
    for owner in opening.dropped:
        seed = _reconstruct(owner, opening.threshold)
        private = None if seed is None else keys.load_private(seed)
        if private is None or keys.public_bytes(private) != owner.advertised:
            wrong.append(owner.owner)
        else:
            mask_privates[owner.owner] = private
    if wrong:
        fitted = len(self_mask_seeds) + len(mask_privates)
        raise SeedsRefusedError(wrong, have=fitted, need=fitted + len(wrong))
    return self_mask_seeds, mask_privates


def _reconstruct(owner: OwnerShares, threshold: int) -> bytes | None:
    """The seed, or None where the shares meet in none. Every share is the signed one, so any `threshold` will do."""
    if len(owner.shares) < threshold:
        raise RoundAbortedError(AbortReason.TOO_FEW_RESPONSES, have=len(owner.shares), need=threshold)
    try:
        return shamir.combine(owner.xs[:threshold], owner.shares[:threshold])
    except ValueError:
        return None


def _self_masks(opening: Opening, seeds: Mapping[int, bytes]) -> Iterator[masking.Mask]:
    for owner, seed in seeds.items():
        yield keys.self_mask(seed, opening.roster_digest, owner), 1


def _pairwise_masks(opening: Opening, privates: Mapping[int, X25519PrivateKey]) -> Iterator[masking.Mask]:
    peers: dict[int, X25519PublicKey] = {i: keys.load_public(key) for i, key in opening.mask_keys.items()}
    for dropout in opening.dropped:
        private = privates[dropout.owner]
        for survivor in dropout.survivors:
            # Derived with the dropout's key, but it stands in the total with the survivor's sign.
            seed, dropouts_sign = keys.pairwise_mask(
                private, peers[survivor], opening.roster_digest, dropout.owner, survivor
            )
            yield seed, -dropouts_sign
