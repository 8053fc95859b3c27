"""Edges of bins of equal width, from the range's ends and their number.

Rules of this file: the same edges on every machine, by integers alone; exact where a decimal can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Final

MAX_DIGITS: Final = 30
"""After the point, of an edge."""

ROUNDED_TO: Final = 1000
"""An edge that is no such decimal is rounded to a thousandth of a bin's width or finer."""


def equal_edges(lower: Decimal, upper: Decimal, bins: int) -> tuple[Decimal, ...]:
    """`bins` + 1 edges from lower to upper (lower < upper, bins >= 1).

    Each is exact where all are decimals of at most 30 digits after the point. Else those between the ends are rounded
    (half to even) to the fewest digits after the point whose unit is at most a thousandth of the width.
    """
    places, between = _between(lower, upper, bins)
    return (lower, *(Decimal(f"{edge}E-{places}") for edge in between), upper)


def are_equal(edges: Sequence[Decimal]) -> bool:
    """Are these the edges that `equal_edges` makes of their ends and number? Compared in order, up to the first not."""
    places, between = _between(edges[0], edges[-1], len(edges) - 1)
    return all(edge == Decimal(f"{expected}E-{places}") for edge, expected in zip(edges[1:-1], between, strict=True))


def _between(lower: Decimal, upper: Decimal, bins: int) -> tuple[int, Iterator[int]]:
    """Digits after the point, and the edges between the ends, start + width step, in units of the last digit."""
    start, width = Fraction(lower), (Fraction(upper) - Fraction(lower)) / bins
    places = _places(start, width)
    unit = lcm(start.denominator, width.denominator)
    first, each = int(start * unit) * 10**places, int(width * unit) * 10**places
    return places, (_nearest(first + each * step, unit) for step in range(1, bins))


def _nearest(numerator: int, denominator: int) -> int:
    """The quotient, rounded half to even: what `round` of a Fraction gives, without making one of each edge."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2))


def _places(start: Fraction, width: Fraction) -> int:
    # the first two edges are decimals of so many digits if and only if all are: start + width step
    fewest = max(_digits(start.denominator), _digits(width.denominator))
    if fewest <= MAX_DIGITS:
        return fewest
    places = 0
    while width * 10**places < ROUNDED_TO:
        places += 1
    return places


def _digits(denominator: int) -> int:
    """The power of ten that clears it; more than MAX_DIGITS where none as small does."""
    places = 0
    while places <= MAX_DIGITS and 10**places % denominator:
        places += 1
    return places
