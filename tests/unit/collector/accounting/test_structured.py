"""Subset selection, Hadamard and Square Wave in a sum: the figures, direct enumeration, the laws of a central bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from collector.accounting import outcomes
from collector.accounting.blanket import one_bit, randomized_response
from collector.accounting.clones import clones
from collector.accounting.composition import Composer
from collector.accounting.noise_sum import laplace_sum
from collector.accounting.pairs import LossPair
from collector.accounting.structured import hadamard, structured, subset_selection
from collector.accounting.unary import unary

DELTA = 1e-6


def square_wave(half_width: float, epsilon: float, n_h: int) -> LossPair:
    """Square Wave on [0, 1], not on bins: likelier within `half_width` of the value."""
    width = 2.0 * half_width
    gamma = (1.0 + width) / (1.0 + width + width * math.expm1(epsilon))
    return structured(gamma, width / (1.0 + width), 0.0, epsilon, n_h)


def half_width(epsilon: float) -> float:
    """The Square Wave's b (Li et al. 2020)."""
    e = math.exp(epsilon)
    return (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("laplace", lambda: laplace_sum(1000, 1.0, 1000), 0.0796),
        ("one bit", lambda: one_bit(1.0, 1000), 0.14867),
        ("subset 8, 2", lambda: subset_selection(8, 2, 1.0, 1000), 0.10853),
        ("subset 16, 4", lambda: subset_selection(16, 4, 1.0, 1000), 0.10462),
        ("subset 64, 17", lambda: subset_selection(64, 17, 1.0, 1000), 0.10310),
        ("hadamard", lambda: hadamard(1.0, 1000), 0.10275),
        ("square wave", lambda: square_wave(half_width(1.0), 1.0, 1000), 0.13141),
        ("anything else", lambda: clones(1.0, 1000), 0.18241),
        ("piecewise, closed", lambda: structured(math.exp(-0.5), 1 / (1 + math.exp(0.5)), 0.0, 1.0, 1000), 0.13627),
    ],
)
def test_which_central_bound_for_which_mechanism(name: str, make: Callable[[], LossPair], expected: float) -> None:
    assert make().epsilon(DELTA) == pytest.approx(expected, abs=3e-5), name


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: laplace_sum(100, 1.0, 1000), (0.2267, 0.4944, 1.915)),
        (lambda: randomized_response(8, 1.0, 1000), (0.2517, 0.5486, 2.124)),
        (lambda: one_bit(1.0, 1000), (0.4214, 0.9198, 3.614)),
        (lambda: clones(2.0, 1000), (1.5209, 3.3744, 14.53)),
    ],
)
def test_rounds_compose_as_pairs(make: Callable[[], LossPair], expected: tuple[float, ...]) -> None:
    """7, 30 and 365 rounds. The reference rounded each loss up to a step of 1e-4: up to that a round above ours."""
    composer = Composer([make()])
    for rounds, value in zip((7, 30, 365), expected, strict=True):
        assert value - rounds * 8e-5 - 2e-3 <= composer.epsilon([rounds], DELTA) <= value * 1.0005


def enumerated(gamma: float, pi: float, pi2: float, epsilon: float, n_h: int, at: float) -> float:
    """The reference's formula over (M; a, a', b), term by term."""
    gain, total = math.expm1(epsilon), 0.0
    for blankets in range(1, n_h + 1):
        size = math.comb(n_h - 1, blankets - 1) * gamma ** (blankets - 1) * (1 - gamma) ** (n_h - blankets)
        for a in range(blankets + 1):
            for other in range(blankets + 1 - a):
                for b in range(blankets + 1 - a - other):
                    rest = blankets - a - other - b
                    ways = math.factorial(blankets) / math.prod(map(math.factorial, (a, other, b, rest)))
                    chance = ways * pi ** (a + other) * pi2**b * max(0.0, 1 - 2 * pi - pi2) ** rest
                    loss = gain * (a + b - math.exp(at) * (other + b)) - blankets * math.expm1(at)
                    total += size * chance * gamma / blankets * max(0.0, loss)
    return total


SETTINGS = [(0.3, 0.25, 0.25, 1.0, 9), (0.5, 0.2, 0.05, 0.4, 8), (0.05, 0.3, 0.1, 3.0, 10), (0.6, 0.1, 0.0, 0.5, 9)]


@pytest.mark.parametrize(("gamma", "pi", "pi2", "epsilon", "n_h"), SETTINGS)
def test_every_delta_is_the_formula(gamma: float, pi: float, pi2: float, epsilon: float, n_h: int) -> None:
    """gamma is given its mechanism's bound, (1 + (E - 1)(pi + pi2))^-1, as the law must have mass 1."""
    gamma = 1 / (1 + math.expm1(epsilon) * (pi + pi2))
    pair = structured(gamma, pi, pi2, epsilon, n_h)
    for at in np.linspace(0.0, epsilon, 6)[:-1]:
        assert pair.delta(at) == pytest.approx(enumerated(gamma, pi, pi2, epsilon, n_h, at), rel=1e-10, abs=1e-15)


@pytest.mark.parametrize(
    "make",
    [lambda: hadamard(1.0, 60), lambda: subset_selection(8, 3, 2.0, 80), lambda: subset_selection(5, 2, 0.3, 40)],
)
def test_merged_outcomes_dominate_and_cost_little(
    make: Callable[[], LossPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FEW", 1 << 40)
    monkeypatch.setattr(outcomes, "_FEW_LAWS", 1 << 40)
    exact = make()
    monkeypatch.setattr(outcomes, "_FEW", 0)
    merged = make()
    for at in np.linspace(0.0, 1.5, 9):
        assert merged.delta(at) >= exact.delta(at) * (1 - 1e-10) - 1e-17
    assert exact.epsilon(DELTA) <= merged.epsilon(DELTA) * (1 + 1e-9) <= exact.epsilon(DELTA) * (1 + 5e-3)


def test_fewer_blankets_dominate_and_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_FEW", 0)
    exact = hadamard(1.0, 400)
    monkeypatch.setattr(outcomes, "_OVERLAPPING_COUNTS", 0)  # 16 numbers of blankets in place of some 240
    fewer = hadamard(1.0, 400)
    for at in np.linspace(0.0, 0.4, 9):
        assert fewer.delta(at) >= exact.delta(at) * (1 - 1e-3) - 1e-15
    assert fewer.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.03


def test_limits_are_randomised_response() -> None:
    """Subsets of one category, and a square wave whose window is one of k parts, are k-ary randomised response."""
    direct = randomized_response(7, 1.3, 50)
    for pair in (subset_selection(7, 1, 1.3, 50), square_wave(1 / 12, 1.3, 50)):
        assert all(pair.delta(at) == pytest.approx(direct.delta(at), rel=1e-9) for at in (0.0, 0.1, 0.4, 0.8))


@cache
def makers(epsilon: float, n_h: int) -> list[LossPair]:
    return [
        subset_selection(20, 5, epsilon, n_h),
        hadamard(epsilon, n_h),
        square_wave(half_width(max(epsilon, 1e-2)), epsilon, n_h),
    ]


@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0, 40.0])
def test_one_contributor_has_the_local_epsilon(epsilon: float) -> None:
    for pair in makers(epsilon, 1):
        assert LossPair(pair.upper, pair.lower).epsilon(0.0) == pytest.approx(epsilon, rel=1e-9)
    pair = hadamard(epsilon, 1)
    for at in np.linspace(0.0, epsilon, 5)[:-1]:  # half of each value's cells are its own alone
        own = 1 / (1 + math.exp(-epsilon)) / 2
        shared = own * -math.expm1(at) if at == 0.0 else 0.0
        assert pair.delta(at) == pytest.approx(own * -math.expm1(at - epsilon) + shared, rel=1e-9, abs=1e-16)


def test_monotone_and_never_above_local() -> None:
    epsilons = (0.05, 0.7, 1.0, 9.0)
    table = np.array([[[pair.epsilon(DELTA) for pair in makers(e, n)] for n in (1, 2, 60, 777)] for e in epsilons])
    assert (np.diff(table, axis=1) < 0.0).all()
    assert (np.diff(table, axis=0) > 0.0).all()
    assert (table[:, 0] <= np.array(epsilons)[:, None]).all()


def test_never_above_clones() -> None:
    for epsilon in (0.2, 1.0, 3.0):
        fallback = clones(epsilon, 200)
        for pair in makers(epsilon, 200):
            assert all(pair.delta(at) <= fallback.delta(at) * (1 + 1e-6) + 1e-16 for at in (0.0, 0.05, 0.2, 0.6))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.7, 9.0, 20.0, 40.0])
@pytest.mark.parametrize("n_h", [1, 2, 777, 1_000_000])
def test_no_setting_overflows(epsilon: float, n_h: int) -> None:
    if n_h < 1_000_000 or epsilon > 1.0:
        for pair in makers(epsilon, n_h):
            assert 0.0 <= pair.epsilon(DELTA) <= epsilon
            assert pair.slack <= 1e-16
            assert pair.upper.sum() == pytest.approx(1.0, abs=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.7])
def test_a_million_contributors(epsilon: float) -> None:
    for pair in makers(epsilon, 1_000_000):
        assert 0.0 <= pair.epsilon(DELTA) <= 0.01 * epsilon


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: subset_selection(5, 5, 1.0, 3), lambda: subset_selection(5, 0, 1.0, 3), lambda: hadamard(0.0, 3),
        lambda: hadamard(math.nan, 3), lambda: hadamard(1.0, 0), lambda: square_wave(0.51, 1.0, 3),
        lambda: square_wave(0.0, 1.0, 3), lambda: structured(0.0, 0.1, 0.0, 1.0, 3),
        lambda: structured(0.5, 0.5, 0.1, 1.0, 3),
    ],
)  # fmt: skip
def test_refused(wrong: Callable[[], LossPair]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|must lie in|lies above 0|no blanket"):
        wrong()


def test_unary_stands_beside_them() -> None:
    """At epsilon 1, bits that a sum unlinks hide better than any of these."""
    assert unary(0.5, 1 / (1 + math.e), 1000).epsilon(DELTA) < min(p.epsilon(DELTA) for p in makers(1.0, 1000))
