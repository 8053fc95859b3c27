"""What an upload asks of a network, whichever it is: gRPC's (`transport`) or the test helpers' in memory.

Rules of this file: whatever goes wrong on the way is CallFailedError with gRPC's word for it; details are not kept,
for they may name what a log must not.
"""

from __future__ import annotations

from typing import Any, Protocol

from client_sdk.errors import TelemetryError
from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage
from client_sdk.tls_faults import TlsFault
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    DeliverRequest,
    DeliverResponse,
    EnrolRequest,
    EnrolResponse,
    GetPlanRequest,
    GetPlanResponse,
    RenewRequest,
    RenewResponse,
)

_OUT_OF_REACH = frozenset({"unavailable", "deadline_exceeded", "unknown", "internal", "unimplemented"})
_LASTING = frozenset(
    {"unauthenticated", "permission_denied", "invalid_argument", "failed_precondition", "unimplemented", "not_found"}
)


class CallFailedError(TelemetryError):
    """A call failed. `status`: gRPC's word for it in lower case; the details are not kept."""

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(f"the other end could not be asked ({status})")

    @property
    def out_of_reach(self) -> bool:
        """Would any other call fail alike?"""
        return self.status in _OUT_OF_REACH

    @property
    def lasting(self) -> bool:
        """Is the same call likely to be refused for long?"""
        return self.status in _LASTING


class TlsFailedError(CallFailedError):
    """The other end's certificate does not hold; nothing was sent. `status`: tls_expired, tls_authority, ..."""

    def __init__(self, fault: TlsFault) -> None:
        super().__init__(f"tls_{fault.value}")
        self.fault = fault

    @property
    def out_of_reach(self) -> bool:
        """Any other call would fail alike."""
        return True


class Stream(Protocol):
    """One participant's stream."""

    async def send(self, message: ParticipantMessage) -> None:
        """Hand one message to the network. Raises CallFailedError."""

    async def receive(self) -> CollectorMessage | None:
        """The next message, None when the collector has ended the stream. CallFailedError, WireError."""

    async def close(self) -> None:
        """Say goodbye; never raises."""

    def cancel(self) -> None:
        """Break the stream off."""


class DirectStream(Protocol):
    """One call of direct delivery; its methods as those of `Stream`."""

    async def send(self, message: DeliverRequest) -> None:
        """Hand one message to the network. Raises CallFailedError."""

    async def receive(self) -> DeliverResponse | None:
        """The next message, None at the end. CallFailedError, WireError."""

    async def close(self) -> None:
        """Say goodbye; never raises."""

    def cancel(self) -> None:
        """Break the call off."""


class Connection(Protocol):
    """An open channel to one collector, or to a registrar (`enrol` and `renew`)."""

    async def enrol(self, request: EnrolRequest) -> EnrolResponse:
        """Trade a token for a certificate. Raises CallFailedError, WireError."""

    async def renew(self, request: RenewRequest) -> RenewResponse:
        """A later certificate for the last one. Raises CallFailedError, WireError."""

    async def get_plan(self, request: GetPlanRequest) -> GetPlanResponse:
        """Fetch a plan. Raises CallFailedError, WireError."""

    async def delete(self, request: DeleteRequest) -> DeleteResponse:
        """Have an identity forgotten. Raises CallFailedError, WireError."""

    def participate(self) -> Stream:
        """Open a participant's stream."""

    def deliver(self) -> DirectStream:
        """Open a call of direct delivery."""


class Transport(Protocol):
    """Makes connections. The test helpers' in-memory collector is another one."""

    def connect(self) -> Any:
        """An async context manager that yields a Connection."""


class MemoryTransport(Transport, Protocol):
    """Collector and registrar of the test helpers, in this process."""

    registrar_key: bytes
