"""One pass over the spool: have a certificate, connect, carry each due report to the collector, book the result.

Rules of this file: every attempt carries the spooled bytes, by a round or, where the plan says so and the host allows
it, unmasked, all such reports in one call; a report whose plan goes direct stays here while the host does not allow
it, and one that may only fall back goes on trying rounds; nothing of the network raises into the host.
Every call of the store waits for the disk, so each is awaited (`offload`): an asyncio host's loop goes on.
What it does not do: it starts no thread of its own, sleeps for nothing, and books nothing itself (`booking`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from client_sdk.device.booking import Bookkeeper
from client_sdk.device.direct_calls import BeforeSend, Owner, Pass, deliver_direct
from client_sdk.device.enrolment import Enrolment, NoCertificateError
from client_sdk.device.interfaces import Stream, Transport
from client_sdk.device.period import ID_BYTES
from client_sdk.device.pinning import PlanPin, check_fetched, held_plans
from client_sdk.device.reporting import Outages
from client_sdk.device.session import LedgerBehindError, NoLongerWaitingError, Outcome, Session
from client_sdk.device.spool import Lease, SpoolEntry
from client_sdk.device.storage import DeviceStore
from client_sdk.device.store_spool import LEASE_S
from client_sdk.device.views import UploadSummary
from client_sdk.errors import (
    AbortReason,
    PlanError,
    PlanRefusedError,
    RefusalReason,
    RemoteProtocolError,
    StorageError,
    TelemetryError,
)
from client_sdk.identity import IdentityKey
from client_sdk.mechanisms import Entropy
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import unpack_array
from client_sdk.secagg.participant import Participant
from client_sdk.wire.messages import GetPlanRequest


@dataclass
class Delivery:
    """Carries reports from one folder's spool to one collector.

    off_loop: the caller's loop has other things to do, so wait for the disk in its executor. allow_direct: the host
    allows reports to leave unmasked where their plan says so.
    """

    transport: Transport
    enrolment: Enrolment
    clock: Callable[[], float]
    entropy: Entropy
    outages: Outages = field(default_factory=Outages, repr=False)
    off_loop: bool = False
    allow_direct: bool = False
    session: Session | None = field(default=None, repr=False)
    _owner: bytes = field(default_factory=lambda: os.urandom(ID_BYTES), repr=False)
    _plans: dict[bytes, Plan] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._books = Bookkeeper(self.enrolment, self.clock, self.entropy, self.outages, self.off_loop)
        self._wait_for = self._books.wait_for

    @property
    def in_round(self) -> bool:
        """Would stopping now cost others a dropout?"""
        session = self.session
        return session is not None and session.in_round

    @property
    def plan_doubted(self) -> bool:
        """The collector has called a report's plan (or period) one that is not open there; until it is set back."""
        return self._books.plan_doubted

    @plan_doubted.setter
    def plan_doubted(self, doubted: bool) -> None:
        self._books.plan_doubted = doubted

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
        started = time.monotonic()
        identity = IdentityKey(await self._wait_for(store.identity))
        try:
            owner = Owner(identity, await self.enrolment.certificate(store, identity))
        except NoCertificateError as error:
            await self._books.no_certificate(store, entries[0], error, summary)
            return
        async with self.transport.connect() as connection:
            one = Pass(store, connection, owner, before_send, summary, started)
            direct, masked = await self._parted(one, entries)
            if await deliver_direct(one, direct, self._books):
                for entry in masked:
                    if one.is_late or not await self._deliver_one(one, entry):
                        break
        await self.enrolment.renew_in_time(store, identity)

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

    # --- which way ------------------------------------------------------------------------------------

    def _plan(self, entry: SpoolEntry) -> Plan:
        if entry.plan_hash not in self._plans:
            self._plans[entry.plan_hash] = parse_plan(entry.plan_text)
        return self._plans[entry.plan_hash]

    async def _parted(
        self, one: Pass, entries: Sequence[SpoolEntry]
    ) -> tuple[list[tuple[SpoolEntry, Plan]], list[SpoolEntry]]:
        """Those that go direct, with their plans, and those that join a round; who may go neither way is booked."""
        direct: list[tuple[SpoolEntry, Plan]] = []
        masked: list[SpoolEntry] = []
        for entry in entries:
            try:
                plan = self._plan(entry)
            except PlanError as error:
                await self._books.failure(one.store, [entry], error, one.summary)
                continue
            if entry.resent and plan.delivery.resend == "never":
                await self._books.give_up(one.store, entry, RefusalReason.RESEND_NEVER, one.summary)
            elif not plan.delivery.goes_direct(entry.period_start + plan.period_s, self.clock()):
                masked.append(entry)
            elif self.allow_direct:
                direct.append((entry, plan))
            elif plan.delivery.delivery == "direct":
                await self._books.keep_back(one.store, entry, RefusalReason.DIRECT_NOT_ALLOWED, one.summary)
            else:
                masked.append(entry)
        return direct, masked

    # --- rounds ---------------------------------------------------------------------------------------

    async def _deliver_one(self, one: Pass, entry: SpoolEntry) -> bool:
        """Book what became of one report. False: stop this pass."""
        try:
            plan = self._plan(entry)
            participant = self._participant(one.owner, entry, plan)
            if participant is None:
                await self._books.give_up(one.store, entry, RefusalReason.STORAGE, one.summary)
                return True
            outcome = await self._attempt(one, participant, entry, plan)
        except NoLongerWaitingError:
            return True
        except LedgerBehindError as error:
            self._books.ledger_behind(error, one.summary)
            return False
        except StorageError:
            raise
        except (TelemetryError, TimeoutError) as error:
            return await self._books.failure(one.store, [entry], error, one.summary)
        await self._books.outcome(one.store, entry, outcome, participant.resent_contributors, one.summary)
        return True

    def _participant(self, owner: Owner, entry: SpoolEntry, plan: Plan) -> Participant | None:
        """None: the spooled bytes are damaged."""
        try:
            vector = unpack_array(entry.report)
        except StorageError:
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

    async def _attempt(self, one: Pass, participant: Participant, entry: SpoolEntry, plan: Plan) -> Outcome:
        stream: Stream = one.connection.participate()
        self.session = Session(
            stream,
            participant,
            max_wait_s=plan.cohort.max_wait_s,
            on_joined=lambda total: self._wait_for(
                partial(one.store.note_collector_total, total, one.owner.identity.seed)
            ),
            hand_over=lambda: self._wait_for(partial(one.store.hand_over, entry.key, resent=entry.resent)),
            on_confirm=lambda held: self._wait_for(partial(one.store.confirm, entry.key, held)),
            before_send=one.before_send,
        )
        try:
            return await self.session.run()
        finally:
            self.session = None


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
