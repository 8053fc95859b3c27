"""Binomial laws cut to the window that matters, with a proven bound on what lies outside it.

What it does not do: it does not renormalise away the tails. Whoever uses a window adds `outside` to a slack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LOG_OUTSIDE: Final = 46.0
"""Each end of a window leaves out at most e^-46 = 1.1e-20."""

OUTSIDE: Final = 2.0 * math.exp(-LOG_OUTSIDE)

_FEW: Final = 7


@dataclass(frozen=True, eq=False)
class Window:
    """`masses`, shape (m,), of the integers first, first + 1, ...; at most `outside` lies elsewhere."""

    first: int
    masses: NDArray[np.float64]
    outside: float

    @property
    def last(self) -> int:
        """The highest integer of the window."""
        return self.first + len(self.masses) - 1

    @property
    def values(self) -> NDArray[np.int64]:
        """The integers of the window, shape (m,)."""
        return np.arange(self.first, self.first + len(self.masses))


def binomial(count: int, probability: float) -> Window:
    """Bin(count, probability) within Bernstein's bound: |X - mean| <= sqrt(2 v L) + 2 L / 3, L = LOG_OUTSIDE.

    Masses come from the ratios of neighbours: accurate to about 1e-13 of themselves for any count, which
    log-factorials are not. Raises ValueError for a negative count or a probability outside [0, 1].
    """
    if count < 0 or not 0.0 <= probability <= 1.0:
        raise ValueError(f"no binomial law of {count} draws with probability {probability!r}")
    if count == 0 or probability in {0.0, 1.0}:
        return Window(count if probability == 1.0 else 0, np.ones(1), 0.0)
    reach = bernstein(count * probability * (1.0 - probability), 1.0)
    first = max(0, math.floor(count * probability - reach))
    last = min(count, math.ceil(count * probability + reach))
    below = np.arange(first, last, dtype=np.float64)
    odds = math.log(probability) - math.log1p(-probability)
    logs = np.concatenate(([0.0], np.cumsum(np.log((count - below) / (below + 1.0)) + odds)))
    masses = np.exp(logs - logs.max())
    return Window(first, masses / masses.sum(), 0.0 if last - first == count else OUTSIDE)


def binomials(first: int, last: int, probability: float) -> Iterator[Window]:
    """Bin(count, probability) for count = first ... last in turn, each from the one before by one more draw.

    On one window, so wide that what has ever left it is at most OUTSIDE: masses are too small by that, and wrong by
    some 1e-16 of themselves a step. Raises ValueError as `binomial` does.
    """
    start = binomial(first, probability)
    log_outside = LOG_OUTSIDE + math.log(last - first + 1)
    reach = bernstein(last * probability * (1.0 - probability), 1.0, log_outside)
    lowest = max(0, min(start.first, math.floor(first * probability - reach)))
    highest = min(last, max(start.last, math.ceil(last * probability + reach)))
    masses = np.zeros(highest - lowest + 1)
    masses[start.first - lowest : start.last - lowest + 1] = start.masses
    for _ in range(first, last + 1):
        yield Window(lowest, masses, OUTSIDE)
        up = probability * masses[:-1]
        masses = (1.0 - probability) * masses
        masses[1:] += up


def bernstein(variance: float, largest: float, log_outside: float = LOG_OUTSIDE) -> float:
    """How far a sum of that variance, of terms within `largest` of their means, strays, but for 2 e^-log_outside."""
    return math.sqrt(2.0 * variance * log_outside) + 2.0 * largest * log_outside / 3.0


def lower_ends(window: Window, limit: int) -> Window:
    """At most `limit` values keep their mass: each run of neighbours is moved to its lowest value.

    For a number of blankets that is the safe side: the fewer they are, the more is seen. The runs are shortest around
    the mean and some deviations below it, where delta comes from. Raises ValueError for a limit below 2.
    """
    if limit < 2:
        raise ValueError(f"a law moved to lower ends needs at least 2 of them, got {limit}")
    if len(window.masses) <= limit:
        return window
    cells = np.arange(len(window.masses))
    mean = float(cells @ window.masses)
    deviation = math.sqrt(float((cells - mean) ** 2 @ window.masses))
    reach = min(6.0, 2.0 + limit / 4.0)
    # Of very few, most stand just below where most of the mass is.
    ends = (-reach, reach / 2.0) if limit > _FEW else (-1.2 - limit / 4.0, 0.3 * (limit - 3))
    core = mean + deviation * np.linspace(*ends, limit - 1)
    starts = np.unique(np.concatenate(([0.0], np.clip(np.floor(core), 0.0, cells[-1])))).astype(np.int64)
    masses = np.zeros_like(window.masses)
    masses[starts] = np.add.reduceat(window.masses, starts)
    return Window(window.first, masses, window.outside)
