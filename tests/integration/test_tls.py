"""Certificates that do not hold, and those that are replaced while everything runs: device, collector, command line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk import TelemetryClient
from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError
from client_sdk.plan import parse_plan
from collector.service import tls_files
from collector.service.app import CollectorService
from collector.service.health import CHECK, SERVING
from tests.integration.callers import device_client, read, reading_collector, token
from tests.integration.participants import until
from tests.integration.processes import ROOT
from tests.registrar import KEY
from tests.registrar import running as running_registrar
from tests.unit.client_sdk.device.certificates import Authority
from tests.unit.client_sdk.device.trouble import serving
from tests.unit.collector.service.stores import plan_text

OURS, OTHERS = Authority("ours"), Authority("somebody else's")
PLAN = parse_plan(
    plan_text()
    .replace("target_size = 10", "target_size = 3\ncorrupt_fraction = 0\ndropout_fraction = 0")
    .replace('max_wait = "30s"', 'max_wait = "1s"')
)

WRONG: dict[str, tuple[bytes, bytes]] = {
    "expired": OURS.issue("localhost", begins_in_days=-9, days=8),
    "authority": OTHERS.issue("localhost"),
    "host_name": OURS.issue("another.example"),
    "not_yet_valid": OURS.issue("localhost", begins_in_days=1),
}
"""Private key and certificate, by what a device counts."""

WORDS = {
    "expired": "has expired",
    "authority": "authority",
    "host_name": "host name",
    "not_yet_valid": "not valid yet",
}


class Files:
    """A server's TLS files, as an operator or a renewal tool replaces them: each by a rename."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self.ca.write_bytes(OURS.pem)

    def put(self, pair: tuple[bytes, bytes]) -> None:
        for path, data in ((self.key, pair[0]), (self.cert, pair[1])):
            new = path.with_suffix(".new")
            new.write_bytes(data)
            new.replace(path)

    @property
    def options(self) -> dict[str, Any]:
        return {"insecure": False, "tls_cert": self.cert, "tls_key": self.key}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(tls_files, "LOOK_EVERY_S", 0.05)
    return Files(tmp_path)


def client(folder: Path, service: CollectorService, ca: Path, **more: Any) -> TelemetryClient:
    return device_client(folder, f"localhost:{service.port}", PLAN, root_certificates=ca, **more)


def reports(service: CollectorService, ca: Path, secret: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "collector.service", "report", "--server", f"localhost:{service.port}"]
    command += ["--access-token-file", str(secret), "--ca", str(ca), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


# case E03
async def test_wrong_certificates_then_a_good_one_without_a_restart(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """Four kinds of wrong, then right: nothing is sent before, everything is delivered after."""
    files.put(WRONG["expired"])
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        secret = tmp_path / "analyst.token"
        secret.write_text(token(service, Role.ANALYST))
        devices = [client(tmp_path / f"d{n}", service, files.ca) for n in range(3)]
        for number, device in enumerate(devices):
            device.record("cold_start_ms", 100.0 * number)
            device.flush(seal=True)
        for kind, pair in WRONG.items():
            files.put(pair)
            await serves(service, pair[1])
            with caplog.at_level(logging.DEBUG):
                for _ in range(2):
                    summary = await devices[0].upload()
                    assert summary.failed == {f"tls_{kind}": 1}
            asked = await asyncio.to_thread(reports, service, files.ca, secret)
            assert (asked.returncode, asked.stdout) == (3, "")
            assert asked.stderr.count("\n") == 1, asked.stderr
            assert WORDS[kind] in asked.stderr
            assert "certificate" in asked.stderr
            assert devices[0].counters()[f"tls_{kind}"] == 2
        assert "streams.total" not in service.monitor.snapshot(), "nobody came so far as to say anything"
        warned = [r.getMessage() for r in caplog.records if r.name == "ldp_telemetry" and r.levelno == logging.WARNING]
        assert len(warned) == len(WRONG), "one warning for each kind of fault, however often it is met"
        for kind, line in zip(WRONG, warned, strict=True):
            assert WORDS[kind] in line
            assert "certificate" in line
        replaced = time.monotonic()
        good = OURS.issue("localhost")
        files.put(good)
        await serves(service, good[1])
        ended = await asyncio.gather(*(device.upload() for device in devices))
        assert [summary.counted for summary in ended] == [1, 1, 1]
        assert time.monotonic() - replaced < 60
        asked = await asyncio.to_thread(reports, service, files.ca, secret)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert "3 contributors" in asked.stdout
        for device in devices:
            device.close()


# case E03: the bytes that a peer with a wrong certificate gets to see
@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_peer_sees_no_payload(tmp_path: Path, files: Files, kind: str) -> None:
    files.put(WRONG[kind])
    secret = tmp_path / "analyst.token"
    secret.write_text("SENTINEL-TOKEN")
    seen = bytearray()
    with listening(files, seen) as port:

        class There:
            pass

        there: Any = There()
        there.port = port
        device = client(tmp_path / "d", there, files.ca)
        device.record("cold_start_ms", 1.0)
        device.flush(seal=True)
        summary = await device.upload()
        assert summary.failed == {f"tls_{kind}": 1}
        asked = await asyncio.to_thread(reports, there, files.ca, secret)
        assert asked.returncode == 3
        assert "SENTINEL" not in asked.stdout + asked.stderr
        assert bytes(seen) == b""
        device.close()


async def test_the_listener_of_the_case_does_see_what_a_good_certificate_gets(tmp_path: Path, files: Files) -> None:
    files.put(OURS.issue("localhost"))
    seen = bytearray()
    with listening(files, seen) as port:
        secure = grpc.ssl_channel_credentials(OURS.pem)
        async with aio.secure_channel(f"localhost:{port}", secure) as channel:
            with contextlib.suppress(aio.AioRpcError):
                await channel.unary_unary("/a/b")(b"payload", timeout=1)
    assert seen.startswith(b"PRI * HTTP/2.0")


@contextmanager
def listening(files: Files, seen: bytearray) -> Iterator[int]:
    """Something that speaks TLS with these files and keeps what it is sent."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2"])
    lock = threading.Lock()

    def answer(connection: Any) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            while data := secure.recv(4096):
                with lock:
                    seen.extend(data)

    with serving(answer) as port:
        yield port


async def test_a_broken_new_file_keeps_the_old_one(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    good, better = OURS.issue("localhost"), OURS.issue("localhost", "better.example")
    files.put(good)
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        for number, half in enumerate((b"half a certifica", better[1]), start=1):  # the key is still the old one's
            files.cert.write_bytes(half)
            await until(lambda number=number: len(errors(caplog)) == number, 10)
            await asyncio.sleep(0.3)
            assert await served(service) == good[1]
            assert len(errors(caplog)) == number, "said once for each state of the files"
        assert "\n" not in errors(caplog)[0]
        files.put(better)
        await serves(service, better[1])
        assert len(errors(caplog)) == 2
        assert await shake(service, OURS.pem) == SERVING


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


async def serves(service: CollectorService, certificate: bytes) -> None:
    """Wait until new connections get it."""
    deadline = time.monotonic() + 10
    while await served(service) != certificate:
        assert time.monotonic() < deadline, "the new certificate was never served"
        await asyncio.sleep(0.02)


async def served(service: CollectorService) -> bytes:
    """The certificate that a new connection gets."""
    found = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", service.port))
    return found.encode()


async def shake(service: CollectorService, roots: bytes, *pair: bytes) -> Any:
    secure = grpc.ssl_channel_credentials(roots, *pair)
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with aio.secure_channel(f"localhost:{service.port}", secure, options=options) as channel:
        return await read(channel, CHECK, b"", [])


async def test_an_open_connection_goes_on(tmp_path: Path, files: Files) -> None:
    files.put(OURS.issue("localhost"))
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        secure = grpc.ssl_channel_credentials(OURS.pem)
        async with aio.secure_channel(f"localhost:{service.port}", secure) as channel:
            assert await read(channel, CHECK, b"", []) == SERVING
            other = OTHERS.issue("localhost")
            files.put(other)
            await serves(service, other[1])
            assert await read(channel, CHECK, b"", []) == SERVING
        assert await shake(service, OTHERS.pem) == SERVING


async def test_a_certificate_that_ends_soon_or_has_ended_is_said_once(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.put(OURS.issue("localhost", begins_in_days=-5, days=10))
    async with reading_collector(tmp_path, PLAN, **files.options):
        await asyncio.sleep(0.3)
        files.put(WRONG["expired"])
        await until(lambda: "has expired" in caplog.text, 10)
        await asyncio.sleep(0.3)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["expires in less than 14 days" in line for line in said] == [True, False]
    assert "has expired" in said[1]


# --- the other direction: clients with certificates -----------------------------------------------------------


async def test_clients_must_show_a_certificate_of_the_named_authority(tmp_path: Path, files: Files) -> None:
    clients = Authority("clients")
    files.put(OURS.issue("localhost"))
    authority = tmp_path / "clients.pem"
    authority.write_bytes(clients.pem)
    async with reading_collector(tmp_path, PLAN, client_ca=authority, **files.options) as service:
        assert await shake(service, OURS.pem, *clients.issue("an app")) == SERVING
        for pair in ((), OTHERS.issue("an app"), clients.issue("an app", begins_in_days=-9, days=8)):
            heard = await shake(service, OURS.pem, *pair)
            assert heard.code is grpc.StatusCode.UNAVAILABLE
        private, public = clients.issue("an app")
        mine, my_key = tmp_path / "app.pem", tmp_path / "app.key"
        mine.write_bytes(public)
        my_key.write_bytes(private)
        devices = [
            client(tmp_path / f"d{n}", service, files.ca, client_certificate=mine, client_key=private) for n in range(2)
        ]
        for device in devices:
            device.flush(seal=True)
        ended = await asyncio.gather(*(device.upload() for device in devices))
        assert [summary.failed for summary in ended] == [{}, {}]
        secret = tmp_path / "analyst.token"
        secret.write_text(token(service, Role.ANALYST))
        own = ("--client-cert", str(mine), "--client-key", str(my_key))
        assert (await asyncio.to_thread(reports, service, files.ca, secret, *own)).returncode == 0
        without = await asyncio.to_thread(reports, service, files.ca, secret)
        assert without.returncode == 3
        assert without.stderr.count("\n") == 1
        for device in devices:
            device.close()


# --- the device's own files ------------------------------------------------------------------------------------


async def test_a_device_reads_its_authorities_again(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """The fleet's authority changes: the app's file is replaced, no process is restarted."""
    files.put(OTHERS.issue("localhost"))
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        devices = [client(tmp_path / f"d{n}", service, files.ca) for n in range(2)]
        for device in devices:
            device.flush(seal=True)
        assert (await devices[0].upload()).failed == {"tls_authority": 1}
        files.ca.write_bytes(b"half a file")
        assert (await devices[0].upload()).failed == {"tls_authority": 1}
        assert (await devices[0].upload()).failed == {"tls_authority": 1}
        said = [r for r in caplog.records if "stays in use" in r.getMessage()]
        assert len(said) == 1
        files.ca.write_bytes(OTHERS.pem)
        ended = await asyncio.gather(*(device.upload() for device in devices))
        assert [summary.failed for summary in ended] == [{}, {}]
        for device in devices:
            device.close()


async def test_a_collector_that_is_not_there_is_no_certificate_fault(tmp_path: Path, files: Files) -> None:
    files.put(OURS.issue("localhost"))
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        device = client(tmp_path / "d", service, files.ca)
    device.flush(seal=True)
    summary = await device.upload()
    assert summary.failed == {"rpc_unavailable": 1}
    device.close()


async def test_the_registrars_certificate_is_told_apart_too(tmp_path: Path, files: Files) -> None:
    files.put(OURS.issue("localhost"))
    folder = tmp_path / "bad"
    folder.mkdir()
    bad = Files(folder)
    bad.put(WRONG["expired"])
    with running_registrar(tmp_path / "registrar", listen="localhost:0", **bad.options) as registrar:
        device = TelemetryClient(
            "localhost:9", consent=True, plan=PLAN, data_dir=tmp_path / "d", root_certificates=files.ca,
            enrolment_token=registrar.token(), background=False, **registrar.settings,
        )  # fmt: skip
        device.flush(seal=True)
        assert (await device.upload()).failed == {"registrar_tls_expired": 1}
        device.close()


async def test_a_device_asks_for_its_own_ledger(tmp_path: Path, files: Files) -> None:
    """Over TLS, by the name in the certificate; an upload later the collector's view is the device's own."""
    files.put(OURS.issue("localhost"))
    async with reading_collector(tmp_path, PLAN, **files.options) as service:
        devices = [client(tmp_path / f"d{n}", service, files.ca) for n in range(2)]
        assert (await devices[0].collector_view())["reports"] == 0
        for device in devices:
            device.flush(seal=True)
        await asyncio.gather(*(device.upload() for device in devices))
        for device in devices:
            view = await device.collector_view()
            assert view["device"] == device.device_id
            assert view["windows"][-1]["micro_epsilon"] == PLAN.report_micro_epsilon
            assert view["windows"][-1]["micro_epsilon"] == device.spent().lifetime_micro
            device.close()


async def test_who_has_no_certificate_is_told_so(tmp_path: Path) -> None:
    device = TelemetryClient(
        "localhost:9", consent=True, plan=PLAN, data_dir=tmp_path / "d", registrar="localhost:9",
        registrar_key=KEY, background=False,
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match="certificate"):
        await device.collector_view()
    device.close()
