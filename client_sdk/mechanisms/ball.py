"""Vectors on a lattice: clip to a ball, then round at random to whole points that stay within a known distance.

Rules of this file: a vector is scaled into the ball of radius `clip` (L1 or L2), its coordinates are measured in steps
of clip / levels and cut to 2^-20 of a step, towards 0; from there on everything is integers, and that the cut vector
lies in the ball is checked exactly: floats only decide *which* point of the ball a vector outside of it becomes.
Rounding is systematic: one random offset decides all coordinates together, each with exactly the probability that makes
it unbiased, and it never leaves the ball by more than `radius_squared` says. So how far two neighbours can lie apart is
a fact about integers, whatever the floats did. Vectors that cannot be used are refused before any entropy is drawn.
What it does not do: hide anything. A point is as private as the vector; noise is the mechanisms' part.

L1: the rounded-up coordinates number floor(sum of fractions + u) at most, u < 1, so sum |y| <= floor(levels + u).
L2: y^2 = f^2 + b (2 f + 1) for a coordinate of whole part f that is rounded up (b = 1) or not. Taken in ascending order
of f, the partial sums of b stray from those of the fractions by less than 1 to either side in all, so (summation by
parts) sum b (2 f + 1) exceeds its mean by at most the largest weight, 2 levels + 1; and the mean of sum y^2 is at most
levels^2 + dimension / 4. Together: sum y^2 <= (levels + 1)^2 + dimension / 4. Independent rounding would have given
(levels + sqrt(dimension))^2.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from client_sdk.errors import RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Entropy, Value
from client_sdk.mechanisms.lattice import exact_number
from client_sdk.sampling import draw
from client_sdk.sampling_vectorised import BLOCK, Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Norm = Literal["l1", "l2"]

PART_BITS: Final = 20
"""A coordinate is cut to this part of a step: a bias below 2^-20 of a step, where noise is thousands of steps."""

_PARTS: Final = 1 << PART_BITS
_INWARD: Final = 1.0 - 2.0**-40
_SHRINK: Final = 1.0 - 2.0**-30


@dataclass(frozen=True, slots=True)
class Ball:
    """Vectors of `dimension` numbers -> integers of norm at most about `levels`, in steps of clip / levels."""

    dimension: int
    clip: float
    norm: Norm
    levels: int

    @property
    def radius_squared(self) -> int:
        """The largest sum of squares of a point (L2)."""
        return (self.levels + 1) ** 2 + self.dimension // 4

    @property
    def sensitivity(self) -> int:
        """L1 distance of two points, at most: neighbours replace one vector by any other."""
        return 2 * self.levels

    @property
    def sensitivity_squared(self) -> int:
        """Square of the L2 distance of two points, at most (L2)."""
        return 4 * self.radius_squared

    # --- one at a time, with the standard library alone ---------------------------------------------------

    def encode(self, value: Value, entropy: Entropy) -> list[int]:
        """The point for one vector: unbiased for the clipped one, not private. ValueRefusedError before any entropy."""
        numbers = self.numbers(value)
        parts = self._parts([abs(number) for number in numbers])
        points = self.rounded(parts, int.from_bytes(draw(4, entropy), "little") >> (32 - PART_BITS))
        return [-point if number < 0.0 else point for point, number in zip(points, numbers, strict=True)]

    def numbers(self, value: object) -> list[float]:
        """A reading as finite floats. ValueRefusedError: no sequence of numbers, another length, not finite."""
        if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__len__"):
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        listed: Sequence[Any] = value.tolist() if hasattr(value, "tolist") else value  # type: ignore[assignment]
        if not isinstance(listed, (list, tuple)):
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        if len(listed) != self.dimension:
            raise ValueRefusedError("", RefusalReason.WRONG_LENGTH)
        return [number if type(number) is float and math.isfinite(number) else _float(number) for number in listed]

    def _parts(self, sizes: list[float]) -> list[int]:
        """Sizes of the clipped coordinates in 2^-20 of a step, cut; in the ball, exactly."""
        largest = max(sizes)
        if largest == 0.0:
            return [0] * self.dimension
        shares = [size / largest for size in sizes]
        length = math.fsum(shares) if self.norm == "l1" else math.sqrt(math.fsum(share * share for share in shares))
        scale = _PARTS * self._scale(largest, length)
        while True:
            parts = [int(share * scale) for share in shares]
            if self._is_inside(parts):
                return parts
            scale *= _SHRINK

    def _scale(self, largest: float, length: float) -> float:
        """Steps of the largest coordinate. length: the vector's norm in its largest coordinates."""
        relative = largest / self.clip
        return relative * self.levels if relative * length <= 1.0 else self.levels / length * _INWARD

    def _is_inside(self, parts: list[int]) -> bool:
        if self.norm == "l1":
            return sum(parts) <= self.levels << PART_BITS
        return sum(part * part for part in parts) <= (self.levels << PART_BITS) ** 2

    def rounded(self, parts: Sequence[int], offset: int) -> list[int]:
        """Systematic rounding of parts of steps to whole ones. offset: uniform in 0 .. 2^20 - 1, of all together."""
        wholes = [part >> PART_BITS for part in parts]
        order: Sequence[int] = range(len(parts))
        if self.norm == "l2":
            order = sorted(order, key=wholes.__getitem__)
        so_far, reached = offset, 0
        for i in order:
            so_far += parts[i] & (_PARTS - 1)
            wholes[i] += (so_far >> PART_BITS) - reached
            reached = so_far >> PART_BITS
        return wholes

    # --- in bulk ----------------------------------------------------------------------------------------

    def encode_many(self, values: object, entropy: Entropy) -> tuple[npt.NDArray[np.int32], Keystream]:
        """n vectors -> their points, shape (n, dimension), and the stream to go on drawing from.

        values: an array of shape (n, dimension), or a sequence of n vectors. ValueRefusedError where any is refused,
        before any entropy is drawn.
        """
        import numpy as np

        vectors = self.array(values)
        stream = Keystream(entropy)
        points = np.empty(vectors.shape, np.int32)
        rows = max(1, 8 * BLOCK // self.dimension)
        for start in range(0, len(vectors), rows):
            block = vectors[start : start + rows]
            offsets = stream.words(len(block), 4).astype(np.int64) >> (32 - PART_BITS)
            wholes = self.rounded_many(self._parts_many(np.abs(block)), offsets)
            points[start : start + rows] = np.where(block < 0.0, -wholes, wholes)
        return points, stream

    def array(self, values: object) -> npt.NDArray[np.float64]:
        """The vectors as one finite float array, shape (n, dimension). ValueRefusedError."""
        import numpy as np

        if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "fiu":
            vectors = np.asarray(values, np.float64)
        elif isinstance(values, (list, tuple, np.ndarray)):
            vectors = np.array([self._row(value) for value in values], np.float64).reshape(len(values), -1)
        else:
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        if len(vectors) and vectors.shape[1] != self.dimension:
            raise ValueRefusedError("", RefusalReason.WRONG_LENGTH)
        if not np.isfinite(vectors).all():
            raise ValueRefusedError("", RefusalReason.NOT_FINITE)
        return vectors.reshape(-1, self.dimension)

    def _row(self, value: Any) -> Any:
        """One vector: arrays of floats or integers as they are, anything else number by number."""
        import numpy as np

        if isinstance(value, memoryview) or type(value).__name__ == "array":
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
            if value.shape != (self.dimension,):
                raise ValueRefusedError("", RefusalReason.WRONG_LENGTH)
            return value
        return self.numbers(value)

    def _parts_many(self, sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """`_parts` of each row."""
        import numpy as np

        largest = sizes.max(axis=1)
        shares = sizes / np.where(largest > 0.0, largest, 1.0)[:, None]
        lengths = shares.sum(axis=1) if self.norm == "l1" else np.sqrt((shares * shares).sum(axis=1))
        pairs = zip(largest.tolist(), lengths.tolist(), strict=True)
        scales = np.array([_PARTS * self._scale(*pair) if pair[0] else 0.0 for pair in pairs])[:, None]
        parts: npt.NDArray[np.int64] = (shares * scales).astype(np.int64)
        while (outside := np.flatnonzero(~self._are_inside(parts))).size:
            scales[outside] *= _SHRINK
            parts[outside] = (shares[outside] * scales[outside]).astype(np.int64)
        return parts

    def _are_inside(self, parts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """`_is_inside` of each row, exactly: sum part^2 in units of 2^40, the rest beside it.

        The floats were near enough for no sum to leave 64 bits (levels and dimension are 2^20 at most).
        """
        import numpy as np

        if self.norm == "l1":
            return np.asarray(parts.sum(axis=1) <= self.levels << PART_BITS)
        wholes, rests = parts >> PART_BITS, parts & (_PARTS - 1)
        squares, products, small = (
            np.einsum("ij,ij->i", *two) for two in ((wholes, wholes), (wholes, rests), (rests, rests))
        )
        products += small >> (PART_BITS + 1)
        squares += products >> (PART_BITS - 1)
        left = (products & (_PARTS // 2 - 1)) | (small & (2 * _PARTS - 1))
        return np.asarray((squares < self.levels**2) | ((squares == self.levels**2) & (left == 0)))

    def rounded_many(self, parts: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """`rounded` of each row; offsets: shape (n,)."""
        import numpy as np

        wholes, rests = parts >> PART_BITS, parts & (_PARTS - 1)
        order = None
        if self.norm == "l2":  # 16 bits are sorted by their digits
            narrow = wholes.astype(np.uint16) if self.levels < 1 << 16 else wholes
            order = np.argsort(narrow, axis=1, kind="stable")
            rests = np.take_along_axis(rests, order, axis=1)
        np.cumsum(rests, axis=1, out=rests)
        rests += offsets[:, None]
        rests >>= PART_BITS
        ups = np.diff(rests, axis=1, prepend=0)
        if order is None:
            return wholes + ups
        placed = np.empty_like(ups)
        np.put_along_axis(placed, order, ups, axis=1)
        return wholes + placed


def _float(number: object) -> float:
    """Of a number that is not a finite float already. What is larger than any float is as long as any: clipped."""
    exact = exact_number(number)
    try:
        return float(exact)
    except OverflowError:
        return sys.float_info.max if exact > 0 else -sys.float_info.max
