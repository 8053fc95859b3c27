"""Why a message was refused -> what the stream's status says. One place, used at the edge only.

Rules of this file: the client learns what to do next (give up, come back, fix itself), not which check
failed; the fine reason goes into the counters, and what is wrong with a store into the operator's log.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from client_sdk.errors import RejectionReason
from collector.service.storage_errors import StoreProblem

Refusal = RejectionReason | StoreProblem
"""Why a stream or a call ends without what it came for: the participant's fault, or the store's."""


@dataclass(frozen=True, slots=True)
class Status:
    """A gRPC status code and the one line that goes with it."""

    code: grpc.StatusCode
    text: str


_MALFORMED = Status(grpc.StatusCode.INVALID_ARGUMENT, "the message is not valid in this place")
_STALE = Status(grpc.StatusCode.FAILED_PRECONDITION, "the plan or the period is not open here")
_BUSY = Status(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many participants wait; come back later")
_TOO_MANY = Status(grpc.StatusCode.RESOURCE_EXHAUSTED, "more than this collector takes at once; come back later")

_NOT_CERTIFIED = Status(grpc.StatusCode.PERMISSION_DENIED, "no certificate is issued for this request")

STATUS: dict[RejectionReason, Status] = {
    RejectionReason.MALFORMED: _MALFORMED,
    RejectionReason.DUPLICATE_KEY: _MALFORMED,
    RejectionReason.OUT_OF_ORDER: _MALFORMED,
    RejectionReason.BAD_SIGNATURE: Status(grpc.StatusCode.UNAUTHENTICATED, "the identity was not proven"),
    RejectionReason.BAD_CERTIFICATE: Status(grpc.StatusCode.UNAUTHENTICATED, "the identity was not proven"),
    RejectionReason.BAD_TOKEN: _NOT_CERTIFIED,
    RejectionReason.NOT_RENEWED: _NOT_CERTIFIED,
    RejectionReason.UNKNOWN_PLAN: _STALE,
    RejectionReason.WRONG_DELIVERY: _STALE,
    RejectionReason.IMPLAUSIBLE_REPORT: _MALFORMED,
    RejectionReason.PERIOD_TOO_OLD: _STALE,
    RejectionReason.PERIOD_NOT_STARTED: _STALE,
    RejectionReason.DUPLICATE_IDENTITY: Status(
        grpc.StatusCode.ALREADY_EXISTS, "this identity already takes part for this period"
    ),
    RejectionReason.ALREADY_RECEIVED: Status(grpc.StatusCode.ALREADY_EXISTS, "the message was already received"),
    RejectionReason.TOO_LARGE: Status(grpc.StatusCode.RESOURCE_EXHAUSTED, "the message is larger than the plan allows"),
    RejectionReason.LATE: Status(grpc.StatusCode.DEADLINE_EXCEEDED, "the step closed without this participant"),
    RejectionReason.BUSY: _BUSY,
    RejectionReason.BLAMED: Status(
        grpc.StatusCode.PERMISSION_DENIED, "this identity broke a round's rules; its report of the period is not taken"
    ),
    RejectionReason.OPTED_OUT: Status(
        grpc.StatusCode.PERMISSION_DENIED, "this identity has opted out; no report of it is taken any more"
    ),
    RejectionReason.TOO_MANY: _TOO_MANY,
    RejectionReason.TOO_MANY_JOINS: _TOO_MANY,
    RejectionReason.BAD_CREDENTIALS: Status(grpc.StatusCode.UNAUTHENTICATED, "who is calling was not proven"),
    RejectionReason.NOT_ALLOWED: Status(grpc.StatusCode.PERMISSION_DENIED, "not allowed for this caller"),
    RejectionReason.UNKNOWN_DEVICE: Status(grpc.StatusCode.NOT_FOUND, "no counted report of such a device"),
    RejectionReason.UNKNOWN_METHOD: Status(grpc.StatusCode.UNIMPLEMENTED, "no such method here"),
    RejectionReason.SHUTTING_DOWN: Status(grpc.StatusCode.UNAVAILABLE, "the collector is stopping; come back later"),
    RejectionReason.STORAGE: Status(
        grpc.StatusCode.UNAVAILABLE, "the collector's store is unavailable; come back later"
    ),
}

_DISK_FULL = Status(grpc.StatusCode.RESOURCE_EXHAUSTED, "the collector's disk is full, nothing was counted; come back")


def status_of(refusal: Refusal) -> Status:
    """What the participant is told. Nothing that was refused for the store's sake was acknowledged or counted."""
    if isinstance(refusal, RejectionReason):
        return STATUS[refusal]
    return _DISK_FULL if refusal is StoreProblem.FULL else STATUS[RejectionReason.STORAGE]
