"""The registrar as a gRPC service: tokens for certificates, and certificates for later ones.

Rules of this file: requests arrive as bytes and are decoded here, so that anything malformed is a status, never a
traceback; a refused token, a revoked identity and a certificate that is not to be renewed get one and the same
answer; nothing is logged about who asks, and nothing is read from who has no place (`entrance`); the key stays in
`Issuer`. Stopping is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import grpc
from grpc import aio

from client_sdk.certificate import CertificateError
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import IdentityKey, enrolment_message, verify
from client_sdk.wire import limits
from client_sdk.wire.messages import EnrolResponse, RenewResponse
from client_sdk.wire.methods import ENROL_METHOD, ENROLMENT_SERVICE, RENEW_METHOD
from collector.service import metrics
from collector.service.admission import Streams
from collector.service.entrance import CALLS_BESIDE, Entrance
from collector.service.health import HEALTH_SERVICE, Health
from collector.service.listening import (
    CONNECTION_OPTIONS,
    add_port,
    check_port,
    say_ready,
    signal_event,
    tls_files,
)
from collector.service.logs import fields
from collector.service.metrics_http import MetricsServer, serve_metrics
from collector.service.monitoring import Monitor
from collector.service.registrar.folder import RegistrarFolder
from collector.service.registrar.issuing import Issuer, Terms
from collector.service.registrar.refusals import RefusalLog
from collector.service.registrar.store import RegistrarStore
from collector.service.settings import MAX_CALLS, check_metrics, check_transport, check_wait, check_whole
from collector.service.statuses import Refusal, status_of
from collector.service.store_access import StoreAccess
from collector.service.tls_files import TlsFiles

log = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:7444"
STORE_CLOSE_S = 0.5

Context = aio.ServicerContext[bytes, bytes]


@dataclass(frozen=True, slots=True)
class RegistrarSettings:
    """What `registrar serve` needs. Raises ConfigurationError for what cannot work.

    folder: made by `registrar init`. listen: HOST:PORT; port 0 lets the system choose. max_calls: requests that may be
    open at once, max_calls_per_address: of them from one address; more are refused at once, the devices come back.
    metrics, metrics_public, drain_s: as a collector's. db: the store's URL, where it is not in the folder.
    """

    folder: Path
    listen: str = DEFAULT_LISTEN
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    terms: Terms = field(default_factory=Terms)
    grace_s: float = 5.0
    max_calls: int = 1000
    max_calls_per_address: int = 100
    metrics: str | None = None
    metrics_public: bool = False
    drain_s: float = 0.0
    db: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_transport(self.listen, self.tls_cert, self.tls_key, insecure=self.insecure)
        check_whole("--max-calls", self.max_calls, MAX_CALLS)
        check_whole("--max-calls-per-address", self.max_calls_per_address, MAX_CALLS)
        check_wait("--drain", self.drain_s, "5s")
        check_metrics(self.metrics, public=self.metrics_public)


class EnrolmentServicer:
    """EnrolmentService over one key and one store."""

    def __init__(
        self, issuer: Issuer, store: StoreAccess[RegistrarStore], monitor: Monitor, clock: Callable[[], float]
    ) -> None:
        self._issuer = issuer
        self._store = store
        self._monitor = monitor
        self._clock = clock
        self.refusals = RefusalLog(log, time.monotonic)

    async def enrol(self, data: bytes, _context: Context) -> bytes:
        """A certificate for a token; the same again for the same token and identity. Raises like `renew`."""
        answer = await self._enrol(data)
        self._monitor.count("enrolled")
        return answer

    async def renew(self, data: bytes, _context: Context) -> bytes:
        """A later certificate for the identity of this one. Raises RejectionError, WireError, StoreError."""
        answer = await self._renew(data)
        self._monitor.count("renewed")
        return answer

    async def _enrol(self, data: bytes) -> bytes:
        request = ENROL_METHOD.request_from_wire(data)
        if not verify(request.identity_key, request.signature, enrolment_message(request.token)):
            raise RejectionError(RejectionReason.BAD_SIGNATURE)
        now, repeat_for_s = self._clock(), self._issuer.terms.repeat_for_s
        until = self._issuer.expiry(now)
        accepted = await self._store.call(
            RegistrarStore.enrol, request.token, request.identity_key, now, until=until, repeat_for_s=repeat_for_s
        )
        if not accepted:
            raise RejectionError(RejectionReason.BAD_TOKEN)
        return ENROL_METHOD.response_to_wire(EnrolResponse(self._issuer.issue(request.identity_key, now), until))

    async def _renew(self, data: bytes) -> bytes:
        request, now = RENEW_METHOD.request_from_wire(data), self._clock()
        try:
            shown = self._issuer.check_renewal(request, now)
        except CertificateError as error:
            self._monitor.count(f"certificates.{error.reason}")
            raise RejectionError(RejectionReason.NOT_RENEWED) from None
        until = self._issuer.expiry(now)
        if not await self._store.call(RegistrarStore.renew, shown.identity_key, now, until=until):
            self._monitor.count("certificates.revoked")
            raise RejectionError(RejectionReason.NOT_RENEWED)
        return RENEW_METHOD.response_to_wire(RenewResponse(self._issuer.issue(shown.identity_key, now), until))

    async def refuse(self, context: Context, refusal: Refusal) -> NoReturn:
        """Count the reason and end the call with its status."""
        self._monitor.rejected(refusal)
        if isinstance(refusal, RejectionReason):
            self.refusals.note(refusal.value)
        status = status_of(refusal)
        await context.abort(status.code, status.text)


class RegistrarService:
    """One registrar: `await RegistrarService.start(settings)` returns a listening one, `stop` ends it."""

    def __init__(
        self, settings: RegistrarSettings, key: IdentityKey, store: RegistrarStore, clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.monitor = Monitor()
        self.store = store
        self.port = 0
        self._store_access = StoreAccess(store, self.monitor)
        self._health = Health(lambda: self._store_access.call(RegistrarStore.probe), {ENROLMENT_SERVICE: True})
        self._tls: TlsFiles | None = None
        self._metrics: MetricsServer | None = None
        self._servicer = EnrolmentServicer(Issuer(key, settings.terms), self._store_access, self.monitor, clock)
        self._server: aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, settings: RegistrarSettings, clock: Callable[[], float] = time.time) -> RegistrarService:
        """Load, check, open, listen. Raises ConfigurationError, StorageError and MachineError."""
        folder = RegistrarFolder(settings.folder, settings.db)
        key = folder.key()
        tls = tls_files(settings.tls_cert, settings.tls_key)
        check_port(settings.listen)
        store = folder.open_own_store(key)
        try:
            service = cls(settings, key, store, clock)
            service._metrics = await serve_metrics(
                settings.metrics, metrics.REGISTRAR, service.monitor, service._gauges, service._is_ready
            )
            await service._listen(tls)
        except BaseException:
            store.close()
            raise
        return service

    async def _listen(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        streams = Streams(self.settings.max_calls, self.settings.max_calls_per_address)
        entrance = Entrance(streams, self._servicer.refuse)
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            ENROL_METHOD.name: entrance.guarded(grpc.unary_unary_rpc_method_handler(self._servicer.enrol)),
            RENEW_METHOD.name: entrance.guarded(grpc.unary_unary_rpc_method_handler(self._servicer.renew)),
        }
        asked = {name: entrance.guarded(one, beside_the_total=True) for name, one in self._health.methods().items()}
        server = aio.server(
            handlers=(
                grpc.method_handlers_generic_handler(ENROLMENT_SERVICE, methods),
                grpc.method_handlers_generic_handler(HEALTH_SERVICE, asked),
            ),
            options=[
                *CONNECTION_OPTIONS,
                ("grpc.max_receive_message_length", limits.MAX_REGISTRAR_MESSAGE_BYTES),
                ("grpc.max_send_message_length", limits.MAX_REGISTRAR_MESSAGE_BYTES),
                ("grpc.max_concurrent_streams", 100),
            ],
            maximum_concurrent_rpcs=self.settings.max_calls + CALLS_BESIDE,  # behind the entrance: a last resort
        )
        self.port = add_port(server, self.settings.listen, None if tls is None else tls.credentials())
        await server.start()
        self._server = server
        if tls is not None:
            self._watching = asyncio.create_task(tls.watch(), name="TLS files")

    @property
    def address(self) -> str:
        """HOST:PORT, the port as the system gave it."""
        return f"{self.settings.listen.rpartition(':')[0]}:{self.port}"

    async def _is_ready(self) -> bool:
        """Also to be asked before the port is open."""
        return await self._health.serving() and self._server is not None

    def _gauges(self) -> dict[str, float]:
        tls = self._tls
        return {
            "ldp_serving": self._health.last_known,
            "ldp_database_up": self._store_access.working,
            **({} if tls is None else {"ldp_tls_certificate_expiry_timestamp_seconds": tls.ends_at}),
        }

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the page for Prometheus; empty where there is none."""
        return "" if self._metrics is None else self._metrics.address

    async def drain(self, drain_s: float) -> None:
        """Say that nobody should be sent here any more, and go on for `drain_s`."""
        self._health.stop()
        await asyncio.sleep(drain_s)

    async def stop(self, grace_s: float) -> bool:
        """No calls from here on; those at work get `grace_s`. False where the store did not close in time."""
        server, self._server = self._server, None
        if server is None:
            return True
        self._health.stop()
        await server.stop(grace_s)
        if self._metrics is not None:
            self._metrics.close()
        self._servicer.refusals.flush()
        if self._watching is not None:
            self._watching.cancel()
        return await self._store_access.close(STORE_CLOSE_S)


async def serve(settings: RegistrarSettings) -> bool:
    """Run a registrar until SIGTERM or SIGINT; a second signal ends the process at once.

    Prints one line on stdout when it is ready. Returns False where the store did not close in time.
    """
    stop = signal_event()
    service = await RegistrarService.start(settings)
    log.info("listening on %s", service.address, extra=fields("listening", address=service.address))
    say_ready(service.address)
    await stop.wait()
    if settings.drain_s:
        said = fields("draining", seconds=settings.drain_s)
        log.info("draining: not serving any more to who asks, for %.0f s", settings.drain_s, extra=said)
        await service.drain(settings.drain_s)
    log.info("stopping", extra=fields("stopping"))
    closed = await service.stop(settings.grace_s)
    counters = service.monitor.snapshot()
    log.info("stopped; %s", counters, extra=fields("stopped", counters=counters))
    return closed
