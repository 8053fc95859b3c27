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
import numbers
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Entropy, Estimate, Value, Vector
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.sampling import bernoulli, discrete_laplace
from client_sdk.sampling_vectorised import BLOCK, Keystream, add_discrete_laplace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEVELS_MAX = 1 << 20
TAIL_SCALES = 45
"""The output's room beyond the lattice, in noise scales: it cuts less than 2^-64 of the probability."""

_SMALLEST = Fraction(1, 10**290)
_LARGEST = Fraction(sys.float_info.max) / 4
"""Sizes of ends, widths and estimates that a double can hold with room to spare."""


@dataclass(frozen=True)
class Laplace:
    """A number in [lower, upper] -> one integer in [-tail, levels + tail]. PlanError for parameters that cannot work.

    lower, upper: the range that readings are clipped to, in the metric's own unit.
    epsilon: of one report, in [1e-6, 40].
    levels: steps of the lattice over the range, 2 .. 2^20.
    """

    lower: Decimal
    upper: Decimal
    epsilon: Decimal
    levels: int = 1000
    scale: Fraction = field(init=False, repr=False, compare=False)
    """Of the noise, in lattice steps: levels / epsilon."""
    tail: int = field(init=False, repr=False, compare=False)
    """Lattice steps that the output may lie outside of [0, levels], on either side."""
    _lower: Fraction = field(init=False, repr=False, compare=False)
    _width: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exact = {name: as_decimal(name, getattr(self, name)) for name in ("lower", "upper", "epsilon")}
        problems = [*epsilon_problems(exact["epsilon"]), *_levels_problems(self.levels)]
        problems += _range_problems(exact["lower"], exact["upper"])
        if problems:
            raise PlanError(problems)
        scale = self.levels / Fraction(exact["epsilon"])
        lower = Fraction(exact["lower"])
        derived = {
            "scale": scale,
            "tail": math.ceil(TAIL_SCALES * scale),
            "_lower": lower,
            "_width": Fraction(exact["upper"]) - lower,
        }
        for name, value in (exact | derived).items():
            object.__setattr__(self, name, value)
        farthest = abs(lower) + self._width * (1 + Fraction(self.tail, self.levels))
        if farthest > _LARGEST:
            raise PlanError("upper: the range is too wide, an estimate over it would not be finite")

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "laplace"

    @property
    def length(self) -> int:
        """One integer."""
        return 1

    @property
    def bound(self) -> int:
        """Largest absolute value of that integer."""
        return self.levels + self.tail

    @property
    def labels(self) -> tuple[str, ...]:
        """One estimate: the mean."""
        return ("mean",)

    # --- device ---------------------------------------------------------------------------------------

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One reading -> [noisy lattice point]. ValueRefusedError (wrong type, not finite) before any entropy."""
        noisy = self.encode(value, entropy) + discrete_laplace(self.scale, entropy)
        return [min(max(noisy, -self.tail), self.levels + self.tail)]

    def encode(self, value: Value, entropy: Entropy) -> int:
        """The lattice point in 0 .. levels for one reading, clipped and rounded at random: unbiased, not private."""
        whole, rest = divmod(self._position(value), 1)
        return whole + bernoulli(rest, entropy)

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n readings -> shape (n, 1). Float and integer arrays are placed in bulk, anything else one by one.

        ValueRefusedError where any reading is refused, before any entropy is drawn.
        """
        array = _float_array(values)
        if array is None:
            positions = [self._position(value) for value in values]
            stream = Keystream(entropy)
            points = _round_each(positions, stream)
        else:
            array = self._clipped(array)
            stream = Keystream(entropy)
            points = self._place(array, stream)
        return add_discrete_laplace(self.scale, points, (-self.tail, self.levels + self.tail), stream).reshape(-1, 1)

    def _position(self, value: Value) -> Fraction:
        """Where a reading lies on [0, levels], exactly; clipped."""
        position = (_exact_number(value) - self._lower) * self.levels / self._width
        return min(max(position, Fraction(0)), Fraction(self.levels))

    def _clipped(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Finite floats, none beyond the next float outside of the range; ValueRefusedError for NaN and infinity."""
        import numpy as np

        if not values.size:
            return values
        smallest, largest = float(values.min()), float(values.max())  # a NaN passes through both
        if not (math.isfinite(smallest) and math.isfinite(largest)):
            raise ValueRefusedError("", RefusalReason.NOT_FINITE)
        low, high = self._float_ends()
        return values if low <= smallest and largest <= high else np.clip(values, low, high)

    def _float_ends(self) -> tuple[float, float]:
        """The next floats outside of the range."""
        return (
            math.nextafter(float(self._lower), -math.inf),
            math.nextafter(float(self._lower + self._width), math.inf),
        )

    def _place(self, values: npt.NDArray[np.float64], stream: Keystream) -> npt.NDArray[np.int32]:
        """`encode` for a clipped float array, in bulk."""
        import numpy as np

        steps_per_unit = float(self.levels / self._width)
        # Each of the four roundings below is off by at most 2^-53 of these sizes; 2^-48 leaves room for 32.
        farthest = max(abs(end) for end in self._float_ends())
        error = 2.0**-48 * (steps_per_unit * 2.0 * farthest + self.levels + 1.0)
        if not error < 0.25:  # a range far from 0 and narrow: floats cannot tell its readings apart
            return _round_each([self._position(value) for value in values.tolist()], stream)
        scale, offset = steps_per_unit, -float(self._lower) * steps_per_unit - error
        points = np.empty(values.size, np.int32)
        scratch = np.empty((2, min(BLOCK, values.size)))
        for start in range(0, values.size, BLOCK):
            part = slice(start, start + BLOCK)
            self._place_block(values[part], points[part], (scale, offset, 2.0 * error), stream, scratch)
        return points

    def _place_block(
        self,
        values: npt.NDArray[np.float64],
        points: npt.NDArray[np.int32],
        line: tuple[float, float, float],
        stream: Keystream,
        scratch: npt.NDArray[np.float64],
    ) -> None:
        """floor(position + u), u uniform in [0, 1), of which 32 bits are drawn first.

        `line`: position = scale * value + offset, and how far above that the true position can lie.

        Where the float's possible error, or the bits of u not drawn yet, could move the floor, the element is
        decided in fractions: the law is that of `encode`. Casting to an integer cuts -0.x to 0, as clipping does.
        """
        import numpy as np

        scale, offset, slack = line
        drawn = stream.words(values.size, 4)
        lowest, fraction = scratch[:, : values.size]
        np.multiply(values, scale, out=lowest)
        np.multiply(drawn, 2.0**-32, out=fraction)
        lowest += fraction
        lowest += offset
        points[:] = lowest
        highest = np.add(lowest, slack + 2.0**-32, out=lowest).astype(np.int32)
        for i in np.flatnonzero(points != highest).tolist():
            points[i] = _round_with_prefix(self._position(values[i].item()), int(drawn[i]), stream)

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """[sum of n reports] -> the mean in the metric's unit, unbiased for the clipped readings, never clipped itself.

        Standard error for this cohort's readings: noise variance 2r/(1-r)^2 and at most 1/4 for the rounding,
        in squared lattice steps, each report independently.
        """
        if len(total) != self.length or contributors < 0:
            raise ValueError(
                f"expected {self.length} total and a count of contributors, got {len(total)}, {contributors}"
            )
        if contributors == 0:
            return Estimate.empty(1)
        mean = self._lower + self._width * Fraction(int(total[0]), contributors * self.levels)
        error = float(self._width / self.levels) * math.sqrt((self.noise_variance + 0.25) / contributors)
        return Estimate((float(mean),), (error,), contributors)

    @property
    def noise_variance(self) -> float:
        """2r/(1-r)^2 = 1 / (2 sinh(1/(2 scale))^2), in squared lattice steps."""
        return 0.5 / math.sinh(float(1 / (2 * self.scale))) ** 2


def _levels_problems(levels: int) -> list[str]:
    if isinstance(levels, bool) or not isinstance(levels, int) or not 2 <= levels <= LEVELS_MAX:
        return [f"levels: must be an integer between 2 and {LEVELS_MAX}, not {levels}"]
    return []


def _range_problems(lower: Decimal, upper: Decimal) -> list[str]:
    """Sizes first, in floats: a Decimal's exponent may be far too large to make a Fraction of."""
    ends = {"lower": lower, "upper": upper}
    problems = [f"{name}: must be a finite number, not {end}" for name, end in ends.items() if not _finite(end)]
    if problems:
        return problems
    if lower >= upper:
        return [f"upper: must be greater than lower, {upper} is not greater than {lower}"]
    tiny = [f"{name}: {end} is too close to 0" for name, end in ends.items() if end and abs(float(end)) < _SMALLEST]
    if tiny:
        return tiny
    if not _SMALLEST <= Fraction(upper) - Fraction(lower) <= _LARGEST:
        return [f"upper: the range from {lower} to {upper} has no usable width"]
    return []


def _finite(number: Decimal) -> bool:
    return number.is_finite() and math.isfinite(float(number))


def _exact_number(value: object) -> Fraction:
    """A reading as the fraction it is; numpy's scalars pass, booleans, text and Decimals do not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    if isinstance(value, numbers.Rational):  # maybe larger than any float
        return Fraction(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise ValueRefusedError("", RefusalReason.NOT_FINITE)
    return Fraction(number)


def _float_array(values: Sequence[Value] | npt.NDArray[np.generic]) -> npt.NDArray[np.float64] | None:
    """The readings as one float64 array where that changes none of them; else None. Not checked for NaN yet."""
    import numpy as np

    if not isinstance(values, np.ndarray):
        return np.array(values, np.float64) if all(type(value) is float for value in values) else None
    if values.ndim != 1 or values.dtype.kind not in "fiuO":
        raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
    if values.dtype.kind == "O":
        return None
    array = np.asarray(values, np.float64)
    return array if values.dtype.kind == "f" or bool(np.all(np.abs(array) < 2.0**53)) else None


def _round_each(positions: Sequence[Fraction], entropy: Entropy) -> npt.NDArray[np.int32]:
    import numpy as np

    return np.array([p // 1 + bernoulli(p % 1, entropy) for p in positions], np.int32)


def _round_with_prefix(position: Fraction, prefix: int, entropy: Entropy) -> int:
    """floor(position + u) for u uniform in [prefix, prefix + 1) / 2^32."""
    whole, rest = divmod(position, 1)
    needed = (1 - rest) * 2**32 - prefix  # of the part of u not drawn yet: round up where it reaches this
    return whole + bernoulli(1 - min(max(needed, Fraction(0)), Fraction(1)), entropy)
