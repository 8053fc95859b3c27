"""From a total to the share of readings below each edge, and how far noise can have moved it.

Rules of this file: collector only, floats. For categories the shares below edges are sums of unbiased shares of bins,
shifted by the same amount per bin so that all bins add up to 1: still unbiased, and far less noise in long sums.
Their errors hold the covariances between cells, from each mechanism's exact law:
- bits that are independent given the bin (unary encodings): a weighted sum of their variances;
- a uniform subset of w others (subset selection; randomised response is w = 1): sampling without replacement;
- one place of a longer vector (Hadamard): the second moment of a report's contribution is in the total itself; of few
  reports that guess can be far too low, so it counts for no less than the least variance that any readings have.
For the square wave they are the smoothed shares', to first order; what smoothing costs in bias is not in them.

Where a metric is optional, shares are of the devices that had a reading: a ratio, with its first-order error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.distribution import Distribution
from client_sdk.mechanisms.hadamard import Hadamard, parity
from client_sdk.mechanisms.square_wave import SquareWave

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CLEAR = 2.0
"""Standard errors above 0 that the number of devices with a reading must be to divide by it."""


def distribution_of(
    inner: CategoricalMechanism | SquareWave, edges: Sequence[float], total: Sequence[int], contributors: int
) -> Distribution:
    """A total of the mechanism that sends bins -> the share of readings below each edge."""
    if contributors == 0:
        return Distribution.empty(edges)
    if isinstance(inner, SquareWave):
        return _smoothed(inner, edges, total, contributors)
    return _unbiased(inner, edges, total, contributors)


def _smoothed(inner: SquareWave, edges: Sequence[float], total: Sequence[int], contributors: int) -> Distribution:
    import numpy as np

    estimated = inner.shares(total)
    gain = np.concatenate([np.zeros((1, inner.length)), np.cumsum(estimated.gain, axis=0)])
    gain[-1] = 0.0
    cohort, population = report_variances(gain, inner.table(), contributors * estimated.shares)
    below = np.concatenate([[0.0], np.cumsum(estimated.shares)])
    below[-1] = 1.0
    errors = tuple(np.sqrt(cohort).tolist()), tuple(np.sqrt(population).tolist())
    return Distribution(tuple(edges), tuple(below.tolist()), *errors, contributors, float(contributors), smoothed=True)


def report_variances(gain: Floats, table: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Variances (this cohort, population) of gain @ total, one per row of gain, for reports that are one-hot.

    counts: of reports per place. A report in cell y adds gain[:, y]. For this cohort the mean of each place's reports
    is no noise; for a population only the mean over all is not.
    """
    import numpy as np

    cells = counts @ table
    squares = (gain * gain) @ cells
    cohort = squares - ((gain @ table.T) ** 2) @ counts
    population = squares - (gain @ cells) ** 2 / cells.sum()
    return np.maximum(cohort, 0.0), np.maximum(population, 0.0)


def _unbiased(
    inner: CategoricalMechanism, edges: Sequence[float], total: Sequence[int], contributors: int
) -> Distribution:
    import numpy as np

    bins = len(edges) - 1
    counts = np.array(inner.estimate(total, contributors).values, np.float64)
    shares = counts / contributors
    shares -= (shares.sum() - 1.0) / inner.k
    present = float(shares[:bins].sum())
    sums = np.concatenate([[0.0], np.cumsum(shares[:bins])])
    sizes = np.stack([np.arange(bins + 1), bins - np.arange(bins + 1), np.full(bins + 1, inner.k - bins)], axis=1)
    weight_error = 0.0
    if inner.k > bins:  # the last label is "no reading"
        whole = np.array([[1.0, 1.0, 0.0]])
        variance, _ = _variances(inner, whole, sizes[-1:], sums[-1:], present, total, contributors)
        weight_error = contributors * float(np.sqrt(variance[0]))
        if contributors * present <= CLEAR * weight_error:
            return Distribution.empty(edges, contributors, contributors * present, weight_error)
    below = sums / present
    weights = np.stack([1.0 - below, -below, np.zeros(bins + 1)], axis=1)
    variances = _variances(inner, weights, sizes, sums, present, total, contributors)
    errors = [tuple((np.sqrt(np.maximum(v, 0.0)) / present).tolist()) for v in variances]
    below[-1] = 1.0
    return Distribution(
        tuple(edges), tuple(below.tolist()), errors[0], errors[1], contributors, contributors * present, weight_error
    )


def _variances(
    inner: CategoricalMechanism,
    weights: Floats,
    sizes: Any,
    below: Floats,
    present: float,
    total: Sequence[int],
    contributors: int,
) -> tuple[Floats, Floats]:
    """Variances (this cohort, population) of weighted sums of the labels' shares, one per row.

    weights, sizes: of three groups of labels (bins below an edge, bins above it, no reading), shape (rows, 3).
    below, present: the estimated shares of the first, and of the first two.
    """
    import numpy as np

    weights = weights - (weights * sizes).sum(1, keepdims=True) / inner.k  # what the common shift of all shares does
    truth = np.stack([below, present - below, np.full(below.shape, 1.0 - present)], axis=1)
    truth = np.clip(truth, 0.0, None)
    truth /= truth.sum(1, keepdims=True)
    if isinstance(inner, Hadamard):
        cells = np.asarray(total, np.float64) / contributors
        cohort = _hadamard_squares(inner, weights, sizes, cells) - (truth * weights**2).sum(1)
        cohort = np.maximum(cohort, _hadamard_least(inner, weights, sizes))
    else:
        given = _independent(inner, weights, sizes) if inner.ones is None else _subset(inner, weights, sizes)
        cohort = (truth * given).sum(1) / float(inner.p - inner.q) ** 2
    spread = (truth * weights**2).sum(1) - (truth * weights).sum(1) ** 2
    return np.maximum(cohort, 0.0) / contributors, np.maximum(cohort + spread, 0.0) / contributors


def _independent(inner: CategoricalMechanism, weights: Floats, sizes: Any) -> Floats:
    """Variance of a report's weighted bits, per group that its own label is in, shape (rows, 3)."""
    own, other = float(inner.p * (1 - inner.p)), float(inner.q * (1 - inner.q))
    squares = (weights**2 * sizes).sum(1, keepdims=True)
    result: Floats = squares * other + weights**2 * (own - other)
    return result


def _subset(inner: CategoricalMechanism, weights: Floats, sizes: Any) -> Floats:
    """The same where a report is its own label with probability p, and a uniform subset of the others up to w.

    The weights of all labels add up to 0, so those of the others to minus the own one's.
    """
    import numpy as np

    others, p, size = inner.k - 1, float(inner.p), inner.ones or 1
    mean = -weights / others
    spread = np.maximum(((weights**2 * sizes).sum(1, keepdims=True) - weights**2) / others - mean**2, 0.0)

    def drawn(count: int) -> float:  # variance of the sum of `count` draws without replacement, over the spread of one
        return count * (others - count) / max(others - 1, 1)

    result: Floats = spread * (p * drawn(size - 1) + (1 - p) * drawn(size)) + p * (1 - p) * (weights - mean) ** 2
    return result


def _hadamard_least(inner: Hadamard, weights: Floats, sizes: Any) -> Floats:
    """Below the variance of a report's contribution, whatever its label v.

    With a = 2p - 1, S the sum of the squared weights and C(v) that of the products of the weights at rows r and r xor
    v, the variance is (S + a C(v)) / a^2 - w(v)^2. S + C(v) is half the sum of the squares of the pairs' own sums, so
    at least the pair (v, 0)'s w(v)^2; what remains is no less than (1 - a) S / a^2.
    """
    p = float(inner.p)
    result: Floats = (weights**2 * sizes).sum(1) * 2.0 * float(1 - inner.p) / (2.0 * p - 1.0) ** 2
    return result


def _hadamard_squares(inner: Hadamard, weights: Floats, sizes: Any, cells: Floats) -> Floats:
    """Mean square of a report's contribution: of the sum over labels of weight times the label's row at its place.

    One pass over the labels, which move from "above the edge" to "below" one by one.
    """
    import numpy as np

    places = np.arange(inner.length)
    rows = [1.0 - 2.0 * parity(places & (label + 1)) for label in range(inner.k)]
    bins = int(sizes[0, 0] + sizes[0, 1])
    below, above = np.zeros(inner.length), np.sum(rows[:bins], axis=0)
    absent = rows[bins] if inner.k > bins else np.zeros(inner.length)
    at, squares = 0, np.empty(len(weights))
    for row, (mine, size) in enumerate(zip(weights, sizes, strict=True)):
        for label in range(at, int(size[0])):
            below, above = below + rows[label], above - rows[label]
        at = int(size[0])
        squares[row] = ((mine[0] * below + mine[1] * above + mine[2] * absent) ** 2) @ cells
    result: Floats = squares / float(2 * inner.p - 1) ** 2
    return result
