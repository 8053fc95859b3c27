"""Pairs of shares: dealt by an owner, hashed, and recognised by their holder.

Rules of this file: an owner deals one pair to each of its holders and signs the hashes of them all; a holder takes a
pair only whole, both shares elements of the field and both as the owner's hashes say: whoever kept a wrong one would
be blamed for it later. What it does not do: sealing (`keys.py`); it cannot tell whether the hashed shares meet in the
advertised seed, which shows when the sum is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from client_sdk.secagg import shamir
from client_sdk.secagg.keys import RoundSecrets, SharePair
from client_sdk.secagg.transcript import ShareKind, share_hash

Entropy = Callable[[int], bytes]


def split_pairs(
    secrets: RoundSecrets, holders: Sequence[int], threshold: int, entropy: Entropy
) -> dict[int, SharePair]:
    """A pair for every holder (roster indices, ascending): the one at place p gets the polynomials' values at p + 1.

    Entropy is asked for the coefficients of the mask-key seed's shares, then of the self-mask seed's.
    """
    mask_shares = shamir.split(secrets.mask_seed, threshold, len(holders), entropy)
    self_shares = shamir.split(secrets.self_mask_seed, threshold, len(holders), entropy)
    return {holder: SharePair(*pair) for holder, *pair in zip(holders, mask_shares, self_shares, strict=True)}


def pair_hashes(roster_digest: bytes, owner: int, holder: int, pair: SharePair) -> bytes:
    """SHARE_HASH_PAIR_BYTES bytes: of the mask-key share, then of the self-mask share."""
    mask_hash = share_hash(roster_digest, owner, holder, ShareKind.MASK_KEY, pair.mask_share)
    return mask_hash + share_hash(roster_digest, owner, holder, ShareKind.SELF_MASK, pair.self_share)


def all_hashes(roster_digest: bytes, owner: int, pairs: Mapping[int, SharePair]) -> bytes:
    """What an owner signs: the hashes of every pair that it deals, holders ascending."""
    return b"".join(pair_hashes(roster_digest, owner, holder, pairs[holder]) for holder in sorted(pairs))


def is_usable(roster_digest: bytes, owner: int, holder: int, pair: SharePair, hashes: bytes) -> bool:
    """May `holder` rely on this pair, given the owner's hashes of it?"""
    are_shares = shamir.is_share(pair.mask_share) and shamir.is_share(pair.self_share)
    return are_shares and pair_hashes(roster_digest, owner, holder, pair) == hashes
