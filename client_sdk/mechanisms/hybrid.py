"""Numbers: the piecewise mechanism or one bit, by a coin that does not look at the reading.

Rules of this file: with probability `coin` / 2^64 the report is `piecewise`'s; else the lattice point is rounded at
random to one end of the range, kept or turned around as in `one_bit`, and reported as one of two outputs, `low` or
`high`, that lie alike on both sides of the middle. The coin's chance is the slope of the piecewise part, which makes
the variance the same for all readings (but for the rounding of `low` and `high` to integers). The window, and `low` and
`high`, are those with the least worst-case variance. Where one bit alone has less (epsilon up to 0.6075) the coin is
never thrown, and the report is a bit. All of that is exact arithmetic: device and collector must agree on it.
What it does not do: tell which part made a report, or do less work for one of them.

Privacy: both parts are epsilon-LDP and the coin is the same for all readings; so is their mixture.
Source: Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and Analyzing Multidimensional Data with Local
Differential Privacy" (ICDE 2019), the hybrid mechanism; there the window is
K e^(-epsilon/2) and the coin 1 - e^(-epsilon/2), which leaves the worst case larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy
from client_sdk.mechanisms.numeric import NumericMechanism, OutputLaw, noisy_blocks
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.mechanisms.piecewise import Window, valley
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Hybrid(NumericMechanism):
    """A number in [lower, upper] -> one integer in 0 .. levels + window.size - 1, or 0 .. 1 where the coin is 0."""

    coin: int = field(init=False, repr=False, compare=False)
    """The report is the piecewise part's with probability coin / 2^64."""
    keep: int = field(init=False, repr=False, compare=False)
    """In the other part, the end is reported that the point was rounded to with probability keep / 2^64."""
    low: int = field(init=False, repr=False, compare=False)
    high: int = field(init=False, repr=False, compare=False)
    window: Window = field(init=False, repr=False, compare=False)
    """The piecewise part."""

    def _prepare(self) -> OutputLaw:
        self._set(keep=share_numerator(self.epsilon, 1, 1))
        window, coin, gap = _best_mixture(self.epsilon, self.levels)
        widest = window.outputs - 1
        self._set(window=window, coin=coin, low=(widest - gap) // 2, high=(widest + gap) // 2)
        mixed, alone = self._mixture(window, coin, gap), self._bit_alone()
        if mixed.worst_variance() < alone.worst_variance():
            return mixed
        self._set(coin=0, low=0, high=1)
        return alone

    @property
    def _bit_slope(self) -> Fraction:
        return _bit_slope(self.keep)

    def _bit_alone(self) -> OutputLaw:
        return OutputLaw(self.levels, 0, 1, self._bit_slope / self.levels, Fraction(1, 4), Fraction(0))

    def _flat_variance(self, size: int) -> Fraction:
        return _flat_variance(self._bit_slope, self.epsilon, self.levels, size)

    def _mixture(self, window: Window, coin: int, gap: int) -> OutputLaw:
        return _mixture(self._bit_slope, window, coin, gap)

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "hybrid"

    def _integers(self) -> dict[str, int]:
        window = {"levels": self.levels, "window": self.window.size, "inside": self.window.inside}
        return window | {"coin": self.coin, "keep": self.keep, "low": self.low, "high": self.high}

    @property
    def outputs(self) -> int:
        """How many different outputs there are."""
        return self.law.highest + 1

    @property
    def worst_ratio(self) -> Fraction:
        """Over all outputs; one of the two that the bit is placed on, or any other, where the window's ratio holds."""
        if not self.coin:
            return Fraction(self.keep, ONE - self.keep)
        masses = [self.mass(point, self.low) for point in self._turning_points(self.low)]  # `high` mirrors it
        return max(self.window.worst_ratio, max(masses) / min(masses))

    def _turning_points(self, output: int) -> list[int]:
        """Where the mass of an output, linear in the point inside and outside of its window, can be extreme."""
        first, last = output - self.window.size + 1, output
        return [point for point in (0, first - 1, first, last, last + 1, self.levels) if 0 <= point <= self.levels]

    def mass(self, point: int, output: int) -> Fraction:
        """P(output | point): exact."""
        share, keep, up = Fraction(self.coin, ONE), Fraction(self.keep, ONE), Fraction(point, self.levels)
        mass = share * self.window.mass(point, output) if self.coin else Fraction(0)
        if output in (self.low, self.high):
            to_high = up * keep + (1 - up) * (1 - keep)
            mass += (1 - share) * (to_high if output == self.high else 1 - to_high)
        return mass

    def table(self, points: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
        """The masses as floats, shape (points, outputs); without `points` the rows of 0 and `levels`.

        No two rows differ more than those two: true of both parts, and the coin is the same.
        """
        import numpy as np

        points = (0, self.levels) if points is None else points
        rows = np.zeros((len(points), self.outputs))
        if self.coin:
            rows += float(Fraction(self.coin, ONE)) * self.window.table(points)
        for row, point in zip(rows, points, strict=True):
            row[[self.low, self.high]] = [float(self.mass(point, output)) for output in (self.low, self.high)]
        return rows

    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """An output of the piecewise part, or one of the bit's two."""
        end = uniform_below(self.levels, entropy) < point
        bit = bernoulli_2_64(self.keep, entropy) == end
        if not self.coin:
            return self.high if bit else self.low
        piece = self.window.perturb_point(point, entropy)  # both parts are made in any case
        two = self.high if bit else self.low
        return piece if bernoulli_2_64(self.coin, entropy) else two

    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n points -> n outputs, shape (n,)."""
        return noisy_blocks(lambda part: self._perturb_block(part, stream), points)

    def _perturb_block(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        import numpy as np

        end = uniform_below_many(self.levels, points.size, stream) < points
        bit = (stream.words(points.size, 8) < np.uint64(self.keep)) == end
        two = np.where(bit, np.int64(self.high), np.int64(self.low))
        if not self.coin:
            return two
        piece = self.window.perturb_points(points, stream)
        return np.where(stream.words(points.size, 8) < np.uint64(self.coin), piece, two)


def _bit_slope(keep: int) -> Fraction:
    """What the bit's mean gains from one end of the range to the other."""
    return 2 * Fraction(keep, ONE) - 1


@lru_cache(maxsize=256)
def _best_mixture(epsilon: Decimal, levels: int) -> tuple[Window, int, int]:
    """Window, coin and gap with the least worst-case variance. Kept: many metrics of a plan have the same."""
    slope = _bit_slope(share_numerator(epsilon, 1, 1))
    window = Window.of(epsilon, levels, valley(1, levels, lambda size: _flat_variance(slope, epsilon, levels, size)))
    widest = window.outputs - 1
    coin = int(window.law().slope * ONE)

    def cost(half: int) -> Fraction:
        # low + high = widest sets whether their difference is even
        return _mixture(slope, window, coin, 2 * half + widest % 2).worst_variance()

    return window, coin, 2 * valley(0, widest // 2, cost) + widest % 2


def _flat_variance(bit_slope: Fraction, epsilon: Decimal, levels: int, size: int) -> Fraction:
    """The mixture's, on [-1, 1], with a window of `size`, and low and high where both parts have one slope."""
    law = Window.of(epsilon, levels, size).law()
    middle = law.base * Fraction(4, levels**2) / law.slope**2
    return law.slope * middle + (1 - law.slope) / bit_slope**2


def _mixture(bit_slope: Fraction, window: Window, coin: int, gap: int) -> OutputLaw:
    """The law with this coin, and with `gap` between the two outputs of the bit."""
    share, part = Fraction(coin, ONE), window.law()
    slope = share * part.slope + (1 - share) * gap * bit_slope / window.levels
    base = share * part.base + (1 - share) * Fraction(gap, 2) ** 2
    return OutputLaw(window.levels, 0, window.outputs - 1, slope, base, share * part.growth)
