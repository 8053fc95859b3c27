"""Which of the reports that a device offers unmasked are wanted: plan, period, seat, standing, and room for them.

Rules of this file: deduplication, blame, opting out, seats and limits are those of rounds, so a report that waits for
a cohort, or stands in a round, cannot come unmasked at the same time; what all calls hold at once is bounded, and so
is what one call may send and what one identity may hold (in one call at a time), so that a few devices that offer much
and send nothing leave room for the others; a refusal is of one report and counted by its reason.
What it does not do: it reads no report and proves no identity (`direct` and `collector.direct` do).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from client_sdk.direct import ALREADY_COUNTED, MAX_CALL_BYTES, WANTED, report_bytes
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.plan import Plan
from client_sdk.wire.messages import DirectHello, DirectStanding
from collector.direct import ELEMENT_BYTES, Offered, why_not_taken
from collector.service.direct_sums import Result
from collector.service.mailbox import SeatKey
from collector.service.monitoring import IDENTITY_FULL
from collector.service.servicers import Services
from collector.service.storage_rows import Standing

MOST_HELD_BYTES: Final = 256_000_000
"""Of reports that all calls together may hold at once, packed and read."""

MOST_OF_ONE_BYTES: Final = MOST_HELD_BYTES // 16
"""Of these, one identity's; but one report, however large, it may always have."""

MOST_SEATS: Final = 128
"""Reports of one device that are on their way at once: a whole call's, and some that a broken one left behind."""


@dataclass
class OfferedReport:
    """One offered report. word: what is said of it so far; plan, seat and size: while it is wanted.

    size: bytes that may be sent; held: bytes of memory that are kept for it, packed and read.
    """

    offered: Offered
    word: str = ""
    round_id: str = ""
    contributors: int = 0
    plan: Plan | None = None
    seat: SeatKey | None = field(default=None, repr=False)
    size: int = 0
    held: int = 0
    done: asyncio.Future[Result] | None = field(default=None, repr=False)

    def counted(self, word: str, round_id: str, contributors: int) -> None:
        """A sum holds it."""
        self.word, self.round_id, self.contributors = word, round_id, contributors


class DirectDesk:
    """Of one collector; used on the event loop only."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._monitor = services.tools.monitor
        self._clock = services.tools.clock
        self._held = 0
        self._held_by: Counter[str] = Counter()

    async def welcome(self, hello: DirectHello, device_id: str, reports: Sequence[OfferedReport]) -> DirectStanding:
        """What is booked for a proven identity, and which of its reports are wanted. Raises RejectionError, StoreError.

        Asked once each report has its seat: one that is just being stored elsewhere keeps its own until then.
        """
        for report in reports:
            self._seat(hello, device_id, report)
        questions = [report.seat for report in reports if report.seat is not None] or [(device_id, "", 0)]
        found = await asyncio.gather(*map(self._services.standings.ask, questions))
        standings = dict(zip(questions, found, strict=True))
        latest = found[-1]
        if latest.opted_out:
            raise RejectionError(RejectionReason.OPTED_OUT)
        in_call = 0
        alone = self._held_by[device_id] == 0
        for report in reports:
            if report.seat is not None:
                in_call += self._judge(report, standings[report.seat], in_call, alone=alone)
        return DirectStanding(latest.reports, latest.micro_epsilon, *answers(reports))

    def _seat(self, hello: DirectHello, device_id: str, report: OfferedReport) -> None:
        offered = report.offered
        plan = self._services.catalogue.by_hash(offered.plan_hash)
        reason = why_not_taken(hello, offered, plan, self._clock())
        if reason is None and plan is not None:
            seat = (device_id, plan.name, offered.period_start)
            try:
                self._services.joins.one(seat)
                self._services.lobby.take_seat(seat, MOST_SEATS)
            except RejectionError as error:
                reason = error.reason
            else:
                report.plan, report.seat = plan, seat
        if reason is not None:
            self.refuse(report, reason)

    def _judge(self, report: OfferedReport, standing: Standing, in_call: int, *, alone: bool) -> int:
        """Say what is to become of a seated report; the bytes that it may send.

        alone: no other call of this identity holds anything.
        """
        if standing.counted is not None:
            self._monitor.count("already_counted")
            report.counted(ALREADY_COUNTED, *standing.counted)
            return 0
        if standing.blamed:
            self.refuse(report, RejectionReason.BLAMED)
            return 0
        size = 0 if report.plan is None else report_bytes(report.plan)
        if not alone:
            self._monitor.count(IDENTITY_FULL)
        if in_call + size > MAX_CALL_BYTES or not alone or not self._hold(report, size):
            self.refuse(report, RejectionReason.BUSY)
            return 0
        report.word = WANTED
        return size

    def _hold(self, report: OfferedReport, size: int) -> bool:
        if report.plan is None or report.seat is None:
            return False
        needed, device_id = size + ELEMENT_BYTES * report.plan.length, report.seat[0]
        own = self._held_by[device_id]
        if own and own + needed > MOST_OF_ONE_BYTES:
            self._monitor.count(IDENTITY_FULL)
            return False
        if self._held + needed > MOST_HELD_BYTES:
            return False
        self._held, self._held_by[device_id] = self._held + needed, own + needed
        report.size, report.held = size, needed
        return True

    def let_go(self, report: OfferedReport) -> None:
        """Seat and memory, at once or when what is being stored is stored."""
        if report.done is not None and not report.done.done():
            report.done.add_done_callback(partial(self._let_go_of, report))
            return
        self._let_go_of(report)

    def _let_go_of(self, report: OfferedReport, _done: object = None) -> None:
        if report.seat is None:
            return
        device_id = report.seat[0]
        self._held -= report.held
        self._held_by[device_id] -= report.held
        if not self._held_by[device_id]:
            del self._held_by[device_id]
        report.size = report.held = 0
        self._services.lobby.give_back_seat(report.seat)
        report.seat = None

    def refuse(self, report: OfferedReport, reason: RejectionReason) -> None:
        """It stays with its device."""
        self._monitor.rejected(reason)
        report.word = reason.value


def answers(reports: Sequence[OfferedReport]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """The three lists of a standing, or of receipts."""
    return (
        tuple(report.word for report in reports),
        tuple(report.round_id for report in reports),
        tuple(report.contributors for report in reports),
    )
