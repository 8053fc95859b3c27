"""The door of every method: is there room, who is calling, and may this caller do this?

Rules of this file:
- a method has its line in POLICY or nobody may call it; methods that do not exist answer strangers like those that do;
- the order is room, caller, role, request: who is refused for room costs nothing, nobody learns from an answer what
  exists before it has proven who it is, and nothing is read from who may not ask (`entrance`);
- a refusal is a status with one fixed text and one counter, whoever is refused and whatever it asked for.
What it does not do: it looks into no request. Methods whose requests are signed themselves (a round, a deletion) prove
their sender inside; what a role may ask *for* (a device only about itself) the method decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import grpc
from grpc import aio

from client_sdk.certificate import Role
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.wire.methods import (
    DELETE_METHOD,
    DELIVER_METHOD,
    GET_COUNTERS_METHOD,
    GET_PLAN_METHOD,
    GET_PRIVACY_METHOD,
    GET_REPORT_METHOD,
    PARTICIPATE_METHOD,
)
from collector.service.access import Access, Caller
from collector.service.admission import Streams
from collector.service.entrance import Entrance
from collector.service.health import HEALTH_PREFIX
from collector.service.monitoring import Monitor
from collector.service.statuses import Refusal, status_of

Context = aio.ServicerContext[bytes, bytes]

EVERYBODY: Final = frozenset(Role)
SIGNED: Final = frozenset({Role.DEVICE})
"""Methods whose request proves its sender; a token of another role has no business there."""

POLICY: Final[Mapping[str, frozenset[Role]]] = {
    PARTICIPATE_METHOD.path: SIGNED,
    DELIVER_METHOD.path: SIGNED,
    DELETE_METHOD.path: SIGNED,
    GET_PLAN_METHOD.path: EVERYBODY,
    GET_REPORT_METHOD.path: frozenset({Role.ANALYST, Role.OPERATOR}),
    GET_PRIVACY_METHOD.path: frozenset({Role.DEVICE, Role.ANALYST, Role.OPERATOR}),
    GET_COUNTERS_METHOD.path: frozenset({Role.HEALTH, Role.OPERATOR}),
}
"""Who may call what."""

NO_WORD_NEEDED: Final = frozenset(
    {PARTICIPATE_METHOD.path, DELIVER_METHOD.path, DELETE_METHOD.path, GET_PLAN_METHOD.path}
)
"""Open to callers who show nothing: signed requests, and the plan, which is public. What is shown is judged."""

_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def caller() -> Caller:
    """Who is calling, in a method that only known callers reach."""
    found = _caller.get()
    if found is None:  # a method with a wrong line in POLICY: refuse rather than guess
        raise RejectionError(RejectionReason.BAD_CREDENTIALS)
    return found


class Gate(grpc.GenericRpcHandler):
    """In front of all handlers of one collector: the only one that its server has.

    open_to_all: methods that tell nothing but what is published, and that this collector's operator asked for.
    """

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        access: Access,
        streams: Streams,
        monitor: Monitor,
        open_to_all: Iterable[str] = (),
    ) -> None:
        self._handlers = tuple(handlers)
        self._access = access
        self._monitor = monitor
        self._open_to_all = frozenset(open_to_all)
        self._entrance = Entrance(streams, self._refuse)
        self._stopping = False

    def stop(self) -> None:
        """The collector is stopping: nobody comes in any more, but who asks after its health."""
        self._stopping = True

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """The method's handler behind the door; for a method that is not there, one that only refuses."""
        found = (handler.service(handler_call_details) for handler in self._handlers)
        handler = next(filter(None, found), None)
        method = str(handler_call_details.method)
        return self._guarded(method, _NOTHING_THERE if handler is None else handler)

    def _guarded(self, method: str, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
        async def admit(context: Context) -> None:
            await self._admit(method, context)

        return self._entrance.guarded(handler, admit, beside_the_total=method.startswith(HEALTH_PREFIX))

    async def _refuse(self, context: Context, refusal: Refusal) -> NoReturn:
        await refuse(context, refusal, self._monitor)

    async def _admit(self, method: str, context: Context) -> None:
        """Raises RejectionError, StoreError."""
        if method.startswith(HEALTH_PREFIX):
            return
        if self._stopping:
            raise RejectionError(RejectionReason.SHUTTING_DOWN)
        if method in self._open_to_all:
            return
        found = await self._access.caller(method, context.invocation_metadata() or ())
        if found is None:
            if method not in NO_WORD_NEEDED:
                raise RejectionError(RejectionReason.BAD_CREDENTIALS)
        elif found.role not in POLICY.get(method, {Role.OPERATOR}):
            raise RejectionError(RejectionReason.NOT_ALLOWED)
        _caller.set(found)


async def _nothing(_requests: AsyncIterator[bytes], _context: Context) -> None:
    raise RejectionError(RejectionReason.UNKNOWN_METHOD)


_NOTHING_THERE: Final[grpc.RpcMethodHandler[Any, Any]] = grpc.stream_stream_rpc_method_handler(_nothing)


async def refuse(context: Context, refusal: Refusal, monitor: Monitor) -> NoReturn:
    """Count the reason and end the call with its status."""
    monitor.rejected(refusal)
    status = status_of(refusal)
    await context.abort(status.code, status.text)
