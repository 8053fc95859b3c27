"""A TCP proxy in user space that makes a network bad: latency, little bandwidth, cuts, half-open connections, stalls.

    with TcpProxy("127.0.0.1", 7443) as proxy:
        client_of(proxy.address)
        proxy.latency_s = 0.3

It runs in a thread of its own; every attribute may be set from any thread while it runs and holds from the next bytes
on, for connections that are open already too. With several targets it is a load balancer: connections go round robin
over those that take them, and `targets` may be replaced while it runs.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Self

Target = tuple[str, int]

CHUNK = 65_536
QUEUED_CHUNKS = 256
"""Chunks on their way in one direction; more wait in the sender's socket."""
RESET = struct.pack("ii", 1, 0)
TICK_S = 0.02
FALLS = (OSError, TimeoutError)


def address_of(target: Target) -> str:
    return f"{target[0]}:{target[1]}"


class TcpProxy:
    """Listens on a free port of loopback (or on `port`) and passes connections on.

    `latency_s`        what each direction adds; bytes on their way overtake nobody and are not slowed beyond it.
    `bytes_per_s`      bandwidth of each direction of each connection; None: as fast as it goes.
    `cut_probability`  for each chunk that arrives: that the connection is reset instead.
    `swallow`          a half-open path: whatever arrives is taken and lost, new connections are taken and go nowhere,
                       and neither end is told. A connection that lost a byte stays lost when this ends.
    `stall`            nothing moves and nothing is lost; it goes on when this ends.
    `refuse`           new connections are reset at once.
    """

    def __init__(self, *target: str | int, targets: Iterable[Target] = (), port: int = 0, seed: int = 0) -> None:
        host_port: list[Target] = [(str(target[0]), int(target[1]))] if target else []
        self.targets: list[Target] = host_port + list(targets)
        self.latency_s = 0.0
        self.bytes_per_s: float | None = None
        self.cut_probability = 0.0
        self.swallow = False
        self.stall = False
        self.refuse = False
        self.accepted = 0
        self.cuts = 0
        self.bytes_passed = 0
        self._random = random.Random(seed)
        self._turn = 0
        self._connections: set[_Connection] = set()
        self._taking: set[asyncio.Task[Any]] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.host, self.port = self._listener.getsockname()[:2]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def start(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def stop(self) -> None:
        """Everything is cut; afterwards nobody listens and the thread is gone."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cut_all(self) -> int:
        """Reset every open connection, both ends: how many they were."""
        return int(self._call(self._cut_all()))

    def use(self, *targets: Target | str) -> None:
        """From now on new connections go to these, `(host, port)` or `host:port`."""
        split = [
            target.rpartition(":") if isinstance(target, str) else (target[0], ":", target[1]) for target in targets
        ]
        self.targets = [(host, int(port)) for host, _, port in split]

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    # --- on the loop ------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, sock=self._listener, limit=CHUNK)

    async def _end(self) -> None:
        # nobody more is taken; closing at once would leave those that asyncio is just taking open and unknown to all
        asyncio.get_running_loop().remove_reader(self._listener)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut_all()
            for task in self._taking:  # and no task of asyncio's own, which may be about to bring one more
                task.cancel()
            await asyncio.wait(others, timeout=TICK_S)
        self._server.close()

    async def _cut_all(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = _Connection(self, reader, writer)
        task: Any = asyncio.current_task()
        self._connections.add(connection)
        self._taking.add(task)
        try:
            with suppress(asyncio.CancelledError):  # only the proxy's own end cancels
                await connection.run()
        finally:
            connection.close()
            self._connections.discard(connection)
            self._taking.discard(task)

    async def reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The next target that takes a connection; None where none does."""
        targets = list(self.targets)
        for _ in targets:
            self._turn += 1
            with suppress(*FALLS):
                # not `wait_for`, which before Python 3.12 may lose a cancellation at the moment the target is reached
                async with asyncio.timeout(5):
                    return await asyncio.open_connection(*targets[self._turn % len(targets)])
        return None

    async def motion(self) -> None:
        """Wait until nothing is stalled."""
        while self.stall:  # noqa: ASYNC110 - it is set from other threads
            await asyncio.sleep(TICK_S)

    def cuts_now(self) -> bool:
        return self.cut_probability > 0 and self._random.random() < self.cut_probability


class _Connection:
    """One accepted connection and, once it is reached, the target's."""

    def __init__(self, proxy: TcpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader = reader
        self.writers = [writer]
        self.is_cut = False
        self.lost = False
        """A byte was swallowed: nothing of this connection is passed on any more, in either direction."""

    async def run(self) -> None:
        if self.proxy.refuse:
            return self.cut()
        if self.proxy.swallow:
            return await self._sink()
        reached = await self.proxy.reach()
        if reached is None:
            return self.cut()
        reader, writer = reached
        self.writers.append(writer)
        pumps = [_Pump(self, self.reader, writer), _Pump(self, reader, self.writers[0])]
        await asyncio.gather(*(pump.run() for pump in pumps))
        return None

    async def _sink(self) -> None:
        with suppress(*FALLS):
            while await self.reader.read(CHUNK):
                pass
        await self.be_lost()

    async def be_lost(self) -> None:
        """Neither end is told, until the proxy ends or cuts what it has."""
        self.lost = True
        await asyncio.Event().wait()

    def cut(self) -> None:
        """Both ends get a reset."""
        if self.is_cut:
            return
        self.is_cut = True
        self.proxy.cuts += 1
        for writer in self.writers:
            with suppress(OSError, AttributeError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    def close(self) -> None:
        """Both ends, without a reset where it was not cut."""
        for writer in self.writers:
            writer.close()


class _Pump:
    """One direction of one connection."""

    def __init__(self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection = connection
        self.proxy = connection.proxy
        self.reader = reader
        self.writer = writer
        self.under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)

    async def run(self) -> None:
        """Until the end of the bytes has been passed on, or the connection is cut."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take())
                group.create_task(self._pass_on())
        except* FALLS:
            if self.proxy.swallow:
                await self.connection.be_lost()
            self.connection.cut()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.proxy.motion()
            rate = self.proxy.bytes_per_s
            data = await self._read(CHUNK if rate is None else max(1, min(CHUNK, int(rate * TICK_S * 5))))
            if self.proxy.bytes_per_s is not None:  # which may have been set while nothing came
                await asyncio.sleep(len(data) / self.proxy.bytes_per_s)
            await self.under_way.put((loop.time() + self.proxy.latency_s, data))
            if not data:
                return

    async def _read(self, size: int) -> bytes:
        data = await self.reader.read(size)
        if data and self.proxy.cuts_now():
            raise ConnectionResetError
        return data

    async def _pass_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self.under_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self.proxy.motion()
            if self.proxy.swallow or self.connection.lost:
                self.connection.lost = True
                if not data:
                    await self.connection.be_lost()
            elif data:
                self.writer.write(data)
                await self.writer.drain()
                self.proxy.bytes_passed += len(data)
            else:
                return self.writer.write_eof() if self.writer.can_write_eof() else None
