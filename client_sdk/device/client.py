"""What a host application holds: record readings, seal them into one report a period, let it be sent.

Rules of this file: wrong configuration raises when the client is made; afterwards nothing about storage or
network raises into the host, it is counted (`counters()`) and warned about once an outage. Without consent
nothing is recorded and nothing is written. Noise comes from the operating system; no parameter can seed it.
What it does not do: it holds no reading beyond its period, and it never makes a report's leaving depend on a
value. Calling `flush()` in reaction to a value does: its timing tells; leave sending to the schedule.

Import path of `from client_sdk import TelemetryClient`: only what every Python process has loaded anyway;
the rest is imported when it is needed.
"""

from __future__ import annotations

import os
import sys
import time

from client_sdk.device import lifecycle
from client_sdk.device.engine import Engine
from client_sdk.device.settings import Settings
from client_sdk.errors import ConfigurationError, RefusalReason, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from client_sdk.accounting.budget import Amount
    from client_sdk.device.delivery import BeforeSend
    from client_sdk.device.preview import Preview
    from client_sdk.device.records import LogEntry
    from client_sdk.device.transport import Transport
    from client_sdk.device.views import BudgetView, UploadSummary
    from client_sdk.mechanisms import Entropy, Value
    from client_sdk.plan import Plan


class TelemetryClient:
    """Locally private telemetry of one device. Thread-safe; one per process and `data_dir` is enough.

    endpoint: the collector's HOST:PORT. consent (required): False records and writes nothing. plan: a path or
    a `Plan`; left out, it is fetched once and pinned. data_dir: a folder of this app's user, made with mode
    0700; several processes may share it and are one device then. enrolment_token: single use, forgotten after
    it. root_certificates: PEM bytes or a path, for an own CA. insecure: plain text, to this machine only.
    max_epsilon_report, max_epsilon_24h, max_epsilon_lifetime: the device's own limits over all plan names; they
    only lower the plan's (for a fetched plan they default to 10 in 24 hours and 3650 ever). min_cohort: fewest
    contributors of a sum this device joins. seal_key: 32 bytes of the platform's keystore; then an open period
    survives restarts, encrypted. background=False: no thread is ever started, the host calls
    `await client.upload()`. can_upload: asked before the background thread sends. clock: seconds since the
    epoch. Raises ConfigurationError, PlanError, or StorageError (a store that can never be used).

    The background thread starts with consent and needs no call to go on: it seals every period when it ends, also
    one without any reading (its metrics take their defaults: silence must say nothing), and sends at the report's
    own time. A clock that is set, or a machine that sleeps, is noticed within 5 minutes. A period through which no
    process ran has no report.

    Forks: a child goes on with the client as if it were new (its parent speaks for the readings so far; the
    thread starts with the child's first reading). One that was forked in the middle of an upload must leave gRPC
    alone for good: it records and seals, another process sends. Where this package is the first to import gRPC, it
    does so without gRPC's own fork handlers, which crash children; a host that uses gRPC channels of its own in
    forked children imports gRPC first, and then lives with these handlers in the middle of an upload too.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        consent: bool,
        plan: Plan | str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        enrolment_token: str | None = None,
        root_certificates: bytes | str | os.PathLike[str] | None = None,
        insecure: bool = False,
        max_epsilon_report: Amount | None = None,
        max_epsilon_24h: Amount | None = None,
        max_epsilon_lifetime: Amount | None = None,
        min_cohort: int | None = None,
        seal_key: bytes | None = None,
        background: bool = True,
        can_upload: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.time,
        _entropy: Entropy | None = None,
        _transport: Transport | None = None,
    ) -> None:
        if not isinstance(consent, bool):
            raise ConfigurationError("consent: must be True or False; without the user's consent nothing is recorded")
        settings = Settings(
            endpoint=endpoint,
            data_dir=data_dir,
            enrolment_token=enrolment_token,
            root_certificates=root_certificates,
            insecure=insecure,
            max_epsilon_report=max_epsilon_report,
            max_epsilon_24h=max_epsilon_24h,
            max_epsilon_lifetime=max_epsilon_lifetime,
            min_cohort=min_cohort,
            seal_key=seal_key,
            background=background,
            can_upload=can_upload,
            plan_is_fetched=plan is None,
            environment=os.environ,
        )
        entropy, transport = _test_parts(settings, _entropy, _transport)
        self._engine = Engine(settings, clock, entropy, transport, _load(plan))
        self._add = self._engine.recorder.add  # one look-up less on the hot path
        self._consent = False
        self._closed = False
        self.consent(consent)
        lifecycle.register(self._engine)

    def __repr__(self) -> str:
        plan = self._engine.recorder.plan or self._engine.given_plan
        name = None if plan is None else plan.name
        return f"TelemetryClient({self._engine.settings.endpoint!r}, plan={name!r}, consent={self._consent})"

    def __reduce__(self) -> str:
        raise TypeError("a TelemetryClient cannot be pickled or copied: make one in each process, on the same data_dir")

    def __enter__(self) -> TelemetryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- recording ------------------------------------------------------------------------------------

    def record(self, name: str, value: Value) -> None:
        """One reading of the metric `name`, into the open period's memory. Never raises and does no I/O.

        What is refused (unknown name, wrong type, NaN, no consent, ...) is counted by reason in `counters()`.
        """
        self._add(name, value)

    def consent(self, given: bool) -> None:
        """The user gave or withdrew consent. Withdrawn: readings and waiting reports are dropped, counted.

        What was charged stays charged. Raises StorageError where the store can never be used.
        """
        if self._closed:
            return
        self._consent = bool(given) and not self._engine.settings.disabled
        if self._engine.settings.disabled:
            self._engine.recorder.stop(RefusalReason.DISABLED)
        elif not given:
            self._withdraw()
        elif not self._engine.recording:
            self._engine.begin()

    def _withdraw(self) -> None:
        try:
            self._engine.withdraw(RefusalReason.NO_CONSENT)
        except StorageError as error:
            self._engine.access.failed(error)

    # --- sending --------------------------------------------------------------------------------------

    def flush(self, seal: bool = False, timeout_s: float = 10.0) -> bool:
        """Send at once what is spooled; with `seal`, seal the open period first. True: nothing waits any more.

        Waits up to `timeout_s` seconds. Later readings of a sealed period are dropped and counted. With
        `background=False` it only seals. Never raises for storage or network.
        """
        engine = self._engine
        deadline = time.monotonic() + timeout_s
        try:
            if engine.recording:
                if seal:
                    engine.sealer.seal_open(RefusalReason.PERIOD_SEALED)
                engine.sealer.seal_ended()
                if engine.settings.background:
                    return engine.wait_until_sent(deadline)
            return not self._consent or engine.access.store().waiting() == 0
        except StorageError as error:
            engine.access.failed(error)
            return False

    async def upload(self, before_send: BeforeSend | None = None) -> UploadSummary:
        """Send everything that waits, now, on the caller's loop; only with `background=False`.

        before_send(step): called before each message leaves (hello, join, shares, masked_input, confirm,
        unmask); if it raises, the stream is broken off and its exception propagates. Whatever waits for the
        disk runs in the loop's default executor, so the loop goes on; a round costs it some milliseconds of
        arithmetic. One upload at a time: another one meanwhile fails as `upload_under_way`. Raises StorageError.
        """
        engine = self._engine
        if engine.settings.background:
            raise ConfigurationError("upload(): the background thread sends; make the client with background=False")
        if not engine.recording:
            raise ConfigurationError("upload(): the client is closed, or has no consent")
        return await engine.upload(everything=True, before_send=before_send)

    def close(self, timeout_s: float = 2.0) -> None:
        """Seal the open period to disk and stop. Waits up to `timeout_s` only for a round that is under way.

        What waits is sent by the next process. Idempotent; never raises for storage or network.
        """
        if self._closed:
            return
        self._closed = True
        lifecycle.forget(self._engine)
        self._engine.close(timeout_s)

    # --- what the host may read -----------------------------------------------------------------------

    @property
    def device_id(self) -> str:
        """The identity's public name: 32 hex digits. Raises StorageError."""
        from client_sdk.identity import IdentityKey

        return IdentityKey(self._engine.access.store().identity()[0]).device_id

    def spent(self) -> BudgetView:
        """Exact: what one report costs, what is spent and what is left. Raises StorageError."""
        from client_sdk.device.views import budget_view

        engine = self._engine
        plan = engine.recorder.plan or engine.given_plan
        return budget_view(engine.access.store(), plan, engine.settings.host_limits, engine.clock())

    def counters(self) -> dict[str, int]:
        """Counts by reason since the folder was made, over all processes (but what others hold in memory still).

        Readings: no_consent, no_plan, closed, disabled, unknown_metric, unknown_category, wrong_type, not_finite,
        period_sealed, other_process. Reports: sealed, counted, already_counted, expired, spool_full, too_large,
        resend_never, budget_*, ledger_damaged, storage. Attempts: come_back, timeout, rpc_*, aborted_*, left_*,
        forked_in_upload (this process must not use the network; another one sends).
        """
        counts: dict[str, int] = {}
        if self._consent:
            try:
                counts = self._engine.access.store().counters()
            except StorageError as error:
                self._engine.access.failed(error)
        for reason, amount in self._engine.recorder.counts().items():
            counts[reason] = counts.get(reason, 0) + amount
        return counts

    def preview(self) -> Preview:
        """What would be sent and what it costs, without spending, storing or sending anything. Raises StorageError.

        For each period that is not sealed: metrics, mechanisms, epsilon, length and encoding, and one EXAMPLE
        report, drawn afresh at each call and never the one that will be made. What waits is shown as it is.
        Examples are noisy answers about the same readings: nobody but this process sees them, and they cost
        nothing while that holds; whoever is shown many of them can average the noise away. Show one to the
        device's user, put none into a log.
        """
        from client_sdk.device.preview import make_preview

        return make_preview(self._engine, consent=self._consent)

    def history(self) -> list[LogEntry]:
        """What became of every report that left the spool: digest, epsilon, outcome, cohort. Raises StorageError."""
        return self._engine.access.store().history()

    def reset_ledger(self) -> Decimal:
        """Use a damaged ledger again: the largest total known is booked as spent. Returns it. StorageError."""
        from decimal import Decimal

        from client_sdk.accounting.budget import format_micro

        return Decimal(format_micro(self._engine.access.store().reset_ledger(self._engine.clock())))


def _load(plan: Plan | str | os.PathLike[str] | None) -> Plan | None:
    if plan is None:
        return None
    from client_sdk.plan import Plan

    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, (str, os.PathLike)):
        raise ConfigurationError("plan: give a path, a Plan from load_plan(), or leave it out to fetch it")
    from client_sdk.files import load_plan

    return load_plan(plan)


def _test_parts(
    settings: Settings, entropy: Entropy | None, transport: Transport | None
) -> tuple[Entropy, Transport | None]:
    """Noise that somebody can repeat must never reach a collector outside this process."""
    if not settings.in_memory:
        if entropy is not None:
            raise ConfigurationError(
                "test entropy is allowed with the in-memory collector only, never with an endpoint"
            )
        if transport is not None:
            raise ConfigurationError("an in-memory endpoint and its transport belong together")
        return os.urandom, None
    if transport is None:
        testing = sys.modules.get("client_sdk.testing")  # who has made such a collector has imported it
        collector = None if testing is None else testing.find(settings.endpoint)
        if collector is None:
            raise ConfigurationError(
                f"endpoint: nobody has made the in-memory collector {settings.endpoint!r} in this process; "
                "such endpoints are for tests (client_sdk.testing)"
            )
        return entropy or collector.entropy(), collector
    return entropy or os.urandom, transport
