"""How much Gaussian noise an (epsilon, delta) takes: the analytic calibration, and the classic formula where it holds.

Rules of this file: decimals, so that every device and the collector come to the same integers; whatever is rounded is
rounded towards more noise. Ratios are sigma / sensitivity, the sensitivity being the L2 distance of two neighbours.
What it does not do: it knows no lattice; `gaussian.py` says why a discrete Gaussian of a slightly larger variance hides
at least as much.

Source: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
Denoising" (ICML 2018), theorem 8; Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", theorem A.1.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, sqrt
from typing import Final

from client_sdk.errors import PlanError

DELTA_MIN: Final = Decimal("1e-18")
DELTA_MAX: Final = Decimal("1e-5")
"""Larger ones are no small chance; below, the noise would grow for nothing that anybody could tell."""

_DIGITS: Final = 70
_SQRT_PI: Final = Decimal("1.77245385090551602729816748334114518279754945612238712821380778985291128459")
_FAR: Final = 18
"""Deviations beyond which a tail (below 10^-71) is taken for nothing where that errs towards more noise."""

_STEPS: Final = 100


def delta_problems(delta: Decimal) -> list[str]:
    """Why this delta cannot be used (no line: it can)."""
    if delta.is_finite() and DELTA_MIN <= delta <= DELTA_MAX:
        return []
    return [f"delta: must lie between {DELTA_MIN:f} and {DELTA_MAX:f}, not {delta}"]


@lru_cache(maxsize=64)
def analytic_ratio(epsilon: Decimal, delta: Decimal) -> Fraction:
    """The smallest sigma / sensitivity that is (epsilon, delta)-private in one release, rounded up by less than 10^-8.

    Floats say where to look; which shift of ten digits it is, decimals decide.
    """
    guess = _guessed_shift(float(epsilon), float(delta))
    with localcontext(Context(prec=_DIGITS)):
        step = Decimal(1).scaleb(Decimal(guess).adjusted() - 9)
        place = int(Decimal(guess) / step)
        while gaussian_delta(place * step, epsilon) > delta:
            place -= 1
        while gaussian_delta((place + 1) * step, epsilon) <= delta:
            place += 1
        return _up(1 / (place * step))


def _guessed_shift(epsilon: float, delta: float) -> float:
    """The largest sensitivity / sigma for (epsilon, delta), but for some 10^-9 of it."""

    def holds(mu: float) -> bool:
        upper, lower = (0.5 * erfc((epsilon / mu + sign * mu / 2.0) / sqrt(2.0)) for sign in (-1.0, 1.0))
        return upper - exp(epsilon) * lower <= delta

    low, high = 1e-12, 64.0
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def classic_ratio(epsilon: Decimal, delta: Decimal) -> Fraction:
    """sqrt(2 ln(1.25 / delta)) / epsilon, rounded up. PlanError from epsilon 1 on, where it is no bound."""
    if epsilon >= 1:
        raise PlanError(
            f"calibration: the classic formula sqrt(2 ln(1.25/delta)) / epsilon is proven for epsilon below 1 only, "
            f"not {epsilon} (at 10 and delta 0.000001 its noise has epsilon 10.254); leave the field out: the analytic "
            "calibration is exact, and takes less noise"
        )
    with localcontext(Context(prec=_DIGITS)):
        return _up((2 * (Decimal("1.25") / delta).ln()).sqrt() / epsilon)


def smallest_epsilon(shift: Decimal, delta: Decimal, at_most: Decimal) -> Decimal:
    """The epsilon of one release at `delta`, rounded up, given that `at_most` is one. shift: sensitivity / sigma."""
    with localcontext(Context(prec=_DIGITS)):
        spared = _last(Decimal(0), at_most, lambda less: gaussian_delta(shift, at_most - less) <= delta)
        return at_most - spared


def gaussian_delta(shift: Decimal, epsilon: Decimal) -> Decimal:
    """Delta of one Gaussian release, in the active context, or a bound just above it. shift: sensitivity / sigma.

    Phi(shift/2 - epsilon/shift) - e^epsilon Phi(-shift/2 - epsilon/shift).
    """
    upper, lower = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    if upper < -_FAR:
        return Decimal(0)  # below 10^-71, and no delta that is asked for is
    if lower < -_FAR:
        return normal_below(upper)
    return normal_below(upper) - epsilon.exp() * normal_below(lower)


def normal_below(x: Decimal) -> Decimal:
    """Phi(x), in the active context: absolutely exact to its digits, less some for the terms that are added.

    erf(z) = 2 / sqrt(pi) e^(-z^2) (z + 2 z^3 / 3 + 4 z^5 / 15 + ...): all of one sign.
    """
    if abs(x) > 2 * _FAR:
        return Decimal(int(x > 0))
    z = x / Decimal(2).sqrt()
    term = total = z
    n = 1
    while total + term != total:
        term = term * 2 * z * z / (2 * n + 1)
        total += term
        n += 1
    return (1 + 2 / _SQRT_PI * (-z * z).exp() * total) / 2


def _last(low: Decimal, high: Decimal, holds: Callable[[Decimal], bool]) -> Decimal:
    """Just below the point in (low, high) up to which the monotone `holds` is true; it is never asked at `low`."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _up(ratio: Decimal) -> Fraction:
    return Fraction(Context(prec=30, rounding=ROUND_CEILING).plus(ratio))
