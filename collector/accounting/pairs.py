"""A dominating pair of distributions as a list of atoms, and the exact delta and epsilon of one release of it.

Rules of this file: whoever builds a pair answers for its holding in *both* directions (a symmetric pair, or one
that dominates both), and whatever probability was left out on purpose is in `slack`, which is added to every
delta. Nothing here forms e^epsilon, so no epsilon overflows.
What it does not do: it composes nothing (`pld.py`) and knows no mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASS_TOLERANCE: Final = 1e-9
"""How far above 1 a total mass may lie: the rounding of a sum of some 10^7 atoms."""


def check_delta(delta: float) -> None:
    """ValueError unless 0 <= delta < 1 (NaN fails too)."""
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta!r}")


def check_epsilon(epsilon: float) -> None:
    """ValueError unless `epsilon` is finite and not negative: the point at which a delta is asked for."""
    if not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and not negative, got {epsilon!r}")


@dataclass(frozen=True, eq=False)
class LossPair:
    """`upper` (P) and `lower` (Q): the masses of the same m atoms under both hypotheses, float64, shape (m,).

    The loss of an atom is ln(P/Q); where Q is 0 it is infinite. The masses need not add up to 1, but what is missing
    must be in `slack`. Neither array may be changed afterwards. Raises ValueError for masses that are no distribution.
    """

    upper: NDArray[np.float64]
    lower: NDArray[np.float64]
    slack: float = 0.0

    def __post_init__(self) -> None:
        if self.upper.ndim != 1 or self.upper.shape != self.lower.shape:
            raise ValueError(
                f"a pair needs two equally long lists of atoms, got shapes {self.upper.shape}, {self.lower.shape}"
            )
        for name, masses in (("upper", self.upper), ("lower", self.lower)):
            if not (np.all(masses >= 0.0) and float(masses.sum()) <= 1.0 + _MASS_TOLERANCE):
                raise ValueError(f"the masses of `{name}` must be non-negative and add up to at most 1")
        if not 0.0 <= self.slack <= 1.0:
            raise ValueError(f"the slack is a probability, got {self.slack!r}")

    @cached_property
    def losses(self) -> NDArray[np.float64]:
        """ln(P/Q) of every atom, shape (m,): -inf where P is 0, +inf where only Q is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(self.upper) - np.log(self.lower)
        losses[self.upper == 0.0] = -np.inf
        return losses

    def reversed(self) -> LossPair:
        """The pair (Q, P), as an oppositely directed part of a larger pair."""
        return LossPair(self.lower, self.upper, self.slack)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence: the sum of (P - e^epsilon Q)_+, plus the slack, at most 1."""
        check_epsilon(epsilon)
        active = self.losses > epsilon
        divergence, _ = _hockey_stick(self.upper[active], self.losses[active], epsilon)
        return min(1.0, divergence + self.slack)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with `self.delta(epsilon) <= delta`; infinity where there is none."""
        check_delta(delta)
        active = self.losses > 0.0
        masses, losses, room = self.upper[active], self.losses[active], delta - self.slack
        if room < 0.0 or float(masses[np.isinf(losses)].sum()) > room:
            return math.inf
        return smallest_epsilon(masses, losses, room)


def smallest_epsilon(
    masses: NDArray[np.float64], losses: NDArray[np.float64], room: float, start: float = 0.0
) -> float:
    """The smallest epsilon >= start at which the atoms' divergence, the sum of (P - e^epsilon Q)_+, is <= `room`.

    masses, losses: shape (m,), the losses all above `start`, and those that are infinite of a mass <= room.
    """
    if room == 0.0:
        return float(losses.max(initial=start))
    return _nudged_up(masses, losses, _newton(masses, losses, room, start), room)


def _hockey_stick(masses: NDArray[np.float64], losses: NDArray[np.float64], epsilon: float) -> tuple[float, float]:
    """(sum of P - e^eps Q, sum of e^eps Q) over atoms whose losses all exceed `epsilon`."""
    return float(-(masses * np.expm1(epsilon - losses)).sum()), float((masses * np.exp(epsilon - losses)).sum())


def _newton(masses: NDArray[np.float64], losses: NDArray[np.float64], room: float, epsilon: float) -> float:
    """Newton's method in x = e^eps, where the divergence is convex and piecewise linear: it never overshoots.

    Ends exactly once the atoms above epsilon stay the same; each step divides the divergence by about e.
    """
    while True:
        divergence, slope = _hockey_stick(masses, losses, epsilon)
        if divergence <= room or slope == 0.0:
            return epsilon
        following = epsilon + math.log1p((divergence - room) / slope)
        if following <= epsilon:
            return epsilon
        epsilon, active = following, losses > following
        if active.all():
            return epsilon
        masses, losses = masses[active], losses[active]


def _nudged_up(masses: NDArray[np.float64], losses: NDArray[np.float64], epsilon: float, room: float) -> float:
    """`epsilon`, raised by the few units in the last place that rounding took from it."""
    step = np.spacing(max(1.0, epsilon))
    while True:
        active = losses > epsilon
        if _hockey_stick(masses[active], losses[active], epsilon)[0] <= room:
            return epsilon
        epsilon, step = epsilon + float(step), 2.0 * step
