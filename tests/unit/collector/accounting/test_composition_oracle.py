"""Compositions of different pairs against their exact product: every outcome of every release, multiplied out.

Losses that are multiples of one unit are the hard case: on the grid of that unit a loss one rounding above its cell
left 1e-16 of mass in the next one, and under a tilt that outweighed all the rest (two randomised responses at 0.75
and 1 came out at 1.5 in place of 1.75).
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from collector.accounting import local
from collector.accounting.composition import Composer
from collector.accounting.pairs import LossPair

EPSILONS = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def exact_delta(pairs: list[LossPair], counts: list[int], epsilon: float) -> float:
    """The hockey stick of the product, losses merged where they agree to nine digits."""
    upper, lower = np.array([1.0]), np.array([1.0])
    for pair, count in zip(pairs, counts, strict=True):
        seen = (pair.upper > 0.0) & (pair.lower > 0.0)
        for _ in range(count):
            upper = np.multiply.outer(upper, pair.upper[seen]).ravel()
            lower = np.multiply.outer(lower, pair.lower[seen]).ravel()
            _, place = np.unique(np.round(np.log(upper) - np.log(lower), 9), return_inverse=True)
            upper, lower = np.bincount(place, upper), np.bincount(place, lower)
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())


def check(pairs: list[LossPair], counts: list[int], delta: float) -> None:
    epsilon = Composer(pairs).epsilon(counts, delta)
    assert exact_delta(pairs, counts, epsilon * (1 + 1e-9) + 1e-9) <= delta * (1 + 1e-6) + 1e-15
    if epsilon > 1e-3:  # and not far above
        assert exact_delta(pairs, counts, max(0.0, epsilon * (1 - 1e-3) - 1e-4)) > delta


@pytest.mark.parametrize(
    ("settings", "counts", "delta"),
    [
        ([(2, 0.75), (2, 1.0)], [1, 1], 1e-6),
        ([(2, 0.75), (2, 1.0)], [7, 3], 1e-6),
        ([(2, 0.5), (4, 0.25)], [1, 1], 1e-6),
        ([(2, 0.75), (2, 2.25)], [1, 1], 1e-6),
        ([(2, 0.4), (2, 0.05), (2, 3.0)], [20, 1, 1], 1e-12),
        ([(2, 0.3), (2, 3.0), (2, 0.1)], [1, 2, 2], 1e-6),
    ],
)
def test_commensurable_pairs(settings: list[tuple[int, float]], counts: list[int], delta: float) -> None:
    check([local.randomized_response(k, epsilon) for k, epsilon in settings], counts, delta)


def test_products_of_different_pairs() -> None:
    chance = random.Random(1)
    for _ in range(400):
        pairs = [
            local.randomized_response(chance.choice([2, 2, 3, 4, 8]), chance.choice(EPSILONS))
            for _ in range(chance.choice([2, 2, 3, 4]))
        ]
        counts = [chance.choice([1, 1, 2, 3, 7, 20]) for _ in pairs]
        check(pairs, counts, chance.choice([1e-2, 1e-3, 1e-6, 1e-9, 1e-12]))
