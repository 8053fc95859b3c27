"""Endpoints that make trouble, on loopback: `with trouble("silent", plan) as settings: make_client(**settings)`."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from client_sdk.plan import Plan
from tests.unit.client_sdk.device.certificates import certificate
from tests.unit.client_sdk.device.helpers import DEAD
from tests.unit.client_sdk.device.small_collector import SmallCollector

KINDS = ("down", "silent", "slow", "closing", "other_protocol", "wrong_certificate", "unresolvable")
SLOW_S = 0.7


@contextmanager
def trouble(kind: str, plan: Plan) -> Iterator[dict[str, Any]]:
    """A client's settings for an endpoint of this kind."""
    with contextlib.ExitStack() as stack:
        if kind == "down":
            yield {"endpoint": DEAD, "insecure": True}
        elif kind == "unresolvable":
            yield {"endpoint": "collector.invalid:443", "insecure": False}
        elif kind == "silent":
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            yield {"endpoint": f"127.0.0.1:{server.getsockname()[1]}", "insecure": True}
        elif kind == "slow":
            collector = stack.enter_context(SmallCollector(plan, cohort_size=2))
            port = stack.enter_context(serving(lambda connection: relay(connection, collector.port)))
            yield {"endpoint": f"127.0.0.1:{port}", "insecure": True}
        elif kind == "closing":
            yield {"endpoint": f"127.0.0.1:{stack.enter_context(serving(lambda c: None))}", "insecure": True}
        elif kind == "other_protocol":
            answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
            port = stack.enter_context(serving(lambda connection: connection.sendall(answer)))
            yield {"endpoint": f"127.0.0.1:{port}", "insecure": True}
        else:
            private, public = certificate("localhost")
            _, stranger = certificate("localhost")
            credentials = grpc.ssl_server_credentials([(private, public)])
            collector = stack.enter_context(SmallCollector(plan, cohort_size=2, credentials=credentials))
            yield {"endpoint": collector.endpoint, "insecure": False, "root_certificates": stranger}


@contextmanager
def serving(answer: Any) -> Iterator[int]:
    """A TCP server: one thread a connection. Its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                answer(connection)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def relay(connection: socket.socket, port: int) -> None:
    """Pass on what comes, each piece late."""
    with socket.create_connection(("127.0.0.1", port)) as upstream:
        back = threading.Thread(target=copy_late, args=(upstream, connection), daemon=True)
        back.start()
        copy_late(connection, upstream)
        back.join(1)


def copy_late(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            time.sleep(SLOW_S)
            target.sendall(data)
