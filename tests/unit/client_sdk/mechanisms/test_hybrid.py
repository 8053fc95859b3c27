"""The hybrid: the best of its mixtures, one variance for all readings, one bit alone where that is better."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.parameters import ONE
from client_sdk.mechanisms.piecewise import Window

D = Decimal


def minus_one_to_one(epsilon: str, levels: int = 1000) -> Hybrid:
    return Hybrid(D(-1), D(1), D(epsilon), levels)


def test_shape() -> None:
    mech = minus_one_to_one("1", 100)
    assert mech.name == "hybrid"
    assert mech.bound == mech.law.highest == 100 + mech.window.size - 1
    assert 0 < mech.low < mech.high < mech.bound
    alone = minus_one_to_one("0.5", 100)
    assert (alone.coin, alone.low, alone.high, alone.bound) == (0, 0, 1, 1)


@pytest.mark.parametrize("epsilon", ["0.000001", "0.1", "0.5", "0.6"])
def test_at_small_epsilon_it_is_one_bit(epsilon: str) -> None:
    assert minus_one_to_one(epsilon).law.worst_variance() == OneBit(D(-1), D(1), D(epsilon)).law.worst_variance()


def test_where_it_leaves_one_bit() -> None:
    """With the paper's window at 0.6094; with the best one a little earlier."""
    for epsilon, mixed in (("0.607", False), ("0.608", True)):
        assert bool(minus_one_to_one(epsilon).coin) is mixed
    levels = 1 << 16
    for epsilon, better in (("0.6088", False), ("0.6098", True)):
        paper = minus_one_to_one(epsilon, levels)._flat_variance(round(levels / math.exp(float(epsilon) / 2)))
        assert (paper < OneBit(D(-1), D(1), D(epsilon)).law.worst_variance()) is better


@pytest.mark.parametrize("epsilon", ["1", "1.5", "2", "3", "4", "6"])
def test_with_the_papers_window_it_is_the_papers_mechanism(epsilon: str) -> None:
    h, c = math.exp(float(epsilon) / 2), 1 / math.tanh(float(epsilon) / 2)
    formula = (h + 3) / (3 * h * (h - 1)) + c * c / h
    levels = 1 << 16
    paper = minus_one_to_one(epsilon, levels)._flat_variance(round(levels / h))
    assert float(paper) == pytest.approx(formula, rel=1e-3)


@pytest.mark.parametrize("epsilon", ["0.62", "0.8", "1", "2", "4", "8"])
def test_the_variance_is_the_same_for_all_readings(epsilon: str) -> None:
    """To 1 in 100 on a thousand levels: so an error bar needs to know nothing of the readings."""
    law = minus_one_to_one(epsilon).law
    rise = (law.growth - law.slope**2) * law.steps**2 / 4
    assert abs(rise) < law.base / 100


@pytest.mark.parametrize("levels", [2, 5, 12])
@pytest.mark.parametrize("epsilon", ["0.8", "1", "2.7", "6", "40"])
def test_no_other_gap_or_window_is_better(levels: int, epsilon: str) -> None:
    """The gap is the best of all for its window; the window is the best but for the gap's rounding."""
    mech = minus_one_to_one(epsilon, levels)
    if not mech.coin:
        pytest.skip("one bit alone")
    own = mech.law.worst_variance()
    widest = mech.law.highest
    gaps = range(widest % 2, widest + 1, 2)
    assert own == min(mech._mixture(mech.window, mech.coin, gap).worst_variance() for gap in gaps)
    flat = [mech._flat_variance(size) for size in range(1, levels + 1)]
    assert mech._flat_variance(mech.window.size) == min(flat)


@pytest.mark.parametrize("epsilon", ["0.7", "2.5"])
def test_no_mixture_on_a_grid_is_better_by_more_than_the_lattice_allows(epsilon: str) -> None:
    """Coin, window and gap all varied: the closed choice is the best of them to 2 in 1000."""
    mech = minus_one_to_one(epsilon, 60)
    best = min(
        mech._mixture(window, ONE * coin // 40, gap).worst_variance()
        for window in (Window.of(D(epsilon), 60, size) for size in range(10, 61, 4))
        for coin in range(1, 41)
        for gap in range((window.outputs - 1) % 2, window.outputs, 6)
    )
    assert mech.law.worst_variance() <= best * 1.002


def test_one_bit_alone_gives_the_same_answers_on_any_lattice() -> None:
    for levels in (2, 7, 1000):
        mech = minus_one_to_one("0.4", levels)
        bit = OneBit(D(-1), D(1), D("0.4"))
        assert mech.estimate([61], 100).values == bit.estimate([61], 100).values
        assert mech.estimate([61], 100).standard_errors == pytest.approx(bit.estimate([61], 100).standard_errors)
