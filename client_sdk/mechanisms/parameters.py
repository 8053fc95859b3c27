"""Checks that the mechanisms' parameters share. Each returns its problems as lines that name the field."""

from __future__ import annotations

from decimal import Decimal

from client_sdk.errors import PlanError

EPSILON_MIN = Decimal("0.000001")
EPSILON_MAX = Decimal(40)
"""Above, the last of 64 bits of a lie's probability would be reached; below, nobody learns anything."""


def epsilon_problems(epsilon: Decimal) -> list[str]:
    """Why this epsilon cannot be used (no line: it can)."""
    if epsilon.is_finite() and EPSILON_MIN <= epsilon <= EPSILON_MAX:
        return []
    return [f"epsilon: must lie between 0.000001 and 40, not {epsilon}"]


def as_decimal(field: str, number: Decimal | int) -> Decimal:
    """A parameter as an exact Decimal. A float is refused: it is not the number its author wrote."""
    if isinstance(number, bool) or not isinstance(number, Decimal | int):
        raise PlanError(f"{field}: must be a Decimal or an integer, not {type(number).__name__}")
    return Decimal(number)
