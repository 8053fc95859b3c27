"""Numbers: exact discrete Laplace noise on a lattice.

Rules of this file: a value is clipped, placed on one of `levels` + 1 lattice points by *randomised* rounding
(unbiased), and gets integer noise of scale levels/epsilon, because replacing one value can move it over the
whole lattice. The *output* is clamped to one interval, the same for every input: that is post-processing and
costs no privacy. The noise itself is never clamped: an input's largest output would give the input away.
Everything between the reading and the decoded total is integers and fractions; a float only enters as the
exact fraction it is, and only leaves in an `Estimate`.
What it does not do: hide how long a draw took (see `client_sdk.sampling`).

Privacy: P(y|j) / P(y|j') = r^(|y-j| - |y-j'|) <= r^-levels = e^epsilon with r = exp(-epsilon/levels); the
clamped ends are sums of such terms, randomised rounding mixes them: neither passes the largest ratio.
Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020); Ghosh,
Roughgarden, Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms" (STOC 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy
from client_sdk.mechanisms.numeric import NumericMechanism, OutputLaw
from client_sdk.sampling import discrete_laplace
from client_sdk.sampling_vectorised import Keystream, add_discrete_laplace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TAIL_SCALES = 45
"""The output's room beyond the lattice, in noise scales: it cuts less than 2^-64 of the probability."""


@dataclass(frozen=True)
class Laplace(NumericMechanism):
    """A number in [lower, upper] -> one integer in [-tail, levels + tail]. Its variance is the same for all readings.

    What the clamp can move a mean by, r^tail, is below every other error of a double and left out of the law.
    """

    scale: Fraction = field(init=False, repr=False, compare=False)
    """Of the noise, in lattice steps: levels / epsilon."""
    tail: int = field(init=False, repr=False, compare=False)
    """Lattice steps that the output may lie outside of [0, levels], on either side."""

    def _prepare(self) -> OutputLaw:
        scale = self.levels / Fraction(self.epsilon)
        tail = math.ceil(TAIL_SCALES * scale)
        self._set(scale=scale, tail=tail)
        noise = Fraction(self.noise_variance)
        return OutputLaw(self.levels, -tail, self.levels + tail, Fraction(1), noise, Fraction(1))

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "laplace"

    def _integers(self) -> dict[str, int]:
        return {"levels": self.levels, "tail": self.tail}

    @property
    def worst_ratio(self) -> float:
        """e^epsilon (r^-levels), rounded up: exact in the discrete Laplace law itself, see the module."""
        return math.nextafter(math.exp(float(self.epsilon)), math.inf)

    @property
    def noise_variance(self) -> float:
        """2r/(1-r)^2 = 1 / (2 sinh(1/(2 scale))^2), in squared lattice steps."""
        return 0.5 / math.sinh(float(1 / (2 * self.scale))) ** 2

    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """The point and discrete Laplace noise, the sum clamped."""
        noisy = point + discrete_laplace(self.scale, entropy)
        return min(max(noisy, -self.tail), self.levels + self.tail)

    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n points -> n clamped sums, shape (n,)."""
        return add_discrete_laplace(self.scale, points, (-self.tail, self.levels + self.tail), stream)
