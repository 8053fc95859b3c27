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

from client_sdk.secagg import messages as m
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.parameters import MAX_ROSTER, PIECE_BYTES
from client_sdk.wire import limits
from client_sdk.wire.messages import EnrolRequest, EnrolResponse, GetPlanRequest, GetPlanResponse

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


def _indices(values: Any) -> tuple[int, ...]:
    if len(values) > MAX_ROSTER:
        raise FieldError(f"{len(values)} indices, at most {MAX_ROSTER}")
    indices = tuple(values)
    if indices and not (min(indices) >= 0 and max(indices) < MAX_ROSTER):
        raise FieldError(f"an index is not below {MAX_ROSTER}")
    return indices


def _many(each: Check, most: int) -> Check:
    def check(values: Any) -> tuple[Any, ...]:
        if len(values) > most:
            raise FieldError(f"{len(values)} entries, at most {most}")
        return tuple(map(each, values))

    return check


_key = _exactly(m.KEY_BYTES)
_digest = _exactly(m.DIGEST_BYTES)
_signature = _exactly(m.SIGNATURE_BYTES)
_reserved_signature = _exactly(0, m.SIGNATURE_BYTES)
_certificate = _between(0, limits.MAX_CERTIFICATE_BYTES)
_time = _number(0, limits.MAX_TIME_S)
_uint32 = _number(0, _MAX_UINT32)
_total = _number(0, limits.MAX_TOTAL)
_round_id = _text(r"[A-Za-z0-9_-]{1,64}", "1 to 64 characters of A-Z a-z 0-9 _ -")
_reason = _text(r"[a-z0-9_]{1,64}", "1 to 64 characters of a-z 0-9 _")
_sealed_pairs = _many(_exactly(SEALED_BYTES), MAX_ROSTER)


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """One message: our class, a check per field, and pairs of lists that run in parallel."""

    kind: type[Any]
    fields: Mapping[str, Check]
    parallel: tuple[tuple[str, str], ...] = ()

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
        return values


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
            "recipients": _indices,
            "sealed": _sealed_pairs,
            "share_hashes": _many(_digest, 2 * MAX_ROSTER),
            "signature": _reserved_signature,
        },
        parallel=(("recipients", "sealed"),),
    ),
    "masked_input_piece": Shape(m.MaskedInputPiece, {"offset": _uint32, "data": _between(1, PIECE_BYTES)}),
    "confirm": Shape(m.Confirm, {"status_root": _digest, "signature": _reserved_signature}),
    "unmask_shares": Shape(
        m.UnmaskShares,
        {"owners": _indices, "shares": _many(_exactly(m.SHARE_BYTES), MAX_ROSTER)},
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
            "threshold": _number(1, MAX_ROSTER),
            "bits": _number(1, 64),
            "length": _number(1, _MAX_UINT32),
            "formed_at": _time,
            "neighbours": _indices,
            "adverts": _many(_advert, MAX_ROSTER),
            "digest": _digest,
        },
        parallel=(("neighbours", "adverts"),),
    ),
    "delivered_shares": Shape(
        m.DeliveredShares,
        {"sharers": _indices, "owners": _indices, "sealed": _sealed_pairs},
        parallel=(("owners", "sealed"),),
    ),
    "survivor_status": Shape(
        m.SurvivorStatus,
        {
            "survivors": _indices,
            "resent_survivors": _number(0, MAX_ROSTER),
            "root": _digest,
            "proofs": _many(_between(0, limits.MAX_PROOF_BYTES), MAX_ROSTER),
        },
    ),
    "unmask_request": Shape(
        m.UnmaskRequest,
        {
            "dropped": _indices,
            "confirmed_by": _indices,
            "confirmations": _many(_signature, MAX_ROSTER),
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
ENROL_RESPONSE: Final = Shape(EnrolResponse, {"certificate": _certificate, "expires_at": _time})
GET_PLAN_REQUEST: Final = Shape(GetPlanRequest, {"name": _characters(0, limits.MAX_NAME_CHARS)})
GET_PLAN_RESPONSE: Final = Shape(GetPlanResponse, {"toml": _characters(1, limits.MAX_PLAN_CHARS), "plan_hash": _digest})
