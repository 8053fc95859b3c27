"""The wire under chance: every message survives the way there and back, and no bytes upset a reader."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.certificate import CERTIFICATE_BYTES
from client_sdk.errors import WireError
from client_sdk.secagg import messages as m
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.merkle import NODE_BYTES
from client_sdk.secagg.parameters import MAX_NEIGHBOURS, MAX_ROSTER
from client_sdk.wire import convert, limits, secagg_pb2
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    EnrolRequest,
    EnrolResponse,
    GetPlanRequest,
    GetPlanResponse,
    RenewRequest,
    RenewResponse,
)

digest = st.binary(min_size=32, max_size=32)
signature = st.binary(min_size=64, max_size=64)
issued = st.binary(min_size=CERTIFICATE_BYTES, max_size=CERTIFICATE_BYTES)
certificate = st.just(b"") | issued
proof = st.lists(st.binary(min_size=NODE_BYTES, max_size=NODE_BYTES), max_size=3).map(tuple)
time = st.integers(0, limits.MAX_TIME_S) | st.sampled_from([0, limits.MAX_TIME_S])
uint32 = st.integers(0, 2**32 - 1) | st.sampled_from([0, 2**32 - 1])
total = st.integers(0, 2**63 - 1) | st.sampled_from([0, 2**63 - 1])
index = st.integers(0, MAX_ROSTER - 1) | st.sampled_from([0, MAX_ROSTER - 1])
indices = st.lists(index, max_size=5).map(tuple)
round_id = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
report_id = st.binary(min_size=16, max_size=16)


def pairs(entry: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Two tuples of one length: indices, and an entry for each."""
    return st.lists(st.tuples(index, entry), max_size=5).map(
        lambda rows: (tuple(i for i, _ in rows), tuple(e for _, e in rows))
    )


hellos = st.builds(m.Hello, digest, certificate, digest, time, report_id)
adverts = st.builds(
    m.Advert,
    digest,
    certificate,
    digest,
    time,
    report_id,
    digest,
    digest,
    digest,
    digest,
    st.booleans(),
    uint32,
    signature,
)
sealed_pairs = pairs(st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES))
participant_messages = (
    hellos
    | adverts
    | st.builds(
        lambda rows, own, sig: m.SealedShares(*rows, b"h" * 64 * (len(rows[0]) + own), sig),
        sealed_pairs,
        st.booleans(),
        signature,
    )
    | st.builds(m.MaskedInputPiece, uint32, st.binary(min_size=1, max_size=64))
    | st.builds(m.Confirm, digest, signature)
    | pairs(st.binary(min_size=33, max_size=33)).map(lambda rows: m.UnmaskShares(*rows))
)
sizes = st.integers(1, MAX_ROSTER)
rosters = st.builds(
    lambda rows, *rest: m.Roster(*rest[:-3], *rows, *rest[-3:]),
    pairs(adverts),
    round_id,
    index,
    sizes,
    st.integers(1, MAX_NEIGHBOURS + 1),
    st.integers(1, 64),
    st.integers(1, 2**32 - 1),
    time,
    digest,
    st.integers(0, MAX_ROSTER),
    proof,
)
collector_messages = (
    st.builds(m.Challenge, digest)
    | st.builds(m.Joined, total, total)
    | st.builds(m.AlreadyCounted, round_id, uint32)
    | st.builds(m.ComeBack, time, uint32)
    | rosters
    | st.builds(
        lambda sharers, rows: m.DeliveredShares(sharers, *rows, b"h" * 64 * len(rows[0])), indices, sealed_pairs
    )
    | st.builds(
        m.SurvivorStatus,
        indices,
        st.integers(0, MAX_ROSTER),
        st.integers(0, MAX_ROSTER),
        digest,
        proof,
    )
    | st.builds(lambda dropped, rows: m.UnmaskRequest(dropped, *rows), indices, pairs(signature))
    | st.builds(m.Receipt, round_id, uint32, uint32)
    | st.builds(m.RoundAborted, st.from_regex(r"[a-z0-9_]{1,64}", fullmatch=True), uint32, uint32)
)
text = st.text(min_size=1, max_size=40)
unary_messages = (
    st.builds(EnrolRequest, text, digest, signature)
    | st.builds(EnrolResponse, issued, time)
    | st.builds(RenewRequest, issued, signature)
    | st.builds(RenewResponse, issued, time)
    | st.builds(GetPlanRequest, st.text(max_size=40))
    | st.builds(GetPlanResponse, text, digest, signature | st.just(b""))
    | st.builds(DeleteRequest, digest, issued | st.just(b""), time, signature)
    | st.builds(DeleteResponse)
)

UNARY = {
    EnrolRequest: (convert.enrol_request_to_wire, convert.enrol_request_from_wire),
    EnrolResponse: (convert.enrol_response_to_wire, convert.enrol_response_from_wire),
    RenewRequest: (convert.renew_request_to_wire, convert.renew_request_from_wire),
    RenewResponse: (convert.renew_response_to_wire, convert.renew_response_from_wire),
    GetPlanRequest: (convert.get_plan_request_to_wire, convert.get_plan_request_from_wire),
    GetPlanResponse: (convert.get_plan_response_to_wire, convert.get_plan_response_from_wire),
    DeleteRequest: (convert.delete_request_to_wire, convert.delete_request_from_wire),
    DeleteResponse: (convert.delete_response_to_wire, convert.delete_response_from_wire),
}
READERS = [
    convert.participant_message_from_wire,
    convert.collector_message_from_wire,
    *(from_wire for _, from_wire in UNARY.values()),
]


def test_every_participant_message_comes_back() -> None:
    seen: Counter[type] = Counter()

    @settings(max_examples=300, deadline=None)
    @given(participant_messages)
    def comes_back(message: m.ParticipantMessage) -> None:
        seen[type(message)] += 1
        assert convert.participant_message_from_wire(convert.participant_message_to_wire(message)) == message

    comes_back()
    assert len(seen) == 6


def test_every_collector_message_comes_back() -> None:
    seen: Counter[type] = Counter()

    @settings(max_examples=400, deadline=None)
    @given(collector_messages)
    def comes_back(message: m.CollectorMessage) -> None:
        seen[type(message)] += 1
        assert convert.collector_message_from_wire(convert.collector_message_to_wire(message)) == message

    comes_back()
    assert len(seen) == 10


@settings(max_examples=150, deadline=None)
@given(unary_messages)
def test_every_message_of_the_small_services_comes_back(message: Any) -> None:
    to_wire, from_wire = UNARY[type(message)]
    assert from_wire(to_wire(message)) == message


@pytest.mark.parametrize("reader", READERS)
def test_chance_bytes_raise_nothing_but_wire_error(reader: Any) -> None:
    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=200))
    def read(data: bytes) -> None:
        with suppress(WireError):
            reader(data)

    read()


# Damage done to a valid message: it stays close to one, so that it gets far into the reader.
def damaged(data: bytes, place: int, kind: str, byte: int) -> bytes:
    at = place % max(1, len(data))
    match kind:
        case "set":
            return data[:at] + bytes([byte]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + bytes([byte]) + data[at:]
        case "repeat":
            return data + data[at:]
        case _:
            return data[at:]


def wrong_field(wire_type: Any, data: bytes, place: int) -> bytes:
    """The same message with one field shortened, or a number at its type's end: well-formed, mostly not acceptable."""
    outer = wire_type.FromString(data)
    inner = getattr(outer, outer.WhichOneof("message"))
    fields = inner.ListFields()
    if fields:
        field, value = fields[place % len(fields)]
        if isinstance(value, bytes | str):
            setattr(inner, field.name, value[:-1])
        elif isinstance(value, int):
            setattr(inner, field.name, True if isinstance(value, bool) else 2**31 - 1)
        else:
            del value[-1]
    return bytes(outer.SerializeToString())


@pytest.mark.parametrize("side", ["participant", "collector"])
def test_damaged_messages_raise_nothing_but_wire_error(side: str) -> None:
    messages: Any = {"participant": participant_messages, "collector": collector_messages}[side]
    to_wire = getattr(convert, f"{side}_message_to_wire")
    from_wire = getattr(convert, f"{side}_message_from_wire")
    wire_type = getattr(secagg_pb2, f"{side.capitalize()}Message")
    ends: Counter[str] = Counter()

    @settings(max_examples=500, deadline=None)
    @given(
        messages,
        st.integers(0, 10_000),
        st.sampled_from(["set", "cut", "insert", "repeat", "drop", "field", "field"]),
        st.integers(0, 255),
    )
    def read(message: Any, place: int, kind: str, byte: int) -> None:
        data = to_wire(message)
        data = wrong_field(wire_type, data, place) if kind == "field" else damaged(data, place, kind, byte)
        try:
            again = from_wire(data)
        except WireError as error:
            ends["unparsed" if "not a protobuf" in str(error) else "refused"] += 1
        else:
            ends["read"] += 1
            # Whatever was read keeps the rules: it can be sent on.
            assert from_wire(to_wire(again)) == again

    read()
    assert all(ends[end] >= 10 for end in ("unparsed", "refused", "read")), ends
