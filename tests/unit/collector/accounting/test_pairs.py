"""Pairs: exact delta and epsilon of one release, slack on top, nothing overflows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting.local import pure, randomized_response
from collector.accounting.pairs import LossPair


def pair(upper: list[float], lower: list[float], slack: float = 0.0) -> LossPair:
    return LossPair(np.array(upper), np.array(lower), slack)


@pytest.mark.parametrize(
    ("k", "epsilon", "at", "delta", "tolerance"), [(2, 1.0, 0.5, 0.2876491, 1e-7), (8, 2.0, 1.0, 0.3246249, 1e-4)]
)
def test_delta_of_randomised_response(k: int, epsilon: float, at: float, delta: float, tolerance: float) -> None:
    assert randomized_response(k, epsilon).delta(at) == pytest.approx(delta, abs=tolerance)


@st.composite
def pairs(draw: st.DrawFn) -> LossPair:
    weights = st.integers(0, 10**6)
    m = draw(st.integers(2, 8))
    upper, lower = (np.array(draw(st.lists(weights, min_size=m, max_size=m)), dtype=float) for _ in range(2))
    upper[0], lower[1] = upper[0] + 1.0, lower[1] + 1.0
    return LossPair(upper / upper.sum(), lower / lower.sum(), draw(st.sampled_from([0.0, 1e-3])))


@settings(deadline=None)
@given(pairs(), st.floats(1e-12, 0.9))
def test_epsilon_is_the_smallest_that_keeps_delta(two: LossPair, delta: float) -> None:
    epsilon = two.epsilon(delta)
    if math.isinf(epsilon):
        assert two.delta(600.0) > delta
        return
    assert two.delta(epsilon) <= delta
    below = epsilon * (1.0 - 1e-9) - 1e-9
    # what rounding can hide: a change of delta by less than its own last digits
    assert below <= 0.0 or two.delta(below) > delta - 1e-15


@settings(deadline=None)
@given(pairs(), st.floats(0, 20), st.floats(0, 20))
def test_delta_is_the_plain_sum_and_falls_with_epsilon(two: LossPair, one: float, other: float) -> None:
    direct = np.maximum(two.upper - math.exp(one) * two.lower, 0.0).sum() + two.slack
    assert two.delta(one) == pytest.approx(min(1.0, direct), abs=1e-12)
    assert two.delta(max(one, other)) <= two.delta(min(one, other))


def test_at_delta_zero_epsilon_is_the_largest_loss() -> None:
    assert pair([0.5, 0.5], [0.25, 0.75]).epsilon(0.0) == math.log(2.0)
    assert pair([0.5, 0.5], [0.5, 0.5]).epsilon(0.0) == 0.0
    assert pair([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]).epsilon(0.0) == math.inf


def test_slack_and_impossible_outcomes_are_paid_out_of_delta() -> None:
    two = pair([0.75, 0.25], [0.25, 0.75], slack=1e-6)
    assert two.delta(2.0) == 1e-6
    assert two.epsilon(1e-7) == math.inf
    assert two.epsilon(0.0) == math.inf
    assert two.epsilon(1e-6) == pytest.approx(math.log(3.0), abs=1e-12)
    revealing = pair([0.01, 0.99], [0.0, 1.0])
    assert revealing.delta(50.0) == 0.01
    assert revealing.epsilon(0.0099) == math.inf
    assert revealing.epsilon(0.0101) == 0.0
    assert pair([1.0, 0.0], [0.0, 1.0], slack=0.5).delta(0.0) == 1.0


def test_reversed_changes_the_direction() -> None:
    two = pair([0.01, 0.99], [0.0, 1.0])
    assert two.reversed().delta(0.0) == pytest.approx(0.01)
    assert two.reversed().epsilon(0.0) == pytest.approx(-math.log(0.99))


# case A01
@pytest.mark.parametrize("at", [0.0, 699.0, 700.0, 800.0, 1e300])
def test_no_epsilon_overflows(at: float) -> None:
    two = pure(700.0)
    assert two.delta(at) == pytest.approx(-math.expm1(min(0.0, at - 700.0)), abs=1e-12)
    assert two.epsilon(1e-6) == pytest.approx(700.0, abs=1e-5)
    assert pair([1.0, 1e-300], [1e-300, 1.0]).epsilon(1e-6) == pytest.approx(300 * math.log(10.0), abs=1e-5)


def test_deltas_far_below_rounding_are_exact() -> None:
    two = pair([1e-200, 1.0 - 1e-200], [1e-210, 1.0])
    assert two.epsilon(1e-201) == pytest.approx(10 * math.log(10.0) + math.log(0.9), abs=1e-9)


@pytest.mark.parametrize(
    ("upper", "lower", "slack"),
    [
        ([0.5, 0.5], [1.0], 0.0),
        ([-0.1, 1.1], [0.5, 0.5], 0.0),
        ([0.5, 0.6], [0.5, 0.5], 0.0),
        ([math.nan, 0.5], [0.5, 0.5], 0.0),
        ([0.5, 0.5], [0.5, math.inf], 0.0),
        ([0.5, 0.5], [0.5, 0.5], -1e-9),
        ([0.5, 0.5], [0.5, 0.5], math.nan),
    ],
)
def test_masses_that_are_no_distribution_are_refused(upper: list[float], lower: list[float], slack: float) -> None:
    with pytest.raises(ValueError, match=r"atoms|masses|slack"):
        pair(upper, lower, slack)


@pytest.mark.parametrize("value", [-1e-9, 1.0, math.nan, math.inf])
def test_meaningless_arguments_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="delta must"):
        pure(1.0).epsilon(value)
    if value != 1.0:
        with pytest.raises(ValueError, match="epsilon must"):
            pure(1.0).delta(value)
