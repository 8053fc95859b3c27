"""Compositions of different pairs against their exact product: every outcome of every release, multiplied out.

Losses that are multiples of one unit are the hard case: on the grid of that unit a loss one rounding above its cell
left 1e-16 of mass in the next one, and under a tilt that outweighed all the rest (two randomised responses at 0.75
and 1 came out at 1.5 in place of 1.75).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from collector.accounting import local
from collector.accounting.composition import Composer

EPSILONS = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def product(settings: list[tuple[int, float]], counts: list[int]) -> Callable[[float], float]:
    """The hockey stick of randomised responses (k, epsilon), by epsilon; losses merged that agree to nine digits.

    The loss of `count` of one kind is a whole number of its epsilons: how often the truth was told, less how often the
    other value was.
    """
    upper, lower, losses = np.array([1.0]), np.array([1.0]), np.array([0.0])
    for (k, epsilon), count in zip(settings, counts, strict=True):
        truth, other, rest = local.randomized_response(k, epsilon).upper
        law = reduce(np.convolve, [np.array([other, rest, truth])] * count)
        steps = np.arange(-count, count + 1) * epsilon
        upper, lower = (np.multiply.outer(one, way).ravel() for one, way in ((upper, law), (lower, law[::-1])))
        losses, place = np.unique(np.round(np.add.outer(losses, steps).ravel(), 9), return_inverse=True)
        upper, lower = np.bincount(place, upper), np.bincount(place, lower)
    return lambda epsilon: float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())


def check(settings: list[tuple[int, float]], counts: list[int], delta: float) -> None:
    pairs = [local.randomized_response(k, epsilon) for k, epsilon in settings]
    epsilon, exact_delta = Composer(pairs).epsilon(counts, delta), product(settings, counts)
    assert exact_delta(epsilon * (1 + 1e-9) + 1e-9) <= delta * (1 + 1e-6) + 1e-15
    if epsilon > 1e-3:  # and not far above
        assert exact_delta(max(0.0, epsilon * (1 - 1e-3) - 1e-4)) > delta


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
    check(settings, counts, delta)


def test_products_of_different_pairs() -> None:
    chance = random.Random(1)
    for _ in range(400):
        settings = [
            (chance.choice([2, 2, 3, 4, 8]), chance.choice(EPSILONS)) for _ in range(chance.choice([2, 2, 3, 4]))
        ]
        counts = [chance.choice([1, 1, 2, 3, 7, 20]) for _ in settings]
        check(settings, counts, chance.choice([1e-2, 1e-3, 1e-6, 1e-9, 1e-12]))
