"""Single messages as bytes: one of every kind, and bytes that are no message. Made with the SDK's own code."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from client_sdk.secagg import messages as m
from client_sdk.wire import convert, deletion_pb2, direct_pb2, enrolment_pb2, limits, plan_pb2, secagg_pb2
from client_sdk.wire import messages as w
from tests.vectors.certificates import issued
from tests.vectors.layout import drawn
from tests.vectors.trees import advert, signer

WIRE_TYPES = {
    "ParticipantMessage": secagg_pb2.ParticipantMessage,
    "CollectorMessage": secagg_pb2.CollectorMessage,
    "EnrolRequest": enrolment_pb2.EnrolRequest,
    "EnrolResponse": enrolment_pb2.EnrolResponse,
    "RenewRequest": enrolment_pb2.RenewRequest,
    "RenewResponse": enrolment_pb2.RenewResponse,
    "GetPlanRequest": plan_pb2.GetPlanRequest,
    "GetPlanResponse": plan_pb2.GetPlanResponse,
    "DeleteRequest": deletion_pb2.DeleteRequest,
    "DeleteResponse": deletion_pb2.DeleteResponse,
    "DeliverRequest": direct_pb2.DeliverRequest,
    "DeliverResponse": direct_pb2.DeliverResponse,
}
READERS = {
    "ParticipantMessage": convert.participant_message_from_wire,
    "CollectorMessage": convert.collector_message_from_wire,
    "EnrolRequest": convert.enrol_request_from_wire,
    "EnrolResponse": convert.enrol_response_from_wire,
    "RenewRequest": convert.renew_request_from_wire,
    "RenewResponse": convert.renew_response_from_wire,
    "GetPlanRequest": convert.get_plan_request_from_wire,
    "GetPlanResponse": convert.get_plan_response_from_wire,
    "DeleteRequest": convert.delete_request_from_wire,
    "DeleteResponse": convert.delete_response_from_wire,
    "DeliverRequest": convert.deliver_request_from_wire,
    "DeliverResponse": convert.deliver_response_from_wire,
}
WRITERS = {
    m.ParticipantMessage: ("ParticipantMessage", convert.participant_message_to_wire),
    m.CollectorMessage: ("CollectorMessage", convert.collector_message_to_wire),
    w.EnrolRequest: ("EnrolRequest", convert.enrol_request_to_wire),
    w.EnrolResponse: ("EnrolResponse", convert.enrol_response_to_wire),
    w.RenewRequest: ("RenewRequest", convert.renew_request_to_wire),
    w.RenewResponse: ("RenewResponse", convert.renew_response_to_wire),
    w.GetPlanRequest: ("GetPlanRequest", convert.get_plan_request_to_wire),
    w.GetPlanResponse: ("GetPlanResponse", convert.get_plan_response_to_wire),
    w.DeleteRequest: ("DeleteRequest", convert.delete_request_to_wire),
    w.DeleteResponse: ("DeleteResponse", convert.delete_response_to_wire),
    w.DeliverRequest: ("DeliverRequest", convert.deliver_request_to_wire),
    w.DeliverResponse: ("DeliverResponse", convert.deliver_response_to_wire),
}


def samples() -> list[Any]:
    """One of each kind; the larger ones of a round stand in round.json."""
    key, signature, digest = signer(0).public_key, drawn("signature", 64), drawn("digest")
    certificate, pair = issued(key), drawn("pair", 82)
    neighbour = replace(advert(1), certificate=certificate)
    return [
        m.Hello(key, certificate, digest, 1_767_225_600, drawn("report", 16)),
        advert(2),
        m.SealedShares((0, 300), (pair, pair[::-1]), drawn("hashes", 128), signature),
        m.MaskedInputPiece(65_536, drawn("piece", 12)),
        m.Confirm(digest, signature),
        m.UnmaskShares((0, 16_383), (drawn("share", 33), bytes(33))),
        m.Challenge(digest),
        m.Joined(0, 2**63 - 1),
        m.AlreadyCounted("round_5-A", 50),
        m.ComeBack(limits.MAX_TIME_S, 15),
        m.Roster("r", 1, 2, 2, 16, 4, 0, (0,), (neighbour,), digest, 0, (drawn("node", 40),)),
        m.DeliveredShares((0, 1), (0,), (pair,), drawn("hashes", 64)),
        m.SurvivorStatus((0, 1), 200, 3, digest, (drawn("node", 40),)),
        m.UnmaskRequest((5,), (0, 1), (signature, signature[::-1])),
        m.Receipt("round_5-A", 50, 55),
        m.RoundAborted("a_later_reason", 1, 50),
        w.EnrolRequest("a-token", key, signature),
        w.EnrolResponse(certificate, 1_769_817_600),
        w.RenewRequest(certificate, signature),
        w.RenewResponse(certificate, 1_769_817_600),
        w.GetPlanRequest(""),
        w.GetPlanResponse("[plan]\n", digest, signature),
        w.DeleteRequest(key, certificate, 1_767_225_600, signature),
        w.DeleteResponse(),
        w.DirectHello(key, certificate),
        w.DirectChallenge(digest),
        w.DirectOffer((digest, digest[::-1]), (0, 1_767_225_600), (drawn("report", 16), bytes(16)), (False, True),
                      signature),
        w.DirectStanding(3, 2**63 - 1, ("wanted", "already_counted"), ("", "round_5-A"), (0, 50)),
        w.DirectPiece(99, 262_144, drawn("piece", 12)),
        w.DirectSeal(signature),
        w.DirectReceipts(("counted", "a_later_reason"), ("round_5-A", ""), (1, 0)),
    ]  # fmt: skip


def wire_of(message: Any) -> tuple[str, bytes]:
    """The name of the protobuf message that carries it, and its bytes."""
    for kind, (name, to_wire) in WRITERS.items():
        if isinstance(message, kind):
            return name, to_wire(message)
    raise TypeError(type(message).__name__)


def messages_document() -> dict[str, Any]:
    good = []
    for message in samples():
        name, wire = wire_of(message)
        good.append({"message": name, "kind": type(message).__name__, "fields": asdict(message), "wire": wire})
    return {
        "about": "Section 2. Compare what you decode, not the bytes: protobuf allows several encodings.",
        "messages": good,
        "malformed": [
            {"message": name, "wire": wire, "why": why, "refused": "malformed"} for name, why, wire in _malformed()
        ],
    }


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def in_field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _changed(message: Any, **changes: Any) -> tuple[str, bytes]:
    """The bytes of a sample with fields replaced by the generated code, past the SDK's own checks."""
    name, wire = wire_of(message)
    outer = WIRE_TYPES[name].FromString(wire)
    inner = getattr(outer, outer.WhichOneof("message")) if outer.DESCRIPTOR.oneofs else outer
    for field, value in changes.items():
        inner.ClearField(field)
        if isinstance(value, list):
            getattr(inner, field).extend(value)
        else:
            setattr(inner, field, value)
    return name, outer.SerializeToString()


def _malformed() -> list[tuple[str, str, bytes]]:
    sample: dict[type, Any] = {type(message): message for message in samples()}
    hello = wire_of(sample[m.Hello])[1]
    bad: list[tuple[str, str, bytes]] = [
        ("ParticipantMessage", "nothing", b""),
        ("ParticipantMessage", "a member of the oneof that nobody knows", in_field(15, b"")),
        ("ParticipantMessage", "cut off", hello[:-1]),
        ("ParticipantMessage", "a length beyond the end", b"\x0a\xff\x01" + hello[2:20]),
        ("ParticipantMessage", "a number of eleven bytes", b"\x08" + b"\xff" * 11),
        ("ParticipantMessage", "field number 0", b"\x02\x00"),
        ("ParticipantMessage", "a group that does not end", b"\x7b" * 4),
        ("CollectorMessage", "a text that is no UTF-8", in_field(9, in_field(1, b"\xff\xfe") + b"\x10\x01\x18\x01")),
    ]
    fields: list[tuple[type, str, dict[str, Any]]] = [
        (m.Hello, "identity key of 31 bytes", {"identity_key": bytes(31)}),
        (m.Hello, "certificate of 113 bytes", {"certificate": bytes(113)}),
        (m.Hello, "a negative time", {"period_start": -1}),
        (m.Hello, "a time after the year 9999", {"period_start": limits.MAX_TIME_S + 1}),
        (m.Hello, "report id of 17 bytes", {"report_id": bytes(17)}),
        (m.Advert, "no nonce", {"nonce": b""}),
        (m.Advert, "mask key of 33 bytes", {"mask_key": bytes(33)}),
        (m.Advert, "signature of 63 bytes", {"signature": bytes(63)}),
        (m.SealedShares, "a sealed pair of 81 bytes", {"sealed": [bytes(82), bytes(81)]}),
        (m.SealedShares, "fewer pairs than recipients", {"sealed": [bytes(82)]}),
        (m.SealedShares, "an index of 16384", {"recipients": [0, 16_384]}),
        (m.SealedShares, "hashes of no whole pair", {"share_hashes": bytes(130)}),
        (m.MaskedInputPiece, "an empty piece", {"data": b""}),
        (m.UnmaskShares, "a share of 32 bytes", {"shares": [bytes(33), bytes(32)]}),
        (m.UnmaskShares, "fewer shares than owners", {"shares": [bytes(33)]}),
        (m.Confirm, "root of 31 bytes", {"status_root": bytes(31)}),
        (m.Challenge, "nonce of 31 bytes", {"nonce": bytes(31)}),
        (m.Joined, "a total of 2^63", {"spent_micro_epsilon": 2**63}),
        (m.AlreadyCounted, "a round id with a blank", {"round_id": "a b"}),
        (m.AlreadyCounted, "no round id", {"round_id": ""}),
        (m.Receipt, "a round id of 65 characters", {"round_id": "a" * 65}),
        (m.Roster, "no members", {"size": 0}),
        (m.Roster, "a member too many", {"size": 16_385}),
        (m.Roster, "a node of 39 bytes in the proof", {"proof": [bytes(39)]}),
        (m.Roster, "more neighbours than adverts", {"neighbours": [0, 2]}),
        (m.DeliveredShares, "no hashes", {"share_hashes": b""}),
        (m.SurvivorStatus, "root of 33 bytes", {"root": bytes(33)}),
        (m.UnmaskRequest, "a signature of 63 bytes", {"confirmations": [bytes(63), bytes(64)]}),
        (m.UnmaskRequest, "fewer signatures than signers", {"confirmations": [bytes(64)]}),
        (m.RoundAborted, "a reason with a capital", {"reason": "Too_few"}),
        (w.EnrolRequest, "no token", {"token": ""}),
        (w.EnrolRequest, "a token of 257 characters", {"token": "t" * 257}),
        (w.EnrolResponse, "no certificate", {"certificate": b""}),
        (w.RenewRequest, "certificate of 115 bytes", {"certificate": bytes(115)}),
        (w.GetPlanResponse, "no text", {"toml": ""}),
        (w.GetPlanResponse, "signature of 1 byte", {"signature": b"s"}),
        (w.DeleteRequest, "a negative time", {"requested_at": -1}),
        (w.DirectHello, "identity key of 33 bytes", {"identity_key": bytes(33)}),
        (w.DirectChallenge, "no nonce", {"nonce": b""}),
        (w.DirectOffer, "a hash of 31 bytes", {"plan_hashes": [bytes(32), bytes(31)]}),
        (w.DirectOffer, "a report id of 17 bytes", {"report_ids": [bytes(16), bytes(17)]}),
        (w.DirectOffer, "fewer periods than plans", {"period_starts": [0]}),
        (w.DirectOffer, "fewer flags than plans", {"resent": [True]}),
        (w.DirectOffer, "a negative time", {"period_starts": [0, -1]}),
        (w.DirectOffer, "signature of 63 bytes", {"signature": bytes(63)}),
        (w.DirectStanding, "a total of 2^63", {"spent_micro_epsilon": 2**63}),
        (w.DirectStanding, "an answer with a blank", {"answers": ["wanted", "not now"]}),
        (w.DirectStanding, "fewer rounds than answers", {"round_ids": [""]}),
        (w.DirectPiece, "place 100", {"place": 100}),
        (w.DirectPiece, "an empty piece", {"data": b""}),
        (w.DirectSeal, "no signature", {"signature": b""}),
        (w.DirectReceipts, "fewer contributors than answers", {"contributors": [1]}),
    ]  # fmt: skip
    for kind, why, changes in fields:
        name, wire = _changed(sample[kind], **changes)
        bad.append((name, f"{kind.__name__}: {why}", wire))
    return bad
