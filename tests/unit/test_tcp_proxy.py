"""The proxy does to a connection what it says, so that tests of bad networks test bad networks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.tcp_proxy import TcpProxy


class Echo:
    """A server that answers each byte with itself, after its name."""

    def __init__(self, name: bytes = b"") -> None:
        self.name = name
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = self.listener.getsockname()[:2]
        self.ended: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(self.name)
                while data := connection.recv(65_536):
                    connection.sendall(data)
                self.ended.append("end")
            except ConnectionResetError:
                self.ended.append("reset")

    def close(self) -> None:
        # a thread in accept() would keep the port open
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@contextmanager
def echo(name: bytes = b"") -> Iterator[Echo]:
    server = Echo(name)
    try:
        yield server
    finally:
        if server.listener.fileno() >= 0:
            server.close()


def connect(proxy: TcpProxy) -> socket.socket:
    connection = socket.create_connection((proxy.host, proxy.port), 5)
    connection.settimeout(5)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(65_536)):
        data += more
    return data


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bytes_pass_both_ways_and_so_does_the_end() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as connection:
        sent = bytes(range(256)) * 4000
        threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
        assert receive(connection, len(sent)) == sent
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        until(lambda: server.ended == ["end"])
        until(lambda: proxy.open_connections == 0)
        assert (proxy.accepted, proxy.cuts, proxy.bytes_passed) == (1, 0, 2 * len(sent))


def test_latency_delays_and_does_not_slow() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as connection:
        proxy.latency_s = 0.2
        started = time.monotonic()
        for _ in range(20):
            connection.sendall(b"x" * 1000)
            time.sleep(0.005)
        assert len(receive(connection, 20_000)) == 20_000
        assert 0.4 <= time.monotonic() - started < 1.5, "a round trip, not one for each of the twenty"


def test_bandwidth() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as connection:
        proxy.bytes_per_s = 40_000
        started = time.monotonic()
        connection.sendall(b"x" * 20_000)
        assert len(receive(connection, 20_000)) == 20_000
        assert 0.5 <= time.monotonic() - started < 2


def test_cut_all_resets_both_ends() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        assert proxy.cut_all() == 1
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        until(lambda: server.ended == ["reset"])
        with connect(proxy) as again:
            again.sendall(b"y")
            assert receive(again, 1) == b"y", "new ones are welcome"


def test_random_cuts_hit_about_their_share() -> None:
    with echo() as server, TcpProxy(*server.target, seed=7) as proxy:
        proxy.cut_probability = 0.25
        outcomes: list[bytes | None] = []
        for _ in range(60):
            with connect(proxy) as connection:
                try:
                    connection.sendall(b"x")
                    outcomes.append(receive(connection, 1))
                except ConnectionResetError:
                    outcomes.append(None)
        assert 10 <= outcomes.count(None) == proxy.cuts <= 45  # expected 26: two chunks each
        assert outcomes.count(b"x") == 60 - proxy.cuts


def test_swallowed_connections_are_half_open_and_stay_lost() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as open_before, connect(proxy) as idle:
        for connection in (open_before, idle):
            connection.sendall(b"x")
            assert receive(connection, 1) == b"x"
        proxy.swallow = True
        with connect(proxy) as opened_after:
            for connection in (open_before, opened_after):
                connection.sendall(b"lost")
                connection.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            opened_after.close()
            open_before.shutdown(socket.SHUT_WR)
            time.sleep(0.05)
            proxy.swallow = False
            with pytest.raises(TimeoutError):
                open_before.recv(1)
            assert server.ended == [], "it was not told"
        idle.sendall(b"y")
        assert receive(idle, 1) == b"y", "it lost nothing"


def test_a_stall_holds_and_goes_on() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy, connect(proxy) as connection:
        proxy.stall = True
        connection.sendall(b"held")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        proxy.stall = False
        assert receive(connection, 4) == b"held"


def test_refused() -> None:
    with echo() as server, TcpProxy(*server.target) as proxy:
        proxy.refuse = True
        with pytest.raises(ConnectionResetError), connect(proxy) as connection:  # noqa: PT012
            connection.sendall(b"x")
            connection.recv(1)


def test_round_robin_over_targets_that_are_there() -> None:
    with echo(b"a") as first, echo(b"b") as second, TcpProxy(targets=[first.target, second.target]) as proxy:

        def names(count: int) -> str:
            seen = b""
            for _ in range(count):
                with connect(proxy) as connection:
                    seen += receive(connection, 1)
            return "".join(sorted(seen.decode()))

        assert names(4) == "aabb"
        first.close()
        assert names(4) == "bbbb", "a dead one is passed over"
        with echo(b"c") as third:
            proxy.use(third.target, f"127.0.0.1:{second.target[1]}")
            assert names(4) == "bbcc"
        second.close()
        with pytest.raises(ConnectionResetError):
            names(1)


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with echo() as server:
        with TcpProxy(*server.target) as proxy:
            connections = [connect(proxy) for _ in range(20)]
            proxy.swallow = True
            for connection in connections:
                connection.sendall(b"x")
        for connection in connections:
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    until(lambda: threading.active_count() <= before)
