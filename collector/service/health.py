"""grpc.health.v1.Health/Check, the standard question of supervisors and load balancers, open to everybody.

Rules of this file: the answer is one byte of meaning and costs at most one probe of the store a second, however many
ask; it says SERVING only where a device that came now could be counted. Its two messages have one field each and are
read here by hand: a library's generated code would tie the host to its own range of protobuf versions, and a second
description of the same names cannot be loaded beside the library's.
What it does not do: `Watch` is not there (its absence is part of the standard); it tells nothing about rounds or
callers: `GetCounters` does, to those who may know.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc import aio

from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError
from collector.service.store_access import StoreAccess

HEALTH_PREFIX: Final = "/grpc.health.v1.Health/"
CHECK: Final = HEALTH_PREFIX + "Check"
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
"""HealthCheckResponse with `status` (field 1) of 1 and 2."""

FRESH_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 3.0
MAX_REQUEST_BYTES: Final = 256

Context = aio.ServicerContext[bytes, bytes]


class Health:
    """Asks one store. Used on the event loop only."""

    def __init__(self, store: StoreAccess[CollectorStore]) -> None:
        self._store = store
        self._stopping = False
        self._serving = False
        self._known_at = float("-inf")
        self._probing = asyncio.Lock()

    def stop(self) -> None:
        """The collector is stopping: from here on nobody should be sent to it."""
        self._stopping = True

    async def serving(self) -> bool:
        """Could a device that came now be counted?"""
        async with self._probing:
            now = asyncio.get_running_loop().time()
            if not self._stopping and now - self._known_at >= FRESH_S:
                self._serving = await self._store_works()
                self._known_at = now
        return self._serving and not self._stopping

    async def _store_works(self) -> bool:
        try:
            await asyncio.wait_for(self._store.call(CollectorStore.probe), PROBE_TIMEOUT_S)
        except (StoreError, TimeoutError):
            return False
        return True

    async def check(self, data: bytes, context: Context) -> bytes:
        """Health/Check for the whole server, or for one of its services by name."""
        if not _asks_for_us(data):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return SERVING if await self.serving() else NOT_SERVING

    def handler(self) -> grpc.GenericRpcHandler:
        """For the server."""
        service, _, name = CHECK[1:].partition("/")
        return grpc.method_handlers_generic_handler(service, {name: grpc.unary_unary_rpc_method_handler(self.check)})


def _asks_for_us(data: bytes) -> bool:
    """HealthCheckRequest: `service` (field 1, text), empty or one of ours; they stand and fall together."""
    if not data:
        return True
    if len(data) > MAX_REQUEST_BYTES or len(data) < 2 or data[0] != 0x0A or data[1] != len(data) - 2:
        return False
    return data[2:] == b"" or data[2:].startswith(b"ldp.telemetry.v1.")
