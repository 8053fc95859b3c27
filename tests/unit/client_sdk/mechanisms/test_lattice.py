"""Placing numbers on the lattice: exactly unbiased, one by one and in bulk, whatever the range."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.mechanisms import Entropy, lattice
from client_sdk.mechanisms.lattice import Lattice
from client_sdk.sampling_vectorised import Keystream
from tests.entropy import Scripted, Untouched, seeded

D = Decimal


def zero_to_ten(levels: int = 1000) -> Lattice:
    return Lattice(D(0), D(10), levels)


# --- the lattice ---------------------------------------------------------------------------------------------


def place(grid: Lattice, value: float) -> tuple[int, Fraction]:
    """(floor, probability of the point above), as `encode` asks for it."""
    asked: list[Fraction] = []

    def rounding(p: Fraction, entropy: Entropy) -> bool:
        asked.append(p)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "bernoulli", rounding)
        point = grid.encode(value, Untouched())
    return point, asked[0]


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(), st.integers(2, 1 << 20))
def test_rounding_is_unbiased_to_the_last_digit(value: float, levels: int) -> None:
    """floor + probability of rounding up is the clipped reading's position, as a fraction."""
    grid = Lattice(D("-0.1"), D("1000.3"), levels)
    lower, upper = Fraction(D("-0.1")), Fraction(D("1000.3"))
    clipped = min(max(Fraction(value), lower), upper)
    point, up = place(grid, value)
    assert 0 <= point + (up > 0) <= levels
    assert point + up == (clipped - lower) * levels / (upper - lower)


@pytest.mark.parametrize("value", [5e-324, 1e-300, math.nextafter(10, 0), math.nextafter(0, 1), 0.1, 1 / 3])
def test_hard_floats_are_the_fractions_they_are(value: float) -> None:
    point, up = place(zero_to_ten(), value)
    assert point + up == Fraction(value) * 100
    assert 0 < up < 1


@pytest.mark.parametrize("value", [0.0, 5.0, 10.0, 3, 0.1, 1 / 3, 9.999999, 5e-324, -7.0, 1e300, Fraction(1, 7)])
def test_how_much_is_drawn_does_not_depend_on_the_reading(value: float) -> None:
    """Eight bytes, on a point of the lattice or not, in the range or not."""
    source = Scripted(bytes([1, 2, 3, 4, 5, 6, 7, 8]))
    zero_to_ten().encode(value, source)
    assert source.asked == [8]


def test_clipping() -> None:
    # case A04
    grid = zero_to_ten()
    for value in (-3, -3.0, -1e300, -(10**400), -0.0, np.int64(-3)):
        assert place(grid, value) == (0, 0)
    for value in (1e300, 10, 10.0, 10**400, np.float32(11), np.uint8(200)):
        assert place(grid, value) == (1000, 0)


# --- placing in bulk is `encode`, whatever the range ------------------------------------------------------------


class GivenBits(Keystream):
    """A stream whose first 32-bit words are given; counts what is drawn beyond."""

    def __init__(self, words: list[int]) -> None:
        super().__init__(seeded("beyond"))
        self._given = np.array(words, "<u4")
        self.beyond = 0

    def words(self, count: int, width: int) -> np.ndarray:
        assert (count, width) == (self._given.size, 4)
        return self._given

    def __call__(self, size: int) -> bytes:
        self.beyond += 1
        return super().__call__(size)


RANGES = [
    ("0", "10"),
    ("-3", "3"),
    ("0.1", "1000.3"),
    ("-1000000.7", "-1000000.1"),
    ("0", "1e-280"),
    ("-1e200", "1e200"),
]


@pytest.mark.parametrize(("lower", "upper"), RANGES)
@pytest.mark.parametrize("levels", [2, 1000, 1 << 20])
def test_bulk_placing_decides_every_draw_as_the_fraction_says(lower: str, upper: str, levels: int) -> None:
    """Readings inside, on lattice points, an ulp beside them, outside; draws an instant before and after the edge."""
    grid = Lattice(D(lower), D(upper), levels)
    low, width = Fraction(D(lower)), Fraction(D(upper)) - Fraction(D(lower))
    rng = random.Random(f"{lower} {upper} {levels}")
    readings = [float(low + width * Fraction(rng.random())) for _ in range(100)]
    points = [float(low + width * Fraction(rng.randint(0, levels), levels)) for _ in range(50)]
    readings += points + [math.nextafter(p, s) for p in points for s in (-math.inf, math.inf)]
    readings += [float(low), float(low + width), float(low - width), float(low + 2 * width)]
    edge_draws = 0
    values, words, expected = [], [], []
    for reading in readings:
        position = min(max((Fraction(reading) - low) * levels / width, Fraction(0)), Fraction(levels))
        whole, rest = divmod(position, 1)
        edge = int((1 - rest) * 2**32)  # u = edge / 2^32 is the last word that may stay below
        for word in {0, 2**32 - 1, edge - 1, edge, edge + 1, rng.getrandbits(32)}:
            if 0 <= word < 2**32:
                values.append(reading)
                words.append(word)
                expected.append({whole + (word >= (1 - rest) * 2**32), whole + (word + 1 > (1 - rest) * 2**32)})
                edge_draws += len(expected[-1]) == 2
    stream = GivenBits(words)
    placed = grid.place(grid.clipped(np.array(values)), stream)
    wrong = [i for i, point in enumerate(placed.tolist()) if point not in expected[i]]
    assert wrong == []
    assert stream.beyond >= edge_draws > 0, "draws on the edge went on in fractions"
    assert placed.min() >= 0
    assert placed.max() <= levels


def test_bulk_placing_far_from_zero_is_left_to_fractions() -> None:
    """A range so narrow that floats cannot tell its readings apart: the law of `encode`, only slower."""
    grid = Lattice(D("1e15"), D("1000000000000001"), 1000)
    values = np.full(2000, 1e15 + 0.5)
    assert (grid.place(values, Keystream(seeded("far"))) == 500).all()
    between = Lattice(D("1e15"), D("1000000000000003"), 2)
    placed = between.place(np.full(4000, 1e15 + 1.0), Keystream(seeded("far")))  # position 2/3
    assert set(placed.tolist()) == {0, 1}
    assert abs(placed.mean() - 2 / 3) < 5 * (2 / 9 / 4000) ** 0.5


def test_bulk_placing_where_no_float_fits() -> None:
    """A range of 1e-280 at 1e280: steps per unit times the ends is beyond any float."""
    grid = Lattice(D("1e280"), D("1" + "0" * 280 + "." + "0" * 279 + "1"), 1000)
    values = np.array([0.0, float(Fraction(10**280)), 2e280])
    expected = [grid.encode(value, seeded("x")) for value in values.tolist()]
    assert grid.place(grid.clipped(values), Keystream(seeded("x"))).tolist() == expected


def test_the_edge_is_split_as_its_fraction_says() -> None:
    """position 0.25 + 2^-34: the word just below the edge rounds up with probability 1/4."""
    grid = Lattice(D(0), D(2), 2)
    value = 0.25 + 2.0**-34
    word = 3 * 2**30 - 1
    n = 4000
    ups = int(grid.place(np.full(n, value), GivenBits([word] * n)).sum())
    assert abs(ups - n / 4) < 5 * (n * 3 / 16) ** 0.5
