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
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc
from grpc import aio

from client_sdk.certificate import CertificateError
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
    ParticipantMessage,
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
from collector.service.storage_errors import StoreError
from collector.service.time_limit import TimeLimit

log = logging.getLogger(__name__)

M = TypeVar("M", Hello, Advert)

Context = aio.ServicerContext[bytes, bytes]


CERTIFICATE_HINTS: Final = {
    "bad_signature": "signed by another registrar than --registrar-key",
    "expired": "by this machine's clock",
}
"""What an operator looks at, by a CertificateError's reason."""


class _StreamEndedError(Exception):
    """The participant closed its side; there is nobody left to answer."""


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
        """One participant, from its hello to its receipt."""
        with self._tools.monitor.stream():
            reason = await _refusal(self._stream(context))
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
        hello = await _read_one(context, Hello)
        self._tools.store.require_working()
        plan = self._services.catalogue.by_hash(hello.plan_hash)
        self._check_hello(hello, plan)
        if plan is None:
            raise RejectionError(RejectionReason.UNKNOWN_PLAN)
        self._check_certificate(hello)
        nonce = self._services.entropy(NONCE_BYTES)
        await _write(context, Challenge(nonce))
        advert = await _read_one(context, Advert)
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

    def _check_certificate(self, hello: Hello) -> None:
        """Once a stream, at this collector's clock; which check failed stays in the counters."""
        try:
            check_certificate(hello, self._services.registrar_key, self._tools.clock())
        except RejectionError as error:
            if isinstance(error.__cause__, CertificateError):
                reason = error.__cause__.reason
                self._tools.monitor.count(f"certificates.{reason}")
                self._services.refusals.note(f"bad_certificate/{reason}", CERTIFICATE_HINTS.get(reason, ""))
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
        with contextlib.suppress(_StreamEndedError, aio.UsageError):
            try:
                while True:
                    message = await _read(context)
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
        """The newest version of the only plan, or of the named one."""
        try:
            request = get_plan_request_from_wire(data)
        except WireError:
            raise RejectionError(RejectionReason.MALFORMED) from None
        plan = self._catalogue.newest(request.name)
        if plan is None:
            self._monitor.rejected(RejectionReason.UNKNOWN_PLAN)
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such plan here; name one where there are several")
        return get_plan_response_to_wire(GetPlanResponse(plan.text, plan.hash, self._catalogue.signature(plan)))


async def _refusal(work: Coroutine[Any, Any, Refusal | None]) -> Refusal | None:
    """Why `work` was refused, or None: the one place where exceptions become reasons."""
    try:
        return await work
    except RejectionError as error:
        return error.reason
    except WireError:
        return RejectionReason.MALFORMED
    except StoreError as error:
        return error.problem  # said in the log once an outage, by the store's access
    except TimeoutError:
        return RejectionReason.LATE
    except _StreamEndedError:
        return None


async def _read(context: Context) -> ParticipantMessage:
    """The next message. Raises WireError, and _StreamEndedError at the end."""
    data = await context.read()
    if not isinstance(data, bytes):
        raise _StreamEndedError
    return participant_message_from_wire(data)


async def _read_one(context: Context, kind: type[M]) -> M:
    """The next message, which must be of one kind. Raises RejectionError too."""
    message = await _read(context)
    if not isinstance(message, kind):
        raise RejectionError(RejectionReason.OUT_OF_ORDER)
    return message


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
