"""The page's own little HTTP server, as a scraper, a supervisor and a stranger meet it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from client_sdk.errors import MissingExtraError
from collector.service import metrics_http
from collector.service.metrics import COLLECTOR
from collector.service.metrics_http import MAX_CONNECTIONS, MetricsServer, serve_metrics
from collector.service.monitoring import Monitor
from collector.service.settings import MachineError
from tests.integration.participants import until


@asynccontextmanager
async def page(monitor: Monitor | None = None, *, ready: bool = True) -> AsyncIterator[MetricsServer]:
    async def is_ready() -> bool:
        return ready

    server = await serve_metrics("127.0.0.1:0", COLLECTOR, monitor or Monitor(), dict, is_ready)
    assert server is not None
    try:
        yield server
    finally:
        server.close()
        await asyncio.sleep(0)


async def connect(server: MetricsServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ask(server: MetricsServer, request: bytes) -> bytes:
    """All that comes back until the server closes."""
    reader, writer = await connect(server)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".encode()


async def test_a_scrape() -> None:
    monitor = Monitor()
    monitor.count("joins", 3)
    async with page(monitor) as server:
        head, _, body = (await ask(server, get("/metrics"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"\nldp_joins_total 3.0\n" in body
        again, _, nothing = (await ask(server, get("/metrics", "HEAD"))).partition(b"\r\n\r\n")
        assert (again.split()[1], nothing) == (b"200", b"")
        with_query = await ask(server, get("/metrics?name[]=x"))
        assert with_query.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("ready", [True, False])
async def test_alive_and_ready_are_two_things(ready: bool) -> None:
    async with page(ready=ready) as server:
        assert (await ask(server, get("/healthz"))).startswith(b"HTTP/1.1 200 ")
        assert (await ask(server, get("/readyz"))).startswith(b"HTTP/1.1 200 " if ready else b"HTTP/1.1 503 ")


async def test_what_is_not_there() -> None:
    async with page() as server:
        for path in ("/", "/metrics/", "/../etc/passwd", "//metrics", "http://elsewhere/metrics"):
            answer = await ask(server, get(path))
            assert answer.startswith(b"HTTP/1.1 404 "), path
            assert b"passwd" not in answer, "nothing of the request comes back"
        for method in ("POST", "PUT", "DELETE", "get"):
            assert (await ask(server, get("/metrics", method))).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    "request_", [b"", b"\r\n\r\n", b"\x00\xff\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics"]
)
async def test_strangers(request_: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request, and bytes of another protocol, get an error or nothing, and never the page."""
    monkeypatch.setattr(metrics_http, "REQUEST_TIMEOUT_S", 0.2)
    async with page() as server:
        answer = await ask(server, request_)
        assert not answer or answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 "))
        assert (await ask(server, get("/healthz"))).startswith(b"HTTP/1.1 200 ")


async def test_a_request_without_end_is_cut() -> None:
    async with page() as server:
        answer = await ask(server, b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100_000)
        assert answer == b""
        assert (await ask(server, get("/healthz"))).startswith(b"HTTP/1.1 200 ")


async def test_silent_connections_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "REQUEST_TIMEOUT_S", 600.0)
    async with page() as server:
        held = [await connect(server) for _ in range(MAX_CONNECTIONS)]
        await until(lambda: len(server._open) == MAX_CONNECTIONS)
        assert await ask(server, get("/healthz")) == b"", "no more at once"
        assert len(server._open) == MAX_CONNECTIONS
        for _, writer in held:
            writer.close()


async def test_silent_connections_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "REQUEST_TIMEOUT_S", 0.05)
    async with page() as server:
        held = [await connect(server) for _ in range(MAX_CONNECTIONS)]
        for reader, writer in held:
            assert await asyncio.wait_for(reader.read(), 60) == b"", "cut, and told nothing"
            writer.close()
        await until(lambda: not server._open)
        monkeypatch.setattr(metrics_http, "REQUEST_TIMEOUT_S", 60.0)
        assert (await ask(server, get("/healthz"))).startswith(b"HTTP/1.1 200 ")


async def test_a_port_that_is_taken() -> None:
    async with page() as server:
        with pytest.raises(MachineError, match=rf"--metrics {server.address}: "):
            await serve_metrics(server.address, COLLECTOR, Monitor(), dict, lambda: asyncio.sleep(0, result=True))


async def test_without_an_address_nothing_listens() -> None:
    assert await serve_metrics(None, COLLECTOR, Monitor(), dict, lambda: asyncio.sleep(0, result=True)) is None


async def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"--metrics needs the 'collector' extra"):
        await serve_metrics("127.0.0.1:0", COLLECTOR, Monitor(), dict, lambda: asyncio.sleep(0, result=True))
