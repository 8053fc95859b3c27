"""Bad nights: locks, full disks, kill -9. Nothing half-done, nothing acknowledged that a restart would not find."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from collector.service.storage import CollectorStore, StoreError, StoreProblem
from tests.unit.collector.service.stores import NOW, PERIOD, counts, device, make_plan, make_release

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "collector.db"


@pytest.fixture
def store(path: Path) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(str(path))
    opened.put_plan(make_plan(), NOW)
    yield opened
    opened.close()


def writer_lock(path: Path) -> sqlite3.Connection:
    """Another process's write transaction, as SQLite sees it."""
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    conn.execute("BEGIN IMMEDIATE")
    return conn


# case F03
def test_a_short_lock_is_waited_for(store: CollectorStore, path: Path) -> None:
    lock, asked, order = writer_lock(path), threading.Event(), list[str]()

    def let_go() -> None:
        assert asked.wait(60)
        time.sleep(0.5)
        order.append("free")
        lock.execute("COMMIT")

    holder = threading.Thread(target=let_go)
    holder.start()
    asked.set()
    store.store_release(make_release(make_plan()))
    order.append("stored")
    holder.join()
    assert order == ["free", "stored"], "the lock was there"
    lock.close()


# case F03
def test_a_long_lock_is_said_and_leaves_nothing(store: CollectorStore, path: Path) -> None:
    impatient = CollectorStore.open(str(path), busy_timeout_s=0.1)
    lock = writer_lock(path)
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        impatient.store_release(make_release(make_plan()))
    assert time.monotonic() - started < 5
    assert caught.value.problem is StoreProblem.LOCKED
    assert "locked" in str(caught.value)
    assert str(path) in str(caught.value)
    assert store.rounds() == [], "readers go on"
    lock.execute("ROLLBACK")
    lock.close()
    impatient.store_release(make_release(make_plan()))
    impatient.close()
    assert counts(path)["contributions"] == 3


# case F03
def test_a_report_sees_one_moment_and_holds_up_no_writer(store: CollectorStore, path: Path) -> None:
    store.store_release(make_release(make_plan(), "round-0", period_start=PERIOD - 86_400))
    reader = CollectorStore.open(str(path), read_only=True)
    with reader._reading() as conn:
        before = conn.exec_driver_sql("SELECT count(*) FROM rounds").scalar()
        store.store_release(make_release(make_plan()))
        assert conn.exec_driver_sql("SELECT count(*) FROM rounds").scalar() == before == 1
    assert len(reader.rounds()) == 2
    reader.close()


def test_a_reader_cannot_write(store: CollectorStore, path: Path) -> None:
    reader = CollectorStore.open(str(path), read_only=True)
    with pytest.raises(StoreError) as caught:
        reader.store_release(make_release(make_plan()))
    assert caught.value.problem is StoreProblem.READ_ONLY
    reader.close()


# case F01
def test_a_full_disk_is_said_keeps_what_was_and_passes(store: CollectorStore, path: Path) -> None:
    store.store_release(make_release(make_plan(), "round-0", period_start=PERIOD - 86_400))
    before = counts(path)
    with store._engine.connect() as conn:  # the limit that SQLite itself answers with SQLITE_FULL
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    store._engine.dispose()
    limit = [pages]
    event.listen(store._engine, "checkout", lambda dbapi, *_: dbapi.execute(f"PRAGMA max_page_count = {limit[0]}"))
    for _ in range(20):
        with pytest.raises(StoreError) as caught:
            store.store_release(make_release(make_plan(), devices=range(500)))
        assert caught.value.problem is StoreProblem.FULL
        assert "disk is full" in str(caught.value)
    assert counts(path) == before
    assert len(store.released_sums()) == 2
    limit[0] = 2**30
    store.store_release(make_release(make_plan(), devices=range(500)))
    assert counts(path)["contributions"] == before["contributions"] + 500


# case F01
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs a small file system of its own")
def test_a_small_volume_filled_to_the_last_byte(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(volume)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount here")
    try:
        path = volume / "collector.db"
        store = CollectorStore.open(str(path))
        store.put_plan(make_plan(), NOW)
        stored, problems = 0, set()
        for n in range(40):
            try:
                store.store_release(make_release(make_plan(), f"r{n}", range(20), period_start=PERIOD + n * 86_400))
                stored += 1
            except StoreError as error:
                problems.add(error.problem)
            if n == 5:
                fill(volume / "ballast")
        assert problems == {StoreProblem.FULL}
        with pytest.raises(StoreError) as caught:
            store.probe()
        assert caught.value.problem is StoreProblem.FULL
        (volume / "ballast").unlink()
        assert len(store.rounds()) == stored >= 6
        store.store_release(make_release(make_plan(), "after", range(20), period_start=PERIOD - 86_400))
        store.probe()
        store.close()
        assert integrity(path) == "ok"
        assert counts(path)["contributions"] == (stored + 1) * 20
        fill(volume / "ballast")  # SQLite calls it an input/output error when not even its index fits
        with pytest.raises(StoreError) as caught:
            CollectorStore.open(str(path))
        assert caught.value.problem is StoreProblem.FULL
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=False)


def fill(path: Path) -> None:
    """Write until not one more byte goes in."""
    with path.open("wb", buffering=0) as stream:
        for size in (65_536, 4_096, 512, 1):
            while True:
                try:
                    if stream.write(b"x" * size) < size:
                        break
                except OSError:
                    break


def integrity(path: Path) -> str:
    conn = sqlite3.connect(path)
    try:
        return str(conn.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        conn.close()


WRITER = """
import sys
from tests.unit.collector.service.stores import NOW, PERIOD, make_plan, make_release
from collector.service.storage import CollectorStore
store = CollectorStore.open(sys.argv[1])
store.put_plan(make_plan(), NOW)
first = int(sys.argv[2])
for n in range(first, first + 100_000):
    store.store_release(make_release(make_plan(), f"r{n}", range(5), period_start=PERIOD + n * 86_400))
    print(n, flush=True)
"""


# case F04
@pytest.mark.slow_on_postgres
def test_kill_9_at_any_moment_loses_nothing_acknowledged(store_url: str, path: Path) -> None:
    rng = random.Random(4)
    acknowledged: list[int] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    for life in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, store_url, str(life * 100_000)],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        acknowledged.append(int(process.stdout.readline()))
        time.sleep(rng.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split("\n") if line]
        process.stdout.close()
        process.wait(30)
    assert len(acknowledged) >= 8, "commits were under way"
    store = CollectorStore.open(store_url)
    stored = [record.round_id for record in store.rounds()]
    assert {f"r{n}" for n in acknowledged} <= set(stored)
    assert len(stored) == len(set(stored)) <= len(acknowledged) + 6, "at most one unacknowledged a life"
    assert store.device_totals(device(0)) == (len(stored), len(stored) * 2_000_000)
    assert sum(s.totals[0] for s in store.released_sums("cold_start_ms")) == len(stored) * 2_500
    store.close()
    if path.exists():
        assert integrity(path) == "ok"


def test_a_vanished_file_does_not_come_back_empty(store: CollectorStore, path: Path) -> None:
    store._engine.dispose()
    path.unlink()
    with pytest.raises(StoreError) as caught:
        store.rounds()
    assert caught.value.problem is StoreProblem.CANNOT_OPEN
    assert not path.exists()
