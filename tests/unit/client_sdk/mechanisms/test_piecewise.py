"""The piecewise mechanism: its window is the best one, and with the paper's window it is the paper's mechanism."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.parameters import ONE
from client_sdk.mechanisms.piecewise import Piecewise, Window, valley

D = Decimal


def paper_window(epsilon: Decimal, levels: int) -> Window:
    return Window.of(epsilon, levels, round(levels / math.exp(float(epsilon) / 2)))


def test_shape() -> None:
    mech = Piecewise(D("-2.5"), D("7.5"), D("0.7"), 100)
    assert mech.name == "piecewise"
    assert mech.bound == mech.law.highest == 100 + mech.window.size - 1
    assert mech.window.inside / ONE == pytest.approx(
        mech.window.size * math.exp(0.7) / (mech.window.size * math.exp(0.7) + 100), rel=1e-15
    )


@pytest.mark.parametrize("levels", [2, 3, 10, 57])
@pytest.mark.parametrize("epsilon", ["0.000001", "0.3", "1", "2.7", "6", "12", "40"])
def test_the_window_is_the_best_of_all(levels: int, epsilon: str) -> None:
    mech = Piecewise(D(0), D(1), D(epsilon), levels)
    costs = [Window.of(D(epsilon), levels, size).law().worst_variance() for size in range(1, 2 * levels)]
    assert mech.law.worst_variance() == min(costs), "a window wider than the lattice would not be better either"


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "1.5", "2", "3", "4", "6"])
def test_with_the_papers_window_it_is_the_papers_mechanism(epsilon: str) -> None:
    """Worst-case variance (h+3)/(3(h-1)^2) + 1/(h-1) on [-1, 1], and a fine lattice's is that to 1 in 1000."""
    h = math.exp(float(epsilon) / 2)
    formula = (h + 3) / (3 * (h - 1) ** 2) + 1 / (h - 1)
    assert float(paper_window(D(epsilon), 1 << 16).law().worst_variance()) == pytest.approx(formula, rel=1e-3)


def test_the_papers_crossover_with_one_bit() -> None:
    """Ours comes earlier."""
    for epsilon, better in (("1.289", False), ("1.2905", True)):
        bit = OneBit(D(-1), D(1), D(epsilon)).law.worst_variance()
        assert (paper_window(D(epsilon), 1 << 16).law().worst_variance() < bit) is better
    for epsilon, better in (("1.18", False), ("1.19", True)):
        bit = OneBit(D(-1), D(1), D(epsilon)).law.worst_variance()
        assert (Piecewise(D(-1), D(1), D(epsilon)).law.worst_variance() < bit) is better


@pytest.mark.parametrize(("epsilon", "saved"), [("1", 0.03), ("3", 0.21), ("6", 0.52)])
def test_the_window_saves_what_its_module_says(epsilon: str, saved: float) -> None:
    own = Piecewise(D(0), D(1), D(epsilon), 1 << 16).law.worst_variance()
    assert 1 - own / paper_window(D(epsilon), 1 << 16).law().worst_variance() > saved


def test_levels_hardly_matter_from_a_hundred_on() -> None:
    for epsilon in ("0.5", "1", "3"):
        coarse, fine = (Piecewise(D(0), D(1), D(epsilon), levels).worst_case_variance for levels in (100, 1 << 16))
        assert coarse == pytest.approx(fine, rel=0.01)


def test_valley() -> None:
    for least in range(1, 12):
        assert valley(1, 11, lambda place, least=least: abs(place - least)) == least  # type: ignore[misc,return-value]
    assert valley(3, 3, lambda place: 1 / 0) == 3  # type: ignore[arg-type,return-value]
