"""How finely, under which tilt and in which window to compose a history, so that its epsilon comes out tight.

Everything is read off Renyi divergences. The tilt is the order of the best RDP bound less one; the window ends where
Chernoff's bound leaves a negligible share of delta; the step is fine enough for the accuracy wanted.
Losses that are whole multiples of one unit (randomised response, coarse lattices) keep to a grid of that unit, where
they need no splitting.
These choices decide how tight and how fast an answer is. Only `beyond`, the mass above a window, is part of the bound,
and it is proven: coarse grids dominate, and splitting raises a log-moment by at most what `_cost_of_splitting` says.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from collector.accounting.pld import Atoms, LossDistribution, Window

NEGLIGIBLE: Final = 1e-7
"""Share of delta given up at each of: the ends of the pairs, the end of the window."""

ROUNDING: Final = 1e-6
"""Share of delta kept back for the rounding of transforms and exponentials."""

TILTS: Final[NDArray[np.float64]] = 2.0 ** np.arange(-12.0, 24.5, 0.5)
"""In half octaves: the best of them is never much more than one deviation off."""

_COARSE_CELLS: Final = 2048
_MAX_PART_CELLS: Final = 1 << 20
_MAX_WINDOW_CELLS: Final = 1 << 21

_FEW_ATOMS: Final = 64
"""Below this many atoms the splitting of each can be seen in the answer, so a grid that needs none is looked for."""

_MAX_EXPONENT: Final = 2.0**30
"""Largest tilt x loss: its rounding in e^(tilt x loss) then stays at 1e-7."""

_MAX_TILT_OF_A_STEP: Final = 30.0
"""Neighbouring cells' weights then differ by less than e^30, so that neither is lost beside the other."""

_ROUNDING_OF_LOGS: Final = 1e-6

_FAR_TOO_COARSE: Final = 8.0
_FINER_TRIES: Final = 3

_STRAY: Final = 1e-11
"""Tilted mass that may wrap around into the answer."""

_Tilts = TypeVar("_Tilts", float, NDArray[np.float64])


@dataclass(frozen=True)
class Plan:
    """How to compose one history: the tilt, the step of the grid, the window on it.

    log_moment: ln E[e^(tilt x loss)] of the composition, at most. The window was chosen by it: a grid that has more
    must not be believed (it has mass where none was expected, and under the tilt that drowns what was).
    """

    tilt: float
    step: float
    window: Window
    log_moment: float

    def explains(self, log_moment: float) -> bool:
        """Is this what the composition on the grid may have, but for rounding?"""
        return log_moment <= self.log_moment + _ROUNDING_OF_LOGS * max(1.0, abs(self.log_moment))


@dataclass(frozen=True, eq=False)
class Moments:
    """What coarse, dominating grids say about each part, for every tilt: arrays (parts, tilts), or (parts,)."""

    log: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    few_atoms: NDArray[np.bool_]
    unit: float
    """Of which all losses of the parts of few atoms are multiples; 0 where there is none."""

    @classmethod
    def of(cls, atoms: Sequence[Atoms]) -> Moments:
        """parts: at least one atom each."""
        parts = [one if len(one.losses) <= _COARSE_CELLS else _coarse(one) for one in atoms]
        log, mean, variance = (np.array(rows) for rows in zip(*(_tilted(part) for part in parts), strict=True))
        lowest, highest = (np.array([part.losses[end] for part in parts]) for end in (0, -1))
        few = [len(one.losses) <= _FEW_ATOMS for one in atoms]
        unit = _common_unit([one.losses for one, is_few in zip(atoms, few, strict=True) if is_few])
        return cls(log, mean, variance, lowest, highest, np.array(few), unit)


def _coarse(atoms: Atoms) -> LossDistribution:
    reach = float(np.abs(atoms.losses[[0, -1]]).max()) or 1.0
    return atoms.on_grid(reach / _COARSE_CELLS)


def _tilted(part: Atoms | LossDistribution) -> tuple[NDArray[np.float64], ...]:
    """(ln E[e^(tilt x loss)], mean and variance of the loss under that tilt), each for every tilt."""
    occurs = part.masses > 0.0
    losses, masses = part.losses[occurs], part.masses[occurs]
    exponents = np.multiply.outer(TILTS, losses)
    peaks = exponents.max(axis=1, keepdims=True)
    weights = masses * np.exp(exponents - peaks)
    totals = weights.sum(axis=1)
    mean = weights @ losses / totals
    variance = np.maximum(weights @ losses**2 / totals - mean**2, 0.0)
    return peaks[:, 0] + np.log(totals), mean, variance


def _common_unit(losses: Sequence[NDArray[np.float64]]) -> float:
    """The greatest number of which all losses are multiples (Euclid); 0 below a ten-thousandth of the largest."""
    values = sorted({value for part in losses for value in np.abs(part).tolist()}, reverse=True)
    if not values or values[0] == 0.0:
        return 0.0
    unit, dust = values[0], 1e-9 * values[0]
    for value in values[1:]:
        while value > dust:
            unit, value = value, abs(unit - value * round(unit / value))  # noqa: PLW2901
            if unit < 1e-4 * values[0]:
                return 0.0
    return float(values[0] / round(values[0] / unit))


def renyi_bounds(moments: Moments, used: list[int], counts: list[int], delta: float) -> NDArray[np.float64]:
    """What each tilt's Renyi divergence proves about epsilon, shape (tilts,); infinity where it cannot be used."""
    weights = np.array(counts, dtype=np.float64)
    proven = (weights @ moments.log[used] - math.log(delta) - np.log1p(TILTS)) / TILTS + np.log(TILTS / (1.0 + TILTS))
    proven[TILTS * abs(float(weights @ moments.highest[used])) > _MAX_EXPONENT] = math.inf
    return np.asarray(proven)


def plans(
    moments: Moments, used: list[int], counts: list[int], delta: float, best: int, error: float
) -> Iterator[Plan]:
    """The plan of the tilt TILTS[best]; then, should it not do, of ever smaller ones with lower floors.

    Where rare large losses (a sampled release's) make its window so wide that its grid is far too coarse, those of
    smaller tilts that have the finest grids come first. `counts[i] > 0` releases of part `used[i]`; error: by how much
    epsilon may come out too high.
    """
    history = _History.of(moments, used, counts)
    first = history.plan(best, error, delta)
    if first.step > _FAR_TOO_COARSE * history.wanted_step(first.tilt, error):
        others = [history.plan(i, error, delta) for i in range(best)]
        finer = [one for one in others if one.step <= first.step / _FAR_TOO_COARSE]
        yield from sorted(finer, key=lambda one: (one.step, -one.tilt))[:_FINER_TRIES]
    reached = math.inf
    for i in range(best, -1, -1):
        plan = history.plan(i, error, delta)
        floor = plan.window.floor * plan.step
        if floor >= reached or plan.tilt * plan.step > _MAX_TILT_OF_A_STEP:
            continue
        reached = floor
        yield plan


@dataclass(frozen=True, eq=False)
class _History:
    """Moments of the sum of all losses, shape (tilts,); its range; how many releases need splitting."""

    log: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    lowest: float
    highest: float
    scale: float
    few: int
    many: int
    unit: float

    @classmethod
    def of(cls, moments: Moments, used: list[int], counts: list[int]) -> _History:
        weights = np.array(counts, dtype=np.float64)
        ends = (float(weights @ moments.lowest[used]), float(weights @ moments.highest[used]))
        scale = float(np.maximum(moments.highest[used], -moments.lowest[used]).max())
        few = sum(count for i, count in zip(used, counts, strict=True) if moments.few_atoms[i])
        log, mean, variance = (weights @ table[used] for table in (moments.log, moments.mean, moments.variance))
        return cls(log, mean, variance, *ends, scale, few, sum(counts) - few, moments.unit)

    def plan(self, i: int, error: float, delta: float) -> Plan:
        """error: by how much epsilon may come out too high."""
        tilt, beyond = float(TILTS[i]), NEGLIGIBLE * delta
        mean, deviation = float(self.mean[i]), math.sqrt(self.variance[i])
        bottom = max(self.lowest, self._below(i, _STRAY))
        reach = max(min(self.highest, _chernoff(self.log, beyond)), self._above(i, _STRAY)) - bottom
        step, split = self._step(tilt, error, reach)
        log = self.log + split * TILTS * _cost_of_splitting(TILTS) * step**2
        top = min(self.highest + split * step, _chernoff(log, beyond))
        # No epsilon is asked for below 0.
        raised = split * min(step, (2.0 * tilt + 1.0) / 8.0 * step**2)
        floor = max(mean - max(4.0 * deviation, 8.0 / tilt) - raised, self._audible(i, step, delta), -step)
        # What wraps from above must have come from so near that it lands below the floor.
        bottom = min(bottom, top - max(0.0, self._above(i, _STRAY) - floor))
        return Plan(tilt, step, _window(bottom, floor, top, step, beyond), float(log[i]))

    def _step(self, tilt: float, error: float, reach: float) -> tuple[float, int]:
        """(step of the grid, number of releases that it splits)."""
        finest = max(reach / _MAX_WINDOW_CELLS, 2.0 * self.scale / _MAX_PART_CELLS, sys.float_info.min)
        if self.unit >= max(finest, self.wanted_step(tilt, error) / 8.0):
            wanted = math.sqrt(error / (self.many * _cost_of_splitting(tilt))) if self.many else math.inf
            halvings = max(0, math.ceil(math.log2(self.unit / max(min(wanted, self.unit), finest))))
            return self.unit / 2.0**halvings, self.many
        return 2.0 ** math.ceil(math.log2(max(self.wanted_step(tilt, error) / 2.0, finest))), self.few + self.many

    def wanted_step(self, tilt: float, error: float) -> float:
        """Of a grid that is no multiple of anything."""
        wanted = math.sqrt(error / ((self.few + self.many) * _cost_of_splitting(tilt)))
        # Few atoms mean kinks in delta, where a split shows at first order: sqrt(few) half steps in all.
        return min(wanted, 10.0 * error / math.sqrt(self.few)) if self.few else wanted

    def _above(self, i: int, mass: float) -> float:
        """The loss above which at most `mass` lies under tilt i."""
        others = TILTS[i + 1 :] - TILTS[i]
        chernoff = (self.log[i + 1 :] - self.log[i] - math.log(mass)) / others
        return min(self.highest, float(chernoff.min(initial=math.inf)))

    def _below(self, i: int, mass: float) -> float:
        """The loss below which at most `mass` lies under tilt i; tilt 0 always offers itself."""
        others = TILTS[i] - np.append(TILTS[:i], 0.0)
        return float(((self.log[i] - np.append(self.log[:i], 0.0) + math.log(mass)) / others).max())

    def _audible(self, i: int, step: float, delta: float) -> float:
        """The loss below which the rounding of a transform, untilted again, might be heard in delta.

        A cell's is of the order of the machine epsilon over the width in cells; an untilted one of random sign is
        added up over 1 / (tilt x step) cells.
        """
        tilt, width = float(TILTS[i]), max(1.0, math.sqrt(self.variance[i]) / step)
        noise = sys.float_info.epsilon * (16.0 + math.sqrt(self.few + self.many)) / width
        noise *= math.sqrt(1.0 + 1.0 / (tilt * step))
        return (float(self.log[i]) + math.log(noise / (ROUNDING * delta))) / tilt


def _cost_of_splitting(tilt: _Tilts) -> _Tilts:
    """By how many steps^2 of epsilon (at order tilt + 1) each atom's split raises the bound, at most.

    The two halves of a split are a pair whose losses lie within one step, and such a pair is step^2 / 8 of
    zero-concentrated loss (Dong, Durfee & Rogers, ICML 2020, bounded range).
    """
    return (tilt + 1.0) / 8.0


def _chernoff(log_moments: NDArray[np.float64], mass: float) -> float:
    """The loss above which at most `mass` lies."""
    return float(((log_moments - math.log(mass)) / TILTS).min())


def _window(bottom: float, floor: float, top: float, step: float, beyond: float) -> Window:
    highest = math.ceil(top / step) + 1
    size = 1 << max(1, highest - math.floor(bottom / step)).bit_length()
    low = highest - size + 1
    return Window(low, size, min(max(low, math.floor(floor / step)), highest), beyond)
