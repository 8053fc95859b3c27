"""Unary encodings: their complete law from the shipped integers, and the ratio against e^epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from client_sdk.mechanisms import unary
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.unary import OptimizedUnary, SymmetricUnary
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many
from tests.branching import e_to, exact_law
from tests.entropy import Untouched, seeded

ONE = 1 << 64
SETTINGS = [(2, "1"), (2, "0.000001"), (3, "0.5"), (4, "2"), (5, "7.3"), (6, "40")]
BOTH = pytest.mark.parametrize("kind", [SymmetricUnary, OptimizedUnary])


def mechanism(kind: type[CategoricalMechanism], k: int, epsilon: str) -> SymmetricUnary | OptimizedUnary:
    return kind(tuple(f"c{i}" for i in range(k)), Decimal(epsilon))  # type: ignore[return-value]


def output_law(
    mech: CategoricalMechanism, truth: int, monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[int, ...], Fraction]:
    def run(choose: Callable[[Sequence[Fraction]], int]) -> tuple[int, ...]:
        def drawn(numerator: int, entropy: object) -> bool:
            return choose([Fraction(numerator, ONE), 1 - Fraction(numerator, ONE)]) == 0

        monkeypatch.setattr(unary, "bernoulli_2_64", drawn)
        return tuple(mech.perturb_code(truth, Untouched()))

    return exact_law(run)


@BOTH
@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
def test_largest_ratio_over_all_inputs_and_outputs(
    kind: type[CategoricalMechanism], k: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mech = mechanism(kind, k, epsilon)
    laws = [output_law(mech, truth, monkeypatch) for truth in range(k)]
    assert all(sum(law.values()) == 1 and set(law) == set(product((0, 1), repeat=k)) for law in laws)
    worst = max(a[y] / b[y] for a, b in permutations(laws, 2) for y in a)
    assert worst == mech.worst_ratio <= e_to(Decimal(epsilon))
    for truth, law in enumerate(laws):
        for label in range(k):
            chance = sum(mass for report, mass in law.items() if report[label])
            assert chance == (mech.p if label == truth else mech.q)


@BOTH
@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
def test_the_integers_are_the_largest_private_ones(kind: type[CategoricalMechanism], k: int, epsilon: str) -> None:
    """One unit more for the truth, or one less for a lie, would break epsilon."""
    mech = mechanism(kind, k, epsilon)
    p, q, unit = mech.p, mech.q, Fraction(1, ONE)
    if kind is SymmetricUnary:
        assert q == 1 - p
        p, q = p + unit, q - unit
    else:
        assert p == Fraction(1, 2)
        q -= unit
    assert p * (1 - q) / ((1 - p) * q) > e_to(Decimal(epsilon))


# --- the vectorised half -------------------------------------------------------------------------------------


class Script(Keystream):
    """A stream whose next bytes are given."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(seeded("unused"))
        self._pieces = list(pieces)

    def __call__(self, size: int) -> bytes:
        piece = self._pieces.pop(0)
        assert len(piece) == size
        return piece


@pytest.mark.parametrize("numerator", [0, 1, 255, 1 << 56, (1 << 63) - 1, 1 << 63, 0x1234 << 48, ONE - 1, ONE])
def test_many_bits_have_the_64_bit_law(numerator: int) -> None:
    """Every first byte once, and where it ties the 56 bits on either side of the numerator's."""
    first, rest = divmod(numerator, 1 << 56)
    heads, tied = bytes(range(256)), first < 256
    for more in {0, rest - 1, rest, (1 << 56) - 1}:
        if more < 0:
            continue
        words = ((more << 8) + 0x5A).to_bytes(8, "little") if tied else b""
        draws = bernoulli_2_64_many(numerator, 256, Script(heads, words))
        assert draws.tolist() == [int((head << 56) + more < numerator) for head in range(256)]
        assert draws.dtype == np.uint8


def test_a_probability_over_2_64_is_checked() -> None:
    for numerator in (-1, ONE + 1):
        with pytest.raises(ValueError, match="between 0 and 2"):
            bernoulli_2_64_many(numerator, 1, Keystream(seeded("x")))


@BOTH
def test_each_bit_of_many_reports_is_drawn_for_itself(
    kind: type[CategoricalMechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row's own bit from a draw with p, each other one from its own draw with q."""
    mech, n = mechanism(kind, 5, "1"), 7
    asked = []

    def draws(numerator: int, count: int, stream: object) -> np.ndarray:
        asked.append((numerator, count))
        return np.arange(len(asked) * 100, len(asked) * 100 + count, dtype=np.uint8)

    monkeypatch.setattr(unary, "bernoulli_2_64_many", draws)
    codes = np.array([0, 1, 2, 3, 4, 4, 0])
    bits = mech._answers(codes, Keystream(seeded("x")))
    assert asked == [(mech.others, n * 5), (mech.own, n)]
    own = codes[:, np.newaxis] == np.arange(5)
    assert bits[own].tolist() == list(range(200, 200 + n))
    assert bits[~own].tolist() == [100 + 5 * row + cell for row in range(n) for cell in range(5) if cell != codes[row]]


@BOTH
@pytest.mark.parametrize("many", [True, False], ids=["vectorised", "one by one"])
def test_shares_over_many_reports(kind: type[CategoricalMechanism], many: bool) -> None:
    """Of every bit, and of both bits of every pair: within five standard deviations of p and q, and of products."""
    mech, n = mechanism(kind, 4, "1"), 200_000 if many else 10_000
    entropy = seeded(f"shares {kind.__name__}")
    if many:
        rows = mech.perturb_codes(np.full(n, 2), entropy)
    else:
        rows = np.array([mech.perturb_code(2, entropy) for _ in range(n)], np.uint8)
    chances = [float(mech.p if label == 2 else mech.q) for label in range(4)]
    for i, j in product(range(4), repeat=2):
        share = chances[i] if i == j else chances[i] * chances[j]
        assert abs(np.mean(rows[:, i] & rows[:, j]) - share) < 5 * (share * (1 - share) / n) ** 0.5
