"""Amplification by sampling: what a release loses to somebody who does not know whether a user was in it.

Two ways to sample. *Poisson*: each user is in with probability `rate`, on its own; relation *add or remove one user*.
*Fixed size*: so many users, all sets of that size alike; relation *replace one user's value*, which is ours.

Rules of this file: who was in must be secret. The collector sees the roster, and so does every member its neighbours,
so against them, and against whoever colludes with them, nothing here holds; it holds against OUTSIDERS alone, and never
on top of a local epsilon, which is against somebody who has the report in hand. Each draw must be fresh, and chosen by
no data. A pair mixes the atoms of its release, which dominate it, so the mixture dominates the sampled release.
What it does not do: sampling with replacement, or samples of which parts are announced.
Sources: Balle, Barthe & Gaboardi 2018 (Theorems 8, 9); Zhu, Dong & Wang 2022 (Theorem 11, Proposition 30);
Mironov, Talwar & Zhang 2019 (section 3.3); Wang, Balle & Kasiviswanathan 2019 (Theorem 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.composition import Composer
from collector.accounting.condense import of_profile, profile, symmetric_pair
from collector.accounting.local import gaussian_rho
from collector.accounting.pairs import LossPair, check_delta, check_epsilon

OUTSIDERS: Final = (
    "against outsiders who see the sums and never learn who was in a round; not against the collector, which sees the "
    "roster, nor against other members, and never on top of the local figure"
)
"""What an amplified epsilon holds under; it is never shown without."""

ORDERS: Final[NDArray[np.int64]] = np.arange(2, 257)
"""Of the Renyi bounds of sampled releases, which are known at whole orders."""


def amplified(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """(epsilon', delta') of one sampled release of any (epsilon, delta)-private mechanism, in either way of sampling.

    epsilon' = ln(1 + rate (e^epsilon - 1)), delta' = rate delta. Raises ValueError for a rate outside (0, 1].
    """
    check_epsilon(epsilon)
    check_delta(delta)
    _check_rate(rate)
    # ln(1 + r (e^x - 1)) = x + ln(r + (1 - r) e^-x), which forms no large number
    return max(0.0, epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))), rate * delta


@dataclass(frozen=True, eq=False)
class Directed:
    """A sampled release with the user against one without (`remove`), and the other way round (`add`).

    Two neighbours differ in one direction in all rounds, so each direction is composed by itself.
    """

    remove: LossPair
    add: LossPair


def poisson(pair: LossPair, rate: float) -> Directed:
    """pair: the release with the user (P) against the one without (Q). Raises ValueError for a rate outside (0, 1]."""
    _check_rate(rate)
    mixed = _mixed(pair, rate)
    return Directed(LossPair(mixed, pair.lower, pair.slack), LossPair(pair.lower, mixed, pair.slack))


def poisson_epsilon(releases: Sequence[Directed], counts: Sequence[int], delta: float) -> float:
    """Of `counts[i]` releases i together: the larger of the two directions. Raises ValueError as `Composer` does."""
    directions = [[one.remove for one in releases], [one.add for one in releases]]
    return max(Composer(pairs).epsilon(counts, delta) for pairs in directions)


def fixed_size(pair: LossPair, size: int, users: int) -> LossPair:
    """`size` of `users` users. pair: of the release over a sample, for replacing a value; it holds in both directions.

    The smallest symmetric pair whose delta(eps'), eps' = ln(1 + rate (e^eps - 1)), is rate delta(eps), read off at
    16,384 eps. Raises ValueError unless 1 <= size <= users.
    """
    if not 1 <= size <= users:
        raise ValueError(f"a sample of {size} out of {users} users is none")
    if size == users:
        return pair
    rate = size / users
    certain = float(pair.upper[pair.lower == 0.0].sum())  # seen for sure: nothing that an envelope could hold
    finite = pair.lower > 0.0
    base = LossPair(pair.upper[finite], pair.lower[finite], min(1.0, pair.slack + certain))
    losses, deltas = profile(base)
    if losses[-1] == 0.0:  # nothing is to be seen but what is certain
        return symmetric_pair(np.zeros(1), np.full(1, 0.5), rate * base.slack)
    return of_profile(losses + np.log(rate + (1.0 - rate) * np.exp(-losses)), rate * deltas, rate * base.slack)


def _mixed(pair: LossPair, rate: float) -> NDArray[np.float64]:
    return (1.0 - rate) * pair.lower + rate * pair.upper


def _check_rate(rate: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"a sampling rate lies above 0 and not above 1, got {rate!r}")


# --- Renyi divergences: a second opinion -------------------------------------------------------------


def poisson_gaussian(
    sigma: float, sensitivity: float, rate: float, orders: NDArray[np.int64] = ORDERS
) -> NDArray[np.float64]:
    """Of Gaussian noise over a Poisson sample, adding or removing a user; exact at these orders. Shape as `orders`."""
    _check_rate(rate)
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
    if not 1 <= size <= users:
        raise ValueError(f"a sample of {size} out of {users} users is none")
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
