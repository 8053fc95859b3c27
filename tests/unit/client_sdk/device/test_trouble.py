"""Endpoints, disks, locks and kills that make trouble: no host is held up, nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk import StorageError, TelemetryClient
from client_sdk.device import session as session_module
from client_sdk.device.files import DATABASE_NAME
from client_sdk.device.storage import DeviceStore
from client_sdk.device.views import UploadSummary
from client_sdk.secagg.messages import Challenge, Joined, MaskedInputPiece, Receipt, Roster
from client_sdk.testing import FakeClock, InMemoryCollector
from tests.registrar import KEY_HEX
from tests.unit.client_sdk.device.helpers import Clock, certify, make_client, make_plan
from tests.unit.client_sdk.device.small_collector import SmallCollector
from tests.unit.client_sdk.device.test_process import ROOT, forked, soon
from tests.unit.client_sdk.device.test_rounds import Fleet, expected_sum, spooled
from tests.unit.client_sdk.device.trouble import KINDS, trouble

PLAN = make_plan()
MINUTES = make_plan(period="1m", max_delay="7d", lifetime="1000000", rolling_24h="1000000", min_size=2)
"""One report a minute, for tests that need many."""


def slowest_record(client: TelemetryClient, tries: int = 3) -> float:
    """The slowest of 100 calls, in seconds; of the best of some tries, since a busy machine may stop any thread."""
    best = float("inf")
    for _ in range(tries):
        slowest = 0.0
        for number in range(100):
            started = time.monotonic()
            client.record("cold_start_ms", number)
            slowest = max(slowest, time.monotonic() - started)
        best = min(best, slowest)
    return best


# --- E01: endpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_endpoint_holds_up_its_host(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # case E01
    monkeypatch.setattr(session_module, "FIRST_ANSWER_S", 0.5)  # so that even a silent one is seen to fail, repeatedly
    with trouble(kind, PLAN) as settings, caplog.at_level(logging.DEBUG, "ldp_telemetry"):
        client = make_client(tmp_path / "d", background=True, clock=time.time, **settings)
        certify(client)
        assert slowest_record(client) < 0.1
        assert not client.flush(seal=True, timeout_s=0.1)
        attempts: Callable[[], int] = lambda: sum(  # noqa: E731 - asked in two places
            count for name, count in client.counters().items() if name.startswith(("rpc_", "tls_", "timeout", "left_"))
        )
        for failed in (1, 2, 3):
            assert not client.flush(timeout_s=0.1)
            assert soon(lambda wanted=failed: attempts() >= wanted), client.counters()
        assert slowest_record(client) < 0.1, "in the middle of an outage too"
        client.flush(timeout_s=0.0)  # the thread is on its way to the collector once more
        started = time.monotonic()
        client.close(timeout_s=3)
        assert time.monotonic() - started < 2.5
        lines = [record.levelname for record in caplog.records if record.name == "ldp_telemetry"]
    assert lines.count("WARNING") == 1, "an outage, not each of its retries"
    assert "ERROR" not in lines
    collector = InMemoryCollector(PLAN)
    later = collector.client(tmp_path / "d")
    assert collector.deliver(later).counted == 1, "nothing is lost"
    assert later.counters()["sealed"] == 1


def test_a_hundred_reports_wait_for_their_collector(tmp_path: Path) -> None:
    # case E01: 100 recorded and closed, 100 pending after a restart, 100 delivered once the collector is up
    clock = FakeClock()
    client = make_client(tmp_path / "d", MINUTES, background=True, clock=clock)
    for number in range(100):
        if number:
            clock.advance(60)
            client.flush(timeout_s=0.0)
        client.record("cold_start_ms", number)
    started = time.monotonic()
    client.close(timeout_s=3)
    assert time.monotonic() - started < 4
    collector = InMemoryCollector(MINUTES, clock=clock)
    restarted = collector.client(tmp_path / "d")
    assert restarted.flush() is False
    assert len(restarted.preview().waiting) == 100
    pending = {(w.period_start, w.digest) for w in restarted.preview().waiting}
    assert collector.deliver(restarted, seal=False).as_dict() == {"counted": 100, "already_counted": 0, "waiting": 0}
    assert {(entry.period_start, entry.digest) for entry in restarted.history()} == pending
    assert len({report.period_start for report in collector.reports}) == 100


# --- E05: forks ----------------------------------------------------------------------------------------


def _record_and_close(client: TelemetryClient) -> None:
    client.record("cold_start_ms", 2)
    client.close()


async def test_children_of_a_host_that_has_delivered(tmp_path: Path) -> None:
    # case E05: the answer here is one report a device and period, whatever the number of processes
    import multiprocessing

    clock = Clock(time.time())
    with SmallCollector(PLAN, cohort_size=4, clock=clock) as collector:
        client = make_client(tmp_path / "d", background=True, clock=clock, endpoint=collector.endpoint)
        client.record("cold_start_ms", 1)
        others = Fleet(tmp_path, collector, 3)
        sent, _ = await asyncio.gather(asyncio.to_thread(client.flush, True, 120), others.upload())
        assert sent
        assert client.counters() == {"enrolled": 1, "sealed": 1, "counted": 1}
        clock.now += PLAN.period_s
        client.flush(timeout_s=0.0)
        for _ in range(3):
            assert await asyncio.to_thread(forked, lambda: _record_and_close(client)) == 0
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=_record_and_close, args=(client,)) for _ in range(3)]
        for child in children:
            child.start()
        for child in children:
            await asyncio.to_thread(child.join, 15)
        assert [child.exitcode for child in children] == [0, 0, 0]
        client.record("cold_start_ms", 3)
        client.close()
        counters = client.counters()
        assert {name: counters[name] for name in ("sealed", "counted", "other_process")} == {
            "sealed": 2,
            "counted": 1,
            "other_process": 6,
        }, "the first child speaks for the second period; five children's readings and the parent's are counted"
        assert client.spent().lifetime_micro == 2 * PLAN.report_micro_epsilon
        next_process, *rest = [
            make_client(tmp_path / name, clock=clock, endpoint=collector.endpoint) for name in ("d", "x", "y", "z")
        ]
        for other in rest:
            other.flush(seal=True)
        summaries = await asyncio.gather(*(one.upload() for one in (next_process, *rest)))
        assert summaries[0].counted == 1, "what the child has sealed"


# --- E07: the collector is told to stop ----------------------------------------------------------------


@pytest.mark.parametrize("step", ["join", "shares", "masked_input", "confirm", "unmask"])
async def test_a_collector_that_stops_in_the_middle_gets_every_report_once_later(tmp_path: Path, step: str) -> None:
    # case E07, seen from the device; case E04
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)

        def stop(now: str) -> None:
            if now == step:
                collector.stop()
                collector._thread.join(30)  # this device's message never arrives

        first = await asyncio.gather(fleet.upload(0, before_send=stop), fleet.upload(1, 2, 3, 4))
    for summary in first[0] + first[1]:
        assert isinstance(summary, UploadSummary), "no exception reaches the host"
        assert (summary.counted, summary.waiting) == (0, 1)
        (reason,) = summary.failed
        assert reason in {"rpc_unavailable", "rpc_cancelled", "rpc_internal"}
    again = SmallCollector(PLAN, cohort_size=5, port=collector.port, counted=collector.counted)
    with again:
        second = await fleet.upload()
    for summary in second:
        assert isinstance(summary, UploadSummary)
        assert (summary.counted + summary.already_counted, summary.waiting) == (1, 0)
    (result,) = collector.sums + again.sums  # at the last step it may have gone either way
    assert result.total == expected_sum(*fleet.reports), "the same bytes"
    assert len(again.counted) == 5
    if step == "confirm":
        assert result.resent == 5, "all of them had left"


async def test_a_receipt_that_the_stop_swallowed_is_not_counted_again(tmp_path: Path) -> None:
    # case E07: stored, then told to stop, before the devices hear of it
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        collector.cut_answer = lambda device, message: isinstance(message, Receipt)
        await fleet.upload()
        assert len(collector.sums) == 1
    with SmallCollector(PLAN, cohort_size=5, port=collector.port, counted=collector.counted) as again:
        second = await fleet.upload()
    assert all(isinstance(summary, UploadSummary) and summary.already_counted == 1 for summary in second)
    assert again.sums == []
    assert all(client.spent().lifetime_micro == PLAN.report_micro_epsilon for client in fleet.clients)


# --- D05: replays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Challenge, Roster])
async def test_what_a_collector_said_in_one_round_is_worth_nothing_in_the_next(tmp_path: Path, kind: type) -> None:
    # case D05, seen from the device
    recorded: list[Any] = []
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        victim = fleet.clients[0].device_id
        real = collector._write

        async def listen(context: Any, device_id: str, answer: Any) -> None:
            if device_id == victim and isinstance(answer, kind):
                recorded.append(answer)
            await real(context, device_id, answer)

        async def replay(context: Any, device_id: str, answer: Any) -> None:
            await real(context, device_id, recorded[0] if isinstance(answer, kind) else answer)
            if isinstance(answer, Joined) and kind is Roster:
                await real(context, device_id, recorded[0])

        collector._write = listen  # type: ignore[method-assign]
        collector.cut = lambda device, message: isinstance(message, MaskedInputPiece) and device == victim
        await fleet.upload()
        said = {data for device, data in collector.received if device == victim}
        assert len(said) >= 3, "advert, shares, masked input"
        collector.received.clear()
        collector._write = replay  # type: ignore[method-assign]
        (summary,) = await fleet.upload(0)
        assert isinstance(summary, UploadSummary)
        assert summary.waiting == 1
        assert spooled(fleet.folders[0]) == fleet.reports[0]
        (reason,) = summary.failed
        assert reason.startswith("left_" if kind is Roster else "rpc_unknown"), "refused here, or there"
        answers = [data for device, data in collector.received if device == victim]
        assert len(answers) == 1, "an advert, and then it left"
        assert answers[0] not in said


# --- F01: a full disk ----------------------------------------------------------------------------------

FULL_DISK = """
import asyncio, json, logging, sys, time
from pathlib import Path
from client_sdk import StorageError, TelemetryClient
from client_sdk.device import engine, uploader
from client_sdk.device.storage import DeviceStore
from client_sdk.testing import FakeClock, InMemoryCollector

folder, plan = Path(sys.argv[1]), sys.argv[2]
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
clock = FakeClock()
collector = InMemoryCollector(plan, clock=clock)
client = collector.client(folder / "d")
for _ in range(3):
    client.record("cold_start_ms", 1)
    clock.advance(60)
    client.flush()
before = [[w.period_start, w.digest.hex()] for w in client.preview().waiting]
uploader.LONGEST_SLEEP_S, engine.STORE_RETRY_S = 0.02, 0.0
guest = TelemetryClient("127.0.0.1:9", plan=plan, data_dir=folder / "guest", consent=True, insecure=True,
                        registrar="127.0.0.1:9", registrar_key=sys.argv[3], clock=clock,
                        can_upload=lambda: False)  # nobody flushes this one, its thread seals

filler = (folder / "filler").open("wb", buffering=0)
for size in (65536, 4096, 512, 1):
    try:
        while True:
            filler.write(bytes(size))
    except OSError:
        continue
sent, refused = 0, []
for attempt in range(20):
    client.record("cold_start_ms", attempt)
    guest.record("cold_start_ms", attempt)
    clock.advance(60)
    client.flush()
    try:
        sent += asyncio.run(client.upload()).counted
    except StorageError as error:
        refused.append(str(error))
during = len(collector.reports)
while not guest._engine.recorder.counts().get("storage"):
    time.sleep(0.01)  # the thread has met the full disk
filler.close()
(folder / "filler").unlink()
while not DeviceStore(folder / "guest").waiting():
    time.sleep(0.01)  # by itself
guest.close()
client.flush()
after = [[w.period_start, w.digest.hex()] for w in client.preview().waiting]
summary = collector.deliver(client, seal=False)
print(json.dumps({
    "before": before, "after": after, "sent": sent, "during": during, "refused": refused,
    "counters": client.counters(), "counted": summary.counted, "damaged": client.spent().damaged,
    "periods": [report.period_start for report in collector.reports],
    "charged": client.spent().lifetime_micro,
    "guest": [DeviceStore(folder / "guest").waiting(), guest.spent().lifetime_micro, guest.spent().damaged],
}))
"""


def test_a_full_disk_stops_sending_and_loses_nothing_old(tmp_path: Path) -> None:
    # case F01: a real volume of 2 MB, filled to the last byte
    (tmp_path / "plan.toml").write_text(MINUTES.text)
    (tmp_path / "volume").mkdir()
    inside = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$0" -c "$2" "$1" "$3" "$4"'
    own_mounts = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*own_mounts, 'mount -t tmpfs tmpfs "$0"', tmp_path / "volume"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this machine lets nobody mount a small volume (needs unshare and user namespaces)")
    done = subprocess.run(
        [*own_mounts, inside, sys.executable, tmp_path / "volume", FULL_DISK, tmp_path / "plan.toml", KEY_HEX],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert (len(found["before"]), found["sent"], found["during"]) == (3, 0, 0), "nothing leaves uncharged or unbooked"
    assert len(found["refused"]) == 20
    assert all("disk" in text or "full" in text for text in found["refused"])
    assert "the disk is full" in done.stderr
    assert done.stderr.count("WARNING") == 2, "one outage of each client"
    assert found["after"][:3] == found["before"], "old entries are all there, to the byte"
    kept = len(found["after"]) - 3
    assert kept == 8, "as many as may wait in memory"
    assert found["counters"]["storage"] >= 20 - kept, "the others are counted"
    assert found["counted"] == 3 + kept
    assert len(set(found["periods"])) == len(found["periods"]) == 3 + kept, "no duplicates"
    assert found["charged"] == (3 + kept) * MINUTES.report_micro_epsilon, "what was never stored was never charged"
    assert found["damaged"] is None
    kept, charged, damaged = found["guest"]
    assert kept >= 1, "the background thread has gone on by itself"
    assert (charged, damaged) == (kept * MINUTES.report_micro_epsilon, None)


# --- F03: a locked store -------------------------------------------------------------------------------


class Locked:
    """Another process that writes to the folder's store, until it is told to end."""

    def __init__(self, folder: Path) -> None:
        code = (
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "db.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, folder / DATABASE_NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"

    def end(self) -> None:
        self._process.communicate()


def test_a_lock_of_two_seconds_is_not_noticed(tmp_path: Path) -> None:
    # case F03
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    lock = Locked(tmp_path / "d")
    threading.Timer(2, lock.end).start()
    assert slowest_record(client) < 0.1
    assert collector.deliver(client).as_dict() == {"counted": 1, "already_counted": 0, "waiting": 0}
    assert client.counters() == {"enrolled": 1, "sealed": 1, "counted": 1}


def test_a_long_lock_is_an_error_soon_and_nothing_is_lost(tmp_path: Path) -> None:
    # case F03: held until the test lets go
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    client.record("cold_start_ms", 1)
    lock = Locked(tmp_path / "d")
    try:
        for call in (lambda: client.flush(seal=True), lambda: asyncio.run(client.upload())):
            started = time.monotonic()
            try:
                assert call() is False
            except StorageError as error:
                assert "locked" in str(error)  # noqa: PT017 - flush() says False, upload() raises
            assert time.monotonic() - started < 15
        assert slowest_record(client) < 0.1
        assert collector.reports == []
    finally:
        lock.end()
    assert collector.deliver(client).counted == 1, "sealed once, it waited in memory"
    assert client.counters()["sealed"] == 1


# --- F04: kill -9 --------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, random, signal, sqlite3, sys, time
from pathlib import Path
from client_sdk.plan import parse_plan
from client_sdk.testing import FakeClock, InMemoryCollector

folder, plan, kills = Path(sys.argv[1]), parse_plan(Path(sys.argv[2]).read_text()), int(sys.argv[3])
counted_file = folder / "counted.txt"
counted_file.touch()

class Durable(InMemoryCollector):
    # what it has counted outlives the process, like a real collector's store
    def is_counted(self, device_id, period_start):
        return str(period_start) in counted_file.read_text().split()

    def spent(self, device_id):
        from client_sdk.secagg.messages import Joined
        reports = len(counted_file.read_text().split())
        return Joined(reports, reports * plan.report_micro_epsilon)

    def count(self, device_id, period_start, *_, **__):
        with counted_file.open("a") as file:
            file.write(f"{period_start}\\n")

clock = FakeClock()

def work(ready):
    collector = Durable(plan, clock=clock)
    client = collector.client(folder / "d")
    os.write(ready, b"r")
    while True:
        client.record("cold_start_ms", 1)
        clock.advance(60)
        client.flush()
        asyncio.run(client.upload())
        os.write(ready, b"p")

def wait_for(there):
    until = time.monotonic() + 10  # it works without a pause, so it comes, unless the machine has other things to do
    while journal.exists() is not there and time.monotonic() < until:
        pass

# imports: the children are to write, not to read
with InMemoryCollector(plan, clock=FakeClock()).client(folder / "warm") as warm:
    warm.flush(seal=True)
    asyncio.run(warm.upload())

journal, slowest = folder / "d" / "device.db-journal", 0.0
for kill in range(kills):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(write)
        finally:
            os._exit(9)
    os.close(write)
    started = time.monotonic()
    assert os.read(read, 1) == b"r"  # fails where the child died by itself
    slowest = max(slowest, time.monotonic() - started)
    if kill % 5 < 3:  # the others may not have come to their first report
        assert os.read(read, 1) == b"p"
    os.close(read)
    time.sleep(random.uniform(0, 0.06))
    if kill % 3:  # in the middle of a transaction, or right after one
        wait_for(True)
    if kill % 3 == 2:
        wait_for(False)
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    db = sqlite3.connect(folder / "d" / "device.db")
    newest = db.execute("SELECT max(period_start) FROM ledger").fetchone()[0]
    db.close()
    clock.now = max(clock.now, (newest or 0) + 60) + 60.0
print(slowest)
"""


@pytest.mark.parametrize("kills", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_a_device_that_is_killed_again_and_again(tmp_path: Path, kills: int) -> None:
    # case F04, at the device: at random, while a transaction is under way, and right after one
    (tmp_path / "plan.toml").write_text(MINUTES.text)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, tmp_path / "plan.toml", str(kills)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) < 5, "each restart"
    store = DeviceStore(str(tmp_path / "d"))
    with store._transaction() as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = {
            table: [row[0] for row in db.execute(f"SELECT period_start FROM {table}")]  # noqa: S608 - our own names
            for table in ("ledger", "spool", "log")
        }
        outcomes = {row[0] for row in db.execute("SELECT outcome FROM log")}
    counted = (tmp_path / "counted.txt").read_text().split()
    assert store.damage() is None, "a kill is no damage"
    assert len(rows["ledger"]) > kills / 2, "it had time to work"
    assert sorted(rows["spool"] + rows["log"]) == sorted(rows["ledger"]), "each charged report is somewhere, once"
    assert outcomes <= {"counted", "already_counted"}
    assert len(set(counted)) == len(counted), "counted once"
    assert {str(period) for period in rows["log"]} <= set(counted), "acknowledged means counted"
    assert set(counted) <= {str(period) for period in rows["ledger"]}, "charged before it left"
    assert set(counted) - {str(period) for period in rows["log"]} <= {str(period) for period in rows["spool"]}
