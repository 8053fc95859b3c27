"""Behind a client: recorder, sealer, store, delivery and background thread, put together.

Rules of this file: nothing here raises StorageError into the background thread, and nothing of the network
raises at all; heavy imports (grpc, numpy, protobuf, cryptography, asyncio) happen in the thread or the host's
own upload, never on the way of `record()`. What it does not do: it checks no configuration (`settings`) and
knows no protocol (`delivery`, `session`).
"""

from __future__ import annotations

import time

from client_sdk.device.access import StoreAccess
from client_sdk.device.connections import FORKED_IN_UPLOAD, Connections
from client_sdk.device.departure import Departure
from client_sdk.device.period import OpenPeriod
from client_sdk.device.plan_choice import PlanChoice
from client_sdk.device.recorder import Recorder
from client_sdk.device.sealing import Sealer
from client_sdk.errors import RefusalReason, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from client_sdk.device.delivery import Delivery
    from client_sdk.device.direct_calls import BeforeSend
    from client_sdk.device.interfaces import MemoryTransport
    from client_sdk.device.settings import Settings
    from client_sdk.device.storage import DeviceStore
    from client_sdk.device.uploader import Tick, Uploader
    from client_sdk.device.views import UploadSummary
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan

    Result = TypeVar("Result")

STORE_RETRY_S = 30.0
NOT_ALLOWED_RETRY_S = 60.0
SHORTEST_WAIT_S = 0.05
UPLOAD_UNDER_WAY = "upload_under_way"


class Engine:
    """One client's parts. `recording`: consent is given, the client is open and not disabled.

    untouched_copy: a forked child in which nobody has recorded yet; its parent speaks for the device.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        entropy: Entropy,
        transport: MemoryTransport | None,
        given_plan: Plan | None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.given_plan = given_plan
        self.recording = False
        self._entropy = entropy
        self._transport = transport
        self.recorder = Recorder(clock, entropy, self._on_turn)
        self.departure = Departure(self)
        self._make_process_parts()

    def _make_process_parts(self) -> None:
        self.access = StoreAccess(self.settings.data_dir, self.recorder)
        self.sealer = Sealer(self.settings, self.clock, self._entropy, self.recorder, self.access)
        self.plans = PlanChoice(self.given_plan, self.settings, self.clock, self.recorder, self.access)
        self.connections = Connections(
            self.settings, self.clock, self._entropy, self._transport, self.recorder, self.access
        )
        self._uploader: Uploader | None = None
        self._uploading = False
        self.untouched_copy = False

    def renew(self) -> None:
        """In a forked child: own locks, no thread, no readings; the parent speaks for those so far."""
        self.recorder.renew()
        self.settings.enrolment_token, life = self.connections.unused_token(), self.sealer.life
        self._make_process_parts()
        self.sealer.life = life
        self.untouched_copy = True

    def uploader(self) -> Uploader:
        """The folder's background thread, started. ConfigurationError where it serves another collector."""
        from client_sdk.device.uploader import uploader_for

        while self._uploader is None or not self._uploader.add(self):  # not while its last client leaves it
            self._uploader = uploader_for(self.settings.data_dir, self.settings.endpoint, self.clock)
        return self._uploader

    def _on_turn(self) -> None:
        """The recorder's first reading, or the end of a period."""
        self.untouched_copy = False
        if self.settings.background and self.recording:
            self.uploader().ask()

    # --- consent --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording. Raises ConfigurationError, or StorageError where the store can never be used.

        The thread starts here, not with the first reading: a period without one has its report too, or silence
        would tell, and what an earlier process left waiting wants to leave. In a forked child it starts with the
        first reading: until then the parent speaks for the device.
        """
        if self.settings.background:
            from client_sdk.device.uploader import check_free

            check_free(self.settings.data_dir, self.settings.endpoint)
        self.recording = True
        try:
            if self.departure.look():
                self.recording = False
                self.recorder.stop(RefusalReason.OPTED_OUT)
                return
            plan = self.plans.to_begin()
            if plan is None:
                self.recorder.stop(self.plans.refusal)
            else:
                self.sealer.open_period(plan)
        except StorageError as error:
            from client_sdk.device.files import StoreUnavailableError

            if not isinstance(error, StoreUnavailableError):
                raise
            self.access.failed(error)
            if self.given_plan is not None:
                self.recorder.begin(OpenPeriod(self.given_plan, self.clock()), sealed_already=False)
        if self.settings.background:
            self.uploader()

    # --- the uploader's view (Member) -----------------------------------------------------------------

    def tick(self, *, everything: bool) -> Tick:
        """Seal what has ended, keep the counts, look what is due."""
        from client_sdk.device.uploader import Tick

        now = self.clock()
        try:
            self.sealer.seal_ended()
            self.access.keep_counts()
            due_at = self._due_at(self.access.store())
        except StorageError as error:
            self.access.failed(error)
            return Tick(due=False, next_at=now + STORE_RETRY_S)
        times = [at for at in (due_at, self.recorder.period_end) if at is not None]
        due = due_at is not None and (everything or due_at <= now)
        if due and self.connections.are_lost():
            return Tick(due=False, next_at=self.recorder.period_end)
        if due and not everything and not self._may_upload():
            return Tick(due=False, next_at=now + NOT_ALLOWED_RETRY_S)
        return Tick(due, min(times, default=None))

    def _due_at(self, store: DeviceStore) -> float | None:
        """When the next report, deletion request or plan is to be asked for. Raises StorageError."""
        waiting = [store.next_due() if self.recording else None, store.next_deletion()]
        if self._needs_plan():
            waiting.append(self.plans.retry_at)
        return min((at for at in waiting if at is not None), default=None)

    def _needs_plan(self) -> bool:
        return self.recording and self.plans.is_missing

    def _may_upload(self) -> bool:
        ask = self.settings.can_upload
        if ask is None:
            return True
        try:
            return bool(ask())
        except Exception:  # noqa: BLE001 - the host's function: its fault must not end our thread
            self.recorder.count("can_upload_failed")
            return False

    async def send(self, *, everything: bool) -> None:
        """Have forgotten who is to be forgotten, fetch the plan if there is none, then send."""
        try:
            await self.upload(everything=everything, before_send=None)
        except StorageError as error:
            self.access.failed(error)

    async def upload(self, *, everything: bool, before_send: BeforeSend | None) -> UploadSummary:
        """One pass over the spool, one at a time. Raises StorageError, and what `before_send` raises."""
        if self.connections.are_lost():
            return await self.wait_for(self._seal_only)
        if self._uploading:
            return _summary(failed={UPLOAD_UNDER_WAY: 1})
        self._uploading = True
        try:
            failed = await self.departure.run(everything=everything)
            summary = await self._send_reports(everything=everything, before_send=before_send)
            summary.failed.update(failed)
            return summary
        finally:
            self._uploading = False

    async def _send_reports(self, *, everything: bool, before_send: BeforeSend | None) -> UploadSummary:
        if not self.recording:
            return _summary()
        guard = self.departure.unless_withdrawn(before_send)
        delivery, store = await self.wait_for(self._delivery_and_store)
        if self._needs_plan():
            await self._fetch_plan(delivery, store)
        summary = await delivery.run(store, everything=everything, before_send=guard)
        if self.plans.wants_refetch(delivery):
            await self._fetch_plan(delivery, store)
        return summary

    def _delivery_and_store(self) -> tuple[Delivery, DeviceStore]:
        """Both ready; in an asyncio host the first time's imports and repairs leave its loop alone too."""
        if not self.settings.background:
            self.sealer.seal_ended()
        return self.connections.delivery(), self.access.store()

    def _seal_only(self) -> UploadSummary:
        """What a process without a network can do for its reports."""
        self.sealer.seal_ended()
        return _summary(waiting=self.access.store().waiting(), failed={FORKED_IN_UPLOAD: 1})

    async def wait_for(self, job: Callable[[], Result]) -> Result:
        from client_sdk.device import fork_gate

        with fork_gate.closed():
            from client_sdk.device.offload import run_job

        return await run_job(job, off_loop=not self.settings.background)

    async def _fetch_plan(self, delivery: Delivery, store: DeviceStore) -> None:
        missing = self.plans.is_missing
        plan = await self.plans.fetch(delivery, store)
        if plan is None or not self.recording:
            return
        if missing:
            await self.wait_for(lambda: self.sealer.open_period(plan))
        else:
            self.recorder.adopt(plan)

    def wait_until_sent(self, deadline: float) -> bool:
        """Have everything sent, and the plan fetched; True when that is done by `deadline` (monotonic seconds).

        Raises StorageError.
        """
        store, uploader, everything = self.access.store(), self.uploader(), True
        while store.waiting() or store.next_deletion() is not None or self._needs_plan():
            if self.connections.are_lost():
                return False
            left_s = deadline - time.monotonic()
            if not everything:
                due_at = self._due_at(store)
                wait_s = left_s if due_at is None else max(due_at - self.clock(), SHORTEST_WAIT_S)
                if wait_s >= left_s:  # put off beyond the deadline: say so now
                    return False
                time.sleep(wait_s)
            ticket = uploader.ask(everything=everything)  # also where nobody waits for it
            if left_s <= 0 or not uploader.wait(ticket, left_s):
                return False
            everything = False
        return True

    # --- the end --------------------------------------------------------------------------------------

    def close(self, timeout_s: float) -> None:
        """Seal (or keep) the open period, keep the counts, let the thread go. Never raises StorageError."""
        try:
            if self.recording and not self.untouched_copy:
                self.sealer.keep_or_seal_open()
        except StorageError as error:
            self.access.failed(error)
        self.recording = False
        self.recorder.stop(RefusalReason.CLOSED)
        try:
            if self.access.is_open:
                self.access.keep_counts()
        except StorageError as error:
            self.access.failed(error)
        self.leave_uploader(lambda: self.connections.in_round, timeout_s)

    def leave_uploader(self, in_round: Callable[[], bool], timeout_s: float) -> None:
        uploader, self._uploader = self._uploader, None
        if uploader is not None:
            uploader.leave(self, in_round=in_round, timeout_s=timeout_s)


def _summary(*, waiting: int = 0, failed: dict[str, int] | None = None) -> UploadSummary:
    """Of an upload that sent no report."""
    from client_sdk.device import fork_gate

    with fork_gate.closed():
        from client_sdk.device.views import UploadSummary

    return UploadSummary(waiting=waiting, failed=failed or {})
