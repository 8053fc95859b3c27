"""Messages that are made to fill a reader's memory or its time, and a child process that measures what they fill.

`python -m tests.property.floods` decodes each one at its full size and prints how far the process grew, as JSON: the
high-water mark of its resident memory, which also sees what protobuf allocates outside Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from client_sdk.errors import WireError
from client_sdk.wire import convert, limits, secagg_pb2

STATUS = Path("/proc/self/status")
FACTOR = {"upb": 12, "python": 100}
SPARE_BYTES = 8 << 20
"""A reader of n bytes grows by at most FACTOR x n + SPARE_BYTES. A packed list of one-byte numbers takes four bytes a
number (a Python integer each, in protobuf's slow half) and is copied as it grows; the slow half also keeps an object
for each unknown field of an advert, where nobody counts them before."""


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def in_field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _within(outer: int, size: int, piece: bytes) -> bytes:
    """The member `outer` of the oneof, filled with copies of `piece`: `size` bytes at most, all together."""
    return in_field(outer, piece * ((size - 12) // len(piece)))


def nested(size: int) -> bytes:
    """Each field the next one's content, as deep as `size` bytes go in, unknown to every message."""
    data = b""
    while len(data) < min(size, 1 << 14) - 8:
        data = in_field(15, data)
    return data


P = {f.name: f.number for f in secagg_pb2.ParticipantMessage.DESCRIPTOR.fields}
C = {f.name: f.number for f in secagg_pb2.CollectorMessage.DESCRIPTOR.fields}
NUMBERS_TAG, ENTRIES_TAG, ADVERTS_TAG, PROOF_TAG = b"\x08", b"\x12\x00", b"\x4a\x00", b"\x62\x00"

Flood = Callable[[int], bytes]
PARTICIPANT: dict[str, Flood] = {
    "members of the oneof by turns": lambda n: (in_field(P["hello"], b"") + in_field(P["advert"], b"")) * (n // 4),
    "empty entries": lambda n: _within(P["sealed_shares"], n, ENTRIES_TAG),
    "numbers, packed": lambda n: in_field(P["sealed_shares"], in_field(1, b"\x01" * (n - 16))),
    "numbers, not packed": lambda n: _within(P["sealed_shares"], n, NUMBERS_TAG + b"\x01"),
    "unknown fields": lambda n: b"\x78\x01" * (n // 2),
    "unknown fields inside": lambda n: _within(P["hello"], n, b"\x78\x01"),
    "empty groups": lambda n: b"\x7b\x7c" * (n // 2),
    "groups in groups": lambda n: b"\x7b" * n,
    "messages in messages": nested,
    "one long field": lambda n: in_field(P["masked_input_piece"], in_field(2, bytes(n - 16))),
}
COLLECTOR: dict[str, Flood] = {
    "members of the oneof by turns": lambda n: (in_field(C["challenge"], b"") + in_field(C["joined"], b"")) * (n // 4),
    "empty adverts": lambda n: _within(C["roster"], n, ADVERTS_TAG),
    "empty proofs": lambda n: _within(C["roster"], n, PROOF_TAG),
    "numbers, packed": lambda n: in_field(C["roster"], in_field(8, b"\x01" * (n - 16))),
    "unknown fields in adverts": lambda n: in_field(C["roster"], _within(9, n - 16, b"\x78\x01")),
    "unknown fields": lambda n: b"\x78\x01" * (n // 2),
    "a long reason": lambda n: in_field(C["round_aborted"], in_field(1, b"a" * (n - 16))),
}
PLAN: dict[str, Flood] = {
    "texts, each in place of the last": lambda n: b"\x0a\x01a" * (n // 3),
    "unknown fields": lambda n: b"\x78\x01" * (n // 2),
    "one long text": lambda n: in_field(1, b"a" * (n - 8)),
}


Reader = Callable[[bytes], Any]
ALL: list[tuple[str, Reader, int, dict[str, Flood]]] = [
    ("plan request", convert.get_plan_request_from_wire, limits.MAX_PARTICIPANT_MESSAGE_BYTES, PLAN),
    ("participant", convert.participant_message_from_wire, limits.MAX_PARTICIPANT_MESSAGE_BYTES, PARTICIPANT),
    ("plan response", convert.get_plan_response_from_wire, limits.MAX_COLLECTOR_MESSAGE_BYTES, PLAN),
    ("collector", convert.collector_message_from_wire, limits.MAX_COLLECTOR_STREAM_MESSAGE_BYTES, COLLECTOR),
]


def _field(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def _growth(reader: Reader, data: bytes) -> int:
    """In a process of its own, so that nothing that was filled and let go before is there to be filled again."""
    out, into = os.pipe()
    if os.fork() == 0:
        Path("/proc/self/clear_refs").write_text("5")  # the mark goes down to what is resident now
        before = _field("VmRSS")
        with suppress(WireError):
            reader(data)
        os.write(into, str(max(0, _field("VmHWM") - before)).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        grown = int(answer.read())
    os.wait()
    return grown


def measured() -> Iterator[tuple[str, int, int]]:
    for side, reader, most, floods in ALL:
        for name, flood in floods.items():
            data = flood(most)
            yield f"{side}: {name}", len(data), _growth(reader, data)


if __name__ == "__main__":
    print(json.dumps(list(measured())))
