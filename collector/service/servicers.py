"""The wire's edge: bytes and statuses on one side, messages and rejections on the other.

Rules this file keeps:
- requests arrive as bytes and are decoded here, so that anything malformed is a status, never a traceback;
- a participant proves its identity over a fresh nonce before anything is said about it, held for it or
  looked up for it, so that nobody can ask whether another one is enrolled;
- a stream that is silent, slow to read, or out of order costs its own participant, nobody else;
- nothing is logged about a peer: no address, no payload, no identity; only, once a minute, how many joins were
  refused for what an operator can mend (`refusals`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from client_sdk.errors import RejectionError, RejectionReason, WireError
from client_sdk.identity import device_id_of
from client_sdk.plan import Plan
from client_sdk.secagg.messages import (
    NONCE_BYTES,
    Advert,
    AlreadyCounted,
    Challenge,
    Hello,
    Joined,
)
from client_sdk.wire.convert import (
    get_plan_request_from_wire,
    get_plan_response_to_wire,
    participant_message_from_wire,
)
from client_sdk.wire.messages import GetPlanResponse
from client_sdk.wire.methods import GET_PLAN_METHOD, PARTICIPATE_METHOD, Method
from collector.intake import check_advert, check_certificate, check_hello
from collector.service.admission import Joins
from collector.service.catalogue import Catalogue
from collector.service.gate import refuse
from collector.service.lobby import Lobby
from collector.service.mailbox import Ending, Member, Sendable
from collector.service.message_bytes import encoded
from collector.service.monitoring import CLOCK_SKEW_SECONDS
from collector.service.registrar.refusals import RefusalLog
from collector.service.rounds import RoundTools
from collector.service.standings import Standings
from collector.service.statuses import Refusal
from collector.service.streaming import Context, StreamEndedError, certificate_judged, device_stream, read, read_one
from collector.service.time_limit import TimeLimit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """What the services of one collector share. registrar_key: whose word an identity needs, 32 bytes.

    refusals: what the log says of refused joins.
    """

    catalogue: Catalogue
    lobby: Lobby
    tools: RoundTools
    standings: Standings
    registrar_key: bytes
    entropy: Callable[[int], bytes]
    joins: Joins
    refusals: RefusalLog = field(default_factory=lambda: RefusalLog(log, time.monotonic))


class SecAggServicer:
    """SecAggService.Participate: one coroutine a stream writes, one task reads once the member is seated."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tools = services.tools

    async def participate(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        """One participant, from its hello to its receipt. Raises RejectionError, WireError, StoreError."""
        reason = None
        with self._tools.monitor.stream(), device_stream():
            reason = await self._stream(context)
        if reason is not None:
            await refuse(context, reason, self._tools.monitor)

    async def _stream(self, context: Context) -> Refusal | None:
        limit = TimeLimit(self._tools.step_timeout_s)
        try:
            return await self._limited(context, limit)
        finally:
            limit.close()

    async def _limited(self, context: Context, limit: TimeLimit) -> Refusal | None:
        with limit:
            plan, advert = await self._handshake(context)
        member = Member(device_id_of(advert.identity_key), plan, advert, joined_at=self._tools.clock())
        self._services.joins.one(member.seat_key)
        self._services.lobby.take_seat(member.seat_key)
        try:
            if await self._welcome(context, member, limit):
                return None
            self._services.lobby.wait(member)
            return await self._serve(context, member, limit)
        finally:
            self._services.lobby.leave(member)

    async def _handshake(self, context: Context) -> tuple[Plan, Advert]:
        """Hello, nonce, advert. Raises RejectionError, WireError, StorageError."""
        hello = await read_one(context, participant_message_from_wire, Hello)
        self._tools.store.require_working()
        plan = self._services.catalogue.by_hash(hello.plan_hash)
        self._check_hello(hello, plan)
        if plan is None:
            raise RejectionError(RejectionReason.UNKNOWN_PLAN)
        with certificate_judged(self._tools.monitor, self._services.refusals):  # once a stream, by this clock
            check_certificate(hello, self._services.registrar_key, self._tools.clock())
        nonce = self._services.entropy(NONCE_BYTES)
        await _write(context, Challenge(nonce))
        advert = await read_one(context, participant_message_from_wire, Advert)
        check_advert(hello, nonce, advert)
        ahead_s = advert.period_start - self._tools.clock()
        if ahead_s > 0:  # by the device's clock the period has begun
            self._tools.monitor.observe(CLOCK_SKEW_SECONDS, ahead_s)
        return plan, advert

    def _check_hello(self, hello: Hello, plan: Plan | None) -> None:
        try:
            check_hello(hello, plan, self._tools.clock())
        except RejectionError as error:
            if error.reason is RejectionReason.UNKNOWN_PLAN:
                asked = hello.plan_hash.hex()[:8]
                served = "serve the very file that the app ships, its [registrar] table included"
                self._services.refusals.note("unknown_plan", f"one asked for {asked}...: {served}")
            raise

    async def _welcome(self, context: Context, member: Member, limit: TimeLimit) -> bool:
        """Tell a proven identity what is booked for it; True where this report is already in a sum.

        Asked once it has its seat: a report that is just being stored in another round keeps its own until then.
        """
        standing = await self._services.standings.ask(member.seat_key)
        if standing.opted_out:
            raise RejectionError(RejectionReason.OPTED_OUT)
        if standing.blamed and standing.counted is None:
            raise RejectionError(RejectionReason.BLAMED)
        self._tools.monitor.count("joins")
        with limit:
            await _write(context, Joined(standing.reports, standing.micro_epsilon))
            if standing.counted is None:
                return False
            self._tools.monitor.count("already_counted")
            self._services.lobby.came(member)
            await _write(context, AlreadyCounted(*standing.counted))
            return True

    async def _serve(self, context: Context, member: Member, limit: TimeLimit) -> Refusal | None:
        """Write what the lobby and the round put into the mailbox, until it ends."""
        reader = asyncio.create_task(self._read_all(context, member))
        try:
            while not isinstance(item := await member.mailbox.take(), Ending):
                with limit:
                    await _write(context, item)
            return item.reason
        finally:
            reader.cancel()

    async def _read_all(self, context: Context, member: Member) -> None:
        """Hand every message to the member's round; the first that is refused ends the stream."""
        reason = None
        with contextlib.suppress(StreamEndedError, aio.UsageError):
            try:
                while True:
                    message = await read(context, participant_message_from_wire)
                    if member.driver is None:
                        raise RejectionError(RejectionReason.OUT_OF_ORDER)
                    member.driver.receive(member.index, message)
            except RejectionError as error:
                reason = error.reason
            except WireError:
                reason = RejectionReason.MALFORMED
        member.mailbox.end(reason=reason)


class PlanServicer:
    """PlanService.GetPlan: the plan for devices whose app does not ship it."""

    def __init__(self, services: Services) -> None:
        self._catalogue = services.catalogue
        self._monitor = services.tools.monitor

    async def get_plan(self, data: bytes, context: Context) -> bytes:
        """The newest version of the only plan, or of the named one. Raises WireError."""
        request = get_plan_request_from_wire(data)
        plan = self._catalogue.newest(request.name)
        if plan is None:
            self._monitor.rejected(RejectionReason.UNKNOWN_PLAN)
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such plan here; name one where there are several")
        return get_plan_response_to_wire(GetPlanResponse(plan.text, plan.hash, self._catalogue.signature(plan)))


async def _write(context: Context, message: Sendable) -> None:
    await context.write(message() if callable(message) else encoded(message))


def handlers(services: Services) -> tuple[grpc.GenericRpcHandler, ...]:
    """The services as generic handlers over bytes: no generated service code is needed."""
    return (
        _route(PARTICIPATE_METHOD, grpc.stream_stream_rpc_method_handler(SecAggServicer(services).participate)),
        _route(GET_PLAN_METHOD, grpc.unary_unary_rpc_method_handler(PlanServicer(services).get_plan)),
    )


def _route(method: Method[Any, Any], handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(method.service, {method.name: handler})
