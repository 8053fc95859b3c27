"""What the mechanisms' parameters share: their checks, and probabilities as integers over 2^64.

Checks return their problems as lines that name the field.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from client_sdk.errors import PlanError

EPSILON_MIN = Decimal("0.000001")
EPSILON_MAX = Decimal(40)
"""Above, the last of 64 bits of a lie's probability would be reached; below, nobody learns anything."""

ONE = 1 << 64
"""Probability one, in the integers that finite choices are drawn with."""


def epsilon_problems(epsilon: Decimal, field: str = "epsilon") -> list[str]:
    """Why this epsilon cannot be used (no line: it can)."""
    if epsilon.is_finite() and EPSILON_MIN <= epsilon <= EPSILON_MAX:
        return []
    return [f"{field}: must lie between 0.000001 and 40, not {epsilon}"]


def as_decimal(field: str, number: Decimal | int) -> Decimal:
    """A parameter as an exact Decimal. A float is refused: it is not the number its author wrote."""
    if isinstance(number, bool) or not isinstance(number, Decimal | int):
        raise PlanError(f"{field}: must be a Decimal or an integer, not {type(number).__name__}")
    return Decimal(number)


def share_numerator(epsilon: Decimal | Fraction, likely: int, unlikely: int) -> int:
    """floor(2^64 likely e^epsilon / (likely e^epsilon + unlikely)): the chance of the likely outcomes together.

    `likely` outcomes that are each e^epsilon times as probable as each of `unlikely` others (both at least 1). The
    floor is the private side: rounding moves probability to the unlikely outcomes. 20 digits before the point, of 100
    that are computed; taking 10^-70 off first keeps the floor on that side whatever the last digits' rounding did.
    """
    with localcontext(Context(prec=100)):
        odds = _odds(epsilon) * likely
        return int(odds / (odds + unlikely) * ONE - Decimal("1e-70"))


@lru_cache(maxsize=256)
def _odds(epsilon: Decimal | Fraction) -> Decimal:
    """e^epsilon in 100 digits. Kept: the search for a window asks for the same one dozens of times."""
    with localcontext(Context(prec=100)):
        exact = Decimal(epsilon.numerator) / Decimal(epsilon.denominator) if isinstance(epsilon, Fraction) else epsilon
        return exact.exp()
