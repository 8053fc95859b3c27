"""The decimal context that a plan is read, written and priced in, whatever the process around it has set."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, DivisionByZero, InvalidOperation, Overflow
from typing import Final

EXACT: Final = Context(
    prec=200,
    rounding=ROUND_HALF_EVEN,
    Emin=-999_999,
    Emax=999_999,
    clamp=0,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""Exact for sums and products of a plan's decimals, which have 60 digits at most. Use its methods, or a copy."""
