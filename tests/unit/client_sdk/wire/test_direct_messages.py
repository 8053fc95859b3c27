"""Limits of direct delivery's messages, at the limit and one beyond it; the vectors have the rest."""

from __future__ import annotations

import dataclasses
import tracemalloc

import pytest

from client_sdk.errors import WireError
from client_sdk.wire import convert, direct_pb2, envelopes
from client_sdk.wire.limits import MAX_DIRECT_MESSAGE_BYTES, MAX_DIRECT_REPORTS
from client_sdk.wire.messages import DirectOffer, DirectPiece, DirectReceipts, DirectSeal, DirectStanding

REQUEST, RESPONSE = convert.deliver_request_from_wire, convert.deliver_response_from_wire
MOST = MAX_DIRECT_REPORTS
OFFER = DirectOffer(
    (b"p" * 32,) * MOST, tuple(range(MOST)), (b"r" * 16,) * MOST, (True, False) * (MOST // 2), b"s" * 64
)


def test_the_largest_messages_pass() -> None:
    assert REQUEST(convert.deliver_request_to_wire(OFFER)) == OFFER
    answers = ("a" * 64,) * MOST, ("r" * 64,) * MOST, (2**32 - 1,) * MOST
    for message in (DirectStanding(2**63 - 1, 2**63 - 1, *answers), DirectReceipts(*answers)):
        assert RESPONSE(convert.deliver_response_to_wire(message)) == message
    piece = DirectPiece(MOST - 1, 2**32 - 1, bytes(262_144))
    wire = convert.deliver_request_to_wire(piece)
    assert len(wire) < MAX_DIRECT_MESSAGE_BYTES
    assert REQUEST(wire) == piece


@pytest.mark.parametrize("name", ["plan_hashes", "period_starts", "report_ids", "resent"])
def test_one_report_too_many_is_refused(name: str) -> None:
    longer = {name: (*getattr(OFFER, name), getattr(OFFER, name)[0])}
    with pytest.raises(WireError, match=f"{name}: 101 entries, at most 100"):
        convert.deliver_request_to_wire(dataclasses.replace(OFFER, **longer))
    wire = direct_pb2.DeliverRequest.FromString(convert.deliver_request_to_wire(OFFER))
    getattr(wire.offer, name).append(getattr(OFFER, name)[0])
    with pytest.raises(WireError, match=rf"offer\.{name}: 101 entries, at most 100"):
        REQUEST(wire.SerializeToString())


def test_a_piece_too_long_is_refused_at_both_ends() -> None:
    with pytest.raises(WireError, match="262145 bytes"):
        convert.deliver_request_to_wire(DirectPiece(0, 0, bytes(262_145)))
    wire = direct_pb2.DeliverRequest(piece={"place": 0, "offset": 0, "data": bytes(262_145)}).SerializeToString()
    with pytest.raises(WireError, match="262145 bytes"):
        REQUEST(wire)


def test_a_message_too_long_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "_parse", None)
    with pytest.raises(WireError, match=f"DeliverRequest: {MAX_DIRECT_MESSAGE_BYTES + 1} bytes"):
        REQUEST(bytes(MAX_DIRECT_MESSAGE_BYTES + 1))


def test_a_crowd_of_empty_entries_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes an entry on the wire, a hundred times as many once they are objects."""
    entries = b"\x0a\x00" * 100_000
    size = len(entries)
    wire = b"\x12" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + entries
    monkeypatch.setattr(envelopes, "_parse", None)
    tracemalloc.start()
    with pytest.raises(WireError, match="DeliverRequest: more than 1024 fields"):
        REQUEST(wire)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_lists_that_are_not_packed_are_read_too() -> None:
    packed = direct_pb2.DeliverRequest.FromString(convert.deliver_request_to_wire(OFFER)).offer
    loose = b"".join(b"\x10" + bytes([start]) for start in packed.period_starts)
    loose += b"".join(b"\x20" + bytes([flag]) for flag in packed.resent)
    del packed.period_starts[:], packed.resent[:]
    body = packed.SerializeToString() + loose
    wire = b"\x12" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    assert REQUEST(wire) == OFFER


def test_neither_direction_reads_the_others_messages() -> None:
    with pytest.raises(WireError, match="does not travel"):
        convert.deliver_response_to_wire(DirectSeal(b"s" * 64))  # type: ignore[arg-type]
    with pytest.raises(WireError):
        RESPONSE(convert.deliver_request_to_wire(OFFER))


def test_a_pieces_bytes_stay_out_of_its_repr() -> None:
    assert "secret" not in repr(DirectPiece(0, 0, b"secret"))
