"""k-ary randomised response in a sum: the reference's figures, direct enumeration, and the laws of a central bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collector.accounting import local, outcomes
from collector.accounting.blanket import one_bit, randomized_response

DELTA = 1e-6


def exact_two_ary(others_at_one: int, n_h: int, epsilon: float, at: float) -> float:
    """delta of the sum of n_h bits by binary randomised response, the others' values given; the worse direction."""
    keep = 1 / (1 + math.exp(-epsilon))
    ones, zeros = binomial(others_at_one, keep), binomial(n_h - 1 - others_at_one, 1 - keep)
    others = np.convolve(ones, zeros)
    laws = np.convolve(others, (1 - keep, keep)), np.convolve(others, (keep, 1 - keep))
    return max(float(np.maximum(upper - math.exp(at) * lower, 0.0).sum()) for upper, lower in (laws, laws[::-1]))


def binomial(n: int, p: float) -> np.ndarray:
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(n + 1)]
    i = np.arange(n + 1)
    return np.exp(np.array(logs) + i * math.log(p) + (n - i) * math.log1p(-p))


def enumerated(k: int, epsilon: float, n_h: int, at: float) -> float:
    """The reference's formula, term by term: M, then c ~ Bin(M, 2/k), then h0 ~ Bin(c, 1/2)."""
    gain, rate = math.expm1(epsilon), 1 / (math.exp(epsilon) + k - 1)
    total = 0.0
    for blankets, mass in enumerate(binomial(n_h - 1, k * rate), start=1):
        h0, h1 = np.mgrid[: blankets + 1, : blankets + 1]
        c = np.minimum(h0 + h1, blankets)
        chance = (
            (np.eye(blankets + 1)[-1] if k == 2 else binomial(blankets, 2 / k))[c]
            * np.array([[math.comb(int(n), i) for n in row] for i, row in enumerate(c)])
            / 2.0**c
        )
        chance[h0 + h1 > blankets] = 0.0
        upper, lower = gain * h0 + blankets, gain * h1 + blankets
        total += mass * k * rate / blankets * float((chance * np.maximum(upper - math.exp(at) * lower, 0.0)).sum())
    return total


def test_reference_rows() -> None:
    assert one_bit(1.0, 1000).epsilon(DELTA) == pytest.approx(0.14867062, abs=1e-6)  # row 19
    assert randomized_response(3, 1.0, 7).delta(0.4) == pytest.approx(0.048326386, abs=1e-8)  # row 27b
    assert randomized_response(3, 0.5, 9).delta(0.2) == pytest.approx(0.008713808, abs=1e-8)  # row 27c
    assert one_bit(1.0, 10).epsilon(DELTA) == pytest.approx(0.99997707, abs=1e-8)  # row 22
    worst = max(exact_two_ary(m, 10, 1.0, 0.9999) for m in range(10))
    assert one_bit(1.0, 10).delta(0.9999) == pytest.approx(worst, rel=1e-9)


def test_row_21_lies_below() -> None:
    """All others hold the same value: 0.12661448, a lower bound on any valid figure."""
    at = 0.12661448
    assert exact_two_ary(0, 1000, 1.0, at - 1e-6) > DELTA > exact_two_ary(0, 1000, 1.0, at + 1e-6)
    assert at < one_bit(1.0, 1000).epsilon(DELTA)


@pytest.mark.parametrize(
    ("k", "epsilon", "n_h", "expected"),
    [
        (2, 0.5, 100, 0.21373), (2, 0.5, 1000, 0.06269), (2, 0.5, 10_000, 0.01812), (2, 1.0, 100, 0.51605),
        (2, 1.0, 10_000, 0.04321), (2, 2.0, 1000, 0.39709), (2, 4.0, 100, 3.99999), (2, 4.0, 1000, 1.85291),
        (2, 4.0, 10_000, 0.41081), (8, 0.5, 100, 0.11341), (8, 1.0, 100, 0.29723), (8, 1.0, 1000, 0.08862),
        (8, 1.0, 10_000, 0.02573), (8, 2.0, 1000, 0.29313), (8, 2.0, 10_000, 0.08560), (64, 1.0, 100, 0.11669),
        (64, 1.0, 1000, 0.03207), (64, 2.0, 100, 0.42576), (64, 2.0, 1000, 0.12538), (2, 1.0, 9000, 0.04573),
        (2, 1.0, 5000, 0.06272), (8, 1.0, 100_000, 0.00736),
    ],
)  # fmt: skip
def test_reference_table(k: int, epsilon: float, n_h: int, expected: float) -> None:
    assert randomized_response(k, epsilon, n_h).epsilon(DELTA) == pytest.approx(expected, rel=5e-4, abs=1e-5)


def test_coarsely_computed_figures_of_the_table_lie_above() -> None:
    for k, epsilon, n_h, high in [(8, 4.0, 100, 3.8238), (8, 4.0, 1000, 1.5994), (64, 4.0, 1000, 0.9011)]:
        assert 0.97 * high <= randomized_response(k, epsilon, n_h).epsilon(DELTA) <= high + 5e-5


@pytest.mark.parametrize(("k", "epsilon", "n_h"), [(2, 1.0, 30), (3, 0.3, 12), (5, 2.0, 20), (4, 6.0, 15)])
def test_every_delta_is_the_formula(k: int, epsilon: float, n_h: int) -> None:
    pair = randomized_response(k, epsilon, n_h)
    for at in np.linspace(0.0, epsilon, 7)[:-1]:
        assert pair.delta(at) == pytest.approx(enumerated(k, epsilon, n_h, at), rel=1e-11, abs=1e-15)


@pytest.mark.parametrize(("k", "epsilon", "n_h"), [(2, 1.0, 300), (3, 0.3, 60), (8, 2.0, 150), (20, 3.0, 1500)])
def test_merged_outcomes_dominate_and_cost_little(
    k: int, epsilon: float, n_h: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FEW", 1 << 30)
    exact = randomized_response(k, epsilon, n_h)
    monkeypatch.setattr(outcomes, "_FEW", 0)
    merged = randomized_response(k, epsilon, n_h)
    for at in np.linspace(0.0, epsilon, 12)[:-1]:
        assert merged.delta(at) >= exact.delta(at) * (1 - 1e-10) - 1e-18
    assert exact.epsilon(DELTA) <= merged.epsilon(DELTA) * (1 + 1e-9) <= exact.epsilon(DELTA) * (1 + 2e-3)


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (8, 0.1), (1000, 5.0), (2, 40.0), (3, 1e-6)])
def test_one_contributor_has_the_local_pair(k: int, epsilon: float) -> None:
    central, direct = randomized_response(k, epsilon, 1), local.randomized_response(k, epsilon)
    for at in np.linspace(0.0, 1.1 * epsilon, 12):
        assert central.delta(at) == pytest.approx(direct.delta(at), rel=1e-9, abs=1e-15)


def test_monotone_and_never_above_local() -> None:
    table = np.array(
        [
            [
                [randomized_response(k, e, n).epsilon(DELTA) for n in (1, 3, 40, 500, 3000)]
                for e in (0.02, 0.5, 1.0, 4.0)
            ]
            for k in (2, 3, 30)
        ]
    )
    assert (np.diff(table, axis=2) < 0.0).all()
    assert (np.diff(table, axis=1) > 0.0).all()
    assert (np.diff(table[:, :, 1:], axis=0) <= 0.0).all()  # falls with k
    pair = one_bit(2.0, 80)
    assert (np.diff([pair.epsilon(delta) for delta in (1e-2, 1e-4, 1e-6, 1e-10)]) > 0.0).all()
    local_pair = local.randomized_response(5, 2.0)
    central = randomized_response(5, 2.0, 2)
    assert all(central.delta(at) <= local_pair.delta(at) + 1e-15 for at in np.linspace(0, 2, 21))


def test_a_pair_is_its_own_mirror_image() -> None:
    for pair in (randomized_response(3, 1.0, 20), randomized_response(8, 1.0, 5000)):
        assert all(pair.delta(at) == pytest.approx(pair.reversed().delta(at), rel=1e-12) for at in (0.0, 0.01, 0.1))
        assert pair.upper.sum() == pytest.approx(1.0, abs=1e-12)
        assert pair.slack <= 1e-18


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.7, 9.0, 20.0, 40.0])
@pytest.mark.parametrize("n_h", [1, 2, 777, 1_000_000])
def test_no_setting_overflows(epsilon: float, n_h: int) -> None:
    if n_h < 1_000_000 or epsilon > 1.0:
        pair = randomized_response(5, epsilon, n_h)
        assert 0.0 <= pair.epsilon(DELTA) <= epsilon
        assert pair.slack <= 1e-17
        assert pair.upper.sum() == pytest.approx(1.0, abs=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.7])
def test_a_million_contributors(epsilon: float) -> None:
    for k in (2, 5, 1000):
        assert 0.0 <= randomized_response(k, epsilon, 1_000_000).epsilon(DELTA) <= 0.01 * epsilon


@pytest.mark.parametrize("wrong", [(1, 1.0, 5), (2, 0.0, 5), (2, 41.0, 5), (2, math.nan, 5), (2, 1.0, 0)])
def test_refused(wrong: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match=r"at least|must lie in"):
        randomized_response(*wrong)
