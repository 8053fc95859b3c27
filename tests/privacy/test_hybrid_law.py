"""The hybrid's complete law, in exact fractions: all points, all outputs, all branches of the code."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest

from client_sdk.mechanisms import hybrid, lattice, piecewise
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.piecewise import Window
from tests.entropy import Untouched
from tests.exact_law import ONE, Law, assert_bulk_follows, e_to, exact_law, moments, worst_ratio

D = Decimal
MIXED = [(2, "1.5"), (3, "40"), (4, "1"), (7, "1"), (7, "3"), (8, "6"), (6, "0.8")]
ALONE = [(2, "0.5"), (7, "0.000001"), (10, "0.6")]


def mechanism(levels: int, epsilon: str) -> Hybrid:
    return Hybrid(D(0), D(10), D(epsilon), levels)


@cache
def laws_of(mech: Hybrid) -> list[Law]:
    return [
        exact_law(lambda point=point: mech.perturb_point(point, Untouched()), hybrid, piecewise)
        for point in range(mech.levels + 1)
    ]


@pytest.mark.parametrize(("levels", "epsilon"), MIXED + ALONE)
def test_largest_ratio_over_all_inputs_and_outputs(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    assert bool(mech.coin) == ((levels, epsilon) in MIXED)
    laws = laws_of(mech)
    assert set(laws[0]) == set(range(mech.law.highest + 1)), "every output is reached, and no other"
    assert worst_ratio(laws) == mech.worst_ratio <= e_to(epsilon)


@pytest.mark.parametrize(("levels", "epsilon"), MIXED + ALONE)
def test_mean_and_mean_square_are_exactly_what_the_collector_undoes(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    for point, law in enumerate(laws_of(mech)):
        mean, square = moments(law, mech.law.centre)
        from_middle = point - Fraction(levels, 2)
        assert mean == mech.law.centre + mech.law.slope * from_middle
        assert square == mech.law.base + mech.law.growth * from_middle**2
        assert {y: mech.mass(point, y) for y in law} == law
        assert mech.table([point])[0].tolist() == pytest.approx([float(law[y]) for y in range(len(law))], rel=1e-15)


@pytest.mark.parametrize("epsilon", ["0.5", "1.5"])
@pytest.mark.parametrize("reading", [0.0, 0.1, 3.3, 10.0, -4.0])
def test_a_readings_law_is_unbiased(reading: float, epsilon: str) -> None:
    mech = mechanism(5, epsilon)
    law = exact_law(lambda: mech.perturb(reading, Untouched())[0], lattice, hybrid, piecewise)
    clipped = min(max(Fraction(reading), Fraction(0)), Fraction(10))
    assert sum(mass * mech.lattice.value_at(mech.law.position(y, 1)) for y, mass in law.items()) == clipped


def test_the_largest_ratio_is_found_without_looking_at_every_point() -> None:
    """`worst_ratio` looks where a mass can be extreme; here, at every point of larger lattices."""
    for levels in (2, 3, 17, 40):
        for epsilon in ("0.7", "1", "2", "3.5", "7"):
            mech = mechanism(levels, epsilon)
            worst = worst_ratio([{y: mech.mass(j, y) for y in range(mech.law.highest + 1)} for j in range(levels + 1)])
            assert worst == mech.worst_ratio <= e_to(epsilon)


def test_the_largest_ratio_is_found_at_the_two_outputs_of_the_bit_too() -> None:
    """With a window so flat that it gives little away, the bit's outputs do: wherever that window lies."""
    ends_alone = 0
    for size in range(1, 18):
        mech = mechanism(17, "3")
        for low in range(5):
            mech._set(window=Window.of(D("1.2"), 17, size), coin=ONE // 10 * 9, low=low, high=16 + size - low)
            laws = [{y: mech.mass(j, y) for y in range(17 + size)} for j in range(18)]
            worst = worst_ratio(laws)
            assert worst == mech.worst_ratio > mech.window.worst_ratio
            ends_alone += worst == worst_ratio([laws[0], laws[17]])
    assert ends_alone < 17 * 5, "points between the ends mattered"


@pytest.mark.parametrize(("levels", "epsilon"), [(2, "1.5"), (4, "2"), (7, "3")])
def test_the_bulk_half_follows_the_same_integers(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    draws = [levels, -mech.keep, -mech.window.inside, mech.window.size, levels, -mech.coin]
    for point in (0, 1, levels):
        tried = assert_bulk_follows(mech, point, draws, hybrid, piecewise)
        assert tried == 4**3 * levels**2 * mech.window.size


def test_the_bulk_half_of_one_bit_alone() -> None:
    mech = mechanism(5, "0.5")
    for point in range(6):
        assert assert_bulk_follows(mech, point, [5, -mech.keep], hybrid) == 20


def test_the_parts_shares_are_integers_over_2_64() -> None:
    mech = mechanism(10, "1")
    assert 0 < mech.coin < ONE
    assert mech.low + mech.high == mech.law.highest
    assert mech.window.outputs - 1 == mech.law.highest
