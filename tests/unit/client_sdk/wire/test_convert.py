"""The converters: every message both ways, and what each refuses. The fuzzing half is property/test_wire.py."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.errors import WireError
from client_sdk.secagg import messages as m
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.parameters import MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import convert, enrolment_pb2, limits, plan_pb2, secagg_pb2, shapes
from client_sdk.wire.messages import EnrolRequest, EnrolResponse, GetPlanRequest, GetPlanResponse

HELLO = m.Hello(b"i" * 32, b"", b"p" * 32, 1_700_006_400, b"r" * 16)
ADVERT = m.Advert(
    identity_key=b"i" * 32,
    certificate=b"",
    plan_hash=b"p" * 32,
    period_start=1_700_006_400,
    report_id=b"r" * 16,
    nonce=b"n" * 32,
    mask_key=b"m" * 32,
    channel_key=b"c" * 32,
    self_mask_commitment=b"s" * 32,
    resent=True,
    min_cohort=60,
    signature=b"S" * 64,
)
SHARES = m.SealedShares((0, 2), (b"a" * SEALED_BYTES, b"b" * SEALED_BYTES))
PIECE = m.MaskedInputPiece(7, b"secretsecret")
UNMASK = m.UnmaskShares((0, 2), (b"x" * 33, b"y" * 33))
PARTICIPANT = [HELLO, ADVERT, SHARES, PIECE, m.Confirm(b"R" * 32), UNMASK]

ROSTER = m.Roster("round-1_A", 1, 3, 2, 32, 100, 1_700_090_000, (0, 2), (ADVERT, ADVERT), b"d" * 32)
STATUS = m.SurvivorStatus((0, 1), 1, b"R" * 32)
COLLECTOR = [
    m.Challenge(b"n" * 32),
    m.Joined(3, 6_000_000),
    m.AlreadyCounted("round-1", 80),
    m.ComeBack(1_700_093_600, 15),
    ROSTER,
    m.DeliveredShares((0, 1, 2), (0, 2), (b"a" * SEALED_BYTES, b"b" * SEALED_BYTES)),
    STATUS,
    m.UnmaskRequest((2,)),
    m.Receipt("round-1", 80, 90),
    m.RoundAborted("too_few_survivors", 40, 50),
]

ENROL_REQUEST = EnrolRequest("token-that-is-secret", b"i" * 32, b"S" * 64)
PLAN_RESPONSE = GetPlanResponse('[plan]\nname = "p"\n', b"p" * 32)

SINGLE: list[tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any], Any]] = [
    (ENROL_REQUEST, convert.enrol_request_to_wire, convert.enrol_request_from_wire, enrolment_pb2.EnrolRequest),
    (EnrolResponse(), convert.enrol_response_to_wire, convert.enrol_response_from_wire, enrolment_pb2.EnrolResponse),
    (GetPlanRequest(), convert.get_plan_request_to_wire, convert.get_plan_request_from_wire, plan_pb2.GetPlanRequest),
    (PLAN_RESPONSE, convert.get_plan_response_to_wire, convert.get_plan_response_from_wire, plan_pb2.GetPlanResponse),
]

BOTH_WAYS: list[tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = [
    *((x, convert.participant_message_to_wire, convert.participant_message_from_wire) for x in PARTICIPANT),
    *((x, convert.collector_message_to_wire, convert.collector_message_from_wire) for x in COLLECTOR),
    *((x, to_wire, from_wire) for x, to_wire, from_wire, _ in SINGLE),
]


@pytest.mark.parametrize(("message", "to_wire", "from_wire"), BOTH_WAYS, ids=lambda x: type(x).__name__)
def test_round_trip(message: Any, to_wire: Any, from_wire: Any) -> None:
    read = from_wire(to_wire(message))
    assert read == message
    assert type(read) is type(message)
    for field in dataclasses.fields(read):
        value = getattr(read, field.name)
        assert type(value) in {int, bool, bytes, str, tuple}, field.name


def test_every_message_is_in_the_samples() -> None:
    assert {type(x) for x in PARTICIPANT} == set(typing.get_args(m.ParticipantMessage))
    assert {type(x) for x in COLLECTOR} == set(typing.get_args(m.CollectorMessage))


@pytest.mark.parametrize(
    ("wire_type", "table"),
    [
        (secagg_pb2.ParticipantMessage, shapes.PARTICIPANT_SHAPES),
        (secagg_pb2.CollectorMessage, shapes.COLLECTOR_SHAPES),
    ],
)
def test_the_table_knows_every_message_and_every_field(wire_type: Any, table: Any) -> None:
    cases = {field.name: field.message_type for field in wire_type.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert set(cases) == set(table)
    for case, descriptor in cases.items():
        ours = {field.name for field in dataclasses.fields(table[case].kind)}
        assert set(descriptor.fields_by_name) == ours == set(table[case].fields)


@pytest.mark.parametrize(
    ("wire_type", "shape"),
    [
        (enrolment_pb2.EnrolRequest, shapes.ENROL_REQUEST),
        (enrolment_pb2.EnrolResponse, shapes.ENROL_RESPONSE),
        (plan_pb2.GetPlanRequest, shapes.GET_PLAN_REQUEST),
        (plan_pb2.GetPlanResponse, shapes.GET_PLAN_RESPONSE),
    ],
)
def test_the_small_services_tables_too(wire_type: Any, shape: Any) -> None:
    ours = {field.name for field in dataclasses.fields(shape.kind)}
    assert set(wire_type.DESCRIPTOR.fields_by_name) == ours == set(shape.fields)


def wire(message: Any, **changes: Any) -> bytes:
    """The bytes of a sample with some fields replaced, by the generated code alone."""
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)} | changes
    if "adverts" in fields:
        fields["adverts"] = [dataclasses.asdict(a) if dataclasses.is_dataclass(a) else a for a in fields["adverts"]]
    for table, outer in (
        (shapes.PARTICIPANT_SHAPES, secagg_pb2.ParticipantMessage),
        (shapes.COLLECTOR_SHAPES, secagg_pb2.CollectorMessage),
    ):
        for case, shape in table.items():
            if shape.kind is type(message):
                return outer(**{case: fields}).SerializeToString()
    raise AssertionError(message)


P_MESSAGE, C_MESSAGE = convert.participant_message_from_wire, convert.collector_message_from_wire

REFUSED = [
    (P_MESSAGE, wire(HELLO, identity_key=b"i" * 31), "hello.identity_key: 31 bytes instead of 32"),
    (P_MESSAGE, wire(HELLO, identity_key=b""), "hello.identity_key: 0 bytes"),
    (P_MESSAGE, wire(HELLO, plan_hash=b"p" * 33), "hello.plan_hash: 33 bytes"),
    (P_MESSAGE, wire(HELLO, report_id=b"r" * 32), "hello.report_id: 32 bytes instead of 16"),
    (P_MESSAGE, wire(HELLO, period_start=-1), "hello.period_start: must lie in 0 to"),
    (P_MESSAGE, wire(HELLO, period_start=2**62), "hello.period_start: must lie in"),
    (P_MESSAGE, wire(HELLO, certificate=b"c" * 4097), "hello.certificate: 4097 bytes, must be 0 to 4096"),
    (P_MESSAGE, wire(ADVERT, signature=b""), "advert.signature: 0 bytes instead of 64"),
    (P_MESSAGE, wire(ADVERT, nonce=b"n"), "advert.nonce: 1 bytes"),
    (P_MESSAGE, wire(ADVERT, mask_key=b"m" * 33), "advert.mask_key: 33 bytes"),
    (P_MESSAGE, wire(ADVERT, channel_key=b""), "advert.channel_key: 0 bytes"),
    (P_MESSAGE, wire(ADVERT, self_mask_commitment=b""), "advert.self_mask_commitment: 0 bytes"),
    (P_MESSAGE, wire(SHARES, recipients=[0]), "sealed_shares.sealed: 2 entries for 1 recipients"),
    (P_MESSAGE, wire(SHARES, sealed=[b"a" * 82, b"b" * 81]), "sealed_shares.sealed: 81 bytes instead of 82"),
    (P_MESSAGE, wire(SHARES, recipients=[0, MAX_ROSTER]), "recipients: an index is not below 1024"),
    (P_MESSAGE, wire(SHARES, recipients=[0, 2**32 - 1]), "recipients: an index is not below 1024"),
    (P_MESSAGE, wire(SHARES, share_hashes=[b""]), "sealed_shares.share_hashes: 0 bytes"),
    (P_MESSAGE, wire(SHARES, signature=b"S"), "sealed_shares.signature: 1 bytes instead of 0 or 64"),
    (P_MESSAGE, wire(PIECE, data=b""), "masked_input_piece.data: 0 bytes"),
    (P_MESSAGE, wire(PIECE, data=bytes(PIECE_BYTES + 1)), "masked_input_piece.data: 262145 bytes"),
    (P_MESSAGE, wire(m.Confirm(b"R" * 32), status_root=b""), "confirm.status_root: 0 bytes"),
    (P_MESSAGE, wire(UNMASK, shares=[b"x" * 33]), "unmask_shares.shares: 1 entries for 2 owners"),
    (P_MESSAGE, wire(UNMASK, shares=[b"x" * 33, b"y" * 32]), "unmask_shares.shares: 32 bytes instead of 33"),
    (C_MESSAGE, wire(COLLECTOR[0], nonce=b""), "challenge.nonce: 0 bytes"),
    (C_MESSAGE, wire(COLLECTOR[1], spent_micro_epsilon=2**63), "joined.spent_micro_epsilon: must lie in"),
    (C_MESSAGE, wire(COLLECTOR[2], round_id=""), "already_counted.round_id: must be 1 to 64 characters"),
    (C_MESSAGE, wire(COLLECTOR[2], round_id="a" * 65), "already_counted.round_id"),
    (C_MESSAGE, wire(COLLECTOR[2], round_id="a\n"), "already_counted.round_id"),
    (C_MESSAGE, wire(COLLECTOR[2], round_id="é"), "already_counted.round_id"),
    (C_MESSAGE, wire(COLLECTOR[3], at=-5), "come_back.at: must lie in"),
    (C_MESSAGE, wire(ROSTER, adverts=[ADVERT]), "roster.adverts: 1 entries for 2 neighbours"),
    (C_MESSAGE, wire(ROSTER, adverts=[ADVERT, {"nonce": b"n"}]), "roster.adverts: identity_key: 0 bytes"),
    (C_MESSAGE, wire(ROSTER, size=MAX_ROSTER + 1), "roster.size: must lie in 1 to 1024"),
    (C_MESSAGE, wire(ROSTER, bits=65), "roster.bits: must lie in 1 to 64"),
    (C_MESSAGE, wire(ROSTER, threshold=0), "roster.threshold: must lie in"),
    (C_MESSAGE, wire(ROSTER, length=0), "roster.length: must lie in"),
    (C_MESSAGE, wire(ROSTER, digest=b""), "roster.digest: 0 bytes"),
    (C_MESSAGE, wire(COLLECTOR[5], owners=[0]), "delivered_shares.sealed: 2 entries for 1 owners"),
    (C_MESSAGE, wire(STATUS, root=b""), "survivor_status.root: 0 bytes"),
    (C_MESSAGE, wire(STATUS, proofs=[bytes(1025)]), "survivor_status.proofs: 1025 bytes"),
    (C_MESSAGE, wire(COLLECTOR[7], confirmed_by=[1]), "confirmations: 0 entries for 1 confirmed_by"),
    (C_MESSAGE, wire(COLLECTOR[9], reason="Too Few!"), "round_aborted.reason: must be"),
    (P_MESSAGE, b"", "ParticipantMessage: no message that this version knows"),
    (C_MESSAGE, b"", "CollectorMessage: no message that this version knows"),
    (P_MESSAGE, b"\xff\xff", "ParticipantMessage: not a protobuf message"),
    (C_MESSAGE, b"\x0a\x05ab", "CollectorMessage: not a protobuf message"),
    # field 1 of AlreadyCounted is text: bytes that are no UTF-8
    (C_MESSAGE, b"\x1a\x04\x0a\x02\xff\xfe", "CollectorMessage: not a protobuf message"),
]


@pytest.mark.parametrize(("from_wire", "data", "says"), REFUSED)
def test_refused_by_name_of_message_and_field(from_wire: Any, data: bytes, says: str) -> None:
    with pytest.raises(WireError) as caught:
        from_wire(data)
    text = str(caught.value)
    assert says in text
    assert "\n" not in text
    assert len(text) < 200


class Lazy(list[int]):
    """A list that says it is long, and fails the test if anybody begins to read it."""

    def __len__(self) -> int:
        return 50_000_000

    def __iter__(self) -> Any:
        raise AssertionError("an over-long list was read")

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("an over-long list was read")


LISTS = [
    (case, name)
    for table in (shapes.PARTICIPANT_SHAPES, shapes.COLLECTOR_SHAPES)
    for case, shape in table.items()
    for name in shape.fields
    if typing.get_type_hints(shape.kind)[name] not in (bytes, int, bool, str)
]


@pytest.mark.parametrize(("case", "name"), LISTS)
def test_an_over_long_list_is_refused_before_it_is_read(case: str, name: str) -> None:
    shape = (dict(shapes.PARTICIPANT_SHAPES) | dict(shapes.COLLECTOR_SHAPES))[case]
    sample = next(x for x in (*PARTICIPANT, *COLLECTOR) if type(x) is shape.kind)
    fields = {f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)} | {name: Lazy()}
    with pytest.raises(shapes.FieldError, match=rf"{name}: 50000000 .*at most"):
        shape.checked(SimpleNamespace(**fields))


def test_all_lists_were_found() -> None:
    assert len(LISTS) == 15


def test_the_longest_lists_pass_and_one_more_does_not() -> None:
    full = m.DeliveredShares(tuple(range(MAX_ROSTER)), (), ())
    assert C_MESSAGE(wire(full)) == full
    with pytest.raises(WireError, match=r"delivered_shares.sharers: 1025 indices, at most 1024"):
        C_MESSAGE(wire(full, sharers=[0] * (MAX_ROSTER + 1)))


def test_the_largest_messages_fit_the_byte_limits() -> None:
    hashes = (b"h" * 32,) * (2 * MAX_ROSTER)
    shares = m.SealedShares(tuple(range(MAX_ROSTER)), (b"a" * 82,) * MAX_ROSTER, hashes, b"S" * 64)
    roster = dataclasses.replace(
        ROSTER, size=MAX_ROSTER, neighbours=tuple(range(1, MAX_ROSTER)), adverts=(ADVERT,) * (MAX_ROSTER - 1)
    )
    piece = m.MaskedInputPiece(2**32 - 1, b"\xff" * PIECE_BYTES)
    assert P_MESSAGE(convert.participant_message_to_wire(shares)) == shares
    assert P_MESSAGE(convert.participant_message_to_wire(piece)) == piece
    assert C_MESSAGE(convert.collector_message_to_wire(roster)) == roster
    assert len(convert.participant_message_to_wire(shares)) < limits.MAX_PARTICIPANT_MESSAGE_BYTES // 2
    assert len(convert.collector_message_to_wire(roster)) < limits.MAX_COLLECTOR_MESSAGE_BYTES // 2


def test_an_over_long_message_is_not_even_parsed() -> None:
    # Nothing but an unknown field, which would be ignored.
    filler = b"\x82\x7d" + b"\x80\x80\x40" + bytes(1 << 20)
    with pytest.raises(WireError, match="ParticipantMessage: 1048581 bytes, at most 1048576"):
        P_MESSAGE(filler)


def length_prefixed(tag: bytes, content: bytes) -> bytes:
    size, prefix = len(content), b""
    while size > 0x7F:
        size, prefix = size >> 7, prefix + bytes([size & 0x7F | 0x80])
    return tag + prefix + bytes([size]) + content


EMPTY_ADVERT, EMPTY_ROSTER, UNKNOWN, GROUP = b"\x4a\x00", b"\x2a\x00", b"\x82\x7d\x00", b"\x83\x7d\x84\x7d"


@pytest.mark.parametrize(
    "data",
    [
        length_prefixed(b"\x2a", EMPTY_ADVERT * 2_000_000),
        length_prefixed(b"\x2a", EMPTY_ADVERT * 2_000) * 3,  # one message: the parser merges them
        length_prefixed(b"\x2a", GROUP + EMPTY_ADVERT * 5_000),
        GROUP + length_prefixed(b"\x2a", EMPTY_ADVERT * 5_000),
        length_prefixed(b"\x2a", UNKNOWN * 5_000),
        EMPTY_ROSTER * 5_000,
    ],
    ids=["adverts", "merged", "behind a group", "after a group", "unknown", "rosters"],
)
def test_crowds_of_empty_messages_are_refused_before_they_are_built(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million adverts fit into four megabytes, and took 368 MB of the device once they were parsed."""
    monkeypatch.setattr(convert, "_parse", None)
    with pytest.raises(WireError, match=r"^CollectorMessage: more than 4096 fields$"):
        C_MESSAGE(data)


def test_the_largest_lists_pass_the_count_of_fields_packed_or_not() -> None:
    # Not packed: one field an index, as a writer may send them.
    indices = range(MAX_ROSTER)
    varints = [bytes([i]) if i < 128 else bytes([i & 0x7F | 0x80, i >> 7]) for i in indices]
    sharers, owners = (b"".join(tag + varint for varint in varints) for tag in (b"\x08", b"\x10"))
    sealed = (b"\x1a" + bytes([SEALED_BYTES]) + b"a" * SEALED_BYTES) * MAX_ROSTER
    expected = m.DeliveredShares(tuple(indices), tuple(indices), (b"a" * SEALED_BYTES,) * MAX_ROSTER)
    assert C_MESSAGE(length_prefixed(b"\x32", sharers + owners + sealed)) == expected
    assert C_MESSAGE(convert.collector_message_to_wire(expected)) == expected


def test_unknown_fields_are_ignored() -> None:
    unknown = b"\x82\x7d\x03new"  # field 2000, bytes
    inner = secagg_pb2.ParticipantMessage.FromString(wire(HELLO)).hello.SerializeToString() + unknown
    assert P_MESSAGE(b"\x0a" + bytes([len(inner)]) + inner + unknown) == HELLO
    assert convert.enrol_request_from_wire(convert.enrol_request_to_wire(ENROL_REQUEST) + unknown) == ENROL_REQUEST


def test_groups_nested_without_end_are_no_message() -> None:
    for data in (b"\x83\x7d" * 100_000, b"\x0a\xc0\x9a\x0c" + b"\x83\x7d" * 100_000):
        with pytest.raises(WireError, match="not a protobuf message"):
            P_MESSAGE(data)


def test_a_message_of_a_later_version_is_named_so() -> None:
    with pytest.raises(WireError, match="no message that this version knows"):
        P_MESSAGE(b"\x82\x7d\x03new")


def test_contents_are_never_shown() -> None:
    secret = b"secretsecretsecretsecretsecretsec"
    for data in (
        wire(UNMASK, shares=[secret, secret + b"x"]),
        wire(SHARES, sealed=[secret, secret]),
        wire(HELLO, identity_key=secret),
    ):
        with pytest.raises(WireError) as caught:
            P_MESSAGE(data)
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__
    with pytest.raises(WireError) as caught:
        convert.enrol_request_to_wire(dataclasses.replace(ENROL_REQUEST, token="secret" * 100))
    assert str(caught.value) == "EnrolRequest.token: 600 characters, must be 1 to 256"
    for hidden in (UNMASK, SHARES, PIECE, COLLECTOR[5], ENROL_REQUEST):
        assert "secret" not in repr(hidden)
        assert "xxxx" not in repr(hidden)
        assert "aaaa" not in repr(hidden)


@pytest.mark.parametrize(
    "slip",
    [
        dataclasses.replace(HELLO, period_start="now"),
        dataclasses.replace(HELLO, period_start=1.5),
        dataclasses.replace(HELLO, identity_key="i" * 32),
        dataclasses.replace(HELLO, identity_key=None),
        dataclasses.replace(HELLO, plan_hash=b""),
        dataclasses.replace(PIECE, offset=2**32),
        dataclasses.replace(PIECE, offset=-1),
        dataclasses.replace(SHARES, recipients=(0, "2")),
        dataclasses.replace(SHARES, recipients=7),
        dataclasses.replace(ADVERT, resent=None),
        m.Receipt("r", 1, 1),
        "hello",
        None,
    ],
)
def test_our_own_slips_are_found_at_our_own_end(slip: Any) -> None:
    with pytest.raises(WireError, match="ParticipantMessage"):
        convert.participant_message_to_wire(slip)


def test_a_bad_advert_in_our_own_roster_is_found_too() -> None:
    for advert in (dataclasses.replace(ADVERT, nonce=b""), dataclasses.replace(ADVERT, nonce=[]), "advert"):
        with pytest.raises(WireError, match=r"CollectorMessage\.roster"):
            convert.collector_message_to_wire(dataclasses.replace(ROSTER, adverts=(ADVERT, advert)))


def test_adverts_sent_again_are_not_converted_again() -> None:
    convert._advert_to_wire.cache_clear()
    for index in (0, 1, 2):
        data = convert.collector_message_to_wire(dataclasses.replace(ROSTER, index=index))
        assert C_MESSAGE(data) == dataclasses.replace(ROSTER, index=index)
    assert convert._advert_to_wire.cache_info().misses == 1
