"""Shamir's secret sharing of 32-byte seeds over the prime field of 2^256 + 297 elements.

Rules of this file: the holder at place p among a seed's holders (ascending) gets the polynomial's value at x = p + 1;
x = 0 is the secret and is never dealt; coefficients come from `entropy` and nowhere else; a share is 33 bytes, big
endian, below the prime.
What it does not do: it cannot tell a wrong share from a right one (the caller checks what it reconstructs), and
Python's integers are not constant time: on a device a round's secrets live for one round only.

A coefficient is drawn from [0, 2^256): that misses 297 of the field's elements, a statistical distance below
2^-247 each. Source: Shamir, "How to share a secret", CACM 22 (1979).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb, prod
from typing import Final

from client_sdk.secagg.messages import SEED_BYTES, SHARE_BYTES

Entropy = Callable[[int], bytes]

PRIME: Final = (1 << 256) + 297
_PRIME_BYTES: Final = PRIME.to_bytes(SHARE_BYTES, "big")
MAX_HOLDERS: Final = 1024
"""Most holders of one seed's shares."""


def split(secret: bytes, threshold: int, holders: int, entropy: Entropy) -> list[bytes]:
    """Share a 32-byte secret among `holders` so that any `threshold` of them find it and fewer learn nothing.

    Returns the share of x = 1, 2, ..., holders. Draws 32 x (threshold - 1) bytes of entropy in one call: the
    coefficients of x^(threshold - 1) down to x^1. Raises ValueError for impossible sizes.
    """
    if len(secret) != SEED_BYTES or not 1 <= threshold <= holders <= MAX_HOLDERS:
        raise ValueError("split needs a 32-byte secret and 1 <= threshold <= holders <= 1024")
    pool = entropy(SEED_BYTES * (threshold - 1))
    if len(pool) != SEED_BYTES * (threshold - 1):
        raise ValueError("entropy returned the wrong number of bytes")
    coefficients = [int.from_bytes(pool[i : i + SEED_BYTES], "big") for i in range(0, len(pool), SEED_BYTES)]
    coefficients.append(int.from_bytes(secret, "big"))
    return [_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in range(1, holders + 1)]


def _evaluate(coefficients: list[int], x: int) -> int:
    # Horner. x is small, so reducing once at the end is cheaper than reducing at every step.
    value = 0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value % PRIME


def is_share(share: bytes) -> bool:
    """Has it the form of a share: 33 bytes, below the prime?"""
    return len(share) == SHARE_BYTES and share < _PRIME_BYTES


def combine(xs: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """The secret from exactly `threshold` shares; `shares[i]` belongs to `xs[i]`.

    Raises ValueError where the shares are malformed or do not meet in a 32-byte secret: some of them are wrong.
    """
    if len(xs) != len(shares) or not all(map(is_share, shares)):
        raise ValueError("malformed shares")
    weights = weights_at_zero(tuple(xs))
    total = sum(weight * int.from_bytes(share, "big") for weight, share in zip(weights, shares, strict=True))
    secret = total % PRIME
    if secret >> 256:
        raise ValueError("the shares do not meet in a 32-byte secret")
    return secret.to_bytes(SEED_BYTES, "big")


@lru_cache(maxsize=64)
def weights_at_zero(xs: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange weights of the points `xs` at zero. Cached: in a complete graph all owners have the same holders.

    Raises ValueError unless the xs are distinct and in 1 .. MAX_HOLDERS.

    The weight of x is the product of y / (y - x) over the other points y. Over *all* y in 1 .. m but x, m the largest
    point, that product is (-1)^(x - 1) C(m, x); the points that are not there have to be taken out again. With G the
    absent numbers, and the product of the points being m! / prod(G), it is

        (-1)^(x - 1) C(m, x) prod(g - x for g in G) / prod(G)

    so small integers, and one inversion for all. Above half of the holders answer, so G is the shorter list.
    """
    present = frozenset(xs)
    if not xs or len(present) != len(xs) or min(xs) < 1 or max(xs) > MAX_HOLDERS:
        raise ValueError(f"points must be distinct and in 1 .. {MAX_HOLDERS}")
    most = max(xs)
    absent = [x for x in range(1, most) if x not in present]
    inverse = pow(prod(absent), -1, PRIME)
    signed = _signed_binomials(most)
    return tuple(signed[x] * prod([g - x for g in absent]) % PRIME * inverse % PRIME for x in xs)


@lru_cache(maxsize=128)
def _signed_binomials(m: int) -> tuple[int, ...]:
    return tuple((-1) ** (x - 1) * comb(m, x) if x else 0 for x in range(m + 1))
