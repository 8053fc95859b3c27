"""Reading one TOML table field by field, noting every fault instead of stopping at the first.

Rules of this file: each fault is one line that begins with the field's full name; a reader always returns a
value of the promised type, so that the parser goes on, and whoever compares two fields first asks
`table.clean`. Nothing is guessed: a string is no number, a number no duration, an unknown field no comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeGuard

DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
FIRST_DAY: Final = date(1970, 1, 1)
BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
MAX_DIGITS = 30
"""Digits before and after the point that a decimal of a plan may have, written without exponent."""
_TOO_LONG: Final[int] = 10**MAX_DIGITS

MAX_DENOMINATOR: Final = 10**18
"""Of a share: a round's transcript writes numerator and denominator as 64-bit integers."""


class Table:
    """One table of the plan: typed access, and the list of problems shared by the whole plan."""

    def __init__(self, path: str, data: Mapping[str, object], problems: list[str]) -> None:
        self.path = path
        self.data = data
        self.problems = problems
        self.clean = True
        self._known: set[str] = set()

    def problem(self, field: str, text: str) -> None:
        """Note a fault of `field` (empty: of the table itself)."""
        self.clean = False
        self.problems.append(f"{join(self.path, field)}: {text}")

    def take(self, field: str, example: str, *, optional: bool = False) -> object:
        """The raw value, or None; a required field that is missing is a problem that shows `example`."""
        self._known.add(field)
        value = self.data.get(field)
        if value is None and not optional:
            self.problem(field, f"missing; write for example {field} = {example}")
        return value

    def table(self, field: str, *, optional: bool = False) -> Table:
        """The table called `field`, empty where it is missing."""
        self._known.add(field)
        value = self.data.get(field, {} if optional else None)
        below = Table(
            join(self.path, field) if field else f'{self.path}.""',
            value if isinstance(value, dict) else {},
            self.problems,
        )
        if value is None:
            below.problem("", f"missing; the plan needs a table [{below.path}]")
        elif not isinstance(value, dict):
            below.problem("", f"must be a table [{below.path}], not {shown(value)}")
        return below

    def integer(self, field: str, low: int, high: int, *, example: str = "1", default: int | None = None) -> int:
        """A whole number in [low, high]."""
        value = self.take(field, example, optional=default is not None)
        if value is None:
            return low if default is None else default
        if type(value) is not int or not low <= value <= high:
            self.problem(field, f"must be a whole number from {low} to {high}, not {shown(value)}")
            return low
        return value

    def decimal(self, field: str, *, example: str = "1.0", default: Decimal | None = None) -> Decimal:
        """A finite decimal of at most 30 digits before and after the point."""
        value = self.take(field, example, optional=default is not None)
        if value is None:
            return Decimal(0) if default is None else default
        if _is_plain(value):
            return Decimal(value)
        self.problem(field, _not_a_decimal(value))
        return Decimal(0)

    def decimals(self, field: str, fewest: int, most: int, *, example: str) -> tuple[Decimal, ...]:
        """A list of `fewest` to `most` decimals, as `decimal` takes them; empty where there is a fault."""
        values = self.take(field, example)
        if values is None:
            return ()
        if not isinstance(values, list) or not fewest <= len(values) <= most:
            self.problem(field, f"must be a list of {fewest} to {most} decimal numbers, like {example}")
            return ()
        for value in values:
            if not _is_plain(value):
                self.problem(field, _not_a_decimal(value))
                return ()
        return tuple(Decimal(value) for value in values)

    def flag(self, field: str) -> bool:
        """true or false; false where it is missing."""
        value = self.take(field, "true", optional=True)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.problem(field, f"must be true or false, not {shown(value)}")
        return False

    def fraction(self, field: str, default: str) -> Fraction:
        """An exact share in [0, 0.5)."""
        value = self.decimal(field, default=Decimal(default))
        if not 0 <= value < Decimal("0.5"):
            self.problem(field, f"must be at least 0 and below 0.5, not {shown(value)}")
            return Fraction(0)
        if Fraction(value).denominator > MAX_DENOMINATOR:
            self.problem(field, f"may have at most 18 digits after the point, not {shown(value)}")
            return Fraction(0)
        return Fraction(value)

    def duration_s(self, field: str, low_s: int, high_s: int, *, example: str, default_s: int | None = None) -> int:
        """A duration like "30s", "15m", "6h" or "7d", in whole seconds within [low_s, high_s]."""
        value = self.take(field, f'"{example}"', optional=default_s is not None)
        if value is None:
            return low_s if default_s is None else default_s
        match = DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.problem(field, f'must be a duration like "30s", "15m", "6h" or "7d", not {shown(value)}')
            return low_s
        seconds = int(match[1]) * UNIT_S[match[2]]
        if not low_s <= seconds <= high_s:
            self.problem(field, f"must lie between {low_s} and {high_s} seconds, not {shown(value)}")
            return low_s
        return seconds

    def day(self, field: str) -> date | None:
        """A day (UTC), as a TOML date or as text like "2027-01-01"; None where it is missing."""
        value = self.take(field, "", optional=True)
        if isinstance(value, str) and DAY.fullmatch(value):
            with suppress(ValueError):  # 2027-02-30
                value = date.fromisoformat(value)
        # a date with a time is a date to Python; a plan knows whole days only
        if value is None or (type(value) is date and value >= FIRST_DAY):
            return value
        self.problem(field, f"must be a day from {FIRST_DAY} on, like 2027-01-01, not {shown(value)}")
        return None

    def choice(self, field: str, choices: Iterable[str], later: Iterable[str] = (), default: str = "") -> str:
        """One of `choices`; a word of `later` is answered with "not in this version"."""
        names = tuple(choices)
        value = self.take(field, f'"{names[0]}"', optional=bool(default))
        if value is None:
            return default or names[0]
        if isinstance(value, str) and value in names:
            return value
        offered = ", ".join(f'"{name}"' for name in names)
        if isinstance(value, str) and value in tuple(later):
            self.problem(field, f'this version does not have "{value}"; it has {offered}')
        else:
            self.problem(field, f"must be {'one of ' if len(names) > 1 else ''}{offered}, not {shown(value)}")
        return default or names[0]

    def finish(self, later: Iterable[str] = ()) -> None:
        """Refuse what nobody asked for; a field of `later` is one that this version does not have."""
        coming = tuple(later)
        for field in self.data:
            if field in self._known:
                continue
            if field in coming:
                self.problem(field, "this version does not have this field; remove it")
            else:
                self.problem(field, f"unknown field; known here: {', '.join(sorted(self._known))}")


def join(path: str, field: str) -> str:
    """`metrics.network` and `kind` -> `metrics.network.kind`; an odd key is quoted and cut to stay one line."""
    key = field if not field or BARE_KEY.fullmatch(field) else shown(field)
    return f"{path}.{key}" if path and key else path or key


def shown(value: object) -> str:
    """A value of the plan (public, but the author's) for one line of an error: quoted, typed, cut."""
    if isinstance(value, str):
        text = json.dumps(value[:64])
        return text if len(value) <= 64 else text[:-1] + '..."'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return str(value)[:40]
    if isinstance(value, int):
        return str(value) if abs(value) < 10**40 else "a number of more than 40 digits"
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a date or time"


def _is_plain(value: object) -> TypeGuard[int | Decimal]:
    if type(value) is int:
        return abs(value) < _TOO_LONG
    return isinstance(value, Decimal) and _is_short(value)


def _is_short(value: Decimal) -> bool:
    # Looks at digits and exponent before anything writes the number out: 1e999999999 would fill the memory.
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    return int(exponent) >= -MAX_DIGITS and len(digits) + int(exponent) <= MAX_DIGITS


def _not_a_decimal(value: object) -> str:
    if isinstance(value, Decimal) and not value.is_finite():
        return f"must be a finite decimal number, not {shown(value).lower()}"
    if isinstance(value, (Decimal, int)) and not isinstance(value, bool):
        return f"may have at most {MAX_DIGITS} digits before and after the point, not {shown(value)}"
    return f"must be a decimal number, not {shown(value)}"
