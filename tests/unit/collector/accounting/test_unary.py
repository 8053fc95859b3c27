"""Unary encodings: two oppositely directed bits; the figures, direct enumeration, and the laws of a central bound."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from collector.accounting import unary as module
from collector.accounting.composition import Composer
from collector.accounting.pairs import LossPair
from collector.accounting.unary import bit, unary

DELTA = 1e-6


def symmetric(epsilon: float) -> tuple[float, float]:
    return 1 / (1 + math.exp(-epsilon / 2)), 1 / (1 + math.exp(epsilon / 2))


def optimised(epsilon: float) -> tuple[float, float]:
    return 0.5, 1 / (1 + math.exp(epsilon))


def bit_atoms(p: float, q: float, n_h: int) -> tuple[np.ndarray, np.ndarray]:
    """(P, Q) of one falling bit over (m, ones), from the statement: m ~ Bin(n_h - 1, g), ones ~ Bin(m, theta)."""
    g = 1 - abs(p - q)
    theta = min(p, q) / g
    upper, lower = np.zeros((n_h, n_h + 1)), np.zeros((n_h, n_h + 1))
    for m in range(n_h):
        chance = math.comb(n_h - 1, m) * g**m * (1 - g) ** (n_h - 1 - m)
        ones = [math.comb(m, i) * theta**i * (1 - theta) ** (m - i) for i in range(m + 1)]
        upper[m, : m + 2] = chance * np.convolve(ones, (1 - p, p))
        lower[m, : m + 2] = chance * np.convolve(ones, (1 - q, q))
    return upper.ravel(), lower.ravel()


def two_bits(p: float, q: float, n_h: int, at: float, same_direction: bool = False) -> float:
    upper, lower = bit_atoms(p, q, n_h)
    second = (upper, lower) if same_direction else (lower, upper)
    p_masses, q_masses = np.multiply.outer(upper, second[0]), np.multiply.outer(lower, second[1])
    return float(np.maximum(p_masses - math.exp(at) * q_masses, 0.0).sum())


@pytest.mark.parametrize(
    ("epsilon", "n_h", "sue", "oue"),
    [
        (0.5, 100, 0.1388, 0.1378), (0.5, 1000, 0.0406, 0.0403), (1.0, 100, 0.3106, 0.3035),
        (1.0, 1000, 0.0910, 0.0890), (1.0, 10_000, 0.0264, 0.0259), (2.0, 100, 0.7439, 0.7086),
        (2.0, 1000, 0.2153, 0.2090), (4.0, 100, 2.2354, 1.8250),
        (4.0, 1000, 0.5718, 0.6688), (4.0, 10_000, 0.1659, 0.1964),
    ],
)  # fmt: skip
def test_reference_table(epsilon: float, n_h: int, sue: float, oue: float) -> None:
    """The table's composition rounded losses up: at most 3e-4 above ours."""
    for parameters, expected in ((symmetric(epsilon), sue), (optimised(epsilon), oue)):
        assert expected - 3e-4 <= unary(*parameters, n_h).epsilon(DELTA) <= expected + 5e-5


def test_bits_of_one_direction_would_be_unsound() -> None:
    """Composed twice the same way, the optimised encoding at epsilon 4 gets 0.6361 in place of 0.6687."""
    one = bit(*optimised(4.0), 1000)
    assert Composer([one]).epsilon([2], DELTA) == pytest.approx(0.6361, abs=2e-4)
    assert Composer([one, one.reversed()]).epsilon([1, 1], DELTA) == pytest.approx(0.6687, abs=2e-4)
    assert unary(*optimised(4.0), 1000).epsilon(DELTA) == pytest.approx(0.6687, abs=2e-4)


def test_the_reference_counterexample_to_one_direction() -> None:
    p, q = optimised(6.0)
    assert two_bits(p, q, 15, 2.4, same_direction=True) == pytest.approx(0.2616, abs=1e-4)
    assert two_bits(p, q, 15, 2.4) >= 0.3041
    assert unary(p, q, 15).delta(2.4) >= 0.3041


@pytest.mark.parametrize("n_h", [1, 2, 7, 15])
@pytest.mark.parametrize(("p", "q"), [symmetric(1.0), optimised(1.0), optimised(5.0), (0.75, 0.5), (0.9, 0.02)])
def test_every_delta_is_the_statement(p: float, q: float, n_h: int) -> None:
    pair = unary(p, q, n_h)
    for at in (0.0, 0.2, 0.8, 2.0, 4.0):
        assert pair.delta(at) == pytest.approx(two_bits(p, q, n_h, at), rel=1e-6, abs=1e-15)


def test_one_grid_for_both_bits_dominates_and_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    for p, q in (symmetric(1.0), optimised(3.0)):
        exact = unary(p, q, 12)
        with monkeypatch.context() as patched:
            patched.setattr(module, "_FEW", 0)
            gridded = unary(p, q, 12)
        for at in np.linspace(0.0, 2.5, 11):
            assert gridded.delta(at) >= exact.delta(at) * (1 - 1e-8) - 1e-16
            assert gridded.delta(at) <= exact.delta(at) * (1 + 1e-4) + 1e-13


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 9.0, 40.0])
def test_one_contributor_has_the_local_epsilon(epsilon: float) -> None:
    """A report of one bit falling and one rising: pure epsilon, and its hockey-stick in closed form."""
    for p, q in (symmetric(epsilon), optimised(epsilon)):
        pair = unary(p, q, 1)
        assert LossPair(pair.upper, pair.lower).epsilon(0.0) == pytest.approx(epsilon, rel=1e-9)
        for at in np.linspace(0.0, epsilon, 5)[:-1]:
            exact = p * (1 - q) * -math.expm1(at - epsilon)
            exact += sum(max(0.0, one - math.exp(at) * one) for one in (p * q, (1 - p) * (1 - q)))
            assert pair.delta(at) == pytest.approx(exact, rel=1e-6, abs=1e-15)


def test_monotone_and_never_above_local() -> None:
    for law in (symmetric, optimised):
        table = np.array(
            [[unary(*law(e), n).epsilon(DELTA) for n in (1, 4, 60, 800, 20_000)] for e in (0.05, 0.5, 2.0, 5.0)]
        )
        assert (np.diff(table, axis=1) < 0.0).all()
        assert (np.diff(table, axis=0) > 0.0).all()
        assert (table[:, 0] <= (0.05, 0.5, 2.0, 5.0)).all()
    pair = unary(*optimised(1.0), 500)
    assert (np.diff([pair.epsilon(delta) for delta in (1e-3, 1e-6, 1e-12)]) > 0.0).all()


@pytest.mark.parametrize(
    ("epsilon", "n_h"),
    [*product((1e-6, 40.0), (1, 2, 777, 1_000_000)), *product((1e-3, 0.7, 9.0), (2, 777))],
)
def test_no_setting_overflows(epsilon: float, n_h: int) -> None:
    for p, q in (symmetric(epsilon), optimised(epsilon)):
        pair = unary(p, q, n_h)
        assert 0.0 <= pair.epsilon(DELTA) <= epsilon * (1 + 1e-9)
        assert pair.slack <= 1e-17
        assert pair.upper.sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize(
    "wrong", [(0.5, 0.5, 3), (0.2, 0.5, 3), (1.0, 0.5, 3), (0.5, 0.0, 3), (0.5, 0.2, 0), (math.nan, 0.2, 3)]
)
def test_refused(wrong: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="a bit needs"):
        unary(*wrong)
