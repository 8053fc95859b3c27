"""The tests' own PostgreSQL starts whatever goes on in the process that starts it, and ends with that process."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tests import postgres

ROOT = Path(__file__).resolve().parents[1]
STARTS = 5
"""Without the starter, four or five of ten children died in gRPC's handlers, before they were a server."""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.durable_server() as own:
        yield own


async def test_it_starts_beside_busy_channels(server: postgres.Server) -> None:
    async def echo(data: bytes, _context: object) -> bytes:
        return data

    busy = aio.server()
    handler: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    busy.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Busy", handler),))
    address = f"127.0.0.1:{busy.add_insecure_port('127.0.0.1:0')}"
    await busy.start()
    calls, over = 0, False

    async def caller() -> None:
        nonlocal calls
        async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call: Any = channel.unary_unary("/test.Busy/Echo")
            while not over:
                await call(b"x")
                calls += 1

    callers = [asyncio.create_task(caller()) for _ in range(4)]
    try:
        for _ in range(STARTS):
            before = calls
            await asyncio.to_thread(server.restart)
            assert calls > before, "they were busy meanwhile"
    finally:
        over = True
        await asyncio.gather(*callers)
        await busy.stop(0)


def test_it_stays_when_the_thread_that_started_it_ends(server: postgres.Server) -> None:
    starting = threading.Thread(target=server.restart)
    starting.start()
    starting.join(60)
    time.sleep(0.3)
    server.execute("SELECT 1")


def test_a_start_that_fails_says_how_and_may_be_tried_again(server: postgres.Server) -> None:
    server.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", server.port))
        taken.listen()
        with pytest.raises(RuntimeError, match=r"exit status 1\b.*(?s:.*)Address already in use"):
            server.start()
    assert not server.running
    server.start()
    server.execute("SELECT 1")
    with pytest.raises(RuntimeError, match="running already"):
        server.start()


PROGRAM = """
from tests.postgres import Server
own = Server()
print(own.folder, own.pid, own.port, flush=True)
input()
"""


def test_it_ends_with_a_test_run_that_is_killed() -> None:
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stdout is not None
    folder, pid, port = run.stdout.readline().split()
    with socket.create_connection(("127.0.0.1", int(port))):
        pass
    run.send_signal(signal.SIGKILL)
    run.wait(30)
    deadline = time.monotonic() + 20
    while (Path(folder) / "data" / "postmaster.pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    subprocess.run(["rm", "-rf", folder], check=True)
    assert time.monotonic() < deadline, pid
    for stream in (run.stdin, run.stdout):
        if stream is not None:
            stream.close()
