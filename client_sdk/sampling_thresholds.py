"""Thresholds of the laws that `client_sdk.sampling_vectorised` draws from, certified at any width.

Rules of this file: decimals of as many digits as it takes, never a float. A law is the list of P(X <= x); its
numbers are transcendental, so what is handed out is floor(2^bits * P), and only once no rounding can have
moved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

BASE = 256
"""Of the digits that noise is drawn in."""


def digit_law(scale: Fraction) -> list[Decimal]:
    """P(D <= d) for d = -255 .. 254, D the difference of two iid geometric(scale) variables truncated below 256.

    In the active decimal context. Weight of d: p^|d| * sum over j < 256-|d| of p^(2j), p = exp(-1/scale).
    Only sums and products of positive numbers: nothing cancels.
    """
    powers = _powers(scale, 2 * BASE)
    partial = list(accumulate(powers[0::2]))
    side = [powers[d] * partial[BASE - 1 - d] for d in range(BASE)]
    sums = list(accumulate([*reversed(side), *side[1:]]))
    return [s / sums[-1] for s in sums[:-1]]


def top_digit_law(scale: Fraction, reach: int) -> list[Decimal]:
    """P(X <= x) for x = -reach-1 .. reach, X discrete Laplace of this scale: p^-x/(1+p) below 0, mirrored above."""
    powers = _powers(scale, reach + 2)
    lower = [p / (1 + powers[1]) for p in powers[1:]]
    return [*reversed(lower), *(1 - p for p in lower)]


def certified(law: Callable[[], Iterable[Decimal]]) -> Callable[[int], list[int]]:
    """floors(bits) of a law's thresholds: its digits grow until no rounding can have moved a floor.

    The laws above take at most 2^12 rounded steps, each off by at most one unit of the last digit (and an
    argument of exp() of at most 2^10), so 10^8 units bound the error of a threshold below 1 by far.
    """

    def floors(bits: int) -> list[int]:
        digits = 30 + bits // 3
        while True:
            with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
                slack = Decimal(10) ** (8 - digits)
                pairs = [(int((p - slack) * 2**bits), int((p + slack) * 2**bits)) for p in law()]
            if all(low == high for low, high in pairs):
                return [low for low, _ in pairs]
            digits *= 2

    return floors


def _powers(scale: Fraction, count: int) -> list[Decimal]:
    """p^0 .. p^(count-1) for p = exp(-1/scale), in the active context."""
    ratio = (Decimal(-scale.denominator) / Decimal(scale.numerator)).exp()
    return list(accumulate([Decimal(1)] + [ratio] * (count - 1), lambda a, b: a * b))
