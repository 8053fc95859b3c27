"""The wire's edge: bytes and statuses on one side, messages and rejections on the other.

Rules this file keeps:
- requests arrive as bytes and are decoded here, so that anything malformed is a status, never a traceback;
- a participant proves its identity over a fresh nonce before anything is said about it, held for it or
  looked up for it, so that nobody can ask whether another one is enrolled;
- a stream that is silent, slow to read, or out of order costs its own participant, nobody else;
- nothing is logged about a peer: no address, no payload, no identity.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import grpc
from grpc import aio

from client_sdk.errors import RejectionError, RejectionReason, WireError
from client_sdk.identity import device_id_of, enrolment_message, verify
from client_sdk.plan import Plan
from client_sdk.secagg.messages import (
    NONCE_BYTES,
    Advert,
    AlreadyCounted,
    Challenge,
    CollectorMessage,
    Hello,
    Joined,
    ParticipantMessage,
    Receipt,
    SurvivorStatus,
    UnmaskRequest,
)
from client_sdk.wire.convert import (
    collector_message_to_wire,
    enrol_request_from_wire,
    enrol_response_to_wire,
    get_plan_request_from_wire,
    get_plan_response_to_wire,
    participant_message_from_wire,
)
from client_sdk.wire.messages import EnrolResponse, GetPlanResponse
from client_sdk.wire.methods import ENROL_METHOD, GET_PLAN_METHOD, PARTICIPATE_METHOD, Method
from collector.intake import check_advert, check_hello
from collector.service.catalogue import Catalogue
from collector.service.lobby import Lobby
from collector.service.mailbox import Ending, Member
from collector.service.monitoring import Monitor
from collector.service.rounds import RoundTools
from collector.service.standings import Standings
from collector.service.statuses import STATUS, Refusal, status_of
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError

M = TypeVar("M", Hello, Advert)

Context = aio.ServicerContext[bytes, bytes]


class _StreamEndedError(Exception):
    """The participant closed its side; there is nobody left to answer."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the three services of one collector share."""

    catalogue: Catalogue
    lobby: Lobby
    tools: RoundTools
    standings: Standings
    entropy: Callable[[int], bytes]


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
            await _refuse(context, reason, self._tools.monitor)

    async def _stream(self, context: Context) -> Refusal | None:
        async with asyncio.timeout(self._tools.step_timeout_s):
            plan, advert = await self._handshake(context)
        member = Member(device_id_of(advert.identity_key), plan, advert, joined_at=self._tools.clock())
        self._services.lobby.take_seat(member.seat_key)
        try:
            if await self._welcome(context, member):
                return None
            self._services.lobby.wait(member)
            return await self._serve(context, member)
        finally:
            self._services.lobby.leave(member)

    async def _handshake(self, context: Context) -> tuple[Plan, Advert]:
        """Hello, nonce, advert. Raises RejectionError, WireError, StorageError."""
        hello = await _read_one(context, Hello)
        self._tools.store.require_working()
        plan = self._services.catalogue.by_hash(hello.plan_hash)
        check_hello(hello, plan, self._tools.clock())
        if plan is None:
            raise RejectionError(RejectionReason.UNKNOWN_PLAN)
        nonce = self._services.entropy(NONCE_BYTES)
        await _write(context, Challenge(nonce))
        advert = await _read_one(context, Advert)
        check_advert(hello, nonce, advert)
        return plan, advert

    async def _welcome(self, context: Context, member: Member) -> bool:
        """Tell a proven identity what is booked for it; True where this report is already in a sum.

        Asked once it has its seat: a report that is just being stored in another round keeps its own until then.
        """
        standing = await self._services.standings.ask(member.seat_key)
        if standing is None:
            raise RejectionError(RejectionReason.NOT_ENROLLED)
        self._tools.monitor.count("joins")
        async with asyncio.timeout(self._tools.step_timeout_s):
            await _write(context, Joined(standing.reports, standing.micro_epsilon))
            if standing.counted is None:
                return False
            self._tools.monitor.count("already_counted")
            self._services.lobby.came(member)
            await _write(context, AlreadyCounted(*standing.counted))
            return True

    async def _serve(self, context: Context, member: Member) -> Refusal | None:
        """Write what the lobby and the round put into the mailbox, until it ends."""
        reader = asyncio.create_task(self._read_all(context, member))
        try:
            while not isinstance(item := await member.mailbox.take(), Ending):
                async with asyncio.timeout(self._tools.step_timeout_s):
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


class EnrolmentServicer:
    """EnrolmentService.Enrol: a single-use token for a place on the list of identities."""

    def __init__(self, services: Services) -> None:
        self._tools = services.tools

    async def enrol(self, data: bytes, context: Context) -> bytes:
        """One enrolment; every refusal of a token looks the same from outside."""
        reason = await _refusal(self._enrol(data))
        if reason is not None:
            await _refuse(context, reason, self._tools.monitor)
        self._tools.monitor.count("enrolled")
        return enrol_response_to_wire(EnrolResponse())

    async def _enrol(self, data: bytes) -> RejectionReason | None:
        request = enrol_request_from_wire(data)
        if not verify(request.identity_key, request.signature, enrolment_message(request.token)):
            raise RejectionError(RejectionReason.BAD_SIGNATURE)
        now = int(self._tools.clock())
        accepted = await self._tools.store.call(CollectorStore.enrol, request.token, request.identity_key, now)
        return None if accepted else RejectionReason.BAD_TOKEN


class PlanServicer:
    """PlanService.GetPlan: the plan for devices whose app does not ship it."""

    def __init__(self, services: Services) -> None:
        self._catalogue = services.catalogue

    async def get_plan(self, data: bytes, context: Context) -> bytes:
        """The newest version of the only plan, or of the named one."""
        try:
            request = get_plan_request_from_wire(data)
        except WireError:
            malformed = STATUS[RejectionReason.MALFORMED]
            await context.abort(malformed.code, malformed.text)
        plan = self._catalogue.newest(request.name)
        if plan is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such plan here; name one where there are several")
        return get_plan_response_to_wire(GetPlanResponse(plan.text, plan.hash))


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


async def _refuse(context: Context, refusal: Refusal, monitor: Monitor) -> NoReturn:
    """Count the reason and end the call with its status."""
    monitor.rejected(refusal)
    status = status_of(refusal)
    await context.abort(status.code, status.text)


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


async def _write(context: Context, message: CollectorMessage | bytes) -> None:
    if isinstance(message, bytes):
        await context.write(message)
    elif isinstance(message, SAME_FOR_ALL):
        await context.write(_encoded_once(message))
    else:
        await context.write(collector_message_to_wire(message))


SAME_FOR_ALL = (SurvivorStatus, UnmaskRequest, Receipt)
"""A round gives all its members one and the same of these."""

_encoded_once = lru_cache(maxsize=64)(collector_message_to_wire)


def handlers(services: Services) -> tuple[grpc.GenericRpcHandler, ...]:
    """The three services as generic handlers over bytes: no generated service code is needed."""
    return (
        _route(PARTICIPATE_METHOD, grpc.stream_stream_rpc_method_handler(SecAggServicer(services).participate)),
        _route(ENROL_METHOD, grpc.unary_unary_rpc_method_handler(EnrolmentServicer(services).enrol)),
        _route(GET_PLAN_METHOD, grpc.unary_unary_rpc_method_handler(PlanServicer(services).get_plan)),
    )


def _route(method: Method[Any, Any], handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(method.service, {method.name: handler})
