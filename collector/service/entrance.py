"""The way into every method of a server of ours: a place first, then one request within its time, then the work.

Rules of this file:
- nothing of a call is read before it has its place: whoever opens calls and says nothing holds places of its own
  address only, and each of them no longer than a request may take;
- the transport would read the request of a unary method itself, before any code of ours runs, uncounted and without
  end. So every method is served as one whose requests are a stream (the wire is the same), and this file reads the one;
- what a method raises becomes a status here, and only here: a rejection, a message that is none, a store's fault;
- a place is held until the transport has taken the whole answer, so answers that nobody reads count as well.
What it does not do: the messages of a stream are read by its method, under the limits of its steps; connections are
the transport's business (`listening`) and the machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, cast

import grpc
from grpc import aio

from client_sdk.errors import RejectionError, RejectionReason, WireError
from collector.service.admission import Streams
from collector.service.statuses import Refusal
from collector.service.storage_errors import StoreError

REQUEST_TIMEOUT_S: Final = 10.0
CALLS_BESIDE: Final = 1024
"""Refusals that are on their way, beside the calls that have a place: for the transport's own limit, a last resort."""

Context = aio.ServicerContext[bytes, bytes]
Admit = Callable[[Context], Awaitable[None]]
Refuse = Callable[[Context, Refusal], Awaitable[NoReturn]]


async def everybody(_context: Context) -> None:
    """Admits whoever calls."""


class Entrance:
    """Of one server. refuse: counts a reason, and ends the call with its status."""

    def __init__(self, streams: Streams, refuse: Refuse) -> None:
        self._streams = streams
        self._refuse = refuse

    def guarded(
        self, handler: Any, admit: Admit = everybody, *, beside_the_total: bool = False
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """`handler` behind a place and `admit`, which raises RejectionError or StoreError for who may not enter."""
        kind = f"{_many(handler.request_streaming)}_{_many(handler.response_streaming)}"
        work = getattr(handler, kind)

        async def call(requests: Any, context: Context) -> Any:
            try:
                self._take_place(context, beside_the_total=beside_the_total)
                await admit(context)
                return await work(requests if handler.request_streaming else await _request(context), context)
            except RejectionError as error:
                await self._refuse(context, error.reason)
            except WireError:
                await self._refuse(context, RejectionReason.MALFORMED)
            except StoreError as error:  # said in the log once an outage, by the store's access
                await self._refuse(context, error.problem)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(call)
        return grpc.stream_unary_rpc_method_handler(call)

    def _take_place(self, context: Context, *, beside_the_total: bool) -> None:
        """Until the call is over, its answer included. Raises RejectionError(TOO_MANY)."""
        place = contextlib.ExitStack()
        place.enter_context(self._streams.one(context.peer(), beside_the_total=beside_the_total))

        def over(_context: object) -> None:
            place.close()

        context.add_done_callback(cast("Any", over))  # the stubs want a class of theirs


def _many(streaming: bool) -> str:
    return "stream" if streaming else "unary"


async def _request(context: Context) -> bytes:
    """The one message of a unary call. Raises RejectionError: LATE, or MALFORMED where there is none or another one."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            request = await context.read()
            if isinstance(request, bytes) and not isinstance(await context.read(), bytes):
                return request
    except TimeoutError:
        raise RejectionError(RejectionReason.LATE) from None
    raise RejectionError(RejectionReason.MALFORMED)
