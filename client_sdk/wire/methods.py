"""The services' methods: full names, and which converters go with them. No gRPC in here.

A client passes the converters to its channel:

    channel.stream_stream(PARTICIPATE, **PARTICIPATE_METHOD.client_converters)

A server leaves gRPC's converters out, takes bytes and calls `request_from_wire` itself: an exception inside a
deserializer would reach the caller as an unknown error and the log as a traceback, where the right answer is
INVALID_ARGUMENT. It also lets the server convert a message once that goes to many.

    grpc.method_handlers_generic_handler(
        SECAGG_SERVICE, {PARTICIPATE_METHOD.name: grpc.stream_stream_rpc_method_handler(behaviour)}
    )
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypedDict, TypeVar

from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage
from client_sdk.wire import convert
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

Request = TypeVar("Request")
Response = TypeVar("Response")


class ClientConverters(TypedDict, Generic[Request, Response]):
    """Keyword arguments of `channel.unary_unary` and `channel.stream_stream`."""

    request_serializer: Callable[[Request], bytes]
    response_deserializer: Callable[[bytes], Response]


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One method of one service with its four converters; all of them raise WireError only."""

    service: str
    name: str
    request_to_wire: Callable[[Request], bytes]
    request_from_wire: Callable[[bytes], Request]
    response_to_wire: Callable[[Response], bytes]
    response_from_wire: Callable[[bytes], Response]

    @property
    def path(self) -> str:
        """The method's full name, as gRPC wants it."""
        return f"/{self.service}/{self.name}"

    @property
    def client_converters(self) -> ClientConverters[Request, Response]:
        """What a client's channel needs beside the path."""
        return {"request_serializer": self.request_to_wire, "response_deserializer": self.response_from_wire}


SECAGG_SERVICE: Final = "ldp.telemetry.v1.SecAggService"
ENROLMENT_SERVICE: Final = "ldp.telemetry.v1.EnrolmentService"
PLAN_SERVICE: Final = "ldp.telemetry.v1.PlanService"
DIRECT_SERVICE: Final = "ldp.telemetry.v1.DirectService"
DELETION_SERVICE: Final = "ldp.telemetry.v1.DeletionService"
REPORTING_SERVICE: Final = "ldp.telemetry.v1.ReportingService"

PARTICIPATE_METHOD: Final[Method[ParticipantMessage, CollectorMessage]] = Method(
    SECAGG_SERVICE,
    "Participate",
    convert.participant_message_to_wire,
    convert.participant_message_from_wire,
    convert.collector_message_to_wire,
    convert.collector_message_from_wire,
)
DELIVER_METHOD: Final[Method[DeliverRequest, DeliverResponse]] = Method(
    DIRECT_SERVICE,
    "Deliver",
    convert.deliver_request_to_wire,
    convert.deliver_request_from_wire,
    convert.deliver_response_to_wire,
    convert.deliver_response_from_wire,
)
ENROL_METHOD: Final[Method[EnrolRequest, EnrolResponse]] = Method(
    ENROLMENT_SERVICE,
    "Enrol",
    convert.enrol_request_to_wire,
    convert.enrol_request_from_wire,
    convert.enrol_response_to_wire,
    convert.enrol_response_from_wire,
)
RENEW_METHOD: Final[Method[RenewRequest, RenewResponse]] = Method(
    ENROLMENT_SERVICE,
    "Renew",
    convert.renew_request_to_wire,
    convert.renew_request_from_wire,
    convert.renew_response_to_wire,
    convert.renew_response_from_wire,
)
GET_PLAN_METHOD: Final[Method[GetPlanRequest, GetPlanResponse]] = Method(
    PLAN_SERVICE,
    "GetPlan",
    convert.get_plan_request_to_wire,
    convert.get_plan_request_from_wire,
    convert.get_plan_response_to_wire,
    convert.get_plan_response_from_wire,
)
DELETE_METHOD: Final[Method[DeleteRequest, DeleteResponse]] = Method(
    DELETION_SERVICE,
    "Delete",
    convert.delete_request_to_wire,
    convert.delete_request_from_wire,
    convert.delete_response_to_wire,
    convert.delete_response_from_wire,
)
GET_REPORT_METHOD: Final[Method[GetReportRequest, DocumentPiece]] = Method(
    REPORTING_SERVICE,
    "GetReport",
    convert.get_report_request_to_wire,
    convert.get_report_request_from_wire,
    convert.document_piece_to_wire,
    convert.document_piece_from_wire,
)
GET_PRIVACY_METHOD: Final[Method[GetPrivacyRequest, DocumentPiece]] = Method(
    REPORTING_SERVICE,
    "GetPrivacy",
    convert.get_privacy_request_to_wire,
    convert.get_privacy_request_from_wire,
    convert.document_piece_to_wire,
    convert.document_piece_from_wire,
)
GET_COUNTERS_METHOD: Final[Method[GetCountersRequest, DocumentPiece]] = Method(
    REPORTING_SERVICE,
    "GetCounters",
    convert.get_counters_request_to_wire,
    convert.get_counters_request_from_wire,
    convert.document_piece_to_wire,
    convert.document_piece_from_wire,
)

PARTICIPATE: Final = PARTICIPATE_METHOD.path
DELIVER: Final = DELIVER_METHOD.path
ENROL: Final = ENROL_METHOD.path
RENEW: Final = RENEW_METHOD.path
GET_PLAN: Final = GET_PLAN_METHOD.path
DELETE: Final = DELETE_METHOD.path
