"""Reports that leave unmasked: all that are due in one call, driven over a connection.

Rules of this file: the collector's total for this identity is known, and has been compared, before the first report
leaves; the spool says "handed over" on disk before the first byte of any of them does, and what it does not let go is
not sent; before that nothing leaves that follows from a report's contents; every wait has a deadline.
What it does not do: it decides nothing about a report's fate (`booking` does), nor which reports may go this way
(`delivery` does, by plan and by the host's permission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from client_sdk.device.interfaces import DirectStream
from client_sdk.device.session import FIRST_ANSWER_S, STEP_ALLOWANCE_S, LedgerBehindError
from client_sdk.direct import ALREADY_COUNTED, COUNTED, SLOWEST_BYTES_S, WANTED, offer_message, pieces, seal_message
from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.identity import IdentityKey
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

STEPS: dict[type[DeliverRequest], str] = {
    DirectHello: "direct_hello",
    DirectOffer: "direct_offer",
    DirectSeal: "direct_seal",
}
REPORTS_STEP = "direct_reports"

WITHHELD = "withheld"
"""Of a report that was wanted and did not leave: the spool has let go of it."""

M = TypeVar("M", DirectChallenge, DirectStanding, DirectReceipts)


@dataclass(frozen=True, slots=True)
class DirectReport:
    """One report as it is offered. data: the spool's bytes."""

    plan_hash: bytes
    period_start: int
    report_id: bytes
    resent: bool
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the collector says of a report: `counted`, `already_counted`, or why not. The rest: of the sum."""

    word: str
    round_id: str = ""
    contributors: int = 0


class DirectSession:
    """Offers `reports` (one at least) over `stream` and sends those that are wanted.

    on_standing(total micro-epsilon): False ends the call. hand_over(places): commits that these reports may leave, and
    answers for each whether it may. before_send(step): as in `Session`.
    """

    def __init__(
        self,
        stream: DirectStream,
        identity: IdentityKey,
        certificate: bytes,
        reports: Sequence[DirectReport],
        *,
        on_standing: Callable[[int], Awaitable[bool]],
        hand_over: Callable[[Sequence[int]], Awaitable[Sequence[bool]]],
        before_send: Callable[[str], object] | None = None,
    ) -> None:
        self._stream = stream
        self._identity = identity
        self._hello = DirectHello(identity.public_key, certificate)
        self._reports = tuple(reports)
        self._on_standing = on_standing
        self._hand_over = hand_over
        self._before_send = before_send

    async def run(self) -> list[Answer]:
        """One for each report. Raises TimeoutError, CallFailedError, WireError, RemoteProtocolError, LedgerBehindError.

        A report that the spool has let go of meanwhile is answered with WITHHELD.
        """
        try:
            answers = await self._run()
        except BaseException:
            self._stream.cancel()
            raise
        await self._stream.close()
        return answers

    async def _run(self) -> list[Answer]:
        async with asyncio.timeout(FIRST_ANSWER_S):
            await self._send(self._hello)
            challenge = await self._receive(DirectChallenge)
            offer, offered = self._offer(challenge.nonce)
            await self._send(offer)
            standing = await self._receive(DirectStanding)
        answers = self._answers(standing, {WANTED, ALREADY_COUNTED})
        if not await self._on_standing(standing.spent_micro_epsilon):
            raise LedgerBehindError("the collector has booked more for this identity than the ledger holds")
        wanted = [place for place, answer in enumerate(answers) if answer.word == WANTED]
        leaving = await self._commit(wanted)
        if leaving:
            await self._send_reports(leaving)
            async with asyncio.timeout(STEP_ALLOWANCE_S):
                await self._seal(offered, leaving)
                answers = self._answers(await self._receive(DirectReceipts), {COUNTED, ALREADY_COUNTED})
        return [self._believed(place, answer, leaving) for place, answer in enumerate(answers)]

    def _offer(self, nonce: bytes) -> tuple[DirectOffer, bytes]:
        """And what was signed."""
        unsigned = DirectOffer(
            tuple(report.plan_hash for report in self._reports),
            tuple(report.period_start for report in self._reports),
            tuple(report.report_id for report in self._reports),
            tuple(report.resent for report in self._reports),
        )
        message = offer_message(self._hello, nonce, unsigned)
        return replace(unsigned, signature=self._identity.sign(message)), message

    async def _commit(self, wanted: Sequence[int]) -> list[int]:
        if not wanted:
            return []
        released = await self._hand_over(wanted)
        return [place for place, may_leave in zip(wanted, released, strict=True) if may_leave]

    async def _send_reports(self, places: Sequence[int]) -> None:
        """Within the time that a collector gives so many bytes; TimeoutError beyond it."""
        total = sum(len(self._reports[place].data) for place in places)
        async with asyncio.timeout(STEP_ALLOWANCE_S + total / SLOWEST_BYTES_S):
            for place in places:
                if self._before_send is not None:
                    self._before_send(REPORTS_STEP)
                for piece in pieces(place, self._reports[place].data):
                    await self._stream.send(piece)

    async def _seal(self, offered: bytes, places: Sequence[int]) -> None:
        message = seal_message(offered, {place: self._reports[place].data for place in places})
        await self._send(DirectSeal(self._identity.sign(message)))

    def _answers(self, message: DirectStanding | DirectReceipts, held: set[str]) -> list[Answer]:
        """held: words that say what is; every other one is a reason, whatever it is."""
        answers = list(map(Answer, message.answers, message.round_ids, message.contributors))
        if len(answers) != len(self._reports):
            raise RemoteProtocolError(AbortReason.MALFORMED, "not one answer for each offered report")
        if any(one.word in held - {WANTED} and not (one.round_id and one.contributors) for one in answers):
            raise RemoteProtocolError(AbortReason.MALFORMED, "a report is counted, but in no sum")
        return answers

    def _believed(self, place: int, answer: Answer, sent: Sequence[int]) -> Answer:
        """What has not left cannot have been counted by this call, and what has left is not wanted any more."""
        if place not in sent and answer.word in (WANTED, COUNTED):
            return Answer(WITHHELD)
        return Answer("other") if answer.word == WANTED else answer

    async def _receive(self, kind: type[M]) -> M:
        message: DeliverResponse | None = await self._stream.receive()
        if not isinstance(message, kind):
            raise RemoteProtocolError(AbortReason.OUT_OF_ORDER, "the call ended, or went on, out of order")
        return message

    async def _send(self, message: DeliverRequest) -> None:
        if self._before_send is not None:
            self._before_send(STEPS[type(message)])
        await self._stream.send(message)
