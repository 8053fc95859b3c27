"""Behind a client: recorder, sealer, store, delivery and background thread, put together.

Rules of this file: nothing here raises StorageError into the background thread, and nothing of the network
raises at all; heavy imports (grpc, numpy, protobuf, cryptography, asyncio) happen in the thread or the host's
own upload, never on the way of `record()`. What it does not do: it checks no configuration (`settings`) and
knows no protocol (`delivery`, `session`).
"""

from __future__ import annotations

import os
import time

from client_sdk.device.access import StoreAccess
from client_sdk.device.period import OpenPeriod
from client_sdk.device.recorder import Recorder
from client_sdk.device.sealing import Sealer
from client_sdk.errors import RefusalReason, StorageError, TelemetryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from client_sdk.device.delivery import BeforeSend, Delivery
    from client_sdk.device.settings import Settings
    from client_sdk.device.storage import DeviceStore
    from client_sdk.device.transport import Transport
    from client_sdk.device.uploader import Tick, Uploader
    from client_sdk.device.views import UploadSummary
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan

    Result = TypeVar("Result")

STORE_RETRY_S = 30.0
NOT_ALLOWED_RETRY_S = 60.0
PLAN_RETRY_S = 60.0
SHORTEST_WAIT_S = 0.05
UPLOAD_UNDER_WAY = "upload_under_way"
FORKED_IN_UPLOAD = "forked_in_upload"


class Engine:
    """One client's parts. `recording`: consent is given, the client is open and not disabled.

    untouched_copy: a forked child in which nobody has recorded yet; its parent speaks for the device.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        entropy: Entropy,
        transport: Transport | None,
        given_plan: Plan | None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.given_plan = given_plan
        self.recording = False
        self._entropy = entropy
        self._transport = transport
        self.recorder = Recorder(clock, entropy, self._on_turn)
        self._make_process_parts()

    def _make_process_parts(self) -> None:
        self.access = StoreAccess(self.settings.data_dir, self.recorder)
        self.sealer = Sealer(self.settings, self.clock, self._entropy, self.recorder, self.access)
        self._delivery: Delivery | None = None
        self._uploader: Uploader | None = None
        self._uploading = False
        self._said_cut_off = False
        self._plan_retry_at = float("-inf")
        self.untouched_copy = False

    def renew(self) -> None:
        """In a forked child: own locks, no thread, no readings; the parent speaks for those so far."""
        self.recorder.renew()
        if self._delivery is not None:
            self.settings.enrolment_token = self._delivery.token  # None once it has been used
        self._make_process_parts()
        self.untouched_copy = True

    # --- parts made on first need ---------------------------------------------------------------------

    def delivery(self) -> Delivery:
        """What carries reports. Imports numpy, grpc, protobuf and cryptography: only an upload needs it."""
        if self._delivery is None:
            from client_sdk.device import fork_gate

            with fork_gate.closed():
                from client_sdk.device.delivery import Delivery, import_what_a_round_needs
                from client_sdk.device.transport import GrpcTransport, import_grpc

                import_what_a_round_needs()
                if self._transport is None:
                    import_grpc()
            settings = self.settings
            transport = self._transport or GrpcTransport(
                settings.endpoint, settings.root_certificates, insecure=settings.insecure
            )
            self._delivery = Delivery(
                transport,
                self.clock,
                self._entropy,
                settings.enrolment_token,
                self.access.outages(),
                off_loop=not settings.background,
            )
            settings.enrolment_token = None
        return self._delivery

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
            plan = self.given_plan or self._pinned_plan()
            if plan is None:
                self.recorder.stop(RefusalReason.NO_PLAN)
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

    def _pinned_plan(self) -> Plan | None:
        from client_sdk.plan import parse_plan

        text = self.access.store().pinned_plan()
        return None if text is None else parse_plan(text)

    def withdraw(self, reason: RefusalReason) -> None:
        """Drop readings and whatever waits. What was charged stays charged. Raises StorageError."""
        self.recording = False
        self.recorder.stop(reason)
        self.sealer.drop()
        try:
            if os.path.isdir(self.settings.data_dir):
                self.access.store().withdraw(reason, self.clock())
        finally:
            self._leave_uploader(lambda: False, 0.0)

    # --- the uploader's view (Member) -----------------------------------------------------------------

    def tick(self, *, everything: bool) -> Tick:
        """Seal what has ended, keep the counts, look what is due."""
        from client_sdk.device.uploader import Tick

        now = self.clock()
        try:
            self.sealer.seal_ended()
            self.access.keep_counts()
            due_at = self.access.store().next_due() if self.recording else None
        except StorageError as error:
            self.access.failed(error)
            return Tick(due=False, next_at=now + STORE_RETRY_S)
        if self._needs_plan():
            due_at = self._plan_retry_at if due_at is None else min(due_at, self._plan_retry_at)
        times = [at for at in (due_at, self.recorder.period_end) if at is not None]
        due = due_at is not None and (everything or due_at <= now)
        if due and self._is_cut_off():
            return Tick(due=False, next_at=self.recorder.period_end)
        if due and not everything and not self._may_upload():
            return Tick(due=False, next_at=now + NOT_ALLOWED_RETRY_S)
        return Tick(due, min(times, default=None))

    def _is_cut_off(self) -> bool:
        """Must this process leave gRPC alone, and so its reports to another one? Counted and said once."""
        from client_sdk.device import fork_gate

        if self._transport is not None or not fork_gate.network_lost():
            return False
        if not self._said_cut_off:
            self._said_cut_off = True
            self.recorder.count(FORKED_IN_UPLOAD)
            self.access.outages().begin(
                "network", "this process was forked in the middle of an upload; another one sends what waits on disk"
            )
        return True

    def _needs_plan(self) -> bool:
        return self.recording and self.recorder.plan is None

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
        """Fetch the plan if there is none, then send."""
        try:
            await self.upload(everything=everything, before_send=None)
        except StorageError as error:
            self.access.failed(error)

    async def upload(self, *, everything: bool, before_send: BeforeSend | None) -> UploadSummary:
        """One pass over the spool, one at a time. Raises StorageError, and what `before_send` raises."""
        if self._is_cut_off():
            return await self._wait_for(self._seal_only)
        if self._uploading:
            from client_sdk.device.views import UploadSummary

            return UploadSummary(failed={UPLOAD_UNDER_WAY: 1})
        self._uploading = True
        try:
            delivery, store = await self._wait_for(self._delivery_and_store)
            if self._needs_plan():
                await self._fetch_plan(delivery, store)
            return await delivery.run(store, everything=everything, before_send=before_send)
        finally:
            self._uploading = False

    def _delivery_and_store(self) -> tuple[Delivery, DeviceStore]:
        """Both ready; in an asyncio host the first time's imports and repairs leave its loop alone too."""
        if not self.settings.background:
            self.sealer.seal_ended()
        return self.delivery(), self.access.store()

    def _seal_only(self) -> UploadSummary:
        """What a process without a network can do for its reports."""
        from client_sdk.device.views import UploadSummary

        self.sealer.seal_ended()
        return UploadSummary(waiting=self.access.store().waiting(), failed={FORKED_IN_UPLOAD: 1})

    async def _wait_for(self, job: Callable[[], Result]) -> Result:
        from client_sdk.device import fork_gate

        with fork_gate.closed():
            from client_sdk.device.offload import run_job

        return await run_job(job, off_loop=not self.settings.background)

    async def _fetch_plan(self, delivery: Delivery, store: DeviceStore) -> None:
        from client_sdk.device.delivery import COLLECTOR, failure_reason

        try:
            plan = await delivery.fetch_plan(store)
        except StorageError:
            raise
        except (TelemetryError, TimeoutError) as error:
            self._plan_retry_at = self.clock() + PLAN_RETRY_S
            self.recorder.count(f"plan_{failure_reason(error)}")
            self.access.outages().begin(COLLECTOR, f"plan not fetched ({failure_reason(error)}); tried again later")
            return
        if self.recording:
            await self._wait_for(lambda: self.sealer.open_period(plan))

    def wait_until_sent(self, deadline: float) -> bool:
        """Have everything sent; True when nothing waits at `deadline` (monotonic seconds). Raises StorageError."""
        store, uploader, everything = self.access.store(), self.uploader(), True
        while store.waiting():
            if self._is_cut_off():
                return False
            left_s = deadline - time.monotonic()
            if not everything:
                due_at = store.next_due()
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
        self._leave_uploader(self._in_round, timeout_s)

    def _leave_uploader(self, in_round: Callable[[], bool], timeout_s: float) -> None:
        uploader, self._uploader = self._uploader, None
        if uploader is not None:
            uploader.leave(self, in_round=in_round, timeout_s=timeout_s)

    def _in_round(self) -> bool:
        return self._delivery is not None and self._delivery.in_round
