"""The methods' names and converters, against the protos and against a real server on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from client_sdk.errors import WireError
from client_sdk.secagg.messages import Challenge, Hello
from client_sdk.wire import deletion_pb2, direct_pb2, enrolment_pb2, methods, plan_pb2, reporting_pb2, secagg_pb2
from client_sdk.wire.messages import (
    EnrolRequest,
    EnrolResponse,
    GetPlanRequest,
    GetPlanResponse,
    RenewRequest,
    RenewResponse,
)

HELLO = Hello(b"i" * 32, b"", b"p" * 32, 1_700_006_400, b"r" * 16)


def test_names_are_the_protos() -> None:
    found = {
        f"/{service.full_name}/{method.name}"
        for file in (secagg_pb2, enrolment_pb2, plan_pb2, reporting_pb2, deletion_pb2, direct_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert found == {value.path for value in vars(methods).values() if isinstance(value, methods.Method)}
    assert methods.PARTICIPATE == "/ldp.telemetry.v1.SecAggService/Participate"


def test_no_grpc_is_loaded() -> None:
    code = "import sys, client_sdk.wire.methods; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def participate(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for data in requests:
        try:
            message = methods.PARTICIPATE_METHOD.request_from_wire(data)
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        assert message == HELLO
        yield methods.PARTICIPATE_METHOD.response_to_wire(Challenge(b"n" * 32))


async def enrol(data: bytes, context: Any) -> bytes:
    assert methods.ENROL_METHOD.request_from_wire(data).token == "t"
    return methods.ENROL_METHOD.response_to_wire(EnrolResponse(b"c" * 114, 9))


async def renew(data: bytes, context: Any) -> bytes:
    assert methods.RENEW_METHOD.request_from_wire(data) == RenewRequest(b"c" * 114, b"S" * 64)
    return methods.RENEW_METHOD.response_to_wire(RenewResponse(b"d" * 114, 10))


async def get_plan(data: bytes, context: Any) -> bytes:
    assert methods.GET_PLAN_METHOD.request_from_wire(data).name == ""
    return methods.GET_PLAN_METHOD.response_to_wire(GetPlanResponse("x = 1", b"p" * 32))


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    streams = {methods.PARTICIPATE_METHOD.name: grpc.stream_stream_rpc_method_handler(participate)}
    enrolment = {
        methods.ENROL_METHOD.name: grpc.unary_unary_rpc_method_handler(enrol),
        methods.RENEW_METHOD.name: grpc.unary_unary_rpc_method_handler(renew),
    }
    plans = {methods.GET_PLAN_METHOD.name: grpc.unary_unary_rpc_method_handler(get_plan)}
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(methods.SECAGG_SERVICE, streams),
            grpc.method_handlers_generic_handler(methods.ENROLMENT_SERVICE, enrolment),
            grpc.method_handlers_generic_handler(methods.PLAN_SERVICE, plans),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


async def test_converters_fit_a_real_channel(channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream(methods.PARTICIPATE, **methods.PARTICIPATE_METHOD.client_converters)()
    await call.write(HELLO)
    assert await call.read() == Challenge(b"n" * 32)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    enrolled = channel.unary_unary(methods.ENROL, **methods.ENROL_METHOD.client_converters)
    assert await enrolled(EnrolRequest("t", b"i" * 32, b"S" * 64), timeout=10) == EnrolResponse(b"c" * 114, 9)
    renewed = channel.unary_unary(methods.RENEW, **methods.RENEW_METHOD.client_converters)
    assert await renewed(RenewRequest(b"c" * 114, b"S" * 64), timeout=10) == RenewResponse(b"d" * 114, 10)
    plan = channel.unary_unary(methods.GET_PLAN, **methods.GET_PLAN_METHOD.client_converters)
    assert await plan(GetPlanRequest(), timeout=10) == GetPlanResponse("x = 1", b"p" * 32)


async def test_malformed_bytes_are_answered_invalid_argument(channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream(methods.PARTICIPATE)()
    await call.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ParticipantMessage: not a protobuf message" in str(caught.value.details())
