"""The table of messages: which fields each one has, and what is accepted in them. No generated code here.

Rules of this file: a check reads a value of either world (the generated class's or our own) and answers with
our own type or with FieldError, which says what is wrong and never holds the content; the limit of a list
is checked before the list is copied.
What it does not do: it checks shapes only. What a message means, and whether it may come now, is decided by
the state machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client_sdk.certificate import CERTIFICATE_BYTES
from client_sdk.secagg import messages as m
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.merkle import NODE_BYTES
from client_sdk.secagg.parameters import MAX_NEIGHBOURS, MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import limits
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

_MAX_UINT32: Final = 2**32 - 1


class FieldError(Exception):
    """What is wrong with one field, without its content; convert turns it into a WireError."""


Check = Callable[[Any], Any]
"""Takes a field's value from either world, returns it as our own type, or raises FieldError."""


# --- checks, one per kind of field ----------------------------------------------------------------


def _exactly(*sizes: int) -> Check:
    wanted = " or ".join(map(str, sizes))

    def check(value: Any) -> Any:
        if len(value) not in sizes:
            raise FieldError(f"{len(value)} bytes instead of {wanted}")
        return value

    return check


def _between(least: int, most: int, unit: str = "bytes") -> Check:
    def check(value: Any) -> Any:
        if not least <= len(value) <= most:
            raise FieldError(f"{len(value)} {unit}, must be {least} to {most}")
        return value

    return check


def _characters(least: int, most: int) -> Check:
    return _between(least, most, "characters")


def _text(pattern: str, rule: str) -> Check:
    matches = re.compile(pattern, re.ASCII).fullmatch

    def check(value: Any) -> Any:
        if matches(value) is None:
            raise FieldError(f"must be {rule}")
        return value

    return check


def _number(least: int, most: int) -> Check:
    def check(value: Any) -> Any:
        if not least <= value <= most:
            raise FieldError(f"must lie in {least} to {most}")
        return value

    return check


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise FieldError("must be true or false")
    return value


def _indices(most: int) -> Check:
    def check(values: Any) -> tuple[int, ...]:
        if len(values) > most:
            raise FieldError(f"{len(values)} indices, at most {most}")
        indices = tuple(values[:])  # as a list first: the generated class's lists are slow to walk
        if indices and not (min(indices) >= 0 and max(indices) < MAX_ROSTER):
            raise FieldError(f"an index is not below {MAX_ROSTER}")
        return indices

    return check


def _many(each: Check, most: int) -> Check:
    def check(values: Any) -> tuple[Any, ...]:
        if len(values) > most:
            raise FieldError(f"{len(values)} entries, at most {most}")
        return tuple(map(each, values))

    return check


def _many_of(size: int, most: int) -> Check:
    """`_many(_exactly(size), most)`, without a call for each entry."""
    each = _many(_exactly(size), most)

    def check(values: Any) -> Any:
        if len(values) > most:
            return each(values)
        entries = tuple(values)
        # Only where one is wrong they are looked at one by one, to say which length it has.
        return entries if set(map(len, entries)) <= {size} else each(entries)

    return check


_key = _exactly(m.KEY_BYTES)
_digest = _exactly(m.DIGEST_BYTES)
_signature = _exactly(m.SIGNATURE_BYTES)
# None at all is well-formed: whoever checks certificates says what is wrong with it.
_certificate = _exactly(0, CERTIFICATE_BYTES)
_time = _number(0, limits.MAX_TIME_S)
_uint32 = _number(0, _MAX_UINT32)
_total = _number(0, limits.MAX_TOTAL)
_round_id = _text(r"[A-Za-z0-9_-]{1,64}", "1 to 64 characters of A-Z a-z 0-9 _ -")
_reason = _text(r"[a-z0-9_]{1,64}", "1 to 64 characters of a-z 0-9 _")
_neighbours = _indices(MAX_NEIGHBOURS)
_neighbourhood = _indices(MAX_NEIGHBOURS + 1)
_sealed_pairs = _many_of(SEALED_BYTES, MAX_NEIGHBOURS)
_share_hashes = _between(0, m.SHARE_HASH_PAIR_BYTES * (MAX_NEIGHBOURS + 1))
_proof = _many_of(NODE_BYTES, limits.MAX_PROOF_NODES)


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """One message: our class, a check per field, and pairs of lists that run in parallel.

    hashed: a list of indices and how many more entries than it `share_hashes` may have.
    """

    kind: type[Any]
    fields: Mapping[str, Check]
    parallel: tuple[tuple[str, str], ...] = ()
    hashed: tuple[str, int] | None = None

    def checked(self, source: object) -> dict[str, Any]:
        """All fields of a message of either world, as our own types. Raises FieldError naming the field."""
        values = {}
        for name, check in self.fields.items():
            try:
                values[name] = check(getattr(source, name))
            except FieldError as fault:
                raise FieldError(f"{name}: {fault}") from None
        for left, right in self.parallel:
            if len(values[left]) != len(values[right]):
                raise FieldError(f"{right}: {len(values[right])} entries for {len(values[left])} {left}")
        if self.hashed is not None:
            _check_hashed(values, *self.hashed)
        return values


def _check_hashed(values: Mapping[str, Any], name: str, more: int) -> None:
    least, size = len(values[name]), len(values["share_hashes"])
    entries, rest = divmod(size, m.SHARE_HASH_PAIR_BYTES)
    if rest or not least <= entries <= least + more:
        raise FieldError(f"share_hashes: {size} bytes for {least} {name}")


ADVERT = Shape(
    m.Advert,
    {
        "identity_key": _key,
        "certificate": _certificate,
        "plan_hash": _digest,
        "period_start": _time,
        "report_id": _exactly(m.REPORT_ID_BYTES),
        "nonce": _exactly(m.NONCE_BYTES),
        "mask_key": _key,
        "channel_key": _key,
        "self_mask_commitment": _digest,
        "resent": _flag,
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
            "report_id": _exactly(m.REPORT_ID_BYTES),
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
    "masked_input_piece": Shape(m.MaskedInputPiece, {"offset": _uint32, "data": _between(1, PIECE_BYTES)}),
    "confirm": Shape(m.Confirm, {"status_root": _digest, "signature": _signature}),
    "unmask_shares": Shape(
        m.UnmaskShares,
        {"owners": _neighbourhood, "shares": _many_of(m.SHARE_BYTES, MAX_NEIGHBOURS + 1)},
        parallel=(("owners", "shares"),),
    ),
}

COLLECTOR_SHAPES: Final[Mapping[str, Shape]] = {
    "challenge": Shape(m.Challenge, {"nonce": _exactly(m.NONCE_BYTES)}),
    "joined": Shape(m.Joined, {"reports": _total, "spent_micro_epsilon": _total}),
    "already_counted": Shape(m.AlreadyCounted, {"round_id": _round_id, "contributors": _uint32}),
    "come_back": Shape(m.ComeBack, {"at": _time, "jitter_s": _uint32}),
    "roster": Shape(
        m.Roster,
        {
            "round_id": _round_id,
            "index": _number(0, MAX_ROSTER - 1),
            "size": _number(1, MAX_ROSTER),
            "threshold": _number(1, MAX_NEIGHBOURS + 1),
            "bits": _number(1, 64),
            "length": _number(1, _MAX_UINT32),
            "formed_at": _time,
            "neighbours": _neighbours,
            "adverts": _many(_advert, MAX_NEIGHBOURS),
            "digest": _digest,
            "resent": _number(0, MAX_ROSTER),
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
            "contributors": _number(0, MAX_ROSTER),
            "resent_survivors": _number(0, MAX_ROSTER),
            "root": _digest,
            "proof": _proof,
        },
    ),
    "unmask_request": Shape(
        m.UnmaskRequest,
        {
            "dropped": _neighbours,
            "confirmed_by": _neighbourhood,
            "confirmations": _many_of(m.SIGNATURE_BYTES, MAX_NEIGHBOURS + 1),
        },
        parallel=(("confirmed_by", "confirmations"),),
    ),
    "receipt": Shape(m.Receipt, {"round_id": _round_id, "contributors": _uint32, "roster_size": _uint32}),
    "round_aborted": Shape(m.RoundAborted, {"reason": _reason, "have": _uint32, "need": _uint32}),
}

ENROL_REQUEST: Final = Shape(
    EnrolRequest,
    {"token": _characters(1, limits.MAX_TOKEN_CHARS), "identity_key": _key, "signature": _signature},
)
_issued = {"certificate": _exactly(CERTIFICATE_BYTES), "expires_at": _time}
ENROL_RESPONSE: Final = Shape(EnrolResponse, _issued)
RENEW_REQUEST: Final = Shape(RenewRequest, {"certificate": _exactly(CERTIFICATE_BYTES), "signature": _signature})
RENEW_RESPONSE: Final = Shape(RenewResponse, _issued)
GET_PLAN_REQUEST: Final = Shape(GetPlanRequest, {"name": _characters(0, limits.MAX_NAME_CHARS)})
GET_PLAN_RESPONSE: Final = Shape(
    GetPlanResponse,
    {
        "toml": _characters(1, limits.MAX_PLAN_CHARS),
        "plan_hash": _digest,
        "signature": _exactly(0, m.SIGNATURE_BYTES),
    },
)
DELETE_REQUEST: Final = Shape(
    DeleteRequest,
    {"identity_key": _key, "certificate": _certificate, "requested_at": _time, "signature": _signature},
)
DELETE_RESPONSE: Final = Shape(DeleteResponse, {})
GET_REPORT_REQUEST: Final = Shape(
    GetReportRequest,
    {"metric": _text(r"([a-z][a-z0-9_]{0,62})?", "a metric's name or empty"), "since": _time, "until": _time},
)
GET_PRIVACY_REQUEST: Final = Shape(
    GetPrivacyRequest, {"device": _text(r"([0-9a-f]{32})?", "a device id of 32 hex digits or empty"), "all": _flag}
)
GET_COUNTERS_REQUEST: Final = Shape(GetCountersRequest, {})
DOCUMENT_PIECE: Final = Shape(
    DocumentPiece,
    {
        "media_type": _text(r"[a-z]+/[a-z0-9.+-]{1,64}", "a media type"),
        "data": _between(0, limits.DOCUMENT_PIECE_BYTES),
    },
)
