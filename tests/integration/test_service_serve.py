"""`serve` as an operator meets it: another process, signals, exit codes, one clear line."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc import aio

from client_sdk.secagg.messages import AlreadyCounted, ParticipantMessage, Receipt
from client_sdk.wire.messages import GetPlanRequest
from client_sdk.wire.methods import GET_PLAN_METHOD
from collector.service.storage import CollectorStore
from tests.commands import Run
from tests.integration.participants import Device, two_number_plan, until
from tests.integration.processes import PLAIN, ROOT, SERVE, Process, child_pids, command, is_alive, serving
from tests.registrar import KEY_HEX

PLAN = two_number_plan(min_size=2, target_size=3)


def some(count: int) -> list[Device]:
    return [Device([i, 10 * i], PLAN) for i in range(1, count + 1)]


class Reached:
    """A hook for several uploads: `wait` returns once `count` of them are about to send their message of a step."""

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._missing = count
        self._event = asyncio.Event()

    def __call__(self, step: str, message: ParticipantMessage) -> ParticipantMessage:
        self._missing -= step == self._step
        if self._missing == 0:
            self._event.set()
        return message

    async def wait(self) -> None:
        await asyncio.wait_for(self._event.wait(), 20)
        await asyncio.sleep(0.2)  # and the message is there


# case E07
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
async def test_told_to_stop_in_the_middle_of_a_round(tmp_path: Path, number: signal.Signals) -> None:
    """Two of three finish within the grace and are counted; the silent third is not, nor is one who waits."""
    async with serving(tmp_path, PLAN, *PLAIN, "--grace", "3s", "--step-timeout", "30s") as running:
        devices = some(4)
        masked, joined = Reached("masked_input", 3), Reached("join", 1)
        jobs = [asyncio.create_task(device.upload(running.address, on_message=masked)) for device in devices[:2]]
        silent = devices[2].upload(running.address, silent_before="masked_input", on_message=masked)
        jobs.append(asyncio.create_task(silent))
        await masked.wait()
        jobs.append(asyncio.create_task(devices[3].upload(running.address, on_message=joined)))
        await joined.wait()
        started = time.monotonic()
        running.process.send_signal(number)
        await stopping(running)
        await asyncio.sleep(0.3)  # the line is said just before the door is shut
        late = await who_comes_late(running.address, devices[3])
        assert late is grpc.StatusCode.UNAVAILABLE
        ended = await asyncio.gather(*jobs)
        assert await running.wait(10) == 0
        assert time.monotonic() - started < 5
    assert all(isinstance(one.outcome, Receipt) for one in ended[:2])
    assert {ended[2].code, ended[3].code} == {grpc.StatusCode.UNAVAILABLE}
    async with serving(tmp_path, PLAN, *PLAIN) as again:
        repeats = await asyncio.gather(*(device.upload(again.address) for device in devices))
    assert [type(one.outcome) for one in repeats[:2]] == [AlreadyCounted] * 2
    assert [type(one.outcome) for one in repeats[2:]] == [Receipt] * 2


async def stopping(running: Process) -> None:
    """It has heard its first signal."""
    await until(lambda: "stopping" in running.log.read_text())


async def who_comes_late(address: str, device: Device) -> grpc.StatusCode | None:
    """What somebody hears who comes while the collector is stopping."""
    other = Device([1, 10], PLAN, identity=device.identity)
    return (await other.upload(address)).code


async def test_an_idle_collector_stops_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, PLAN, *PLAIN, "--grace", "30s") as running:
        started = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert await running.wait(10) == 0
        assert time.monotonic() - started < 5, "and does not wait out its grace"


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, PLAN, *PLAIN, "--grace", "30s", "--step-timeout", "60s") as running:
        reached = Reached("shares", 3)
        jobs = [
            asyncio.create_task(device.upload(running.address, silent_before="shares", on_message=reached))
            for device in some(3)
        ]
        await reached.wait()
        running.process.send_signal(signal.SIGTERM)
        await stopping(running)
        assert running.process.poll() is None, "the round's grace runs"
        started = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert await running.wait(5) == 128 + signal.SIGTERM
        assert time.monotonic() - started < 1
        await asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.sleep(1.0)  # what tracks shared semaphores outlives the collector, to say which are left
        assert "resource_tracker" not in running.log.read_text()


# case E07
async def test_a_stuck_store_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """Another process holds the store when the sum is to be stored: the end comes all the same, and no receipt."""
    async with serving(tmp_path, PLAN, *PLAIN, "--grace", "1s") as running:
        devices = some(3)
        with closing(sqlite3.connect(tmp_path / "collector.db", isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            reached = Reached("unmask", 3)
            jobs = [asyncio.create_task(device.upload(running.address, on_message=reached)) for device in devices]
            await reached.wait()
            started = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            assert await running.wait(10) == 0
            assert time.monotonic() - started < 3
            ended = await asyncio.gather(*jobs)
        assert not [one for one in ended if isinstance(one.outcome, Receipt)]
    async with serving(tmp_path, PLAN, *PLAIN) as again:
        repeats = await asyncio.gather(*(device.upload(again.address) for device in devices))
    assert all(isinstance(one.outcome, Receipt) for one in repeats)


# case E04
async def test_killed_in_a_round_and_started_again(tmp_path: Path) -> None:
    async with serving(tmp_path, PLAN, *PLAIN, "--step-timeout", "30s") as running:
        devices = some(3)
        reached = Reached("masked_input", 3)
        jobs = [asyncio.create_task(device.upload(running.address, on_message=reached)) for device in devices[:2]]
        silent = devices[2].upload(running.address, silent_before="masked_input", on_message=reached)
        jobs.append(asyncio.create_task(silent))
        await reached.wait()
        children = child_pids(running.process.pid)
        assert children, "a worker is warm"
        running.process.kill()
        ended = await asyncio.gather(*jobs)
        assert {one.code for one in ended} == {grpc.StatusCode.UNAVAILABLE}
        deadline = time.monotonic() + 5
        while any(map(is_alive, children)):
            assert time.monotonic() < deadline, "a worker outlived its collector"
            await asyncio.sleep(0.05)
    async with serving(tmp_path, PLAN, *PLAIN) as again:
        repeats = await asyncio.gather(*(device.upload(again.address) for device in devices))
    assert all(isinstance(one.outcome, Receipt) for one in repeats)


def fails(folder: Path, *options: str) -> tuple[int, str]:
    """Run `serve`, which must end by itself; its exit code and the one line it says."""
    done = subprocess.run(
        command(folder, PLAN, *options), capture_output=True, text=True, timeout=30, cwd=ROOT, check=False
    )
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


async def test_second_collector_on_the_same_port(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    async with serving(tmp_path, PLAN, *PLAIN) as running:
        code, line = await asyncio.to_thread(fails, second, "--listen", running.address, "--insecure")
    assert code == 3
    assert running.address in line
    assert "in use" in line


async def test_a_second_collector_on_the_same_store_is_said(tmp_path: Path) -> None:
    """Whichever of them ended, and however, the next one hears of those that live."""

    def warned(running: Process) -> bool:
        return "another collector is running on this store" in running.log.read_text()

    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    store = ("--db", f"sqlite:///{tmp_path / 'shared.db'}")
    async with serving(tmp_path / "second", PLAN, *PLAIN, *store) as second:
        async with serving(tmp_path / "first", PLAN, *PLAIN, *store) as first:
            assert (warned(second), warned(first)) == (False, True)
            second.process.kill()
            second.process.wait()
            async with serving(tmp_path / "third", PLAN, *PLAIN, *store) as third:
                assert warned(third)
        async with serving(tmp_path / "third", PLAN, *PLAIN, *store) as alone:
            assert not warned(alone), "the lock of who was killed went with it"


def test_a_store_of_a_newer_version_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "collector.db"
    CollectorStore.open(str(path)).close()
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    before = {file.name: file.read_bytes() for file in tmp_path.glob("collector.db*")}
    code, line = fails(tmp_path, *PLAIN)
    assert code == 3
    assert str(path) in line
    assert "newer version" in line
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_damaged_store_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "collector.db"
    CollectorStore.open(str(path)).close()
    for content, status, word in (
        (path.read_bytes()[:100] + b"\xa5" * 8092, 3, "damaged"),
        (b"no database at all, but long enough to look at" * 100, 2, "no SQLite file"),
    ):
        path.write_bytes(content)
        code, line = fails(tmp_path, *PLAIN)
        assert (code, word in line) == (status, True)
        assert str(path) in line


# case F03
def test_a_locked_store_is_one_line_after_a_set_time(tmp_path: Path) -> None:
    path = tmp_path / "collector.db"
    CollectorStore.open(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        code, line = fails(tmp_path, *PLAIN)
    assert (code, "locked" in line) == (3, True)
    assert 4 < time.monotonic() - started < 15


def fails_here(run: Run, folder: Path, *options: str) -> tuple[int, str]:
    """The same of wrong options, in this process: nothing is listened on yet."""
    program = command(folder, PLAN, *options)
    status, out, error = run(*program[program.index("serve") :])
    assert out == ""
    (line,) = error.strip().splitlines()
    return status, line


def test_plain_text_only_when_asked_for_and_only_on_loopback(run: Run, tmp_path: Path) -> None:
    code, line = fails_here(run, tmp_path, "--listen", "127.0.0.1:0")
    assert (code, "--tls-cert" in line) == (2, True)
    code, line = fails_here(run, tmp_path, "--listen", "0.0.0.0:0", "--insecure")
    assert (code, "loopback" in line) == (2, True)
    code, line = fails_here(run, tmp_path, "--listen", "nowhere", "--insecure")
    assert (code, "HOST:PORT" in line) == (2, True)


def test_wrong_files_are_one_line(run: Run, tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    listen = ("--listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key))
    code, line = fails_here(run, tmp_path, *listen)
    assert (code, "No such file" in line) == (2, True)
    key.write_text("junk")
    cert.write_text("junk")
    code, line = fails_here(run, tmp_path, *listen)
    assert (code, "PEM" in line) == (2, True)
    code, line = fails_here(run, tmp_path, *PLAIN, "--plan", str(tmp_path / "none.toml"))
    assert (code, "none.toml" in line) == (2, True)
    code, line = fails_here(run, tmp_path, *PLAIN, "--db", f"sqlite:///{tmp_path / 'no' / 'folder' / 'c.db'}")
    assert (code, "folder" in line) == (2, True)


async def test_from_a_configuration_file(tmp_path: Path) -> None:
    """The file says all but the port, which the command line sets."""
    config = tmp_path / "collector.toml"
    config.write_text(
        f"""
        plan = "{tmp_path / "plan.toml"}"
        db = "sqlite:///{tmp_path / "from-the-file.db"}"
        registrar_key = "{KEY_HEX}"
        listen = "nowhere"
        insecure = true
        """,
        encoding="utf-8",
    )
    (tmp_path / "plan.toml").write_text(PLAN.text, encoding="utf-8")
    serve = [*SERVE, "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    )
    with process:
        assert process.stdout is not None
        address = (await asyncio.to_thread(process.stdout.readline)).removeprefix("listening on ").strip()
        async with aio.insecure_channel(address) as channel:
            fetch = channel.unary_unary(GET_PLAN_METHOD.path, **GET_PLAN_METHOD.client_converters)
            assert (await fetch(GetPlanRequest())).plan_hash == PLAN.hash
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0
    assert (tmp_path / "from-the-file.db").exists()


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    import datetime as dt

    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path


async def test_over_tls(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    async with serving(
        tmp_path, PLAN, "--listen", "localhost:0", "--tls-cert", str(cert), "--tls-key", str(key)
    ) as running:
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        async with aio.secure_channel(running.address, credentials) as channel:
            fetch = channel.unary_unary(GET_PLAN_METHOD.path, **GET_PLAN_METHOD.client_converters)
            assert (await fetch(GetPlanRequest())).plan_hash == PLAN.hash
        async with aio.insecure_channel(running.address) as channel:
            fetch = channel.unary_unary(GET_PLAN_METHOD.path, **GET_PLAN_METHOD.client_converters)
            with pytest.raises(aio.AioRpcError):
                await fetch(GetPlanRequest(), timeout=5)
        running.process.send_signal(signal.SIGTERM)
        assert await running.wait(10) == 0


async def test_port_zero_is_resolved_in_the_ready_line(tmp_path: Path) -> None:
    async with serving(tmp_path, PLAN, *PLAIN) as running:
        host, _, port = running.address.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
