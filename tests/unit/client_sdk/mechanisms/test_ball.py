"""Clipping and systematic rounding: unbiased, and within the radius that the sensitivity is made of, whatever comes."""

from __future__ import annotations

import itertools
import math
from array import array
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.errors import RefusalReason, ValueRefusedError
from client_sdk.mechanisms.ball import PART_BITS, Ball, Norm
from tests.entropy import Untouched, seeded

ONE = 1 << PART_BITS


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_rounding_is_unbiased_in_every_coordinate(norm: Norm) -> None:
    """Every offset there is, on a grid of eighths: each coordinate's mean is exactly its part."""
    ball = Ball(5, 1.0, norm, 4)
    for parts in ([3, 9, 20, 1, 7], [8, 16, 0, 0, 5], [7, 7, 7, 7, 7]):
        scaled = [part * ONE // 8 for part in parts]
        points = [ball.rounded(scaled, offset * ONE // 8) for offset in range(8)]
        means = [Fraction(sum(column), 8) for column in zip(*points, strict=True)]
        assert means == [Fraction(part, 8) for part in parts]
        assert all(abs(y - p / 8) < 1 for point in points for y, p in zip(point, parts, strict=True))


@pytest.mark.parametrize(("dimension", "levels", "grid"), [(2, 3, 8), (3, 2, 4), (4, 1, 4)])
def test_no_point_leaves_the_radius(dimension: int, levels: int, grid: int) -> None:
    """All vectors of a grid in the ball, all offsets: the bound holds, and is nearly reached."""
    farthest = 0
    flat, round_ball = Ball(dimension, 1.0, "l1", levels), Ball(dimension, 1.0, "l2", levels)
    for parts in itertools.product(range(levels * grid + 1), repeat=dimension):
        scaled = [part * ONE // grid for part in parts]
        for offset in range(0, ONE, ONE // grid):
            if sum(parts) <= levels * grid:
                assert sum(flat.rounded(scaled, offset)) <= levels
            if sum(part * part for part in parts) <= (levels * grid) ** 2:
                farthest = max(farthest, sum(y * y for y in round_ball.rounded(scaled, offset)))
    assert levels**2 <= farthest <= round_ball.radius_squared
    assert round_ball.sensitivity_squared == 4 * round_ball.radius_squared
    assert flat.sensitivity == 2 * levels


def test_independent_rounding_would_leave_it() -> None:
    """The bound above has teeth: rounding each coordinate by itself, up, goes farther."""
    ball = Ball(400, 1.0, "l2", 10)
    parts = [10 * ONE // 20] * 400  # length 10: all coordinates at a half
    assert sum((-(-part // ONE)) ** 2 for part in parts) == 400 > ball.radius_squared == 221
    assert sum(y * y for y in ball.rounded(parts, ONE // 2)) <= 221


def test_ascending_order_is_what_keeps_it() -> None:
    ball = Ball(64, 1.0, "l2", 100)
    rng = np.random.default_rng(3)
    for _ in range(200):
        vector = rng.normal(size=64) * (rng.random(64) < 0.3)
        parts = ball._parts(np.abs(vector).tolist()) if vector.any() else [0] * 64
        assert sum(y * y for y in ball.rounded(parts, int(rng.integers(ONE)))) <= ball.radius_squared


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("dimension", [1, 3, 70])
def test_bulk_and_single_halves_are_one_law(norm: Norm, dimension: int) -> None:
    ball = Ball(dimension, 2.5, norm, 4096)
    rng = np.random.default_rng(dimension)
    vectors = rng.normal(size=(60, dimension)) * 10.0 ** rng.integers(-9, 9, size=(60, 1))
    vectors[rng.random(vectors.shape) < 0.2] = 0.0
    parts = ball._parts_many(np.abs(vectors))
    offsets = rng.integers(0, ONE, 60)
    bulk = ball.rounded_many(parts, offsets)
    for i in range(60):
        single = ball._parts(np.abs(vectors[i]).tolist())
        assert max(abs(a - b) for a, b in zip(single, parts[i].tolist(), strict=True)) <= 1, "sums of floats differ"
        assert ball.rounded(parts[i].tolist(), int(offsets[i])) == bulk[i].tolist()
        assert ball._is_inside(single)
    assert ball._are_inside(parts).all()


@pytest.mark.parametrize(("dimension", "levels"), [(1, 1), (50, 4096), (2000, 1 << 20)])
def test_the_bulk_check_is_exact_at_the_edge(dimension: int, levels: int) -> None:
    ball = Ball(dimension, 1.0, "l2", levels)
    rng = np.random.default_rng(7)
    vectors = np.abs(rng.normal(size=(40, dimension)))
    vectors /= np.sqrt((vectors**2).sum(axis=1))[:, None]
    parts = (vectors * (levels * ONE) * rng.choice([1.0, 1 + 1e-6, 1 - 1e-6], size=(40, 1))).astype(np.int64)
    parts[0], parts[1] = 0, 0
    parts[0, 0] = parts[1, 0] = levels * ONE
    parts[1, -1] += 1
    inside = ball._are_inside(parts).tolist()
    assert inside == [ball._is_inside(row) for row in parts.tolist()]
    assert inside[:2] == [True, False]


def test_what_floats_get_wrong_is_shrunk_until_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    ball = Ball(3, 1.0, "l2", 100)
    true_scale = Ball._scale
    monkeypatch.setattr(Ball, "_scale", lambda self, largest, length: true_scale(self, largest, length) * (1 + 1e-8))
    parts = ball._parts([3.0, 4.0, 0.0])
    assert ball._is_inside(parts)
    assert ball._are_inside(ball._parts_many(np.array([[3.0, 4.0, 0.0]]))).all()
    assert math.isqrt(sum(p * p for p in parts)) > 100 * ONE * (1 - 1e-8)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("size", [5e-324, 1e-300, 1.0, 1e300, 1.7976931348623157e308])
def test_any_size_of_finite_numbers_is_placed(norm: Norm, size: float) -> None:
    for clip in (1e-290, 1.0, 1e300):
        ball = Ball(2, clip, norm, 1000)
        point = ball.encode([size, -size], seeded("sizes"))
        bulk, _ = ball.encode_many([[size, -size]], seeded("sizes"))
        share = min(1.0, size / clip * (2.0 if norm == "l1" else 2.0**0.5))
        length = sum(map(abs, point)) if norm == "l1" else math.hypot(*point)
        assert abs(length - 1000 * share) <= 1.5
        assert abs(abs(int(bulk[0, 0])) - abs(point[0])) <= 1
        assert point[0] >= 0 >= point[1]


REFUSED = [
    (3.0, RefusalReason.WRONG_TYPE),
    ("ab", RefusalReason.WRONG_TYPE),
    (b"ab", RefusalReason.WRONG_TYPE),
    (None, RefusalReason.WRONG_TYPE),
    ({1: 2, 3: 4}, RefusalReason.WRONG_TYPE),
    ([1.0], RefusalReason.WRONG_LENGTH),
    ([1.0, 2.0, 3.0], RefusalReason.WRONG_LENGTH),
    ([], RefusalReason.WRONG_LENGTH),
    ([1.0, "2"], RefusalReason.WRONG_TYPE),
    ([1.0, True], RefusalReason.WRONG_TYPE),
    ([1.0, Decimal(1)], RefusalReason.WRONG_TYPE),
    ([1.0, math.nan], RefusalReason.NOT_FINITE),
    ([1.0, -math.inf], RefusalReason.NOT_FINITE),
    (np.array([1.0, np.nan]), RefusalReason.NOT_FINITE),
    (np.array([[1.0, 2.0]]), RefusalReason.WRONG_LENGTH),
    (np.array([True, False]), RefusalReason.WRONG_TYPE),
    (np.array([1.0 + 2j, 1.0]), RefusalReason.WRONG_TYPE),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED)
def test_no_vector_is_refused_before_any_entropy(value: object, reason: RefusalReason) -> None:
    ball = Ball(2, 1.0, "l2", 10)
    for place in (lambda: ball.encode(value, Untouched()), lambda: ball.encode_many([value], Untouched())):  # type: ignore[arg-type]
        with pytest.raises(ValueRefusedError) as refused:
            place()
        assert refused.value.reason is reason
        assert "2.0" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        [3, 4],
        (3.0, 4.0),
        array("d", [3, 4]),
        array("f", [3, 4]),
        np.array([3, 4]),
        np.float32([3, 4]),
        [Fraction(3), 4],
    ],
)
def test_numbers_in_any_dress(value: object) -> None:
    ball = Ball(2, 5.0, "l2", 10)
    assert ball.encode(value, seeded("dress")) == [6, 8]  # type: ignore[arg-type]
    assert ball.encode_many([value], seeded("dress"))[0].tolist() == [[6, 8]]


def test_huge_integers_are_clipped() -> None:
    ball = Ball(2, 5.0, "l2", 10)
    assert ball.encode([10**400, 0], seeded("huge")) == [9, 0] or ball.encode([10**400, 0], seeded("huge")) == [10, 0]


def test_zeros_stay_zeros() -> None:
    ball = Ball(4, 1.0, "l1", 10)
    assert ball.encode([0.0, -0.0, 0, 0], seeded("zeros")) == [0] * 4
    assert ball.encode_many(np.zeros((3, 4)), seeded("zeros"))[0].tolist() == [[0] * 4] * 3
