"""Numbers as options of the commands that account: `quantities.py` reads them, argparse says whose they are.

Rules of this file: whatever is refused becomes one line, with the option's name in front.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeVar

from client_sdk.mechanisms.parameters import EPSILON_MAX, EPSILON_MIN
from collector.service import quantities
from collector.service.quantities import DELTA, FALSE_DEVICES, SHOWN

_WHOLE: Final = re.compile(r"[0-9]{1,30}", re.ASCII)

T = TypeVar("T")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`, for argparse."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number, {least} to {most}, not {text[:SHOWN]!r}")
        return int(text)

    return read


def _option(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def epsilon(text: str) -> Decimal:
    """What one report of a mechanism may cost."""
    meaning = f"a decimal number, {EPSILON_MIN:f} to {EPSILON_MAX}"
    return _option(lambda text: quantities.decimal(text, EPSILON_MIN, EPSILON_MAX, meaning), text)


def delta(text: str) -> float:
    """A probability that is small but not 0."""
    return _option(quantities.delta, text)


def share(text: str) -> Fraction:
    """A share of a cohort, 0 to 1, exact."""
    return _option(quantities.share, text)


def add_delta(parser: ArgumentParser) -> None:
    """`--delta`, the same everywhere."""
    text = f"probability with which the composed figures may fail (default {DELTA})"
    parser.add_argument("--delta", type=delta, default=DELTA, metavar="D", help=text)


def add_corrupt(parser: ArgumentParser, default: str) -> None:
    """`--corrupt`; `default` says what holds without it."""
    text = f"share of each cohort that is assumed to collude with whoever looks, 0 to 1 (default: {default})"
    parser.add_argument("--corrupt", type=share, metavar="F", help=text)


def add_false_devices(parser: ArgumentParser) -> None:
    """`--false-devices`, the text as it was given: it may go to a collector."""

    def read(text: str) -> str:
        _option(quantities.false_devices, text)
        return text

    text = (
        f"reports that may be false, a number or a share such as {FALSE_DEVICES}%; a device that lies in seven periods "
        f"makes seven of them (default {FALSE_DEVICES}%)"
    )
    parser.add_argument("--false-devices", type=read, default=FALSE_DEVICES, metavar="M", help=text)
