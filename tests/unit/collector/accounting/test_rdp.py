"""Renyi divergences against published figures, another library, and the exact composition that they bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collector.accounting import local, rdp
from collector.accounting.composition import Composer

ORDERS = np.array([2.0, 8.0, 32.0])


def test_reference_figures() -> None:
    assert rdp.pure(1.0, ORDERS) == pytest.approx([0.73532567, 0.95524837, 0.98989479], abs=1e-7)
    assert rdp.laplace(1.0, ORDERS) == pytest.approx([0.61912363, 0.91019880, 0.97814843], abs=1e-7)
    assert rdp.gaussian(2.0, 1.0, ORDERS) == pytest.approx(ORDERS / 8.0)
    assert rdp.epsilon_of(35 * rdp.pure(0.1), 1e-6) == pytest.approx(2.6944, abs=1e-3)
    assert rdp.epsilon_of(100 * rdp.pure(1.0), 1e-6) == pytest.approx(85.5216, abs=0.05)
    assert rdp.epsilon_of(1825 * rdp.pure(0.2), 1e-6) == pytest.approx(79.10, abs=0.02)


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 2.0])
def test_another_library_agrees(epsilon: float) -> None:
    orders = np.array([1.5, 2.0, 5.0, 20.0, 64.0])
    from dp_accounting import dp_event  # seconds, which every process that only collects tests would pay
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=orders.tolist())
    accountant.compose(dp_event.LaplaceDpEvent(1.0 / epsilon), 30)
    theirs = accountant.get_epsilon(1e-6)
    assert rdp.epsilon_of(30 * rdp.laplace(epsilon, orders), 1e-6, orders) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("count", [2, 30, 1825])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 3.0])
def test_never_below_the_exact_composition(count: int, epsilon: float) -> None:
    for divergences, pair in (
        (rdp.pure(epsilon), local.pure(epsilon)),
        (rdp.laplace(epsilon), local.discrete_laplace(1000, epsilon)),
    ):
        bound, exact = rdp.epsilon_of(count * divergences, 1e-6), Composer([pair]).epsilon([count], 1e-6)
        # a pure bound is no Renyi bound: at few releases the first is the smaller one
        assert exact * (1.0 - 2e-5) <= bound
        assert bound <= 1.15 * exact or count < 30


def test_at_the_edges() -> None:
    assert rdp.epsilon_of(rdp.pure(1.0), 0.0) == math.inf
    assert rdp.epsilon_of(rdp.pure(1e-6), 0.5) == 0.0
    with pytest.raises(ValueError, match="epsilon"):
        rdp.pure(math.inf)
