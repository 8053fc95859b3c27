"""Hadamard response: its complete law from the shipped integers, one by one and vectorised."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from client_sdk.mechanisms import hadamard
from client_sdk.mechanisms.hadamard import Hadamard
from tests.branching import e_to
from tests.entropy import seeded
from tests.structured_law import ONE, Half, one_by_one, vectorised

SETTINGS = [(2, "1"), (3, "0.5"), (4, "0.000001"), (7, "2"), (8, "1"), (20, "40")]


def mechanism(k: int, epsilon: str) -> Hadamard:
    return Hadamard(tuple(f"c{i}" for i in range(k)), Decimal(epsilon))


def sylvester(order: int) -> np.ndarray:
    """The Hadamard matrix by doubling, not by counting bits."""
    matrix = np.array([[1]])
    while len(matrix) < order:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


@pytest.mark.parametrize("half", [one_by_one, vectorised])
@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
def test_largest_ratio_over_all_inputs_and_outputs(
    half: Half, k: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mech = mechanism(k, epsilon)
    matrix = sylvester(mech.length)
    laws = [half(hadamard, mech, truth, monkeypatch) for truth in range(k)]
    p, each = Fraction(mech.keep, ONE), Fraction(2, mech.length)
    for truth, law in enumerate(laws):
        assert law == {y: (p if matrix[truth + 1, y] == 1 else 1 - p) * each for y in range(mech.length)}
        for label in range(k):
            chance = sum(mass for y, mass in law.items() if matrix[label + 1, y] == 1)
            assert chance == (mech.p if label == truth else mech.q)
    worst = max(a[y] / b[y] for a, b in permutations(laws, 2) for y in a)
    assert worst == mech.worst_ratio <= e_to(Decimal(epsilon))


@pytest.mark.parametrize("epsilon", ["0.000001", "1", "40"])
def test_keep_is_the_largest_private_integer(epsilon: str) -> None:
    keep = mechanism(2, epsilon).keep
    assert Fraction(keep + 1, ONE - keep - 1) > e_to(Decimal(epsilon))


@pytest.mark.parametrize("many", [True, False], ids=["vectorised", "one by one"])
def test_shares_over_many_reports(many: bool) -> None:
    mech, n = mechanism(6, "1"), 200_000 if many else 10_000
    entropy = seeded("places")
    if many:
        total = mech.total_of(mech.perturb_codes(np.full(n, 4), entropy))
    else:
        total = np.sum([mech.perturb_code(4, entropy) for _ in range(n)], axis=0)
    supported = sylvester(8)[5] == 1
    shares = np.where(supported, float(mech.p), float(1 - mech.p)) / 4
    assert (np.abs(total / n - shares) < 5 * (shares * (1 - shares) / n) ** 0.5).all()
