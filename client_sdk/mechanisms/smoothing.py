"""Expectation maximisation with smoothing: the square wave's total -> shares of places, and how they answer to noise.

Rules of this file: collector only, floats. Each step is one EM step, then each place is averaged with its neighbours;
the estimate is where that comes to rest, and its first-order answer to a change of the total is `gain`.

The paper averages with weights (1/4, 1/2, 1/4) at every step, which leaves a bias that does not fall with the number
of reports: at 32 bins and 10,000 reports it can be ten standard errors. Here the neighbours' weight starts at 1/4 and
falls to `weight`, so that the bias stays below the error that is stated beside it where readings are spread smoothly.
Source: Li et al. (SIGMOD 2020), section 5.5; Silverman, Jones, Wilson, Nychka, "A Smoothed EM Approach to Indirect
Estimation Problems" (JRSS B 1990); Varadhan, Roland, "Simple and Globally Convergent Methods for Accelerating the
Convergence of Any EM Algorithm" (Scand. J. Stat. 2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Product = Callable[[Floats], Floats]

LARGEST_WEIGHT = 0.25
LEAPS_MAX = 3000
LEAPS = 3
"""Between two looks at the likelihood."""
DENSE = 256
"""Places up to which a dense product is faster than sliding sums."""
AT_REST = 1e-3
"""Log-likelihood (of all reports) that `LEAPS` more change by less: far below what noise changes it by, about 1."""


@dataclass(frozen=True)
class Shares:
    """Of d places from a total over m cells.

    shares: positive, adding up to 1, shape (d,). gain: of each share per report more in a cell, shape (d, m): the
    shares' noise is gain times the total's, to first order.
    """

    shares: Floats
    gain: Floats


@dataclass(frozen=True)
class WindowLaw:
    """P(cell | place): `inside` in the `window` cells that begin at the place's own, `outside` in all others."""

    places: int
    window: int
    inside: float
    outside: float

    @property
    def cells(self) -> int:
        """How many."""
        return self.places + self.window - 1

    def table(self) -> Floats:
        """P(cell | place), shape (places, cells)."""
        import numpy as np

        offsets = np.arange(self.cells) - np.arange(self.places)[:, None]
        return np.where((offsets >= 0) & (offsets < self.window), self.inside, self.outside)

    def products(self) -> tuple[Product, Product]:
        """(shares -> shares @ table, ratios -> table @ ratios); in O(cells) each where the line is long."""
        if self.places <= DENSE:
            table = self.table()
            return (lambda shares: shares @ table), (lambda ratios: table @ ratios)
        return self._forward, self._backward

    def _forward(self, shares: Floats) -> Floats:
        import numpy as np

        edge = np.zeros(self.window - 1)
        return self._sums(np.concatenate([edge, shares, edge]), shares.sum())

    def _backward(self, ratios: Floats) -> Floats:
        return self._sums(ratios, ratios.sum())

    def _sums(self, values: Floats, whole: float) -> Floats:
        import numpy as np

        sums = np.concatenate([[0.0], np.cumsum(values)])
        windows: Floats = sums[self.window :] - sums[: -self.window]
        return self.outside * whole + (self.inside - self.outside) * windows


def weight(places: int, reports: float) -> float:
    """Of each neighbour in the average: (d/120)^2 / sqrt(n), at most 1/4.

    Averaging with weight w spreads a place over w/d^2 of the line, squared; with d^2, finer bins change nothing else.
    """
    return min(LARGEST_WEIGHT, (places / 120) ** 2 / math.sqrt(max(reports, 1.0)))


def smoothed_shares(total: Floats, law: WindowLaw) -> Shares:
    """total: reports per cell, shape (m,), none negative and at least one."""
    import numpy as np

    reports = float(total.sum())
    observed, least = total / reports, weight(law.places, reports)
    forward, backward = law.products()
    shares, neighbours, before = np.full(law.places, 1.0 / law.places), LARGEST_WEIGHT, -math.inf
    for leap in range(LEAPS_MAX):
        shares = _leap(lambda at: _averaged(at * backward(observed / forward(at)), neighbours), shares)  # noqa: B023
        if leap % LEAPS == 0:
            likelihood = reports * float(observed @ np.log(forward(shares)))
            if neighbours == least and abs(likelihood - before) < AT_REST:
                break
            before, neighbours = likelihood, max(neighbours / 4, least)
    return Shares(shares, _gain(shares, law.table(), least) / reports)


def _leap(step: Product, shares: Floats) -> Floats:
    """Three steps, with an extrapolation before the last: where the first two, repeated, would lead (SQUAREM).

    The leap is shortened until every share is positive; a leap of length 1 is the second step itself. Plain steps need
    a hundred times as many, and when stopped by the same rule are still far from rest.
    """
    once = step(shares)
    first, second = once - shares, step(once) - once
    bend = second - first
    curved = float(bend @ bend)
    length = max(math.sqrt(float(first @ first) / curved), 1.0) if curved > 0 else 1.0
    while True:
        leapt: Floats = shares + 2 * length * first + length * length * bend
        if length == 1.0 or leapt.min() > 0:
            return step(leapt)
        length = (length + 1) / 2 if length > 1.01 else 1.0


def _averaged(shares: Floats, neighbours: float) -> Floats:
    """Each place with its two neighbours along the first axis; an end counts as its own neighbour: nothing is lost."""
    averaged: Floats = (1.0 - 2.0 * neighbours) * shares
    part = neighbours * shares
    averaged[1:] += part[:-1]
    averaged[:-1] += part[1:]
    averaged[0] += part[0]
    averaged[-1] += part[-1]
    return averaged


def _gain(shares: Floats, table: Floats, neighbours: float) -> Floats:
    """d shares / d observed where one whole step leaves the shares as they are, shape (d, m).

    The step is averaged(shares * table (observed / seen)), seen = shares @ table. Its slope by the shares is taken
    where observed = seen, as expected, not at what was observed: there, places that came out near 0 seem unable to
    move, and errors in the tails come out too small.
    """
    import numpy as np

    by_observed = shares[:, None] * (table / (shares @ table))
    by_shares = np.eye(len(shares)) - by_observed @ table.T
    kept = np.eye(len(shares)) - _averaged(by_shares, neighbours)
    return np.asarray(np.linalg.solve(kept, _averaged(by_observed, neighbours)), np.float64)
