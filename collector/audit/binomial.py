"""Exact one-sided bounds of a probability from how often its event was seen.

Rule of this file: whatever a float rounds goes to the side that certifies less.
Source: Clopper, Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial"
(Biometrika 1934).
"""

from __future__ import annotations

import math

import numpy as np

ALPHA_MAX = 0.2
"""Up to here the bound lies below the observed share, whatever the count: P(X >= count | count/n) is larger."""

STEPS = 60

PRECISION = 1e-9
"""Relative, of a bound."""


def lower_bound(count: int, n: int, alpha: float) -> float:
    """The p below which `count` or more of n would be seen with probability at most `alpha`.

    A true probability lies below it with probability at most `alpha`. ValueError for what is no count or no alpha.
    """
    if not 0 <= count <= n or n < 1 or not 0.0 < alpha <= ALPHA_MAX:
        raise ValueError(f"no bound for {count} of {n} at alpha {alpha}: alpha must lie in (0, {ALPHA_MAX}]")
    if count == 0:
        return 0.0
    goal = math.log(alpha) - 1e-6  # more than the tail's rounding
    p = math.exp((goal - _log_choices(count, n)) / count)  # P(X >= count) is at most that many times p^count
    # Newton's steps in ln p. The logarithm of the tail is concave in it, so each ends on the side that certifies.
    for _ in range(STEPS if p else 0):
        tail, terms = _log_tail(count, n, p)
        step = (goal - tail) * terms / count
        p *= math.exp(step)
        if step < PRECISION:
            break
    return p * (1.0 - PRECISION)


def upper_bound(count: int, n: int, alpha: float) -> float:
    """The p above which `count` or fewer of n would be seen with probability at most `alpha`."""
    return 1.0 - lower_bound(n - count, n, alpha)


def _log_tail(count: int, n: int, p: float) -> tuple[float, float]:
    """ln P(X >= count) for X binomial (n, p), p < count/n, or a little more, and how many of its first term that is.

    The derivative by ln p is count over the second.

    The first term, times the sum of the products of the ratios of neighbours, which fall; those beyond 40 sqrt(n)
    are bounded by a geometric series.
    """
    odds = p / (1.0 - p)
    terms = min(n - count, int(40 * math.sqrt(n)) + 200)
    at = np.arange(count, count + terms)
    ratios = (n - at) / (at + 1.0) * odds
    products = np.cumprod(ratios)
    series = 1.0 + float(products.sum())
    if terms and terms < n - count:
        last = float(ratios[-1])
        series += float(products[-1]) * last / (1.0 - last)
    return _log_term(count, n, p) + math.log(series), series


def _log_term(count: int, n: int, p: float) -> float:
    return _log_choices(count, n) + count * math.log(p) + (n - count) * math.log1p(-p)


def _log_choices(count: int, n: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
