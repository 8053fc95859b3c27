"""How a vector file looks: what it is about first, then one line an entry, byte strings in hex."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
FOLDER = Path(__file__).resolve().parent


def drawn(label: str, size: int = 32) -> bytes:
    """Bytes that follow from a label: SHA-256 over it and a counter. They make vectors, never keys of a real device."""
    blocks = [hashlib.sha256(f"vectors/{label}/{i}".encode()).digest() for i in range(-(-size // 32))]
    return b"".join(blocks)[:size]


PERIOD_START = 1_767_225_600
DIGEST = drawn("roster digest")
"""The roster digest of every file that has no roster."""


def flipped(data: bytes, place: int = 0, bit: int = 0) -> bytes:
    """The same bytes but for one bit."""
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def as_json(value: Any) -> Any:
    """Byte strings in hex, tuples as lists; numbers, texts, true, false and null as they are."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [as_json(item) for item in value]
    return value


def as_text(document: Mapping[str, Any]) -> str:
    """The file: a line for each entry of a list, so that a change shows as the lines it changes."""
    parts = [f"{json.dumps(name)}: {_section(as_json(value))}" for name, value in document.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _section(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(_compact(entry) for entry in value) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def load(name: str) -> Any:
    """A committed file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def raw(entry: Mapping[str, Any], *names: str) -> list[bytes]:
    """These fields of an entry as byte strings."""
    return [bytes.fromhex(entry[name]) for name in names]


Edit = list[Any]


def edits(base: bytes, changed: bytes) -> list[Edit]:
    """What turns `base` into `changed`: [place, how many bytes go, what comes], ascending, in places of `base`."""
    if len(base) != len(changed):
        start = _common(base, changed)
        most = min(len(base), len(changed)) - start
        end = min(_common(base[::-1], changed[::-1]), most)
        return [[start, len(base) - end - start, changed[start : len(changed) - end]]]
    places = [at for at in range(len(base)) if base[at] != changed[at]]
    runs: list[list[int]] = []
    for at in places:
        if runs and at - runs[-1][1] < 8:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    return [[first, last + 1 - first, changed[first : last + 1]] for first, last in runs]


def edited(base: bytes, changes: list[Edit]) -> bytes:
    """The other half, from a file."""
    for place, gone, new in reversed(changes):
        base = base[:place] + bytes.fromhex(new) + base[place + gone :]
    return base


def _common(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
