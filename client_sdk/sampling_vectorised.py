"""The samplers of `client_sdk.sampling`, n draws at a time, just as exact.

Rules of this file: numpy and cryptography are imported inside functions; bits come from a keystream whose key
is 32 bytes of the caller's `entropy`, drawn anew for each call, so that no stream outlives a call or a fork.
A law is a sorted list of thresholds P(X <= x). 16 bits pick a cell of a 65,536-entry table; a cell that holds a
threshold is marked, and gets 48 more bits; where 64 bits still equal a threshold's first 64, it gets 64 more,
again and again. Thresholds are certified at each width: a rounding that could matter is computed again with
more digits. So no law is ever cut, whatever its tail.
What it does not do: run in constant time. All draws do the same work but the marked ones (under 1 %), which
says only "near some threshold"; table reads can show in the cache. Exact means: exact if the keystream's bits
are uniform; AES-256-CTR stands for that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from client_sdk.sampling import draw, geometric
from client_sdk.sampling_thresholds import BASE, certified, digit_law, top_digit_law

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from client_sdk.mechanisms import Entropy

CELL_BITS = 16
BLOCK = 1 << 17
"""Draws per pass: few enough to stay in a processor's caches, enough to make numpy's calls cheap."""

LARGEST_TOP_SCALE = 32
"""Above this scale one more base-256 digit is cheaper than more marked cells."""

SATURATION = 1 << 62
"""Noise is cut here, so that it fits 64 bits. A mechanism clamps its output far below: its law is untouched."""

SCALE_LIMITS = (Fraction(1, 1 << 10), Fraction(1 << 45))


class Keystream:
    """AES-256-CTR under a key drawn from `entropy`. Callable like an entropy source. Key never shown."""

    def __init__(self, entropy: Entropy) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._encryptor = Cipher(algorithms.AES256(draw(32, entropy)), modes.CTR(bytes(16))).encryptor()

        self._zeros = b""

    def __call__(self, size: int) -> bytes:
        """The next `size` bytes."""
        if len(self._zeros) < size:
            self._zeros = bytes(size)
        return self._encryptor.update(memoryview(self._zeros)[:size])

    def words(self, count: int, width: int) -> npt.NDArray[Any]:
        """`count` fresh unsigned integers of `width` bytes (2, 4 or 8), read-only, the same on every platform."""
        import numpy as np

        return np.frombuffer(self(count * width), f"<u{width}")


def in_blocks(
    draw: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], given: npt.NDArray[Any], out: npt.NDArray[Any], rows: int
) -> npt.NDArray[Any]:
    """`out`, filled by `draw` of `rows` rows of `given` at a time.

    In arrays of any size every pass would cost fresh pages of memory.
    """
    for start in range(0, len(given), rows):
        part = slice(start, start + rows)
        out[part] = draw(given[part])
    return out


def uniform_below_many(n: int, count: int, stream: Keystream) -> npt.NDArray[np.int64]:
    """`count` integers uniform over 0 .. n-1, n <= 2^31: Lemire's multiplication with exact rejection.

    x uniform below 2^w, m = x*n: floor(m / 2^w) is uniform once every m with m mod 2^w < 2^w mod n is drawn
    again (Lemire, "Fast Random Integer Generation in an Interval", 2019).
    """
    import numpy as np

    if not 1 <= n <= 1 << 31:
        raise ValueError("n must lie between 1 and 2^31")
    width = 2 if n <= 1 << 12 else 4
    wide: Any = np.uint32 if width == 2 else np.uint64
    bits = 8 * width
    excess = (1 << bits) % n
    out = np.empty(count, np.int64)
    missing: npt.NDArray[np.int64] | slice = slice(None)
    wanted = count
    while wanted:
        product: npt.NDArray[Any] = stream.words(wanted, width).astype(wide)
        product *= wide(n)
        out[missing] = product >> wide(bits)
        rejected = np.flatnonzero((product & wide((1 << bits) - 1)) < wide(excess))
        missing = rejected if isinstance(missing, slice) else missing[rejected]
        wanted = rejected.size
    return out


def bernoulli_2_64_many(numerator: int, count: int, stream: Keystream) -> npt.NDArray[np.uint8]:
    """`count` independent draws, each 1 with probability numerator / 2^64 and else 0; numerator in [0, 2^64].

    One byte decides unless it equals the numerator's first; then 56 more bits do, against the numerator's other 56.
    """
    import numpy as np

    if not 0 <= numerator <= 1 << 64:
        raise ValueError("a probability over 2^64 must lie between 0 and 2^64")
    first, rest = divmod(numerator, 1 << 56)
    heads = np.frombuffer(stream(count), np.uint8)
    draws: npt.NDArray[np.uint8] = (heads < first).view(np.uint8)
    tied = np.flatnonzero(heads == first)
    draws[tied] = (stream.words(tied.size, 8) >> np.uint64(8)) < np.uint64(rest)
    return draws


def discrete_laplace_many(scale: Fraction, count: int, stream: Keystream) -> npt.NDArray[np.int64]:
    """`count` independent draws of `discrete_laplace(scale)`, saturated at +-2^62 (shape (count,)).

    The noise is a sum of independent base-256 digits: a geometric variable's digits are independent, discrete
    Laplace is the difference of two geometric variables, and the digits above the last stay one discrete
    Laplace of scale/256^m. ValueError for a scale outside [2^-10, 2^45].
    """
    import numpy as np

    return add_discrete_laplace(scale, np.zeros(count, np.int32), (-SATURATION, SATURATION), stream)


def add_discrete_laplace(
    scale: Fraction, points: npt.NDArray[np.int32], limits: tuple[int, int], stream: Keystream
) -> npt.NDArray[np.int64]:
    """points + independent noise, clamped to `limits`; arrays of shape (count,).

    points must lie within the limits and below 2^24, the limits within +-2^62. The few draws with a marked
    cell get their noise in one pass at the end.
    """
    import numpy as np

    digits = _digits_of(scale)
    noisy = np.empty(points.size, np.int64)
    scratch: npt.NDArray[Any] = np.empty((2, min(BLOCK, points.size)), digits.dtype)
    places, cells = [np.empty(0, np.int64)], [np.empty((len(digits.tables), 0), np.uint16)]
    for start in range(0, points.size, BLOCK):
        part = slice(start, start + BLOCK)
        marked, marked_cells = digits.add_noise(points[part], noisy[part], limits, stream, scratch)
        places.append(marked + start)
        cells.append(marked_cells)
    marked = np.concatenate(places)
    noisy[marked] = np.clip(noisy[marked] + digits.exact(np.concatenate(cells, axis=1), stream), *limits)
    return noisy


class ThresholdTable:
    """A law over consecutive integers, by its thresholds, sampled by 16 bits and refined without limit.

    `floors(bits)[i]` is floor(2^bits * P(X <= first + i)), certified and non-decreasing in i. A uniform u gives
    first + the number of thresholds at or below u. `values[cell]` is that number times `step`, or `mark`.
    """

    def __init__(self, first: int, step: int, floors: Callable[[int], list[int]], mark: int, dtype: type) -> None:
        import numpy as np

        self.first = first
        self.step = step
        self.mark = mark
        self._floors = floors
        self._floors_64 = np.array(floors(64), np.uint64)
        cells = np.array(floors(CELL_BITS), np.int64)
        below = np.searchsorted(cells, np.arange(1 << CELL_BITS), side="left")
        self.values: npt.NDArray[Any] = ((first + below) * step).astype(dtype)
        self.values[cells] = mark
        self.values.flags.writeable = False

    @property
    def thresholds(self) -> int:
        """How many thresholds there are; outcomes run from `first` to `first + thresholds`."""
        return len(self._floors_64)

    def refine(self, cells: npt.NDArray[np.uint16], entropy: Entropy) -> npt.NDArray[np.int64]:
        """Outcomes (without `step`) for draws whose first 16 bits are `cells`, by 48 more bits, and more at a tie."""
        import numpy as np

        more = np.frombuffer(draw(8 * cells.size, entropy), "<u8") >> np.uint64(CELL_BITS)
        return self.refine_from_64((cells.astype(np.uint64) << np.uint64(48)) | more, entropy)

    def refine_from_64(self, prefixes: npt.NDArray[np.uint64], entropy: Entropy) -> npt.NDArray[np.int64]:
        """Outcomes (without `step`) for draws whose first 64 bits are known."""
        import numpy as np

        below = np.searchsorted(self._floors_64, prefixes, side="left").astype(np.int64)
        nearest = self._floors_64[np.minimum(below, self.thresholds - 1)]
        for i in np.flatnonzero((below < self.thresholds) & (nearest == prefixes)).tolist():
            below[i] = self._break_tie(int(prefixes[i]), entropy)
        return below + self.first

    def _break_tie(self, prefix: int, entropy: Entropy) -> int:
        """A threshold with this very prefix can lie on either side of the draw: look 64 bits further."""
        bits = 64
        while True:
            bits += 64
            prefix = (prefix << 64) | int.from_bytes(draw(8, entropy), "big")
            floors = self._floors(bits)
            below = bisect_left(floors, prefix)
            if below == len(floors) or floors[below] != prefix:
                return below


class LaplaceDigits:
    """Discrete Laplace of one scale as a sum of independent digits, lowest first; the last is unbounded."""

    def __init__(self, scale: Fraction) -> None:
        import numpy as np

        if not SCALE_LIMITS[0] <= scale <= SCALE_LIMITS[1]:
            raise ValueError("the vectorised sampler's scale must lie in [2^-10, 2^45]")
        bounded = 0
        while scale / BASE**bounded > LARGEST_TOP_SCALE:
            bounded += 1
        self.top_scale = scale / BASE**bounded
        # Beyond +-reach the last digit starts anew (memoryless): reached once in e^24 draws.
        self.top_reach = -(-24 * self.top_scale.numerator // self.top_scale.denominator) + 1
        # Below the mark: any sum of unmarked digits. One mark lifts every sum above `limit`, none overflows.
        self.dtype: type = np.int32 if bounded <= 2 else np.int64
        mark = 1 << 28 if bounded <= 2 else 1 << 58
        self.limit = mark // 2
        self.tables = [
            ThresholdTable(1 - BASE, BASE**i, certified(partial(digit_law, scale / BASE**i)), mark, self.dtype)
            for i in range(bounded)
        ]
        top_law = certified(partial(top_digit_law, self.top_scale, self.top_reach))
        self.tables.append(ThresholdTable(-self.top_reach - 1, BASE**bounded, top_law, mark, self.dtype))

    def add_noise(
        self,
        points: npt.NDArray[np.int32],
        noisy: npt.NDArray[np.int64],
        limits: tuple[int, int],
        stream: Keystream,
        scratch: npt.NDArray[Any],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
        """noisy = points + one draw each, clamped; where a cell is marked, noisy = points.

        Returns which draws are marked, and their cells (digits, marked draws), for `exact`. `scratch` holds two
        rows of at least the arrays' size, of `dtype`.
        """
        import numpy as np

        cells = stream.words(len(self.tables) * noisy.size, 2).reshape(len(self.tables), noisy.size)
        sums, digit = scratch[:, : noisy.size]
        np.take(self.tables[0].values, cells[0], out=sums, mode="clip")
        for table, row in zip(self.tables[1:], cells[1:], strict=True):
            np.take(table.values, row, out=digit, mode="clip")
            sums += digit
        marked = np.flatnonzero(sums > self.limit)
        sums[marked] = 0
        sums += points
        noisy[:] = sums
        if sums.min() < limits[0] or sums.max() > limits[1]:
            np.clip(noisy, *limits, out=noisy)
        return marked, cells[:, marked]

    def exact(self, cells: npt.NDArray[np.uint16], stream: Entropy) -> npt.NDArray[np.int64]:
        """The sums for draws with at least one marked cell; shape of `cells` (digits, draws)."""
        import numpy as np

        sums = np.zeros(cells.shape[1], np.int64)
        for table, row in zip(self.tables, cells, strict=True):
            values = table.values[row].astype(np.int64)
            marked = np.flatnonzero(values == table.mark)
            outcomes = table.refine(row[marked], stream)
            if table is self.tables[-1]:
                outcomes = self._tails(outcomes, stream)
            values[marked] = outcomes * table.step
            sums += values
        return sums

    def _tails(self, outcomes: npt.NDArray[np.int64], entropy: Entropy) -> npt.NDArray[np.int64]:
        """An outermost outcome of the last digit stands for the whole tail: go on from there."""
        import numpy as np

        room = SATURATION // self.tables[-1].step - self.top_reach - 1
        for i in np.flatnonzero(np.abs(outcomes) > self.top_reach).tolist():
            further = min(geometric(self.top_scale, entropy), room)
            outcomes[i] += further if outcomes[i] > 0 else -further
        return outcomes


@lru_cache(maxsize=8)
def _digits_of(scale: Fraction) -> LaplaceDigits:
    """Tables cost milliseconds and half a megabyte; a fleet of values shares one scale."""
    return LaplaceDigits(scale)
