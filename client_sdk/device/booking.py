"""What becomes of attempts: outcomes and failures as rows of the store, each with its backoff, counter and log line.

Rules of this file: a report leaves the spool only for a receipt, "already counted", or a stated limit, always counted;
whatever fails is tried again after a backoff with full jitter that is stored, so a restart does not forget it; a word
of the collector's that is none of ours becomes no counter. Every call of the store waits for the disk, so each is
awaited. What it does not do: it attempts nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from client_sdk.device import advice
from client_sdk.device.access import LEDGER
from client_sdk.device.direct import WITHHELD, Answer
from client_sdk.device.enrolment import ENROLMENT, Enrolment, NoCertificateError
from client_sdk.device.interfaces import CallFailedError, TlsFailedError
from client_sdk.device.offload import run_job
from client_sdk.device.period import uniform
from client_sdk.device.reporting import Outages
from client_sdk.device.session import LedgerBehindError, Outcome
from client_sdk.device.spool import SpoolEntry
from client_sdk.device.storage import DeviceStore
from client_sdk.device.store_spool import DirectBooking
from client_sdk.device.views import UploadSummary
from client_sdk.direct import ALREADY_COUNTED, COUNTED
from client_sdk.errors import (
    AbortReason,
    PlanError,
    RefusalReason,
    RejectionReason,
    RemoteProtocolError,
    WireError,
)
from client_sdk.mechanisms import Entropy
from client_sdk.secagg.messages import AlreadyCounted, ComeBack, Receipt
from client_sdk.tls_faults import TlsFault

BACKOFF_BASE_S = 2.0
BACKOFF_CAP_S = 3600.0
LASTING_REFUSAL_ATTEMPTS = 8
"""A refusal that will not pass by itself backs off as if it were at least the ninth in a row."""

COLLECTOR = "collector"

PASSING = frozenset(
    reason.value
    for reason in (
        RejectionReason.BUSY,
        RejectionReason.TOO_MANY_JOINS,
        RejectionReason.DUPLICATE_IDENTITY,
        RejectionReason.SHUTTING_DOWN,
        RejectionReason.STORAGE,
    )
)
"""Refusals of a direct report that pass by themselves; all others last."""

Result = TypeVar("Result")


@dataclass
class Bookkeeper:
    """Books for one folder. off_loop: as in `Delivery`.

    plan_doubted: the collector has called a report's plan (or period) one that is not open there.
    """

    enrolment: Enrolment
    clock: Callable[[], float]
    entropy: Entropy
    outages: Outages = field(repr=False)
    off_loop: bool = False
    plan_doubted: bool = False

    async def wait_for(self, job: Callable[[], Result]) -> Result:
        """A call of the store."""
        return await run_job(job, off_loop=self.off_loop)

    def backoff_s(self, attempts: int) -> float:
        """Exponential with full jitter."""
        return uniform(min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(attempts, 32)), self.entropy)

    def works(self) -> None:
        """The collector has answered."""
        for what in (COLLECTOR, *map(_outage_of, TlsFault)):
            self.outages.end(what)

    # --- no attempt ---

    async def give_up(
        self, store: DeviceStore, entry: SpoolEntry, reason: RefusalReason, summary: UploadSummary
    ) -> None:
        """Drop one report for a stated limit. Stays charged."""
        await self.wait_for(partial(store.give_up, entry.key, reason, self.clock()))
        summary.add(reason.value)

    async def keep_back(
        self, store: DeviceStore, entry: SpoolEntry, reason: RefusalReason, summary: UploadSummary
    ) -> None:
        """A report that this client must not send waits for another one, or for its end."""
        at = self.clock() + self.backoff_s(LASTING_REFUSAL_ATTEMPTS)
        await self.wait_for(partial(store.postpone, {entry.key: at}, reason.value, failed=False))
        summary.add(reason.value)

    async def no_certificate(
        self, store: DeviceStore, entry: SpoolEntry, error: NoCertificateError, summary: UploadSummary
    ) -> None:
        """Everything waits: no collector takes a report without one."""
        attempts = max(entry.attempts, LASTING_REFUSAL_ATTEMPTS) if error.lasting else entry.attempts
        self.outages.begin(ENROLMENT, str(error))
        not_before = self.clock() + self.backoff_s(attempts)
        await self.wait_for(
            partial(
                store.postpone, {entry.key: not_before}, error.reason, failed=True, everything=True, cause=error.cause
            )
        )
        summary.add(error.reason)

    def ledger_behind(self, error: LedgerBehindError, summary: UploadSummary) -> None:
        """The store has marked its ledger; nothing leaves any more."""
        self.outages.begin(LEDGER, f"{error}; the budget counts as used up until reset_ledger()")
        summary.add(RefusalReason.LEDGER_DAMAGED.value)

    # --- rounds ---

    async def outcome(
        self,
        store: DeviceStore,
        entry: SpoolEntry,
        outcome: Outcome,
        resent_contributors: int | None,
        summary: UploadSummary,
    ) -> None:
        """How a round ended for its report."""
        reason, booking = self._booking(store, entry, outcome, resent_contributors)
        self.works()
        await self.wait_for(booking)
        summary.add(reason)

    def _booking(
        self, store: DeviceStore, entry: SpoolEntry, outcome: Outcome, resent_contributors: int | None
    ) -> tuple[str, Callable[[], None]]:
        """What became of the report, in one word, and the call that books it."""
        key, now = entry.key, self.clock()
        if isinstance(outcome, Receipt):
            cohort = {"contributors": outcome.contributors, "roster_size": outcome.roster_size}
            counts = {**cohort, "resent_contributors": resent_contributors}
            return "counted", partial(store.finish, key, "counted", now, round_id=outcome.round_id, **counts)
        if isinstance(outcome, AlreadyCounted):
            reason, contributors = "already_counted", outcome.contributors
            return reason, partial(store.finish, key, reason, now, round_id=outcome.round_id, contributors=contributors)
        if isinstance(outcome, ComeBack):
            past = outcome.at <= now  # this clock runs ahead, or somebody wants us to spin: back off like a failure
            at = now + self.backoff_s(entry.attempts) if past else outcome.at
            at += uniform(outcome.jitter_s, self.entropy)
            return "come_back", partial(store.postpone, {key: at}, "come_back", failed=past)
        reason = f"aborted_{_known(outcome.reason, AbortReason)}"
        return reason, partial(store.postpone, {key: now + self.backoff_s(entry.attempts)}, reason, failed=True)

    # --- direct calls ---

    async def answers(
        self, store: DeviceStore, entries: Sequence[SpoolEntry], answers: Sequence[Answer], summary: UploadSummary
    ) -> None:
        """What the collector said of reports that were offered unmasked."""
        now = self.clock()
        booked = [self._direct_booking(entry, answer, now) for entry, answer in zip(entries, answers, strict=True)]
        self.works()
        await self.wait_for(partial(store.book_direct, booked, now))
        for one in booked:
            summary.add(one.outcome)

    def _direct_booking(self, entry: SpoolEntry, answer: Answer, now: float) -> DirectBooking:
        if answer.word in (COUNTED, ALREADY_COUNTED):
            return DirectBooking(entry.key, answer.word, answer.round_id, answer.contributors)
        self.plan_doubted = self.plan_doubted or answer.word == RejectionReason.UNKNOWN_PLAN.value
        attempts = entry.attempts if answer.word in PASSING else max(entry.attempts, LASTING_REFUSAL_ATTEMPTS)
        word = answer.word if answer.word == WITHHELD else _known(answer.word, RejectionReason)
        reason = f"direct_{word}"
        return DirectBooking(entry.key, reason, not_before=now + self.backoff_s(attempts))

    # --- failures ---

    async def failure(
        self, store: DeviceStore, entries: Sequence[SpoolEntry], error: Exception, summary: UploadSummary
    ) -> bool:
        """Put these reports off, one round's or one call's. False: the collector is out of reach, so stop this pass."""
        reason, cause = failure_reason(error), advice.of_report(error, entries[0].plan_hash)
        out_of_reach = isinstance(error, TimeoutError) or (isinstance(error, CallFailedError) and error.out_of_reach)
        self._say(error, reason, advice.clause(cause))
        least = LASTING_REFUSAL_ATTEMPTS if isinstance(error, CallFailedError) and error.lasting else 0
        now, counted = self.clock(), None if cause is None else cause.counted
        times = {entry.key: now + self.backoff_s(max(entry.attempts, least)) for entry in entries}
        await self.wait_for(partial(store.postpone, times, reason, failed=True, everything=out_of_reach, cause=counted))
        for _ in entries:
            summary.add(reason)
        self.plan_doubted = self.plan_doubted or reason == "rpc_failed_precondition"
        if reason == "rpc_unauthenticated":  # so would every other report be: a newer certificate first
            self.enrolment.doubt()
            return False
        return not out_of_reach

    def _say(self, error: Exception, reason: str, clause: str) -> None:
        if isinstance(error, TlsFailedError):
            says = f"not connected: {error.fault.says}; reports wait on disk and are tried again"
            self.outages.begin(_outage_of(error.fault), says)
        else:
            text = f"report not delivered ({reason}); it waits on disk and is tried again{clause}"
            self.outages.begin(COLLECTOR, text)


def _outage_of(fault: TlsFault) -> str:
    """One warning for each kind of fault, whatever else is out of order."""
    return f"collector's certificate ({fault.value})"


def failure_reason(error: Exception) -> str:
    """The counter's name for an attempt that ended with `error`."""
    if isinstance(error, TlsFailedError):
        return error.status
    if isinstance(error, CallFailedError):
        return f"rpc_{error.status}"
    if isinstance(error, RemoteProtocolError):
        return f"left_{error.reason.value}"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, WireError):
        return "malformed_answer"
    return "plan_error" if isinstance(error, PlanError) else "failed"


def _known(text: str, vocabulary: type[AbortReason] | type[RejectionReason]) -> str:
    """The collector's word, if it is one of ours: what it invents must not become a counter."""
    return text if text in {reason.value for reason in vocabulary} else "other"
