"""Instants, JSON and CSV as text.

CSV is RFC 4180: comma, CRLF, quotes doubled. A spreadsheet takes a text that begins with = + - @ for a formula, also
after a tab, a line's end or a zero character, so such *text* cells get an apostrophe in front; so do those that begin
with an apostrophe, or taking one away would not give every name back. Numbers are left alone, negative ones too, and
written out: 0.000001, never 1e-06.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Final

from client_sdk.accounting.budget import MICRO
from client_sdk.errors import ConfigurationError

Cell = str | int | float | Decimal | None
"""A table's cell: text, a number, or nothing known. `str` is what may hold a formula."""

GUARDED: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "'")


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, raw_text: bool = False) -> str:
    """One line per row, ended by CRLF; None is an empty cell. `raw_text` leaves out the guard."""
    return csv_rows([header], raw_text=True) + csv_rows(rows, raw_text=raw_text)


def csv_rows(rows: Iterable[Sequence[Cell]], *, raw_text: bool = False) -> str:
    """The same without a header: pieces of a table that is never whole in memory."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_csv_cell(cell, raw_text=raw_text) for cell in row])
    return out.getvalue()


def _csv_cell(cell: Cell, *, raw_text: bool) -> Cell:
    if isinstance(cell, (float, Decimal)):
        return plain(cell)
    return cell if raw_text else _guarded(cell)


def _guarded(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(GUARDED) else cell


def to_json(document: object) -> str:
    """Readable JSON on several lines. Raises ValueError for NaN and infinities, which are no JSON."""
    return _json(document, "\n")


def json_pieces(document: Mapping[str, object], name: str, items: Iterable[object]) -> Iterator[str]:
    """The text of `to_json({**document, name: [*items]})`, one item at a time."""
    yield to_json({**document, name: []}).removesuffix("]\n}")
    is_empty = True
    for item in items:
        yield f"{'' if is_empty else ','}{ITEM}{_json(item, ITEM)}"
        is_empty = False
    yield "]\n}" if is_empty else "\n  ]\n}"


def _json(value: object, line: str) -> str:
    """`line`: the line break and indentation that `value` stands at. json.dumps cannot write a float out."""
    if isinstance(value, float) and math.isfinite(value):
        return plain(value)
    if isinstance(value, (str, int, float)) or value is None:
        return _ENCODE(value)
    below = f"{line}  "
    if isinstance(value, dict):
        items = [f"{_ENCODE(str(key))}: {_json(item, below)}" for key, item in value.items()]
        brackets = "{}"
    elif isinstance(value, (list, tuple)):
        items, brackets = [_json(item, below) for item in value], "[]"
    elif isinstance(value, Mapping):
        return _json(dict(value), line)
    else:
        return _ENCODE(value)
    return f"{brackets[0]}{below}{f',{below}'.join(items)}{line}{brackets[1]}" if items else brackets


ITEM: Final = "\n    "
"""The line break before an item of a document's list."""

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def plain(number: float | Decimal) -> str:
    """The shortest decimal that reads as this number again, written out: 0.000001, not 1e-06. A float has a point."""
    text = str(number)
    if "e" not in text and "E" not in text:
        return text
    written = format(Decimal(text), "f")
    return written if isinstance(number, Decimal) or "." in written else f"{written}.0"


def parse_instant(text: str, zone: tzinfo = UTC) -> int:
    """ISO 8601 -> seconds since the epoch; a bare date is 00:00 in `zone`, and so is a time without an offset.

    A fraction of a second rounds up: `since <= start` and `start < until` mean the same for whole starts.
    Raises ConfigurationError.
    """
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=zone)
        seconds = math.ceil((instant - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        format_instant(seconds)
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{text[:40]!r} is no ISO 8601 date or time; write 2026-01-31 or 2026-01-31T06:00:00Z"
        ) from None
    return seconds


def format_instant(seconds: int | None) -> str | None:
    """Seconds since the epoch -> `2026-01-31T06:00:00Z`; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"


def printable(text: str) -> str:
    """For a terminal: control characters and the like as escapes, so that a name can neither move nor hide."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode("ascii") for ch in text)


def micro_as_number(micro_epsilon: int | None) -> float | None:
    """Micro-epsilon as epsilon, for JSON; the nearest float, which names the same decimal again."""
    return None if micro_epsilon is None else micro_epsilon / MICRO
