"""What every gRPC service of ours does to listen, and to end on a signal: one port, one owner, a bounded end."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc import aio

from collector.service.settings import MachineError, split_address
from collector.service.tls_files import TlsFiles

KEEPALIVE_S = 60
TIDY_S = 0.5

CONNECTION_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.so_reuseport", 0),  # no silent sharing of a port
    # a compressed message arrives as it is, and is malformed: nothing small can become large here
    ("grpc.per_message_decompression", 0),
    # a connection that says nothing, or does not finish its handshakes; then one without a call. How many connections
    # an address may have is not the transport's to limit: that is for the machine's firewall
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_metadata_size", 16 * 1024),
    # a device may wait in silence; a dead one must not hold its seat for long
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # what newer gRPC really waits for an answer to that ping, a minute without this (seen with 1.85)
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ("grpc.keepalive_permit_without_calls", 0),
)


def tls_files(tls_cert: Path | None, tls_key: Path | None, client_ca: Path | None = None) -> TlsFiles | None:
    """The files that TLS is served from, None where there are none. Raises ConfigurationError."""
    return None if tls_cert is None or tls_key is None else TlsFiles(tls_cert, tls_key, client_ca)


def check_port(listen: str) -> None:
    """Say in one line why a port cannot be had, before the transport says it in many. Raises MachineError."""
    host, port = split_address(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise MachineError(f"--listen {host}:{port}: {error.strerror or error}") from None


def add_port(server: aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> int:
    """The port that the server got. Raises MachineError."""
    try:
        if credentials is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, credentials)
    except RuntimeError:
        raise MachineError(f"--listen: cannot listen on {listen}") from None


def signal_event() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stop)
    return stop


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        # in a thread with a limit: whoever was interrupted may hold a lock that this needs
        tidying = threading.Thread(target=_end_processes, daemon=True)
        tidying.start()
        tidying.join(TIDY_S)
        os._exit(128 + number)  # the stores' transactions and the devices' spools both survive this
    stop.set()


def _end_processes() -> None:
    """Workers first, then the semaphores that they share: what is left of those is complained about on stderr."""
    for worker in multiprocessing.active_children():
        worker.kill()
    multiprocessing.util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001 - what an orderly exit does


def say_ready(address: str) -> None:
    """The one line on stdout that whoever started the service waits for."""
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
