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
import time

from client_sdk.device import lifecycle
from client_sdk.device.engine import Engine
from client_sdk.device.given import (
    check_clock,
    check_consent,
    check_pin,
    check_timeout,
    load_given,
    never_sent,
    test_parts,
)
from client_sdk.device.settings import Settings, check_token
from client_sdk.errors import ConfigurationError, RefusalReason, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal
    from typing import Any

    from client_sdk.accounting.budget import Amount
    from client_sdk.device.delivery import BeforeSend
    from client_sdk.device.preview import Preview
    from client_sdk.device.records import LogEntry
    from client_sdk.device.transport import MemoryTransport
    from client_sdk.device.views import BudgetView, UploadSummary
    from client_sdk.folding import Reading
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan


class TelemetryClient:
    """Locally private telemetry of one device. Thread-safe; one per process and `data_dir` is enough.

    endpoint: the collector's HOST:PORT. consent (required): False records and writes nothing. plan: a path or a
    `Plan`; left out, it is fetched and held on to. plan_hash, plan_key: what a fetched plan must be, or who must
    have signed it (see `ldp-collector plan`); without either the collector chooses it. data_dir: a folder of this
    app's user, made with mode 0700; several processes may share it and are one device then. enrolment_token: single
    use, forgotten after it. registrar, registrar_key: HOST:PORT and public key (32 bytes, 64 hex digits or a file
    of them) of who says which identities are devices'; left out, they come from the environment or the table
    [registrar] of the given `plan`, never from a fetched one. root_certificates: PEM bytes or a path, for an own
    CA. client_certificate, client_key: the same, for a collector that asks for them (mTLS); a file is read again
    when it has changed. insecure: plain text, to this machine only. max_epsilon_report, max_epsilon_24h,
    max_epsilon_lifetime: the device's own limits over all plan names; they only lower the plan's (for a fetched
    plan they default to 10 in 24 hours and 3650 ever, without a pin to 4 a report). min_cohort: fewest contributors
    of a sum this device joins (of reports sent once, while its own is one; 50 for a fetched plan without a pin).
    seal_key: 32 bytes of the platform's keystore; then an open period
    survives restarts, encrypted. background=False: no thread is ever started, the host calls `await
    client.upload()`. can_upload: asked before the background thread sends. clock: seconds since the epoch. Raises
    ConfigurationError, PlanError, or StorageError (a store that can never be used).

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
        plan_hash: bytes | str | None = None,
        plan_key: bytes | str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        enrolment_token: str | None = None,
        registrar: str | None = None,
        registrar_key: bytes | str | os.PathLike[str] | None = None,
        root_certificates: bytes | str | os.PathLike[str] | None = None,
        client_certificate: bytes | str | os.PathLike[str] | None = None,
        client_key: bytes | str | os.PathLike[str] | None = None,
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
        _transport: MemoryTransport | None = None,
    ) -> None:
        check_consent(consent)
        check_clock(clock)
        shipped = load_given(plan)
        settings = Settings(
            endpoint=endpoint,
            data_dir=data_dir,
            enrolment_token=enrolment_token,
            registrar=registrar,
            registrar_key=registrar_key,
            shipped_registrar=None if shipped is None else shipped.registrar,
            root_certificates=root_certificates,
            client_certificate=client_certificate,
            client_key=client_key,
            insecure=insecure,
            max_epsilon_report=max_epsilon_report,
            max_epsilon_24h=max_epsilon_24h,
            max_epsilon_lifetime=max_epsilon_lifetime,
            min_cohort=min_cohort,
            seal_key=seal_key,
            background=background,
            can_upload=can_upload,
            plan_hash=plan_hash,
            plan_key=plan_key,
            plan_is_fetched=shipped is None,
            environment=os.environ,
        )
        check_pin(shipped, settings)
        entropy, transport = test_parts(settings, _entropy, _transport)
        self._engine = Engine(settings, clock, entropy, transport, shipped)
        if shipped is not None and not settings.disabled:
            self._warn_where_nothing_leaves(shipped)
        self._add = self._engine.recorder.add  # one look-up less on the hot path
        self._consent = False
        self._closed = False
        self.consent(consent)
        lifecycle.register(self._engine)

    def _warn_where_nothing_leaves(self, plan: Plan) -> None:
        why = never_sent(plan, self._engine.settings)
        if why is not None:
            self._engine.access.outages().begin("limits", why)

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

    def record(self, name: str, value: Reading) -> None:
        """One reading of the metric `name`, into the open period's memory. Never raises and does no I/O.

        What is refused (unknown name, wrong type, NaN, no consent, ...) is counted by reason in `counters()`.
        """
        self._add(name, value)

    def consent(self, given: bool) -> None:
        """The user gave or withdrew consent. Withdrawn: readings and waiting reports are dropped, counted.

        What was charged stays charged. Raises ConfigurationError for what is neither True nor False (nothing changes
        then), StorageError where the store can never be used.
        """
        check_consent(given)
        if self._closed:
            return
        self._consent = given and not self._engine.settings.disabled
        if self._engine.settings.disabled:
            self._engine.recorder.stop(RefusalReason.DISABLED)
        elif not given:
            self._withdraw()
        elif not self._engine.recording:
            self._engine.begin()

    def opt_out(self) -> None:
        """The user leaves for good: nothing is recorded any more, here and in every later process.

        Readings and waiting reports are dropped (counted `opted_out`), the identity and its key are destroyed, and one
        request to forget it, signed before that, is repeated until the collector acknowledges it: by the background
        thread of this and every later client of the folder (made with `consent=False` too), or by `upload()`. What was
        spent stays in the device's ledger. Only `opt_in()` ends it. Raises StorageError where that could not be
        written: nothing is recorded meanwhile, call it again.
        """
        if self._closed:
            raise ConfigurationError("opt_out(): the client is closed; make another one and call it there")
        self._engine.departure.opt_out()

    def opt_in(self, *, enrolment_token: str | None = None) -> None:
        """The user comes back, as somebody new: another identity, which needs an enrolment token of its own.

        It also gives consent. It is no refund: limits go on counting what was spent before, and a period that was
        sealed before opting out is not sealed again. Raises ConfigurationError and StorageError.
        """
        if self._closed:
            raise ConfigurationError("opt_in(): the client is closed; make another one and call it there")
        token = check_token(enrolment_token)
        if self._engine.settings.disabled:
            return
        self._consent = True
        self._engine.departure.opt_in(token)

    @property
    def opted_out(self) -> bool:
        """Has the user opted out (in any process, as of this client's last look)?"""
        return self._engine.departure.opted_out

    def _withdraw(self) -> None:
        try:
            self._engine.departure.withdraw(RefusalReason.NO_CONSENT)
        except StorageError as error:
            self._engine.access.failed(error)

    # --- sending --------------------------------------------------------------------------------------

    def flush(self, seal: bool = False, timeout_s: float = 10.0) -> bool:
        """Send at once what is spooled; with `seal`, seal the open period first. True: nothing waits any more.

        Waits up to `timeout_s` seconds, for a plan that is still to be fetched too: readings before it are counted
        `no_plan`, and the period that begins with it is not sealed. Later readings of a sealed period are dropped and
        counted. With `background=False` it only seals. Never raises for storage or network.
        """
        engine = self._engine
        deadline = time.monotonic() + check_timeout(timeout_s)
        try:
            if engine.recording:
                if seal:
                    engine.sealer.seal_open(RefusalReason.PERIOD_SEALED)
                engine.sealer.seal_ended()
            if engine.settings.background and (engine.recording or engine.departure.opted_out):
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
        if not engine.recording and (self._closed or not engine.departure.opted_out):
            raise ConfigurationError("upload(): the client is closed, or has no consent")
        return await engine.upload(everything=True, before_send=before_send)

    def close(self, timeout_s: float = 2.0) -> None:
        """Seal the open period to disk and stop. Waits up to `timeout_s` only for a round that is under way.

        What waits is sent by the next process. Idempotent; never raises for storage or network.
        """
        timeout_s = check_timeout(timeout_s)
        if self._closed:
            return
        self._closed = True
        lifecycle.forget(self._engine)
        self._engine.close(timeout_s)

    # --- what the host may read -----------------------------------------------------------------------

    @property
    def device_id(self) -> str | None:
        """The identity's public name, 32 hex digits; None from `opt_out()`, which destroys it, to `opt_in()`.

        Raises StorageError.
        """
        from client_sdk.identity import IdentityKey

        store = self._engine.access.store()
        return None if store.opted_out() else IdentityKey(store.identity()).device_id

    def spent(self) -> BudgetView:
        """Exact: what one report costs, what is spent and what is left. Raises StorageError."""
        from client_sdk.device.views import budget_view

        engine = self._engine
        plan = engine.recorder.plan or engine.given_plan
        return budget_view(engine.access.store(), plan, engine.settings.host_limits, engine.clock())

    async def collector_view(self) -> dict[str, Any]:
        """What the collector has booked for this device: reports, windows, lifetime, as it says; changes nothing here.

        One call over the network, on the caller's loop (`asyncio.run(client.collector_view())` without one). Raises
        ConfigurationError (not enrolled yet), TelemetryError for whatever goes wrong on the way, StorageError.
        """
        from client_sdk.device.collector_view import ask

        engine = self._engine
        return await ask(engine.access.store(), engine.settings, engine.clock)

    def counters(self) -> dict[str, int]:
        """Counts by reason since the folder was made, over all processes (but what others hold in memory still).

        Readings: no_consent, no_plan, closed, disabled, unknown_metric, unknown_category, wrong_type, not_finite,
        period_sealed, other_process, metric_expired, opted_out. Plans: plan_* (plan_names: a name of a metric or a
        label came back, or means something else). Opting out: opted_out (reports too), deletion_acknowledged,
        deletion_*. Reports: sealed, counted, already_counted, expired, spool_full, too_large, resend_never, budget_*,
        ledger_damaged, storage. Attempts: come_back, timeout, rpc_*, aborted_*, left_*,
        forked_in_upload (this process must not use the network; another one sends).
        What stands behind an attempt, counted beside it: plan_not_served, certificate_not_taken, not_a_collector,
        not_a_registrar.
        Identity: enrolled, renewed, not_enrolled, enrolment_refused, renewal_refused, certificate_expired, registrar_*.
        """
        counts: dict[str, int] = {}
        if self._consent or self._engine.departure.opted_out:
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

    def export_ledger(self) -> dict[str, Any]:
        """Everything ever charged, JSON-ready, for `ldp-collector recompute`: when, under which plan, in which sum.

        It holds no reading and no report, but it says in which periods this device took part, when it sealed its
        reports and how large its cohorts were: whoever is given it learns when the device was in use. Changes nothing;
        amounts are whole micro-epsilon, times whole seconds. Raises StorageError.
        """
        return self._engine.access.store().export_ledger(self._engine.clock())

    def reset_ledger(self) -> Decimal:
        """Use a damaged ledger again: the largest total known is booked as spent. Returns it. StorageError."""
        from decimal import Decimal

        from client_sdk.accounting.budget import format_micro

        return Decimal(format_micro(self._engine.access.store().reset_ledger(self._engine.clock())))
