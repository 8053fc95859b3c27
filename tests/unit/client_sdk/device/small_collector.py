"""A collector small enough for these tests: real gRPC on loopback, the real `Round`, everything in memory.

    with SmallCollector(plan, cohort_size=5) as collector:
        client = TelemetryClient(collector.endpoint, insecure=True, ...)

It is its clients' registrar too (any token, unless it is given some). `cut(device_id, message)` may return True to
break that stream off when `message` arrives, and `cut_answer` when it is about to leave: a lost network on either side.
It has no deadlines: a round waits for its members.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from client_sdk.certificate import read
from client_sdk.errors import RejectionError, RoundAbortedError
from client_sdk.identity import device_id_of, enrolment_message, renewal_message, verify
from client_sdk.plan import Plan
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
    Challenge,
    CollectorMessage,
    ComeBack,
    Hello,
    Joined,
    ParticipantMessage,
    Receipt,
    RoundAborted,
)
from client_sdk.wire import methods
from client_sdk.wire.convert import (
    collector_message_to_wire,
    enrol_request_from_wire,
    enrol_response_to_wire,
    get_plan_request_from_wire,
    get_plan_response_to_wire,
    participant_message_from_wire,
    renew_request_from_wire,
    renew_response_to_wire,
)
from client_sdk.wire.messages import EnrolResponse, GetPlanResponse, RenewResponse
from collector.intake import check_advert, check_certificate, check_hello
from collector.secagg.opening import open_sum
from collector.secagg.round import STEPS, Phase, Round
from tests.registrar import KEY, certified

Cut = Callable[[str, object], bool]


def never(device_id: str, message: object) -> bool:
    return False


@dataclass
class Sum:
    """An opened round."""

    total: list[int]
    contributors: list[str]
    resent: int


class Cohort:
    """Members of one round; closes a step as soon as nobody present is missing."""

    def __init__(self, home: SmallCollector, key: tuple[bytes, int]) -> None:
        self.home, self.key = home, key
        self.round_id = f"round-{len(home.sums)}-{os.urandom(4).hex()}"
        self.adverts: list[Advert] = []
        self.queues: list[asyncio.Queue[CollectorMessage | None]] = []
        self.round: Round | None = None

    def join(self, advert: Advert) -> int:
        self.adverts.append(advert)
        self.queues.append(asyncio.Queue())
        if len(self.adverts) == self.home.cohort_size:
            self.home.waiting.pop(self.key)
            self.round = Round(self.round_id, self.home.plan.round_rules(), self.adverts, int(time.time()))
            for index, queue in enumerate(self.queues):
                queue.put_nowait(self.round.roster_for(index))
        return len(self.adverts) - 1

    def receive(self, index: int, message: ParticipantMessage) -> None:
        assert self.round is not None
        self.round.receive(index, message)
        self.advance()

    def leave(self, index: int) -> None:
        if self.round is not None and self.round.phase in STEPS:
            self.round.leave(index)
            self.advance()

    def advance(self) -> None:
        assert self.round is not None
        while self.round.phase in STEPS and not self.round.pending():
            try:
                answers = self.round.close()
            except RoundAbortedError as error:
                self.tell_all(RoundAborted(error.reason.value, error.have, error.need))
                return
            for index, answer in answers.items():
                self.queues[index].put_nowait(answer)
        if self.round.phase is Phase.OPENING:
            self.open()

    def open(self) -> None:
        assert self.round is not None
        members = [device_id_of(self.adverts[index].identity_key) for index in self.round.survivors]
        for device_id, advert in zip(members, [self.adverts[i] for i in self.round.survivors], strict=True):
            self.home.book(device_id, advert.period_start, AlreadyCounted(self.round_id, len(members)))
        total = open_sum(self.round.opening())
        self.home.sums.append(Sum(total, members, self.round.resent_survivors))
        self.tell_all(Receipt(self.round_id, len(members), self.round.size))

    def tell_all(self, message: CollectorMessage) -> None:
        for queue in self.queues:
            queue.put_nowait(message)


@dataclass
class SmallCollector:
    plan: Plan
    cohort_size: int
    cut: Cut = never
    cut_answer: Cut = never
    come_back: ComeBack | None = None
    tokens: set[str] = field(default_factory=set)
    credentials: grpc.ServerCredentials | None = None
    enrolled: set[bytes] = field(default_factory=set)
    plan_signature: bytes = b""
    renewed: list[bytes] = field(default_factory=list)
    renews: bool = True
    sums: list[Sum] = field(default_factory=list)
    adverts: list[Advert] = field(default_factory=list)
    received: list[tuple[str, bytes]] = field(default_factory=list)
    counted: dict[tuple[str, int], AlreadyCounted] = field(default_factory=dict)
    extra_micro: int = 0
    clock: Callable[[], float] = time.time
    waiting: dict[tuple[bytes, int], Cohort] = field(default_factory=dict)
    port: int = 0
    endpoint: str = ""

    def __enter__(self) -> SmallCollector:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(10)

    def stop(self) -> None:
        """End at once, rounds and all; from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        for service, name, handler in (
            (methods.SECAGG_SERVICE, methods.PARTICIPATE_METHOD.name, stream(self._participate)),
            (methods.ENROLMENT_SERVICE, methods.ENROL_METHOD.name, unary(self._enrol)),
            (methods.ENROLMENT_SERVICE, methods.RENEW_METHOD.name, unary(self._renew)),
            (methods.PLAN_SERVICE, methods.GET_PLAN_METHOD.name, unary(self._get_plan)),
        ):
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
        if self.credentials is None:
            port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        else:
            port = server.add_secure_port("localhost:0", self.credentials)
        self.port = port
        self.endpoint = f"127.0.0.1:{port}" if self.credentials is None else f"localhost:{port}"
        await server.start()
        ready.set()
        await self._stop.wait()
        await server.stop(0)

    def book(self, device_id: str, period_start: int, receipt: AlreadyCounted) -> None:
        assert (device_id, period_start) not in self.counted, "counted twice"
        self.counted[device_id, period_start] = receipt

    def spent(self, device_id: str) -> tuple[int, int]:
        reports = sum(1 for device, _ in self.counted if device == device_id)
        return reports, reports * self.plan.report_micro_epsilon + self.extra_micro

    async def _enrol(self, data: bytes, context: Any) -> bytes:
        request = enrol_request_from_wire(data)
        signed = verify(request.identity_key, request.signature, enrolment_message(request.token))
        if (self.tokens and request.token not in self.tokens) or not signed:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")
        self.enrolled.add(request.identity_key)
        return enrol_response_to_wire(EnrolResponse(*self._certified(request.identity_key)))

    async def _renew(self, data: bytes, context: Any) -> bytes:
        request = renew_request_from_wire(data)
        identity_key = read(request.certificate).identity_key
        if not (self.renews and verify(identity_key, request.signature, renewal_message(request.certificate))):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")
        self.renewed.append(identity_key)
        return renew_response_to_wire(RenewResponse(*self._certified(identity_key)))

    def _certified(self, identity_key: bytes) -> tuple[bytes, int]:
        now = int(self.clock())
        return certified(identity_key, issued_at=now, expires_at=now + 30 * 86_400), now + 30 * 86_400

    async def _get_plan(self, data: bytes, context: Any) -> bytes:
        get_plan_request_from_wire(data)
        return get_plan_response_to_wire(GetPlanResponse(self.plan.text, self.plan.hash, self.plan_signature))

    async def _participate(self, requests: AsyncIterator[bytes], context: Any) -> None:
        hello = await self._read(context, "?")
        assert isinstance(hello, Hello)
        device_id = device_id_of(hello.identity_key)
        check_hello(hello, self.plan, self.clock())
        try:
            check_certificate(hello, KEY, self.clock())
        except RejectionError:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "bad certificate")
        nonce = os.urandom(32)
        await self._write(context, device_id, Challenge(nonce))
        advert = await self._read(context, device_id)
        assert isinstance(advert, Advert)
        check_advert(hello, nonce, advert)
        self.adverts.append(advert)
        await self._write(context, device_id, Joined(*self.spent(device_id)))
        receipt = self.counted.get((device_id, advert.period_start))
        if receipt is not None or self.come_back is not None:
            await self._write(context, device_id, receipt or self.come_back)
            return
        key = (advert.plan_hash, advert.period_start)
        cohort = self.waiting.setdefault(key, Cohort(self, key))
        index = cohort.join(advert)
        reader = asyncio.create_task(self._read_all(context, device_id, cohort, index))
        try:
            while True:
                message = await cohort.queues[index].get()
                if message is None:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                await self._write(context, device_id, message)
                if isinstance(message, Receipt | RoundAborted):
                    return
        finally:
            reader.cancel()
            cohort.leave(index)

    async def _read_all(self, context: Any, device_id: str, cohort: Cohort, index: int) -> None:
        with contextlib.suppress(EOFError):
            while True:
                cohort.receive(index, await self._read(context, device_id))
        cohort.leave(index)
        cohort.queues[index].put_nowait(None)

    async def _read(self, context: Any, device_id: str) -> ParticipantMessage:
        data = await context.read()
        if data is aio.EOF:
            raise EOFError
        self.received.append((device_id, data))
        message = participant_message_from_wire(data)
        if self.cut(device_id, message):
            raise EOFError
        return message

    async def _write(self, context: Any, device_id: str, message: Any) -> None:
        if self.cut_answer(device_id, message):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        await context.write(collector_message_to_wire(message))
