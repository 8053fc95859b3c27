"""`client_sdk.sampling.discrete_gaussian`, n draws at a time, just as exact.

Rules of this file: numpy is imported inside functions; bits come from a `Keystream`; no law is cut, whatever its tail.
A draw is a bin of 2^m integers, chosen by its weight from a table whose thresholds are certified (`ThresholdTable`), a
uniform place in the bin, and a coin that accepts the place with what its weight is of the bin's heaviest. Bins are a
32nd to a 64th of the deviation wide, so most coins need 16 bits and no exponential; the others are compared in floats
where these cannot be wrong, and else in as many digits as it takes. Beyond `REACH` deviations a draw goes on by an
exact geometric proposal. Up to a deviation of 64 a bin is one integer, and there is no coin.
What it does not do: run in constant time. Which draws take the longer way (some 5 %) depends on how far out they are
in their bin, and can show on the device; reports are made when a period is sealed and sent at a scheduled time.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from math import ceil, isqrt
from typing import TYPE_CHECKING, Any, Final

from client_sdk.sampling import bernoulli_exp, draw, geometric
from client_sdk.sampling_thresholds import certified
from client_sdk.sampling_vectorised import BLOCK, Keystream, ThresholdTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from client_sdk.mechanisms import Entropy

REACH: Final = 8
"""Deviations on either side that bins cover; beyond lies one draw in 10^15."""

SINGLE_BELOW: Final = 64
"""Deviations below this have bins of a single integer."""

VARIANCE_LIMITS: Final = (Fraction(1, 64), Fraction(1 << 90))

COIN_BITS: Final = 16
_MARGIN: Final = 2.0**-40
"""More than every error of the floats that decide a coin: of some 2^-50 each."""


def discrete_gaussian_many(variance: Fraction, count: int, stream: Keystream) -> npt.NDArray[np.int64]:
    """`count` independent draws of `discrete_gaussian(variance)`, shape (count,).

    Saturated far beyond 2^20 deviations' worth of what any mechanism keeps. ValueError outside VARIANCE_LIMITS.
    """
    import numpy as np

    limit = _bins_of(variance).saturation
    return add_discrete_gaussian(variance, np.zeros(count, np.int32), (-limit, limit), stream)


def add_discrete_gaussian(
    variance: Fraction, points: npt.NDArray[np.int32], limits: tuple[int, int], stream: Keystream
) -> npt.NDArray[np.int64]:
    """points + independent noise, clamped to `limits`; arrays of shape (count,).

    points must lie within the limits and below 2^24 in size, the limits within the sampler's saturation.
    """
    import numpy as np

    bins = _bins_of(variance)
    if max(-limits[0], limits[1]) > bins.saturation:
        raise ValueError("the limits lie beyond what the sampler draws for this variance")
    noisy = np.empty(points.size, np.int64)
    for start in range(0, points.size, BLOCK):
        part = slice(start, start + BLOCK)
        np.add(bins.draws(noisy[part].size, stream), points[part], out=noisy[part])
    return np.clip(noisy, *limits, out=noisy)


def bin_law(variance: Fraction, width: int, bins: int) -> list[Decimal]:
    """P(bin <= o) for o = -bins - 1 .. bins - 1, in the active decimal context. Only positive numbers are added.

    Bin o holds o width .. (o + 1) width - 1 at the weight of its heaviest integer; the outermost on either side stand
    for all that lies beyond, at the weight of the geometric proposal of `GaussianBins.tail`.
    """
    right = [_weight(variance, o * width) * width for o in range(bins)] + [_tail_weight(variance, bins * width)]
    left = [_weight(variance, o * width + 1) * width for o in range(bins)] + [_tail_weight(variance, bins * width + 1)]
    sums = list(accumulate([*reversed(left), *right]))
    return [s / sums[-1] for s in sums[:-1]]


def _exp(exponent: Fraction) -> Decimal:
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def _weight(variance: Fraction, x: int) -> Decimal:
    return _exp(-(x**2) / (2 * variance))


def _tail_weight(variance: Fraction, x: int) -> Decimal:
    """Of x, x + 1, ... at the geometric proposal: w(x) (1 + q + q^2 + ...) with q = exp(-x / variance)."""
    return _weight(variance, x) / (1 - _exp(-x / variance))


class GaussianBins:
    """The discrete Gaussian of one variance, in bins."""

    def __init__(self, variance: Fraction) -> None:
        import numpy as np

        if not VARIANCE_LIMITS[0] <= variance <= VARIANCE_LIMITS[1]:
            raise ValueError("the vectorised sampler's variance must lie in [1/64, 2^90]")
        self.variance = variance
        deviation = isqrt(ceil(variance)) + 1
        self.shift = 0 if deviation < SINGLE_BELOW else deviation.bit_length() - 6
        self.width = 1 << self.shift
        self.bins = -(-(isqrt(ceil(REACH**2 * variance)) + 1) // self.width)
        narrow = self.bins * self.width < 1 << 26
        self.dtype: type = np.int32 if narrow else np.int64
        self.saturation = 1 << 28 if narrow else 1 << 60
        law = certified(partial(bin_law, variance, self.width, self.bins))
        mark = 1 << 29 if narrow else 1 << 61
        self.table = ThresholdTable(-self.bins - 1, self.width, law, mark, self.dtype)
        self.sure = self._sure_by_cell()

    def _sure_by_cell(self) -> npt.NDArray[np.uint16]:
        """By the 16 bits that pick a bin: a coin below this is heads anywhere in the bin; 0 where that is not known."""
        import numpy as np

        starts = self.table.values.astype(np.float64)
        near = np.where(starts >= 0, starts, -(starts + self.width - 1))
        far = near + self.width - 1
        chance = np.exp(-(far - near) * (far + near) / (2.0 * float(self.variance)))
        inside = np.abs(starts + 0.5) < self.bins * self.width
        return np.where(inside, np.maximum(chance * (1 << COIN_BITS) - 1.0, 0.0), 0.0).astype(np.uint16)

    def draws(self, count: int, stream: Keystream) -> npt.NDArray[Any]:
        """`count` draws, of `dtype`; a block's worth at most is quick."""
        import numpy as np

        cells = stream.words(count, 2)
        noise = np.take(self.table.values, cells, mode="clip")
        if self.shift == 0:
            unclear = np.flatnonzero((noise == self.table.mark) | (np.abs(noise) >= self.bins))
            nothing = np.zeros(unclear.size, np.int64)
            noise[unclear] = self._resolved(cells[unclear], nothing, nothing, stream)
            return noise
        places = stream.words(count, self._place_bytes()) & self._place_mask()
        np.add(noise, places, out=noise, casting="unsafe")
        coins = stream.words(count, COIN_BITS // 8)
        unclear = np.flatnonzero(coins >= np.take(self.sure, cells, mode="clip"))
        noise[unclear] = self._resolved(cells[unclear], places[unclear].astype(np.int64), coins[unclear], stream)
        return noise

    def _place_bytes(self) -> int:
        return next(size for size in (2, 4, 8) if self.shift <= 8 * size)

    def _place_mask(self) -> Any:
        import numpy as np

        kind: Any = {2: np.uint16, 4: np.uint32, 8: np.uint64}[self._place_bytes()]
        return kind(self.width - 1)

    def _resolved(
        self, cells: npt.NDArray[Any], places: npt.NDArray[np.int64], coins: npt.NDArray[Any], stream: Keystream
    ) -> npt.NDArray[np.int64]:
        """The draws whose bin or coin 16 bits did not settle. Rejected places are drawn anew, bin and all."""
        import numpy as np

        starts = self.table.values[cells].astype(np.int64)
        marked = np.flatnonzero(starts == self.table.mark)
        starts[marked] = self.table.refine(cells[marked], stream) * self.width
        noise: npt.NDArray[np.int64] = starts + places
        beyond = (starts >= self.bins * self.width) | (starts < -self.bins * self.width)
        for i in np.flatnonzero(beyond).tolist():
            noise[i] = self.tail(1 if starts[i] > 0 else -1, stream)
        if self.shift:
            kept = beyond | self._heads(starts, noise, coins, stream)
            again = np.flatnonzero(~kept)
            if again.size:
                noise[again] = self.draws(again.size, stream)
        return noise

    def _heads(
        self, starts: npt.NDArray[np.int64], noise: npt.NDArray[np.int64], coins: npt.NDArray[Any], stream: Keystream
    ) -> npt.NDArray[np.bool_]:
        """Coins of 64 bits, the first 16 known, against exp(-(x^2 - a^2) / (2 variance)), a the bin's heaviest."""
        import numpy as np

        more = stream.words(coins.size, 8) >> np.uint64(COIN_BITS)
        thrown = (coins.astype(np.uint64) << np.uint64(64 - COIN_BITS)) | more
        near = np.where(starts >= 0, starts, -(starts + self.width - 1))
        size = np.abs(noise)
        exponents = (size - near).astype(np.float64) * (size + near).astype(np.float64) / (2.0 * float(self.variance))
        distance = np.exp(-exponents) - thrown.astype(np.float64) * 2.0**-64
        heads: npt.NDArray[np.bool_] = distance > 0.0
        for i in np.flatnonzero(np.abs(distance) <= _MARGIN).tolist():
            heads[i] = self._head(int(near[i]), int(size[i]), int(thrown[i]), stream)
        return heads

    def _head(self, near: int, size: int, prefix: int, entropy: Entropy) -> bool:
        """The same for one coin, exactly: 64 bits more at every tie."""
        if size <= near:
            return True
        floors = certified(partial(_single_law, Fraction(near**2 - size**2) / (2 * self.variance)))
        bits = 64
        while True:
            (chance,) = floors(bits)
            if prefix != chance:
                return prefix < chance
            prefix, bits = (prefix << 64) | int.from_bytes(draw(8, entropy), "big"), bits + 64

    def tail(self, sign: int, entropy: Entropy) -> int:
        """A draw beyond the bins on one side: geometric from the first integer x there, accepted with the rest.

        exp(-(x + j)^2 / 2v) = exp(-x^2 / 2v) exp(-j x / v) exp(-j^2 / 2v).
        """
        first = self.bins * self.width + (sign < 0)
        while True:
            further = geometric(self.variance / first, entropy)
            if bernoulli_exp(further**2 / (2 * self.variance), entropy):
                return sign * min(first + further, self.saturation)


def _single_law(exponent: Fraction) -> Iterator[Decimal]:
    yield _exp(exponent)


@lru_cache(maxsize=8)
def _bins_of(variance: Fraction) -> GaussianBins:
    """Tables cost tens of milliseconds and half a megabyte; a vector's coordinates share one variance."""
    return GaussianBins(variance)
