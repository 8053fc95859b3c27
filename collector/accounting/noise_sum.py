"""The exact privacy of a sum of noises: what n_h lattice Laplace noises hide together.

The noise of the sum is log-concave, so replacing a value by one farther away is never better hidden: the pair is the
noise shifted by the whole width against the noise, and it is its own mirror image.

Rules of this file: a coarser lattice, wherever the exact one would be too long, is one that dominates: a geometric
variable is a coarser geometric one plus an independent rest, so the finer sum is the coarser one plus independent
noise. Fewer noises are assumed, never more. What an FFT rounds and what output clamping changes enters as (1 + e^eps)
times a probability (`condense.guarded`); a direct convolution rounds relatively and needs no such care.
What it does not do: no central limit, which is 45 % off for ten noises and no bound for any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.condense import guarded, pair, symmetric_pair
from collector.accounting.pairs import LossPair
from collector.accounting.structured import check_sum

CLAMP_SCALES: Final = 45
"""Reports are clamped to the range widened by this many scales of the noise on either side."""

MOST_SLACK: Final = 1e-9
"""Where rounding costs more than this, the bound of one contributor is given instead."""

_TAIL: Final = 46.0
"""A radius leaves out at most e^-46 = 1.1e-20 on either side."""

_DIRECT_ABOVE: Final = 2.0
"""The epsilon above which an FFT's rounding, times e^epsilon, would show where few noises are added."""

_FFT_RADIUS: Final = 1 << 20
_DIRECT_PRODUCTS: Final = 6e8
"""About what the squarings of a direct convolution may cost."""

_FINE_SCALE: Final = 12.0
"""A lattice on which the scale of the noise spans so many cells raises epsilon by less than 3e-4 of it."""

_Floats = NDArray[np.float64]


def laplace_sum(levels: int, epsilon: float, n_h: int) -> LossPair:
    """n_h reports of discrete Laplace noise of scale t = levels / epsilon on values 0 ... levels, outputs clamped.

    n_h counts the victim. Raises ValueError for levels < 1, an epsilon outside [1e-6, 40], or n_h < 1.
    """
    check_sum(epsilon, n_h)
    if levels < 1:
        raise ValueError(f"a lattice has at least 1 level, got {levels}")
    count = largest_count(lambda n: _laplace_radius(epsilon, n) <= _FFT_RADIUS, n_h)
    if count == 1:
        return _one_laplace(levels, epsilon)
    coarse = _direct_coarseness(levels, epsilon, count) if epsilon > _DIRECT_ABOVE else None
    if coarse is not None:
        return _laplace_directly(levels // coarse, epsilon, count)
    bound = _laplace_by_fft(levels, epsilon, count)
    return bound if bound.slack <= MOST_SLACK else _one_laplace(levels, epsilon)


def _one_laplace(levels: int, epsilon: float) -> LossPair:
    """One report: loss a (2 z - levels) inside the range and epsilon beyond it. Clamping only hides more."""
    coarse = _coarseness(levels, levels / _FFT_RADIUS)
    cells, a = -(-levels // coarse), epsilon * coarse / levels
    z = np.arange((cells + 1) // 2, cells + 1)
    masses = np.tanh(a / 2.0) * np.exp(-a * (cells - z))
    masses[-1] = 1.0 / (1.0 + math.exp(-a))
    masses[2 * z == cells] /= 2.0
    return symmetric_pair(np.minimum(a * (2.0 * z - cells), epsilon), masses, 0.0)


def _laplace_radius(a: float, count: int) -> float:
    """How many cells the sum of `count` noises of parameter `a` strays, by Chernoff's bound with _TAIL."""
    tilts = a * np.concatenate((np.geomspace(1e-7, 0.5, 400), 1.0 - np.geomspace(1e-3, 0.5, 60)))
    log_moments = -count * np.log1p(-math.exp(-a) * (2.0 * np.sinh(tilts / 2.0) / math.expm1(-a)) ** 2)
    return float(((log_moments + _TAIL) / tilts).min())


def largest_count(fits: Callable[[int], bool], n_h: int) -> int:
    """The largest number of noises up to n_h for which `fits`, at least 1."""
    if fits(n_h):
        return n_h
    low, high = 1, n_h
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _coarseness(levels: int, least: float) -> int:
    """Of the coarsenesses from `least` to its double, the one that lengthens the shift least: a divisor if any."""
    first = max(1, min(levels, math.ceil(least)))
    return min(range(first, min(levels, 2 * first) + 1), key=lambda m: (m * -(-levels // m), m)) if first > 1 else 1


def _laplace_by_fft(levels: int, epsilon: float, count: int) -> LossPair:
    coarse = _coarseness(levels, _laplace_radius(epsilon / levels, count) / _FFT_RADIUS)
    cells, a = -(-levels // coarse), epsilon * coarse / levels
    radius = math.ceil(_laplace_radius(a, count))
    size = fast_size(2 * radius + 1)
    sines = np.sin(np.arange(size // 2 + 1) * (math.pi / size)) ** 2
    # 1 - 2 q cos t + q^2 loses the small ones of these to rounding; this form does not.
    transform = np.exp(-count * np.log1p(4.0 * math.exp(-a) * sines / math.expm1(-a) ** 2))
    return _shifted_by_fft(transform, size, radius, cells, a * cells, count * _clamped(a, CLAMP_SCALES / a))


def _clamped(a: float, cells: float) -> float:
    """The probability that one noise strays more than so many cells."""
    return 2.0 * math.exp(-a * (cells + 1.0)) / (1.0 + math.exp(-a))


def fast_size(least: int) -> int:
    """The smallest size >= least of 2, 3 and 5 that leaves out at most a fifth."""
    power = 1 << max(4, (least - 1).bit_length() - 4)
    return next(m * power for m in (9, 10, 12, 15, 16) if m * power >= least)


def _shifted_by_fft(transform: _Floats, size: int, radius: int, shift: int, largest: float, changed: float) -> LossPair:
    """The sum's law, of which this is the real transform on `size` cells, against itself shifted.

    largest: bounds every loss; changed: the probability that clamping changes any report.
    """
    around = np.fft.irfft(transform, size)
    law = np.concatenate((np.maximum(around[-radius:], 0.0), np.maximum(around[: radius + 1], 0.0)))
    norm = math.sqrt(float((law**2).sum()) * size)
    rounding = np.finfo(np.float64).eps * (math.log2(size) + 8.0) * norm + 4.0 * math.exp(-_TAIL)
    losses, masses = _shifted(law, law, shift, largest)
    return guarded(losses, masses, rounding + changed, 2.0 * math.exp(-_TAIL))


def _shifted(raised: _Floats, law: _Floats, shift: int, largest: float) -> tuple[_Floats, _Floats]:
    """(losses, masses under P) of `raised` moved up by `shift`, against `law`; both of one shape."""
    upper = np.concatenate((np.zeros(shift), raised))
    lower = np.concatenate((law, np.zeros(shift)))
    occurs = upper > 0.0
    upper, lower = upper[occurs], lower[occurs]
    with np.errstate(divide="ignore"):
        losses = np.log(upper) - np.log(lower)
    return np.clip(losses, -largest, largest), upper


def _direct_coarseness(levels: int, epsilon: float, count: int) -> int | None:
    """The finest divisor on which a direct convolution is short, if one is fine enough."""
    affordable = math.sqrt(_DIRECT_PRODUCTS / (8.0 * math.log2(2 * count)))
    least = math.ceil(_laplace_radius(epsilon / levels, count) / affordable)
    if least == 1:
        return 1
    return next((m for m in range(least, math.floor(levels / epsilon / _FINE_SCALE) + 1) if levels % m == 0), None)


def _laplace_directly(cells: int, epsilon: float, count: int) -> LossPair:
    """Whose noise strays beyond the clamp is revealed, for all others: the rest are truncated alike, whatever their
    values. The victim's output inside the range that is never clamped is convolved with them; what is left is atoms.
    """
    a = epsilon / cells
    inside = math.floor(CLAMP_SCALES / a) - 1
    one = np.tanh(a / 2.0) * np.exp(-a * np.abs(np.arange(-inside, inside + cells + 1)))
    others = power(one[: 2 * inside + 1], count - 1, math.ceil(_laplace_radius(a, count)))
    upper, lower = np.convolve(one[::-1], others), np.convolve(one, others)
    losses, masses = _shifted(upper, lower, 0, epsilon)
    ends = math.exp(-a * (inside + 1)) / (1.0 + math.exp(-a)) * np.array([1.0, math.exp(-epsilon)])
    slack = (count - 1) * _clamped(a, inside) + 4.0 * count * math.exp(-_TAIL)
    return pair(np.append(losses, (epsilon, -epsilon)), np.append(masses, ends), slack)


def power(law: _Floats, count: int, radius: int) -> _Floats:
    """The law of the sum of `count` >= 1 draws around 0, cut to `radius` on either side, by repeated squaring."""
    result = None
    while True:
        if count & 1:
            result = law if result is None else _cut(np.convolve(result, law), radius)
        count >>= 1
        if not count:
            return law if result is None else result
        law = _cut(np.convolve(law, law), radius)


def _cut(law: _Floats, radius: int) -> _Floats:
    middle = len(law) // 2
    return law[max(0, middle - radius) : middle + radius + 1]
