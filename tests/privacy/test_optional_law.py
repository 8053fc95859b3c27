"""Optional numbers: the complete law of both cells over readings and None, in exact fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.mechanisms import hybrid, lattice, one_bit, optional, piecewise
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.optional import OptionalNumber
from client_sdk.mechanisms.piecewise import Piecewise
from tests.entropy import Untouched, seeded
from tests.exact_law import ONE, Law, e_to, exact_law, worst_ratio

D = Decimal
INNER: list[type[NumericMechanism]] = [OneBit, Piecewise, Hybrid]
READINGS = [None, 0.0, 2.5, 3.3, 5.0, 10.0]


def mechanism(kind: type[NumericMechanism], epsilon: str = "2", share: str = "0.25", levels: int = 4) -> OptionalNumber:
    inner = D(epsilon) * (1 - D(share))
    return OptionalNumber(kind(D(0), D(10), inner, levels), D(epsilon), D(share))


def law_of(mech: OptionalNumber, value: float | None) -> Law:
    return exact_law(lambda: tuple(mech.perturb(value, Untouched())), optional, lattice, one_bit, piecewise, hybrid)


@pytest.mark.parametrize("kind", INNER)
@pytest.mark.parametrize(("epsilon", "share"), [("2", "0.25"), ("0.5", "0.5"), ("6", "0.1")])
def test_largest_ratio_over_readings_and_none(kind: type[NumericMechanism], epsilon: str, share: str) -> None:
    mech = mechanism(kind, epsilon, share)
    worst = worst_ratio([law_of(mech, value) for value in READINGS])
    assert worst <= mech.worst_ratio <= e_to(epsilon)
    if mech.inner.name == "one_bit":  # a bound that is reached between a reading's end and the middle is smaller
        assert worst < mech.worst_ratio


@pytest.mark.parametrize("kind", INNER)
def test_no_reading_is_the_middle_of_the_range_but_for_the_bit(kind: type[NumericMechanism]) -> None:
    mech = mechanism(kind)
    absent, middle = law_of(mech, None), law_of(mech, 5.0)
    assert absent == {(y, 1 - bit): mass for (y, bit), mass in middle.items()}
    assert sum(mass for (_, bit), mass in middle.items() if bit) == Fraction(mech.keep, ONE)


@pytest.mark.parametrize("kind", INNER)
def test_both_parts_are_unbiased_in_exact_expectation(kind: type[NumericMechanism]) -> None:
    """For one report: E[S'] = reading - middle, or 0 without one; E[C] = 1, or 0."""
    mech = mechanism(kind)
    for value in READINGS:
        parts = [(mech.parts(cells, 1), mass) for cells, mass in law_of(mech, value).items()]
        assert sum(part.excess * mass for part, mass in parts) == (0 if value is None else Fraction(value) - 5)
        assert sum(part.count * mass for part, mass in parts) == (value is not None)
        spread = sum(part.count**2 * mass for part, mass in parts) - (value is not None)
        assert {part.count_variance for part, _ in parts} == {spread}, "the count's variance is exact"


def test_the_bulk_half_compares_the_same_integer() -> None:
    mech = mechanism(OneBit)
    words = np.array([0, mech.keep - 1, mech.keep, ONE - 1] * 2, np.uint64)

    class Given:
        def __init__(self, entropy: object) -> None:
            pass

        def words(self, count: int, width: int) -> np.ndarray:
            assert (count, width) == (8, 8)
            return words

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optional, "Keystream", Given)
        reports = mech.perturb_many([1.0] * 4 + [None] * 4, seeded("inner"))
    assert reports[:, 1].tolist() == [1, 1, 0, 0, 0, 0, 1, 1]
