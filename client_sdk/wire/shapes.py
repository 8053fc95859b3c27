"""The table of messages: which fields each one has, and what is accepted in them. No generated code here.

Rules of this file: every field of every message has its check (`checks`), and every list its limit; lists of one
message that run in parallel say so.
What it does not do: it checks shapes only. What a message means, and whether it may come now, is decided by
the state machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from client_sdk.certificate import CERTIFICATE_BYTES
from client_sdk.secagg import messages as m
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.merkle import NODE_BYTES
from client_sdk.secagg.parameters import MAX_NEIGHBOURS, MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import limits
from client_sdk.wire.checks import (
    Shape,
    between,
    characters,
    exactly,
    flag,
    indices,
    many,
    many_of,
    number,
    text,
)
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    DirectChallenge,
    DirectHello,
    DirectOffer,
    DirectPiece,
    DirectReceipts,
    DirectSeal,
    DirectStanding,
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

_MAX_UINT32: Final = 2**32 - 1

_key = exactly(m.KEY_BYTES)
_digest = exactly(m.DIGEST_BYTES)
_signature = exactly(m.SIGNATURE_BYTES)
# None at all is well-formed: whoever checks certificates says what is wrong with it.
_certificate = exactly(0, CERTIFICATE_BYTES)
_time = number(0, limits.MAX_TIME_S)
_uint32 = number(0, _MAX_UINT32)
_total = number(0, limits.MAX_TOTAL)
_round_id = text(r"[A-Za-z0-9_-]{1,64}", "1 to 64 characters of A-Z a-z 0-9 _ -")
_reason = text(r"[a-z0-9_]{1,64}", "1 to 64 characters of a-z 0-9 _")
_neighbours = indices(MAX_NEIGHBOURS)
_neighbourhood = indices(MAX_NEIGHBOURS + 1)
_sealed_pairs = many_of(SEALED_BYTES, MAX_NEIGHBOURS)
_share_hashes = between(0, m.SHARE_HASH_PAIR_BYTES * (MAX_NEIGHBOURS + 1))
_proof = many_of(NODE_BYTES, limits.MAX_PROOF_NODES)


# --- the table ------------------------------------------------------------------------------------

ADVERT = Shape(
    m.Advert,
    {
        "identity_key": _key,
        "certificate": _certificate,
        "plan_hash": _digest,
        "period_start": _time,
        "report_id": exactly(m.REPORT_ID_BYTES),
        "nonce": exactly(m.NONCE_BYTES),
        "mask_key": _key,
        "channel_key": _key,
        "self_mask_commitment": _digest,
        "resent": flag,
        "min_cohort": _uint32,
        "signature": _signature,
    },
)


def _advert(value: Any) -> m.Advert:
    """An advert inside a roster. Our own kind is checked where it is turned into the other, once."""
    return value if isinstance(value, m.Advert) else m.Advert(**ADVERT.checked(value))


PARTICIPANT_SHAPES: Final[Mapping[str, Shape]] = {
    "hello": Shape(
        m.Hello,
        {
            "identity_key": _key,
            "certificate": _certificate,
            "plan_hash": _digest,
            "period_start": _time,
            "report_id": exactly(m.REPORT_ID_BYTES),
        },
    ),
    "advert": ADVERT,
    "sealed_shares": Shape(
        m.SealedShares,
        {
            "recipients": _neighbours,
            "sealed": _sealed_pairs,
            "share_hashes": _share_hashes,
            "signature": _signature,
        },
        parallel=(("recipients", "sealed"),),
        hashed=("recipients", 1),  # in the complete graph also the sender holds a pair
    ),
    "masked_input_piece": Shape(m.MaskedInputPiece, {"offset": _uint32, "data": between(1, PIECE_BYTES)}),
    "confirm": Shape(m.Confirm, {"status_root": _digest, "signature": _signature}),
    "unmask_shares": Shape(
        m.UnmaskShares,
        {"owners": _neighbourhood, "shares": many_of(m.SHARE_BYTES, MAX_NEIGHBOURS + 1)},
        parallel=(("owners", "shares"),),
    ),
}

COLLECTOR_SHAPES: Final[Mapping[str, Shape]] = {
    "challenge": Shape(m.Challenge, {"nonce": exactly(m.NONCE_BYTES)}),
    "joined": Shape(m.Joined, {"reports": _total, "spent_micro_epsilon": _total}),
    "already_counted": Shape(m.AlreadyCounted, {"round_id": _round_id, "contributors": _uint32}),
    "come_back": Shape(m.ComeBack, {"at": _time, "jitter_s": _uint32}),
    "roster": Shape(
        m.Roster,
        {
            "round_id": _round_id,
            "index": number(0, MAX_ROSTER - 1),
            "size": number(1, MAX_ROSTER),
            "threshold": number(1, MAX_NEIGHBOURS + 1),
            "bits": number(1, 64),
            "length": number(1, _MAX_UINT32),
            "formed_at": _time,
            "neighbours": _neighbours,
            "adverts": many(_advert, MAX_NEIGHBOURS),
            "digest": _digest,
            "resent": number(0, MAX_ROSTER),
            "proof": _proof,
        },
        parallel=(("neighbours", "adverts"),),
    ),
    "delivered_shares": Shape(
        m.DeliveredShares,
        {"sharers": _neighbourhood, "owners": _neighbours, "sealed": _sealed_pairs, "share_hashes": _share_hashes},
        parallel=(("owners", "sealed"),),
        hashed=("owners", 0),
    ),
    "survivor_status": Shape(
        m.SurvivorStatus,
        {
            "survivors": _neighbourhood,
            "contributors": number(0, MAX_ROSTER),
            "resent_survivors": number(0, MAX_ROSTER),
            "root": _digest,
            "proof": _proof,
        },
    ),
    "unmask_request": Shape(
        m.UnmaskRequest,
        {
            "dropped": _neighbours,
            "confirmed_by": _neighbourhood,
            "confirmations": many_of(m.SIGNATURE_BYTES, MAX_NEIGHBOURS + 1),
        },
        parallel=(("confirmed_by", "confirmations"),),
    ),
    "receipt": Shape(m.Receipt, {"round_id": _round_id, "contributors": _uint32, "roster_size": _uint32}),
    "round_aborted": Shape(m.RoundAborted, {"reason": _reason, "have": _uint32, "need": _uint32}),
}

ENROL_REQUEST: Final = Shape(
    EnrolRequest,
    {"token": characters(1, limits.MAX_TOKEN_CHARS), "identity_key": _key, "signature": _signature},
)
_issued = {"certificate": exactly(CERTIFICATE_BYTES), "expires_at": _time}
ENROL_RESPONSE: Final = Shape(EnrolResponse, _issued)
RENEW_REQUEST: Final = Shape(RenewRequest, {"certificate": exactly(CERTIFICATE_BYTES), "signature": _signature})
RENEW_RESPONSE: Final = Shape(RenewResponse, _issued)
GET_PLAN_REQUEST: Final = Shape(GetPlanRequest, {"name": characters(0, limits.MAX_NAME_CHARS)})
GET_PLAN_RESPONSE: Final = Shape(
    GetPlanResponse,
    {
        "toml": characters(1, limits.MAX_PLAN_CHARS),
        "plan_hash": _digest,
        "signature": exactly(0, m.SIGNATURE_BYTES),
    },
)
DELETE_REQUEST: Final = Shape(
    DeleteRequest,
    {"identity_key": _key, "certificate": _certificate, "requested_at": _time, "signature": _signature},
)
DELETE_RESPONSE: Final = Shape(DeleteResponse, {})

_MOST = limits.MAX_DIRECT_REPORTS
_round_ids = many(text(r"[A-Za-z0-9_-]{0,64}", "up to 64 characters of A-Z a-z 0-9 _ -"), _MOST)
_outcomes: Mapping[str, Any] = {
    "answers": many(_reason, _MOST),
    "round_ids": _round_ids,
    "contributors": many(_uint32, _MOST),
}
_alike: tuple[tuple[str, str], ...] = (("answers", "round_ids"), ("answers", "contributors"))
DELIVER_REQUEST_SHAPES: Final[Mapping[str, Shape]] = {
    "hello": Shape(DirectHello, {"identity_key": _key, "certificate": _certificate}),
    "offer": Shape(
        DirectOffer,
        {
            "plan_hashes": many_of(m.DIGEST_BYTES, _MOST),
            "period_starts": many(_time, _MOST),
            "report_ids": many_of(m.REPORT_ID_BYTES, _MOST),
            "resent": many(flag, _MOST),
            "signature": _signature,
        },
        parallel=(
            ("plan_hashes", "period_starts"),
            ("plan_hashes", "report_ids"),
            ("plan_hashes", "resent"),
        ),
    ),
    "piece": Shape(DirectPiece, {"place": number(0, _MOST - 1), "offset": _uint32, "data": between(1, PIECE_BYTES)}),
    "seal": Shape(DirectSeal, {"signature": _signature}),
}
DELIVER_RESPONSE_SHAPES: Final[Mapping[str, Shape]] = {
    "challenge": Shape(DirectChallenge, {"nonce": exactly(m.NONCE_BYTES)}),
    "standing": Shape(DirectStanding, {"reports": _total, "spent_micro_epsilon": _total, **_outcomes}, parallel=_alike),
    "receipts": Shape(DirectReceipts, _outcomes, parallel=_alike),
}
GET_REPORT_REQUEST: Final = Shape(
    GetReportRequest,
    {
        "metric": text(r"([a-z][a-z0-9_]{0,62})?", "a metric's name or empty"),
        "since": _time,
        "until": _time,
        "false_devices": text(r"([0-9]{1,9}|[0-9.]{1,121}%)?", "a number, a share such as 1% or empty"),
    },
)
GET_PRIVACY_REQUEST: Final = Shape(
    GetPrivacyRequest,
    {
        "device": text(r"([0-9a-f]{32})?", "a device id of 32 hex digits or empty"),
        "all": flag,
        "window": text(r"[0-9a-z]{0,16}", "a window's name or empty"),
        "delta": text(r"[0-9.eE+-]{0,130}", "a decimal number or empty"),
        "corrupt": text(r"[0-9.eE+-]{0,130}", "a decimal number or empty"),
    },
)
GET_COUNTERS_REQUEST: Final = Shape(GetCountersRequest, {})
DOCUMENT_PIECE: Final = Shape(
    DocumentPiece,
    {
        "media_type": text(r"[a-z]+/[a-z0-9.+-]{1,64}", "a media type"),
        "data": between(0, limits.DOCUMENT_PIECE_BYTES),
    },
)
