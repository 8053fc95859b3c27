"""What the collector asks of reports that come unmasked, before any is added to a sum. Pure: time comes in.

Rules of this file: everything that can be refused is refused before anything of a report is kept; a device proves its
identity over a fresh nonce before it is told anything; what a report says and each of its bytes are under one
signature; a report that comes alone is judged alone: width, length, the plan's bounds, and what its mechanisms can
give, so that no false one ever reaches a sum unseen. A refusal says which field, never what was in it.
What it does not do: counting and "already counted" are the store's. It cannot tell a well-formed lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_sdk.certificate import CertificateError, Role, check
from client_sdk.direct import offer_message, report_bytes, seal_message
from client_sdk.errors import RejectionError, RejectionReason, StorageError
from client_sdk.identity import is_valid_public_key, verify
from client_sdk.report import packed_width, unpack_vector
from client_sdk.secagg.messages import NONCE_BYTES, Hello
from client_sdk.secagg.parameters import PIECE_BYTES
from collector.intake import check_hello
from collector.release import implausible_metrics

if TYPE_CHECKING:
    from client_sdk.mechanisms import Vector
    from client_sdk.plan import Plan
    from client_sdk.wire.messages import DirectHello, DirectOffer, DirectPiece, DirectSeal

ELEMENT_BYTES: Final = 8
"""Of a report that has been read."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One report that a device has, as it says. resent: it may have left the device before."""

    plan_hash: bytes
    period_start: int
    report_id: bytes
    resent: bool


def check_direct_hello(hello: DirectHello, registrar_key: bytes, now: float) -> None:
    """Is this an identity that the registrar has certified as a device's, until after `now`?

    Raises RejectionError: MALFORMED, or BAD_CERTIFICATE from a CertificateError, whose `reason` is for the counters.
    """
    if not is_valid_public_key(hello.identity_key):
        raise RejectionError(RejectionReason.MALFORMED, "identity_key")
    try:
        check(hello.certificate, registrar_key, hello.identity_key, Role.DEVICE, now)
    except CertificateError as error:
        raise RejectionError(RejectionReason.BAD_CERTIFICATE) from error


def check_offer(hello: DirectHello, nonce: bytes, offer: DirectOffer) -> list[Offered]:
    """The reports that the identity says it has. RejectionError: MALFORMED for none, BAD_SIGNATURE."""
    if not offer.plan_hashes:
        raise RejectionError(RejectionReason.MALFORMED, "plan_hashes")
    signed = offer_message(hello, nonce, offer)
    if len(nonce) != NONCE_BYTES or not verify(hello.identity_key, offer.signature, signed):
        raise RejectionError(RejectionReason.BAD_SIGNATURE)
    return list(map(Offered, offer.plan_hashes, offer.period_starts, offer.report_ids, offer.resent))


def why_not_taken(hello: DirectHello, offered: Offered, plan: Plan | None, now: float) -> RejectionReason | None:
    """Why this report cannot be counted under this plan (the one that its `plan_hash` names, if any), or None."""
    said = Hello(hello.identity_key, hello.certificate, offered.plan_hash, offered.period_start, offered.report_id)
    try:
        check_hello(said, plan, now, direct=True)
    except RejectionError as error:
        return error.reason
    return None


def read_report(plan: Plan, data: bytes) -> Vector:
    """The elements of a packed report. Raises RejectionError.

    MALFORMED: not of the width and length that every report of this plan has. IMPLAUSIBLE_REPORT: an element beyond the
    plan's bound, or a metric's part that its mechanism never gives.
    """
    if len(data) != report_bytes(plan) or data[0] != packed_width(plan.bound):
        raise RejectionError(RejectionReason.MALFORMED, "data")
    try:
        vector = unpack_vector(data)
    except StorageError:
        raise RejectionError(RejectionReason.MALFORMED, "data") from None
    if max(vector) > plan.bound or min(vector) < -plan.bound or implausible_metrics(plan, vector, 1):
        raise RejectionError(RejectionReason.IMPLAUSIBLE_REPORT)
    return vector


@dataclass
class Incoming:
    """The pieces of one call's reports, until they are sealed. sizes: of those that are wanted, in bytes, by place.

    offered: what the device signed as its offer. Nothing more is kept than the sizes say.
    """

    identity_key: bytes
    offered: bytes
    sizes: Mapping[int, int]
    _data: dict[int, bytearray] = field(default_factory=dict, repr=False)
    _place: int = -1

    @classmethod
    def of(cls, hello: DirectHello, nonce: bytes, offer: DirectOffer, sizes: Mapping[int, int]) -> Incoming:
        """Of an offer that holds."""
        return cls(hello.identity_key, offer_message(hello, nonce, offer), sizes)

    def add(self, piece: DirectPiece) -> None:
        """One piece: reports one after the other, each from its beginning, whole pieces but for the last.

        Raises RejectionError: MALFORMED, OUT_OF_ORDER (also for a report that nobody wanted), TOO_LARGE.
        """
        if piece.place not in self.sizes or piece.place < self._place:
            raise RejectionError(RejectionReason.OUT_OF_ORDER, "place")
        if piece.place > self._place:
            self._check_whole()
            self._place = piece.place
        held = self._data.setdefault(piece.place, bytearray())
        left = self.sizes[piece.place] - len(held)
        if piece.offset != len(held):
            raise RejectionError(RejectionReason.MALFORMED, "offset")
        if len(piece.data) > left:
            raise RejectionError(RejectionReason.TOO_LARGE, "data")
        if len(piece.data) != min(left, PIECE_BYTES):
            raise RejectionError(RejectionReason.MALFORMED, "data")
        held += piece.data

    def _check_whole(self) -> None:
        if self._place >= 0 and len(self._data[self._place]) != self.sizes[self._place]:
            raise RejectionError(RejectionReason.OUT_OF_ORDER, "offset")

    def seal(self, seal: DirectSeal) -> dict[int, bytes]:
        """The reports that came, by place. RejectionError: OUT_OF_ORDER in the middle of one, BAD_SIGNATURE."""
        self._check_whole()
        reports = {place: bytes(data) for place, data in self._data.items()}
        if not reports:
            raise RejectionError(RejectionReason.OUT_OF_ORDER)
        if not verify(self.identity_key, seal.signature, seal_message(self.offered, reports)):
            raise RejectionError(RejectionReason.BAD_SIGNATURE)
        return reports
