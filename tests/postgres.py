"""A real PostgreSQL for the tests: one server for each test process, started on first need and stopped with it.

It lives in a folder of its own in the system's temporary folder, listens on a free port of loopback and on a socket
in that folder, and runs as a user without rights, as PostgreSQL insists. `fsync` is off unless durability is the test.
A test that only puts rows into a database gets one that others have used, emptied; who changes tables takes a copy
of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from collector.service.storage import CollectorStore

ROOT_STAND_INS: Final = ("postgres", "nobody")
"""Users that the server may run as where the tests run as root."""

START_S: Final = 30.0
STARTER: Final = Path(__file__).with_name("postgres_starter.py")
SETTINGS: Final = {"shared_buffers": "32MB", "max_connections": "60", "log_min_messages": "warning", "jit": "off"}
FAST: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "checkpoint_timeout": "1h"}

_numbers = count()
_lock = threading.Lock()


class Server:
    """One server. `start` again after `kill` or `stop`: on the same port and folder, with what was committed."""

    def __init__(self, *, durable: bool = False) -> None:
        self._programs = _programs()
        self._user = _user()
        self.folder = Path(tempfile.mkdtemp(prefix="ldp-pg-"))
        self._settings = SETTINGS if durable else SETTINGS | FAST
        self._process: subprocess.Popen[bytes] | None = None
        self._template: str | None = None
        self.port = _free_port()
        self._own(self.folder)
        initdb = ("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        command = self._command("once", *initdb)
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, stdin=subprocess.DEVNULL)
        atexit.register(self.remove)
        self.start()

    def url(self, database: str) -> str:
        """Over loopback."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    # --- databases ---

    def new_database(self, *, empty: bool = False) -> str:
        """The URL of a database of its own; with a collector's tables in it, unless `empty`."""
        name = f"test_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}" + ("" if empty else f" TEMPLATE {self._migrated()}"))
        return self.url(name)

    def drop(self, url: str) -> None:
        """Whoever is still connected is thrown out."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def _migrated(self) -> str:
        if self._template is None:
            self.execute("CREATE DATABASE migrated")
            CollectorStore.open(self.url("migrated")).close()
            self._template = "migrated"
        return self._template

    def execute(self, statement: str) -> None:
        """Outside of a transaction, in the server's own database."""
        import psycopg

        with psycopg.connect(self.url("postgres").replace("+psycopg", ""), autocommit=True) as conn:
            conn.execute(statement)  # type: ignore[call-overload]

    # --- the process ---

    def start(self) -> None:
        """Returns when it takes connections. Where it does not, nothing of it is left, and it may be tried again."""
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError("the server is running already")
        settings = {
            **self._settings, "port": str(self.port), "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = self._command("watched", "postgres", "-D", "data", *options)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.stop(signal.SIGQUIT)
                how = f"exit status {ended}" if ended is not None else f"no answer in {START_S:g} s"
                raise RuntimeError(f"PostgreSQL did not start ({how}): {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres").replace("+psycopg", ""), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def running(self) -> bool:
        """Has it been started, and not stopped since?"""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def send(self, number: int) -> None:
        """To the server's first process."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT: sessions are ended; SIGQUIT: at once, as after a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(20)
        _dismiss_watch(process)

    def restart(self, number: int = signal.SIGINT) -> None:
        """Down and up again, on the same port."""
        self.stop(number)
        self.start()

    def remove(self) -> None:
        """Stop it and delete its folder."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def _command(self, kind: str, program: str, *options: str) -> list[str]:
        """By the starter, so that `subprocess` is asked for nothing that needs a `fork`."""
        ids = ("", "") if self._user is None else (str(self._user.pw_uid), str(self._user.pw_gid))
        return [sys.executable, "-I", str(STARTER), kind, *ids, str(self._programs / program), *options]


def _dismiss_watch(process: subprocess.Popen[bytes]) -> None:
    """The server has ended; its process id may be another's soon."""
    if process.stdin is not None:
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(b".")


def _user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ROOT_STAND_INS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is no other user here")


def _programs() -> Path:
    """The folder of `initdb` and `postgres`. Skips the test without one; fails it in CI."""
    on_path = shutil.which("initdb")
    found = [Path(on_path)] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].resolve().parent
    missing = "no PostgreSQL here (initdb): apt-get install -y postgresql"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@cache
def _server() -> Server:
    return Server()


def server() -> Server:
    """The one of this process."""
    with _lock:
        return _server()


@contextmanager
def database(*, empty: bool = False) -> Iterator[str]:
    """The URL of a database of its own, that is there as long as the block runs; migrated, unless `empty`."""
    url = server().new_database(empty=empty)
    try:
        yield url
    finally:
        server().drop(url)


_shelf: list[str] = []


@contextmanager
def used_database() -> Iterator[str]:
    """The URL of a migrated database without a row, which nobody else uses as long as the block runs."""
    url = _shelf.pop() if _shelf else server().new_database()
    try:
        yield url
    finally:
        empty(url)
        _shelf.append(url)


def empty(url: str) -> None:
    """Throws out whoever is connected, and every row but what says which version it is."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as conn:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        conn.execute(f"SELECT pg_terminate_backend(pid) {others}")
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE '%_version'"
        names = [row[0] for row in conn.execute(tables)]
        conn.execute(f"TRUNCATE {', '.join(names)}")  # type: ignore[call-overload]


@contextmanager
def durable_server() -> Iterator[Server]:
    """One of the test's own, that loses nothing when it is killed: to be stopped, killed and started again."""
    own = Server(durable=True)
    try:
        yield own
    finally:
        own.remove()
        atexit.unregister(own.remove)
