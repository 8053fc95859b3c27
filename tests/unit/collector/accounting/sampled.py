"""Second opinions on sampled releases, from other theorems than the product's: oracles for its tests.

Sources: Balle, Barthe & Gaboardi 2018 (Theorems 8, 9); Mironov, Talwar & Zhang 2019 (section 3.3); Wang, Balle &
Kasiviswanathan 2019 (Theorem 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.local import gaussian_rho

ORDERS: Final[NDArray[np.int64]] = np.arange(2, 257)
"""Of the Renyi bounds of sampled releases, which are known at whole orders."""


def amplified(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """(epsilon', delta') of one sampled release of any (epsilon, delta)-private mechanism, in either way of sampling.

    epsilon' = ln(1 + rate (e^epsilon - 1)), delta' = rate delta.
    """
    # ln(1 + r (e^x - 1)) = x + ln(r + (1 - r) e^-x), which forms no large number
    return max(0.0, epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))), rate * delta


def poisson_gaussian(
    sigma: float, sensitivity: float, rate: float, orders: NDArray[np.int64] = ORDERS
) -> NDArray[np.float64]:
    """Of Gaussian noise over a Poisson sample, adding or removing a user; exact at these orders. Shape as `orders`."""
    rho = gaussian_rho(sigma, sensitivity)
    return np.array([_moment(int(order), rate, lambda k: np.float64(rho) * k * (k - 1)) for order in orders])


def _moment(order: int, rate: float, log_moment: Callable[[NDArray[np.int64]], NDArray[Any]]) -> float:
    """ln(sum over k of Bin(k; order, rate) e^log_moment(k)) / (order - 1)."""
    k = np.arange(order + 1)
    if rate == 1.0:
        return float(log_moment(k)[-1]) / (order - 1)
    logs = _log_choose(order, k) + k * math.log(rate) + (order - k) * math.log1p(-rate) + log_moment(k)
    return float(np.logaddexp.reduce(logs)) / (order - 1)


def fixed_size_bound(
    divergences: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    size: int,
    users: int,
    pure: float = math.inf,
    orders: NDArray[np.int64] = ORDERS,
) -> NDArray[np.float64]:
    """An upper bound for `size` of `users`, for replacing a value, shape as `orders`; never above the base's own.

    divergences: the base's at whole orders from 2; pure: its pure epsilon, infinity where it has none.
    """
    j = np.arange(2, int(orders.max()) + 1)
    base = divergences(j)
    largest = math.inf if pure == math.inf else math.log(math.expm1(pure)) if pure > 0.0 else -math.inf
    terms = (j - 1) * base + np.minimum(math.log(2.0), j * largest)
    # e^D - 1 at order 2, without its cancellation
    terms[0] = min(terms[0], math.log(4.0) + base[0] + _log1mexp(float(base[0])))
    log_rate = math.log(size) - math.log(users)
    found = []
    for order in orders.tolist():
        used = j <= order
        logs = _log_choose(order, j[used]) + j[used] * log_rate + terms[used]
        found.append(min(float(np.logaddexp(0.0, np.logaddexp.reduce(logs))) / (order - 1), float(base[order - 2])))
    return np.array(found)


def _log1mexp(x: float) -> float:
    """ln(1 - e^-x), minus infinity at 0."""
    return math.log(-math.expm1(-x)) if x > 0.0 else -math.inf


def _log_choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    return np.asarray(log_factorial[n] - log_factorial[k] - log_factorial[n - k])
