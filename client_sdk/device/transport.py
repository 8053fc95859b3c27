"""The channel under an upload: typed messages in and out, gRPC's errors as one exception with a status.

Rules of this file: a channel lives for one upload run, so nothing is live between runs (forks, idle
sockets); TLS unless the endpoint is this machine and the host said `insecure`; no transparent retries, since
a repeated stream must be a new round; messages beyond the wire's limits are refused before they are buffered.
What it does not do: it knows no steps and no deadlines of a round.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from client_sdk.device import fork_gate
from client_sdk.device.connections import FORKED_IN_UPLOAD
from client_sdk.device.interfaces import CallFailedError, DirectStream, Stream, TlsFailedError
from client_sdk.device.tls import TlsSettings
from client_sdk.errors import WireError
from client_sdk.wire import methods
from client_sdk.wire.limits import MAX_COLLECTOR_MESSAGE_BYTES, MAX_PARTICIPANT_MESSAGE_BYTES
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    DocumentPiece,
    EnrolRequest,
    EnrolResponse,
    GetPlanRequest,
    GetPlanResponse,
    RenewRequest,
    RenewResponse,
)

Request = TypeVar("Request")
Response = TypeVar("Response")

UNARY_TIMEOUT_S = 10.0
GOODBYE_S = 1.0
FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

UNAVAILABLE = "unavailable"


def import_grpc() -> Any:
    """gRPC; where this is its first import, without its fork handlers.

    They restart its threads in every child that is forked while a channel is open, and crash some of them, whether
    the child ever uses gRPC or not. gRPC reads the variable once, while it is imported; a host that has imported
    gRPC before, or has set the variable, has decided for itself.
    """
    if "grpc" in sys.modules or FORK_SUPPORT in os.environ:
        import grpc.aio

        return grpc
    os.environ[FORK_SUPPORT] = "0"
    try:
        import grpc.aio
    finally:
        del os.environ[FORK_SUPPORT]
    return grpc


class GrpcTransport:
    """gRPC over TLS, or over plain text to this machine."""

    def __init__(self, endpoint: str, tls: TlsSettings | None) -> None:
        """`tls`: None for plain text."""
        self._endpoint = endpoint
        self._tls = tls

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_GrpcConnection]:
        """A channel of its own for one upload run. CallFailedError where this process must leave gRPC alone."""
        if fork_gate.network_lost():
            raise CallFailedError(FORKED_IN_UPLOAD)
        aio = import_grpc().aio
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            # a compressed message arrives as it is, and is malformed: nothing small can become large here
            ("grpc.per_message_decompression", 0),
            ("grpc.max_send_message_length", MAX_PARTICIPANT_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MAX_COLLECTOR_MESSAGE_BYTES),
        ]
        if self._tls is None:
            # a proxy of the environment must not see what was promised to stay on this machine
            options.append(("grpc.enable_http_proxy", 0))
        with fork_gate.connected():
            if self._tls is None:
                channel = aio.insecure_channel(self._endpoint, options=options)
            else:
                channel = aio.secure_channel(self._endpoint, self._tls.channel_credentials(), options=options)
            try:
                yield _GrpcConnection(channel, self._failure)
            finally:
                await channel.close()

    async def _failure(self, status: str) -> CallFailedError:
        """What a call that failed like this is to be raised as."""
        fault = await self._tls.fault(self._endpoint) if self._tls is not None and status == UNAVAILABLE else None
        return CallFailedError(status) if fault is None else TlsFailedError(fault)


Failure = Callable[[str], Awaitable[CallFailedError]]


class _GrpcConnection:
    def __init__(self, channel: Any, failure: Failure) -> None:
        self._channel = channel
        self._failure = failure

    async def enrol(self, request: EnrolRequest) -> EnrolResponse:
        return await self._unary(methods.ENROL_METHOD, request)

    async def renew(self, request: RenewRequest) -> RenewResponse:
        return await self._unary(methods.RENEW_METHOD, request)

    async def get_plan(self, request: GetPlanRequest) -> GetPlanResponse:
        return await self._unary(methods.GET_PLAN_METHOD, request)

    async def delete(self, request: DeleteRequest) -> DeleteResponse:
        return await self._unary(methods.DELETE_METHOD, request)

    async def document(
        self, method: methods.Method[Request, DocumentPiece], request: Request, metadata: list[tuple[str, bytes]]
    ) -> bytes:
        """All pieces of an answer. Raises CallFailedError, WireError."""
        from grpc import RpcError

        data = bytearray()
        call = self._channel.unary_stream(method.path)
        try:
            async for piece in call(method.request_to_wire(request), timeout=UNARY_TIMEOUT_S, metadata=metadata):
                data += method.response_from_wire(piece).data
                if len(data) > MAX_COLLECTOR_MESSAGE_BYTES:
                    raise WireError(f"a document above {MAX_COLLECTOR_MESSAGE_BYTES} bytes")
        except RpcError as error:
            raise await self._failure(_status_of(error)) from None
        return bytes(data)

    async def _unary(self, method: methods.Method[Request, Response], request: Request) -> Response:
        from grpc import RpcError

        try:
            call = self._channel.unary_unary(method.path)
            answer = await call(method.request_to_wire(request), timeout=UNARY_TIMEOUT_S)
        except RpcError as error:
            raise await self._failure(_status_of(error)) from None
        return method.response_from_wire(answer)

    def participate(self) -> Stream:
        return self._stream(methods.PARTICIPATE_METHOD)

    def deliver(self) -> DirectStream:
        return self._stream(methods.DELIVER_METHOD)

    def _stream(self, method: methods.Method[Request, Response]) -> _GrpcStream[Request, Response]:
        return _GrpcStream(self._channel.stream_stream(method.path)(), method, self._failure)


class _GrpcStream(Generic[Request, Response]):
    """Converts here, not in gRPC's deserializers, which would log a traceback and hand on None."""

    def __init__(self, call: Any, method: methods.Method[Request, Response], failure: Failure) -> None:
        self._call = call
        self._method = method
        self._failure = failure
        self._answered = False

    async def send(self, message: Request) -> None:
        from grpc import RpcError

        data = self._method.request_to_wire(message)
        try:
            await self._call.write(data)
        except RpcError as error:
            raise await self._failed(_status_of(error)) from None
        except asyncio.InvalidStateError:  # the collector has ended the stream meanwhile
            raise await self._failed(await self._status()) from None

    async def receive(self) -> Response | None:
        from grpc import RpcError, aio

        try:
            data = await self._call.read()
        except RpcError as error:
            raise await self._failed(_status_of(error)) from None
        except asyncio.InvalidStateError:
            raise await self._failed(await self._status()) from None
        self._answered = True
        return None if data is aio.EOF else self._method.response_from_wire(data)

    async def close(self) -> None:
        from grpc import RpcError

        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._call.done_writing()
                await self._call.code()
        except (RpcError, asyncio.InvalidStateError, TimeoutError):
            self.cancel()

    def cancel(self) -> None:
        self._call.cancel()

    async def _failed(self, status: str) -> CallFailedError:
        # a collector that has answered has shown a good certificate
        return CallFailedError(status) if self._answered else await self._failure(status)

    async def _status(self) -> str:
        code = await self._call.code()
        return str(code.name).lower()


def _status_of(error: Any) -> str:
    return str(error.code().name).lower()
