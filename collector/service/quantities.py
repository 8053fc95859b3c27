"""Numbers as people write them, for whoever accounts: plain, finite, in range, or refused by one line.

Rules of this file: what is not exactly a number in plain digits ("nan", "1_000", "0x1", "", " 5") is none; a number
outside its range is refused with the range, as a ValueError that begins with "must be".
What it does not do: round. A share is an exact fraction.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

DELTA: Final = "1e-6"
DELTA_MIN: Final = Decimal("1e-30")
SHARE_MIN: Final = Decimal("1e-9")
SHOWN: Final = 40
"""Characters of a refused text that are repeated."""

_DECIMAL = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60})?(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_EXACT = Context(prec=200)
FALSE_DEVICES: Final = "1%"


def decimal(text: str, least: Decimal, most: Decimal, meaning: str) -> Decimal:
    """A decimal number from `least` to `most`; `meaning` says which."""
    if not _DECIMAL.fullmatch(text) or not least <= Decimal(text) <= most:
        raise ValueError(f"must be {meaning}, not {text[:SHOWN]!r}")
    return Decimal(text)


def delta(text: str) -> float:
    """A probability that is small but not 0; what holds at 0 is the pure figure."""
    if _DECIMAL.fullmatch(text) and not Decimal(text):
        raise ValueError("must be above 0: what holds at delta 0 is the pure figure, which stands beside the others")
    meaning = f"a probability of at least {DELTA_MIN} and below 1, such as {DELTA}"
    value = decimal(text, DELTA_MIN, Decimal(1), meaning)
    if float(value) >= 1.0:
        raise ValueError(f"must be a probability below 1, such as {DELTA}, not {text[:SHOWN]!r}")
    return float(value)


def share(text: str) -> Fraction:
    """A share of a cohort, 0 to 1, exact; one so small that no cohort has it is a slip."""
    value = decimal(text, Decimal(0), Decimal(1), meaning := "a share from 0 to 1, such as 0.1")
    return Fraction(decimal(text, SHARE_MIN, Decimal(1), meaning) if value else value)


def share_text(value: Fraction) -> str:
    """The digits that `share` reads as `value`, which must be one that it made."""
    return f"{_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)):f}"


def false_devices(text: str) -> Fraction | int:
    """How many contributors may be false: a whole number, or a share such as 1%, exact."""
    if _WHOLE.fullmatch(text):
        return int(text)
    meaning = "a number of devices, such as 10, or a share of the contributors from 0% to 100%, such as 1%"
    number, percent, rest = text.partition("%")
    if not percent or rest or "e" in number.lower():
        raise ValueError(f"must be {meaning}, not {text[:SHOWN]!r}")
    if not _DECIMAL.fullmatch(number) or Decimal(number) > 100:
        raise ValueError(f"must be {meaning}, not {text[:SHOWN]!r}")
    return Fraction(number) / 100
