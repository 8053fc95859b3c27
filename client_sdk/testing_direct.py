"""The in-memory collector's half of direct delivery: see `client_sdk.testing`.

Rules of this file: messages go through their wire form and the collector's own checks, so that a test sees what a real
collector would say; nothing leaves the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from client_sdk.device.interfaces import CallFailedError
from client_sdk.direct import ALREADY_COUNTED, COUNTED, WANTED, report_bytes
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import device_id_of
from client_sdk.secagg.messages import NONCE_BYTES
from client_sdk.wire.messages import (
    DeliverRequest,
    DeliverResponse,
    DirectChallenge,
    DirectHello,
    DirectOffer,
    DirectPiece,
    DirectReceipts,
    DirectSeal,
    DirectStanding,
)
from client_sdk.wire.methods import DELIVER_METHOD

if TYPE_CHECKING:
    from client_sdk.testing import InMemoryCollector
    from collector.direct import Incoming, Offered

_STATUSES = {
    RejectionReason.BAD_CERTIFICATE: "unauthenticated",
    RejectionReason.BAD_SIGNATURE: "unauthenticated",
    RejectionReason.OPTED_OUT: "permission_denied",
}


class MemoryDirectStream:
    """One call of one device."""

    def __init__(self, collector: InMemoryCollector, check_reachable: Callable[[], None]) -> None:
        self._collector = collector
        self._check_reachable = check_reachable
        self._responses: deque[DeliverResponse] = deque()
        self._nonce = os.urandom(NONCE_BYTES)
        self._hello: DirectHello | None = None
        self._offered: list[Offered] = []
        self._answers: list[str] = []
        self._incoming: Incoming | None = None

    async def send(self, message: DeliverRequest) -> None:
        """As over a network. Raises CallFailedError."""
        self._check_reachable()
        try:
            self._take(DELIVER_METHOD.request_from_wire(DELIVER_METHOD.request_to_wire(message)))
        except RejectionError as error:
            raise CallFailedError(_STATUSES.get(error.reason, "invalid_argument")) from None

    async def receive(self) -> DeliverResponse | None:
        """As over a network."""
        self._check_reachable()
        if not self._responses:
            return None
        return DELIVER_METHOD.response_from_wire(DELIVER_METHOD.response_to_wire(self._responses.popleft()))

    async def close(self) -> None:
        """Nothing is left to be said."""

    def cancel(self) -> None:
        """Nobody listens any more."""
        self._responses.clear()

    def _take(self, message: DeliverRequest) -> None:
        from collector.direct import check_direct_hello

        if isinstance(message, DirectHello) and self._hello is None:
            check_direct_hello(message, self._collector.registrar_key, self._collector.clock())
            self._hello = message
            self._responses.append(DirectChallenge(self._nonce))
        elif isinstance(message, DirectOffer) and self._hello is not None and not self._offered:
            self._welcome(self._hello, message)
        elif isinstance(message, DirectPiece) and self._incoming is not None:
            self._incoming.add(message)
        elif isinstance(message, DirectSeal) and self._incoming is not None:
            self._count(self._incoming.seal(message))
        else:
            raise RejectionError(RejectionReason.OUT_OF_ORDER)

    def _welcome(self, hello: DirectHello, offer: DirectOffer) -> None:
        from collector.direct import Incoming, check_offer

        self._offered = check_offer(hello, self._nonce, offer)
        device_id = device_id_of(hello.identity_key)
        if device_id in self._collector.forgotten:
            raise RejectionError(RejectionReason.OPTED_OUT)
        self._answers = [self._judge(hello, device_id, offered) for offered in self._offered]
        size = report_bytes(self._collector.plan)
        sizes = {place: size for place, answer in enumerate(self._answers) if answer == WANTED}
        self._incoming = Incoming.of(hello, self._nonce, offer, sizes)
        spent = self._collector.spent(device_id)
        self._responses.append(DirectStanding(spent.reports, spent.spent_micro_epsilon, *self._lists()))

    def _judge(self, hello: DirectHello, device_id: str, offered: Offered) -> str:
        from collector.direct import why_not_taken

        reason = why_not_taken(hello, offered, self._collector.plan, self._collector.clock())
        if reason is not None:
            return reason.value
        counted = self._collector.is_counted(device_id, offered.period_start)
        return ALREADY_COUNTED if counted else WANTED

    def _count(self, reports: dict[int, bytes]) -> None:
        from collector.direct import read_report

        if self._hello is None:
            raise RejectionError(RejectionReason.OUT_OF_ORDER)
        device_id = device_id_of(self._hello.identity_key)
        for place, data in reports.items():
            try:
                vector = read_report(self._collector.plan, data)
            except RejectionError as error:
                self._answers[place] = error.reason.value
                continue
            offered = self._offered[place]
            self._collector.count(device_id, offered.period_start, vector, resent=offered.resent, delivery="direct")
            self._answers[place] = COUNTED
        self._responses.append(DirectReceipts(*self._lists()))

    def _lists(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
        held = [answer in (COUNTED, ALREADY_COUNTED) for answer in self._answers]
        return tuple(self._answers), tuple("memory" if one else "" for one in held), tuple(map(int, held))
