"""grpc.reflection: tools such as grpcurl learn the services from the server. Off unless asked for (`--reflection`).

Rules of this file: it tells what `protos/` tells, and nothing else, and so to everybody; a request that is no such
message is refused like any other, and a call ends after a minute. The library (extra `reflection`) answers; here its
messages only pass the collector's own door as bytes. It knows the service's first name; `v1` has the same messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import grpc
from grpc import aio

from client_sdk.errors import MissingExtraError, RejectionError, RejectionReason

SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHOD: Final = "ServerReflectionInfo"
PATHS: Final = frozenset(f"/{service}/{METHOD}" for service in SERVICES)

DESCRIPTIONS: Final = "client_sdk.wire"
"""The package whose generated modules describe the services, each named after its proto."""

CALL_TIMEOUT_S: Final = 60.0

Context = aio.ServicerContext[bytes, bytes]


def handlers(services: Iterable[str], protos: Iterable[str]) -> list[grpc.GenericRpcHandler]:
    """Over these services and the protos that describe them. Raises MissingExtraError."""
    try:
        library: Any = import_module("grpc_reflection.v1alpha.reflection")
    except ModuleNotFoundError:
        raise MissingExtraError("--reflection", "reflection") from None
    for proto in protos:
        import_module(f"{DESCRIPTIONS}.{proto}_pb2")
    with suppress(ImportError):
        import_module("grpc_health.v1.health_pb2")  # describes a service that is here, where it is installed
    servicer: Any = library.aio.ReflectionServicer([*services, *SERVICES])

    async def info(requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                async for answer in servicer.ServerReflectionInfo(_decoded(requests), context):
                    await context.write(answer.SerializeToString())
        except TimeoutError:
            raise RejectionError(RejectionReason.LATE) from None

    method: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(info)
    return [grpc.method_handlers_generic_handler(service, {METHOD: method}) for service in SERVICES]


async def _decoded(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Raises RejectionError(MALFORMED)."""
    from google.protobuf.message import DecodeError

    messages: Any = import_module("grpc_reflection.v1alpha.reflection_pb2")
    async for data in requests:
        try:
            yield messages.ServerReflectionRequest.FromString(data)
        except DecodeError:
            raise RejectionError(RejectionReason.MALFORMED) from None
