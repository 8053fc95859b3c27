"""DirectService.Deliver: one device's reports, unmasked, in one call.

Rules of this file:
- messages arrive as bytes and are decoded here, so that anything malformed is a status, never a traceback;
- an identity proves itself over a fresh nonce before anything is said about it, held for it or looked up for it;
- it hears what is booked for it before it sends a report, and no report is taken that nobody wanted (`direct_desk`);
- a call's reports have to be here in a time that follows from their size, however often it says something;
- receipts go out when the sums are on the disk, not before;
- nothing is logged about a device; what is refused is counted by reason, per report where it is one report's fault.
What it does not do: it keeps no report (`direct_sums` adds them up) and verifies nothing itself (`collector.direct`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import grpc
import numpy as np
import numpy.typing as npt

from client_sdk.direct import ALREADY_COUNTED, COUNTED, SLOWEST_BYTES_S, WANTED
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import device_id_of
from client_sdk.plan import Plan
from client_sdk.secagg.messages import NONCE_BYTES
from client_sdk.wire.convert import deliver_request_from_wire, deliver_response_to_wire
from client_sdk.wire.messages import (
    DeliverResponse,
    DirectChallenge,
    DirectHello,
    DirectOffer,
    DirectPiece,
    DirectReceipts,
    DirectSeal,
)
from client_sdk.wire.methods import DELIVER_METHOD
from collector.direct import Incoming, check_direct_hello, check_offer, read_report
from collector.service.direct_desk import DirectDesk, OfferedReport, answers
from collector.service.direct_sums import ALREADY, DirectSums, Result, Stored
from collector.service.servicers import Services
from collector.service.storage_rows import Contributor
from collector.service.streaming import Context, certificate_judged, device_stream, read, read_one
from collector.service.time_limit import TimeLimit

LARGE: Final = 4096
"""Elements from which on a report is read in a thread of its own."""


class DirectServicer:
    """Behind the gate, which turns what is raised into a status."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tools = services.tools
        self._desk = DirectDesk(services)
        self.sums = DirectSums(services.tools)

    async def deliver(self, _requests: object, context: Context) -> None:
        """One call. Raises RejectionError, WireError, StoreError."""
        limit = TimeLimit(self._tools.step_timeout_s)
        try:
            with self._tools.monitor.stream(), device_stream():
                await self._deliver(context, limit)
        finally:
            limit.close()

    async def _deliver(self, context: Context, limit: TimeLimit) -> None:
        with limit:
            hello, nonce, offer = await self._handshake(context)
        device_id = device_id_of(hello.identity_key)
        reports = [OfferedReport(offered) for offered in check_offer(hello, nonce, offer)]
        try:
            standing = await self._desk.welcome(hello, device_id, reports)
            with limit:
                await _write(context, standing)
            sizes = {place: report.size for place, report in enumerate(reports) if report.word == WANTED}
            if sizes:
                await self._take(context, limit, device_id, reports, Incoming.of(hello, nonce, offer, sizes))
                self._let_go(reports)  # before the device hears of it: its next call may come at once
                with limit:
                    await _write(context, DirectReceipts(*answers(reports)))
        finally:
            self._let_go(reports)

    def _let_go(self, reports: Sequence[OfferedReport]) -> None:
        for report in reports:
            self._desk.let_go(report)

    async def _handshake(self, context: Context) -> tuple[DirectHello, bytes, DirectOffer]:
        hello = await read_one(context, deliver_request_from_wire, DirectHello)
        self._tools.store.require_working()
        with certificate_judged(self._tools.monitor, self._services.refusals):
            check_direct_hello(hello, self._services.registrar_key, self._tools.clock())
        nonce = self._services.entropy(NONCE_BYTES)
        await _write(context, DirectChallenge(nonce))
        return hello, nonce, await read_one(context, deliver_request_from_wire, DirectOffer)

    # --- the reports ----------------------------------------------------------------------------------

    async def _take(
        self, context: Context, limit: TimeLimit, device_id: str, reports: Sequence[OfferedReport], incoming: Incoming
    ) -> None:
        """Read what is sent, have it stored, and say what became of each. Raises RejectionError, WireError."""
        seal = await self._read_all(context, limit, incoming)
        for place, data in incoming.seal(seal).items():
            await self._add(device_id, reports[place], data)
        for report in reports:
            if report.done is not None:
                await self._settle(report, await asyncio.shield(report.done))  # it outlives this call

    async def _read_all(self, context: Context, limit: TimeLimit, incoming: Incoming) -> DirectSeal:
        """The pieces and what seals them. Raises RejectionError (LATE for a trickle), WireError, TimeoutError."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._tools.step_timeout_s + sum(incoming.sizes.values()) / SLOWEST_BYTES_S
        while True:
            with limit:
                message = await read(context, deliver_request_from_wire)
            if loop.time() > latest:
                raise RejectionError(RejectionReason.LATE)
            if isinstance(message, DirectSeal):
                return message
            if not isinstance(message, DirectPiece):
                raise RejectionError(RejectionReason.OUT_OF_ORDER)
            incoming.add(message)

    async def _add(self, device_id: str, report: OfferedReport, data: bytes) -> None:
        plan, offered = report.plan, report.offered
        if plan is None:
            return
        try:
            read = partial(_elements, plan, data)
            elements = await asyncio.to_thread(read) if plan.length >= LARGE else read()
        except RejectionError as error:
            self._desk.refuse(report, error.reason)
            return
        contributor = Contributor(device_id, offered.report_id, offered.resent)
        report.done = self.sums.add(plan, offered.period_start, contributor, elements)

    async def _settle(self, report: OfferedReport, result: Result) -> None:
        if isinstance(result, Stored):
            report.counted(COUNTED, result.round_id, result.contributors)
        elif isinstance(result, RejectionReason):
            self._desk.refuse(report, result)
        elif result == ALREADY and report.seat is not None:
            standing = await self._services.standings.ask(report.seat)
            if standing.counted is None:  # forgotten in this very moment
                self._desk.refuse(report, RejectionReason.BUSY)
            else:
                self._tools.monitor.count("already_counted")
                report.counted(ALREADY_COUNTED, *standing.counted)

    def handler(self) -> grpc.GenericRpcHandler:
        """For the collector's gate."""
        stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self.deliver)
        return grpc.method_handlers_generic_handler(DELIVER_METHOD.service, {DELIVER_METHOD.name: stream})


def _elements(plan: Plan, data: bytes) -> npt.NDArray[np.int64]:
    return np.array(read_report(plan, data), dtype=np.int64)


async def _write(context: Context, message: DeliverResponse) -> None:
    await context.write(deliver_response_to_wire(message))
