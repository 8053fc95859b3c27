"""Devices that deliver unmasked over real gRPC, message by message, each with places where it may go wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from grpc import aio

from client_sdk.direct import offer_message, pieces, seal_message
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import pack_vector
from client_sdk.wire.messages import (
    DeliverRequest,
    DeliverResponse,
    DirectChallenge,
    DirectHello,
    DirectOffer,
    DirectReceipts,
    DirectSeal,
    DirectStanding,
)
from client_sdk.wire.methods import DELIVER_METHOD
from tests.integration.participants import TWO_NUMBERS
from tests.registrar import certificate_of

Hook = Callable[[DeliverRequest], DeliverRequest | list[DeliverRequest] | None]


def direct_plan(delivery: str = 'delivery = "direct"', *, name: str = "test", version: int = 1, size: int = 3) -> Plan:
    """A plan whose vector is [a, b]; small integers are plausible reports of it."""
    text = TWO_NUMBERS.format(min_size=size, target_size=size + 2, name=name, version=version)
    return parse_plan(text.replace("[budget]", f"[delivery]\n{delivery}\n[budget]"))


@dataclass
class Ended:
    """What was said to the device, and how the call ended."""

    received: list[DeliverResponse] = field(default_factory=list)
    code: grpc.StatusCode | None = None
    details: str = ""

    @property
    def standing(self) -> DirectStanding | None:
        return next((one for one in self.received if isinstance(one, DirectStanding)), None)

    @property
    def words(self) -> tuple[str, ...]:
        """The last answers."""
        told = [one for one in self.received if isinstance(one, DirectStanding | DirectReceipts)]
        return told[-1].answers if told else ()

    @property
    def sums(self) -> tuple[tuple[str, int], ...]:
        (last,) = [one for one in self.received if isinstance(one, DirectStanding | DirectReceipts)][-1:]
        return tuple(zip(last.round_ids, last.contributors, strict=True))


@dataclass
class Puppet:
    """One identity and its reports: (plan, period start, elements or packed bytes). certificate: empty for a good one.

    `hook` sees each message before it leaves and may replace it, by several or by none.
    """

    reports: Sequence[tuple[Plan, int, Sequence[int] | bytes]]
    identity: IdentityKey = field(default_factory=lambda: IdentityKey(os.urandom(32)))
    certificate: bytes = b""
    resent: bool = False
    hook: Hook = lambda message: message
    sent: list[DeliverRequest] = field(default_factory=list)
    leave_after: type[DeliverRequest] | None = None
    linger: Callable[[], Awaitable[None]] | None = None  # before it leaves: what is cut off may not have arrived

    def __post_init__(self) -> None:
        self.certificate = self.certificate or certificate_of(self.identity)

    @property
    def hello(self) -> DirectHello:
        return DirectHello(self.identity.public_key, self.certificate)

    def packed(self, place: int) -> bytes:
        plan, _, elements = self.reports[place]
        return elements if isinstance(elements, bytes) else pack_vector(elements, plan.bound)

    def offer(self, nonce: bytes) -> DirectOffer:
        unsigned = DirectOffer(
            tuple(plan.hash for plan, _, _ in self.reports),
            tuple(start for _, start, _ in self.reports),
            tuple(self.identity.report_id(plan.name, start) for plan, start, _ in self.reports),
            (self.resent,) * len(self.reports),
        )
        return replace(unsigned, signature=self.identity.sign(offer_message(self.hello, nonce, unsigned)))

    async def deliver(self, address: str, metadata: Any = None) -> Ended:
        """One call."""
        async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            method = channel.stream_stream(DELIVER_METHOD.path, **DELIVER_METHOD.client_converters)
            ended = Ended()
            call = method(metadata=metadata)
            try:
                await self._converse(call, ended)
                await call.done_writing()
                ended.code, ended.details = await call.code(), await call.details() or ""
            except aio.AioRpcError as error:
                ended.code, ended.details = error.code(), error.details() or ""
            except _LeftError:
                call.cancel()
            return ended

    async def _converse(self, call: Any, ended: Ended) -> None:
        await self._send(call, self.hello)
        challenge = await self._next(call, ended)
        if not isinstance(challenge, DirectChallenge):
            return
        offer = self.offer(challenge.nonce)
        await self._send(call, offer)
        standing = await self._next(call, ended)
        if not isinstance(standing, DirectStanding):
            return
        wanted = {p: self.packed(p) for p, word in enumerate(standing.answers) if word == "wanted"}
        if not wanted:
            return
        for place, data in wanted.items():
            for piece in pieces(place, data):
                await self._send(call, piece)
        message = seal_message(offer_message(self.hello, challenge.nonce, offer), wanted)
        await self._send(call, DirectSeal(self.identity.sign(message)))
        await self._next(call, ended)

    async def _send(self, call: Any, message: DeliverRequest) -> None:
        made = self.hook(message)
        for one in made if isinstance(made, list) else [made]:
            if one is None:
                continue
            self.sent.append(one)
            try:
                await call.write(one)
            except aio.UsageError:  # the collector has ended it
                return
        if isinstance(message, self.leave_after or ()):
            if self.linger is not None:
                await self.linger()
            raise _LeftError

    async def _next(self, call: Any, ended: Ended) -> DeliverResponse | None:
        answer = await call.read()
        if answer is aio.EOF:
            return None
        ended.received.append(answer)
        return answer  # type: ignore[no-any-return]


class _LeftError(Exception):
    """The device's network is gone."""


def today(plan: Plan, back: int = 0) -> int:
    """A period's start."""
    return plan.period_start(time.time()) - back * plan.period_s
