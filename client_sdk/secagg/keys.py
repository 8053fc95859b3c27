"""A participant's secrets of one round, and every key that is derived from them.

Rules of this file: two X25519 pairs, because the mask key's seed may be revealed and the channel key's never;
every derived key is bound by HKDF-SHA256 to protocol, version, usage, roster digest and both ends; a sealing key
encrypts one message, so its nonce is zero; public keys are compared and hashed as bytes, therefore only canonical
encodings of points of large order are accepted. Secrets never appear in a repr.
What it does not do: it verifies no signature; it does not erase memory (Python cannot).

Sources: RFC 7748 (X25519), RFC 5869 (HKDF), RFC 8439 (ChaCha20-Poly1305). Encodings u, u + p and u + 2^255 name
the same point and X25519 takes them all, so two keys that differ as bytes could be one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from client_sdk.secagg.messages import KEY_BYTES, SEED_BYTES, SHARE_BYTES
from client_sdk.secagg.transcript import key_info, label

Entropy = Callable[[int], bytes]

SEALED_BYTES: Final = 2 * SHARE_BYTES + 16
"""Two shares and the authentication tag."""

_P: Final = 2**255 - 19
_ORDER_8_U: Final = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
_SMALL_ORDER_U: Final = frozenset({0, 1, _P - 1, *_ORDER_8_U})
_NONCE: Final = bytes(12)
_SHA256: Final = SHA256()


@dataclass(frozen=True, slots=True)
class RoundSecrets:
    """Three fresh seeds of 32 bytes: mask key, channel key, self-mask."""

    mask_seed: bytes = field(repr=False)
    channel_seed: bytes = field(repr=False)
    self_mask_seed: bytes = field(repr=False)

    @classmethod
    def draw(cls, entropy: Entropy) -> RoundSecrets:
        """Three calls of entropy(32), in the order of the fields."""
        return cls(entropy(SEED_BYTES), entropy(SEED_BYTES), entropy(SEED_BYTES))


@dataclass(frozen=True, slots=True)
class SharePair:
    """What one member deals to another: a share of its mask-key seed and one of its self-mask seed."""

    mask_share: bytes = field(repr=False)
    self_share: bytes = field(repr=False)


def load_private(seed: bytes) -> X25519PrivateKey:
    """The private key of a 32-byte seed (clamped by X25519 itself)."""
    return X25519PrivateKey.from_private_bytes(seed)


def load_public(key: bytes) -> X25519PublicKey:
    """A public key that passed `is_valid_public`."""
    return X25519PublicKey.from_public_bytes(key)


def public_bytes(private: X25519PrivateKey) -> bytes:
    """The public half, 32 bytes."""
    return private.public_key().public_bytes_raw()


def is_valid_public(key: bytes) -> bool:
    """Is it 32 bytes, canonical (u below 2^255 - 19, high bit clear) and not of small order?"""
    if len(key) != KEY_BYTES:
        return False
    u = int.from_bytes(key, "little")
    return u < _P and u not in _SMALL_ORDER_U


def self_mask_commitment(self_mask_seed: bytes) -> bytes:
    """SHA-256 over the label "self-mask-commitment" and the seed: binds the advert to it, tells nothing of it."""
    return hashlib.sha256(label("self-mask-commitment") + self_mask_seed).digest()


def self_mask(self_mask_seed: bytes, roster_digest: bytes, index: int) -> bytes:
    """The 32-byte mask seed under which member `index` hides its own vector."""
    return _derive(self_mask_seed, key_info("self-mask", roster_digest, index, index))


def pairwise_mask(
    private: X25519PrivateKey, peer: X25519PublicKey, roster_digest: bytes, me: int, other: int
) -> tuple[bytes, int]:
    """The mask that `me` and `other` have in common, as `(seed, sign)`: the lower index adds, the higher subtracts.

    Both ends get the same seed and opposite signs. Raises ValueError for a peer key of small order.
    """
    low, high = min(me, other), max(me, other)
    seed = _derive(private.exchange(peer), key_info("pairwise-mask", roster_digest, low, high))
    return seed, 1 if me < other else -1


def channel_keys(
    private: X25519PrivateKey, peer: X25519PublicKey, roster_digest: bytes, me: int, other: int
) -> tuple[bytes, bytes]:
    """The sealed channel between `me` and `other`: (key for what I send, key for what I receive), both secret.

    The direction is in `info` (sender first). Raises ValueError for a peer key of small order.
    """
    secret = private.exchange(peer)
    return (
        _derive(secret, key_info("share", roster_digest, me, other)),
        _derive(secret, key_info("share", roster_digest, other, me)),
    )


def seal_pair(sending_key: bytes, pair: SharePair, roster_digest: bytes) -> bytes:
    """A pair sealed for one neighbour, 82 bytes. Once per key: the nonce is fixed."""
    return ChaCha20Poly1305(sending_key).encrypt(_NONCE, pair.mask_share + pair.self_share, roster_digest)


def open_pair(receiving_key: bytes, sealed: bytes, roster_digest: bytes) -> SharePair | None:
    """What the neighbour sealed for me, or None where it was not sealed for me in this round."""
    if len(sealed) != SEALED_BYTES:
        return None
    try:
        plain = ChaCha20Poly1305(receiving_key).decrypt(_NONCE, sealed, roster_digest)
    except InvalidTag:
        return None
    return SharePair(plain[:SHARE_BYTES], plain[SHARE_BYTES:])


def _derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=_SHA256, length=KEY_BYTES, salt=None, info=info).derive(secret)
