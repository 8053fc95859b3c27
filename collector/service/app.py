"""The collector as one object: start it, ask its port, stop it; and `serve`, which runs it until a signal.

Rules of this file: everything that can be wrong is looked at before the port is opened, and says so in one
line; one port belongs to one collector (no silent sharing); stopping is bounded: running rounds get the
grace time, then the streams, the workers and the store are closed whatever they do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import grpc
from grpc import aio

from client_sdk.files import load_plan
from client_sdk.wire import limits
from client_sdk.wire.methods import DELETION_SERVICE, DIRECT_SERVICE, PLAN_SERVICE, REPORTING_SERVICE, SECAGG_SERVICE
from collector.service import metrics, reflection, served_plans
from collector.service.access import Access
from collector.service.admission import Joins, Streams
from collector.service.catalogue import Catalogue
from collector.service.deletion import DeletionServicer
from collector.service.direct import DirectServicer
from collector.service.entrance import CALLS_BESIDE
from collector.service.gate import Gate
from collector.service.health import HEALTH_SERVICE, Health
from collector.service.housekeeping import Housekeeping
from collector.service.listening import (
    CONNECTION_OPTIONS,
    add_port,
    check_port,
    say_ready,
    signal_event,
    tls_files,
)
from collector.service.lobby import Lobby
from collector.service.logs import fields
from collector.service.metrics_http import MetricsServer, serve_metrics
from collector.service.monitoring import CLOCK_SKEW_SECONDS, Monitor
from collector.service.names import name_judge
from collector.service.registrar.refusals import RefusalLog
from collector.service.reporting import Reader, ReportingServicer
from collector.service.retention import Retention
from collector.service.rounds import RoundTools
from collector.service.servicers import Services, handlers
from collector.service.serving_lock import ServingLock
from collector.service.settings import ServeSettings, read_registrar_key
from collector.service.standings import Standings
from collector.service.storage import CollectorStore
from collector.service.store_access import StoreAccess
from collector.service.tls_files import TlsFiles
from collector.service.workers import OpeningWorkers

log = logging.getLogger(__name__)

STREAMS_GRACE_S = 0.3
STORE_CLOSE_S = 0.5

SERVICES: Final[Mapping[str, bool]] = {
    SECAGG_SERVICE: True,
    DIRECT_SERVICE: True,
    PLAN_SERVICE: False,
    DELETION_SERVICE: True,
    REPORTING_SERVICE: True,
}
"""Whose health is asked for by name, and whether it needs the store."""

PROTOS: Final = ("secagg", "direct", "plan", "deletion", "reporting")
"""What describes them."""


class CollectorService:
    """One collector: its store, its pools and rounds, its server.

    `await CollectorService.start(settings)` returns a listening one; `stop` ends it. `clock` gives seconds
    since the epoch.
    """

    def __init__(self, settings: ServeSettings, store: CollectorStore, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.monitor = Monitor()
        self.store = store
        self.port = 0
        self._store_access = StoreAccess(store, self.monitor)
        self._workers = OpeningWorkers(settings.opening_workers)
        self._tools = RoundTools(
            store=self._store_access,
            workers=self._workers,
            monitor=self.monitor,
            clock=clock,
            step_timeout_s=settings.step_timeout_s,
        )
        self._lobby = Lobby(self._tools, expected_devices=settings.expected_devices, max_waiting=settings.max_waiting)
        self._store_access.on_outage = self._lobby.send_home
        self._health = Health(lambda: self._store_access.call(CollectorStore.probe), SERVICES)
        keep = Retention(settings.keep_spends_s, settings.keep_contributions_s, settings.keep_rounds_s)
        self._housekeeping = Housekeeping(self._store_access, self.monitor, clock, keep)
        self._reader = Reader(settings.db_url)
        self._refusals: RefusalLog | None = None
        self._serving_lock: ServingLock | None = None
        self._direct: DirectServicer | None = None
        self._gate: Gate | None = None
        self._tls: TlsFiles | None = None
        self._metrics: MetricsServer | None = None
        self._server: aio.Server | None = None
        self._background: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: ServeSettings, clock: Callable[[], float] = time.time) -> CollectorService:
        """Load, check, open, listen. Raises ConfigurationError, PlanError, StorageError and MachineError."""
        plans = [load_plan(path) for path in settings.plan_paths]
        signatures = served_plans.signatures(settings.plan_paths, plans)
        registrar_key = read_registrar_key(settings.registrar_key)
        served_plans.check_registrar(settings.plan_paths, plans, registrar_key)
        tls = tls_files(settings.tls_cert, settings.tls_key, settings.client_ca)
        check_port(settings.listen)
        store = CollectorStore.open(settings.db_url)
        try:
            catalogue = served_plans.catalogue(store, plans, signatures, int(clock()))
            catalogue.check_memory(settings.max_round_bytes)
            service = cls(settings, store, clock)
            await service._serve_metrics()
            await service._listen(catalogue, registrar_key, tls)
            service._take_lock()
        except BaseException:
            store.close()
            raise
        return service

    async def _listen(self, catalogue: Catalogue, registrar_key: bytes, tls: TlsFiles | None) -> None:
        settings = self.settings
        self._tls = tls
        self._gate = Gate(
            self._handlers(catalogue, registrar_key),
            self._access(registrar_key, tls),
            Streams(settings.max_streams, settings.max_streams_per_address),
            self.monitor,
            reflection.PATHS if settings.reflection else (),
        )
        server = aio.server(
            handlers=(self._gate,),
            options=_options(catalogue),
            # behind the gate's own limits, which answer and count: nothing but a last resort, and beyond what one
            # address may hold there and, with health checks, beside the total
            maximum_concurrent_rpcs=settings.max_streams + settings.max_streams_per_address + CALLS_BESIDE,
        )
        self.port = add_port(server, settings.listen, None if tls is None else tls.credentials())
        await server.start()
        self._server = server
        self._background.append(asyncio.create_task(self._workers.warm()))
        self._background.append(asyncio.create_task(self._housekeeping.run(), name="housekeeping"))
        if tls is not None:
            self._background.append(asyncio.create_task(tls.watch(), name="TLS files"))

    def _access(self, registrar_key: bytes, tls: TlsFiles | None) -> Access:
        is_our_name = name_judge(self.settings.names, tls, lambda: self.port)
        on_skew = partial(self.monitor.observe, CLOCK_SKEW_SECONDS)
        return Access(self._store_access, registrar_key, is_our_name, self._tools.clock, on_skew)

    def _take_lock(self) -> None:
        """On a server, any number of collectors share a store; in a file, they hold up each other."""
        if self.store.file is None:
            return
        self._serving_lock = ServingLock(self.store.file)
        if self._serving_lock.shared:
            log.warning(
                "%s: another collector is running on this store; they hold up each other's writes, stop one of them",
                self.store.where,
                extra=fields("store_shared"),
            )

    def _handlers(self, catalogue: Catalogue, registrar_key: bytes) -> list[grpc.GenericRpcHandler]:
        clock = self._tools.clock
        joins = Joins(self.settings.max_joins, clock)
        services = Services(
            catalogue, self._lobby, self._tools, Standings(self._store_access), registrar_key, os.urandom, joins
        )
        self._refusals = services.refusals
        reporting = ReportingServicer(self._reader, self.monitor, self._health, clock)
        deletion = DeletionServicer(self._tools, registrar_key)
        self._direct = direct = DirectServicer(services)
        told = reflection.handlers([*SERVICES, HEALTH_SERVICE], PROTOS) if self.settings.reflection else []
        return [
            *handlers(services),
            direct.handler(),
            deletion.handler(),
            reporting.handler(),
            self._health.handler(),
            *told,
        ]

    async def _serve_metrics(self) -> None:
        self._metrics = await serve_metrics(
            self.settings.metrics, metrics.COLLECTOR, self.monitor, self._gauges, self._is_ready
        )

    async def _is_ready(self) -> bool:
        """Also to be asked before the port is open."""
        return await self._health.serving() and self._server is not None

    def _gauges(self) -> dict[str, float]:
        tidied_at, tls = self._housekeeping.last_success_at, self._tls
        return {
            "ldp_serving": self._health.last_known,
            "ldp_database_up": self._store_access.working,
            "ldp_streams_open": self.monitor.streams_open,
            "ldp_waiting_devices": self._lobby.waiting,
            "ldp_running_rounds": self._lobby.running,
            **({} if tidied_at is None else {"ldp_housekeeping_last_success_timestamp_seconds": tidied_at}),
            **({} if tls is None else {"ldp_tls_certificate_expiry_timestamp_seconds": tls.ends_at}),
        }

    @property
    def address(self) -> str:
        """HOST:PORT, the port as the system gave it."""
        return f"{self.settings.listen.rpartition(':')[0]}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the page for Prometheus; empty where there is none."""
        return "" if self._metrics is None else self._metrics.address

    async def drain(self, drain_s: float) -> None:
        """Say that nobody should be sent here any more, and go on for `drain_s`: who is on the way is still taken."""
        self._health.stop()
        await asyncio.sleep(drain_s)

    async def stop(self, grace_s: float) -> bool:
        """No joins from here on; rounds get `grace_s`. False where the store did not close in time."""
        server, self._server = self._server, None
        if server is None:
            return True
        self._health.stop()
        if self._gate is not None:
            self._gate.stop()
        await self._lobby.stop(grace_s)
        if self._direct is not None:
            await self._direct.sums.stop()
        await asyncio.sleep(0)  # what the lobby put into the mailboxes is on its way
        await server.stop(STREAMS_GRACE_S)
        if self._refusals is not None:
            self._refusals.flush()
        if self._serving_lock is not None:
            self._serving_lock.close()
        if self._metrics is not None:
            self._metrics.close()
        self._workers.close()
        self._reader.close()
        for task in self._background:
            task.cancel()
        return await self._store_access.close(STORE_CLOSE_S)


async def serve(settings: ServeSettings) -> bool:
    """Run a collector until SIGTERM or SIGINT; a second signal ends the process at once.

    Prints one line on stdout when it is ready. Returns False where the store did not close in time.
    """
    stop = signal_event()
    service = await CollectorService.start(settings)
    log.info("listening on %s", service.address, extra=fields("listening", address=service.address))
    say_ready(service.address)
    await stop.wait()
    if settings.drain_s:
        said = fields("draining", seconds=settings.drain_s)
        log.info("draining: not serving any more to who asks, for %.0f s", settings.drain_s, extra=said)
        await service.drain(settings.drain_s)
    said = fields("stopping", grace_seconds=settings.grace_s)
    log.info("stopping: running rounds get %.0f s", settings.grace_s, extra=said)
    closed = await service.stop(settings.grace_s)
    counters = service.monitor.snapshot()
    log.info("stopped; %s", counters, extra=fields("stopped", counters=counters))
    return closed


def _options(catalogue: Catalogue) -> list[tuple[str, int]]:
    return [
        *CONNECTION_OPTIONS,
        ("grpc.max_receive_message_length", catalogue.max_receive_bytes),
        ("grpc.max_send_message_length", limits.MAX_COLLECTOR_MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", 1000),
    ]
