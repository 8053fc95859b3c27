"""Hiding among the clones: the published figures, and the laws of a central bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collector.accounting import local
from collector.accounting.blanket import one_bit, randomized_response
from collector.accounting.clones import clones

DELTA = 1e-6


def test_row_18_lies_between_the_published_bounds() -> None:
    epsilon = clones(4.0, 100_000).epsilon(DELTA)
    assert 0.1675385583317841 < epsilon < 0.172790550755978
    assert epsilon == pytest.approx(0.16977, abs=5e-6)


@pytest.mark.parametrize(
    ("epsilon", "n_h", "expected"),
    [
        (0.5, 100, 0.24090), (0.5, 1000, 0.07052), (0.5, 10_000, 0.02040), (1.0, 100, 0.64369), (1.0, 1000, 0.182412),
        (1.0, 10_000, 0.05301), (2.0, 100, 1.99883), (2.0, 1000, 0.54550), (2.0, 10_000, 0.15505),
        (4.0, 100, 4.00000), (4.0, 1000, 3.98996), (4.0, 10_000, 0.60091), (1.0, 100_000, 0.01528),
    ],
)  # fmt: skip
def test_reference_table(epsilon: float, n_h: int, expected: float) -> None:
    assert clones(epsilon, n_h).epsilon(DELTA) == pytest.approx(expected, rel=2e-4, abs=6e-6)


def test_figure_at_half_the_delta() -> None:
    assert clones(1.0, 1000).epsilon(5e-7) == pytest.approx(0.190291, abs=2e-6)


@pytest.mark.parametrize(("epsilon", "n_h"), [(1.0, 12), (0.2, 25), (3.0, 40)])
def test_every_delta_by_adding_up_the_pair(epsilon: float, n_h: int) -> None:
    keep, chance, pair = 1 / (1 + math.exp(-epsilon)), math.exp(-epsilon), clones(epsilon, n_h)
    for at in np.linspace(0.0, epsilon, 7)[:-1]:
        total = 0.0
        for c in range(n_h):
            weight = math.comb(n_h - 1, c) * chance**c * (1 - chance) ** (n_h - 1 - c)
            coins = np.array([math.comb(c, a) for a in range(c + 1)]) / 2.0**c
            upper, lower = np.convolve(coins, (1 - keep, keep)), np.convolve(coins, (keep, 1 - keep))
            total += weight * float(np.maximum(upper - math.exp(at) * lower, 0.0).sum())
        assert pair.delta(at) == pytest.approx(total, rel=1e-10, abs=1e-16)


def test_above_the_blankets_and_not_above_local() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        for n_h in (1, 2, 50, 700):
            fallback, blankets = clones(epsilon, n_h), [one_bit(epsilon, n_h), randomized_response(6, epsilon, n_h)]
            for at in np.linspace(0.0, epsilon, 9):
                assert fallback.delta(at) <= local.pure(epsilon).delta(at) + 1e-15
                assert all(fallback.delta(at) >= one.delta(at) * (1 - 1e-9) - 1e-17 for one in blankets)
    assert clones(1.0, 1).epsilon(DELTA) == pytest.approx(local.pure(1.0).epsilon(DELTA), rel=1e-12)


def test_monotone() -> None:
    table = np.array([[clones(e, n).epsilon(DELTA) for n in (1, 5, 60, 900, 20_000)] for e in (0.02, 0.5, 1.0, 4.0)])
    assert (np.diff(table, axis=1) < 1e-12).all()
    assert (np.diff(table, axis=0) > 0.0).all()


@pytest.mark.parametrize("epsilon", [1e-6, 0.7, 9.0, 40.0])
@pytest.mark.parametrize("n_h", [1, 2, 200_000])
def test_no_setting_overflows(epsilon: float, n_h: int) -> None:
    pair = clones(epsilon, n_h)
    assert 0.0 <= pair.epsilon(DELTA) <= epsilon
    assert pair.slack <= 1e-17


@pytest.mark.parametrize("wrong", [(0.0, 5), (41.0, 5), (math.nan, 5), (1.0, 0)])
def test_refused(wrong: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|must lie in"):
        clones(*wrong)
