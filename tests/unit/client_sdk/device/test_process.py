"""The SDK inside somebody's process: import, threads, fork, exit, several processes, TLS."""

from __future__ import annotations

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
from client_sdk.device import fork_gate
from client_sdk.device import uploader as uploader_module
from client_sdk.device.storage import DeviceStore
from client_sdk.plan import parse_plan
from tests.registrar import KEY_HEX, NOWHERE
from tests.unit.client_sdk.device.certificates import certificate
from tests.unit.client_sdk.device.helpers import (
    DAY_S,
    DEAD,
    NOW,
    Clock,
    certify,
    make_client,
    make_plan,
    plan_text,
    soon,
)
from tests.unit.client_sdk.device.small_collector import SmallCollector

PLAN = make_plan()
ROOT = Path(__file__).resolve().parents[4]


def python(code: str, *arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=timeout,
        check=False,
    )


def uploaders() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "ldp-telemetry-uploader"}


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
        registrar = {"registrar": "registrar.example:443", "registrar_key": sys.argv[2]}
        client = TelemetryClient("collector.example:443", plan=plan, data_dir=folder, consent=True, **registrar)
        client.record("cold_start_ms", 812)
        threads = threading.active_count()
        client.close()
        print(threads, *sorted(sys.modules))
        """,
        str(tmp_path),
        KEY_HEX,
    )
    assert done.returncode == 0, done.stderr
    threads, *loaded = done.stdout.split()
    assert threads == "2", "the host's and the one that seals"
    assert not set(loaded) & {"grpc", "numpy", "google.protobuf", "asyncio", "cryptography"}
    assert DeviceStore(str(tmp_path / "d")).waiting() == 1


# --- threads -------------------------------------------------------------------------------------------


def test_one_thread_a_folder_from_consent_to_close(tmp_path: Path) -> None:
    before = uploaders()
    clients = [
        make_client(tmp_path / "d", make_plan(name=name), background=True, clock=time.time, consent=False)
        for name in ("a", "b")
    ]
    assert uploaders() == before, "without consent there is nothing to do"
    for client in clients:
        client.consent(True)
    (own,) = uploaders() - before
    clients[0].consent(False)
    assert own.is_alive(), "for the other one"
    clients[1].consent(False)
    assert soon(lambda: not own.is_alive())
    for client in clients:
        client.consent(True)
    (own,) = uploaders() - before
    clients[0].close()
    assert own.is_alive()
    clients[1].close()
    assert soon(lambda: not own.is_alive())
    assert clients[1].counters() == {"sealed": 2}


def test_a_client_may_be_made_while_the_last_one_of_its_folder_goes(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", background=True, clock=time.time)
    for _ in range(20):
        following: list[TelemetryClient] = []
        maker = threading.Thread(
            target=lambda made=following: made.append(make_client(tmp_path / "d", background=True, clock=time.time))
        )
        maker.start()
        client.close()
        maker.join()
        (client,) = following
        uploader = client._engine._uploader
        assert uploader is not None
        assert uploader.alive, "it has not joined one that was about to end"
        assert client._engine in uploader._members
    client.close()


@pytest.mark.parametrize("readings", [0, 1])
def test_periods_without_a_reading_are_sealed_by_the_thread(
    tmp_path: Path, readings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that records nothing, or once and then nothing for days."""
    monkeypatch.setattr(uploader_module, "LONGEST_SLEEP_S", 0.02)  # it looks at the clock that the test moves
    clock = Clock(NOW)
    client = make_client(tmp_path / "d", background=True, clock=clock)
    for _ in range(readings):
        client.record("cold_start_ms", 1)
    store = DeviceStore(str(tmp_path / "d"))
    for made in (1, 2, 3):
        clock.now += DAY_S
        assert soon(lambda wanted=made: store.waiting() == wanted), "silence says nothing"
        end = PLAN.period_start(clock.now) + PLAN.period_s
        # the thread may just be putting off the report that it could not send
        looked = [end, store.next_due(), client._engine.tick(everything=False), client.counters(), clock.now]
        assert soon(lambda end=end: client._engine.tick(everything=False).next_at in {end, store.next_due()}), looked
    client.close()
    assert client.counters()["sealed"] == 4, "and the one that close() ended"


def test_what_an_earlier_process_left_is_sent_without_a_reading(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=4) as collector:
        for number in range(4):
            with make_client(tmp_path / str(number), clock=time.time, endpoint=collector.endpoint) as earlier:
                earlier.flush(seal=True)
        later = time.time() + 2 * PLAN.period_s  # its offset has passed
        clients = [
            make_client(tmp_path / str(n), background=True, clock=lambda: later, endpoint=collector.endpoint)
            for n in range(4)
        ]
        assert soon(lambda: len(collector.sums) == 1)
        for client in clients:
            client.close()


def test_a_client_that_was_let_go_is_sealed_when_the_process_ends(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    done = python(HOST.format(endpoint=DEAD, then="del client; import gc; gc.collect()"), str(tmp_path), KEY_HEX)
    assert (done.returncode, done.stderr) == (0, "")
    assert DeviceStore(str(tmp_path / "d")).waiting() == 1


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
            threading.Thread(target=lambda c=client: sent.append(c.flush(seal=True, timeout_s=120)))
            for client in clients
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        assert sent == [True] * 5
        assert [client.counters() for client in clients] == [{"counted": 1, "enrolled": 1, "sealed": 1}] * 5
        assert len(collector.sums) == 1
        for client in clients:
            client.close()


@pytest.mark.parametrize("readings", [0, 1])
def test_the_thread_seals_when_the_period_ends_and_sends_when_the_offset_has_passed(
    tmp_path: Path, readings: int
) -> None:
    plan = parse_plan(PLAN.text.replace('upload_window = "6h"', 'upload_window = "1s"'))
    shift = plan.period_start(time.time()) + plan.period_s - 1.0 - time.time()

    def clock() -> float:
        return time.time() + shift  # one second before the period's end

    with SmallCollector(plan, cohort_size=4, clock=clock) as collector:
        clients = [
            make_client(tmp_path / str(n), plan, background=True, clock=clock, endpoint=collector.endpoint)
            for n in range(4)
        ]
        for client in clients[:readings]:
            client.record("cold_start_ms", 1)
        assert soon(lambda: bool(collector.sums), 120)
        for client in clients:
            client.close()


def test_what_fails_in_grpcs_own_callbacks_is_not_printed_into_the_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its poller is one for all loops of a process: some find nothing to read, or a socket that is closed."""
    caplog.set_level("DEBUG")
    client = make_client(tmp_path / "d", background=True, clock=time.time)
    client.flush(seal=True, timeout_s=0.0)
    assert soon(lambda: "registrar_unavailable" in client.counters())
    uploader = client._engine._uploader
    assert uploader is not None
    assert uploader._loop is not None

    def fail() -> None:
        raise BlockingIOError(11, "SENTINEL")

    uploader._loop.call_soon_threadsafe(fail)
    client.flush(timeout_s=0.0)
    assert soon(lambda: any("BlockingIOError" in record.getMessage() for record in caplog.records))
    client.close()
    assert "asyncio" not in {record.name for record in caplog.records if record.levelname != "DEBUG"}
    assert "SENTINEL" not in caplog.text


# --- fork ----------------------------------------------------------------------------------------------


def forked(job: Callable[[], None], within_s: float = 120) -> int:
    """Run `job` in a forked child; its exit status, -1 where it hangs."""
    pid = os.fork()
    if pid == 0:
        try:
            job()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    deadline = time.monotonic() + within_s
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


def test_a_child_has_the_token_that_its_parent_could_not_use_yet(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", enrolment_token="a-token")

    def has(token: str | None) -> Callable[[], None]:
        def look() -> None:
            assert client._engine.connections.delivery().enrolment.token == token

        return look

    assert forked(has("a-token")) == 0, "nobody has looked at it"
    has("a-token")()

    def hands_on() -> None:
        has("a-token")()
        assert forked(has("a-token")) == 0

    assert forked(hands_on) == 0
    client._engine.connections.delivery().enrolment.token = None  # it has been used
    assert forked(has(None)) == 0


def test_a_child_has_the_token_that_its_parent_is_about_to_use(tmp_path: Path) -> None:
    """The thread has taken it, and nobody holds it yet: the fork waits."""
    client = make_client(tmp_path / "d", enrolment_token="a-token", background=True, clock=time.time)
    taken, go_on = threading.Event(), threading.Event()

    class Slow:
        """Between the token and the delivery that holds it."""

        def outages(self) -> Any:
            if client._engine.settings.enrolment_token is None:
                taken.set()
                go_on.wait(60)
            return real.outages()

    real, client._engine.connections._access = client._engine.access, Slow()  # type: ignore[assignment]
    maker = threading.Thread(target=client._engine.connections.delivery)
    maker.start()
    assert taken.wait(60)
    threading.Timer(0.5, go_on.set).start()

    def has() -> None:
        assert client._engine.connections.unused_token() == "a-token"

    assert forked(has) == 0
    maker.join()
    client.close()


def _noise(client: TelemetryClient, answers: Any) -> None:
    coin = client._engine.recorder.plan.metrics["network"].mechanism  # type: ignore[union-attr]
    answers.put(tuple(tuple(coin.perturb("wifi", client._engine._entropy)) for _ in range(256)))


def test_children_share_no_randomness(tmp_path: Path) -> None:
    # case B01: two categories at epsilon 0.1, the true one always the same, 256 answers of each child
    plan = make_plan(epsilon="0.1", categories=("wifi", "cellular"), other=False)
    client = make_client(tmp_path / "d", plan)
    client.record("network", "wifi")
    client.flush(seal=True)
    assert client.counters() == {"sealed": 1}, "it has been used"
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_noise, args=(client, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    sequences = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(sequences) == 4
    assert all(set(sequence) == {(0, 1), (1, 0)} for sequence in sequences), "bits, and both of them"


def test_a_fork_while_other_threads_record_and_write_does_not_deadlock(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", background=True, clock=time.time)
    stop = threading.Event()

    def record() -> None:
        while not stop.is_set():
            client.record("cold_start_ms", 1)

    # two processes without a pause between their writes: who gets the lock next is luck, and may take its time
    client._engine.access.store().busy_timeout_s = 100

    def write() -> None:
        while not stop.is_set():
            client._engine.access.store().add_counts({"written": 1})

    def use() -> None:
        client.record("cold_start_ms", 1)
        store = client._engine.access.store()
        store.busy_timeout_s = 100
        store.add_counts({"child": 1})

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
        done = python(FORKING_HOST, str(tmp_path), collector.endpoint, KEY_HEX)
    assert (done.returncode, done.stderr) == (0, "")
    # a file for each process: what two of them print into one pipe may be cut anywhere
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("parent", "child")] == ["True True True True"] * 2
    assert len(collector.sums) == 2


FORKING_HOST = """
    import os, sys, threading
    from client_sdk import TelemetryClient

    folder, endpoint, key = sys.argv[1:]

    def fleet(name):
        sent = []
        clients = [
            TelemetryClient(
                endpoint, plan=folder + "/plan.toml", data_dir=f"{folder}/{name}{i}", consent=True, insecure=True,
                registrar=endpoint, registrar_key=key, enrolment_token="any",
            )
            for i in range(4)
        ]
        jobs = [threading.Thread(target=lambda c=c: sent.append(c.flush(True, 120))) for c in clients]
        for job in jobs: job.start()
        for job in jobs: job.join()
        for client in clients: client.close()
        with open(f"{folder}/{name}.txt", "w") as file:
            file.write(" ".join(map(str, sent)))

    fleet("parent")
    pid = os.fork()
    if pid == 0:
        fleet("child")
        os._exit(0)
    sys.exit(os.waitpid(pid, 0)[1])
"""


FORKED_IN_UPLOAD = """
    import os, socket, sys, threading, time
    from client_sdk import TelemetryClient
    from client_sdk.device import session, transport

    folder, key, whose = sys.argv[1:]
    session.FIRST_ANSWER_S = transport.UNARY_TIMEOUT_S = 600  # it lasts as long as this test, on any machine
    server = socket.create_server(("127.0.0.1", 0))
    silent = f"127.0.0.1:{server.getsockname()[1]}"
    def accepted():
        # as far as HTTP/2 wants it: gRPC gives up on a connection without settings after 20 s
        connection, _ = server.accept()
        connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # our settings: none
        said = b""
        while len(said) < 24 + 9:  # its preface, and the head of its own settings
            said += connection.recv(4096)
        connection.sendall(bytes([0, 0, 0, 4, 1, 0, 0, 0, 0]))  # taken
        return connection
    begun, later = time.time(), [0]
    def client_of(name):
        registrar = {"registrar": silent if whose == "registrar" else "127.0.0.1:9", "registrar_key": key}
        return TelemetryClient(silent if whose == "collector" else "127.0.0.1:9", **registrar, enrolment_token="t",
                               plan=folder + "/plan.toml", data_dir=folder + "/" + name,
                               consent=True, insecure=True, background=not name.startswith("foreground"),
                               clock=lambda: begun + later[0])
    client = client_of("d")
    assert not client.flush(seal=True, timeout_s=0.0)
    under_way = accepted()  # and what it asks will never be answered
    assert any("_poll_wrapper" in thread.name for thread in threading.enumerate())
    assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
    statuses = []
    for number in range(16):
        pid = os.fork()
        if pid == 0:
            if number % 4 == 1:
                client.record("cold_start_ms", 2)
                later[0] = 2 * 86400  # what waits is due
                started = time.monotonic()
                assert not client.flush(timeout_s=60)
                assert time.monotonic() - started < 30  # says so at once
                assert client._engine.connections.unused_token() == "t"
            elif number % 4 == 2:
                own = client_of(f"child-{number}")
                own.opt_out() if number > 8 else own.close()
            elif number % 4 == 3:
                import asyncio
                from client_sdk.errors import TelemetryError
                own = client_of(f"foreground-{number}")
                later[0] = 2 * 86400
                for _ in range(2):  # the period that has ended is sealed, once
                    answer = {"counted": 0, "already_counted": 0, "waiting": 1, "forked_in_upload": 1}
                    assert asyncio.run(own.upload()).as_dict() == answer
                if os.fork() == 0:
                    assert asyncio.run(own.upload()).failed == {"forked_in_upload": 1}
                    os._exit(0)
                assert os.wait()[1] == 0
                own._engine.access.store().keep_certificate(bytes(114), "enrolled", 0)
                try:
                    asyncio.run(own.collector_view())
                    raise AssertionError("this process has no network")
                except TelemetryError as error:
                    assert "forked_in_upload" in str(error)
            sys.exit(0)  # with everything that the interpreter does at its end
        statuses.append(os.waitpid(pid, 0)[1])
    print(statuses, client.counters().get("forked_in_upload"))
    client.close()
"""


@pytest.mark.parametrize("whose", ["collector", pytest.param("registrar", marks=pytest.mark.slow)])
def test_a_fork_in_the_middle_of_an_upload_hurts_nobody(tmp_path: Path, whose: str) -> None:
    """gRPC aborts or crashes a child that was forked while a channel was open; such a child leaves it alone."""
    # case E05: the connection under way is the collector's, or before that the registrar's
    (tmp_path / "plan.toml").write_text(plan_text())
    if whose == "collector":
        enrolled = make_client(tmp_path / "d", clock=time.time)
        certify(enrolled)
        enrolled.consent(False)
    done = python(FORKED_IN_UPLOAD, str(tmp_path), KEY_HEX, whose)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("] ") == ["[" + ", ".join(["0"] * 16), "4\n"], "exit statuses, and who has said it"
    for number in (2, 6):
        assert DeviceStore(str(tmp_path / f"child-{number}")).waiting() == 1, "sealed, for another process to send"
    for number in (10, 14):
        assert DeviceStore(str(tmp_path / f"child-{number}")).opted_out()


def test_a_fork_waits_for_the_imports_of_the_first_upload(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    done = python(
        """
        import os, sys, threading, time
        from client_sdk import TelemetryClient
        from client_sdk.device import fork_gate

        fork_gate.LONGEST_FORK_DELAY_S = 60  # however busy the machine is
        begun = threading.Event()
        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "client_sdk.secagg.participant" and not begun.is_set():
                    begun.set()
                    time.sleep(1)
        sys.meta_path.insert(0, Slow())
        client = TelemetryClient("127.0.0.1:9", plan=sys.argv[1] + "/plan.toml", data_dir=sys.argv[1] + "/d",
                                 consent=True, insecure=True, registrar="127.0.0.1:9", registrar_key=sys.argv[2],
                                 enrolment_token="t")
        client.flush(seal=True, timeout_s=0.0)
        assert begun.wait(60), "the thread is in the middle of it, and has yet to ask for a logger"
        pid = os.fork()
        if pid == 0:
            assert hasattr(sys.modules["grpc"], "aio"), "half of it"
            from client_sdk.device.delivery import Delivery
            client.record("cold_start_ms", 1)
            client.close()
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        client.close()
        """,
        str(tmp_path),
        KEY_HEX,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


WATCHED = """
    import os, sys, threading, time
    from client_sdk import TelemetryClient
    from client_sdk.device import fork_gate, uploader

    folder, collector, with_tls, key, first = sys.argv[1:]

    def is_ours():
        return threading.current_thread().name.startswith(("ldp-telemetry", "asyncio_"))

    real = os.register_at_fork
    def register(**hooks):
        if is_ours() and set(hooks) != {"after_in_child"}:
            print("hooks from within a fork:", hooks, flush=True)
        real(**hooks)
    os.register_at_fork = register
    seen = []
    class Watch:
        def find_spec(self, name, path=None, target=None):
            if is_ours():
                seen.append(name)
                if not fork_gate._gate._is_owned():
                    print("outside:", name, flush=True)
    sys.meta_path.insert(0, Watch())

    def client_of(name, endpoint, **more):
        settings = {"plan": folder + "/plan.toml", "insecure": True, "enrolment_token": "any"} | more
        return TelemetryClient(endpoint, data_dir=folder + "/" + name, consent=True, registrar=endpoint,
                               registrar_key=key, **settings)

    def until(client, counted):
        while counted not in client.counters(): time.sleep(0.05)

    def reports():
        clients = [client_of(str(number), collector) for number in range(4)]
        jobs = [threading.Thread(target=client.flush, args=(True, 120)) for client in clients]
        for job in jobs: job.start()
        for job in jobs: job.join()
        assert [client.counters() for client in clients] == [{"counted": 1, "enrolled": 1, "sealed": 1}] * 4
        return clients

    def no_registrar():
        client = client_of("dead", "127.0.0.1:9")
        client.flush(True, 0.0)
        until(client, "registrar_unavailable")
        return [client]

    def no_collector():
        client = client_of("enrolled", "127.0.0.1:9")
        client.flush(True, 0.0)
        until(client, "rpc_unavailable")
        return [client]

    def opting_out():
        client = client_of("leaves", "127.0.0.1:9")
        client.opt_out()
        until(client, "deletion_rpc_unavailable")
        return [client]

    def fetched_plan():
        client = client_of("fetches", collector, plan=None, min_cohort=3, seal_key=bytes(32))
        while client._engine.recorder.plan is None: time.sleep(0.05)
        return [client]

    def wrong_certificate():
        client = client_of("wary", with_tls, insecure=False, root_certificates=folder + "/stranger.pem")
        client.flush(True, 0.0)
        until(client, "registrar_tls_authority")
        return [client]

    def only_sealing():
        later = [0]
        client = client_of("seals", "127.0.0.1:9", clock=lambda: time.time() + later[0], can_upload=lambda: False)
        later[0] = 86_400
        until(client, "sealed")
        return [client]

    uploader.LONGEST_SLEEP_S = 0.02  # it looks at the clock that was moved
    things = [reports, no_registrar, no_collector, opting_out, fetched_plan, wrong_certificate, only_sealing]
    things.sort(key=lambda thing: thing.__name__ != first)
    clients = [client for thing in things for client in thing()]
    assert {"grpc", "numpy", "asyncio", "client_sdk.device.deletion"} <= set(seen)
    assert "cryptography" in seen or first == "opting_out"  # whoever opts out signs a request
    def polls(): return any(fork_gate.GRPC_POLLER in thread.name for thread in threading.enumerate())
    deadline = time.monotonic() + 60  # what failed is tried again, maybe just now
    while polls() and time.monotonic() < deadline: time.sleep(0.01)
    assert not polls(), "between uploads"
    for client in clients: client.close()
"""


@pytest.mark.parametrize(
    "first",
    ["reports", "no_registrar", "no_collector", "opting_out", "fetched_plan", "wrong_certificate", "only_sealing"],
)
def test_a_thread_of_ours_imports_nothing_that_a_fork_could_cut_in_two(tmp_path: Path, first: str) -> None:
    """Whatever it does first in its process."""
    (tmp_path / "plan.toml").write_text(plan_text())
    private, public = certificate("localhost")
    (tmp_path / "stranger.pem").write_bytes(certificate("localhost")[1])
    for name in ("enrolled", "leaves"):
        enrolled = make_client(tmp_path / name, clock=time.time)
        certify(enrolled)
        enrolled.consent(False)
    with (
        SmallCollector(PLAN, cohort_size=4) as collector,
        SmallCollector(PLAN, cohort_size=4, credentials=grpc.ssl_server_credentials([(private, public)])) as with_tls,
    ):
        done = python(WATCHED, str(tmp_path), collector.endpoint, with_tls.endpoint, KEY_HEX, first)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_who_forks_while_grpc_is_in_use_loses_it_for_the_child_only() -> None:
    # in a process of its own: gRPC's poller lives on for a while after another test's last channel, and counts as use
    done = python(
        """
        import threading
        from client_sdk.device import fork_gate
        from tests.unit.client_sdk.device.test_process import forked

        def lost():
            assert fork_gate.network_lost()

        def kept():
            assert not fork_gate.network_lost()

        assert forked(kept) == 0
        with fork_gate.connected():
            assert forked(lost) == 0
            with fork_gate.connected():
                pass
            assert forked(lost) == 0, "one of two has ended"
        assert forked(kept) == 0

        fork_gate.LONGEST_FORK_DELAY_S = 0.05
        inside, leave = threading.Event(), threading.Event()

        def hold():
            with fork_gate.closed():
                inside.set()
                leave.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert inside.wait(60)
        assert forked(lost) == 0, "of an import that does not end the child has half a module"
        leave.set()
        holder.join()
        assert forked(kept) == 0, "and the gate works on"
        print("all seen")
        """
    )
    assert (done.returncode, done.stdout) == (0, "all seen\n"), done.stderr


def test_a_thread_without_a_network_sleeps_until_there_is_something_to_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(NOW)
    client = make_client(tmp_path / "d", clock=clock)
    client.flush(seal=True)
    clock.now += DAY_S
    assert client._engine.tick(everything=False).due
    monkeypatch.setattr(fork_gate, "_network_lost", True)
    end = PLAN.period_start(clock.now) + PLAN.period_s
    for everything in (False, True):
        assert client._engine.tick(everything=everything) == uploader_module.Tick(due=False, next_at=end)
    assert client.counters() == {"sealed": 1, "forked_in_upload": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING"], "said once"


def test_a_host_with_asyncio_channels_of_its_own_forks_children_without_a_network(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    done = python(
        """
        import asyncio, os, sys, threading, time
        os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # with them, gRPC may end the child by itself
        import grpc.aio
        from client_sdk import TelemetryClient

        ready = threading.Event()
        async def host():
            async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
                ready.set()
                await asyncio.sleep(600)
        threading.Thread(target=asyncio.run, args=(host(),), daemon=True).start()
        assert ready.wait(60)
        client = TelemetryClient("127.0.0.1:9", plan=sys.argv[1] + "/plan.toml", data_dir=sys.argv[1] + "/d",
                                 consent=True, insecure=True, registrar="127.0.0.1:9", registrar_key=sys.argv[2],
                                 enrolment_token="t")
        pid = os.fork()
        if pid == 0:
            assert not client.flush(seal=True, timeout_s=60)
            os._exit(0 if client.counters() == {"sealed": 1, "forked_in_upload": 1} else 1)
        print(os.waitpid(pid, 0)[1])
        """,
        str(tmp_path),
        KEY_HEX,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_host_that_has_decided_about_grpc_and_forks_is_not_overruled() -> None:
    done = python(
        """
        import os
        os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "1"
        from client_sdk.device.transport import import_grpc
        assert import_grpc().aio is import_grpc().aio
        print(os.environ["GRPC_ENABLE_FORK_SUPPORT"])
        """
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


# --- exit ----------------------------------------------------------------------------------------------

HOST = """
    import sys, time
    from client_sdk import TelemetryClient
    plan, folder = sys.argv[1] + "/plan.toml", sys.argv[1] + "/d"
    endpoint = {endpoint!r}
    local = endpoint.startswith("127.")
    client = TelemetryClient(
        endpoint, plan=plan, data_dir=folder, consent=True, insecure=local,
        registrar=endpoint, registrar_key=sys.argv[2], enrolment_token="any",
    )
    client.record("cold_start_ms", 812)
    {then}
    print(time.monotonic())
"""


@pytest.mark.parametrize("then", ["pass", "client.close()", "client.flush(seal=True, timeout_s=0.5)"])
@pytest.mark.parametrize("kind", ["closed", "silent", "unresolvable"])
def test_exit_is_quick_and_nothing_is_lost(tmp_path: Path, then: str, kind: str) -> None:
    # case E01
    import socket

    (tmp_path / "plan.toml").write_text(plan_text())
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        endpoint = {"closed": DEAD, "silent": silent, "unresolvable": "collector.invalid:443"}[kind]
        done = python(HOST.format(endpoint=endpoint, then=then), str(tmp_path), KEY_HEX)
        ended = time.monotonic()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 4.0
    assert DeviceStore(str(tmp_path / "d")).waiting() == 1


def test_a_killed_process_leaves_a_sound_store_and_the_next_goes_on(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    then = "client.flush(seal=True, timeout_s=0.0); import os; os.kill(os.getpid(), 9)"
    done = python(HOST.format(endpoint=DEAD, then=then), str(tmp_path), KEY_HEX)
    assert done.returncode == -9
    store = DeviceStore(str(tmp_path / "d"))
    assert (store.waiting(), store.damage()) == (1, None)


# --- TLS -----------------------------------------------------------------------------------------------


async def test_tls_with_an_own_ca_and_not_with_another(tmp_path: Path) -> None:
    private, public = certificate("localhost")
    _, stranger = certificate("localhost")
    credentials = grpc.ssl_server_credentials([(private, public)])
    (tmp_path / "ca.pem").write_bytes(public)
    with SmallCollector(PLAN, cohort_size=5, credentials=credentials) as collector:
        trusting = TelemetryClient(
            collector.endpoint,
            data_dir=tmp_path / "a",
            root_certificates=tmp_path / "ca.pem",
            consent=True,
            background=False,
            min_cohort=3,
            **NOWHERE,
        )
        await trusting.upload()
        assert trusting._engine.recorder.plan == PLAN
        wary = make_client(
            tmp_path / "b", insecure=False, endpoint=collector.endpoint, root_certificates=stranger, clock=time.time
        )
        certify(wary)
        wary.flush(seal=True)
        summary = await wary.upload()
        assert summary.failed == {"tls_authority": 1}
        assert summary.waiting == 1
