"""Renyi divergences of single reports, and what they say about epsilon: a second opinion, and quick.

Additive over reports at each order, so a sum per order and one minimum bound any number of histories. The result
lies some per cent above the exact one (`composition.py`), never below. Orders are above 1; formulas Mironov 2017.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.local import gaussian_rho
from collector.accounting.pairs import check_delta, check_epsilon

ORDERS: Final[NDArray[np.float64]] = 1.0 + np.geomspace(1e-3, 1e6, 1000)
"""Dense enough that the minimum over them is within 1e-4 of the minimum over all orders."""


def pure(epsilon: float, orders: NDArray[np.float64] = ORDERS) -> NDArray[np.float64]:
    """Of binary randomised response, and so at most that of any pure epsilon-private mechanism. Shape as `orders`."""
    check_epsilon(epsilon)
    likely, unlikely = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    same = orders * likely + (1.0 - orders) * unlikely
    other = orders * unlikely + (1.0 - orders) * likely
    return np.asarray(np.logaddexp(same, other) / (orders - 1.0))


def laplace(epsilon: float, orders: NDArray[np.float64] = ORDERS) -> NDArray[np.float64]:
    """Of continuous Laplace noise of scale sensitivity / epsilon. Shape as `orders`."""
    check_epsilon(epsilon)
    above = np.log(orders / (2.0 * orders - 1.0)) + (orders - 1.0) * epsilon
    below = np.log((orders - 1.0) / (2.0 * orders - 1.0)) - orders * epsilon
    return np.asarray(np.logaddexp(above, below) / (orders - 1.0))


def gaussian(sigma: float, sensitivity: float, orders: NDArray[np.float64] = ORDERS) -> NDArray[np.float64]:
    """Of Gaussian noise. Shape as `orders`."""
    return gaussian_rho(sigma, sensitivity) * orders


def epsilon_of(divergences: NDArray[np.float64], delta: float, orders: NDArray[np.float64] = ORDERS) -> float:
    """The smallest epsilon that the divergences of a whole history prove at `delta` (Canonne et al. 2020)."""
    check_delta(delta)
    if delta == 0.0:
        return math.inf
    proven = divergences + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    return max(0.0, float(proven.min()))
