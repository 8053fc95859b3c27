"""The readers of the wire under attack: whatever comes, WireError at worst, and no more memory or work than its bytes.

Beside `test_wire.py`, whose messages are drawn from strategies: here real messages (the vectors') are damaged on
purpose, as bytes and as the fields that they consist of. Bounded: some ten seconds of computing in all.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import WireError
from client_sdk.wire import convert
from client_sdk.wire import messages as w
from tests.property import floods
from tests.property.floods import in_field, varint
from tests.vectors.layout import load
from tests.vectors.messages import samples

ROOT = Path(__file__).resolve().parents[2]
Reader = Callable[[bytes], Any]
READERS: dict[str, Reader] = {
    name.removesuffix("_from_wire"): function
    for name, function in inspect.getmembers(convert, inspect.isfunction)
    if name.endswith("_from_wire") and not name.startswith("_")
}


def writer(name: str) -> Callable[[Any], bytes]:
    found: Callable[[Any], bytes] = getattr(convert, f"{name}_to_wire")
    return found


def seeds() -> dict[str, list[bytes]]:
    """Valid messages for every reader: those of the vectors, and the reporting ones."""
    found: dict[str, list[bytes]] = {name: [] for name in READERS}
    reporting = [
        w.GetReportRequest("cold_start_ms", 1_700_000_000, 1_700_086_400),
        w.GetPrivacyRequest("0f" * 16, all=True),
        w.GetCountersRequest(),
        w.DocumentPiece("application/json", b'{"a": 1}'),
    ]
    for message in [*samples(), *reporting]:
        for name in READERS:
            try:
                found[name].append(writer(name)(message))
            except WireError:
                continue  # another reader's
    for document in ("round", "sparse_round"):
        for one in load(document)["messages"]:
            name = "participant_message" if "from" in one else "collector_message"
            found[name].append(bytes.fromhex(one["wire"]))
    return found


SEEDS = seeds()


def test_every_reader_has_valid_messages_to_begin_with() -> None:
    assert len(READERS) >= 14
    for name, messages in SEEDS.items():
        assert messages, f"no sample for {name}"
        for data in messages:
            assert READERS[name](writer(name)(READERS[name](data))) == READERS[name](data)


# --- bytes of chance ---------------------------------------------------------------------------------

scalars = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
leaves = st.binary(max_size=40) | st.binary(min_size=32, max_size=32) | st.text(max_size=8).map(str.encode)


def as_field(number: int, kind: int, scalar: int, content: bytes) -> bytes:
    tag = varint(number << 3 | kind)
    match kind:
        case 0:
            return tag + varint(scalar)
        case 1:
            return tag + (scalar % 2**64).to_bytes(8, "little")
        case 2:
            return tag + varint(len(content)) + content
        case 5:
            return tag + (scalar % 2**32).to_bytes(4, "little")
        case _:
            return tag


def fields_of(content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    one = st.builds(as_field, st.integers(1, 16), st.sampled_from([0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7]), scalars, content)
    return st.lists(one, max_size=6).map(b"".join)


trees = st.recursive(leaves, fields_of, max_leaves=12)


@pytest.mark.parametrize("name", READERS)
def test_chance_bytes_and_chance_fields_raise_nothing_but_wire_error(name: str) -> None:
    reader, ends = READERS[name], Counter[str]()

    @settings(max_examples=60, deadline=None)
    @given(trees | st.binary(max_size=120))
    def read(data: bytes) -> None:
        ends[outcome(name, reader, data)] += 1

    read()
    assert ends["refused"] + ends["read"] >= 3, ends  # some parse, so that our own checks are reached


def outcome(name: str, reader: Reader, data: bytes) -> str:
    text = ""
    try:
        message = reader(data)
    except WireError as error:
        text = str(error)
    if text:
        assert len(text) < 200
        assert text.isprintable()
        return "unparsed" if "not a protobuf" in text else "refused"
    # Whatever was read keeps the rules, so it can be sent on.
    assert reader(writer(name)(message)) == message
    return "read"


# --- damaged messages --------------------------------------------------------------------------------


def split(data: bytes) -> list[tuple[int, int, bytes]]:
    """A valid message's fields: number, kind, what follows the tag (of kind 2 the content)."""
    found, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = read_varint(data, at)
            end = at + size
        elif kind == 0:
            end = read_varint(data, at)[1]
        else:
            end = at + (8 if kind == 1 else 4)
        found.append((tag >> 3, kind, data[at:end]))
        at = end
    return found


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, place = 0, 0
    while True:
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        place += 1
        if byte < 0x80:
            return value, at + place


def joined(fields: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(
        varint(number << 3 | kind) + (varint(len(data)) if kind == 2 else b"") + data for number, kind, data in fields
    )


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def cut_out(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 40) :]


def double(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    return data[:end] + data[start:]


def whole_twice(data: bytes, rng: random.Random) -> bytes:
    """Protobuf merges: lists are added up, single fields replaced."""
    return data + data


def lie(data: bytes, rng: random.Random) -> bytes:
    """A field's length is not its content's."""
    fields = split(data)
    place = rng.choice([i for i, (_, kind, _) in enumerate(fields) if kind == 2] or [0])
    number, kind, content = fields[place]
    length = rng.choice([len(content) + 1, max(0, len(content) - 1), 0, 2**31 - 1, 2**32, 2**63 - 1, 2**64 - 1])
    said = varint(number << 3 | kind) + varint(length) + content
    return joined(fields[:place]) + said + joined(fields[place + 1 :])


def repeat(data: bytes, rng: random.Random) -> bytes:
    fields = split(data)
    place = rng.randrange(len(fields))
    return joined(fields[:place] + [fields[place]] * rng.choice([2, 3, 1100]) + fields[place + 1 :])


def drop(data: bytes, rng: random.Random) -> bytes:
    fields = split(data)
    del fields[rng.randrange(len(fields))]
    return joined(fields)


def shuffle(data: bytes, rng: random.Random) -> bytes:
    fields = split(data)
    rng.shuffle(fields)
    return joined(fields)


def renumber(data: bytes, rng: random.Random) -> bytes:
    fields = split(data)
    place = rng.randrange(len(fields))
    fields[place] = (rng.choice([1, 2, 3, 9, 15, 2**29 - 1]), *fields[place][1:])
    return joined(fields)


def retype(data: bytes, rng: random.Random) -> bytes:
    fields = split(data)
    place = rng.randrange(len(fields))
    number, _, content = fields[place]
    said = as_field(number, rng.choice([0, 1, 2, 3, 5]), rng.randrange(2**64), content)
    return joined(fields[:place]) + said + joined(fields[place + 1 :])


def extreme(data: bytes, rng: random.Random) -> bytes:
    """A number at its type's end, or a content of another length."""
    fields = split(data)
    place = rng.randrange(len(fields))
    number, kind, content = fields[place]
    if kind == 0:
        content = varint(rng.choice([0, 1, 2, 16_383, 16_384, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]))
    else:
        content = rng.choice([b"", content[:-1], content + b"\0", content * 2, b"\xff" * len(content)])
    fields[place] = number, kind, content
    return joined(fields)


def flood(data: bytes, rng: random.Random) -> bytes:
    """Hundreds of fields more, known or not, or a nest of them."""
    more = rng.choice([b"\x7b" * 300, b"\x7b\x7c" * 300, b"\x78\x01" * 300, b"\x0a\x00" * 300, floods.nested(1000)])
    return more + data if rng.random() < 0.5 else data + more


BYTES = (flip, cut, cut_out, double, whole_twice)
FIELDS = (lie, repeat, drop, shuffle, renumber, retype, extreme, flood)
DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {f.__name__: f for f in (*BYTES, *FIELDS)}


def damaged(data: bytes, kind: str, rng: random.Random, *, inside: bool) -> bytes:
    """One damage, to the message or to one of the messages right inside it."""
    if not inside or DAMAGE[kind] in BYTES:
        return DAMAGE[kind](data, rng) if data else data
    fields = split(data)
    number, kind_of, content = fields[0]
    if kind_of == 2 and content and is_fields(content):
        deeper = [i for i, (_, k, c) in enumerate(split(content)) if k == 2 and c and is_fields(c)]
        if deeper and rng.random() < 0.3:
            inner = split(content)
            place = rng.choice(deeper)
            inner[place] = inner[place][0], 2, DAMAGE[kind](inner[place][2], rng)
            content = joined(inner)
        else:
            content = DAMAGE[kind](content, rng)
    return joined([(number, kind_of, content), *fields[1:]])


def is_fields(data: bytes) -> bool:
    try:
        return joined(split(data)) == data
    except IndexError:
        return False


ENVELOPES = ("participant_message", "collector_message")


@pytest.mark.parametrize("name", READERS)
def test_damaged_messages_raise_nothing_but_wire_error(name: str) -> None:
    reader, ends = READERS[name], {kind: Counter[str]() for kind in DAMAGE}
    nested = name in ENVELOPES
    messages = [data for data in SEEDS[name] if data]
    if not messages:
        return  # nothing in it, so nothing to damage

    @settings(max_examples=700 if nested else 40, deadline=None)
    @given(st.sampled_from(messages), st.sampled_from(sorted(DAMAGE)), st.integers(0, 2**32), st.integers(1, 2))
    def read(data: bytes, kind: str, chance: int, times: int) -> None:
        rng = random.Random(chance)
        for _ in range(times):
            try:
                data = damaged(data, kind, rng, inside=nested and rng.random() < 0.8)
            except (IndexError, ValueError):
                break  # the first damage left no fields to damage again
        ends[kind][outcome(name, reader, data)] += 1

    read()
    total = sum(ends.values(), Counter())
    if nested:
        assert all(sum(one.values()) >= 10 for one in ends.values()), ends
        assert min(total["unparsed"], total["refused"], total["read"]) >= 60, total


# --- memory and work ---------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of a process's memory")
@pytest.mark.parametrize("implementation", ["upb", pytest.param("python", marks=pytest.mark.slow)])
def test_a_flood_fills_no_more_than_a_multiple_of_its_bytes(implementation: str) -> None:
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    command = [sys.executable, "-m", "tests.property.floods"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    grown = {name: (size, growth) for name, size, growth in json.loads(done.stdout)}
    assert len(grown) == 23
    assert max(size for size, _ in grown.values()) > 4_000_000
    above = {n: (s, g) for n, (s, g) in grown.items() if g > floods.FACTOR[implementation] * s + floods.SPARE_BYTES}
    assert not above
    # The measure sees what it is to see: a list of numbers does take several times its bytes.
    assert grown["participant: numbers, packed"][1] > 4 << 20


def lines_of(reader: Reader, data: bytes) -> int:
    """How many lines of our own code run to read this."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "client_sdk" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        reader(data)
    except WireError:
        pass
    finally:
        sys.settrace(before)
    return count


LINES_PER_BYTE, SPARE_LINES = 20, 1000


@pytest.mark.parametrize(
    ("side", "name"), [(side, name) for side, _, _, all_floods in floods.ALL for name in all_floods], ids=str
)
def test_the_work_grows_with_the_bytes_and_no_faster(side: str, name: str) -> None:
    reader, flood_of = next((reader, f[name]) for s, reader, _, f in floods.ALL if s == side)
    # Counted, not timed. Beyond the second size our own code counts fields first; it stops at its limit.
    for size in (4_000, 16_000, 66_000):
        data = flood_of(size)
        assert lines_of(reader, data) <= LINES_PER_BYTE * len(data) + SPARE_LINES, size


def test_the_longest_honest_messages_are_read_within_the_same_bounds() -> None:
    counted = 0
    for name in ENVELOPES:
        for data in SEEDS[name]:
            assert lines_of(READERS[name], data) <= LINES_PER_BYTE * len(data) + SPARE_LINES
            counted += 1
    assert counted > 50


def test_a_single_message_may_hold_fields_of_later_versions() -> None:
    data = SEEDS["enrol_request"][0]
    assert READERS["enrol_request"](data + in_field(15, b"later") * 60) == READERS["enrol_request"](data)
    with pytest.raises(WireError, match="more than 64 fields"):
        READERS["enrol_request"](data + in_field(15, b"later") * 62)
