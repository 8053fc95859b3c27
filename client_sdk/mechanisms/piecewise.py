"""Numbers: an output near the reading's lattice point, or any other.

Rules of this file: the point j in 0 .. K has a window of W outputs, j .. j+W-1, among K+W. With a probability that is
an integer over 2^64, rounded *down*, the output is uniform over the window, else uniform over the K others, both by
exact rejection. Then E[y|j] is exactly linear in j, and the estimator undoes the rounded integer. W is the one with
the least worst-case variance, by exact arithmetic: device and collector must agree on it. (The paper's W is
K e^(-epsilon/2); this one is wider, and its worst case less: by 3 % at epsilon 1, 22 % at 3, 53 % at 6.)
What it does not do: tell the spread of the readings. Its variance grows from the middle of the range to the ends; the
sum cannot tell where the readings lay, so its standard error is that of readings at the ends (see `numeric`).

Privacy: window cells have `inside`/(2^64 W), others (2^64 - inside)/(2^64 K): ratio <= e^epsilon, because
inside <= 2^64 W e^epsilon / (W e^epsilon + K).
Source: Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and Analyzing Multidimensional Data with Local
Differential Privacy" (ICDE 2019), the piecewise mechanism, here on integers from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy
from client_sdk.mechanisms.numeric import NumericMechanism, OutputLaw, noisy_blocks
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Window:
    """The law of one window: j in 0 .. levels -> an output in 0 .. levels + size - 1, drawn with `inside` / 2^64."""

    levels: int
    size: int
    inside: int

    @classmethod
    def of(cls, epsilon: Decimal, levels: int, size: int) -> Window:
        """The most probable window that epsilon allows."""
        return cls(levels, size, share_numerator(epsilon, size, levels))

    @property
    def outputs(self) -> int:
        """How many different outputs there are."""
        return self.levels + self.size

    @property
    def worst_ratio(self) -> Fraction:
        """A window cell's probability by any other cell's."""
        return Fraction(self.inside * self.levels, (ONE - self.inside) * self.size)

    def law(self) -> OutputLaw:
        """Every output has `other`; the cells of the window, whose middle moves with the point, have more."""
        inside = Fraction(self.inside, ONE)
        other = (1 - inside) / self.levels
        slope = inside - other * self.size
        base = other * Fraction(self.outputs * (self.outputs**2 - 1), 12) + slope * Fraction(self.size**2 - 1, 12)
        return OutputLaw(self.levels, 0, self.outputs - 1, slope, base, slope)

    def mass(self, point: int, output: int) -> Fraction:
        """P(output | point): exact."""
        if point <= output < point + self.size:
            return Fraction(self.inside, ONE * self.size)
        return Fraction(ONE - self.inside, ONE * self.levels)

    def table(self, points: Sequence[int]) -> npt.NDArray[np.float64]:
        """The masses as floats, shape (points, outputs)."""
        import numpy as np

        rows = np.full((len(points), self.outputs), float(Fraction(ONE - self.inside, ONE * self.levels)))
        for row, point in zip(rows, points, strict=True):
            row[point : point + self.size] = float(Fraction(self.inside, ONE * self.size))
        return rows

    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """An output from the window, or from outside of it."""
        inside = bernoulli_2_64(self.inside, entropy)
        near = point + uniform_below(self.size, entropy)
        far = uniform_below(self.levels, entropy)  # all are drawn in any case: a report's work is the same
        return near if inside else far + self.size * (far >= point)

    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n points -> n outputs, shape (n,)."""
        import numpy as np

        inside = stream.words(points.size, 8) < np.uint64(self.inside)
        near = uniform_below_many(self.size, points.size, stream) + points
        far = uniform_below_many(self.levels, points.size, stream)
        far += self.size * (far >= points)
        return np.where(inside, near, far)


@dataclass(frozen=True)
class Piecewise(NumericMechanism):
    """A number in [lower, upper] -> one integer in 0 .. levels + window.size - 1."""

    window: Window = field(init=False, repr=False, compare=False)

    def _prepare(self) -> OutputLaw:
        self._set(window=Window.of(self.epsilon, self.levels, best_size(self.epsilon, self.levels)))
        return self.window.law()

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "piecewise"

    def _integers(self) -> dict[str, int]:
        return {"levels": self.levels, "window": self.window.size, "inside": self.window.inside}

    @property
    def worst_ratio(self) -> Fraction:
        """A window cell's probability by any other cell's."""
        return self.window.worst_ratio

    def mass(self, point: int, output: int) -> Fraction:
        """P(output | point): exact."""
        return self.window.mass(point, output)

    def table(self, points: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
        """The masses as floats, shape (points, outputs); without `points` the rows of 0 and `levels`.

        No two rows differ more than those two: all rows have two values only, and these windows never overlap.
        """
        return self.window.table((0, self.levels) if points is None else points)

    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """An output from the point's window, or from outside of it."""
        return self.window.perturb_point(point, entropy)

    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n points -> n outputs, shape (n,)."""
        return noisy_blocks(lambda part: self.window.perturb_points(part, stream), points)


@lru_cache(maxsize=256)
def best_size(epsilon: Decimal, levels: int) -> int:
    """Cells of the window with the least worst-case variance. Kept: many metrics of a plan have the same."""
    return valley(1, levels, lambda size: Window.of(epsilon, levels, size).law().worst_variance())


def valley(smallest: int, largest: int, cost: Callable[[int], Fraction]) -> int:
    """Where a cost that falls, then rises, over smallest .. largest is least: by halving, in exact arithmetic."""
    while smallest < largest:
        middle = (smallest + largest) // 2
        if cost(middle) <= cost(middle + 1):
            largest = middle
        else:
            smallest = middle + 1
    return smallest
