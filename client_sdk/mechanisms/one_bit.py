"""Numbers: one bit whose chance of being 1 is linear in the reading.

Rules of this file: the reading's position in its range is rounded at random to 0 or 1 (unbiased, exact); that bit is
kept with a probability that is an integer over 2^64, rounded *down*, and turned around otherwise. The estimator undoes
the integer, not the formula. `levels` is taken as other numbers' is, and changes nothing: the range is one step.
What it does not do: get better where readings lie together; it is the best for epsilon up to 0.6 (`hybrid` above).

Privacy: largest ratio = keep / (2^64 - keep) <= e^epsilon, because keep <= 2^64 e^epsilon/(e^epsilon + 1).
Source: Duchi, Jordan, Wainwright, "Minimax Optimal Procedures for Locally Private Estimation" (JASA 2018); Ding,
Kulkarni, Yekhanin, "Collecting Telemetry Data Privately" (NeurIPS 2017), 1BitMean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy
from client_sdk.mechanisms.lattice import Lattice
from client_sdk.mechanisms.numeric import NumericMechanism, OutputLaw, noisy_blocks
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64
from client_sdk.sampling_vectorised import Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class OneBit(NumericMechanism):
    """A number in [lower, upper] -> 0 or 1."""

    keep: int = field(init=False, repr=False, compare=False)
    """The rounded position is reported with probability keep / 2^64."""

    def _make_lattice(self) -> Lattice:
        return Lattice(self.lower, self.upper, 1)

    def _prepare(self) -> OutputLaw:
        keep = share_numerator(self.epsilon, 1, 1)
        self._set(keep=keep)
        return OutputLaw(1, 0, 1, 2 * Fraction(keep, ONE) - 1, Fraction(1, 4), Fraction(0))

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "one_bit"

    def _integers(self) -> dict[str, int]:
        return {"keep": self.keep}

    @property
    def worst_ratio(self) -> Fraction:
        """keep / (2^64 - keep)."""
        return Fraction(self.keep, ONE - self.keep)

    def mass(self, point: int, output: int) -> Fraction:
        """P(output | point), both 0 or 1: exact."""
        return Fraction(self.keep if output == point else ONE - self.keep, ONE)

    def table(self) -> npt.NDArray[np.float64]:
        """The masses as floats, shape (2, 2): rows are the ends of the range; a reading between mixes them."""
        import numpy as np

        return np.array([[float(self.mass(point, output)) for output in (0, 1)] for point in (0, 1)])

    def perturb_point(self, point: int, entropy: Entropy) -> int:
        """The bit, kept or turned around."""
        return point if bernoulli_2_64(self.keep, entropy) else 1 - point

    def perturb_points(self, points: npt.NDArray[np.int32], stream: Keystream) -> npt.NDArray[np.int64]:
        """n bits, each kept or turned around, shape (n,)."""
        import numpy as np

        return noisy_blocks(lambda part: part ^ (stream.words(part.size, 8) >= np.uint64(self.keep)), points)
