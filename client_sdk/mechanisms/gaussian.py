"""Vectors clipped in L2, behind exact discrete Gaussian noise: (epsilon, delta), and a zero-concentrated loss rho.

Rules of this file: the sensitivity is that of the integers that ship, under *replace one value*: two points of the ball
lie at most 2 sqrt((levels + 1)^2 + dimension / 4) apart (`ball.py`), which is 2 clip and what rounding can add; under
*add or remove one vector* it would be half of that. The variance is an integer of squared steps; rho = sensitivity^2 /
(2 variance) is exact for the discrete Gaussian (CKS20, theorem 14). The output is clamped, the noise never.
What it does not do: keep an epsilon at delta 0. No Gaussian has one.

(epsilon, delta): a discrete Gaussian of variance v is what becomes of a continuous one of variance v - 9 when each
coordinate is rounded by a discrete Gaussian of variance 9 around it, up to a factor of 1 + 10^-70 in every probability
of a million coordinates (Poisson summation: such a rounding's sum over the lattice depends on where it is centred by
4 exp(-18 pi^2) of itself). Rounding is post-processing. So the analytic calibration of the continuous mechanism holds
with nine squared steps more, and a 10^-15 part of the variance for that factor.
Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020); Peikert, "An
Efficient and Parallel Gaussian Sampler for Lattices" (CRYPTO 2010), for the convolution; `calibration.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.mechanisms import Entropy
from client_sdk.mechanisms.ball import Norm
from client_sdk.mechanisms.calibration import analytic_ratio, classic_ratio, delta_problems, smallest_epsilon
from client_sdk.mechanisms.vector import VectorMechanism
from client_sdk.sampling import discrete_gaussian
from client_sdk.sampling_gaussian import add_discrete_gaussian
from client_sdk.sampling_vectorised import Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ROUNDING_VARIANCE: Final = 9
"""Squared steps that the discrete Gaussian has beyond the continuous one that it is a rounding of."""

TAIL_DEVIATIONS: Final = 14
"""The output's room beyond the lattice: noise leaves it once in 10^42 coordinates."""

LARGEST_EPSILON: Final = Decimal(200)
CALIBRATIONS: Final = ("analytic", "classic")
_SLACK: Final = 1 + Fraction(1, 10**15)


@dataclass(frozen=True)
class VectorGaussian(VectorMechanism):
    """Clipped in L2. delta: in [1e-18, 1e-5]. calibration: `analytic`, or `classic` below epsilon 1."""

    delta: Decimal = Decimal("1e-6")
    calibration: str = "analytic"
    variance: int = field(init=False, repr=False, compare=False)
    """Of the noise, in squared lattice steps."""

    def _problems(self) -> list[str]:
        problems = delta_problems(self.delta)
        if self.calibration not in CALIBRATIONS:
            problems.append(f"calibration: must be one of {', '.join(CALIBRATIONS)}, not {self.calibration!r}")
        return problems

    @property
    def _norm(self) -> Norm:
        return "l2"

    def _prepare(self) -> int:
        calibrated = analytic_ratio if self.calibration == "analytic" else classic_ratio
        ratio = calibrated(self.epsilon, self.delta)
        variance = math.ceil(self.ball.sensitivity_squared * ratio**2 * _SLACK) + ROUNDING_VARIANCE
        self._set(variance=variance)
        return TAIL_DEVIATIONS * (math.isqrt(variance) + 1)

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "gaussian"

    @property
    def worst_ratio(self) -> float:
        """e to the epsilon that the shipped integers have at delta, rounded up."""
        exact = _epsilon_of(self.ball.sensitivity_squared, self.variance, self.delta)
        return math.nextafter(math.exp(float(exact)), math.inf)

    @property
    def rho(self) -> Fraction:
        """The zero-concentrated loss of one report, exact."""
        return Fraction(self.ball.sensitivity_squared, 2 * self.variance)

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """One, with the integers that fix the shipped law."""
        pure = PrivacyLoss.of(self.name, self.epsilon)
        integers = {
            "variance": self.variance,
            "sensitivity_squared": self.ball.sensitivity_squared,
            "tail": self.tail,
            "dimension": self.dimension,
        }
        return (
            PrivacyLoss(
                self.name,
                self.epsilon,
                pure.micro_epsilon,
                tuple(integers.items()),
                delta=self.delta,
                micro_rho=math.ceil(self.rho * 10**6),
            ),
        )

    @property
    def noise_variance(self) -> float:
        """In squared lattice steps: the parameter, which the discrete Gaussian's own is at most."""
        return float(self.variance)

    def _noise(self, entropy: Entropy) -> int:
        return discrete_gaussian(Fraction(self.variance), entropy)

    def _add_noise(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        return add_discrete_gaussian(Fraction(self.variance), points, (-self.bound, self.bound), stream)


@lru_cache(maxsize=64)
def _epsilon_of(sensitivity_squared: int, variance: int, delta: Decimal) -> Decimal:
    """At most LARGEST_EPSILON is looked for, far above what any plan claims."""
    with localcontext(Context(prec=60)):
        shift = (Decimal(sensitivity_squared) / (variance - ROUNDING_VARIANCE)).sqrt()
        return smallest_epsilon(shift, delta, LARGEST_EPSILON)
