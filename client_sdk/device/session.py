"""One report through one stream: the participant's state machine, driven over a connection.

Rules of this file: the spool says "handed over" on disk before the first byte of a masked input leaves;
every wait has a deadline, so a silent collector costs one timeout; whatever ends a stream early is a dropout
and the state machine with its secrets is thrown away. What it does not do: it decides nothing about the
report's fate (`delivery` does) and nothing about the protocol (`client_sdk.secagg` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from client_sdk.device.interfaces import Stream
from client_sdk.device.spool import ConfirmedSum
from client_sdk.errors import AbortReason, RemoteProtocolError, StorageError, TelemetryError
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
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

FIRST_ANSWER_S = 15.0
"""Connecting and the collector's nonce, in seconds."""

STEP_ALLOWANCE_S = 60.0
"""What a step may take beside the plan's `max_wait`: the collector's own deadline and the opening of the sum."""

STEPS: dict[type[ParticipantMessage], str] = {
    Hello: "hello",
    Advert: "join",
    SealedShares: "shares",
    MaskedInputPiece: "masked_input",
    Confirm: "confirm",
    UnmaskShares: "unmask",
}

Outcome = Receipt | AlreadyCounted | ComeBack | RoundAborted


class NoLongerWaitingError(TelemetryError):
    """The report left the spool meanwhile (consent withdrawn, expired, sent by another process)."""


class LedgerBehindError(TelemetryError):
    """The collector has booked more for this identity than the ledger holds: a restored backup."""


class Session:
    """Drives `participant` over `stream` until its outcome.

    before_send(step): called before each message leaves; if it raises, the stream is broken off and the
    exception goes on. on_joined(total micro-epsilon): False ends the session. hand_over(): commits that the
    report may leave; False ends the session. on_confirm(sum): before the status of that sum is signed, so that its
    sizes are known even if its receipt is lost. All wait for the disk, so all are awaited, one after the other.
    """

    def __init__(
        self,
        stream: Stream,
        participant: Participant,
        *,
        max_wait_s: float,
        on_joined: Callable[[int], Awaitable[bool]],
        hand_over: Callable[[], Awaitable[bool]],
        on_confirm: Callable[[ConfirmedSum], Awaitable[None]],
        before_send: Callable[[str], object] | None = None,
    ) -> None:
        self._stream = stream
        self._participant = participant
        self._step_s = max_wait_s + STEP_ALLOWANCE_S
        self._on_joined = on_joined
        self._hand_over = hand_over
        self._on_confirm = on_confirm
        self._before_send = before_send
        self._handed_over = False

    @property
    def in_round(self) -> bool:
        """Would leaving now cost the others a dropout?"""
        return self._participant.roster_size is not None

    async def run(self) -> Outcome:
        """The outcome. Raises TimeoutError, CallFailedError, WireError, RemoteProtocolError and the two above."""
        try:
            outcome = await self._run()
        except BaseException:
            self._stream.cancel()
            raise
        await self._stream.close()
        return outcome

    async def _run(self) -> Outcome:
        async with asyncio.timeout(FIRST_ANSWER_S):
            await self._send(self._participant.hello())
            await self._answer_next()
        while (outcome := self._participant.outcome) is None:
            async with asyncio.timeout(self._step_s):
                await self._answer_next()
        return outcome

    async def _answer_next(self) -> None:
        message = await self._stream.receive()
        if message is None:
            raise RemoteProtocolError(AbortReason.OUT_OF_ORDER, "the stream ended in the middle of a round")
        replies = self._participant.receive(message, time.monotonic())
        if isinstance(message, Joined) and not await self._on_joined(message.spent_micro_epsilon):
            raise LedgerBehindError("the collector has booked more for this identity than the ledger holds")
        for reply in replies:
            await self._send(reply)

    async def _send(self, message: ParticipantMessage) -> None:
        if self._before_send is not None:
            self._before_send(STEPS[type(message)])
        if isinstance(message, MaskedInputPiece) and not self._handed_over:
            if not await self._hand_over():
                raise NoLongerWaitingError("the report is no longer in the spool")
            self._handed_over = True
        if isinstance(message, Confirm):
            await self._remember()
        await self._stream.send(message)

    async def _remember(self) -> None:
        said, resent = self._participant.confirmed, self._participant.resent_contributors
        if said is None or resent is None:
            return
        # where the disk fails here, leaving would cost all others their round; and a receipt may come all the same
        with contextlib.suppress(StorageError):
            await self._on_confirm(ConfirmedSum(said.round_id, said.contributors, said.roster_size, resent))
