"""Numbers as operators give them, for the commands that account: plain, finite, in range, or refused by one line.

Rules of this file: what is not exactly a number in plain digits ("nan", "1_000", "0x1", "", " 5") is none; a number
outside its range is refused with the range; argparse puts the option's name in front of every line.
What it does not do: round. An epsilon stays the decimal that was written, a share an exact fraction.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Final

from client_sdk.mechanisms.parameters import EPSILON_MAX, EPSILON_MIN

DELTA: Final = "1e-6"
DELTA_MIN: Final = Decimal("1e-30")
SHARE_MIN: Final = Decimal("1e-9")
SHOWN: Final = 40
"""Characters of a refused text that are repeated."""

_WHOLE = re.compile(r"[0-9]{1,30}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60})?(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`, for argparse."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number, {least} to {most}, not {text[:SHOWN]!r}")
        return int(text)

    return read


def _decimal(text: str, least: Decimal, most: Decimal, meaning: str) -> Decimal:
    if not _DECIMAL.fullmatch(text) or not least <= Decimal(text) <= most:
        raise ArgumentTypeError(f"must be {meaning}, not {text[:SHOWN]!r}")
    return Decimal(text)


def epsilon(text: str) -> Decimal:
    """What one report of a mechanism may cost."""
    return _decimal(text, EPSILON_MIN, EPSILON_MAX, f"a decimal number, {EPSILON_MIN:f} to {EPSILON_MAX}")


def delta(text: str) -> float:
    """A probability that is small but not 0; what holds at 0 is the pure figure."""
    value = _decimal(text, DELTA_MIN, Decimal(1), f"a probability of at least {DELTA_MIN} and below 1, such as {DELTA}")
    if float(value) >= 1.0:
        raise ArgumentTypeError(f"must be a probability below 1, such as {DELTA}, not {text[:SHOWN]!r}")
    return float(value)


def share(text: str) -> Fraction:
    """A share of a cohort, 0 to 1, exact; one so small that no cohort has it is a slip."""
    value = _decimal(text, Decimal(0), Decimal(1), meaning := "a share from 0 to 1, such as 0.1")
    return Fraction(_decimal(text, SHARE_MIN, Decimal(1), meaning) if value else value)


def add_delta(parser: ArgumentParser) -> None:
    """`--delta`, the same everywhere."""
    text = f"probability with which the composed figures may fail (default {DELTA})"
    parser.add_argument("--delta", type=delta, default=DELTA, metavar="D", help=text)


def add_corrupt(parser: ArgumentParser, default: str) -> None:
    """`--corrupt`; `default` says what holds without it."""
    text = f"share of each cohort that is assumed to collude with whoever looks, 0 to 1 (default: {default})"
    parser.add_argument("--corrupt", type=share, metavar="F", help=text)
