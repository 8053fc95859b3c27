"""Local epsilon: what somebody learns who sees every report of one user. Closed forms, and the pair of each mechanism.

Relation everywhere: replace one user's value by any other of the declared range. Pairs are those of the two values
furthest apart, which dominate all others. No e^epsilon is formed, so nothing overflows; a pair above EPSILON_CEILING
is refused, because the smaller of its two probabilities would vanish. The closed forms take any finite epsilon.
What it does not do: where later epsilons were chosen after earlier sums were seen, only a cap fixed beforehand on
the sum S1 (or on S3) bounds anything; the caller shows that then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from collector.accounting.pairs import LossPair, check_delta, check_epsilon

EPSILON_CEILING: Final = 700.0
"""Largest epsilon of a pair: e^-700 is still a number of full precision. Plans allow 40."""

_GAUSSIAN_REACH: Final = 12.0
"""Deviations on either side that a Gaussian pair spells out; 2e-33 of the mass lies beyond."""

_GAUSSIAN_BINS: Final = 1 << 15

_Real = TypeVar("_Real", float, NDArray[np.float64])


def rho(epsilon: _Real) -> _Real:
    """Zero-concentrated loss of any pure epsilon-private mechanism, epsilon tanh(epsilon / 2); additive.

    It bounds the Renyi divergence of every order a by a * rho, with equality as a tends to 1 for binary randomised
    response. A Gaussian's is `gaussian_rho`.
    """
    if isinstance(epsilon, np.ndarray):
        return np.asarray(epsilon * np.tanh(epsilon / 2.0))
    return epsilon * math.tanh(epsilon / 2.0)


def closed_form(s1: _Real, s3: _Real, delta: float) -> _Real:
    """min(S1, S3 + 2 sqrt(S3 ln(1/delta))): S1 the sum of the epsilons (may be infinite), S3 that of the rhos.

    Scalars, or arrays of one shape. Bun & Steinke 2016, Proposition 1.3. At delta = 0 it is S1.
    """
    check_delta(delta)
    if delta == 0.0:
        return s1
    nats = -math.log(delta)
    if isinstance(s1, np.ndarray):
        return np.minimum(s1, s3 + 2.0 * np.sqrt(s3 * nats))
    return min(s1, s3 + 2.0 * math.sqrt(s3 * nats))


def pure(epsilon: float) -> LossPair:
    """Binary randomised response: it dominates every pure epsilon-private mechanism (Kairouz, Oh & Viswanath 2015)."""
    return randomized_response(2, epsilon)


def randomized_response(k: int, epsilon: float) -> LossPair:
    """k-ary randomised response: the true cell, the other value's, and the k - 2 cells that say nothing."""
    _check_pair(epsilon)
    if k < 2:
        raise ValueError(f"randomised response needs at least two categories, got {k}")
    ratio = math.exp(-epsilon)
    masses = np.array([1.0, ratio, (k - 2) * ratio]) / (1.0 + (k - 1) * ratio)
    return LossPair(masses, masses[[1, 0, 2]])


def discrete_laplace(levels: int, epsilon: float) -> LossPair:
    """Lattice Laplace noise of scale levels / epsilon on the values 0 and `levels`: levels + 1 atoms, exact.

    Everything at or below 0 has loss epsilon, everything from `levels` up has -epsilon, so each is one atom.
    """
    _check_pair(epsilon)
    if levels < 1:
        raise ValueError(f"a lattice needs at least one level, got {levels}")
    per_level = epsilon / levels
    tail = 1.0 / (1.0 + math.exp(-per_level))
    masses = tail * np.exp(-per_level * np.arange(levels + 1))
    masses[1:-1] *= -math.expm1(-per_level)
    return LossPair(masses, masses[::-1].copy())


def _check_pair(epsilon: float) -> None:
    if not 0.0 <= epsilon <= EPSILON_CEILING:
        raise ValueError(f"the epsilon of a pair must lie between 0 and {EPSILON_CEILING:g}, got {epsilon!r}")


def gaussian_rho(sigma: float, sensitivity: float) -> float:
    """Zero-concentrated loss of Gaussian noise: (sensitivity / sigma)^2 / 2."""
    return _shift(sigma, sensitivity) ** 2 / 2.0


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Exact delta of one Gaussian release (Balle & Wang 2018, Theorem 8). sensitivity: the whole width (replace)."""
    check_epsilon(epsilon)
    mu = _shift(sigma, sensitivity)
    upper = _normal_below(mu / 2.0 - epsilon / mu)
    # Above 600 the factor would overflow, and leaving the term out only raises delta.
    return upper - math.exp(epsilon) * _normal_below(-mu / 2.0 - epsilon / mu) if epsilon < 600.0 else upper


def gaussian_epsilon(delta: float, sigma: float, sensitivity: float) -> float:
    """The smallest epsilon of one Gaussian release at `delta`, rounded up; infinity at delta = 0."""
    check_delta(delta)
    if delta == 0.0:
        return math.inf
    if gaussian_delta(0.0, sigma, sensitivity) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, sigma, sensitivity) > delta:
        low, high = high, 2.0 * high
    return _bisected(low, high, lambda epsilon: gaussian_delta(epsilon, sigma, sensitivity) <= delta)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest sigma that is (epsilon, delta)-private in one release, rounded up (the analytic mechanism)."""
    check_delta(delta)
    if delta == 0.0:
        raise ValueError("Gaussian noise has no pure epsilon; delta must be above 0")
    low, high = 0.0, sensitivity
    while gaussian_delta(epsilon, high, sensitivity) > delta:
        low, high = high, 2.0 * high
    return _bisected(low, high, lambda sigma: gaussian_delta(epsilon, sigma, sensitivity) <= delta)


def gaussian(sigma: float, sensitivity: float) -> LossPair:
    """Continuous Gaussian noise as atoms: each bin of losses split between its ends, its mass under P and Q kept.

    Its epsilon is some 1e-8 (relative) above `gaussian_epsilon`. Raises ValueError where the loss is beyond
    EPSILON_CEILING twelve deviations out: such noise protects nobody.
    """
    mu = _shift(sigma, sensitivity)
    edges = np.linspace(-_GAUSSIAN_REACH, _GAUSSIAN_REACH, _GAUSSIAN_BINS + 1)
    losses = mu * edges + mu * mu / 2.0
    _check_pair(float(losses[-1]))
    upper, lower = _normal_masses(edges), _normal_masses(edges + mu)
    factor = np.exp(-losses)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (upper * factor[:-1] - lower) / (upper * (factor[:-1] - factor[1:]))
    share = np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
    masses = np.zeros(len(losses))
    masses[:-1] += upper * (1.0 - share)
    masses[1:] += upper * share
    outside = _normal_below(-_GAUSSIAN_REACH)
    masses[0] += outside
    return LossPair(masses, masses * factor, outside)


def _bisected(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The smallest float above `low` for which the monotone `holds` is true, given that it is at `high`."""
    while low < (middle := low + (high - low) / 2.0) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _shift(sigma: float, sensitivity: float) -> float:
    if not (0.0 < sigma < math.inf and 0.0 < sensitivity < math.inf):
        raise ValueError(f"sigma and sensitivity must be positive and finite, got {sigma!r} and {sensitivity!r}")
    return sensitivity / sigma


def _normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _normal_masses(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal mass of each bin, shape (edges - 1,), from the tail that is nearer: no cancellation far out."""
    below = np.array([_normal_below(edge) for edge in edges.tolist()])
    above = np.array([_normal_below(-edge) for edge in edges.tolist()])
    return np.asarray(np.where(edges[1:] <= 0.0, below[1:] - below[:-1], above[:-1] - above[1:]))
