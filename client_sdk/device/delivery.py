"""One pass over the spool: have a certificate, connect, carry each due report through a round, book the result.

Rules of this file: every attempt carries the spooled bytes; a report leaves the spool only for a receipt,
"already counted", or a stated limit, always counted; whatever fails is tried again after a backoff with full
jitter that is stored, so a restart does not forget it; nothing of the network raises into the host.
Every call of the store waits for the disk, so each is awaited (`offload`): an asyncio host's loop goes on.
What it does not do: it starts no thread of its own and sleeps for nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from client_sdk.device import advice
from client_sdk.device.enrolment import ENROLMENT, Enrolment, NoCertificateError
from client_sdk.device.offload import run_job
from client_sdk.device.period import ID_BYTES, uniform
from client_sdk.device.pinning import PlanPin, check_fetched, held_plans
from client_sdk.device.reporting import Outages
from client_sdk.device.session import LedgerBehindError, NoLongerWaitingError, Outcome, Session
from client_sdk.device.spool import Lease, SpoolEntry
from client_sdk.device.storage import LEASE_S, DeviceStore
from client_sdk.device.transport import CallFailedError, Connection, Stream, TlsFailedError, Transport
from client_sdk.device.views import UploadSummary
from client_sdk.errors import (
    AbortReason,
    PlanError,
    PlanRefusedError,
    RefusalReason,
    RemoteProtocolError,
    StorageError,
    TelemetryError,
    WireError,
)
from client_sdk.identity import IdentityKey
from client_sdk.mechanisms import Entropy
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import unpack_vector
from client_sdk.secagg.messages import AlreadyCounted, ComeBack, Receipt
from client_sdk.secagg.participant import Participant
from client_sdk.tls_faults import TlsFault
from client_sdk.wire.messages import GetPlanRequest

BACKOFF_BASE_S = 2.0
BACKOFF_CAP_S = 3600.0
LASTING_REFUSAL_ATTEMPTS = 8
"""A refusal that will not pass by itself backs off as if it were at least the ninth in a row."""

COLLECTOR = "collector"
STORE = "device store"
LEDGER = "ledger"

BeforeSend = Callable[[str], object]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose reports these are, and the registrar's word for it."""

    identity: IdentityKey
    certificate: bytes


@dataclass
class Delivery:
    """Carries reports from one folder's spool to one collector.

    off_loop: the caller's loop has other things to do, so wait for the disk in its executor.
    """

    transport: Transport
    enrolment: Enrolment
    clock: Callable[[], float]
    entropy: Entropy
    outages: Outages = field(default_factory=Outages, repr=False)
    off_loop: bool = False
    session: Session | None = field(default=None, repr=False)
    plan_doubted: bool = False  # the collector has called a report's plan (or period) one that is not open there
    _owner: bytes = field(default_factory=lambda: os.urandom(ID_BYTES), repr=False)
    _plans: dict[bytes, Plan] = field(default_factory=dict, repr=False)

    @property
    def in_round(self) -> bool:
        """Would stopping now cost others a dropout?"""
        session = self.session
        return session is not None and session.in_round

    async def _wait_for(self, job: Callable[[], Result]) -> Result:
        return await run_job(job, off_loop=self.off_loop)

    async def run(
        self, store: DeviceStore, *, everything: bool, before_send: BeforeSend | None = None
    ) -> UploadSummary:
        """Try every report that is due (or all that wait). Raises only what `before_send` raises, and StorageError."""
        summary = UploadSummary()
        entries = await self._begin_run(store, everything=everything)
        if entries is None:
            summary.add(RefusalReason.OTHER_PROCESS.value)
        elif entries:
            try:
                await self._deliver(store, entries, before_send, summary)
            finally:
                await self._wait_for(partial(store.end_run, self._owner))
        summary.waiting = await self._wait_for(store.waiting)
        summary.next_attempt_at = await self._wait_for(store.next_due)
        return summary

    async def _begin_run(self, store: DeviceStore, *, everything: bool) -> list[SpoolEntry] | None:
        now = self.clock()
        lease = Lease(self._owner, os.getpid(), _node(), now + LEASE_S)
        try:
            return await self._wait_for(partial(store.begin_run, lease, now, everything=everything, alive=_lives))
        except asyncio.CancelledError:  # the lease may have been taken all the same
            await self._wait_for(partial(store.end_run, self._owner))
            raise

    async def _deliver(
        self, store: DeviceStore, entries: list[SpoolEntry], before_send: BeforeSend | None, summary: UploadSummary
    ) -> None:
        identity = IdentityKey(await self._wait_for(store.identity))
        try:
            owner = Owner(identity, await self.enrolment.certificate(store, identity))
        except NoCertificateError as error:
            await self._book_no_certificate(store, entries[0], error, summary)
            return
        started = time.monotonic()
        async with self.transport.connect() as connection:
            for entry in entries:
                # the lease is not renewed: leave the rest to the next pass well before it ends
                if time.monotonic() - started > LEASE_S / 2:
                    break
                if not await self._deliver_one(store, connection, owner, entry, before_send, summary):
                    break
        await self.enrolment.renew_in_time(store, identity)

    async def _book_no_certificate(
        self, store: DeviceStore, entry: SpoolEntry, error: NoCertificateError, summary: UploadSummary
    ) -> None:
        """Everything waits: no collector takes a report without one."""
        attempts = max(entry.attempts, LASTING_REFUSAL_ATTEMPTS) if error.lasting else entry.attempts
        self.outages.begin(ENROLMENT, str(error))
        not_before = self.clock() + self._backoff_s(attempts)
        await self._wait_for(
            partial(
                store.postpone, entry.key, not_before, error.reason, failed=True, everything=True, cause=error.cause
            )
        )
        summary.add(error.reason)

    async def fetch_plan(self, store: DeviceStore, pin: PlanPin) -> Plan:
        """The collector's newest plan, held from now on.

        Raises CallFailedError, WireError, PlanError, RemoteProtocolError, and PlanRefusedError for one that this device
        does not go over to.
        """
        held = held_plans(await self._wait_for(store.pinned_plans), pin)
        async with self.transport.connect() as connection:
            answer = await connection.get_plan(GetPlanRequest(held[0].plan.name if held else ""))
        plan = parse_plan(answer.toml)
        if plan.hash != answer.plan_hash:
            raise RemoteProtocolError(AbortReason.MALFORMED, "the plan is not what its hash says")
        check_fetched(plan, answer.signature, pin, held)
        if not await self._wait_for(partial(store.pin_plan, plan, answer.signature, self.clock())):
            raise PlanRefusedError(RefusalReason.PLAN_CHANGED_WITHOUT_VERSION)
        return plan

    async def _deliver_one(
        self,
        store: DeviceStore,
        connection: Connection,
        owner: Owner,
        entry: SpoolEntry,
        before_send: BeforeSend | None,
        summary: UploadSummary,
    ) -> bool:
        """Book what became of one report. False: stop this pass."""
        try:
            plan = self._plan(entry)
            if entry.resent and plan.delivery.resend == "never":
                await self._give_up(store, entry, RefusalReason.RESEND_NEVER)
                summary.add(RefusalReason.RESEND_NEVER.value)
                return True
            participant = await self._participant(store, owner, entry, plan)
            if participant is None:
                summary.add(RefusalReason.STORAGE.value)
                return True
            outcome = await self._attempt(store, connection.participate(), participant, entry, plan, before_send)
        except NoLongerWaitingError:
            return True
        except LedgerBehindError as error:
            self.outages.begin(LEDGER, f"{error}; the budget counts as used up until reset_ledger()")
            summary.add(RefusalReason.LEDGER_DAMAGED.value)
            return False
        except StorageError:
            raise
        except (TelemetryError, TimeoutError) as error:
            return await self._book_failure(store, entry, error, summary)
        await self._book_outcome(store, entry, outcome, participant, summary)
        return True

    def _plan(self, entry: SpoolEntry) -> Plan:
        if entry.plan_hash not in self._plans:
            self._plans[entry.plan_hash] = parse_plan(entry.plan_text)
        return self._plans[entry.plan_hash]

    async def _participant(self, store: DeviceStore, owner: Owner, entry: SpoolEntry, plan: Plan) -> Participant | None:
        try:
            vector = unpack_vector(entry.report)
        except StorageError:
            await self._give_up(store, entry, RefusalReason.STORAGE)
            return None
        report_id = owner.identity.report_id(plan.name, entry.period_start)
        return Participant(
            owner.identity,
            owner.certificate,
            self.enrolment.registrar_key,
            plan.hash,
            entry.period_start,
            report_id,
            vector,
            plan.round_rules(),
            entry.resent,
            entry.min_cohort,
            self.entropy,
        )

    async def _give_up(self, store: DeviceStore, entry: SpoolEntry, reason: RefusalReason) -> None:
        await self._wait_for(partial(store.give_up, entry.key, reason, self.clock()))

    async def _attempt(
        self,
        store: DeviceStore,
        stream: Stream,
        participant: Participant,
        entry: SpoolEntry,
        plan: Plan,
        before_send: BeforeSend | None,
    ) -> Outcome:
        self.session = Session(
            stream,
            participant,
            max_wait_s=plan.cohort.max_wait_s,
            on_joined=lambda total: self._wait_for(partial(store.note_collector_total, total)),
            hand_over=lambda: self._wait_for(partial(store.hand_over, entry.key, resent=entry.resent)),
            before_send=before_send,
        )
        try:
            return await self.session.run()
        finally:
            self.session = None

    async def _book_outcome(
        self,
        store: DeviceStore,
        entry: SpoolEntry,
        outcome: Outcome,
        participant: Participant,
        summary: UploadSummary,
    ) -> None:
        reason, booking = self._booking(store, entry, outcome, participant.resent_contributors)
        for what in (COLLECTOR, *map(_outage_of, TlsFault)):
            self.outages.end(what)
        await self._wait_for(booking)
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
            at = now + self._backoff_s(entry.attempts) if past else outcome.at
            at += uniform(outcome.jitter_s, self.entropy)
            return "come_back", partial(store.postpone, key, at, "come_back", failed=past)
        reason = f"aborted_{_known_reason(outcome.reason)}"
        return reason, partial(store.postpone, key, now + self._backoff_s(entry.attempts), reason, failed=True)

    async def _book_failure(
        self, store: DeviceStore, entry: SpoolEntry, error: Exception, summary: UploadSummary
    ) -> bool:
        """Put the report off. False: the collector itself is out of reach, so stop this pass."""
        reason, attempts, cause = failure_reason(error), entry.attempts, advice.of_report(error, entry.plan_hash)
        out_of_reach = isinstance(error, TimeoutError) or (isinstance(error, CallFailedError) and error.out_of_reach)
        if isinstance(error, CallFailedError) and error.lasting:
            attempts = max(attempts, LASTING_REFUSAL_ATTEMPTS)
        if isinstance(error, TlsFailedError):
            self.outages.begin(
                _outage_of(error.fault), f"not connected: {error.fault.says}; reports wait on disk and are tried again"
            )
        else:
            text = f"report not delivered ({reason}); it waits on disk and is tried again{advice.clause(cause)}"
            self.outages.begin(COLLECTOR, text)
        not_before, counted = self.clock() + self._backoff_s(attempts), None if cause is None else cause.counted
        await self._wait_for(
            partial(store.postpone, entry.key, not_before, reason, failed=True, everything=out_of_reach, cause=counted)
        )
        summary.add(reason)
        self.plan_doubted = self.plan_doubted or reason == "rpc_failed_precondition"
        if reason == "rpc_unauthenticated":  # so would every other report be: a newer certificate first
            self.enrolment.doubt()
            return False
        return not out_of_reach

    def _backoff_s(self, attempts: int) -> float:
        """Exponential with full jitter."""
        return uniform(min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(attempts, 32)), self.entropy)


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


def _known_reason(text: str) -> str:
    """The collector's word, if it is one of ours: what it invents must not become a counter."""
    return text if text in {reason.value for reason in AbortReason} else "other"


def _node() -> str:
    """This machine's (or container's) name: a process id means nothing on another one."""
    return os.uname().nodename if hasattr(os, "uname") else ""


def _lives(pid: int) -> bool:
    if os.name != "posix":
        return True  # there is no harmless way to ask; the lease's end decides
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
