"""Windows of binomial laws against exact fractions, their stated tails, and the lower ends of runs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from collector.accounting.binomial import OUTSIDE, Window, binomial, binomials, lower_ends


@pytest.mark.parametrize("count", [1, 7, 300, 600])
@pytest.mark.parametrize("probability", [0.5, 0.03, 0.97, 1e-9, 0.25])
def test_masses_and_what_is_left_out(count: int, probability: float) -> None:
    window, p = binomial(count, probability), Fraction(probability)
    inside = Fraction(0)
    for value, mass in zip(window.values.tolist(), window.masses, strict=True):
        exact = math.comb(count, value) * p**value * (1 - p) ** (count - value)
        inside += exact
        assert mass == pytest.approx(float(exact), rel=1e-11)
    assert float(1 - inside) <= window.outside <= OUTSIDE


def test_a_million_draws() -> None:
    window = binomial(1_000_000, 0.3)
    assert window.masses.sum() == pytest.approx(1.0, abs=1e-13)
    assert float(window.values @ window.masses) == pytest.approx(300_000, rel=1e-12)
    assert float((window.values - 300_000) ** 2 @ window.masses) == pytest.approx(210_000, rel=1e-9)
    middle = float(window.masses[300_000 - window.first])
    stirling = math.exp(
        math.lgamma(1_000_001) - math.lgamma(300_001) - math.lgamma(700_001)
        + 300_000 * math.log(0.3) + 700_000 * math.log(0.7)
    )  # fmt: skip
    assert middle == pytest.approx(stirling, rel=1e-7)


@pytest.mark.parametrize(("count", "probability", "value"), [(0, 0.4, 0), (9, 0.0, 0), (9, 1.0, 9)])
def test_certain_values(count: int, probability: float, value: int) -> None:
    window = binomial(count, probability)
    assert (window.first, window.last, window.masses.tolist(), window.outside) == (value, value, [1.0], 0.0)


def test_lower_ends_move_mass_down_only() -> None:
    window = binomial(2000, 0.4)
    for limit in (2, 3, 10, 50):
        moved = lower_ends(window, limit)
        assert np.count_nonzero(moved.masses) <= limit
        assert moved.masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert (np.cumsum(moved.masses) >= np.cumsum(window.masses) - 1e-12).all()
    assert float(window.values @ lower_ends(window, 50).masses) > 800 - 10  # and not far
    assert lower_ends(window, 10_000) is window


@pytest.mark.parametrize(("first", "last", "probability"), [(0, 40, 0.3), (900, 1700, 0.2), (5, 5, 0.5), (3, 9, 1.0)])
def test_each_law_from_the_one_before(first: int, last: int, probability: float) -> None:
    """On one window for all; nothing is added, and what is missing is what `outside` says."""
    laws = list(binomials(first, last, probability))
    assert len(laws) == last - first + 1
    assert len({(law.first, law.last) for law in laws}) == 1
    for count, law in zip(range(first, last + 1), laws, strict=True):
        alone = binomial(count, probability)
        assert law.first <= alone.first <= alone.last <= law.last
        cells = law.masses[alone.first - law.first : alone.last - law.first + 1]
        assert (np.abs(cells - alone.masses) <= np.maximum(1e-10 * alone.masses, OUTSIDE)).all()
        assert law.masses.sum() <= 1.0 + 1e-12
        assert law.masses.sum() - cells.sum() <= OUTSIDE + 1e-12
        assert law.outside == OUTSIDE


def test_three_lower_ends_stand_where_the_mass_is() -> None:
    """On the average little more than a deviation below."""
    window = binomial(100_000, 0.6)
    moved = lower_ends(window, 3)
    lost = float(window.values @ window.masses - window.values @ moved.masses)
    assert 0 < lost < 1.2 * (100_000 * 0.6 * 0.4) ** 0.5


def test_refused() -> None:
    for count, probability in ((-1, 0.5), (3, 1.1), (3, math.nan)):
        with pytest.raises(ValueError, match="no binomial law"):
            binomial(count, probability)
    with pytest.raises(ValueError, match="at least 2"):
        lower_ends(Window(0, np.ones(9) / 9, 0.0), 1)
