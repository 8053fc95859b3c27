"""The page for Prometheus over HTTP, with /healthz and /readyz beside it, on a port of its own.

Rules of this file: three paths, two methods (GET, HEAD), one answer a connection; a request is a few kilobytes, read
within its time, from a bounded number of connections at once; nothing of a request is logged, kept or answered back.
It runs on the service's own event loop, so an answer also says that the loop turns: /healthz means alive, /readyz that
who came now could be served (the same as grpc.health.v1).
What it does not do: no TLS and no password. It listens on this machine only, unless its operator says that nobody but
Prometheus can reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from client_sdk.errors import MissingExtraError
from collector.service.logs import fields
from collector.service.metrics import CONTENT_TYPE, Gauges, Metric, Page
from collector.service.monitoring import Monitor
from collector.service.settings import MachineError, split_address
from collector.service.versions import installed_version

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 8192
REQUEST_TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 32

PLAIN: Final = "text/plain; charset=utf-8"

Answer = tuple[str, str, bytes]
"""Status line, content type, body."""


async def serve_metrics(
    address: str | None,
    metrics: Sequence[Metric],
    monitor: Monitor,
    gauges: Callable[[], Gauges],
    ready: Callable[[], Awaitable[bool]],
) -> MetricsServer | None:
    """The page of one service on HOST:PORT, or none. Raises MachineError, and MissingExtraError."""
    if address is None:
        return None
    try:
        page = Page(metrics, monitor, gauges, installed_version())
    except ModuleNotFoundError:
        raise MissingExtraError("--metrics", "collector") from None
    server = MetricsServer(page, ready)
    await server.start(address)
    log.info("metrics on http://%s/metrics", server.address, extra=fields("metrics", address=server.address))
    return server


class MetricsServer:
    """Of one service. ready: could who came now be served?"""

    def __init__(self, page: Page, ready: Callable[[], Awaitable[bool]]) -> None:
        self._page = page
        self._ready = ready
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen on HOST:PORT; port 0: any. Raises MachineError."""
        host, port = split_address(address, "--metrics")
        try:
            self._server = await asyncio.start_server(self._connected, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise MachineError(f"--metrics {address}: {error.strerror or error}") from None
        self.address = f"{address.rpartition(':')[0]}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """No answers from here on."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            answer, with_body = await self._answer(head)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(_encoded(answer, with_body=with_body))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> tuple[Answer, bool]:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return ("405 Method Not Allowed", PLAIN, b"GET or HEAD\n"), True
        return await self._found(path), method == b"GET"

    async def _found(self, path: bytes) -> Answer:
        if path == b"/metrics":
            await self._ready()  # so that the page says it, and no older answer
            return "200 OK", CONTENT_TYPE, self._page.text()
        if path == b"/healthz":
            return "200 OK", PLAIN, b"alive\n"
        if path == b"/readyz":
            ready = await self._ready()
            return ("200 OK", PLAIN, b"ready\n") if ready else ("503 Service Unavailable", PLAIN, b"not ready\n")
        return "404 Not Found", PLAIN, b"/metrics, /healthz, /readyz\n"


def _encoded(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + (body if with_body else b"")
