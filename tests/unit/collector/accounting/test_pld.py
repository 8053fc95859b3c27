"""Loss distributions on a grid: they dominate their pairs, keep both masses, and compose like the pairs do."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting.local import discrete_laplace, gaussian, pure, randomized_response
from collector.accounting.pairs import LossPair
from collector.accounting.pld import Atoms, LossDistribution, Spectrum, Window, any_infinite, composed

EPSILONS = [0.0, 0.03, 0.4, 0.99, 1.7, 3.0]


def on_grid(pair: LossPair, step: float) -> LossDistribution:
    return Atoms.of(pair).on_grid(step)


def untilted(*parts: LossDistribution) -> LossDistribution:
    """Composed without a tilt, over every loss that can occur: nothing wraps around."""
    counts = [1] * len(parts)
    length = 1 + sum(len(part.masses) - 1 for part in parts)
    size = 1 << (length - 1).bit_length()
    low = sum(part.first for part in parts)
    rounding = len(parts) * size.bit_length() * float(np.finfo(np.float64).eps)
    infinite = any_infinite([part.infinite for part in parts], counts)
    spectra = [Spectrum.of(part, 0.0, size) for part in parts]
    return composed(spectra, counts, parts[0].step, Window(low, size, low, rounding), infinite)


def together(*pairs: LossPair) -> LossPair:
    """Several releases as one pair, by multiplying every combination of atoms out."""

    def outer(one: LossPair, other: LossPair) -> LossPair:
        upper, lower = (
            np.multiply.outer(a, b).ravel() for a, b in ((one.upper, other.upper), (one.lower, other.lower))
        )
        return LossPair(upper, lower, 1.0 - (1.0 - one.slack) * (1.0 - other.slack))

    return reduce(outer, pairs)


@pytest.mark.parametrize("step", [0.5, 0.01, 0.0003, 1.0 / 3.0])
def test_the_grid_keeps_both_masses_and_dominates(step: float) -> None:
    pair = discrete_laplace(37, 1.3)
    grid = on_grid(pair, step)
    assert grid.masses.sum() == pytest.approx(1.0, abs=1e-13)
    assert (grid.masses * np.exp(-grid.losses)).sum() == pytest.approx(1.0, abs=1e-12)
    for epsilon in EPSILONS:
        assert grid.delta(epsilon) >= pair.delta(epsilon) - 1e-15


def test_the_error_of_the_grid_falls_with_the_square_of_its_step() -> None:
    pair = discrete_laplace(5000, 1.0)
    errors = [on_grid(pair, step).delta(0.1234) - pair.delta(0.1234) for step in (0.27, 0.027, 0.0027)]
    assert 0 < errors[1] < errors[0] / 20
    assert 0 < errors[2] < errors[1] / 20


def test_epsilon_inverts_delta() -> None:
    grid = untilted(*[on_grid(discrete_laplace(50, 1.0), 0.01)] * 12)
    for delta in (0.5, 1e-3, 1e-6, 1e-9):
        epsilon = grid.epsilon(delta)
        assert grid.delta(epsilon) <= delta < grid.delta(epsilon - 1e-6)
    assert grid.epsilon(0.999999) == 0.0
    assert grid.epsilon(1e-6, start=11.999) == 11.999  # an answer below the start is not looked for


def test_composition_is_that_of_the_pairs() -> None:
    one, other = randomized_response(3, 0.5), discrete_laplace(3, 0.75)
    step = 0.25  # a grid that holds every loss of both, so nothing is rounded
    grid = untilted(on_grid(one, step), on_grid(other, step))
    exact = together(one, other)
    for epsilon in EPSILONS:
        assert grid.delta(epsilon) == pytest.approx(exact.delta(epsilon), abs=1e-13)


def test_a_count_is_as_many_single_compositions() -> None:
    one = on_grid(randomized_response(5, 0.8), 0.01)
    looped, nine = reduce(untilted, itertools.repeat(one, 9)), untilted(*[one] * 9)
    size, low = 1 << (9 * len(one.masses)).bit_length(), 9 * one.first
    counted = composed([Spectrum.of(one, 0.0, size)], [9], one.step, Window(low, size, low, 0.0), 0.0)
    for epsilon in EPSILONS:
        assert counted.delta(epsilon) == pytest.approx(looped.delta(epsilon), abs=1e-13)
        assert nine.delta(epsilon) == pytest.approx(looped.delta(epsilon), abs=1e-13)
    assert untilted(*[one] * 100).epsilon(1e-6) > 10 * one.epsilon(1e-6)  # not the epsilon of one


def test_infinite_losses_compose() -> None:
    leaky = LossPair(np.array([0.01, 0.6, 0.39]), np.array([0.0, 0.4, 0.6]), 0.002)
    grid = on_grid(leaky, 0.01)
    assert grid.infinite == pytest.approx(0.012)
    assert untilted(*[grid] * 7).delta(500.0) == pytest.approx(1.0 - 0.988**7, abs=1e-12)
    assert untilted(*[grid] * 7).epsilon(0.05) == math.inf
    assert any_infinite([0.0, 1.0], [3, 1]) == 1.0


def test_trimming_pays_out_of_delta_and_rounds_the_bottom_up() -> None:
    pair = discrete_laplace(1000, 30.0)
    tails = gaussian(1.0, 1.0)
    whole, trimmed = Atoms.of(pair), Atoms.of(pair).trimmed(1e-6)
    assert len(trimmed.losses) < len(whole.losses)
    assert trimmed.losses[-1] == whole.losses[-1]  # the top is one heavy atom
    assert trimmed.masses.sum() + trimmed.infinite == pytest.approx(1.0, abs=1e-13)
    assert 0.9e-6 < Atoms.of(tails).trimmed(1e-6).infinite <= 1e-6
    for epsilon in EPSILONS:
        assert trimmed.on_grid(0.01).delta(epsilon) >= pair.delta(epsilon) - 1e-15
        assert Atoms.of(tails).trimmed(1e-6).on_grid(0.01).delta(epsilon) >= tails.delta(epsilon)
    assert len(Atoms.of(pure(1.0)).trimmed(0.9).losses) == 2  # nothing would be left


def small_pair(weights: list[tuple[int, int]]) -> LossPair:
    upper, lower = (np.array(side, dtype=float) + 1.0 for side in zip(*weights, strict=True))
    return LossPair(upper / upper.sum(), lower / lower.sum())


weights = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(weights, min_size=2, max_size=4), st.sampled_from([0.0, 0.5, 2.0]), st.integers(0, 3))
def test_whatever_the_window_nothing_is_understated(
    parts: list[list[tuple[int, int]]], tilt: float, octaves: int
) -> None:
    """A window far too small wraps mass around; what wraps must be counted, and counted too high."""
    pairs, step = [small_pair(part) for part in parts], 0.125
    exact = together(*pairs)
    grids = [on_grid(pair, step) for pair in pairs]
    top = sum(grid.first + len(grid.masses) - 1 for grid in grids)
    size = 16 << octaves
    low = top - size + 1
    spectra = [Spectrum.of(grid, tilt, size) for grid in grids]
    loss = composed(spectra, [1] * len(grids), step, Window(low, size, low + size // 2, 0.0), 0.0)
    for epsilon in EPSILONS:
        assert loss.delta(epsilon) >= exact.delta(epsilon) * (1.0 - 1e-9) - 1e-13


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan])
def test_a_step_must_be_positive(step: float) -> None:
    with pytest.raises(ValueError, match="step"):
        on_grid(pure(1.0), step)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="too fine"):
        on_grid(pure(1.0), 1e-9)
    revealing = on_grid(LossPair(np.array([1.0, 0.0]), np.array([0.0, 1.0])), 0.1)
    with pytest.raises(ValueError, match="infinite loss"):
        untilted(revealing, revealing)
