"""The epsilon of many releases together, whatever each is, at a stated accuracy.

Each pair is put on a grid, its transform is taken under a tilt, powers of transforms are multiplied, and one inverse
gives the composed losses around the answer (`pld.py`); `tilting.py` chooses the grid, the tilt and the window.
What it does not do: it is no privacy filter. The releases must have been fixed before any of their outcomes was seen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar, cast

from collector.accounting.pairs import LossPair, check_delta
from collector.accounting.pld import Atoms, LossDistribution, Spectrum, any_infinite, composed, log_moment
from collector.accounting.tilting import NEGLIGIBLE, ROUNDING, Moments, Plan, plans, renyi_bounds

TOLERANCE: Final = 1e-5
"""By about what share of itself an epsilon may come out too high. It never comes out too low.

No grid is finer than about a millionth of the widest loss, so an epsilon far below that is known less well.
"""

_SMALL: Final = 1e-6
"""Epsilons below this are not told apart to the tolerance."""

_CACHE_BYTES: Final = 1 << 28

_T = TypeVar("_T")


class _Cache:
    """Keeps the most recently used values up to a number of bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._free = capacity_bytes

    def get(self, key: Hashable, make: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        if key in self._entries:
            self._entries.move_to_end(key)
            return cast("_T", self._entries[key][0])
        value = make()
        self._entries[key] = value, size(value)
        self._free -= size(value)
        while self._free < 0 and len(self._entries) > 1:
            self._free += self._entries.popitem(last=False)[1][1]
        return value


class Composer:
    """Composes counts of a fixed list of pairs. Keeps grids and spectra, so that one composer serves a whole fleet.

    pairs: the releases that histories consist of; a history is one count per pair. Not to be shared by threads.
    """

    def __init__(self, pairs: Sequence[LossPair], tolerance: float = TOLERANCE) -> None:
        if not 0.0 < tolerance < 1.0:
            raise ValueError(f"the tolerance is a share of epsilon between 0 and 1, got {tolerance!r}")
        self._pairs = tuple(pairs)
        self._tolerance = tolerance
        self._pure = [pair.epsilon(0.0) for pair in self._pairs]
        self._sorted = [Atoms.of(pair) for pair in self._pairs]
        self._trims: dict[float, tuple[list[Atoms], Moments]] = {}
        self._grids, self._spectra = _Cache(_CACHE_BYTES), _Cache(_CACHE_BYTES)

    def epsilon(self, counts: Sequence[int], delta: float) -> float:
        """The epsilon of `counts[i]` releases of pair i; never above the sum of the pure epsilons.

        Infinity where delta is below what the pairs leave out. Raises ValueError for counts that do not fit.
        """
        check_delta(delta)
        self._check(counts)
        used = [i for i, count in enumerate(counts) if count]
        pure = math.fsum(counts[i] * self._pure[i] for i in used)
        if delta == 0.0 or not used:
            return pure
        if sum(counts) == 1:
            return self._pairs[used[0]].epsilon(delta)
        return min(pure, self._composed_epsilon(used, [int(counts[i]) for i in used], delta))

    def _check(self, counts: Sequence[int]) -> None:
        if len(counts) != len(self._pairs):
            raise ValueError(f"a history needs one count per pair: {len(self._pairs)} pairs, {len(counts)} counts")
        if any(count < 0 for count in counts):
            raise ValueError(f"a count of releases cannot be negative, got {min(counts)}")

    def _composed_epsilon(self, used: list[int], counts: list[int], delta: float) -> float:
        # A power of two, so that neighbouring histories share their grids.
        trim = 2.0 ** math.floor(math.log2(NEGLIGIBLE * delta / (2 * sum(counts))))
        atoms, moments = self._trimmed(trim)
        infinite = any_infinite([atoms[i].infinite for i in used], counts)
        if infinite >= delta:
            return math.inf
        bounds = renyi_bounds(moments, used, counts, delta)
        best = int(bounds.argmin())
        bound = max(float(bounds[best]), _SMALL)

        def attempt(error: float) -> float:
            for plan in plans(moments, used, counts, delta, best, error):
                spectra = [self._spectrum(i, plan, trim) for i in used]
                if not plan.explains(log_moment(spectra, counts)):
                    continue
                loss = composed(spectra, counts, plan.step, plan.window, infinite)
                start = max(0.0, float(loss.losses[0]))
                if start == 0.0 or loss.delta(start) > delta:
                    return loss.epsilon(delta * (1.0 - ROUNDING), start)
            return math.inf  # nothing that can be believed: the pure sum stands

        epsilon = attempt(self._tolerance * bound)
        # Far below the Renyi bound (rare large losses) the grid was too coarse for it.
        return min(epsilon, attempt(self._tolerance * max(epsilon, _SMALL))) if epsilon < bound / 2.0 else epsilon

    def _trimmed(self, trim: float) -> tuple[list[Atoms], Moments]:
        if trim not in self._trims:
            atoms = [one.trimmed(trim) for one in self._sorted]
            self._trims[trim] = atoms, Moments.of(atoms)
        return self._trims[trim]

    def _spectrum(self, i: int, plan: Plan, trim: float) -> Spectrum:
        def grid() -> LossDistribution:
            return self._trimmed(trim)[0][i].on_grid(plan.step)

        def spectrum() -> Spectrum:
            part = self._grids.get((i, trim, plan.step), grid, lambda part: part.masses.nbytes)
            return Spectrum.of(part, plan.tilt, plan.window.size)

        key = (i, trim, plan.step, plan.tilt, plan.window.size)
        return self._spectra.get(key, spectrum, lambda made: made.log_transform.nbytes)
