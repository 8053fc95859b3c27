"""What every mechanism for numbers shares: a lattice point in, one integer out, the mean back.

Rules of this file: every mechanism's output y has a mean that is exactly linear in the lattice point, and a mean
square that is exactly quadratic in it. So the sum of many reports holds the sum of their points, undone with the
integers that were drawn with, and everything that an error bar needs is three rational numbers (`OutputLaw`).
Between the point and the decoded total there is no float.
What it does not do: clip an estimate; it may lie outside of the range.

Error bars. A sum shows the mean of the readings and nothing of their spread. With t a reading's distance from the
middle of the range, in steps, one report's variance is base + (growth - slope^2) t^2, plus at most growth/4 for the
rounding. Where it grows with t^2, that takes the largest t^2 there can be: the error holds for every cohort, and is
too large where readings lie near the middle. Where it falls with t^2, it takes the cohort's mean, which is the least
that the mean of t^2 can be. For a population that the contributors are a sample of, t varies too: its mean square is
at most what a population with this mean can have, all at the ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError
from client_sdk.mechanisms import Answer, Entropy, Estimate, Value, Vector, check_total
from client_sdk.mechanisms.lattice import LARGEST, Lattice, levels_problems, range_problems
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.sampling_vectorised import BLOCK, Keystream, in_blocks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """One report's integer y in lowest .. highest, given its lattice point: t steps from the middle of `steps`.

    E[y] - (lowest + highest)/2 = slope t; the mean square of the same is base + growth t^2. Exact, of the integers
    that are drawn with.
    """

    steps: int
    lowest: int
    highest: int
    slope: Fraction
    base: Fraction
    growth: Fraction

    @property
    def centre(self) -> Fraction:
        """The mean of y at the middle of the range."""
        return Fraction(self.lowest + self.highest, 2)

    def position(self, total: int, contributors: int) -> Fraction:
        """A sum of y -> the mean position in steps, unbiased; it may lie outside of [0, steps]."""
        return Fraction(self.steps, 2) + (Fraction(total, contributors) - self.centre) / self.slope

    def cohort_variance(self, position: Fraction) -> Fraction:
        """Of y, on average over a cohort with this mean position: a bound for all such cohorts (see the module)."""
        rise = self.growth - self.slope**2
        square = Fraction(self.steps, 2) ** 2 if rise >= 0 else self._from_middle(position) ** 2
        return self.base + rise * square + self.growth / 4

    def population_variance(self, position: Fraction) -> Fraction:
        """Of y for a reading drawn from a population with this mean position: a bound for all such populations."""
        ends, middle = Fraction(self.steps, 2), self._from_middle(position)
        return self.base + self.growth * (ends**2 + Fraction(1, 4)) - self.slope**2 * middle**2

    def worst_variance(self) -> Fraction:
        """Of one report's estimate for any reading, as if the range were [-1, 1]."""
        worst = self.cohort_variance(Fraction(self.steps, 2))
        return worst * Fraction(4, self.steps**2) / self.slope**2

    def _from_middle(self, position: Fraction) -> Fraction:
        ends = Fraction(self.steps, 2)
        return min(abs(position - ends), ends)


@dataclass(frozen=True)
class NumericMechanism(ABC):
    """A number in [lower, upper] -> one integer. PlanError for parameters that cannot work.

    lower, upper: the range that readings are clipped to, in the metric's own unit.
    epsilon: of one report, in [1e-6, 40].
    levels: steps of the lattice over the range, 2 .. 2^20.
    """

    lower: Decimal
    upper: Decimal
    epsilon: Decimal
    levels: int = 1000
    lattice: Lattice = field(init=False, repr=False, compare=False)
    law: OutputLaw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exact = {name: as_decimal(name, getattr(self, name)) for name in ("lower", "upper", "epsilon")}
        problems = [*epsilon_problems(exact["epsilon"]), *levels_problems(self.levels)]
        problems += range_problems(exact["lower"], exact["upper"])
        if problems:
            raise PlanError(problems)
        self._set(**exact)
        self._set(lattice=self._make_lattice())
        self._set(law=self._prepare())
        one_step = self.lattice.width / self.lattice.levels
        reach = Fraction(self.law.highest - self.law.lowest, 2) / self.law.slope + Fraction(self.lattice.levels, 2)
        if abs(self.lattice.low) + one_step * reach > LARGEST:
            raise PlanError("upper: the range is too wide, an estimate over it would not be finite")

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _make_lattice(self) -> Lattice:
        return Lattice(self.lower, self.upper, self.levels)

    @abstractmethod
    def _prepare(self) -> OutputLaw:
        """Work out the mechanism's integers, once the lattice and epsilon stand."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The plan's word for this mechanism."""

    @property
    def length(self) -> int:
        """One integer."""
        return 1

    @property
    def bound(self) -> int:
        """Largest absolute value of that integer."""
        return max(abs(self.law.lowest), abs(self.law.highest))

    @property
    def labels(self) -> tuple[str, ...]:
        """One estimate: the mean."""
        return ("mean",)

    @property
    def answer(self) -> Answer:
        """A mean."""
        return "mean"

    @property
    @abstractmethod
    def worst_ratio(self) -> Fraction | float:
        """Largest P(y|x) / P(y|x') over all inputs and outputs; at most e^epsilon."""

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """One, with the integers that the mechanism draws with."""
        return (PrivacyLoss.of(self.name, self.epsilon, **self._integers()),)

    @abstractmethod
    def _integers(self) -> dict[str, int]:
        """What fixes the shipped law, beside epsilon."""

    @property
    def worst_case_variance(self) -> float:
        """Of one report's estimate for any reading, rounding included, as if the range were [-1, 1]."""
        return float(self.law.worst_variance())

    # --- device ---------------------------------------------------------------------------------------

    @abstractmethod
    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """One lattice point -> one noisy integer."""

    @abstractmethod
    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n lattice points -> n noisy integers, shape (n,): the law of `perturb_point`."""

    def perturb(self, value: Value | Fraction, entropy: Entropy) -> Vector:
        """One reading -> one integer. ValueRefusedError (wrong type, not finite) before any entropy."""
        return [self.perturb_point(self.encode(value, entropy), entropy)]

    def encode(self, value: Value | Fraction, entropy: Entropy) -> int:
        """The lattice point for one reading, clipped and rounded at random: unbiased, not private."""
        return self.lattice.encode(value, entropy)

    def perturb_many(
        self, values: Sequence[Value] | Sequence[Fraction] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n readings -> shape (n, 1). Float and integer arrays are placed in bulk, anything else one by one.

        ValueRefusedError where any reading is refused, before any entropy is drawn.
        """
        points, stream = self.lattice.encode_many(values, entropy)
        return self.perturb_points(points, stream).reshape(-1, 1)

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """[sum of n reports] -> the mean in the metric's unit, unbiased for the clipped readings, never clipped itself.

        Errors: see the module; each report is perturbed independently.
        """
        check_total(self.length, total, contributors)
        if contributors == 0:
            return Estimate.empty(1)
        position = self.law.position(int(total[0]), contributors)
        unit = float(self.lattice.width / self.lattice.levels / self.law.slope)
        cohort, population = (
            unit * math.sqrt(variance / contributors)
            for variance in (self.law.cohort_variance(position), self.law.population_variance(position))
        )
        return Estimate((float(self.lattice.value_at(position)),), (cohort,), contributors, (population,))

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """One cell, within what so many reports can add up to."""
        if len(total) != self.length:
            return False
        return contributors * self.law.lowest <= total[0] <= contributors * self.law.highest


def noisy_blocks(
    perturb: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int64]], points: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """`perturb` over n points, a block at a time."""
    import numpy as np

    return in_blocks(perturb, points, np.empty(points.size, np.int64), BLOCK)
