"""The piecewise mechanism's complete law, in exact fractions: all points, all outputs, all branches of the code."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest

from client_sdk.mechanisms import lattice, piecewise
from client_sdk.mechanisms.piecewise import Piecewise
from tests.entropy import Untouched
from tests.exact_law import ONE, Law, assert_bulk_follows, e_to, exact_law, moments, worst_ratio

D = Decimal
SETTINGS = [(2, "0.000001"), (2, "1"), (3, "40"), (4, "0.5"), (7, "1"), (7, "3"), (16, "2"), (16, "6"), (12, "0.1")]


def mechanism(levels: int, epsilon: str) -> Piecewise:
    return Piecewise(D(0), D(10), D(epsilon), levels)


@cache
def laws_of(mech: Piecewise) -> list[Law]:
    return [
        exact_law(lambda point=point: mech.perturb_point(point, Untouched()), piecewise)
        for point in range(mech.levels + 1)
    ]


@pytest.mark.parametrize(("levels", "epsilon"), SETTINGS)
def test_largest_ratio_over_all_inputs_and_outputs(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    laws = laws_of(mech)
    assert set(laws[0]) == set(range(mech.law.highest + 1)), "every output is reached, and no other"
    worst = worst_ratio(laws)
    assert worst == mech.worst_ratio <= e_to(epsilon)
    inside, size = mech.window.inside + 1, mech.window.size
    assert Fraction(inside * levels, (ONE - inside) * size) > e_to(epsilon), "one unit more would break epsilon"


@pytest.mark.parametrize(("levels", "epsilon"), SETTINGS)
def test_mean_and_mean_square_are_exactly_what_the_collector_undoes(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    for point, law in enumerate(laws_of(mech)):
        mean, square = moments(law, mech.law.centre)
        from_middle = point - Fraction(levels, 2)
        assert mean == mech.law.centre + mech.law.slope * from_middle
        assert square == mech.law.base + mech.law.growth * from_middle**2
        assert {y: mech.mass(point, y) for y in law} == law
        assert mech.table([point])[0].tolist() == [float(law[y]) for y in range(len(law))]


@pytest.mark.parametrize("reading", [0.0, 0.1, 3.3, 5.0, 9.999, 10.0, -4.0, 1e300])
def test_a_readings_law_mixes_its_neighbours_without_bias(reading: float) -> None:
    mech = mechanism(7, "1.5")
    law = exact_law(lambda: mech.perturb(reading, Untouched())[0], lattice, piecewise)
    clipped = min(max(Fraction(reading), Fraction(0)), Fraction(10))
    assert sum(mass * mech.lattice.value_at(mech.law.position(y, 1)) for y, mass in law.items()) == clipped
    whole, rest = divmod(clipped * 7 / 10, 1)
    assert law == {y: (1 - rest) * mech.mass(whole, y) + rest * mech.mass(min(whole + 1, 7), y) for y in law}


@pytest.mark.parametrize(("levels", "epsilon"), [(2, "1"), (7, "3"), (16, "2")])
def test_the_bulk_half_follows_the_same_integers(levels: int, epsilon: str) -> None:
    mech = mechanism(levels, epsilon)
    for point in range(levels + 1):
        tried = assert_bulk_follows(mech, point, [-mech.window.inside, mech.window.size, levels], piecewise)
        assert tried == 4 * mech.window.size * levels


def test_the_default_rows_are_the_worst_pair() -> None:
    """No event tells two points better apart than the ends: the mass above t times the other's, for any t >= 1."""
    mech = mechanism(16, "2")
    rows = [[mech.mass(point, y) for y in range(mech.law.highest + 1)] for point in range(17)]

    def above(one: list[Fraction], other: list[Fraction], t: Fraction) -> Fraction:
        return sum((max(a - t * b, Fraction(0)) for a, b in zip(one, other, strict=True)), Fraction(0))

    for t in (Fraction(1), Fraction(3, 2), Fraction(5), Fraction(7)):
        ends = above(rows[0], rows[16], t)
        assert max(above(one, other, t) for one in rows for other in rows) == ends == above(rows[16], rows[0], t)
    assert mech.table().tolist() == [[float(mass) for mass in rows[end]] for end in (0, 16)]
