"""One bit: the integer it is drawn with, its variance, what `levels` does not do."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.parameters import ONE
from tests.entropy import Scripted, seeded

D = Decimal


def test_shape() -> None:
    mech = OneBit(D("-2.5"), D("7.5"), D("0.7"))
    assert (mech.name, mech.bound, mech.lattice.levels, mech.levels) == ("one_bit", 1, 1, 1000)
    assert mech.keep / ONE == pytest.approx(math.exp(0.7) / (math.exp(0.7) + 1), rel=1e-15)
    assert "keep" not in repr(mech)


@pytest.mark.parametrize("epsilon", ["0.000001", "0.1", "1", "8", "40"])
def test_worst_case_variance_is_duchis(epsilon: str) -> None:
    c = 1 / math.tanh(float(epsilon) / 2)
    assert OneBit(D(0), D(1), D(epsilon)).worst_case_variance == pytest.approx(c * c, rel=1e-9)


def test_levels_change_nothing() -> None:
    coarse, fine = (OneBit(D(0), D(10), D(1), levels) for levels in (2, 1 << 20))
    assert coarse.law == fine.law
    values = np.linspace(-1, 11, 500)
    assert (coarse.perturb_many(values, seeded("levels")) == fine.perturb_many(values, seeded("levels"))).all()


def test_one_report_by_its_bytes() -> None:
    """Position 3/8: eight bytes round it, eight compare with keep."""
    mech = OneBit(D(0), D(8), D(1))
    below, above = (mech.keep - 1).to_bytes(8, "big"), mech.keep.to_bytes(8, "big")
    rounded = {bytes([byte << 5, 0, 0, 0, 0, 0, 0, 1]): byte < 3 for byte in range(8)}  # the three highest bits decide
    for word, bit in rounded.items():
        assert mech.perturb(3, Scripted(word, below)) == [bit]
        assert mech.perturb(3, Scripted(word, above)) == [not bit]


def test_an_estimate_undoes_the_rounded_integer() -> None:
    mech = OneBit(D(0), D(10), D(1))
    p = Fraction(mech.keep, ONE)
    for ones in (0, 412, 1000):
        expected = 10 * (Fraction(ones, 1000) - (1 - p)) / (2 * p - 1)
        assert mech.estimate([ones], 1000).values == (float(expected),)
