"""Direct delivery's byte strings, sizes and calls; the strings are also judged by an independent reading (vectors)."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import pytest

from client_sdk.direct import MAX_CALL_BYTES, calls, offer_message, pieces, report_bytes, seal_message
from client_sdk.errors import PlanError
from client_sdk.report import pack_vector, packed_width, unpack_vector
from client_sdk.secagg.parameters import PIECE_BYTES
from client_sdk.wire.messages import DirectHello, DirectOffer
from tests.unit.client_sdk.device.helpers import make_plan

HELLO = DirectHello(b"i" * 32, b"c" * 114)
OFFER = DirectOffer((b"p" * 32, b"q" * 32), (0, 86_400), (b"r" * 16, b"s" * 16), (False, True))


def said(hello: DirectHello = HELLO, nonce: bytes = b"n" * 32, **changes: Any) -> bytes:
    return offer_message(hello, nonce, dataclasses.replace(OFFER, **changes))


def test_every_field_is_under_the_offers_signature() -> None:
    messages = [
        said(),
        said(DirectHello(b"j" * 32, HELLO.certificate)),
        said(DirectHello(HELLO.identity_key, b"")),
        said(nonce=b"m" * 32),
        said(plan_hashes=(b"q" * 32, b"p" * 32)),
        said(period_starts=(86_400, 0)),
        said(report_ids=(b"s" * 16, b"r" * 16)),
        said(resent=(True, False)),
        said(plan_hashes=(b"p" * 32,), period_starts=(0,), report_ids=(b"r" * 16,), resent=(False,)),
    ]
    assert all(one != other for one, other in combinations(messages, 2))
    assert said(signature=b"x" * 64) == said()
    with pytest.raises(ValueError, match="zip"):
        said(resent=(True,))


def test_what_is_sealed_is_the_offer_and_each_report_in_its_place() -> None:
    messages = [
        seal_message(b"offer", {0: b"a", 2: b"b"}),
        seal_message(b"other", {0: b"a", 2: b"b"}),
        seal_message(b"offer", {0: b"b", 2: b"a"}),
        seal_message(b"offer", {0: b"a", 1: b"b"}),
        seal_message(b"offer", {0: b"a"}),
        seal_message(b"offer", {0: b"a", 2: b"c"}),
    ]
    assert all(one != other for one, other in combinations(messages, 2))
    assert seal_message(b"offer", {2: b"b", 0: b"a"}) == messages[0], "the order of a mapping means nothing"


@pytest.mark.parametrize(
    ("bound", "width"),
    [(1, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 4), (2**31 - 1, 4), (2**31, 8), (2**63 - 1, 8)],
)
def test_a_packed_reports_size_follows_from_the_bound_alone(bound: int, width: int) -> None:
    assert packed_width(bound) == width
    for vector in ([0, 0], [bound, -bound]):
        data = pack_vector(vector, bound)
        assert (len(data), data[0]) == (1 + 2 * width, width)
        assert unpack_vector(data) == vector


def test_no_width_holds_more_than_64_bits() -> None:
    with pytest.raises(PlanError):
        packed_width(2**63)


def test_a_report_of_a_plan_has_the_size_that_the_collector_expects() -> None:
    plan = make_plan()
    assert report_bytes(plan) == len(pack_vector([0] * plan.length, plan.bound)) == 1 + 5 * 4


def test_pieces_are_whole_but_for_the_last() -> None:
    for size in (1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES):
        report = bytes(i % 251 for i in range(size))
        made = list(pieces(7, report))
        assert b"".join(piece.data for piece in made) == report
        assert [piece.offset for piece in made] == list(range(0, size, PIECE_BYTES))
        assert {piece.place for piece in made} == {7}
        assert all(len(piece.data) == PIECE_BYTES for piece in made[:-1])


def test_reports_share_calls_as_far_as_they_fit() -> None:
    assert list(calls([], 3)) == []
    assert list(calls([5] * 7, 3)) == [(0, 3), (3, 6), (6, 7)]
    assert list(calls([4, 4, 4, 9, 1, 1], 10, most_bytes=8)) == [(0, 2), (2, 3), (3, 4), (4, 6)], "one always fits"
    largest = 1 + 8 * 1_000_000
    assert list(calls([largest] * 3, 100)) == [(0, 2), (2, 3)]
    assert 2 * largest <= MAX_CALL_BYTES
