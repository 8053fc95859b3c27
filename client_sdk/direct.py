"""Direct delivery, the part that both ends compute: what is signed, and how a report travels.

Rules of this file: everything that is said of a report and every byte of it is under a signature of the device's
identity that holds for one nonce only, so nothing can be replayed, exchanged or left out in the middle; the offer,
which is signed before the collector has said what it knows, holds nothing that follows from a report's contents (not
even a digest, for a report of few elements could be guessed from it).
What it does not do: no I/O and no decisions; whether a report may leave, the device decides, whether it is taken, the
collector (`collector.direct`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from client_sdk.identity import length_prefixed
from client_sdk.secagg.parameters import PIECE_BYTES
from client_sdk.wire.messages import DirectHello, DirectOffer, DirectPiece

if TYPE_CHECKING:
    from client_sdk.plan import Plan

OFFER_LABEL: Final = b"ldp-telemetry/direct/v1/offer"
SEAL_LABEL: Final = b"ldp-telemetry/direct/v1/seal"

WANTED: Final = "wanted"
COUNTED: Final = "counted"
ALREADY_COUNTED: Final = "already_counted"
"""What a collector says of a report; any other word is why it is refused."""

MAX_CALL_BYTES: Final = 16 << 20
"""Of all reports of one call; the largest possible one has half of that."""

SLOWEST_BYTES_S: Final = 32 << 10
"""How fast a device has to send, over a whole call: what is held for it is held no longer than that takes."""


def offer_message(hello: DirectHello, nonce: bytes, offer: DirectOffer) -> bytes:
    """What an identity signs to say which reports it has: all of hello, nonce and offer but the signature."""
    reports = zip(offer.plan_hashes, offer.period_starts, offer.report_ids, offer.resent, strict=True)
    listed = b"".join(
        length_prefixed(plan_hash) + _integer(period_start) + length_prefixed(report_id) + _integer(int(resent))
        for plan_hash, period_start, report_id, resent in reports
    )
    head = length_prefixed(OFFER_LABEL, hello.identity_key, hello.certificate, nonce)
    return head + _integer(len(offer.plan_hashes)) + listed


def seal_message(offered: bytes, reports: Mapping[int, bytes]) -> bytes:
    """What it signs under the reports themselves. offered: its `offer_message`; reports: packed, by place in it."""
    digests = b"".join(
        _integer(place) + length_prefixed(hashlib.sha256(reports[place]).digest()) for place in sorted(reports)
    )
    return length_prefixed(SEAL_LABEL, hashlib.sha256(offered).digest()) + _integer(len(reports)) + digests


def _integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def report_bytes(plan: Plan) -> int:
    """How long a packed report of the plan is (`client_sdk.report.pack_vector`), whatever is in it."""
    from client_sdk.report import packed_width

    return 1 + plan.length * packed_width(plan.bound)


def pieces(place: int, report: bytes) -> Iterator[DirectPiece]:
    """A packed report as it travels."""
    for offset in range(0, len(report), PIECE_BYTES):
        yield DirectPiece(place, offset, report[offset : offset + PIECE_BYTES])


def calls(sizes: Iterable[int], most_reports: int, most_bytes: int = MAX_CALL_BYTES) -> Iterator[tuple[int, int]]:
    """[first, end) of the reports of each call, where all do not fit into one. sizes: of the reports, in bytes."""
    first = end = held = 0
    for size in sizes:
        if end > first and (end - first >= most_reports or held + size > most_bytes):
            yield first, end
            first, held = end, 0
        end, held = end + 1, held + size
    if end > first:
        yield first, end
