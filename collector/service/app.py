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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import grpc
from grpc import aio

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_plan, load_plan_signature, signature_path
from client_sdk.plan import Plan, parse_plan
from client_sdk.wire import limits
from collector.service.access import Access
from collector.service.admission import Joins, Streams
from collector.service.catalogue import Catalogue
from collector.service.deletion import DeletionServicer
from collector.service.entrance import CALLS_BESIDE
from collector.service.gate import Gate
from collector.service.health import Health
from collector.service.listening import (
    CONNECTION_OPTIONS,
    add_port,
    check_port,
    say_ready,
    signal_event,
    tls_files,
)
from collector.service.lobby import Lobby
from collector.service.monitoring import Monitor
from collector.service.names import name_judge
from collector.service.registrar.refusals import RefusalLog
from collector.service.reporting import Reader, ReportingServicer
from collector.service.rounds import RoundTools
from collector.service.servicers import Services, handlers
from collector.service.serving_lock import ServingLock
from collector.service.settings import ServeSettings, read_registrar_key
from collector.service.standings import Standings
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError
from collector.service.store_access import StoreAccess
from collector.service.tls_files import TlsFiles
from collector.service.workers import OpeningWorkers

log = logging.getLogger(__name__)

STREAMS_GRACE_S = 0.3
STORE_CLOSE_S = 0.5
HOUSEKEEPING_EVERY_S = 86_400.0
HOUSEKEEPING_FIRST_S = 600.0


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
        self._health = Health(self._store_access)
        self._reader = Reader(settings.db_url)
        self._refusals: RefusalLog | None = None
        self._serving_lock: ServingLock | None = None
        self._gate: Gate | None = None
        self._server: aio.Server | None = None
        self._background: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: ServeSettings, clock: Callable[[], float] = time.time) -> CollectorService:
        """Load, check, open, listen. Raises ConfigurationError, PlanError, StorageError and MachineError."""
        plans = [load_plan(path) for path in settings.plan_paths]
        signatures = _signatures(settings.plan_paths, plans)
        registrar_key = read_registrar_key(settings.registrar_key)
        _check_registrar(settings.plan_paths, plans, registrar_key)
        tls = tls_files(settings.tls_cert, settings.tls_key, settings.client_ca)
        check_port(settings.listen)
        store = CollectorStore.open(settings.db_url)
        try:
            catalogue = _catalogue(store, plans, signatures, int(clock()))
            catalogue.check_memory(settings.max_round_bytes)
            service = cls(settings, store, clock)
            await service._listen(catalogue, registrar_key, tls)
            service._take_lock()
        except BaseException:
            store.close()
            raise
        return service

    async def _listen(self, catalogue: Catalogue, registrar_key: bytes, tls: TlsFiles | None) -> None:
        settings, clock = self.settings, self._tools.clock
        self._gate = Gate(
            self._handlers(catalogue, registrar_key),
            Access(self._store_access, registrar_key, name_judge(settings.names, tls, lambda: self.port), clock),
            Streams(settings.max_streams, settings.max_streams_per_address),
            self.monitor,
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
        self._background.append(asyncio.create_task(self._keep_house(), name="housekeeping"))
        if tls is not None:
            self._background.append(asyncio.create_task(tls.watch(), name="TLS files"))

    def _take_lock(self) -> None:
        self._serving_lock = ServingLock(self.store.path)
        if self._serving_lock.shared:
            log.warning(
                "%s: another collector is running on this store; they hold up each other's writes, stop one of them",
                self.store.path,
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
        return [*handlers(services), deletion.handler(), reporting.handler(), self._health.handler()]

    async def _keep_house(self) -> None:
        """Once a day, not at the start, when the devices of an outage come back. What fails waits for the next day."""
        await asyncio.sleep(HOUSEKEEPING_FIRST_S)
        while True:
            try:
                folded, dropped = await self._store_access.call(CollectorStore.keep_house, self._tools.clock())
            except StoreError:
                log.warning("housekeeping failed; tried again tomorrow")
            else:
                log.info("housekeeping: %d old spends folded, %d old rows of who opted out dropped", folded, dropped)
            await asyncio.sleep(HOUSEKEEPING_EVERY_S)

    @property
    def address(self) -> str:
        """HOST:PORT, the port as the system gave it."""
        return f"{self.settings.listen.rpartition(':')[0]}:{self.port}"

    async def stop(self, grace_s: float) -> bool:
        """No joins from here on; rounds get `grace_s`. False where the store did not close in time."""
        server, self._server = self._server, None
        if server is None:
            return True
        self._health.stop()
        if self._gate is not None:
            self._gate.stop()
        await self._lobby.stop(grace_s)
        await asyncio.sleep(0)  # what the lobby put into the mailboxes is on its way
        await server.stop(STREAMS_GRACE_S)
        if self._refusals is not None:
            self._refusals.flush()
        if self._serving_lock is not None:
            self._serving_lock.close()
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
    say_ready(service.address)
    await stop.wait()
    log.info("stopping: running rounds get %.0f s", settings.grace_s)
    closed = await service.stop(settings.grace_s)
    log.info("stopped; %s", service.monitor.snapshot())
    return closed


def _signatures(paths: Sequence[Path], plans: Sequence[Plan]) -> dict[bytes, bytes]:
    """The operator's, for those plans that have one beside them. ConfigurationError for one under something else."""
    found = {}
    for path, plan in zip(paths, plans, strict=True):
        signature = load_plan_signature(path)
        if signature is None:
            continue
        if not signature.holds(plan):
            raise ConfigurationError(
                f"{signature_path(path)}: does not hold under {path} as it is; sign that again, or remove this file"
            )
        found[plan.hash] = signature.signature
    return found


def _check_registrar(paths: Sequence[Path], plans: Sequence[Plan], registrar_key: bytes) -> None:
    """A plan's devices believe the registrar that it names: with another one here, none of them would be taken."""
    for path, plan in zip(paths, plans, strict=True):
        if plan.registrar is not None and plan.registrar.key != registrar_key:
            raise ConfigurationError(
                f"{path}: its [registrar] has another key than --registrar-key; devices of this plan would be refused"
            )


def _catalogue(store: CollectorStore, plans: list[Plan], signatures: Mapping[bytes, bytes], now: int) -> Catalogue:
    for plan in plans:
        store.put_plan(plan, now)
    names = {plan.name for plan in plans}
    older = [parse_plan(stored.text) for stored in store.plans() if stored.name in names]
    return Catalogue([*older, *plans], signatures)


def _options(catalogue: Catalogue) -> list[tuple[str, int]]:
    return [
        *CONNECTION_OPTIONS,
        ("grpc.max_receive_message_length", catalogue.max_receive_bytes),
        ("grpc.max_send_message_length", limits.MAX_COLLECTOR_MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", 1000),
    ]
