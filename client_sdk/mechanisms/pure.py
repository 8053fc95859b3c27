"""Decoding of every "pure" protocol: counts of support to unbiased counts, their errors and intervals.

A report supports label v with probability p if v is its device's category, and with probability q otherwise. From
C_v supports among n reports, (C_v - n q) / (p - q) is unbiased for the number of devices whose category is v.
p and q are the exact rationals that the device draws with, never the formulas that they were rounded from.

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (USENIX Security
2017), sections 3-4; Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (JASA 1927).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from client_sdk.mechanisms import Estimate, normal_quantile


@dataclass(frozen=True, slots=True)
class CountEstimate(Estimate):
    """Counts per label, with what a Wilson interval needs.

    supports: how many reports support each label, out of `contributors`. p, q: see the module.
    """

    supports: tuple[int, ...] = ()
    p: float = 1.0
    q: float = 0.0

    def wilson(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[tuple[float, float] | None, ...]:
        """Score interval per label, for the population that the contributors are a sample of, times contributors.

        Conservative for this cohort. Unlike the normal interval it has no width 0 at C = 0 or C = n.
        """
        z = normal_quantile(level, rows=len(self.values) if simultaneous else 1)
        return tuple(self._wilson_row(count, z) for count in self.supports)

    def _wilson_row(self, support: int, z: float) -> tuple[float, float] | None:
        n = self.contributors
        if not n:
            return None
        share, z2 = support / n, z * z
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = z / (1 + z2 / n) * math.sqrt(max(share * (1 - share), 0.0) / n + z2 / (4 * n * n))
        return tuple(n * (end - self.q) / (self.p - self.q) for end in (middle - half, middle + half))  # type: ignore[return-value]


def pure_estimate(supports: Sequence[int], contributors: int, p: Fraction, q: Fraction) -> CountEstimate:
    """Supports of n reports -> counts, unbiased, never clipped.

    standard_errors (this cohort): n [f p(1-p) + (1-f) q(1-q)] / (p-q)^2. population_errors: n s(1-s) / (p-q)^2,
    s = q + f(p-q). f is the estimated share, cut to [0, 1] in these two places only. Each count is the float nearest
    to the exact quotient of integers.
    """
    import numpy as np

    rows, n = len(supports), contributors
    cells = tuple(int(cell) for cell in supports)
    if n == 0:
        return CountEstimate((None,) * rows, (None,) * rows, 0, (None,) * rows, (0,) * rows, float(p), float(q))
    scale = math.lcm(p.denominator, q.denominator)
    offset, gap = int(n * q * scale), int((p - q) * scale)
    counts = tuple((cell * scale - offset) / gap for cell in cells)
    share = np.clip(np.array(counts) / n, 0.0, 1.0)
    seen = float(q) + share * float(p - q)
    cohort = share * float(p * (1 - p)) + (1 - share) * float(q * (1 - q))
    errors = (np.sqrt(float(n) * variance) / float(p - q) for variance in (cohort, seen * (1 - seen)))
    this_cohort, population = (tuple(error.tolist()) for error in errors)
    return CountEstimate(counts, this_cohort, n, population, cells, float(p), float(q))


def exact_mean_squared_error(k: int, p: Fraction, q: Fraction) -> Fraction:
    """n times the variance of one label's estimated share, averaged over k labels whose shares add up to 1."""
    return (p * (1 - p) + (k - 1) * q * (1 - q)) / (k * (p - q) ** 2)


def mean_squared_error(k: int, p: Fraction | float, q: Fraction | float) -> float:
    """The same in floats."""
    return float(exact_mean_squared_error(k, Fraction(p), Fraction(q)))
