"""The lattice that numbers are placed on: clip, then round at random to one of `levels` + 1 points.

Rules of this file: a reading enters as the exact fraction it is; rounding is random with exactly the probability that
makes it unbiased, one by one and in bulk alike. In bulk, floats only decide where they cannot be wrong: an element
whose point could be moved by a float's error, or by bits not drawn yet, is decided in fractions. Readings that cannot
be used are refused before any entropy is drawn.
What it does not do: hide anything. A point is as private as the reading; noise is the mechanisms' part.
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
from client_sdk.mechanisms import Entropy, Value
from client_sdk.mechanisms.parameters import as_decimal
from client_sdk.sampling import bernoulli
from client_sdk.sampling_vectorised import BLOCK, Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEVELS_MAX = 1 << 20

SMALLEST = Fraction(1, 10**290)
LARGEST = Fraction(sys.float_info.max) / 4
"""Sizes of ends, widths and estimates that a double can hold with room to spare."""


@dataclass(frozen=True)
class Lattice:
    """A number in [lower, upper] -> a point 0 .. levels. PlanError for a range without a usable width.

    lower, upper: the range that readings are clipped to, in the metric's own unit.
    levels: steps over the range, 1 .. 2^20.
    """

    lower: Decimal
    upper: Decimal
    levels: int
    low: Fraction = field(init=False, repr=False, compare=False)
    width: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = {name: as_decimal(name, getattr(self, name)) for name in ("lower", "upper")}
        problems = [*levels_problems(self.levels, fewest=1), *range_problems(ends["lower"], ends["upper"])]
        if problems:
            raise PlanError(problems)
        low = Fraction(ends["lower"])
        for name, value in (ends | {"low": low, "width": Fraction(ends["upper"]) - low}).items():
            object.__setattr__(self, name, value)

    def position(self, value: Value | Fraction) -> Fraction:
        """Where a reading lies on [0, levels], exactly; clipped. ValueRefusedError: wrong type, not finite."""
        position = (exact_number(value) - self.low) * self.levels / self.width
        return min(max(position, Fraction(0)), Fraction(self.levels))

    def value_at(self, position: Fraction) -> Fraction:
        """The number, in the metric's unit, at a position that need not be a point, nor inside."""
        return self.low + self.width * position / self.levels

    def encode(self, value: Value | Fraction, entropy: Entropy) -> int:
        """The point for one reading, rounded at random: unbiased, not private. Refuses before any entropy.

        Every reading draws eight bytes, one on a point too (but once in 2^64 times). How long its fraction takes to
        work out does depend on the reading: that can be seen on the device only, reports are sent at a scheduled time.
        """
        whole, rest = divmod(self.position(value), 1)
        return whole + bernoulli(rest, entropy)

    def encode_many(
        self, values: Sequence[Value] | Sequence[Fraction] | npt.NDArray[np.generic], entropy: Entropy
    ) -> tuple[npt.NDArray[np.int32], Keystream]:
        """n readings -> their points, shape (n,), and the stream to go on drawing from.

        Float and integer arrays are placed in bulk, anything else one by one. ValueRefusedError where any reading is
        refused, before any entropy is drawn.
        """
        array = float_array(values)
        if array is None:
            positions = [self.position(value) for value in values]
            stream = Keystream(entropy)
            return _round_each(positions, stream), stream
        array = self.clipped(array)
        stream = Keystream(entropy)
        return self.place(array, stream), stream

    def clipped(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
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
            math.nextafter(float(self.low), -math.inf),
            math.nextafter(float(self.low + self.width), math.inf),
        )

    def place(self, values: npt.NDArray[np.float64], stream: Keystream) -> npt.NDArray[np.int32]:
        """`encode` for a clipped float array, in bulk."""
        import numpy as np

        steps_per_unit = float(self.levels / self.width)
        # Each of the four roundings below is off by at most 2^-53 of these sizes; 2^-48 leaves room for 32.
        farthest = max(abs(end) for end in self._float_ends())
        error = 2.0**-48 * (steps_per_unit * 2.0 * farthest + self.levels + 1.0)
        if not error < 0.25:  # a range far from 0 and narrow: floats cannot tell its readings apart
            return _round_each([self.position(value) for value in values.tolist()], stream)
        scale, offset = steps_per_unit, -float(self.low) * steps_per_unit - error
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
            points[i] = _round_with_prefix(self.position(values[i].item()), int(drawn[i]), stream)


def levels_problems(levels: int, fewest: int = 2) -> list[str]:
    """Why a lattice cannot have so many steps (no line: it can)."""
    if isinstance(levels, bool) or not isinstance(levels, int) or not fewest <= levels <= LEVELS_MAX:
        return [f"levels: must be an integer between {fewest} and {LEVELS_MAX}, not {levels}"]
    return []


def range_problems(lower: Decimal, upper: Decimal) -> list[str]:
    """Why a range cannot be used. Sizes first, in floats: a Decimal's exponent may be too large for a Fraction."""
    ends = {"lower": lower, "upper": upper}
    problems = [f"{name}: must be a finite number, not {end}" for name, end in ends.items() if not _finite(end)]
    if problems:
        return problems
    if lower >= upper:
        return [f"upper: must be greater than lower, {upper} is not greater than {lower}"]
    tiny = [f"{name}: {end} is too close to 0" for name, end in ends.items() if end and abs(float(end)) < SMALLEST]
    if tiny:
        return tiny
    if not SMALLEST <= Fraction(upper) - Fraction(lower) <= LARGEST:
        return [f"upper: the range from {lower} to {upper} has no usable width"]
    return []


def _finite(number: Decimal) -> bool:
    return number.is_finite() and math.isfinite(float(number))


def exact_number(value: object) -> Fraction:
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


def float_array(
    values: Sequence[Value] | Sequence[Fraction] | npt.NDArray[np.generic],
) -> npt.NDArray[np.float64] | None:
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
