"""How many fields a message holds, counted in its bytes before anything is built from them.

Rules of this file: nothing is copied and nothing is kept; counting stops at the limit. Why: a parser builds an
object for every nested message, however empty; two bytes a piece, four megabytes of them would fill hundreds of
megabytes before their number could be looked at.
What it does not do: it judges no bytes. Where they are no protobuf it stops counting; so does the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT: Final = 10


def fields_within(data: bytes, most: int, *, inside: bool = True) -> bool:
    """Are there at most `most` fields in a message and, all together, in the messages right inside it?

    Every length-delimited field is looked into, whether it holds a message or not; none is, unless `inside`. Groups
    count as the fields that they consist of.
    """
    left = most
    for start, end in _walk(data, 0, len(data)):
        left -= 1
        if inside:
            left = _count(data, start, end, left)
        if left < 0:
            return False
    return True


def _count(data: bytes, start: int, end: int, left: int) -> int:
    for _ in _walk(data, start, end):
        left -= 1
        if left < 0:
            break
    return left


def _walk(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the content of each field lies that is length-delimited (others: nowhere), up to the first broken one."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(data, at, end)
            yield at, min(at + size, end)
            at += size
            continue
        yield at, at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        else:
            at += _FIXED_BYTES.get(kind, 0)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where the next thing begins: beyond `end` where it breaks off."""
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= end:
            break
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    return 0, end + 1
