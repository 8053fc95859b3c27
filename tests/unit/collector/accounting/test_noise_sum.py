"""Sums of noises against direct convolution, the reference's figures, and the laws every central bound keeps."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from collector.accounting import noise_sum
from collector.accounting.local import discrete_laplace
from collector.accounting.noise_sum import laplace_sum

DELTA = 1e-6


def laplace_law(a: float, reach: int) -> np.ndarray:
    return np.tanh(a / 2) * np.exp(-a * np.abs(np.arange(-reach, reach + 1)))


def convolved_delta(law: np.ndarray, count: int, shift: int, epsilon: float) -> float:
    """The hockey-stick of the n-fold convolution against its shift, by adding one noise at a time."""
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, law)
    zeros = np.zeros(shift)
    upper, lower = np.concatenate((zeros, total)), np.concatenate((total, zeros))
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())


@pytest.mark.parametrize(
    ("levels", "epsilon", "n_h", "expected", "tolerance"),
    [
        (1, 1.0, 10, 0.65709427, 1e-7),
        (100, 1.0, 1000, 0.07960475, 1e-6),
        (100, 1.0, 100, 0.26022472, 1e-6),  # 10 % honest of 1000
        (100, 1.0, 900, 0.084182, 1e-6),
        (100, 1.0, 500, 0.114795, 1e-6),
        (1, 1.0, 1000, 0.083139, 1e-6),
        (10, 1.0, 1000, 0.079639, 1e-6),
        (1000, 1.0, 1000, 0.079604, 1e-6),
    ],
)
def test_reference_rows(levels: int, epsilon: float, n_h: int, expected: float, tolerance: float) -> None:
    assert laplace_sum(levels, epsilon, n_h).epsilon(DELTA) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [
        (0.5, (0.499998, 0.317206, 0.124630, 0.037817, 0.010906, 0.003077)),
        (1.0, (0.999998, 0.650087, 0.260225, 0.079605, 0.023150, 0.006610)),
        (2.0, (1.999998, 1.334011, 0.543251, 0.167074, 0.048886, 0.014091)),
        (4.0, (3.999998, 2.747692, 1.137449, 0.350238, 0.102835, 0.029856)),
    ],
)
def test_reference_table(epsilon: float, expected: tuple[float, ...]) -> None:
    for power, value in enumerate(expected):
        ours = laplace_sum(100, epsilon, 10**power).epsilon(DELTA)
        assert value - 6e-7 <= ours <= value * (1 + 4e-4)  # what a coarser lattice may cost, at n_h = 100,000


@pytest.mark.parametrize("epsilon", [0.6, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("n_h", [2, 5, 12])
def test_every_delta_against_direct_convolution(epsilon: float, n_h: int) -> None:
    levels = 6
    law, pair = laplace_law(epsilon / levels, math.ceil(60 * levels / epsilon)), laplace_sum(levels, epsilon, n_h)
    for at in np.linspace(0.0, epsilon, 9)[:-1]:
        exact = convolved_delta(law, n_h, levels, at)
        assert exact - 1e-14 <= pair.delta(at) <= exact * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize(("levels", "epsilon"), [(1, 1.0), (7, 0.3), (1000, 1.0), (1000, 40.0), (5, 1e-6)])
def test_one_contributor_has_the_local_epsilon(levels: int, epsilon: float) -> None:
    central, local = laplace_sum(levels, epsilon, 1), discrete_laplace(levels, epsilon)
    for at in np.linspace(0.0, 1.1 * epsilon, 12):
        assert central.delta(at) == pytest.approx(local.delta(at), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("levels", "coarse"), [(1000, 5), (997, 4), (720, 6)])
def test_a_coarser_lattice_dominates_and_costs_little(
    levels: int, coarse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = laplace_sum(levels, 1.0, 200)
    radius = noise_sum._laplace_radius(1.0 / levels, 200)
    monkeypatch.setattr(noise_sum, "_FFT_RADIUS", math.ceil(radius / coarse))
    coarser = laplace_sum(levels, 1.0, 200)
    assert len(coarser.upper) != len(exact.upper) or not np.array_equal(coarser.upper, exact.upper)
    for at in np.linspace(0.0, 0.6, 13):
        assert coarser.delta(at) >= exact.delta(at) * (1 - 1e-9) - 1e-13
    assert coarser.epsilon(DELTA) <= exact.epsilon(DELTA) * (1 + 2 * coarse / levels)


def test_convolving_and_transforming_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    directly = laplace_sum(50, 4.0, 20)
    monkeypatch.setattr(noise_sum, "_DIRECT_ABOVE", math.inf)
    transformed = laplace_sum(50, 4.0, 20)
    assert directly.slack < 1e-16 < transformed.slack < 1e-10
    for at in np.linspace(0.0, 3.0, 13):
        assert transformed.delta(at) == pytest.approx(directly.delta(at), rel=1e-7, abs=1e-11)


@pytest.mark.parametrize(("epsilon", "at_most"), [(1.5, 8.0), (5.0, 2.0)])
def test_clamping_the_output_is_paid_for(epsilon: float, at_most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the clamped law, three contributors, all values of the others: never above the pair's delta.

    Clamped at 6 scales in place of 45, so that it shows; then the sums without clamping are not enough.
    """
    monkeypatch.setattr(noise_sum, "CLAMP_SCALES", 6)
    levels, reach = 2, math.ceil(6 * 2 / epsilon)
    a, outputs = epsilon / levels, np.arange(-reach, levels + reach + 1)

    def clamped(value: int) -> np.ndarray:
        law = np.tanh(a / 2) * np.exp(-a * np.abs(outputs - value))
        for end in (0, -1):
            law[end] = math.exp(-a * abs(outputs[end] - value)) / (1 + math.exp(-a))
        return law

    assert clamped(1).sum() == pytest.approx(1.0, abs=1e-14)
    pair, free = laplace_sum(levels, epsilon, 3), laplace_law(a, 200)
    shows = False
    points = [share * epsilon for share in (0.0, 0.4, 0.8, 0.98)]
    unclamped = [convolved_delta(free, 3, levels, at) for at in points]
    for first in range(levels + 1):
        for second in range(first + 1):
            others = np.convolve(clamped(first), clamped(second))
            for x in range(levels + 1):
                for y in range(levels + 1):
                    upper, lower = np.convolve(clamped(x), others), np.convolve(clamped(y), others)
                    exact = [float(np.maximum(upper - math.exp(at) * lower, 0.0).sum()) for at in points]
                    assert all(pair.delta(at) >= one - 1e-14 for at, one in zip(points, exact, strict=True))
                    shows = shows or any(one > free_one + 1e-9 for one, free_one in zip(exact, unclamped, strict=True))
    assert shows
    assert pair.slack <= at_most * 3 * math.exp(-6.0) * 2


def test_monotone_and_never_above_local() -> None:
    for levels in (10, 97):
        table = np.array(
            [[laplace_sum(levels, e, n).epsilon(DELTA) for n in (1, 2, 9, 150, 4000)] for e in (0.02, 1.9, 2.1, 8.0)]
        )
        assert (np.diff(table, axis=1) < 0.0).all()
        assert (np.diff(table, axis=0) > 0.0).all()
    pair = laplace_sum(100, 1.0, 50)
    assert (np.diff([pair.epsilon(delta) for delta in (1e-3, 1e-6, 1e-9, 1e-12)]) > 0.0).all()
    assert pair.epsilon(1e-12) < 1.0


@pytest.mark.parametrize(
    ("epsilon", "n_h"),
    [*product((1e-6, 40.0), (1, 2, 333, 1_000_000)), *product((1e-3, 0.7, 5.0), (2, 333))],
)
@pytest.mark.parametrize("levels", [1, 1000])
def test_no_setting_overflows(levels: int, epsilon: float, n_h: int) -> None:
    pair = laplace_sum(levels, epsilon, n_h)
    assert 0.0 <= pair.epsilon(DELTA) <= epsilon
    assert pair.slack <= 1e-9
    assert pair.upper.sum() + pair.slack >= 1 - 1e-11


@pytest.mark.parametrize("wrong", [(0, 1.0, 5), (10, 0.0, 5), (10, 41.0, 5), (10, math.nan, 5), (10, 1.0, 0)])
def test_refused(wrong: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|must lie in"):
        laplace_sum(*wrong)
