"""The SDK inside somebody's process: import, threads, fork, exit, several processes, TLS."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk import TelemetryClient
from client_sdk.device.storage import DeviceStore
from client_sdk.plan import parse_plan
from tests.unit.client_sdk.device.helpers import DEAD, make_client, make_plan, plan_text
from tests.unit.client_sdk.device.small_collector import SmallCollector

PLAN = make_plan()
ROOT = Path(__file__).resolve().parents[4]


def python(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=timeout,
        check=False,
    )


def uploaders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ldp-telemetry-uploader"]


# --- import --------------------------------------------------------------------------------------------

HEAVY = [
    "grpc",
    "numpy",
    "cryptography",
    "google.protobuf",
    "asyncio",
    "dataclasses",
    "logging",
    "typing",
    "sqlite3",
    "json",
]


def test_the_public_import_loads_nothing_heavy() -> None:
    done = python(
        """
        import sys
        from client_sdk import TelemetryClient
        print(*sorted(sys.modules))
        """
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "client_sdk.device.client" in loaded
    assert not loaded & set(HEAVY)


def test_a_client_that_only_records_never_loads_the_transport(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    done = python(
        """
        import sys, threading
        from client_sdk import TelemetryClient
        plan, folder = sys.argv[1] + "/plan.toml", sys.argv[1] + "/d"
        client = TelemetryClient("collector.example:443", plan=plan, data_dir=folder, consent=True)
        threads = threading.active_count()
        client.record("cold_start_ms", 812)
        client.close()
        print(threads, *sorted(sys.modules))
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    threads, *loaded = done.stdout.split()
    assert threads == "1", "no thread before the first reading"
    assert not set(loaded) & {"grpc", "numpy", "google.protobuf", "asyncio", "cryptography"}
    assert DeviceStore(str(tmp_path / "d")).waiting() == 1


# --- threads -------------------------------------------------------------------------------------------


def test_one_thread_a_folder_started_on_first_need_and_gone_after_close(tmp_path: Path) -> None:
    before = len(uploaders())
    clients = [
        make_client(tmp_path / "d", make_plan(name=name), background=True, clock=time.time) for name in ("a", "b")
    ]
    assert len(uploaders()) == before
    for client in clients:
        client.record("cold_start_ms", 1)
    assert len(uploaders()) == before + 1
    clients[0].close()
    assert len(uploaders()) == before + 1
    clients[1].close()
    assert len(uploaders()) == before
    assert clients[1].counters() == {"sealed": 2}


def test_without_background_no_thread_is_started(tmp_path: Path) -> None:
    before = threading.active_count()
    client = make_client(tmp_path / "d", clock=time.time)
    client.record("cold_start_ms", 1)
    client.flush(seal=True)
    client.close()
    assert threading.active_count() == before


def test_the_background_thread_delivers(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5, tokens={"t"}) as collector:
        clients = [
            make_client(
                tmp_path / str(number),
                background=True,
                clock=time.time,
                endpoint=collector.endpoint,
                enrolment_token="t",
            )
            for number in range(5)
        ]
        sent: list[bool] = []
        jobs = [
            threading.Thread(target=lambda c=client: sent.append(c.flush(seal=True, timeout_s=30)))
            for client in clients
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        assert sent == [True] * 5
        assert [client.counters() for client in clients] == [{"counted": 1, "sealed": 1}] * 5
        assert len(collector.sums) == 1
        for client in clients:
            client.close()


def test_the_thread_seals_when_the_period_ends_and_sends_when_the_offset_has_passed(tmp_path: Path) -> None:
    plan = parse_plan(PLAN.text.replace('upload_window = "6h"', 'upload_window = "1s"'))
    shift = plan.period_start(time.time()) + plan.period_s - 1.0 - time.time()

    def clock() -> float:
        return time.time() + shift  # one second before the period's end

    with SmallCollector(plan, cohort_size=4, clock=clock) as collector:
        clients = [
            make_client(tmp_path / str(n), plan, background=True, clock=clock, endpoint=collector.endpoint)
            for n in range(4)
        ]
        for client in clients:
            client.record("cold_start_ms", 1)
        deadline = time.monotonic() + 20
        while not collector.sums and time.monotonic() < deadline:
            time.sleep(0.05)
        assert collector.sums
        for client in clients:
            client.close()


# --- fork ----------------------------------------------------------------------------------------------


def forked(job: Callable[[], None]) -> int:
    """Run `job` in a forked child; its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            job()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    deadline = time.monotonic() + 15
    while (found := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -1
        time.sleep(0.005)
    return found[1]


def test_a_fork_after_use_works_in_the_child(tmp_path: Path) -> None:
    # case E05 (one report per device and period, whatever the number of processes)
    client = make_client(tmp_path / "d", background=True, clock=time.time)
    client.record("cold_start_ms", 1)
    client.record("nobody", 1)
    client.flush(timeout_s=0.2)

    def use() -> None:
        client.record("cold_start_ms", 2)
        client.close()

    assert [forked(job) for job in (lambda: None, use, use)] == [0, 0, 0], "the first never touches it"
    client.record("cold_start_ms", 3)
    client.close()
    assert client.counters() == {"sealed": 1, "other_process": 3, "unknown_metric": 1}, "readings, by reason"
    assert client.spent().lifetime_micro == PLAN.report_micro_epsilon


def _noise(client: TelemetryClient, answers: Any) -> None:
    answers.put(client._engine._entropy(32))


def test_children_share_no_randomness_and_no_identity_of_process(tmp_path: Path) -> None:
    # case B01
    client = make_client(tmp_path / "d")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_noise, args=(client, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    assert len({answers.get(timeout=20) for _ in processes}) == 4
    for process in processes:
        process.join()


def test_a_fork_while_other_threads_record_and_write_does_not_deadlock(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", background=True, clock=time.time)
    stop = threading.Event()

    def record() -> None:
        while not stop.is_set():
            client.record("cold_start_ms", 1)

    def write() -> None:
        while not stop.is_set():
            client._engine.access.store().add_counts({"written": 1})

    def use() -> None:
        client.record("cold_start_ms", 1)
        client._engine.access.store().add_counts({"child": 1})

    threads = [threading.Thread(target=record), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    try:
        assert [forked(use) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        client.close()
    assert client.counters()["child"] == 20


def test_a_child_delivers_after_its_parent_has(tmp_path: Path) -> None:
    # case E05
    with SmallCollector(PLAN, cohort_size=4) as collector:
        (tmp_path / "plan.toml").write_text(plan_text())
        done = python(FORKING_HOST, str(tmp_path), collector.endpoint)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["parent", "True", "child", "True"]
    assert len(collector.sums) == 2


FORKING_HOST = """
    import os, sys, threading
    from client_sdk import TelemetryClient

    folder, endpoint = sys.argv[1:]

    def fleet(name):
        sent = []
        clients = [
            TelemetryClient(
                endpoint, plan=folder + "/plan.toml", data_dir=f"{folder}/{name}{i}", consent=True, insecure=True
            )
            for i in range(4)
        ]
        jobs = [threading.Thread(target=lambda c=c: sent.append(c.flush(True, 20))) for c in clients]
        for job in jobs: job.start()
        for job in jobs: job.join()
        for client in clients: client.close()
        print(name, all(sent), flush=True)

    fleet("parent")
    pid = os.fork()
    if pid == 0:
        fleet("child")
        os._exit(0)
    sys.exit(os.waitpid(pid, 0)[1])
"""


# --- exit ----------------------------------------------------------------------------------------------

HOST = """
    import sys, time
    from client_sdk import TelemetryClient
    plan, folder = sys.argv[1] + "/plan.toml", sys.argv[1] + "/d"
    client = TelemetryClient({endpoint!r}, plan=plan, data_dir=folder, consent=True, insecure=True)
    client.record("cold_start_ms", 812)
    {then}
    print(time.monotonic())
"""


@pytest.mark.parametrize("then", ["pass", "client.close()", "client.flush(seal=True, timeout_s=0.5)"])
@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_exit_is_quick_and_nothing_is_lost(tmp_path: Path, then: str, kind: str) -> None:
    # case E01
    import socket

    (tmp_path / "plan.toml").write_text(plan_text())
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = DEAD if kind == "closed" else f"127.0.0.1:{server.getsockname()[1]}"
        done = python(HOST.format(endpoint=endpoint, then=then), str(tmp_path))
        ended = time.monotonic()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 4.0
    assert DeviceStore(str(tmp_path / "d")).waiting() == 1


def test_a_killed_process_leaves_a_sound_store_and_the_next_goes_on(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    then = "client.flush(seal=True, timeout_s=0.0); import os; os.kill(os.getpid(), 9)"
    done = python(HOST.format(endpoint=DEAD, then=then), str(tmp_path))
    assert done.returncode == -9
    store = DeviceStore(str(tmp_path / "d"))
    assert (store.waiting(), store.damage()) == (1, None)


# --- TLS -----------------------------------------------------------------------------------------------


def certificate(name: str) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, signed.public_bytes(pem)


async def test_tls_with_an_own_ca_and_not_with_another(tmp_path: Path) -> None:
    private, public = certificate("localhost")
    _, stranger = certificate("localhost")
    credentials = grpc.ssl_server_credentials([(private, public)])
    (tmp_path / "ca.pem").write_bytes(public)
    with SmallCollector(PLAN, cohort_size=5, credentials=credentials) as collector:
        trusting = make_client(
            tmp_path / "a",
            insecure=False,
            endpoint=collector.endpoint,
            root_certificates=tmp_path / "ca.pem",
            clock=time.time,
            plan=PLAN,
        )
        trusting._engine.given_plan = None
        plan = await trusting._engine.delivery().fetch_plan(trusting._engine.access.store())
        assert plan == PLAN
        wary = make_client(
            tmp_path / "b", insecure=False, endpoint=collector.endpoint, root_certificates=stranger, clock=time.time
        )
        wary.flush(seal=True)
        summary = await wary.upload()
        assert summary.failed == {"rpc_unavailable": 1}
        assert summary.waiting == 1
