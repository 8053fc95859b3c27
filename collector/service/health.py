"""grpc.health.v1.Health, the standard question of supervisors and load balancers, open to everybody.

Rules of this file: the answer is one byte of meaning and costs at most one probe of the store a second, however many
ask; it says SERVING only where a device that came now could be counted (a service that needs no store goes on without
one). Its messages have one field each and are read here by hand: a library's generated code would tie the host to its
own range of protobuf versions, and a second description of the same names cannot be loaded beside the library's.
What it does not do: `Watch` tells a change within two seconds, not at once; nothing is told about rounds or callers:
`GetCounters` does that, to those who may know.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from grpc import aio

from client_sdk.errors import RejectionError, RejectionReason
from collector.service.storage_errors import StoreError

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
HEALTH_PREFIX: Final = f"/{HEALTH_SERVICE}/"
CHECK: Final = HEALTH_PREFIX + "Check"
WATCH: Final = HEALTH_PREFIX + "Watch"
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
SERVICE_UNKNOWN: Final = b"\x08\x03"
"""HealthCheckResponse with `status` (field 1) of 1, 2 and 3."""

WHOLE: Final = ""
"""The service that stands for all of them."""

FRESH_S: Final = 1.0
WATCH_EVERY_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 3.0
MAX_REQUEST_BYTES: Final = 127
MAX_WATCHERS: Final = 64

Context = aio.ServicerContext[bytes, bytes]


class Health:
    """Of one server. Used on the event loop only.

    probe: raises StoreError where nothing could be stored now. services: full name -> does it need the store?
    """

    def __init__(self, probe: Callable[[], Awaitable[None]], services: Mapping[str, bool]) -> None:
        self._probe = probe
        self._services = {WHOLE: True, **services}
        self._stopping = asyncio.Event()
        self._store_works = False
        self._known_at = float("-inf")
        self._probing = asyncio.Lock()
        self._watchers = 0

    def stop(self) -> None:
        """The server is stopping: from here on nobody should be sent to it."""
        self._stopping.set()

    @property
    def last_known(self) -> bool:
        """What `serving` said last, without asking the store again."""
        return self._store_works and not self._stopping.is_set()

    async def serving(self, service: str = WHOLE) -> bool:
        """Could who came to that service now be served?"""
        if self._services[service]:
            await self._look()
            return self.last_known
        return not self._stopping.is_set()

    async def _look(self) -> None:
        async with self._probing:
            now = asyncio.get_running_loop().time()
            if not self._stopping.is_set() and now - self._known_at >= FRESH_S:
                self._store_works = await self._store_answers()
                self._known_at = now

    async def _store_answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._probe()
        except (StoreError, TimeoutError):
            return False
        return True

    # --- the two methods ---

    async def check(self, data: bytes, context: Context) -> bytes:
        """Health/Check for the whole server, or for one of its services by full name."""
        service = _asked_for(data)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return SERVING if await self.serving(service) else NOT_SERVING

    async def watch(self, data: bytes, context: Context) -> None:
        """Health/Watch: the status now, and again whenever it is another one. Raises RejectionError(TOO_MANY)."""
        if self._watchers >= MAX_WATCHERS:
            raise RejectionError(RejectionReason.TOO_MANY)
        self._watchers += 1
        try:
            await self._tell_changes(_asked_for(data), context)
        finally:
            self._watchers -= 1

    async def _tell_changes(self, service: str | None, context: Context) -> None:
        said = None
        while not self._stopping.is_set():
            status = await self._status(service)
            if status != said:
                await context.write(status)
                said = status
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_EVERY_S):
                    await self._stopping.wait()
        last = await self._status(service)
        if last != said:
            await context.write(last)
        await asyncio.Event().wait()  # until the caller, or the server, ends the call

    async def _status(self, service: str | None) -> bytes:
        if service is None or service not in self._services:
            return SERVICE_UNKNOWN
        return SERVING if await self.serving(service) else NOT_SERVING

    def methods(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """By name."""
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self.check),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch),
        }

    def handler(self) -> grpc.GenericRpcHandler:
        """For the server."""
        return grpc.method_handlers_generic_handler(HEALTH_SERVICE, self.methods())


def _asked_for(data: bytes) -> str | None:
    """HealthCheckRequest: `service` (field 1, text). None for what is no such message, or longer than any name."""
    if not data:
        return WHOLE
    if len(data) > MAX_REQUEST_BYTES or len(data) < 2 or data[0] != 0x0A or data[1] != len(data) - 2:
        return None
    return data[2:].decode("utf-8", "replace")
