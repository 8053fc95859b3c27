"""Fakes for the tests of apps that embed the SDK: a collector in memory, a clock, noise that repeats.

    # conftest.py
    import pytest
    from client_sdk.testing import telemetry_client  # noqa: F401 - a fixture

    @pytest.fixture
    def telemetry_plan() -> str:
        return "src/app/plan.toml"

    # test_app.py
    from client_sdk.testing import collector_of, recorded

    def test_the_start_is_measured(telemetry_client):
        app.start(telemetry_client)
        assert recorded(telemetry_client) == {"cold_start_ms": 812.0, "network": "wifi"}
        collector = collector_of(telemetry_client)
        assert collector.deliver(telemetry_client).counted == 1
        assert collector.reports[0].elements.keys() == {"cold_start_ms", "network"}

An app that makes its own client needs only another endpoint: `InMemoryCollector(plan).endpoint` (`memory:1`)
where it would have `collector.example:443`; everything else runs as in production: store, ledger, noise,
background thread, masks. It certifies its clients itself: they need neither token nor registrar.

Rules of this file: what is in memory stays in this process; repeatable noise is reachable only through an
endpoint in memory, so a client of a real collector cannot have it; fixtures are imported by name (an entry point
would load them into every pytest run of whoever installs the SDK), and pytest itself only with them.
What it does not do: it counts a report alone (its peers are simulated and add zeros), which a real collector never
does; forked children have a collector of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from client_sdk import certificate as certificates
from client_sdk.certificate import Certificate, CertificateError, Role
from client_sdk.device.client import TelemetryClient
from client_sdk.device.interfaces import CallFailedError
from client_sdk.device.settings import MEMORY_SCHEME
from client_sdk.errors import (
    ConfigurationError,
    RejectionError,
    RejectionReason,
    RemoteProtocolError,
    RoundAbortedError,
)
from client_sdk.files import load_plan
from client_sdk.identity import IdentityKey, device_id_of, enrolment_message, renewal_message, verify
from client_sdk.plan import Plan
from client_sdk.report import PeriodState
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
    Challenge,
    CollectorMessage,
    Hello,
    Joined,
    ParticipantMessage,
    Receipt,
    RoundAborted,
)
from client_sdk.secagg.participant import Participant
from client_sdk.testing_direct import MemoryDirectStream
from client_sdk.wire.messages import (
    DeleteRequest,
    DeleteResponse,
    EnrolRequest,
    EnrolResponse,
    GetPlanRequest,
    GetPlanResponse,
    RenewRequest,
    RenewResponse,
)
from client_sdk.wire.methods import PARTICIPATE_METHOD

if TYPE_CHECKING:
    from pathlib import Path

    from client_sdk.device.views import UploadSummary
    from client_sdk.mechanisms import Entropy, Estimate, Value
    from collector.secagg.round import Round

__all__ = [
    "FakeClock",
    "InMemoryCollector",
    "ReceivedReport",
    "SeededEntropy",
    "collector_of",
    "recorded",
]

NONCE_BYTES = 32
CERTIFIED_S = 30 * 86_400
START = 1_767_268_800.0
"""Where a FakeClock begins: 2026-01-01T12:00Z."""


class FakeClock:
    """Time that stands still until the test moves it. Give it as `clock=` to client and collector alike."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; 86_400 ends the period of a daily plan."""
        self.now += seconds


class SeededEntropy:
    """Bytes that repeat with their seed: SHA-256 in counter mode. UNSAFE: for tests in memory only.

    Each client of a collector draws from a stream of its own, and a forked child leaves its parent's.
    """

    def __init__(self, seed: int | str, stream: int = 0) -> None:
        self._prefix = f"{seed}/{stream}/".encode()
        self._pid = os.getpid()
        self._counter = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "SeededEntropy()"

    def __call__(self, size: int) -> bytes:
        blocks = -(-size // 32)
        with self._lock:
            first, self._counter = self._counter, self._counter + blocks
        prefix = self._prefix if os.getpid() == self._pid else self._prefix + b"%d/" % os.getpid()
        return b"".join(hashlib.sha256(prefix + b"%d" % (first + n)).digest() for n in range(blocks))[:size]


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """One report as the in-memory collector counted it. delivery: `interactive` (through a round) or `direct`.

    elements: metric name -> its integers, with their noise; of a plan that samples its metrics, those that it holds.
    """

    device_id: str
    plan_name: str
    period_start: int
    resent: bool
    elements: Mapping[str, tuple[int, ...]] = field(repr=False)
    delivery: str = "interactive"


class InMemoryCollector:
    """Counts the reports of this process's clients, each through a real round with simulated peers.

    plan: a path or a Plan. clock: the same as the clients'. seed: makes their noise repeat (UNSAFE outside of
    tests, and not to be had there). `reachable = False` plays an outage of it. `forgotten`: ids of devices that opted
    out. Keep the object as long as its clients.
    """

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        seed: int | str | None = None,
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else load_plan(plan)
        self.clock = clock
        self.endpoint = f"{MEMORY_SCHEME}{next(_numbers)}"
        self.reachable = True
        self.reports: list[ReceivedReport] = []
        self.forgotten: set[str] = set()
        self._registrar = IdentityKey(os.urandom(32))
        self.registrar_key = self._registrar.public_key
        self._seed = seed
        self._streams = itertools.count()
        self._lock = threading.Lock()
        _collectors[self.endpoint] = self

    def __repr__(self) -> str:
        return f"InMemoryCollector({self.endpoint!r}, plan={self.plan.name!r}, reports={len(self.reports)})"

    # --- for tests ------------------------------------------------------------------------------------

    def client(self, data_dir: str | os.PathLike[str], **settings: Any) -> TelemetryClient:
        """A client of this collector: consent given, no background thread unless `background=True`."""
        own: dict[str, Any] = {"plan": self.plan, "consent": True, "background": False, "clock": self.clock}
        return TelemetryClient(self.endpoint, data_dir=data_dir, **(own | settings))

    def deliver(self, client: TelemetryClient, *, seal: bool = True) -> UploadSummary:
        """Seal the open period, then let a client without background thread send all that waits, and wait for it.

        Works inside and outside of a running loop. For a client with a thread, call its `flush(seal=True)`.
        """
        client.flush(seal=seal)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(client.upload())).result()

    def totals(self) -> dict[str, tuple[int, ...]]:
        """Metric name -> the sum of all reports' integers."""
        return {name: total for name, (total, _) in self._sums().items()}

    def estimates(self) -> dict[str, Estimate]:
        """Metric name -> what an operator would read in a report over all that was counted."""
        return {
            name: self.plan.metrics[name].mechanism.estimate(list(total), contributors)
            for name, (total, contributors) in self._sums().items()
        }

    def _sums(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Metric name -> the sum over the reports that hold it, and how many do."""
        sums = {}
        for name, metric in self.plan.metrics.items():
            with self._lock:
                held = [report.elements[name] for report in self.reports if name in report.elements]
            total = tuple(map(sum, zip(*held, strict=True))) or (0,) * metric.mechanism.length
            sums[name] = total, len(held)
        return sums

    # --- the client's view (Transport) ----------------------------------------------------------------

    def entropy(self) -> Entropy:
        """What one more client draws from."""
        return os.urandom if self._seed is None else SeededEntropy(self._seed, next(self._streams))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Connection]:
        """A connection that only looks like a network."""
        yield _Connection(self)

    def certify(self, identity_key: bytes) -> bytes:
        """A certificate from now on, as a registrar would give it."""
        now = int(self.clock())
        return certificates.issue(self._registrar, Certificate(Role.DEVICE, identity_key, now, now + CERTIFIED_S))

    def spent(self, device_id: str) -> Joined:
        """What is booked for an identity."""
        with self._lock:
            reports = sum(report.device_id == device_id for report in self.reports)
        return Joined(reports, self.plan.spent_micro(reports))

    def is_counted(self, device_id: str, period_start: int) -> bool:
        """Is the report of this device and period in a sum?"""
        with self._lock:
            return any((report.device_id, report.period_start) == (device_id, period_start) for report in self.reports)

    def forget(self, device_id: str) -> None:
        """An identity that opted out: it is never taken again. What it added stays in `reports`, as in a sum."""
        with self._lock:
            self.forgotten.add(device_id)

    def count(
        self, device_id: str, period_start: int, total: Sequence[int], *, resent: bool, delivery: str = "interactive"
    ) -> None:
        """Store what a round has opened, or what came unmasked."""
        counts = self.plan.counts
        elements = {
            name: tuple(total[place])
            for name, place in self.plan.slices.items()
            if name not in counts or total[counts[name]]
        }
        report = ReceivedReport(device_id, self.plan.name, period_start, resent, MappingProxyType(elements), delivery)
        with self._lock:
            self.reports.append(report)


_collectors: weakref.WeakValueDictionary[str, InMemoryCollector] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def find(endpoint: str) -> InMemoryCollector | None:
    """The living collector of an in-memory endpoint (asked by `TelemetryClient`)."""
    return _collectors.get(endpoint)


def collector_of(client: TelemetryClient) -> InMemoryCollector:
    """The in-memory collector that `client` talks to. ConfigurationError for a client of a real one."""
    collector = find(client._engine.settings.endpoint)  # noqa: SLF001 - this package's own
    if collector is None:
        raise ConfigurationError("testing: this client's endpoint is no in-memory collector of this process")
    return collector


def recorded(client: TelemetryClient) -> dict[str, Value]:
    """What the open period's readings amount to so far: metric name -> value before any noise, defaults included.

    None: an optional metric without a reading.
    For a client of an in-memory collector only (else ConfigurationError), and while a period is open.
    """
    collector_of(client)
    periods, refusal = client._engine.recorder.peek(client._engine.clock())  # noqa: SLF001 - this package's own
    if refusal is not None:
        raise ConfigurationError(f"testing: no period is open ({refusal.value})")
    period, raw = periods[-1]
    return PeriodState.load(period.plan, raw, period.start).values()


class _Connection:
    def __init__(self, collector: InMemoryCollector) -> None:
        self._collector = collector

    def _check_reachable(self) -> None:
        if not self._collector.reachable:
            raise CallFailedError("unavailable")

    async def enrol(self, request: EnrolRequest) -> EnrolResponse:
        if not verify(request.identity_key, request.signature, enrolment_message(request.token)):
            raise CallFailedError("permission_denied")
        certificate = self._collector.certify(request.identity_key)
        return EnrolResponse(certificate, certificates.read(certificate).expires_at)

    async def renew(self, request: RenewRequest) -> RenewResponse:
        try:
            said = certificates.read(request.certificate)
            certificates.check(
                request.certificate, self._collector.registrar_key, said.identity_key, Role.DEVICE, at=said.issued_at
            )
        except CertificateError:
            raise CallFailedError("permission_denied") from None
        if not verify(said.identity_key, request.signature, renewal_message(request.certificate)):
            raise CallFailedError("permission_denied")
        certificate = self._collector.certify(said.identity_key)
        return RenewResponse(certificate, certificates.read(certificate).expires_at)

    async def delete(self, request: DeleteRequest) -> DeleteResponse:
        from collector.intake import check_deletion

        self._check_reachable()
        try:
            check_deletion(request)
        except RejectionError:
            raise CallFailedError("unauthenticated") from None
        self._collector.forget(device_id_of(request.identity_key))
        return DeleteResponse()

    async def get_plan(self, request: GetPlanRequest) -> GetPlanResponse:  # noqa: ARG002 - there is one plan
        self._check_reachable()
        return GetPlanResponse(self._collector.plan.text, self._collector.plan.hash)

    def participate(self) -> _Stream:
        return _Stream(self._collector, self._check_reachable)

    def deliver(self) -> MemoryDirectStream:
        return MemoryDirectStream(self._collector, self._check_reachable)


class _Stream:
    """One device's stream. Messages go through their wire form, so that a test sees what a network would."""

    def __init__(self, collector: InMemoryCollector, check_reachable: Callable[[], None]) -> None:
        self._collector = collector
        self._check_reachable = check_reachable
        self._answers: deque[CollectorMessage] = deque()
        self._hello: Hello | None = None
        self._nonce = os.urandom(NONCE_BYTES)
        self._cohort: _Cohort | None = None

    async def send(self, message: ParticipantMessage) -> None:
        self._check_reachable()
        received = PARTICIPATE_METHOD.request_from_wire(PARTICIPATE_METHOD.request_to_wire(message))
        try:
            self._answers.extend(self._take(received))
        except RejectionError as error:
            unproven = error.reason in (RejectionReason.BAD_CERTIFICATE, RejectionReason.BAD_SIGNATURE)
            raise CallFailedError("unauthenticated" if unproven else "failed_precondition") from None

    async def receive(self) -> CollectorMessage | None:
        self._check_reachable()
        if not self._answers:
            return None
        answer = self._answers.popleft()
        return PARTICIPATE_METHOD.response_from_wire(PARTICIPATE_METHOD.response_to_wire(answer))

    async def close(self) -> None:
        return None

    def cancel(self) -> None:
        self._answers.clear()

    def _take(self, message: ParticipantMessage) -> list[CollectorMessage]:
        from collector.intake import check_advert, check_certificate, check_hello

        if isinstance(message, Hello):
            check_hello(message, self._collector.plan, self._collector.clock())
            check_certificate(message, self._collector.registrar_key, self._collector.clock())
            self._hello = message
            return [Challenge(self._nonce)]
        if isinstance(message, Advert) and self._hello is not None:
            check_advert(self._hello, self._nonce, message)
            return self._join(message)
        if self._cohort is None:
            raise CallFailedError("invalid_argument")
        return self._cohort.take(message)

    def _join(self, advert: Advert) -> list[CollectorMessage]:
        device_id = device_id_of(advert.identity_key)
        if device_id in self._collector.forgotten:
            raise CallFailedError("permission_denied")
        joined = self._collector.spent(device_id)
        if self._collector.is_counted(device_id, advert.period_start):
            return [joined, AlreadyCounted("memory", 1)]
        self._cohort = _Cohort(self._collector, advert)
        return [joined, self._cohort.roster]


class _Cohort:
    """The device as member 0, and just enough simulated peers that it agrees to take part."""

    def __init__(self, collector: InMemoryCollector, advert: Advert) -> None:
        from collector.secagg.round import Round

        rules = collector.plan.round_rules()
        size = max(rules.min_roster, rules.min_size + 1, advert.min_cohort)
        self._collector = collector
        self._advert = advert
        self._peers = [_peer(collector, advert.period_start) for _ in range(size - 1)]
        adverts = [advert, *(_advert_of(peer) for peer in self._peers)]
        self._round: Round = Round(f"memory-{os.urandom(4).hex()}", rules, adverts, int(time.time()))
        self.roster = self._round.roster_for(0)
        self._tell_peers({index: self._round.roster_for(index) for index in range(1, size)})

    def _tell_peers(self, messages: Mapping[int, CollectorMessage]) -> None:
        for index, message in messages.items():
            for reply in self._peers[index - 1].receive(message, time.monotonic()) if index else ():
                self._round.receive(index, reply)

    def take(self, message: ParticipantMessage) -> list[CollectorMessage]:
        """The device's next message; the answer, when its step is complete."""
        from collector.secagg.round import Phase

        self._round.receive(0, message)
        if self._round.pending():
            return []
        try:
            answers = self._round.close()
            if self._round.phase is Phase.OPENING:
                return [self._open()]
            self._tell_peers(answers)
        except (RoundAbortedError, RemoteProtocolError) as error:
            return [RoundAborted(error.reason.value, 0, self._round.size)]
        return [answers[0]]

    def _open(self) -> Receipt:
        from collector.secagg.opening import open_sum

        # the peers' reports are all zeros, so the sum is the device's own
        advert, total = self._advert, open_sum(self._round.opening())
        device_id = device_id_of(advert.identity_key)
        self._collector.count(device_id, advert.period_start, total, resent=advert.resent)
        return Receipt(self._round.round_id, len(self._round.survivors), self._round.size)


def _peer(collector: InMemoryCollector, period_start: int) -> Participant:
    identity, plan = IdentityKey(os.urandom(32)), collector.plan
    return Participant(
        identity,
        collector.certify(identity.public_key),
        collector.registrar_key,
        plan.hash,
        period_start,
        identity.report_id(plan.name, period_start),
        [0] * plan.length,
        plan.round_rules(),
        resent=False,
        min_cohort=0,
        entropy=os.urandom,
    )


def _advert_of(peer: Participant) -> Advert:
    peer.hello()
    (advert,) = peer.receive(Challenge(os.urandom(NONCE_BYTES)), time.monotonic())
    peer.receive(Joined(0, 0), time.monotonic())
    if not isinstance(advert, Advert):  # the protocol's next message is nothing else
        raise TypeError("a participant answers a challenge with its advert")
    return advert


if TYPE_CHECKING:

    def telemetry_client(telemetry_plan: Plan | str | os.PathLike[str], tmp_path: Path) -> Iterator[TelemetryClient]:
        """A pytest fixture: a client of an in-memory collector of its own, with noise that repeats, closed afterwards.

        Needs a fixture `telemetry_plan` of yours: a path or a Plan. `collector_of(telemetry_client)` is its collector.
        """


def __getattr__(name: str) -> object:
    if name != "telemetry_client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest  # only for those who use the fixture

    def telemetry_client(telemetry_plan: Plan | str | os.PathLike[str], tmp_path: Path) -> Iterator[TelemetryClient]:
        collector = InMemoryCollector(telemetry_plan, seed=0)
        with collector.client(tmp_path / "telemetry") as client:
            yield client

    made = globals()[name] = pytest.fixture(telemetry_client)
    return made
