"""Sampled releases: the reference's figures, a live oracle, every sample of a few users, the laws of amplification."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting import local, rdp
from collector.accounting.composition import Composer
from collector.accounting.pairs import LossPair
from collector.accounting.subsampling import fixed_size, poisson, poisson_epsilon
from tests.unit.collector.accounting.sampled import ORDERS, amplified, fixed_size_bound, poisson_gaussian


def test_one_release() -> None:
    assert amplified(1.0, 1e-6, 0.01) == (pytest.approx(0.0170369, abs=5e-8), pytest.approx(1e-8))
    assert amplified(1.0, 1e-6, 1.0) == (1.0, 1e-6)
    assert amplified(800.0, 0.0, 0.5)[0] == pytest.approx(800.0 - math.log(2.0), abs=1e-9)
    assert amplified(0.0, 0.0, 0.3) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("rate", "sigma", "rounds", "delta", "exact"),
    [(0.01, 1.0, 1000, 1e-5, 1.82824), (0.01, 1.0, 365, 1e-6, 1.40247), (0.001, 0.8, 10_000, 1e-6, 0.9472)],
)
def test_the_references_sampled_gaussians(rate: float, sigma: float, rounds: int, delta: float, exact: float) -> None:
    release = poisson(local.gaussian(sigma, 1.0), rate)
    found = poisson_epsilon([release], [rounds], delta)
    assert found == pytest.approx(exact, abs=1e-4)
    assert (
        found == Composer([release.remove]).epsilon([rounds], delta) > Composer([release.add]).epsilon([rounds], delta)
    )
    renyi = rdp.epsilon_of(rounds * poisson_gaussian(sigma, 1.0, rate), delta, ORDERS.astype(float))
    assert found < renyi < 2.0 * found


def test_the_two_directions_of_the_reference() -> None:
    release = poisson(local.gaussian(1.0, 1.0), 0.01)
    assert 1.8262 <= Composer([release.remove]).epsilon([1000], 1e-5) <= 1.8303
    assert Composer([release.add]).epsilon([1000], 1e-5) == pytest.approx(1.417, abs=1e-3)
    assert rdp.epsilon_of(1000 * poisson_gaussian(1.0, 1.0, 0.01), 1e-5, ORDERS.astype(float)) == pytest.approx(
        2.10137, rel=5e-3
    ), "whole orders only: a little above"


def test_federated_averaging_of_a_year() -> None:
    """Noise of deviation 10 clipping norms for 365 rounds of everybody: the norm for a user more, twice it for another
    value.
    """
    for sensitivity, expected in ((1.0, 10.41), (2.0, 24.82)):
        everybody = poisson(local.gaussian(10.0, sensitivity), 1.0)
        found = poisson_epsilon([everybody], [365], 1e-6)
        assert found == pytest.approx(expected, abs=0.01)
        assert found == pytest.approx(local.gaussian_epsilon(1e-6, 10.0 / math.sqrt(365.0), sensitivity), rel=1e-5)
    assert rdp.epsilon_of(365 * poisson_gaussian(10.0, 1.0, 1.0), 1e-6, ORDERS.astype(float)) == pytest.approx(
        11.06557, rel=1e-2
    )


@pytest.mark.parametrize(
    ("rate", "sigma", "rounds"), [(0.05, 1.5, 200), pytest.param(0.3, 4.0, 30, marks=pytest.mark.slow)]
)
def test_against_dp_accounting(rate: float, sigma: float, rounds: int) -> None:
    oracle = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=1e-4)
    ours = poisson_epsilon([poisson(local.gaussian(sigma, 1.0), rate)], [rounds], 1e-6)
    assert ours == pytest.approx(theirs.self_compose(rounds).get_epsilon_for_delta(1e-6), rel=2e-3)
    event = oracle.PoissonSampledDpEvent(rate, oracle.GaussianDpEvent(sigma))
    few = ORDERS[:48]  # the best are among them
    accountant = oracle.rdp.RdpAccountant(few.tolist()).compose(event, rounds)
    mine = rdp.epsilon_of(rounds * poisson_gaussian(sigma, 1.0, rate, few), 1e-6, few.astype(float))
    assert mine == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-6)
    sampled = oracle.SampledWithoutReplacementDpEvent(1000, round(rate * 1000), oracle.GaussianDpEvent(sigma))
    replace = oracle.rdp.RdpAccountant(few.tolist(), oracle.NeighboringRelation.REPLACE_ONE)
    theirs_fixed = replace.compose(sampled, rounds).get_epsilon(1e-6)
    bound = fixed_size_bound(lambda j: j / (2.0 * sigma**2), round(rate * 1000), 1000, orders=few)
    # Theirs has a second, better bound for even orders; what is known of every mechanism is never below it.
    ratio = rdp.epsilon_of(rounds * bound, 1e-6, few.astype(float)) / theirs_fixed
    assert 1.0 - 1e-9 <= ratio <= (1.02 if rate < 0.1 else 2.0)


# --- a fixed size -----------------------------------------------------------------------------------


def hockey_stick(upper: np.ndarray, lower: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())


def law_of_a_sample(bits: tuple[int, ...], size: int, truth: float) -> np.ndarray:
    """Of the sum of the randomised bits of `size` users, each set of users as likely as another."""
    samples = list(itertools.combinations(range(len(bits)), size))
    law = np.zeros(size + 1)
    for sample in samples:
        total = np.ones(1)
        for user in sample:
            one = truth if bits[user] else 1.0 - truth
            total = np.convolve(total, [1.0 - one, one])
        law += total / len(samples)
    return law


@pytest.mark.parametrize(("users", "size"), [(2, 1), (4, 2), (5, 3), (6, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_data_set_and_no_sample_loses_more(users: int, size: int, epsilon: float) -> None:
    """Every data set of the others, both directions. With nobody to hide among beside the sampling it is exact."""
    truth = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    bound = fixed_size(local.pure(epsilon), size, users)
    worst = dict.fromkeys(np.linspace(0.0, epsilon, 7).tolist(), 0.0)
    for others in itertools.product((0, 1), repeat=users - 1):
        laws = [law_of_a_sample((bit, *others), size, truth) for bit in (0, 1)]
        for at in worst:
            worst[at] = max(worst[at], hockey_stick(*laws, at), hockey_stick(*reversed(laws), at))
    for at, delta in worst.items():
        assert delta <= bound.delta(at) + 1e-12
    assert worst[0.0] > 0.0
    if size == 1:
        assert worst[0.0] == pytest.approx(bound.delta(0.0), rel=1e-3)


@pytest.mark.parametrize("pair", [local.gaussian(1.0, 2.0), local.pure(1.0), local.randomized_response(5, 3.0)])
@pytest.mark.parametrize(("size", "users"), [(1, 1000), (30, 1000), (999, 1000)])
def test_a_fixed_sample_has_the_share_of_the_delta(pair: LossPair, size: int, users: int) -> None:
    sampled = fixed_size(pair, size, users)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        shrunk, delta = amplified(epsilon, pair.delta(epsilon), size / users)
        assert delta * (1.0 - 1e-9) <= sampled.delta(shrunk) <= delta * 1.001 + 1e-6 * size / users


def test_everybody_is_no_sample() -> None:
    pair = local.pure(1.0)
    assert fixed_size(pair, 50, 50) is pair
    assert poisson(pair, 1.0).remove.epsilon(1e-6) == pair.epsilon(1e-6)


def test_what_is_certain_to_be_seen_stays_so() -> None:
    pair = LossPair(np.array([0.25, 0.75]), np.array([0.0, 1.0]), 1e-9)
    assert fixed_size(pair, 10, 100).slack == pytest.approx(0.025, abs=1e-8)
    assert poisson(pair, 0.1).remove.delta(50.0) == pytest.approx(0.025, abs=1e-8)


LAWS = given(st.floats(0.05, 4.0), st.floats(1e-4, 1.0), st.floats(1e-4, 1.0), st.integers(1, 200))


@settings(max_examples=10, deadline=None)
@LAWS
def test_laws(epsilon: float, one: float, other: float, rounds: int) -> None:
    keeps_the_laws(epsilon, one, other, rounds)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@LAWS
def test_laws_over_more_settings(epsilon: float, one: float, other: float, rounds: int) -> None:
    keeps_the_laws(epsilon, one, other, rounds)


def keeps_the_laws(epsilon: float, one: float, other: float, rounds: int) -> None:
    """More users sampled never cost less, sampling never costs more than none, and never composes to less than once."""
    pair = local.pure(epsilon)
    low, high = sorted((one, other))
    found = [poisson_epsilon([poisson(pair, rate)], [rounds], 1e-6) for rate in (low, high, 1.0)]
    assert found[0] <= found[1] * (1 + 1e-4) + 1e-5
    assert found[1] <= found[2] * (1 + 1e-4) + 1e-5
    assert found[2] <= rounds * epsilon * (1 + 1e-9)
    size = max(1, round(low * 1000))
    assert Composer([fixed_size(pair, size, 1000)]).epsilon([rounds], 1e-6) <= found[2] * (1 + 1e-3) + 1e-4


def test_a_fixed_size_bound_is_no_more_than_no_sampling_and_no_less_than_the_pair() -> None:
    base = lambda j: 0.5 * j  # noqa: E731
    orders = ORDERS.astype(float)
    assert (fixed_size_bound(base, 10, 1000) <= base(ORDERS) + 1e-12).all()
    assert fixed_size_bound(base, 1000, 1000)[:5] == pytest.approx(base(ORDERS)[:5])
    for rounds in (1, 100):
        exact = Composer([fixed_size(local.gaussian(1.0, 1.0), 10, 1000)]).epsilon([rounds], 1e-6)
        assert exact <= rdp.epsilon_of(rounds * fixed_size_bound(base, 10, 1000), 1e-6, orders)
    pure = fixed_size_bound(lambda j: rdp.pure(0.5, j.astype(float)), 10, 1000, pure=0.5)
    wide = fixed_size_bound(lambda j: rdp.pure(0.5, j.astype(float)), 10, 1000)
    assert (pure <= wide).all()
    assert (pure < wide).any()


def test_refused() -> None:
    pair = local.pure(1.0)
    for rate in (0.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="sampling rate"):
            poisson(pair, rate)
    for size, users in ((0, 5), (6, 5)):
        with pytest.raises(ValueError, match="a sample of"):
            fixed_size(pair, size, users)
