"""Composed epsilons against exact binomials, multiplied-out pairs, published figures and another library."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting import composition
from collector.accounting.composition import TOLERANCE, Composer
from collector.accounting.local import (
    discrete_laplace,
    gaussian,
    gaussian_epsilon,
    pure,
    randomized_response,
)
from collector.accounting.pairs import LossPair


def oracle() -> Any:
    """Imported where it is asked: it takes seconds, which every process that only collects tests would pay."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def replace_one() -> Any:
    from dp_accounting import NeighboringRelation

    return NeighboringRelation.REPLACE_ONE


LAPLACE = 1000
"""Levels at which lattice Laplace is the continuous one to six digits."""


def exact_pure(n: int, epsilon: float) -> LossPair:
    """n releases of binary randomised response: their number of truths is binomial (Kairouz et al. 2015)."""
    truths = np.arange(n + 1)
    ways = np.array([math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in truths])
    likely, unlikely = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    upper, lower = (np.exp(ways + truths * a + (n - truths) * b) for a, b in ((likely, unlikely), (unlikely, likely)))
    return LossPair(upper, lower)


@pytest.mark.parametrize(
    ("pair", "count", "delta", "epsilon", "tolerance"),
    [
        (pure(1.0), 100, 1e-6, 83.5307, 1e-3),  # not 1.0: a count is not to be overlooked
        (discrete_laplace(LAPLACE, 1.0), 30, 1e-6, 27.772538, 1e-4),
        (randomized_response(64, 1.0), 30, 1e-6, 8.164720, 1e-5),
        (discrete_laplace(LAPLACE, 0.2), 1825, 1e-5, 68.4085, 1e-3),
        (discrete_laplace(LAPLACE, 0.2), 1825, 1e-6, 72.4148, 1e-3),
        (discrete_laplace(LAPLACE, 0.2), 1825, 1e-9, 82.5910, 1e-3),
        (pure(0.02), 1825, 1e-6, 4.0848, 1e-4),
        (pure(0.1), 35, 1e-6, 2.5590, 1e-4),
        (randomized_response(8, 1.0), 30, 1e-6, 19.80, 1e-2),
        (discrete_laplace(10, 1.0), 30, 1e-6, 27.82, 1e-2),
    ],
)
def test_reference_figures(pair: LossPair, count: int, delta: float, epsilon: float, tolerance: float) -> None:
    assert Composer([pair]).epsilon([count], delta) == pytest.approx(epsilon, abs=tolerance)


def test_a_tiny_delta_is_exact_too() -> None:
    """An untilted transform has rounding of its own of about 1e-15, and is 0.002 off here."""
    assert 91.0342 <= Composer([discrete_laplace(LAPLACE, 0.2)]).epsilon([1825], 1e-12) <= 91.0359


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-12, 1e-40])
@pytest.mark.parametrize(("n", "epsilon"), [(2, 0.3), (7, 1.7), (40, 0.5), (365, 0.2), (900, 0.01), (400, 1e-6)])
def test_randomised_response_is_its_binomial(n: int, epsilon: float, delta: float) -> None:
    exact = exact_pure(n, epsilon).epsilon(delta)
    computed = Composer([pure(epsilon)]).epsilon([n], delta)
    assert exact * (1.0 - 1e-9) - 1e-12 <= computed <= exact * (1.0 + 2 * TOLERANCE) + 2e-11


def small_pair(weights: list[tuple[int, int]], slack: float) -> LossPair:
    upper, lower = (np.array(side, dtype=float) + 1e-3 for side in zip(*weights, strict=True))
    return LossPair(upper / upper.sum(), lower / lower.sum(), slack)


def together(pairs: list[LossPair], counts: list[int]) -> LossPair:
    upper, lower, kept = np.ones(1), np.ones(1), 1.0
    for pair, count in zip(pairs, counts, strict=True):
        for _ in range(count):
            upper, lower = np.multiply.outer(upper, pair.upper).ravel(), np.multiply.outer(lower, pair.lower).ravel()
            kept *= 1.0 - pair.slack
    return LossPair(upper, lower, 1.0 - kept)


weight = st.one_of(st.integers(0, 1000), st.integers(10**6, 10**9))
small_pairs = st.builds(
    small_pair, st.lists(st.tuples(weight, weight), min_size=2, max_size=4), st.sampled_from([0.0, 0.0, 1e-9, 1e-4])
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(small_pairs, st.integers(0, 3)), min_size=1, max_size=3),
    st.sampled_from([0.1, 1e-3, 1e-6, 1e-10]),
)
def test_any_mixture_is_that_of_its_atoms(history: list[tuple[LossPair, int]], delta: float) -> None:
    pairs, counts = [pair for pair, _ in history], [count for _, count in history]
    exact = together(pairs, counts)
    computed = Composer(pairs).epsilon(counts, delta)
    if math.isinf(computed):
        assert exact.slack > delta * (1.0 - 1e-5)
        return
    # never below, and no higher than a grid (no finer than a millionth of the widest loss) and rounding make it
    widest = max(float(np.abs(pair.losses).max()) for pair in pairs)
    assert exact.delta(computed + 1e-12) <= delta * (1.0 + 1e-9)
    assert computed <= exact.epsilon(delta * (1.0 - 3e-6)) * (1.0 + 10 * TOLERANCE) + 1e-9 + sum(counts) * widest * 2e-6


def test_an_outcome_that_hardly_ever_happens_does_not_hide_the_rest() -> None:
    """The best order looks at the rare large loss; the answer at this delta lies far below it."""
    rare = LossPair(np.array([4e-7, 0.5, 0.4999996]), np.array([4e-17, 0.49, 0.51]))
    exact = together([rare], [3])
    assert Composer([rare]).epsilon([3], 2e-6) == pytest.approx(exact.epsilon(2e-6), rel=1e-4)


def test_an_answer_next_to_the_largest_loss_is_found_to_the_step() -> None:
    """Under a tilt this steep a coarse grid's largest loss would pass for the answer."""
    nothing, one_sided = small_pair([(0, 0), (0, 0)], 1e-9), small_pair([(0, 0), (2, 0)], 0.0)
    exact = together([nothing, one_sided], [1, 1]).epsilon(1e-6)
    assert Composer([nothing, one_sided]).epsilon([1, 1], 1e-6) == pytest.approx(exact, rel=1e-4)


def test_the_order_of_a_history_changes_nothing() -> None:
    pairs = [discrete_laplace(100, 0.4), pure(1.0), randomized_response(9, 0.7)]
    counts = [20, 3, 11]
    forward, backward = Composer(pairs), Composer(pairs[::-1])
    assert forward.epsilon(counts, 1e-6) == pytest.approx(backward.epsilon(counts[::-1], 1e-6), rel=1e-9)


def test_a_history_split_over_two_ledgers_is_one_history() -> None:
    pair = discrete_laplace(100, 0.4)
    whole = Composer([pair]).epsilon([30], 1e-6)
    assert Composer([pair, pair]).epsilon([17, 13], 1e-6) == pytest.approx(whole, rel=1e-9)
    assert Composer([pair] * 30).epsilon([1] * 30, 1e-6) == pytest.approx(whole, rel=1e-9)


def test_more_is_never_less() -> None:
    """In counts, in the epsilon of a report and in 1 / delta, up to the accuracy promised."""
    composer = Composer([pure(0.5), discrete_laplace(50, 0.3)])
    by_count = [composer.epsilon([n, 2 * n], 1e-6) for n in (1, 2, 3, 5, 8, 30, 31, 32, 200)]
    by_epsilon = [Composer([pure(e)]).epsilon([20], 1e-6) for e in (1e-6, 0.01, 0.1, 0.11, 0.5, 2.0, 9.0)]
    by_delta = [composer.epsilon([10, 10], delta) for delta in (0.5, 1e-2, 1e-5, 1.1e-6, 1e-6, 1e-9, 0.0)]
    for epsilons in (by_count, by_epsilon, by_delta):
        assert all(more >= less * (1.0 - 2 * TOLERANCE) for less, more in pairwise(epsilons))


@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-6])
def test_never_above_basic_composition(delta: float) -> None:
    epsilons, counts = [0.1, 2.0, 5.0], [4, 1, 2]
    composed = Composer([pure(epsilon) for epsilon in epsilons]).epsilon(counts, delta)
    assert composed <= math.fsum(n * epsilon for n, epsilon in zip(counts, epsilons, strict=True)) * (1.0 + 1e-12)


def test_one_release_and_none() -> None:
    pair = discrete_laplace(1000, 1.0)
    assert Composer([pure(3.0), pair]).epsilon([0, 1], 1e-6) == pair.epsilon(1e-6)
    assert Composer([pair]).epsilon([0], 1e-6) == 0.0
    assert Composer([]).epsilon([], 1e-6) == 0.0


def test_what_was_left_out_is_left_out_of_each_release() -> None:
    sloppy = LossPair(pure(0.1).upper, pure(0.1).lower, slack=1e-8)
    assert Composer([sloppy]).epsilon([50], 1e-6) > Composer([pure(0.1)]).epsilon([50], 1e-6)
    assert Composer([sloppy]).epsilon([101], 1e-6) == math.inf
    assert Composer([sloppy]).epsilon([2], 0.0) == math.inf


# case A01
@pytest.mark.parametrize("epsilon", [40.0, 700.0])
def test_a_huge_epsilon_stays_a_number(epsilon: float) -> None:
    computed = Composer([pure(epsilon), pure(1.0)]).epsilon([1825, 1825], 1e-6)
    assert 1825 * epsilon <= computed <= 1825 * (epsilon + 1.0)


def test_gaussians_add_up() -> None:
    composed = Composer([gaussian(10.0, 2.0)]).epsilon([365], 1e-6)
    exact = gaussian_epsilon(1e-6, 10.0 / math.sqrt(365.0), 2.0)
    assert exact <= composed <= exact * (1.0 + 3 * TOLERANCE)


ORACLES: list[tuple[LossPair, Callable[[], Any]]] = [
    (
        pure(0.3),
        lambda: oracle().from_randomized_response(2 / (math.exp(0.3) + 1), 2, neighboring_relation=replace_one()),
    ),
    (
        randomized_response(8, 0.7),
        lambda: oracle().from_randomized_response(8 / (math.exp(0.7) + 7), 8, neighboring_relation=replace_one()),
    ),
    (discrete_laplace(10, 0.5), lambda: oracle().from_discrete_laplace_mechanism(0.05, 10)),
    (discrete_laplace(4000, 0.5), lambda: oracle().from_laplace_mechanism(1 / 0.5)),
]


@pytest.mark.parametrize("which", range(len(ORACLES)))
def test_another_library_agrees(which: int) -> None:
    """Single releases composed in a loop. Theirs rounds up to 1e-4 a release, and cuts 1e-15 off."""
    pair, make = ORACLES[which]
    single = make()
    theirs = single
    for _ in range(19):
        theirs = theirs.compose(single)
    ours = Composer([pair]).epsilon([20], 1e-6)
    assert ours - 1e-4 <= theirs.get_epsilon_for_delta(1e-6) <= ours + 20e-4


def test_another_library_agrees_on_a_mixture() -> None:
    pairs, counts = [pair for pair, _ in ORACLES], [30, 5, 12, 20]
    parts = [make().self_compose(count) for (_, make), count in zip(ORACLES, counts, strict=True)]
    theirs = parts[0].compose(parts[1]).compose(parts[2]).compose(parts[3])
    ours = Composer(pairs).epsilon(counts, 1e-6)
    assert ours - 1e-4 <= theirs.get_epsilon_for_delta(1e-6) <= ours + sum(counts) * 1e-4


def test_forgetting_spectra_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, histories = [pure(0.5), discrete_laplace(50, 0.3)], [[5, 9], [50, 1], [5, 9], [80, 80]]
    remembered = [Composer(pairs).epsilon(history, 1e-6) for history in histories]
    monkeypatch.setattr(composition, "_CACHE_BYTES", 1)
    forgetful = Composer(pairs)
    assert [forgetful.epsilon(history, 1e-6) for history in histories] == remembered


def test_histories_that_do_not_fit_are_refused() -> None:
    composer = Composer([pure(1.0)])
    with pytest.raises(ValueError, match="one count per pair"):
        composer.epsilon([1, 2], 1e-6)
    with pytest.raises(ValueError, match="negative"):
        composer.epsilon([-1], 1e-6)
    with pytest.raises(ValueError, match="delta"):
        composer.epsilon([1], 1.0)
    with pytest.raises(ValueError, match="tolerance"):
        Composer([pure(1.0)], tolerance=0.0)
