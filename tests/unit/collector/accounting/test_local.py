"""Local epsilon: closed forms against published figures, pairs against distributions written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting import rdp
from collector.accounting.composition import Composer
from collector.accounting.local import (
    closed_form,
    discrete_laplace,
    gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
    gaussian_sigma,
    pure,
    randomized_response,
    rho,
)
from collector.accounting.pairs import LossPair


@pytest.mark.parametrize(("epsilon", "expected"), [(0.1, 0.004995837), (1.0, 0.462117157), (2.0, 1.523188311)])
def test_rho(epsilon: float, expected: float) -> None:
    assert rho(epsilon) == pytest.approx(expected, abs=1e-8)
    assert rho(np.array([epsilon]))[0] == pytest.approx(rho(epsilon), rel=1e-15)


@given(st.floats(1e-3, 40))
def test_rho_bounds_every_order(epsilon: float) -> None:
    for divergences in (rdp.pure(epsilon), rdp.laplace(epsilon)):
        assert np.all(divergences <= rho(epsilon) * rdp.ORDERS * (1.0 + 1e-9) + 1e-12)


def test_closed_form_of_a_year() -> None:
    assert closed_form(365.0, 1825 * rho(0.2), 1e-6) == pytest.approx(81.216, abs=1e-3)
    assert closed_form(1.0, rho(1.0), 1e-6) == 1.0
    gaussian_year = 365 * gaussian_rho(10.0, 2.0)
    assert gaussian_year == pytest.approx(7.3)
    assert closed_form(math.inf, gaussian_year, 1e-6) == pytest.approx(7.3 + 2 * math.sqrt(7.3 * math.log(1e6)))
    assert closed_form(7.0, 0.1, 0.0) == 7.0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-3, 10), st.integers(1, 500)), min_size=1, max_size=3))
def test_closed_form_lies_between_the_exact_and_the_basic_sum(history: list[tuple[float, int]]) -> None:
    epsilons, counts = zip(*history, strict=True)
    s1, delta = math.fsum(n * epsilon for n, epsilon in zip(counts, epsilons, strict=True)), 1e-6
    s2, s3 = (
        sum(n * f for n, f in zip(counts, fs, strict=True)) for fs in ([e * e for e in epsilons], map(rho, epsilons))
    )
    bound = closed_form(s1, s3, delta)
    assert Composer([pure(epsilon) for epsilon in epsilons]).epsilon(counts, delta) <= bound * (1.0 + 2e-5)
    assert bound <= min(s1, s3 + math.sqrt(2.0 * s2 * math.log(1 / delta))) * (1.0 + 1e-12)


def test_vectors_are_scalars_side_by_side() -> None:
    s1, s3 = np.array([0.0, 1.0, 365.0, math.inf]), np.array([0.0, 0.46, 36.4, 3.0])
    assert closed_form(s1, s3, 1e-6).tolist() == [
        closed_form(a, b, 1e-6) for a, b in zip(s1.tolist(), s3.tolist(), strict=True)
    ]
    assert closed_form(s1, s3, 0.0).tolist() == s1.tolist()


def written_out(levels: int, epsilon: float, reach: int) -> LossPair:
    """Lattice Laplace around 0 and around `levels`, value by value."""
    values = np.arange(-reach, levels + reach + 1)
    a = epsilon / levels
    upper, lower = (math.tanh(a / 2) * np.exp(-a * np.abs(values - centre)) for centre in (0, levels))
    return LossPair(upper, lower)


@pytest.mark.parametrize(("levels", "epsilon"), [(1, 0.3), (2, 4.0), (7, 1.0), (10, 12.0)])
def test_lattice_laplace_is_the_distribution_written_out(levels: int, epsilon: float) -> None:
    pair, direct = discrete_laplace(levels, epsilon), written_out(levels, epsilon, math.ceil(45 * levels / epsilon))
    assert pair.upper.sum() == pytest.approx(1.0, abs=1e-15)
    for at in (0.0, 0.1, 0.5, 1.1, 3.0, 11.0):
        assert pair.delta(at) == pytest.approx(direct.delta(at), abs=1e-14)
    assert pair.epsilon(0.0) == pytest.approx(epsilon, rel=1e-14)


@pytest.mark.parametrize(("k", "noise"), [(2, 0.5378828427), (8, 0.8231907801)])
def test_randomised_response_is_uniform_this_often(k: int, noise: float) -> None:
    pair = randomized_response(k, 1.0)
    assert k * pair.upper[1] == pytest.approx(noise, abs=1e-10)
    assert pair.upper.sum() == pytest.approx(1.0, abs=1e-15)
    assert pair.epsilon(0.0) == pytest.approx(1.0, rel=1e-14)


@settings(deadline=None)
@given(st.integers(2, 100), st.integers(1, 50), st.floats(1e-6, 40), st.floats(0, 40))
def test_binary_response_dominates(k: int, levels: int, epsilon: float, at: float) -> None:
    for pair in (randomized_response(k, epsilon), discrete_laplace(levels, epsilon)):
        assert pair.delta(at) <= pure(epsilon).delta(at) + 1e-13


def test_gaussian_figures() -> None:
    assert gaussian_epsilon(1e-6, 1.0, 1.0) == pytest.approx(4.88655412, abs=1e-8)
    assert gaussian_epsilon(1e-5, 1.0, 1.0) == pytest.approx(4.37717810, abs=1e-8)
    assert gaussian_epsilon(1e-6, 10.0, 2.0) == pytest.approx(0.8341175, abs=1e-7)
    assert gaussian_sigma(1.0, 1e-5, 1.0) == pytest.approx(3.730632, abs=1e-6)
    for epsilon, sigma in ((0.5, 8.05762), (1.0, 4.22468), (10.0, 0.54109)):
        assert gaussian_sigma(epsilon, 1e-6, 1.0) == pytest.approx(sigma, abs=1e-5)
    assert gaussian_epsilon(1e-6, 0.52988, 1.0) == pytest.approx(10.254, abs=1e-3)


def test_gaussian_at_the_edges() -> None:
    assert gaussian_epsilon(0.0, 1.0, 1.0) == math.inf
    assert gaussian_epsilon(1e-6, 1e9, 1.0) == 0.0
    assert gaussian_epsilon(1e-6, 0.01, 1.0) == pytest.approx(5000 + 475, abs=1.0)  # far above what exp can hold
    assert gaussian_delta(800.0, 0.02, 1.0) == pytest.approx(1.0, abs=1e-6)
    assert gaussian_sigma(1.0, 1e-6, 7.0) == pytest.approx(7 * gaussian_sigma(1.0, 1e-6, 1.0))
    with pytest.raises(ValueError, match="delta"):
        gaussian_sigma(1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="sigma"):
        gaussian_epsilon(1e-6, 0.0, 1.0)
    with pytest.raises(ValueError, match="sigma"):
        gaussian_rho(math.nan, 1.0)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
def test_gaussian_atoms_dominate_the_curve_closely(sigma: float, delta: float) -> None:
    exact = gaussian_epsilon(delta, sigma, 1.0)
    assert exact * (1.0 - 1e-12) <= gaussian(sigma, 1.0).epsilon(delta) <= exact * (1.0 + 1e-6) + 1e-9


# case A01
def test_an_epsilon_of_800_is_refused_or_exact() -> None:
    for make in (pure, lambda e: randomized_response(4, e), lambda e: discrete_laplace(10, e)):
        for epsilon in (700.1, 800.0, math.inf, math.nan, -1.0):
            with pytest.raises(ValueError, match=r"between 0 and 700"):
                make(epsilon)
        assert make(700.0).epsilon(0.0) == pytest.approx(700.0)
    assert rho(800.0) == 800.0
    assert closed_form(2400.0, 3 * rho(800.0), 1e-6) == 2400.0
    assert math.isfinite(rdp.epsilon_of(rdp.pure(800.0), 1e-6))
    with pytest.raises(ValueError, match="between 0 and 700"):
        gaussian(0.01, 1.0)


def test_shapes_without_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="two categories"):
        randomized_response(1, 1.0)
    with pytest.raises(ValueError, match="one level"):
        discrete_laplace(0, 1.0)
    with pytest.raises(ValueError, match="delta"):
        closed_form(1.0, 1.0, 1.0)
