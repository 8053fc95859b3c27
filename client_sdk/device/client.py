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
from client_sdk.device.readable import Readable
from client_sdk.device.settings import Settings, check_token
from client_sdk.errors import ConfigurationError, RefusalReason, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from client_sdk.accounting.budget import Amount
    from client_sdk.device.direct_calls import BeforeSend
    from client_sdk.device.interfaces import MemoryTransport
    from client_sdk.device.views import UploadSummary
    from client_sdk.folding import Reading
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan


class TelemetryClient(Readable):
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
    plan they default to 10 in 24 hours and 3650 ever, without a pin to 4 a report). max_rho_report, max_rho_24h,
    max_rho_lifetime: the same for the zero-concentrated loss rho, which bounds Gaussian noise better. min_cohort:
    fewest contributors of a sum this device joins (of reports sent once, while its own is one; 50 for a fetched plan
    without a pin).
    allow_direct: a plan may have reports leave unmasked, always or where they find no cohort: the collector then sees
    them one by one, at their local epsilon, and min_cohort does not hold for them; without it a plan that has all
    reports do so is refused (`direct_not_allowed`), and no report falls back.
    seal_key: 32 bytes of the platform's keystore; then an open period survives restarts, encrypted.
    background=False: no thread is ever started, the host calls `await client.upload()`. can_upload: asked before
    the background thread sends. clock: seconds since the epoch. Raises ConfigurationError, PlanError, or
    StorageError (a store that can never be used).

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
        max_rho_report: Amount | None = None,
        max_rho_24h: Amount | None = None,
        max_rho_lifetime: Amount | None = None,
        min_cohort: int | None = None,
        allow_direct: bool = False,
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
            max_rho_report=max_rho_report,
            max_rho_24h=max_rho_24h,
            max_rho_lifetime=max_rho_lifetime,
            min_cohort=min_cohort,
            allow_direct=allow_direct,
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
        counted. With `background=False` it only seals. False too where the plan is refused and nothing is recorded
        (`counters()` has the reason): what waits is sent all the same. Never raises for storage or network.
        """
        engine = self._engine
        deadline = time.monotonic() + check_timeout(timeout_s)
        try:
            if engine.recording:
                if seal:
                    engine.sealer.seal_open(RefusalReason.PERIOD_SEALED)
                engine.sealer.seal_ended()
            if engine.settings.background and (engine.recording or engine.departure.opted_out):
                return engine.wait_until_sent(deadline) and not self._records_nothing()
            return not self._consent or (engine.access.store().waiting() == 0 and not self._records_nothing())
        except StorageError as error:
            engine.access.failed(error)
            return False

    def _records_nothing(self) -> bool:
        return self._engine.recording and self._engine.plans.keeps_nothing

    async def upload(self, before_send: BeforeSend | None = None) -> UploadSummary:
        """Send everything that waits, now, on the caller's loop; only with `background=False`.

        before_send(step): called before each message leaves (hello, join, shares, masked_input, confirm, unmask;
        unmasked: direct_hello, direct_offer, direct_reports, direct_seal); if it raises, the stream is broken off and
        its exception propagates. Whatever waits for the
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
