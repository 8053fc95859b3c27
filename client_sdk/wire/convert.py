"""Bytes to messages and back: the only file that knows both the generated code and our own types.

Rules of this file: whatever bytes come in, `*_from_wire` answers with a message whose every length, count
and range was checked, or with WireError: one line naming message and field, never the content. Fields that
a reader does not know are ignored, so that a later version may add some. `*_to_wire` keeps the same rules,
so that our own slip is found at our own end. No exception of protobuf's leaves this file.
What it does not do: nothing here verifies a signature or knows the order of steps.

The table of messages, with the checks that serve both directions, stands in `shapes.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from client_sdk.secagg import messages as m
from client_sdk.wire import deletion_pb2, direct_pb2, enrolment_pb2, limits, plan_pb2, reporting_pb2, secagg_pb2, shapes
from client_sdk.wire.envelopes import Envelope, Single
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    DeliverRequest,
    DeliverResponse,
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

ADVERTS_KEPT: Final = 1024
"""Those of the rounds that are being told of; more would only hold on to those of rounds that are over."""


def _with_adverts(fields: dict[str, Any]) -> dict[str, Any]:
    if "adverts" in fields:
        fields["adverts"] = [_advert_to_wire(advert) for advert in fields["adverts"]]
    return fields


@lru_cache(maxsize=ADVERTS_KEPT)
def _advert_to_wire(advert: m.Advert) -> secagg_pb2.Advert:
    """Kept, because a collector sends each advert to every neighbour of its member. Read only."""
    return secagg_pb2.Advert(**shapes.ADVERT.checked(advert))


_PARTICIPANT: Final = Envelope.of(
    secagg_pb2.ParticipantMessage,
    shapes.PARTICIPANT_SHAPES,
    limits.MAX_PARTICIPANT_MESSAGE_BYTES,
    limits.MAX_PARTICIPANT_MESSAGE_FIELDS,
    limits.UNCOUNTED_BYTES,
)
_COLLECTOR: Final = Envelope.of(
    secagg_pb2.CollectorMessage,
    shapes.COLLECTOR_SHAPES,
    limits.MAX_COLLECTOR_STREAM_MESSAGE_BYTES,
    limits.MAX_COLLECTOR_MESSAGE_FIELDS,
    prepare=_with_adverts,
)
_ENROL_REQUEST: Final = Single(enrolment_pb2.EnrolRequest, shapes.ENROL_REQUEST, limits.MAX_REGISTRAR_MESSAGE_BYTES)
_ENROL_RESPONSE: Final = Single(enrolment_pb2.EnrolResponse, shapes.ENROL_RESPONSE, limits.MAX_REGISTRAR_MESSAGE_BYTES)
_RENEW_REQUEST: Final = Single(enrolment_pb2.RenewRequest, shapes.RENEW_REQUEST, limits.MAX_REGISTRAR_MESSAGE_BYTES)
_RENEW_RESPONSE: Final = Single(enrolment_pb2.RenewResponse, shapes.RENEW_RESPONSE, limits.MAX_REGISTRAR_MESSAGE_BYTES)
_GET_PLAN_REQUEST: Final = Single(
    plan_pb2.GetPlanRequest, shapes.GET_PLAN_REQUEST, limits.MAX_PARTICIPANT_MESSAGE_BYTES
)
_GET_PLAN_RESPONSE: Final = Single(
    plan_pb2.GetPlanResponse, shapes.GET_PLAN_RESPONSE, limits.MAX_COLLECTOR_MESSAGE_BYTES
)

_DELETE_REQUEST: Final = Single(deletion_pb2.DeleteRequest, shapes.DELETE_REQUEST, limits.MAX_REGISTRAR_MESSAGE_BYTES)
_DELETE_RESPONSE: Final = Single(
    deletion_pb2.DeleteResponse, shapes.DELETE_RESPONSE, limits.MAX_REGISTRAR_MESSAGE_BYTES
)
_DELIVER_REQUEST: Final = Envelope.of(
    direct_pb2.DeliverRequest,
    shapes.DELIVER_REQUEST_SHAPES,
    limits.MAX_DIRECT_MESSAGE_BYTES,
    limits.MAX_DIRECT_MESSAGE_FIELDS,
)
_DELIVER_RESPONSE: Final = Envelope.of(
    direct_pb2.DeliverResponse,
    shapes.DELIVER_RESPONSE_SHAPES,
    limits.MAX_DIRECT_MESSAGE_BYTES,
    limits.MAX_DIRECT_MESSAGE_FIELDS,
)
_GET_REPORT_REQUEST: Final = Single(
    reporting_pb2.GetReportRequest, shapes.GET_REPORT_REQUEST, limits.MAX_REPORTING_REQUEST_BYTES
)
_GET_PRIVACY_REQUEST: Final = Single(
    reporting_pb2.GetPrivacyRequest, shapes.GET_PRIVACY_REQUEST, limits.MAX_REPORTING_REQUEST_BYTES
)
_GET_COUNTERS_REQUEST: Final = Single(
    reporting_pb2.GetCountersRequest, shapes.GET_COUNTERS_REQUEST, limits.MAX_REPORTING_REQUEST_BYTES
)
_DOCUMENT_PIECE: Final = Single(reporting_pb2.DocumentPiece, shapes.DOCUMENT_PIECE, limits.MAX_COLLECTOR_MESSAGE_BYTES)


# --- the public names: they fit gRPC's serializers and raise WireError, nothing else --------------


def participant_message_to_wire(message: m.ParticipantMessage) -> bytes:
    """One message of a participant's stream, as the bytes of a ParticipantMessage."""
    return _PARTICIPANT.to_wire(message)


def participant_message_from_wire(data: bytes) -> m.ParticipantMessage:
    """The collector's half of `participant_message_to_wire`."""
    message: m.ParticipantMessage = _PARTICIPANT.from_wire(data)
    return message


def collector_message_to_wire(message: m.CollectorMessage) -> bytes:
    """One message of the collector's stream, as the bytes of a CollectorMessage."""
    return _COLLECTOR.to_wire(message)


def collector_message_from_wire(data: bytes) -> m.CollectorMessage:
    """The participant's half of `collector_message_to_wire`."""
    message: m.CollectorMessage = _COLLECTOR.from_wire(data)
    return message


def enrol_request_to_wire(request: EnrolRequest) -> bytes:
    """Device half."""
    return _ENROL_REQUEST.to_wire(request)


def enrol_request_from_wire(data: bytes) -> EnrolRequest:
    """Registrar half."""
    request: EnrolRequest = _ENROL_REQUEST.from_wire(data)
    return request


def enrol_response_to_wire(response: EnrolResponse) -> bytes:
    """Registrar half."""
    return _ENROL_RESPONSE.to_wire(response)


def enrol_response_from_wire(data: bytes) -> EnrolResponse:
    """Device half."""
    response: EnrolResponse = _ENROL_RESPONSE.from_wire(data)
    return response


def renew_request_to_wire(request: RenewRequest) -> bytes:
    """Device half."""
    return _RENEW_REQUEST.to_wire(request)


def renew_request_from_wire(data: bytes) -> RenewRequest:
    """Registrar half."""
    request: RenewRequest = _RENEW_REQUEST.from_wire(data)
    return request


def renew_response_to_wire(response: RenewResponse) -> bytes:
    """Registrar half."""
    return _RENEW_RESPONSE.to_wire(response)


def renew_response_from_wire(data: bytes) -> RenewResponse:
    """Device half."""
    response: RenewResponse = _RENEW_RESPONSE.from_wire(data)
    return response


def get_plan_request_to_wire(request: GetPlanRequest) -> bytes:
    """Device half."""
    return _GET_PLAN_REQUEST.to_wire(request)


def get_plan_request_from_wire(data: bytes) -> GetPlanRequest:
    """Collector half."""
    request: GetPlanRequest = _GET_PLAN_REQUEST.from_wire(data)
    return request


def get_plan_response_to_wire(response: GetPlanResponse) -> bytes:
    """Collector half."""
    return _GET_PLAN_RESPONSE.to_wire(response)


def get_plan_response_from_wire(data: bytes) -> GetPlanResponse:
    """Device half."""
    response: GetPlanResponse = _GET_PLAN_RESPONSE.from_wire(data)
    return response


def delete_request_to_wire(request: DeleteRequest) -> bytes:
    """Device half."""
    return _DELETE_REQUEST.to_wire(request)


def delete_request_from_wire(data: bytes) -> DeleteRequest:
    """Collector half."""
    request: DeleteRequest = _DELETE_REQUEST.from_wire(data)
    return request


def delete_response_to_wire(response: DeleteResponse) -> bytes:
    """Collector half."""
    return _DELETE_RESPONSE.to_wire(response)


def delete_response_from_wire(data: bytes) -> DeleteResponse:
    """Device half."""
    response: DeleteResponse = _DELETE_RESPONSE.from_wire(data)
    return response


def deliver_request_to_wire(message: DeliverRequest) -> bytes:
    """Device half of direct delivery's stream."""
    return _DELIVER_REQUEST.to_wire(message)


def deliver_request_from_wire(data: bytes) -> DeliverRequest:
    """Collector half."""
    message: DeliverRequest = _DELIVER_REQUEST.from_wire(data)
    return message


def deliver_response_to_wire(message: DeliverResponse) -> bytes:
    """Collector half."""
    return _DELIVER_RESPONSE.to_wire(message)


def deliver_response_from_wire(data: bytes) -> DeliverResponse:
    """Device half."""
    message: DeliverResponse = _DELIVER_RESPONSE.from_wire(data)
    return message


def get_report_request_to_wire(request: GetReportRequest) -> bytes:
    """Caller's half."""
    return _GET_REPORT_REQUEST.to_wire(request)


def get_report_request_from_wire(data: bytes) -> GetReportRequest:
    """Collector half."""
    request: GetReportRequest = _GET_REPORT_REQUEST.from_wire(data)
    return request


def get_privacy_request_to_wire(request: GetPrivacyRequest) -> bytes:
    """Caller's half."""
    return _GET_PRIVACY_REQUEST.to_wire(request)


def get_privacy_request_from_wire(data: bytes) -> GetPrivacyRequest:
    """Collector half."""
    request: GetPrivacyRequest = _GET_PRIVACY_REQUEST.from_wire(data)
    return request


def get_counters_request_to_wire(request: GetCountersRequest) -> bytes:
    """Caller's half."""
    return _GET_COUNTERS_REQUEST.to_wire(request)


def get_counters_request_from_wire(data: bytes) -> GetCountersRequest:
    """Collector half."""
    request: GetCountersRequest = _GET_COUNTERS_REQUEST.from_wire(data)
    return request


def document_piece_to_wire(piece: DocumentPiece) -> bytes:
    """Collector half."""
    return _DOCUMENT_PIECE.to_wire(piece)


def document_piece_from_wire(data: bytes) -> DocumentPiece:
    """Caller's half."""
    piece: DocumentPiece = _DOCUMENT_PIECE.from_wire(data)
    return piece
