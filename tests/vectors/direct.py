"""A call of direct delivery, message by message, and what must be refused in one. Made with the SDK's own code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from client_sdk.certificate import Role
from client_sdk.direct import offer_message, pieces, seal_message
from client_sdk.errors import RejectionError
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from client_sdk.report import pack_vector
from client_sdk.wire import convert
from client_sdk.wire import messages as w
from collector.direct import Incoming, check_direct_hello, check_offer, read_report
from tests.vectors.certificates import EXPIRES_AT, REGISTRAR, issued
from tests.vectors.layout import PERIOD_START, Entry, drawn, flipped
from tests.vectors.plans import LABELS, NUMBER, text

PLAN = parse_plan(text(NUMBER, LABELS) + '[delivery]\ndelivery = "direct"\n')
DAY_S = 86_400
SIGNER = IdentityKey(drawn("identity 0"))
OTHER = IdentityKey(drawn("identity 1"))
NONCE = drawn("direct nonce")
VECTORS = ([-1234, 0, 1, 0], [46_000, 1, 0, 0], [-45_000, 0, 0, 1])
WANTED = {0: VECTORS[0], 2: VECTORS[2]}
"""The report at place 1 is counted already."""


def hello(**changes: Any) -> w.DirectHello:
    return replace(w.DirectHello(SIGNER.public_key, issued(SIGNER.public_key)), **changes)


def unsigned() -> w.DirectOffer:
    periods = tuple(PERIOD_START + day * DAY_S for day in range(3))
    ids = tuple(SIGNER.report_id(PLAN.name, start) for start in periods)
    return w.DirectOffer((PLAN.hash,) * 3, periods, ids, (False, True, True))


def offer() -> w.DirectOffer:
    return replace(unsigned(), signature=SIGNER.sign(offer_message(hello(), NONCE, unsigned())))


def packed(vector: list[int]) -> bytes:
    return pack_vector(vector, PLAN.bound)


def reports() -> dict[int, bytes]:
    return {place: packed(vector) for place, vector in WANTED.items()}


def seal(sent: dict[int, bytes] | None = None) -> w.DirectSeal:
    offered = offer_message(hello(), NONCE, offer())
    return w.DirectSeal(SIGNER.sign(seal_message(offered, reports() if sent is None else sent)))


def call() -> Iterator[tuple[str, Any]]:
    """Who says what, in order."""
    yield "from", hello()
    yield "to", w.DirectChallenge(NONCE)
    yield "from", offer()
    answers = ("wanted", "already_counted", "wanted")
    yield "to", w.DirectStanding(7, 14_000_000, answers, ("", "round_5-A", ""), (0, 50, 0))
    for place, data in reports().items():
        yield from (("from", piece) for piece in pieces(place, data))
    yield "from", seal()
    counted = ("counted", "already_counted", "counted")
    yield "to", w.DirectReceipts(counted, ("direct_1", "round_5-A", "direct_1"), (3, 50, 3))


def direct_document() -> dict[str, Any]:
    return {
        "about": (
            "Section 16: one whole call of one device with three reports, `from` it and `to` it. `bad_offers` and "
            "`bad_seals`: the same with another signature, over something else. `bad_pieces`: pieces that come in "
            "place of all of the call's, then its seal. `bad_reports`: packed reports that no collector adds up."
        ),
        "plan": PLAN.text,
        "plan_hash": PLAN.hash,
        "identity_seed": SIGNER.seed,
        "registrar_key": REGISTRAR.public_key,
        "certificate": hello().certificate,
        "nonce": NONCE,
        "reports": [_report(place) for place in range(3)],
        "offer_message": offer_message(hello(), NONCE, offer()),
        "seal_message": seal_message(offer_message(hello(), NONCE, offer()), reports()),
        "messages": [_message(side, message) for side, message in call()],
        "bad_hellos": [_bad_hello(*one) for one in _bad_hellos()],
        "bad_offers": [_bad_offer(why, signature) for why, signature in _bad_offers()],
        "bad_seals": [_bad_seal(why, signature) for why, signature in _bad_seals()],
        "bad_pieces": [_bad_pieces(why, given) for why, given in _bad_pieces_of_calls()],
        "bad_reports": [_bad_report(why, data) for why, data in _bad_reports()],
    }


def _report(place: int) -> Entry:
    asked = offer()
    return {
        "period_start": asked.period_starts[place],
        "report_id": asked.report_ids[place],
        "resent": asked.resent[place],
        "elements": VECTORS[place],
        "packed": packed(VECTORS[place]),
    }


def _message(side: str, message: Any) -> Entry:
    to_wire = convert.deliver_request_to_wire if side == "from" else convert.deliver_response_to_wire
    return {side: 0, "kind": type(message).__name__, "wire": to_wire(message)}


def _refused(work: Any) -> str:
    try:
        work()
    except RejectionError as error:
        return error.reason.value
    raise AssertionError("what should be refused is taken")


def _bad_hellos() -> Iterator[tuple[str, w.DirectHello, int]]:
    key = SIGNER.public_key
    yield "an identity of small order", w.DirectHello(bytes(32), issued(key)), PERIOD_START
    yield "no certificate", hello(certificate=b""), PERIOD_START
    yield "another identity's certificate", hello(certificate=issued(OTHER.public_key)), PERIOD_START
    yield "an analyst's", hello(certificate=issued(key, role=Role.ANALYST)), PERIOD_START
    yield "another registrar's", hello(certificate=issued(key, registrar=OTHER)), PERIOD_START
    yield "it has ended", hello(), EXPIRES_AT


def _bad_hello(why: str, said: w.DirectHello, at: int) -> Entry:
    reason = _refused(lambda: check_direct_hello(said, REGISTRAR.public_key, at))
    return {"why": why, "wire": convert.deliver_request_to_wire(said), "at": at, "refused": reason}


def _bad_offers() -> Iterator[tuple[str, bytes]]:
    good, first = offer(), hello()
    fresh = replace(good, resent=(False, False, True))
    yield "a bit of the signature", flipped(good.signature)
    yield "another nonce: a replay", SIGNER.sign(offer_message(first, drawn("another nonce"), good))
    yield "by another identity", OTHER.sign(offer_message(first, NONCE, good))
    yield "over another certificate", SIGNER.sign(offer_message(hello(certificate=bytes(114)), NONCE, good))
    yield "over a report that is called fresh", SIGNER.sign(offer_message(first, NONCE, fresh))
    yield "over two reports of the three", SIGNER.sign(offer_message(first, NONCE, _two(good)))
    yield "without label", SIGNER.sign(offer_message(first, NONCE, good)[33:])
    yield "the seal's", seal().signature


def _two(good: w.DirectOffer) -> w.DirectOffer:
    return w.DirectOffer(good.plan_hashes[:2], good.period_starts[:2], good.report_ids[:2], good.resent[:2])


def _bad_offer(why: str, signature: bytes) -> Entry:
    said = replace(offer(), signature=signature)
    reason = _refused(lambda: check_offer(hello(), NONCE, said))
    return {"why": why, "signature": signature, "refused": reason}


def _incoming() -> Incoming:
    sizes = {place: len(data) for place, data in reports().items()}
    return Incoming.of(hello(), NONCE, offer(), sizes)


def _bad_seals() -> Iterator[tuple[str, bytes]]:
    sent = reports()
    offered = offer_message(hello(), NONCE, offer())
    swapped = {0: sent[2], 2: sent[0]}
    elsewhere = offer_message(hello(), drawn("another nonce"), offer())
    yield "a bit of the signature", flipped(seal().signature)
    yield "by another identity", OTHER.sign(seal_message(offered, sent))
    yield "under another offer: a replay", SIGNER.sign(seal_message(elsewhere, sent))
    yield "over one report of the two", seal({0: sent[0]}).signature
    yield "over the reports in each other's place", seal(swapped).signature
    yield "over a report of one unit more", seal({**sent, 0: packed([-1233, 0, 1, 0])}).signature
    yield "the offer's", offer().signature


def _bad_seal(why: str, signature: bytes) -> Entry:
    said = w.DirectSeal(signature)
    reason = _refused(lambda: _sealed([p for place, data in reports().items() for p in pieces(place, data)], said))
    return {"why": why, "signature": signature, "refused": reason}


def _sealed(given: list[w.DirectPiece], said: w.DirectSeal) -> None:
    incoming = _incoming()
    for piece in given:
        incoming.add(piece)
    incoming.seal(said)


def _bad_pieces_of_calls() -> Iterator[tuple[str, list[w.DirectPiece]]]:
    first, last = (w.DirectPiece(place, 0, data) for place, data in reports().items())
    half = replace(first, data=first.data[:8])
    yield "no piece at all", []
    yield "a report that is counted already", [first, replace(last, place=1)]
    yield "a place beyond the offer", [first, replace(last, place=3)]
    yield "descending places", [last, first]
    yield "half a report, then the seal", [first, replace(last, data=last.data[:-4])]
    yield "half a report, then the next", [half, last]
    yield "a report in two pieces although it fits into one", [half, replace(first, offset=8, data=first.data[8:])]
    yield "a gap", [replace(first, offset=1)]
    yield "a report twice", [first, first]
    yield "a byte too many", [replace(first, data=first.data + b"\0")]


def _bad_pieces(why: str, given: list[w.DirectPiece]) -> Entry:
    reason = _refused(lambda: _sealed(given, seal()))
    return {"why": why, "wires": [convert.deliver_request_to_wire(piece) for piece in given], "refused": reason}


def _bad_reports() -> Iterator[tuple[str, bytes]]:
    good = packed(VECTORS[0])
    yield "nothing", b""
    yield "a byte too few", good[:-1]
    yield "an element too many", good + bytes(4)
    yield "elements of two bytes", pack_vector(VECTORS[0], 32_767)
    yield "elements of eight bytes, as many bytes in all", b"\x08" + good[1:]
    yield "one beyond the bound", pack_vector([46_001, 0, 1, 0], 100_000)
    yield "one below the least that the mechanism gives", packed([-45_001, 0, 1, 0])
    yield "two labels at once", packed([0, 1, 1, 0])
    yield "no label", packed([0, 0, 0, 0])
    yield "a label twice", packed([0, 0, 2, 0])
    yield "two labels less one", packed([0, 1, 1, -1])


def _bad_report(why: str, data: bytes) -> Entry:
    return {"why": why, "packed": data, "refused": _refused(lambda: read_report(PLAN, data))}
