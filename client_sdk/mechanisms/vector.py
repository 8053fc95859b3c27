"""Vectors: clipped to a ball, placed on a lattice, and every coordinate behind noise of its own.

What both mechanisms for vectors share, and the one for L1: discrete Laplace noise of scale 2 levels / epsilon on each
coordinate, because replacing one vector by another moves its point by at most 2 levels in L1 (`ball.py`). Under *add or
remove one vector* it would be half of that; the relation here is *replace one value*, as everywhere.

Rules of this file: the *output* of each coordinate is clamped to one interval, the same for every input; the noise
itself never. A coordinate's estimate has the same error whatever the vectors are. Between the point and the decoded
total there is no float. Short vectors are perturbed with the standard library alone, long ones in bulk.
What it does not do: hide how long a draw took (see `client_sdk.sampling`); clip an estimate.

Privacy (L1): P(y | v) / P(y | v') = prod r^(|y_i - v_i| - |y_i - v'_i|) <= r^-(2 levels) = e^epsilon. In a sum the
worst case is that all of the distance lies in one coordinate. Let G_a(alpha) be the best power at level alpha of a test
of noise against noise shifted by a. A test of (0, 0) against (a, b) at level alpha has, given the first coordinate, at
most the power G_b of its level there against (0, b), so at most G_b(alpha) on average (G_b is concave); likewise G_a of
that against (a, b). And G_a(G_b(alpha)) = G_(a+b)(alpha), because noise, a sum's too, is log-concave: the same tests,
those of a threshold, are best for every shift. So the accountant takes a number's noise on a lattice of 2 levels.
Source: Dwork, McSherry, Nissim, Smith (TCC 2006); Canonne, Kamath, Steinke (NeurIPS 2020).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError
from client_sdk.mechanisms import Answer, Entropy, Estimate, Value, Vector, check_total
from client_sdk.mechanisms.ball import Ball, Norm
from client_sdk.mechanisms.lattice import LARGEST, SMALLEST, levels_problems
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.sampling import discrete_laplace
from client_sdk.sampling_vectorised import Keystream, add_discrete_laplace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DIMENSION_MAX: Final = 1_000_000
LEVELS: Final = 4096
"""Steps of the lattice from 0 to the clipping norm, where the plan names none."""

BULK_FROM: Final = 16
"""Vectors of so many coordinates are perturbed in bulk: below, numpy's calls would cost more than they save."""

TAIL_SCALES: Final = 45


@dataclass(frozen=True)
class VectorMechanism(ABC):
    """A vector of `dimension` numbers -> as many integers. PlanError for parameters that cannot work.

    clip: the norm that vectors are scaled down to, in the metric's own unit. epsilon: of one report, in [1e-6, 40].
    levels: steps of the lattice from 0 to `clip`, 1 .. 2^20.
    """

    dimension: int
    clip: Decimal
    epsilon: Decimal
    levels: int = LEVELS
    ball: Ball = field(init=False, repr=False, compare=False)
    tail: int = field(init=False, repr=False, compare=False)
    """Lattice steps that an output may lie beyond `levels`, on either side."""

    def __post_init__(self) -> None:
        exact = {name: as_decimal(name, getattr(self, name)) for name in ("clip", "epsilon")}
        problems = [*epsilon_problems(exact["epsilon"]), *levels_problems(self.levels, fewest=1)]
        problems += [*dimension_problems(self.dimension), *clip_problems(exact["clip"]), *self._problems()]
        if problems:
            raise PlanError(problems)
        self._set(**exact)
        self._set(ball=Ball(self.dimension, float(self.clip), self._norm, self.levels))
        self._set(tail=self._prepare())
        if Fraction(self.clip) / self.levels * self.bound > LARGEST:
            raise PlanError("clip: is too large, an estimate would not be finite")

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _problems(self) -> list[str]:
        """What is wrong with the mechanism's own parameters."""
        return []

    @property
    @abstractmethod
    def _norm(self) -> Norm:
        """Which ball."""

    @abstractmethod
    def _prepare(self) -> int:
        """Work out the noise, once the ball stands; returns the tail."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The plan's word for this mechanism."""

    @property
    def length(self) -> int:
        """One integer a coordinate."""
        return self.dimension

    @property
    def bound(self) -> int:
        """Largest absolute value of one."""
        return self.levels + self.tail

    @property
    def labels(self) -> tuple[str, ...]:
        """Coordinates by their place: "0", "1", ..."""
        return _places(self.dimension)

    @property
    def answer(self) -> Answer:
        """A mean of each coordinate."""
        return "vector"

    @property
    @abstractmethod
    def worst_ratio(self) -> Fraction | float:
        """e to the epsilon of the integers that ship, at the mechanism's delta."""

    @property
    @abstractmethod
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """One."""

    @property
    @abstractmethod
    def noise_variance(self) -> float:
        """Of one coordinate's noise, in squared lattice steps."""

    @property
    def unit(self) -> Fraction:
        """One lattice step, in the metric's unit."""
        return Fraction(self.clip) / self.levels

    @property
    def deviation(self) -> float:
        """Of one coordinate's noise in one report, in the metric's unit."""
        return float(self.unit) * math.sqrt(self.noise_variance)

    # --- device ---------------------------------------------------------------------------------------

    @abstractmethod
    def _noise(self, entropy: Entropy) -> int:
        """One draw."""

    @abstractmethod
    def _add_noise(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """points, shape (n,), and noise, clamped."""

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One vector -> its noisy point. ValueRefusedError (wrong type or length, not finite) before any entropy."""
        if self.dimension >= BULK_FROM:
            noisy: Vector = self.perturb_many([value], entropy)[0].tolist()
            return noisy
        return [self._clamped(point + self._noise(entropy)) for point in self.ball.encode(value, entropy)]

    def _clamped(self, output: int) -> int:
        return min(max(output, -self.bound), self.bound)

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n vectors (rows of an array, or any sequence of vectors) -> shape (n, dimension)."""
        points, stream = self.ball.encode_many(values, entropy)
        return self._add_noise(points.reshape(-1), stream).reshape(points.shape)

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """The sum of n reports -> the mean of each coordinate, in the metric's unit, unbiased for the clipped vectors.

        Errors: noise, and at most 1/4 of a squared step for the rounding. For a population: at most what coordinates
        in [-clip, clip] with this mean can vary, which is far too much where many coordinates share the norm.
        """
        import numpy as np

        check_total(self.length, total, contributors)
        if contributors == 0:
            return Estimate.empty(self.length)
        # as Python's integers: the totals of many rounds may need more than 64 bits
        means = np.array([int(cell) / contributors for cell in total])
        unit, noise = float(self.unit), self.noise_variance + 0.25
        spread = np.maximum(self.levels**2 - means**2, 0.0)
        population = unit * np.sqrt((noise + spread) / contributors)
        error = unit * math.sqrt(noise / contributors)
        return Estimate(
            tuple((unit * means).tolist()), (error,) * self.length, contributors, tuple(population.tolist())
        )

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """As many cells as coordinates, each within what so many reports can add up to."""
        if len(total) != self.length:
            return False
        most = contributors * self.bound
        return -most <= min(total) and max(total) <= most


@dataclass(frozen=True)
class VectorLaplace(VectorMechanism):
    """Clipped in L1. Its epsilon is pure."""

    scale: Fraction = field(init=False, repr=False, compare=False)
    """Of the noise, in lattice steps: 2 levels / epsilon."""

    @property
    def _norm(self) -> Norm:
        return "l1"

    def _prepare(self) -> int:
        self._set(scale=self.ball.sensitivity / Fraction(self.epsilon))
        # So far out that of a whole sum of long vectors nothing is ever clamped that could show: dimension e^-tail
        # is below e^-(45 + epsilon).
        scales = TAIL_SCALES + self.dimension.bit_length() + math.ceil(self.epsilon)
        return math.ceil(scales * self.scale)

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "laplace"

    @property
    def worst_ratio(self) -> float:
        """e^epsilon (r^-(2 levels)), rounded up: exact in the law itself, see the module."""
        return math.nextafter(math.exp(float(self.epsilon)), math.inf)

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """That of a number on a lattice of 2 levels, see the module."""
        return (PrivacyLoss.of("laplace", self.epsilon, levels=self.ball.sensitivity, tail=self.tail),)

    @property
    def noise_variance(self) -> float:
        """2r/(1-r)^2 = 1 / (2 sinh(1/(2 scale))^2), in squared lattice steps."""
        return 0.5 / math.sinh(float(1 / (2 * self.scale))) ** 2

    def _noise(self, entropy: Entropy) -> int:
        return discrete_laplace(self.scale, entropy)

    def _add_noise(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        return add_discrete_laplace(self.scale, points, (-self.bound, self.bound), stream)


def dimension_problems(dimension: int) -> list[str]:
    """Why vectors cannot have so many coordinates (no line: they can)."""
    if isinstance(dimension, bool) or not isinstance(dimension, int) or not 1 <= dimension <= DIMENSION_MAX:
        return [f"dimension: must be an integer between 1 and {DIMENSION_MAX}, not {dimension}"]
    return []


def clip_problems(clip: Decimal) -> list[str]:
    """Why vectors cannot be clipped to this norm (no line: they can). Sizes first, in floats."""
    if not (clip.is_finite() and clip > 0):
        return [f"clip: must be a finite number above 0, not {clip}"]
    if not float(SMALLEST) <= float(clip) <= float(LARGEST):
        return [f"clip: {clip} is too close to 0 or too large"]
    return []


@lru_cache(maxsize=4)
def _places(dimension: int) -> tuple[str, ...]:
    return tuple(map(str, range(dimension)))
