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
from tests.unit.client_sdk.device.certificates import certificate
from tests.unit.client_sdk.device.helpers import DAY_S, DEAD, NOW, Clock, make_client, make_plan, plan_text
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


def soon(holds: Callable[[], bool], within_s: float = 60) -> bool:
    """Does it come true? The machine may be busy: a long wait costs nothing where it does."""
    deadline = time.monotonic() + within_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


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
        client.record("cold_start_ms", 812)
        threads = threading.active_count()
        client.close()
        print(threads, *sorted(sys.modules))
        """,
        str(tmp_path),
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
        assert client._engine.tick(everything=False).next_at in {end, store.next_due()}, "and wakes up by itself"
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
    done = python(HOST.format(endpoint=DEAD, then="del client; import gc; gc.collect()"), str(tmp_path))
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
        assert [client.counters() for client in clients] == [{"counted": 1, "sealed": 1}] * 5
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

    def kept() -> None:
        assert client._engine.delivery().token == "a-token"

    assert client._engine.delivery().token == "a-token"
    assert forked(kept) == 0
    client._engine.delivery().token = None  # it has been used
    assert forked(kept) != 0


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
        done = python(FORKING_HOST, str(tmp_path), collector.endpoint)
    assert (done.returncode, done.stderr) == (0, "")
    # a file for each process: what two of them print into one pipe may be cut anywhere
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("parent", "child")] == ["True True True True"] * 2
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
    from client_sdk.device import session

    session.FIRST_ANSWER_S = 600  # the upload lasts as long as this test, however busy the machine is
    server = socket.create_server(("127.0.0.1", 0))
    endpoint = f"127.0.0.1:{server.getsockname()[1]}"
    later = [0]
    def client_of(name):
        return TelemetryClient(endpoint, plan=sys.argv[1] + "/plan.toml", data_dir=sys.argv[1] + "/" + name,
                               consent=True, insecure=True, background=not name.startswith("foreground"),
                               clock=lambda: time.time() + later[0])
    client = client_of("d")
    assert not client.flush(seal=True, timeout_s=0.0)
    while not any("_poll_wrapper" in thread.name for thread in threading.enumerate()):
        time.sleep(0.01)  # until the upload is under way
    assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
    statuses = []
    for number in range(12):
        pid = os.fork()
        if pid == 0:
            if number % 4 == 1:
                client.record("cold_start_ms", 2)
                later[0] = 2 * 86400  # what waits is due
                started = time.monotonic()
                assert not client.flush(timeout_s=60)
                assert time.monotonic() - started < 30  # says so at once
            elif number % 4 == 2:
                own = client_of(f"child-{number}")
                own.close()
            elif number % 4 == 3:
                import asyncio
                own = client_of(f"foreground-{number}")
                later[0] = 2 * 86400
                for _ in range(2):  # the period that has ended is sealed, once
                    answer = {"counted": 0, "already_counted": 0, "waiting": 1, "forked_in_upload": 1}
                    assert asyncio.run(own.upload()).as_dict() == answer
                if os.fork() == 0:
                    assert asyncio.run(own.upload()).failed == {"forked_in_upload": 1}
                    os._exit(0)
                assert os.wait()[1] == 0
            sys.exit(0)  # with everything that the interpreter does at its end
        statuses.append(os.waitpid(pid, 0)[1])
    print(statuses, client.counters().get("forked_in_upload"))
    client.close()
"""


def test_a_fork_in_the_middle_of_an_upload_hurts_nobody(tmp_path: Path) -> None:
    """gRPC aborts or crashes a child that was forked while a channel was open; such a child leaves it alone."""
    # case E05
    (tmp_path / "plan.toml").write_text(plan_text())
    done = python(FORKED_IN_UPLOAD, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("] ") == ["[" + ", ".join(["0"] * 12), "3\n"], "exit statuses, and who has said it"
    for number in range(2, 12, 4):
        assert DeviceStore(str(tmp_path / f"child-{number}")).waiting() == 1, "sealed, for another process to send"


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
                                 consent=True, insecure=True)
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
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_thread_of_ours_imports_nothing_that_a_fork_could_cut_in_two(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    with SmallCollector(PLAN, cohort_size=4) as collector:
        done = python(
            """
            import os, sys, threading, time
            from client_sdk import TelemetryClient
            from client_sdk.device import fork_gate

            real = os.register_at_fork
            def register(**hooks):
                if threading.current_thread().name == "ldp-telemetry-uploader" and set(hooks) != {"after_in_child"}:
                    print("hooks from within a fork:", hooks, flush=True)
                real(**hooks)
            os.register_at_fork = register
            seen = []
            class Watch:
                def find_spec(self, name, path=None, target=None):
                    if threading.current_thread().name == "ldp-telemetry-uploader":
                        seen.append(name)
                        if not fork_gate._gate._is_owned():
                            print("outside:", name, flush=True)
            sys.meta_path.insert(0, Watch())
            clients = [
                TelemetryClient(endpoint, plan=sys.argv[1] + "/plan.toml", data_dir=f"{sys.argv[1]}/{number}",
                                consent=True, insecure=True)
                for number, endpoint in enumerate([sys.argv[2]] * 4 + ["127.0.0.1:9"])
            ]
            dead = clients.pop()
            dead.flush(True, 0.0)
            while "rpc_unavailable" not in dead.counters(): time.sleep(0.05)
            jobs = [threading.Thread(target=client.flush, args=(True, 120)) for client in clients]
            for job in jobs: job.start()
            for job in jobs: job.join()
            print([client.counters() for client in clients])
            assert {"grpc", "numpy", "asyncio", "cryptography"} <= set(seen)
            assert not any(fork_gate.GRPC_POLLER in thread.name for thread in threading.enumerate()), "between uploads"
            for client in (dead, *clients): client.close()
            """,
            str(tmp_path),
            collector.endpoint,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[{'counted': 1, 'sealed': 1}] * 4}\n"


def test_who_forks_while_grpc_is_in_use_loses_it_for_the_child_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        assert fork_gate.network_lost()

    def kept() -> None:
        assert not fork_gate.network_lost()

    assert forked(kept) == 0
    with fork_gate.connected():
        assert forked(lost) == 0
        with fork_gate.connected():
            pass
        assert forked(lost) == 0, "one of two has ended"
    assert forked(kept) == 0

    monkeypatch.setattr(fork_gate, "LONGEST_FORK_DELAY_S", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
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
                                 consent=True, insecure=True)
        pid = os.fork()
        if pid == 0:
            assert not client.flush(seal=True, timeout_s=60)
            os._exit(0 if client.counters() == {"sealed": 1, "forked_in_upload": 1} else 1)
        print(os.waitpid(pid, 0)[1])
        """,
        str(tmp_path),
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
    client = TelemetryClient(endpoint, plan=plan, data_dir=folder, consent=True, insecure=local)
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
