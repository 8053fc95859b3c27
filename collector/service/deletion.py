"""DeletionService: what is booked for a device goes, on the word of its own identity.

Rules of this file: the request's signature is its proof, so it needs no caller's word and a replay can do nothing that
its signer did not ask for; it is acknowledged when it is on the disk; nobody learns from an answer what was held.
What it does not do: it takes nothing out of a sum that was released.
"""

from __future__ import annotations

from typing import Any

import grpc
from grpc import aio

from client_sdk.identity import device_id_of
from client_sdk.wire.convert import delete_request_from_wire, delete_response_to_wire
from client_sdk.wire.messages import DeleteResponse
from client_sdk.wire.methods import DELETE_METHOD
from collector.intake import check_deletion, was_certified
from collector.service.rounds import RoundTools
from collector.service.storage import CollectorStore

Context = aio.ServicerContext[bytes, bytes]


class DeletionServicer:
    """DeletionService.Delete, behind the gate, which turns what is raised into a status."""

    def __init__(self, tools: RoundTools, registrar_key: bytes) -> None:
        self._tools = tools
        self._registrar_key = registrar_key

    async def delete(self, data: bytes, _context: Context) -> bytes:
        """Idempotent. Raises RejectionError, WireError, StoreError."""
        request = delete_request_from_wire(data)
        check_deletion(request)
        device_id, certified = device_id_of(request.identity_key), was_certified(request, self._registrar_key)
        now = self._tools.clock()
        news = await self._tools.store.call(CollectorStore.forget, device_id, now, certified=certified)
        self._tools.monitor.count("deletions" if news else "deletions_repeated")
        return delete_response_to_wire(DeleteResponse())

    def handler(self) -> grpc.GenericRpcHandler:
        """For the collector's gate."""
        unary: Any = grpc.unary_unary_rpc_method_handler(self.delete)
        return grpc.method_handlers_generic_handler(DELETE_METHOD.service, {DELETE_METHOD.name: unary})
