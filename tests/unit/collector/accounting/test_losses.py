"""From a loss to its pair: every word of a plan, the local pair where nobody hides, and the oracle's values."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.plan.build import number
from collector.accounting import local, noise_sum
from collector.accounting.losses import _cells, central_pair, local_pair, method
from collector.accounting.price import WORDS, losses_of

DELTA = 1e-6


def loss_of(word: str, epsilon: str = "1", k: int = 8) -> PrivacyLoss:
    (loss,) = losses_of(word, Decimal(epsilon), None if word in {"laplace", "one_bit", "piecewise", "hybrid"} else k)
    return loss


def central(word: str, epsilon: str, n_h: int, k: int = 8) -> float:
    return central_pair(loss_of(word, epsilon, k), n_h).epsilon(DELTA)


@pytest.mark.parametrize("word", WORDS)
def test_nobody_to_hide_among_is_local_and_local_is_no_more_than_pure(word: str) -> None:
    loss = loss_of(word)
    assert central_pair(loss, 1) is local_pair(loss)
    found = local_pair(loss).epsilon(DELTA)
    assert 0.99 < found <= 1.0
    hidden = [central_pair(loss, n_h).epsilon(DELTA) for n_h in (2, 20)]
    assert found * (1 + 1e-9) >= hidden[0] >= hidden[1] > 0.0
    assert "clones" not in method(loss)


def test_a_table_too_large_is_bounded_by_clones_and_says_so() -> None:
    (loss,) = number("piecewise", Decimal(0), Decimal(1), Decimal(1), 5000).losses
    assert method(loss) == "hiding among clones"


@pytest.mark.parametrize(
    ("word", "epsilon", "k", "n_h", "expected", "tolerance"),
    [
        ("laplace", "1", 0, 1000, 0.0796048, 1e-6),
        ("laplace", "1", 0, 100, 0.2602247, 1e-6),
        ("randomized_response", "1", 2, 1000, 0.14867062, 1e-5),
        ("one_bit", "1", 0, 1000, 0.14867062, 1e-5),
        ("randomized_response", "1", 8, 1000, 0.08862, 1e-5),
        ("symmetric_unary", "4", 8, 1000, 0.5718, 3e-4),
        ("optimized_unary", "4", 8, 1000, 0.6687, 3e-4),
        ("subset_selection", "1", 8, 1000, 0.10853, 3e-5),
        ("hadamard", "1", 8, 1000, 0.10275, 3e-5),
        ("square_wave", "1", 4096, 1000, 0.13141, 2e-4),
    ],
)
def test_the_references_values(word: str, epsilon: str, k: int, n_h: int, expected: float, tolerance: float) -> None:
    assert central(word, epsilon, n_h, k) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("epsilon", ["0.000001", "40"])
def test_the_ends_of_the_range_are_numbers(word: str, epsilon: str) -> None:
    """No e^40 overflows, and a million contributors are not too many. case A01"""
    found = central(word, epsilon, 1_000_000 if epsilon == "40" else 100)
    assert 0.0 <= found <= float(epsilon)


def test_a_coarser_lattice_dominates_and_only_just() -> None:
    assert (_cells(1000, 1.0), _cells(1000, 40.0), _cells(997, 1.0), _cells(1 << 20, 1e-6)) == (100, 1000, 997, 1)
    fine = noise_sum.laplace_sum(1000, 1.0, 50)
    coarse = central_pair(loss_of("laplace"), 50)
    for epsilon in np.linspace(0.0, 0.5, 11).tolist():
        assert coarse.delta(epsilon) >= fine.delta(epsilon) - 1e-13
    assert coarse.epsilon(DELTA) == pytest.approx(fine.epsilon(DELTA), rel=1e-5)


@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (4, "0.1"), (5, "0.01"), (9, "2"), (32, "1")])
def test_no_two_places_of_a_square_wave_differ_more_than_its_pair(k: int, epsilon: str) -> None:
    """Against the table that ships: also where the window is wider than half of the line, and windows overlap."""
    from client_sdk.mechanisms.square_wave import SquareWave

    shipped = SquareWave(tuple(map(str, range(k))), Decimal(epsilon))
    pair, table = local_pair(shipped.losses[0]), shipped.table()
    assert pair.upper.sum() == pytest.approx(1.0, abs=1e-12), "cells that both ends make likely are there too"
    for level in np.linspace(0.0, float(epsilon), 7).tolist():
        worst = max(
            float(np.maximum(table[x] - math.exp(level) * table[y], 0.0).sum()) for x in range(k) for y in range(k)
        )
        assert pair.delta(level) == pytest.approx(worst, abs=1e-12)


def test_what_is_not_known_gets_the_bound_of_every_pure_mechanism() -> None:
    loss = PrivacyLoss.of("something new", Decimal(1))
    assert np.array_equal(local_pair(loss).upper, local.pure(1.0).upper)
    assert central_pair(loss, 1000).epsilon(DELTA) == pytest.approx(0.18241, abs=1e-5)


def test_integers_that_do_not_ship_are_refused() -> None:
    law = dict(loss_of("piecewise").parameters) | {"window": 5}
    with pytest.raises(ValueError, match="does not draw"):
        central_pair(PrivacyLoss.of("piecewise", Decimal(1), **law), 10)
    wide = losses_of("piecewise", Decimal(1))[0]
    long = PrivacyLoss.of("piecewise", wide.epsilon, levels=1 << 20, window=5, inside=5)
    assert central_pair(long, 1000).epsilon(DELTA) == pytest.approx(0.18241, abs=1e-5), "clones"
