"""Privacy loss distributions on a grid, and their composition by FFT.

A pair is put on the grid by splitting each atom between its two neighbours so that its mass under *both* hypotheses
stays (connect the dots: Doroshenko et al., PETS 2022): undoing the split is post-processing, so the grid
dominates the pair, and its error falls with the square of the step. Composing adds losses, so it convolves masses.
A convolution is done under an exponential tilt, e^(tilt x loss), which centres it where the answer lies: rounding is
then small beside the delta in question however small that is (Koskela et al. use the FFT untilted).

Rules of this file: whatever is cut off the top, or may be lost there by the wrap-around of an FFT, becomes infinite
loss; whatever is cut off the bottom is rounded up. What wraps from elsewhere is only ever counted too high.
What it does not do: it does not choose tilts, steps or windows for an accuracy: that is `tilting.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.pairs import LossPair, check_delta, check_epsilon, smallest_epsilon

MAX_CELLS: Final = 1 << 24
"""Longest grid that is ever allocated: 128 MB of masses."""

_ON_CELL: Final = 1e-12
"""Relative distance from a multiple of the step that the rounding of a loss can have caused."""

_SPAN_OF_EXP: Final = 600.0
"""Losses this far apart still have probability ratios that are numbers of full precision."""


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Masses, shape (m,), of the losses (first + i) * step under P, and the mass of infinite loss."""

    step: float
    first: int
    masses: NDArray[np.float64]
    infinite: float

    @cached_property
    def losses(self) -> NDArray[np.float64]:
        """The finite losses, ascending, shape (m,)."""
        return np.asarray(np.arange(self.first, self.first + len(self.masses)) * self.step, dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence, at most 1."""
        check_epsilon(epsilon)
        above = int(np.searchsorted(self.losses, epsilon, side="right"))
        return min(1.0, self.infinite - float((self.masses[above:] * np.expm1(epsilon - self.losses[above:])).sum()))

    def epsilon(self, delta: float, start: float = 0.0) -> float:
        """The smallest epsilon >= start with `self.delta(epsilon) <= delta`; infinity where there is none."""
        check_delta(delta)
        if self.infinite > delta:
            return math.inf
        room = delta - self.infinite
        above = int(np.searchsorted(self.losses, start, side="right"))
        above += _cells_passed(self.masses[above:], self.losses[above:], room)
        start = max(start, float(self.losses[above - 1])) if above else start
        return smallest_epsilon(self.masses[above:], self.losses[above:], room, start)


def _cells_passed(masses: NDArray[np.float64], losses: NDArray[np.float64], room: float) -> int:
    """How many cells lie surely below the answer: two cumulative sums in place of most of Newton's steps."""
    if len(losses) < 2 or losses[-1] - losses[0] > _SPAN_OF_EXP:
        return 0
    ratios = np.exp(losses[0] - losses)
    upper, lower = (np.cumsum(part[::-1])[::-1] for part in (masses, masses * ratios))
    return max(0, int(np.count_nonzero(upper - lower / ratios > room)) - 1)


@dataclass(frozen=True, eq=False)
class Atoms:
    """The finite losses of a pair, ascending, with their masses under P, both of shape (m,), and the infinite mass."""

    losses: NDArray[np.float64]
    masses: NDArray[np.float64]
    infinite: float

    @classmethod
    def of(cls, pair: LossPair) -> Atoms:
        """The pair's slack counts as infinite loss; atoms without mass under P never happen."""
        finite = np.isfinite(pair.losses)
        losses = pair.losses[finite]
        order = np.argsort(losses)
        infinite = float(pair.upper[np.isposinf(pair.losses)].sum()) + pair.slack
        return cls(losses[order], pair.upper[finite][order], infinite)

    def trimmed(self, trim: float) -> Atoms:
        """At most `trim` of mass made infinite at the top, and at most as much rounded up at the bottom."""
        from_top, from_bottom = np.cumsum(self.masses[::-1]), np.cumsum(self.masses)
        top = int(np.searchsorted(from_top, trim, side="right"))
        bottom = int(np.searchsorted(from_bottom, trim, side="right"))
        if top + bottom >= len(self.masses):
            return self
        kept = slice(bottom, len(self.masses) - top)
        masses = self.masses[kept].copy()
        masses[0] += from_bottom[bottom - 1] if bottom else 0.0
        return Atoms(self.losses[kept], masses, self.infinite + (float(from_top[top - 1]) if top else 0.0))

    def on_grid(self, step: float) -> LossDistribution:
        """Each atom on the two multiples of `step` around it, its mass under P and under Q preserved.

        Raises ValueError when the losses span more than MAX_CELLS steps.
        """
        if not step > 0.0:
            raise ValueError(f"the step of a grid must be positive, got {step!r}")
        if len(self.losses) == 0:
            return LossDistribution(step, 0, np.zeros(1), self.infinite)
        if float(self.losses[-1] - self.losses[0]) > (MAX_CELLS - 2) * step:
            raise ValueError(f"a step of {step} is too fine for losses from {self.losses[0]} to {self.losses[-1]}")
        places = self.losses / step
        nearest = np.rint(places)
        # A loss that is a multiple of the step but for its own rounding is that multiple: the part of 1e-16 that would
        # go to the next cell is noise, and under a tilt it would be louder than all the rest.
        on_cell = np.abs(places - nearest) <= _ON_CELL * np.maximum(1.0, np.abs(nearest))
        below = np.where(on_cell, nearest, np.floor(places))
        share = np.clip(np.expm1(below * step - self.losses) / math.expm1(-step), 0.0, 1.0)
        share[on_cell] = 0.0
        cells = (below - below[0]).astype(np.int64)
        length = int(cells[-1]) + 2
        masses = np.bincount(cells, self.masses * (1.0 - share), length).astype(np.float64)
        masses += np.bincount(cells + 1, self.masses * share, length)
        return LossDistribution(step, int(below[0]), masses, self.infinite)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The logarithm of the FFT of a tilted, normalised loss distribution, folded to `size` cells.

    `log_transform` has shape (size // 2 + 1,); `log_moment` is ln E[e^(tilt x loss); loss finite].
    """

    size: int
    tilt: float
    log_transform: NDArray[np.complex128]
    log_moment: float

    @classmethod
    def of(cls, part: LossDistribution, tilt: float, size: int) -> Spectrum:
        """Folding is exact: a sum of losses modulo the size is the sum of the losses modulo it."""
        exponents = tilt * part.losses
        peak = float(exponents[part.masses > 0.0].max(initial=-math.inf))
        if math.isinf(peak):
            raise ValueError("a part all of whose mass is infinite loss cannot be composed: its epsilon is infinite")
        weights = part.masses * np.exp(np.minimum(exponents - peak, 0.0))
        total = float(weights.sum())
        cells = np.arange(part.first, part.first + len(weights)) % size
        transform = np.fft.rfft(np.bincount(cells, weights / total, size))
        transform[transform == 0.0] = np.finfo(np.float64).tiny  # so that 0 to a power needs no case of its own
        return cls(size, tilt, np.log(transform), peak + math.log(total))


@dataclass(frozen=True)
class Window:
    """Which cells of a composed distribution are wanted: `size` cells from `low` on, of which those from `floor` on
    are kept and the rest rounded up to it; at most `beyond` of the mass lies above the window.
    """

    low: int
    size: int
    floor: int
    beyond: float


def log_moment(spectra: Sequence[Spectrum], counts: Sequence[int]) -> float:
    """ln E[e^(tilt x loss); loss finite] of `counts[i]` releases of part i together."""
    return math.fsum(count * spectrum.log_moment for count, spectrum in zip(counts, spectra, strict=True))


def composed(
    spectra: Sequence[Spectrum], counts: Sequence[int], step: float, window: Window, infinite: float
) -> LossDistribution:
    """The composition of `counts[i]` releases of part i. All spectra share the window's size and one tilt.

    infinite: the probability that any part's loss is infinite.
    """
    tilt = spectra[0].tilt
    moment = log_moment(spectra, counts)
    log_transform = counts[0] * spectra[0].log_transform
    for count, spectrum in zip(counts[1:], spectra[1:], strict=True):
        log_transform += count * spectrum.log_transform
    tilted = np.roll(np.fft.irfft(np.exp(log_transform), window.size), -(window.low % window.size))
    kept = np.maximum(tilted[window.floor - window.low :], 0.0)
    cells = np.arange(window.floor, window.floor + len(kept))
    masses = kept * np.exp(np.minimum(moment - tilt * step * cells, _SPAN_OF_EXP))
    beyond = infinite + window.beyond
    masses[0] += max(0.0, 1.0 - beyond - float(masses.sum()))
    return LossDistribution(step, window.floor, masses, beyond)


def any_infinite(infinite: Sequence[float], counts: Sequence[int]) -> float:
    """The probability that at least one release has infinite loss, given that of each part's."""
    if max(infinite) >= 1.0:
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-one) for one, count in zip(infinite, counts, strict=True)))
