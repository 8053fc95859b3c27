"""Participants for tests: real state machines over real gRPC, each with a place where it may go wrong."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from client_sdk.errors import RemoteProtocolError
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
    CollectorMessage,
    ComeBack,
    Confirm,
    Hello,
    Joined,
    MaskedInputPiece,
    ParticipantMessage,
    Receipt,
    RoundAborted,
    SealedShares,
    UnmaskShares,
)
from client_sdk.secagg.participant import Participant
from client_sdk.wire.methods import PARTICIPATE_METHOD
from collector.service.app import CollectorService
from collector.service.settings import ServeSettings
from tests.registrar import KEY, KEY_HEX, certificate_of
from tests.stopping import stopped

STEPS: dict[type, str] = {
    Hello: "hello",
    Advert: "join",
    SealedShares: "shares",
    MaskedInputPiece: "masked_input",
    Confirm: "confirm",
    UnmaskShares: "unmask",
}

TWO_NUMBERS = """
[plan]
name = "{name}"
version = {version}
period = "1d"

[cohort]
min_size = {min_size}
target_size = {target_size}
max_wait = "1s"
corrupt_fraction = 0
dropout_fraction = 0

[budget]
lifetime = 100

[metrics.a]
kind = "numeric"
lower = 0
upper = 1000
epsilon = 1.0

[metrics.b]
kind = "numeric"
lower = 0
upper = 1000
epsilon = 1.0
"""


def two_number_plan(
    min_size: int, target_size: int, *, name: str = "test", version: int = 1, max_wait: str = "1s"
) -> Plan:
    """A plan whose vector is [a, b]; small integers are plausible reports of it."""
    text = TWO_NUMBERS.format(min_size=min_size, target_size=target_size, name=name, version=version)
    return parse_plan(text.replace('max_wait = "1s"', f'max_wait = "{max_wait}"'))


@dataclass
class Ended:
    """How a stream ended: the outcome that the participant saw, or a status."""

    received: list[CollectorMessage]
    outcome: Any
    code: grpc.StatusCode | None
    details: str
    refused: RemoteProtocolError | None = None

    @property
    def joined(self) -> Joined | None:
        return next((message for message in self.received if isinstance(message, Joined)), None)


@dataclass
class Device:
    """One identity with one report. certificate: empty for a good one.

    `hook(step, message)` runs before each message and may replace it or raise.
    """

    vector: Sequence[int]
    plan: Plan
    identity: IdentityKey = field(default_factory=lambda: IdentityKey(os.urandom(32)))
    period_start: int = -1
    resent: bool = False
    certificate: bytes = b""

    def __post_init__(self) -> None:
        self.certificate = self.certificate or certificate_of(self.identity)
        if self.period_start < 0:
            self.period_start = self.plan.period_start(time.time())

    def participant(self) -> Participant:
        return Participant(
            identity=self.identity,
            certificate=self.certificate,
            registrar_key=KEY,
            plan_hash=self.plan.hash,
            period_start=self.period_start,
            report_id=self.identity.report_id(self.plan.name, self.period_start),
            vector=self.vector,
            rules=self.plan.round_rules(),
            resent=self.resent,
            min_cohort=0,
            entropy=os.urandom,
        )

    async def upload(
        self,
        address: str,
        *,
        leave_before: str | None = None,
        silent_before: str | None = None,
        on_message: Callable[[str, ParticipantMessage], Any] | None = None,
    ) -> Ended:
        """One stream. `leave_before` cancels it right before a step's first message; `silent_before` sends nothing
        any more but stays; `on_message` is called (and awaited) before each message and returns what to send:
        one message or a list.
        """
        async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.stream_stream(PARTICIPATE_METHOD.path, **PARTICIPATE_METHOD.client_converters)()
            return await _converse(call, self.participant(), leave_before, silent_before, on_message)


async def _converse(call: Any, participant: Participant, leave: str | None, silent: str | None, hook: Any) -> Ended:
    received: list[CollectorMessage] = []
    replies: list[ParticipantMessage] = [participant.hello()]
    mute = False
    try:
        while True:
            for reply in replies:
                step = STEPS[type(reply)]
                if step == leave:
                    call.cancel()
                    return Ended(received, None, None, f"left before {step}")
                mute = mute or step == silent
                messages = reply if hook is None else hook(step, reply)
                if asyncio.iscoroutine(messages):
                    messages = await messages
                for message in () if mute else messages if isinstance(messages, list) else [messages]:
                    await call.write(message)
            message_in = await call.read()
            if message_in is aio.EOF:
                break
            received.append(message_in)
            if isinstance(message_in, (Receipt, AlreadyCounted, ComeBack, RoundAborted)) and mute:
                return Ended(received, message_in, None, "")
            replies = participant.receive(message_in, time.monotonic())
    except aio.AioRpcError as error:
        return Ended(received, participant.outcome, error.code(), error.details() or "")
    except asyncio.InvalidStateError:  # the other end had already ended the stream when we wrote
        return Ended(received, participant.outcome, await call.code(), await call.details() or "")
    except RemoteProtocolError as error:
        call.cancel()
        return Ended(received, None, None, str(error), error)
    return Ended(received, participant.outcome, await call.code(), await call.details() or "")


@dataclass
class Running:
    """A collector in this process."""

    service: CollectorService

    @property
    def address(self) -> str:
        return self.service.address

    async def upload(self, *devices: Device) -> list[Ended]:
        """All at once, nobody misbehaving."""
        return list(await asyncio.gather(*(device.upload(self.address) for device in devices)))

    def sums(self) -> list[tuple[list[int], int]]:
        """Per released round: all metrics' totals in a row, and the contributors."""
        found: dict[str, tuple[list[int], int]] = {}
        for row in self.service.store.released_sums():
            totals, _ = found.setdefault(row.round_id, ([], row.contributors))
            totals.extend(row.totals)
        return list(found.values())


@asynccontextmanager
async def collector(
    tmp_path: Path, *plans: Plan, step_timeout_s: float = 5.0, expected_devices: int | None = None, **options: Any
) -> AsyncIterator[Running]:
    """A collector on loopback with a store in `tmp_path`; stopped without grace at the end."""
    paths = []
    for plan in plans:
        path = tmp_path / f"{plan.name}-{plan.version}.toml"
        path.write_text(plan.text, encoding="utf-8")
        paths.append(path)
    settings = ServeSettings(
        plan_paths=tuple(paths),
        registrar_key=KEY_HEX,
        listen="127.0.0.1:0",
        insecure=True,
        step_timeout_s=step_timeout_s,
        expected_devices=expected_devices,
        **{"db_url": f"sqlite:///{tmp_path / 'collector.db'}", **options},
    )
    service = await CollectorService.start(settings)
    try:
        yield Running(service)
    finally:
        assert await stopped(service)


async def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for a condition on the other side of the wire. The machine may be busy: a long wait costs nothing."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
