"""One bit's complete law from its shipped integer: the largest ratio, and a mean exactly linear in the reading."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from client_sdk.mechanisms import lattice, one_bit
from client_sdk.mechanisms.one_bit import OneBit
from tests.entropy import Untouched
from tests.exact_law import ONE, Law, assert_bulk_follows, e_to, exact_law, moments, worst_ratio

D = Decimal
EPSILONS = ["0.000001", "0.1", "0.5", "1", "2.5", "8", "40"]
READINGS = [-2.0, -1.999999, -0.7, 0.0, 1e-300, 1.0, 3.3, 6.0, -1e300, 1e300, 7]


def mechanism(epsilon: str) -> OneBit:
    return OneBit(D(-2), D(6), D(epsilon))


def law_of(mech: OneBit, reading: float) -> Law:
    return exact_law(lambda: mech.perturb(reading, Untouched())[0], lattice, one_bit)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_largest_ratio_over_all_inputs_and_outputs(epsilon: str) -> None:
    mech = mechanism(epsilon)
    worst = worst_ratio([law_of(mech, reading) for reading in READINGS])
    assert worst == mech.worst_ratio == Fraction(mech.keep, ONE - mech.keep)
    assert worst <= e_to(epsilon)
    assert Fraction(mech.keep + 1, ONE - mech.keep - 1) > e_to(epsilon), "one unit more would break epsilon"


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_law_is_what_the_collector_undoes(epsilon: str) -> None:
    """The chance of a 1, exactly; one report's expected estimate is the clipped reading, exactly."""
    mech = mechanism(epsilon)
    for reading in READINGS:
        law = law_of(mech, reading)
        clipped = min(max(Fraction(reading), Fraction(-2)), Fraction(6))
        share, keep = (clipped + 2) / 8, Fraction(mech.keep, ONE)
        assert law[1] == share * keep + (1 - share) * (1 - keep)
        expected = sum(mass * mech.lattice.value_at(mech.law.position(y, 1)) for y, mass in law.items())
        assert expected == clipped
        assert moments(law, mech.law.centre)[1] == mech.law.base, "a bit's square does not vary"


def test_ends_of_the_range_are_the_tables_rows() -> None:
    mech = mechanism("1.3")
    for point, reading in enumerate((-2, 6)):
        law = law_of(mech, reading)
        assert {y: mech.mass(point, y) for y in (0, 1)} == law
        assert mech.table()[point].tolist() == [float(law[0]), float(law[1])]


@pytest.mark.parametrize("point", [0, 1])
def test_the_bulk_half_compares_the_same_integer(point: int) -> None:
    mech = mechanism("0.5")
    assert assert_bulk_follows(mech, point, [-mech.keep], one_bit) == 4
