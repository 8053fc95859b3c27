"""The collector as one object: start it, ask its port, stop it; and `serve`, which runs it until a signal.

Rules of this file: everything that can be wrong is looked at before the port is opened, and says so in one
line; one port belongs to one collector (no silent sharing); stopping is bounded: running rounds get the
grace time, then the streams, the workers and the store are closed whatever they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import grpc
from grpc import aio

from client_sdk.files import load_plan
from client_sdk.plan import Plan, parse_plan
from client_sdk.wire import limits
from collector.service.catalogue import Catalogue
from collector.service.lobby import Lobby
from collector.service.monitoring import Monitor
from collector.service.rounds import RoundTools
from collector.service.servicers import Services, handlers
from collector.service.settings import MachineError, ServeSettings, read_tls, split_address
from collector.service.standings import Standings
from collector.service.storage import CollectorStore
from collector.service.store_access import StoreAccess
from collector.service.workers import OpeningWorkers

log = logging.getLogger(__name__)

STREAMS_GRACE_S = 0.3
STORE_CLOSE_S = 0.5
KEEPALIVE_S = 60


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
        self._server: aio.Server | None = None
        self._warming: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, settings: ServeSettings, clock: Callable[[], float] = time.time) -> CollectorService:
        """Load, check, open, listen. Raises ConfigurationError, PlanError, StorageError and MachineError."""
        plans = [load_plan(path) for path in settings.plan_paths]
        credentials = _credentials(settings)
        host, port = split_address(settings.listen)
        _check_port(host, port)
        store = CollectorStore.open(settings.db_url)
        try:
            catalogue = _catalogue(store, plans, int(clock()))
            service = cls(settings, store, clock)
            await service._listen(catalogue, credentials)
        except BaseException:
            store.close()
            raise
        return service

    async def _listen(self, catalogue: Catalogue, credentials: grpc.ServerCredentials | None) -> None:
        services = Services(catalogue, self._lobby, self._tools, Standings(self._store_access), os.urandom)
        server = aio.server(
            handlers=handlers(services),
            options=_options(catalogue),
            maximum_concurrent_rpcs=self.settings.max_streams,
        )
        try:
            if credentials is None:
                self.port = server.add_insecure_port(self.settings.listen)
            else:
                self.port = server.add_secure_port(self.settings.listen, credentials)
        except RuntimeError:
            raise MachineError(f"--listen: cannot listen on {self.settings.listen}") from None
        await server.start()
        self._server = server
        self._warming = asyncio.create_task(self._workers.warm())

    @property
    def address(self) -> str:
        """HOST:PORT, the port as the system gave it."""
        return f"{self.settings.listen.rpartition(':')[0]}:{self.port}"

    async def stop(self, grace_s: float) -> bool:
        """No joins from here on; rounds get `grace_s`. False where the store did not close in time."""
        server, self._server = self._server, None
        if server is None:
            return True
        ending = asyncio.create_task(server.stop(grace_s + STREAMS_GRACE_S))
        await self._lobby.stop(grace_s)
        await asyncio.sleep(0)  # what the lobby put into the mailboxes is on its way
        await asyncio.wait([ending], timeout=STREAMS_GRACE_S)
        await server.stop(None)
        await ending
        self._workers.close()
        if self._warming is not None:
            self._warming.cancel()
        return await self._store_access.close(STORE_CLOSE_S)


async def serve(settings: ServeSettings) -> bool:
    """Run a collector until SIGTERM or SIGINT; a second signal ends the process at once.

    Prints one line on stdout when it is ready. Returns False where the store did not close in time.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stop)
    service = await CollectorService.start(settings)
    sys.stdout.write(f"listening on {service.address}\n")
    sys.stdout.flush()
    await stop.wait()
    log.info("stopping: running rounds get %.0f s", settings.grace_s)
    closed = await service.stop(settings.grace_s)
    log.info("stopped; %s", service.monitor.snapshot())
    return closed


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(128 + number)  # the store's transactions and the devices' spools both survive this
    stop.set()


def _catalogue(store: CollectorStore, plans: list[Plan], now: int) -> Catalogue:
    for plan in plans:
        store.put_plan(plan, now)
    names = {plan.name for plan in plans}
    older = [parse_plan(stored.text) for stored in store.plans() if stored.name in names]
    return Catalogue([*older, *plans])


def _credentials(settings: ServeSettings) -> grpc.ServerCredentials | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return grpc.ssl_server_credentials([read_tls(settings.tls_cert, settings.tls_key)])


def _check_port(host: str, port: int) -> None:
    """Say in one line why a port cannot be had, before the transport says it in many."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise MachineError(f"--listen {host}:{port}: {error.strerror or error}") from None


def _options(catalogue: Catalogue) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", catalogue.max_receive_bytes),
        ("grpc.max_send_message_length", limits.MAX_COLLECTOR_MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", 1000),
        ("grpc.max_metadata_size", 16 * 1024),
        # a device waits in silence for its cohort; a dead one must not hold its seat for long
        ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        ("grpc.keepalive_permit_without_calls", 0),
    ]
