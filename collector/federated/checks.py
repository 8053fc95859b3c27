"""What the package's functions are given: counts that are whole, relations that exist. ValueError, in one sentence.

Rules of this file: a count is an integer of any kind (numpy's too) and never a truth value, which would pass for 1; a
relation is one that has a sensitivity, for any other word would be taken for the cheaper one.
"""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral


def whole_number(name: str, value: object, least: int) -> int:
    """`value` as an int, unless it is no whole number of at least `least`: ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: must be a whole number of at least {least}, got {value!r}")
    return int(value)


def known_relation(relation: object, relations: Collection[str]) -> None:
    """ValueError unless it is one of them."""
    if relation not in relations:
        raise ValueError(f"relation: must be {' or '.join(map(repr, relations))}, got {relation!r}")
