"""What is accepted in a field, one check per kind, and the shape of a message made of them. No generated code here.

Rules of this file: a check reads a value of either world (the generated class's or our own) and answers with our own
type or with FieldError, which says what is wrong and never holds the content; the limit of a list is checked before
the list is copied.
What it does not do: it knows no message; `shapes` is the table of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from client_sdk.secagg import messages as m
from client_sdk.secagg.parameters import MAX_ROSTER


class FieldError(Exception):
    """What is wrong with one field, without its content; convert turns it into a WireError."""


Check = Callable[[Any], Any]
"""Takes a field's value from either world, returns it as our own type, or raises FieldError."""


# --- checks, one per kind of field ----------------------------------------------------------------


def exactly(*sizes: int) -> Check:
    wanted = " or ".join(map(str, sizes))

    def check(value: Any) -> Any:
        if len(value) not in sizes:
            raise FieldError(f"{len(value)} bytes instead of {wanted}")
        return value

    return check


def between(least: int, most: int, unit: str = "bytes") -> Check:
    def check(value: Any) -> Any:
        if not least <= len(value) <= most:
            raise FieldError(f"{len(value)} {unit}, must be {least} to {most}")
        return value

    return check


def characters(least: int, most: int) -> Check:
    return between(least, most, "characters")


def text(pattern: str, rule: str) -> Check:
    matches = re.compile(pattern, re.ASCII).fullmatch

    def check(value: Any) -> Any:
        if matches(value) is None:
            raise FieldError(f"must be {rule}")
        return value

    return check


def number(least: int, most: int) -> Check:
    def check(value: Any) -> Any:
        if not least <= value <= most:
            raise FieldError(f"must lie in {least} to {most}")
        return value

    return check


def flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise FieldError("must be true or false")
    return value


def indices(most: int) -> Check:
    def check(values: Any) -> tuple[int, ...]:
        if len(values) > most:
            raise FieldError(f"{len(values)} indices, at most {most}")
        indices = tuple(values[:])  # as a list first: the generated class's lists are slow to walk
        if indices and not (min(indices) >= 0 and max(indices) < MAX_ROSTER):
            raise FieldError(f"an index is not below {MAX_ROSTER}")
        return indices

    return check


def many(each: Check, most: int) -> Check:
    def check(values: Any) -> tuple[Any, ...]:
        if len(values) > most:
            raise FieldError(f"{len(values)} entries, at most {most}")
        return tuple(map(each, values))

    return check


def many_of(size: int, most: int) -> Check:
    """`many(exactly(size), most)`, without a call for each entry."""
    each = many(exactly(size), most)

    def check(values: Any) -> Any:
        if len(values) > most:
            return each(values)
        entries = tuple(values)
        # Only where one is wrong they are looked at one by one, to say which length it has.
        return entries if set(map(len, entries)) <= {size} else each(entries)

    return check


@dataclass(frozen=True, slots=True)
class Shape:
    """One message: our class, a check per field, and pairs of lists that run in parallel.

    hashed: a list of indices and how many more entries than it `share_hashes` may have.
    """

    kind: type[Any]
    fields: Mapping[str, Check]
    parallel: tuple[tuple[str, str], ...] = ()
    hashed: tuple[str, int] | None = None

    def checked(self, source: object) -> dict[str, Any]:
        """All fields of a message of either world, as our own types. Raises FieldError naming the field."""
        values = {}
        for name, check in self.fields.items():
            try:
                values[name] = check(getattr(source, name))
            except FieldError as fault:
                raise FieldError(f"{name}: {fault}") from None
        for left, right in self.parallel:
            if len(values[left]) != len(values[right]):
                raise FieldError(f"{right}: {len(values[right])} entries for {len(values[left])} {left}")
        if self.hashed is not None:
            _check_hashed(values, *self.hashed)
        return values


def _check_hashed(values: Mapping[str, Any], name: str, more: int) -> None:
    least, size = len(values[name]), len(values["share_hashes"])
    entries, rest = divmod(size, m.SHARE_HASH_PAIR_BYTES)
    if rest or not least <= entries <= least + more:
        raise FieldError(f"share_hashes: {size} bytes for {least} {name}")
