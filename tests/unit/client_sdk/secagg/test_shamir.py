"""Shamir sharing: any threshold of shares, never fewer; forms, edges, and wrong shares."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from client_sdk.secagg.messages import SHARE_BYTES
from client_sdk.secagg.shamir import MAX_HOLDERS, PRIME, combine, is_share, split, weights_at_zero
from tests.fleet import SeededEntropy

SECRETS = [bytes(32), b"\xff" * 32, bytes(31) + b"\x01", SeededEntropy(b"secret")(32)]


def test_the_modulus_is_prime() -> None:
    """Miller-Rabin with the first 40 primes as bases; 2^256 + 1 .. 2^256 + 295 are not asked for."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    bases = [n for n in range(2, 180) if all(n % d for d in range(2, n))][:40]
    for base in bases:
        x = pow(base, odd, PRIME)
        witnesses = {pow(x, 1 << i, PRIME) for i in range(twos)}
        assert x == 1 or PRIME - 1 in witnesses


@pytest.mark.parametrize("secret", SECRETS, ids=["zero", "ones", "one", "some"])
@pytest.mark.parametrize(("threshold", "holders"), [(1, 1), (1, 4), (2, 3), (3, 5), (4, 6), (6, 6)])
def test_every_subset_of_threshold_shares_finds_the_secret(secret: bytes, threshold: int, holders: int) -> None:
    shares = split(secret, threshold, holders, SeededEntropy(b"coefficients"))
    assert [len(share) for share in shares] == [SHARE_BYTES] * holders
    for xs in combinations(range(1, holders + 1), threshold):
        assert combine(xs, [shares[x - 1] for x in xs]) == secret


def test_one_share_fewer_fits_every_secret() -> None:
    """For t - 1 shares of any secret there is, for every other secret, exactly one missing share: nothing is learnt."""
    shares = split(SECRETS[3], 3, 5, SeededEntropy(b"x"))
    for other in SECRETS:
        weights = weights_at_zero((1, 2, 3))
        known = sum(w * int.from_bytes(s, "big") for w, s in zip(weights, shares[:2], strict=False))
        missing = (int.from_bytes(other, "big") - known) * pow(weights[2], -1, PRIME) % PRIME
        assert combine((1, 2, 3), [*shares[:2], missing.to_bytes(SHARE_BYTES, "big")]) == other


def test_polynomial_is_as_specified() -> None:
    """Entropy gives the coefficients of the highest power first; the secret is the constant term."""
    pool = SeededEntropy(b"c")(64)
    a2, a1 = int.from_bytes(pool[:32], "big"), int.from_bytes(pool[32:], "big")
    a0 = int.from_bytes(SECRETS[3], "big")
    shares = split(SECRETS[3], 3, 4, lambda size: pool[:size])
    assert [int.from_bytes(s, "big") for s in shares] == [(a2 * x * x + a1 * x + a0) % PRIME for x in (1, 2, 3, 4)]


def test_entropy_is_asked_once_for_what_is_needed() -> None:
    asked: list[int] = []

    def entropy(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    split(SECRETS[3], 4, 6, entropy)
    assert asked == [96]
    with pytest.raises(ValueError, match="entropy"):
        split(SECRETS[3], 4, 6, lambda size: b"short")


def test_wrong_shares_do_not_give_the_secret() -> None:
    shares = split(SECRETS[3], 3, 5, SeededEntropy(b"y"))
    flipped = (int.from_bytes(shares[1], "big") ^ 1).to_bytes(SHARE_BYTES, "big")
    assert combine((1, 2, 3), [shares[0], flipped, shares[2]]) != SECRETS[3]
    assert combine((1, 2, 4), shares[:3]) != SECRETS[3]


def test_a_result_above_32_bytes_is_an_error() -> None:
    """2^256 .. 2^256 + 296 are elements of the field and no seeds."""
    share = (1 << 256).to_bytes(SHARE_BYTES, "big")
    with pytest.raises(ValueError, match="do not meet"):
        combine((1,), [share])


@pytest.mark.parametrize(
    ("share", "fits"),
    [
        (bytes(33), True),
        ((PRIME - 1).to_bytes(33, "big"), True),
        (PRIME.to_bytes(33, "big"), False),
        (b"\xff" * 33, False),
        (bytes(32), False),
        (bytes(34), False),
        (b"", False),
    ],
)
def test_form_of_a_share(share: bytes, fits: bool) -> None:
    assert is_share(share) is fits
    if not fits:
        with pytest.raises(ValueError, match="malformed"):
            combine((1,), [share])


def slow_weights(xs: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange at zero by the textbook: the product of y / (y - x) over the other points."""
    weights = []
    for x in xs:
        weight = 1
        for y in xs:
            if y != x:
                weight = weight * y * pow(y - x, -1, PRIME) % PRIME
        weights.append(weight)
    return tuple(weights)


def test_weights_are_lagranges() -> None:
    """Every set of points up to 8, and random ones of the sizes that occur, in any order."""
    for most in range(1, 9):
        for count in range(1, most + 1):
            for xs in combinations(range(1, most + 1), count):
                assert weights_at_zero(xs) == slow_weights(xs)
    random = Random(7)
    for holders, needed in ((138, 98), (256, 142), (MAX_HOLDERS, 20), (MAX_HOLDERS, 1)):
        xs = tuple(random.sample(range(1, holders + 1), needed))
        assert weights_at_zero(xs) == slow_weights(xs)


def test_combine_with_ever_other_holders() -> None:
    """As on a sparse graph: each owner's shares come from other places."""
    random = Random(8)
    shares = split(SECRETS[3], 98, 138, SeededEntropy(b"sparse"))
    for _ in range(20):
        xs = random.sample(range(1, 139), 98)
        assert combine(xs, [shares[x - 1] for x in xs]) == SECRETS[3]


@pytest.mark.parametrize("xs", [(), (0, 1), (1, 1), (-1, 1), (MAX_HOLDERS + 1, 1), (PRIME, 1), (PRIME + 1, 2)])
def test_points_that_cannot_be(xs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="points"):
        weights_at_zero(xs)


@pytest.mark.parametrize(
    ("secret", "threshold", "holders"),
    [(bytes(31), 1, 1), (bytes(32), 0, 3), (bytes(32), 4, 3), (bytes(32), 2, MAX_HOLDERS + 1)],
)
def test_sizes_that_cannot_be(secret: bytes, threshold: int, holders: int) -> None:
    with pytest.raises(ValueError, match="split needs"):
        split(secret, threshold, holders, SeededEntropy(b"z"))
    with pytest.raises(ValueError, match="malformed"):
        combine((1, 2), [bytes(33)])
