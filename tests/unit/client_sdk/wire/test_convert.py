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
from client_sdk.secagg.parameters import MAX_NEIGHBOURS, MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import (
    convert,
    deletion_pb2,
    enrolment_pb2,
    envelopes,
    limits,
    plan_pb2,
    reporting_pb2,
    secagg_pb2,
    shapes,
)
from client_sdk.wire.checks import FieldError
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    DocumentPiece,
    EnrolRequest,
    EnrolResponse,
    GetCountersRequest,
    GetPlanRequest,
    GetPlanResponse,
    GetPrivacyRequest,
    GetReportRequest,
    RenewRequest,
    RenewResponse,
)

CERTIFICATE = b"c" * 114
HELLO = m.Hello(b"i" * 32, CERTIFICATE, b"p" * 32, 1_700_006_400, b"r" * 16)
ADVERT = m.Advert(
    identity_key=b"i" * 32,
    certificate=CERTIFICATE,
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
SHARES = m.SealedShares((0, 2), (b"a" * SEALED_BYTES, b"b" * SEALED_BYTES), b"h" * 192, b"S" * 64)
PIECE = m.MaskedInputPiece(7, b"secretsecret")
UNMASK = m.UnmaskShares((0, 2), (b"x" * 33, b"y" * 33))
PARTICIPANT = [HELLO, ADVERT, SHARES, PIECE, m.Confirm(b"R" * 32, b"S" * 64), UNMASK]

ROSTER = m.Roster("round-1_A", 1, 3, 2, 32, 100, 1_700_090_000, (0, 2), (ADVERT, ADVERT), b"d" * 32, 1, (b"q" * 40,))
STATUS = m.SurvivorStatus((0, 1), 90, 1, b"R" * 32, (b"q" * 40, b"w" * 40))
COLLECTOR = [
    m.Challenge(b"n" * 32),
    m.Joined(3, 6_000_000),
    m.AlreadyCounted("round-1", 80),
    m.ComeBack(1_700_093_600, 15),
    ROSTER,
    m.DeliveredShares((0, 1, 2), (0, 2), (b"a" * SEALED_BYTES, b"b" * SEALED_BYTES), b"h" * 128),
    STATUS,
    m.UnmaskRequest((2,), (0, 1), (b"S" * 64, b"T" * 64)),
    m.Receipt("round-1", 80, 90),
    m.RoundAborted("too_few_survivors", 40, 50),
]

ENROL_REQUEST = EnrolRequest("token-that-is-secret", b"i" * 32, b"S" * 64)
PLAN_RESPONSE = GetPlanResponse('[plan]\nname = "p"\n', b"p" * 32)

SINGLE: list[tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any], Any]] = [
    (ENROL_REQUEST, convert.enrol_request_to_wire, convert.enrol_request_from_wire, enrolment_pb2.EnrolRequest),
    (
        EnrolResponse(CERTIFICATE, 1),
        convert.enrol_response_to_wire,
        convert.enrol_response_from_wire,
        enrolment_pb2.EnrolResponse,
    ),
    (
        RenewRequest(CERTIFICATE, b"S" * 64),
        convert.renew_request_to_wire,
        convert.renew_request_from_wire,
        enrolment_pb2.RenewRequest,
    ),
    (
        RenewResponse(CERTIFICATE, 1),
        convert.renew_response_to_wire,
        convert.renew_response_from_wire,
        enrolment_pb2.RenewResponse,
    ),
    (GetPlanRequest(), convert.get_plan_request_to_wire, convert.get_plan_request_from_wire, plan_pb2.GetPlanRequest),
    (PLAN_RESPONSE, convert.get_plan_response_to_wire, convert.get_plan_response_from_wire, plan_pb2.GetPlanResponse),
    (
        GetPlanResponse("x", b"p" * 32, b"S" * 64),
        convert.get_plan_response_to_wire,
        convert.get_plan_response_from_wire,
        plan_pb2.GetPlanResponse,
    ),
    (
        DeleteRequest(b"i" * 32, CERTIFICATE, 1_700_000_000, b"S" * 64),
        convert.delete_request_to_wire,
        convert.delete_request_from_wire,
        deletion_pb2.DeleteRequest,
    ),
    (
        DeleteResponse(),
        convert.delete_response_to_wire,
        convert.delete_response_from_wire,
        deletion_pb2.DeleteResponse,
    ),
    (
        GetReportRequest("cold_start_ms", 1_700_000_000, 1_700_086_400, "2.5%"),
        convert.get_report_request_to_wire,
        convert.get_report_request_from_wire,
        reporting_pb2.GetReportRequest,
    ),
    (
        GetPrivacyRequest("0f" * 16, all=True, window="7d", delta="1e-6", corrupt="0.1"),
        convert.get_privacy_request_to_wire,
        convert.get_privacy_request_from_wire,
        reporting_pb2.GetPrivacyRequest,
    ),
    (
        GetCountersRequest(),
        convert.get_counters_request_to_wire,
        convert.get_counters_request_from_wire,
        reporting_pb2.GetCountersRequest,
    ),
    (
        DocumentPiece("application/json", b"{}"),
        convert.document_piece_to_wire,
        convert.document_piece_from_wire,
        reporting_pb2.DocumentPiece,
    ),
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
        (enrolment_pb2.RenewRequest, shapes.RENEW_REQUEST),
        (enrolment_pb2.RenewResponse, shapes.RENEW_RESPONSE),
        (plan_pb2.GetPlanRequest, shapes.GET_PLAN_REQUEST),
        (plan_pb2.GetPlanResponse, shapes.GET_PLAN_RESPONSE),
        (deletion_pb2.DeleteRequest, shapes.DELETE_REQUEST),
        (deletion_pb2.DeleteResponse, shapes.DELETE_RESPONSE),
        (reporting_pb2.GetReportRequest, shapes.GET_REPORT_REQUEST),
        (reporting_pb2.GetPrivacyRequest, shapes.GET_PRIVACY_REQUEST),
        (reporting_pb2.GetCountersRequest, shapes.GET_COUNTERS_REQUEST),
        (reporting_pb2.DocumentPiece, shapes.DOCUMENT_PIECE),
    ],
)
def test_the_small_services_tables_too(wire_type: Any, shape: Any) -> None:
    ours = {field.name for field in dataclasses.fields(shape.kind)}
    assert set(wire_type.DESCRIPTOR.fields_by_name) == ours == set(shape.fields)


def test_the_most_fields_of_a_message_by_itself_are_as_many_as_the_limit_says() -> None:
    singles = [one.wire_type.DESCRIPTOR for one in vars(convert).values() if isinstance(one, envelopes.Single)]
    most = max(len(descriptor.fields) for descriptor in singles)
    assert (most, [d.name for d in singles if len(d.fields) == most]) == (5, ["GetPrivacyRequest"])


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
    (P_MESSAGE, wire(HELLO, certificate=b"c" * 113), "hello.certificate: 113 bytes instead of 0 or 114"),
    (P_MESSAGE, wire(ADVERT, certificate=b"c" * 115), "advert.certificate: 115 bytes instead of 0 or 114"),
    (P_MESSAGE, wire(ADVERT, signature=b""), "advert.signature: 0 bytes instead of 64"),
    (P_MESSAGE, wire(ADVERT, nonce=b"n"), "advert.nonce: 1 bytes"),
    (P_MESSAGE, wire(ADVERT, mask_key=b"m" * 33), "advert.mask_key: 33 bytes"),
    (P_MESSAGE, wire(ADVERT, channel_key=b""), "advert.channel_key: 0 bytes"),
    (P_MESSAGE, wire(ADVERT, self_mask_commitment=b""), "advert.self_mask_commitment: 0 bytes"),
    (P_MESSAGE, wire(SHARES, recipients=[0]), "sealed_shares.sealed: 2 entries for 1 recipients"),
    (P_MESSAGE, wire(SHARES, sealed=[b"a" * 82, b"b" * 81]), "sealed_shares.sealed: 81 bytes instead of 82"),
    (P_MESSAGE, wire(SHARES, recipients=[0, MAX_ROSTER]), "recipients: an index is not below 16384"),
    (P_MESSAGE, wire(SHARES, recipients=[0, 2**32 - 1]), "recipients: an index is not below 16384"),
    (P_MESSAGE, wire(SHARES, share_hashes=b""), "sealed_shares.share_hashes: 0 bytes for 2 recipients"),
    (P_MESSAGE, wire(SHARES, share_hashes=bytes(64)), "sealed_shares.share_hashes: 64 bytes for 2 recipients"),
    (P_MESSAGE, wire(SHARES, share_hashes=bytes(160)), "sealed_shares.share_hashes: 160 bytes for 2 recipients"),
    (P_MESSAGE, wire(SHARES, share_hashes=bytes(256)), "sealed_shares.share_hashes: 256 bytes for 2 recipients"),
    (
        P_MESSAGE,
        wire(SHARES, share_hashes=bytes(65_600)),
        "sealed_shares.share_hashes: 65600 bytes, must be 0 to 65536",
    ),
    (P_MESSAGE, wire(SHARES, signature=b""), "sealed_shares.signature: 0 bytes instead of 64"),
    (P_MESSAGE, wire(PIECE, data=b""), "masked_input_piece.data: 0 bytes"),
    (P_MESSAGE, wire(PIECE, data=bytes(PIECE_BYTES + 1)), "masked_input_piece.data: 262145 bytes"),
    (P_MESSAGE, wire(m.Confirm(b"R" * 32, b""), status_root=b""), "confirm.status_root: 0 bytes"),
    (P_MESSAGE, wire(m.Confirm(b"R" * 32, b"")), "confirm.signature: 0 bytes instead of 64"),
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
    (C_MESSAGE, wire(ROSTER, size=MAX_ROSTER + 1), "roster.size: must lie in 1 to 16384"),
    (C_MESSAGE, wire(ROSTER, bits=65), "roster.bits: must lie in 1 to 64"),
    (C_MESSAGE, wire(ROSTER, threshold=0), "roster.threshold: must lie in"),
    (C_MESSAGE, wire(ROSTER, length=0), "roster.length: must lie in"),
    (C_MESSAGE, wire(ROSTER, digest=b""), "roster.digest: 0 bytes"),
    (C_MESSAGE, wire(COLLECTOR[5], owners=[0]), "delivered_shares.sealed: 2 entries for 1 owners"),
    (C_MESSAGE, wire(STATUS, root=b""), "survivor_status.root: 0 bytes"),
    (C_MESSAGE, wire(ROSTER, threshold=1025), "roster.threshold: must lie in 1 to 1024"),
    (C_MESSAGE, wire(ROSTER, resent=MAX_ROSTER + 1), "roster.resent: must lie in 0 to 16384"),
    (C_MESSAGE, wire(ROSTER, proof=[bytes(39)]), "roster.proof: 39 bytes instead of 40"),
    (C_MESSAGE, wire(ROSTER, proof=[bytes(40)] * 4097), "roster.proof: 4097 entries, at most 4096"),
    (C_MESSAGE, wire(COLLECTOR[5], share_hashes=bytes(64)), "delivered_shares.share_hashes: 64 bytes for 2 owners"),
    (C_MESSAGE, wire(COLLECTOR[5], share_hashes=bytes(192)), "delivered_shares.share_hashes: 192 bytes for 2 owners"),
    (C_MESSAGE, wire(COLLECTOR[5], share_hashes=bytes(127)), "delivered_shares.share_hashes: 127 bytes for 2 owners"),
    (C_MESSAGE, wire(STATUS, contributors=MAX_ROSTER + 1), "survivor_status.contributors: must lie in"),
    (C_MESSAGE, wire(STATUS, proof=[bytes(41)]), "survivor_status.proof: 41 bytes instead of 40"),
    (C_MESSAGE, wire(COLLECTOR[7], confirmed_by=[1]), "confirmations: 2 entries for 1 confirmed_by"),
    (C_MESSAGE, wire(COLLECTOR[7], confirmations=[b"", b""]), "confirmations: 0 bytes instead of 64"),
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
    with pytest.raises(FieldError, match=rf"{name}: 50000000 .*at most"):
        shape.checked(SimpleNamespace(**fields))


def test_all_lists_were_found() -> None:
    assert len(LISTS) == 15, sorted(LISTS)


def test_the_longest_lists_pass_and_one_more_does_not() -> None:
    full = m.DeliveredShares(tuple(range(MAX_NEIGHBOURS + 1)), (), (), b"")
    assert C_MESSAGE(wire(full)) == full
    with pytest.raises(WireError, match=r"delivered_shares.sharers: 1025 indices, at most 1024"):
        C_MESSAGE(wire(full, sharers=[0] * (MAX_NEIGHBOURS + 2)))
    with pytest.raises(WireError, match=r"sealed_shares.recipients: 1024 indices, at most 1023"):
        P_MESSAGE(wire(SHARES, recipients=[0] * (MAX_NEIGHBOURS + 1)))


ALL_NEIGHBOURS = tuple(range(MAX_ROSTER - MAX_NEIGHBOURS, MAX_ROSTER))
LARGEST = dataclasses.replace(
    ROSTER,
    size=MAX_ROSTER,
    neighbours=ALL_NEIGHBOURS,
    adverts=(ADVERT,) * MAX_NEIGHBOURS,
    proof=(b"q" * 40,) * limits.MAX_PROOF_NODES,
)


def test_the_largest_messages_fit_the_byte_limits() -> None:
    hashes = b"h" * 64 * (MAX_NEIGHBOURS + 1)
    shares = m.SealedShares(ALL_NEIGHBOURS, (b"a" * 82,) * MAX_NEIGHBOURS, hashes, b"S" * 64)
    piece = m.MaskedInputPiece(2**32 - 1, b"\xff" * PIECE_BYTES)
    assert P_MESSAGE(convert.participant_message_to_wire(shares)) == shares
    assert P_MESSAGE(convert.participant_message_to_wire(piece)) == piece
    assert C_MESSAGE(convert.collector_message_to_wire(LARGEST)) == LARGEST
    assert len(convert.participant_message_to_wire(shares)) < 160_000 < limits.MAX_PARTICIPANT_MESSAGE_BYTES
    assert len(convert.collector_message_to_wire(LARGEST)) < 640_000 < limits.MAX_COLLECTOR_STREAM_MESSAGE_BYTES


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
        length_prefixed(b"\x2a", EMPTY_ADVERT * 500_000),
        length_prefixed(b"\x2a", EMPTY_ADVERT * 3_000) * 3,  # one message: the parser merges them
        length_prefixed(b"\x2a", GROUP + EMPTY_ADVERT * 9_000),
        GROUP + length_prefixed(b"\x2a", EMPTY_ADVERT * 9_000),
        length_prefixed(b"\x2a", UNKNOWN * 9_000),
        EMPTY_ROSTER * 9_000,
    ],
    ids=["adverts", "merged", "behind a group", "after a group", "unknown", "rosters"],
)
def test_crowds_of_empty_messages_are_refused_before_they_are_built(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million adverts fit into a megabyte, and took 92 MB of the device once they were parsed."""
    monkeypatch.setattr(envelopes, "_parse", None)
    with pytest.raises(WireError, match=r"^CollectorMessage: more than 8192 fields$"):
        C_MESSAGE(data)


def test_the_largest_lists_pass_the_count_of_fields_packed_or_not() -> None:
    # Not packed: one field an index, as a writer may send them.
    packed = convert.collector_message_to_wire(LARGEST)
    assert C_MESSAGE(packed) == LARGEST
    rest = secagg_pb2.CollectorMessage.FromString(packed).roster
    del rest.neighbours[:]
    neighbours = b"".join(b"\x40" + bytes([i & 0x7F | 0x80, i >> 7 & 0x7F | 0x80, i >> 14]) for i in ALL_NEIGHBOURS)
    assert C_MESSAGE(length_prefixed(b"\x2a", rest.SerializeToString() + neighbours)) == LARGEST


def test_unknown_fields_are_ignored() -> None:
    unknown = b"\x82\x7d\x03new"  # field 2000, bytes
    inner = secagg_pb2.ParticipantMessage.FromString(wire(HELLO)).hello.SerializeToString() + unknown
    assert P_MESSAGE(length_prefixed(b"\x0a", inner) + unknown) == HELLO
    assert convert.enrol_request_from_wire(convert.enrol_request_to_wire(ENROL_REQUEST) + unknown) == ENROL_REQUEST


def test_groups_nested_without_end_are_no_message() -> None:
    for data in (b"\x83\x7d" * 20_000, b"\x0a\xc0\xb8\x02" + b"\x83\x7d" * 20_000):
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


# case H03
@pytest.mark.parametrize(
    ("wire_type", "from_wire"),
    [
        (reporting_pb2.GetReportRequest, convert.get_report_request_from_wire),
        (reporting_pb2.GetPrivacyRequest, convert.get_privacy_request_from_wire),
    ],
)
@pytest.mark.parametrize("name", ["../escape", "a/b", "a\0b", ".", "-rf", "CON", "x" * 300, "%2e%2e", "a\n"])
def test_names_in_questions_are_names(wire_type: Any, from_wire: Any, name: str) -> None:
    data = b"\x0a" + (bytes([len(name)]) if len(name) < 128 else b"\xac\x02") + name.encode()
    assert wire_type.FromString(data).ListFields()[0][1] == name
    with pytest.raises(WireError) as refused:
        from_wire(data)
    assert name not in str(refused.value) or len(name) < 3
