"""The complete laws of the mechanisms for vectors, over all inputs of a grid: what the shipped integers really keep.

L1: with a rational ratio r in place of exp(-epsilon / (2 levels)) everything is exact, and the largest ratio of two
inputs' probabilities must be r^-(2 levels), reached and never passed. L2: delta at epsilon by summing the discrete
Gaussian over the plane, for every two points that any inputs can be rounded to.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from client_sdk.mechanisms.ball import PART_BITS, Ball, Norm
from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from collector.accounting.losses import local_pair

R = Fraction(2, 3)
ONE = 1 << PART_BITS
GRID = 4
"""Parts of a step that inputs lie at, and offsets that are tried: rounding is exact on them."""

Point = tuple[int, ...]


def points_of(ball: Ball, parts: Point, signs: Point) -> dict[Point, Fraction]:
    """Where one input is rounded to, and how often."""
    law: dict[Point, Fraction] = {}
    for offset in range(GRID):
        sizes = ball.rounded([part * ONE // GRID for part in parts], offset * ONE // GRID)
        point = tuple(sign * size for sign, size in zip(signs, sizes, strict=True))
        law[point] = law.get(point, Fraction(0)) + Fraction(1, GRID)
    return law


def inputs(dimension: int, levels: int, norm: Norm) -> list[dict[Point, Fraction]]:
    """Of every vector of the grid in the ball, in every quadrant."""
    ball, found = Ball(dimension, 1.0, norm, levels), []
    for parts in itertools.product(range(levels * GRID + 1), repeat=dimension):
        inside = sum(parts) <= levels * GRID if norm == "l1" else sum(p * p for p in parts) <= (levels * GRID) ** 2
        if inside:
            found += [points_of(ball, parts, signs) for signs in itertools.product((1, -1), repeat=dimension)]
    return found


def output_law(point: int, bound: int) -> list[Fraction]:
    """P(clamped output = y) for y = -bound .. bound, of one coordinate at `point`; the ends stand for all beyond."""
    law = [(1 - R) / (1 + R) * R ** abs(y - point) for y in range(-bound, bound + 1)]
    law[0] = R ** (bound + point) / (1 + R)
    law[-1] = R ** (bound - point) / (1 + R)
    assert sum(law) == 1
    return law


@pytest.mark.parametrize(("dimension", "levels"), [(1, 2), (2, 2), (3, 1)])
def test_l1_the_largest_ratio_over_all_inputs_and_outputs(dimension: int, levels: int) -> None:
    bound = levels + 1
    single = {point: output_law(point, bound) for point in range(-levels, levels + 1)}
    laws = []
    for rounded in inputs(dimension, levels, "l1"):
        assert all(sum(map(abs, point)) <= levels for point in rounded)
        law = {}
        for cells in itertools.product(range(2 * bound + 1), repeat=dimension):
            law[cells] = sum(
                chance * math.prod(single[x][cell] for x, cell in zip(point, cells, strict=True))
                for point, chance in rounded.items()
            )
        laws.append(law)
    ratios = [max(law[y] for law in laws) / min(law[y] for law in laws) for y in laws[0]]
    assert max(ratios) == R ** (-2 * levels), "never more, and reached: r = exp(-epsilon / (2 levels))"
    mechanism = VectorLaplace(dimension, Decimal(1), Decimal(2), levels)
    assert mechanism.scale == Fraction(2 * levels) / 2, "r^-(2 levels) is e^epsilon at this scale only"


@pytest.mark.parametrize(
    ("dimension", "levels", "epsilon", "delta"),
    [(1, 3, "1", "1e-5"), (1, 3, "8", "1e-6"), (1, 3, "0.2", "1e-5"), (2, 2, "1", "1e-5"), (2, 2, "8", "1e-6")],
)
def test_l2_delta_of_every_two_points(dimension: int, levels: int, epsilon: str, delta: str) -> None:
    mechanism = VectorGaussian(dimension, Decimal(1), Decimal(epsilon), levels, Decimal(delta))
    points = {point for rounded in inputs(dimension, levels, "l2") for point in rounded}
    assert max(sum(x * x for x in point) for point in points) <= mechanism.ball.radius_squared
    shifts = {tuple(sorted(abs(a - b) for a, b in zip(p, q, strict=True))) for p in points for q in points}
    reach = math.ceil(9 * math.sqrt(mechanism.variance))
    noise = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * mechanism.variance))
    noise /= noise.sum()
    worst = max(_delta(noise, shift, mechanism.variance, float(epsilon)) for shift in shifts)
    assert worst <= float(delta)
    farthest = max(sum(s * s for s in shift) for shift in shifts)
    assert farthest <= mechanism.ball.sensitivity_squared
    # and the accountant's pair bounds the worst of them at every epsilon, closely where the distance is reached
    pair = local_pair(mechanism.losses[0])
    for at in (0.0, 0.3 * float(epsilon), float(epsilon)):
        assert max(_delta(noise, shift, mechanism.variance, at) for shift in shifts) <= pair.delta(at) * (1 + 1e-9)


def _delta(noise: np.ndarray, shift: Point, variance: int, epsilon: float) -> float:
    """Hockey-stick divergence of the product noise against itself, shifted; the noise's ends carry 10^-17."""
    reach = len(noise) // 2
    grids = np.meshgrid(*[np.arange(-reach, reach + 1)] * len(shift), indexing="ij")
    masses = math.prod(np.meshgrid(*[noise] * len(shift), indexing="ij"))
    loss = sum((2 * s * y + s * s) / (2 * variance) for s, y in zip(shift, grids, strict=True))
    active = loss > epsilon
    return float((masses[active] * -np.expm1(epsilon - loss[active])).sum())


def test_noise_for_half_the_distance_would_be_seen() -> None:
    """The test above has teeth: noise for add-or-remove (half of the sensitivity) breaks the claim."""
    mechanism = VectorGaussian(1, Decimal(1), Decimal(1), 3, Decimal("1e-5"))
    variance = mechanism.variance // 4
    reach = math.ceil(9 * math.sqrt(variance))
    noise = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    assert _delta(noise / noise.sum(), (6,), variance, 1.0) > 1e-3


def test_the_bulk_half_is_the_same_law() -> None:
    """Offsets in bulk are uniform parts of a step, as one at a time."""
    ball = Ball(3, 1.0, "l2", 2)
    parts = np.array([[3, 5, 2]]) * ONE // GRID
    rounded = partial(ball.rounded_many, np.repeat(parts, GRID, axis=0))
    bulk = rounded(np.arange(GRID) * ONE // GRID)
    single = [ball.rounded(parts[0].tolist(), offset * ONE // GRID) for offset in range(GRID)]
    assert bulk.tolist() == single
