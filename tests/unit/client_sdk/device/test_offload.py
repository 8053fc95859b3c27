"""An asyncio host's loop goes on while an upload waits for the disk; what has begun on disk ends before it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.device import store_base as storage_module
from client_sdk.device.files import DATABASE_NAME
from client_sdk.device.offload import run_job
from client_sdk.device.storage import DeviceStore
from client_sdk.device.views import UploadSummary
from tests.registrar import NOWHERE
from tests.unit.client_sdk.device.helpers import certify, make_client, make_plan
from tests.unit.client_sdk.device.small_collector import SmallCollector
from tests.unit.client_sdk.device.test_rounds import Fleet

PLAN = make_plan()
STEPS = ["hello", "join", "shares", "masked_input", "confirm", "unmask"]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Somebody else writes to the folder's store."""
    db = sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


async def test_no_transaction_of_an_upload_runs_on_the_hosts_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, threads = storage_module.transaction, []

    @contextmanager
    def watched(path: str, busy_timeout_s: float) -> Iterator[sqlite3.Connection]:
        threads.append(threading.get_ident())
        with real(path, busy_timeout_s) as db:
            yield db

    with SmallCollector(PLAN, cohort_size=5, tokens={"a-token"}) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        for client in fleet.clients:
            client._engine.settings.enrolment_token = "a-token"
        monkeypatch.setattr(storage_module, "transaction", watched)
        summaries = await fleet.upload()
        made = len(threads)
        planless = TelemetryClient(
            collector.endpoint,
            data_dir=tmp_path / "p",
            consent=True,
            insecure=True,
            background=False,
            min_cohort=3,
            **NOWHERE,
        )
        begun = len(threads)
        await planless.upload()
    assert all(isinstance(summary, UploadSummary) and summary.counted == 1 for summary in summaries)
    assert begun >= 5 * 9, "begin, identity, certificate, enrolled, joined, hand over, finish, end, what is left"
    assert len(threads) > begun, "the plan is pinned"
    assert threading.get_ident() not in {*threads[:made], *threads[begun:]}, "the client's making does"


@pytest.mark.parametrize("step", STEPS)
async def test_a_store_locked_before_any_step_holds_up_the_upload_not_the_loop(tmp_path: Path, step: str) -> None:
    loop = asyncio.get_running_loop()
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        for client in fleet.clients:
            client._engine.access.store().busy_timeout_s = 20
        with contextlib.ExitStack() as locks:

            def lock(now: str) -> None:
                if now == step:
                    locks.enter_context(locked(fleet.folders[0]))
                    loop.call_later(0.15, locks.close)  # never called if the loop waits for the lock

            first, *others = await asyncio.gather(fleet.upload(0, before_send=lock), fleet.upload(1, 2, 3, 4))
        summaries = [*first, *others[0]]
        assert [s.counted for s in summaries if isinstance(s, UploadSummary)] == [1] * 5, "nothing timed out"


async def test_a_cancelled_upload_leaves_no_transaction_and_no_lease_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(tmp_path / "d", clock=time.time)
    client.flush(seal=True)
    store = DeviceStore(str(tmp_path / "d"), busy_timeout_s=20)
    client._engine.access.store().busy_timeout_s = 20
    await client.upload()  # so that all imports are done
    begun, is_locked, begin_run = threading.Event(), threading.Event(), DeviceStore.begin_run

    def begin(self: DeviceStore, *arguments: Any, **more: Any) -> Any:
        begun.set()
        assert is_locked.wait(60)
        return begin_run(self, *arguments, **more)

    monkeypatch.setattr(DeviceStore, "begin_run", begin)
    upload = asyncio.create_task(client.upload())
    assert await asyncio.to_thread(begun.wait, 60)
    with locked(tmp_path / "d"):
        is_locked.set()
        for _ in range(3):  # asked again and again: it ends once, when the transaction has
            upload.cancel()
            await asyncio.sleep(0.05)
        assert not upload.done(), "the transaction that takes the lease is under way"
    with pytest.raises(asyncio.CancelledError):
        await upload
    with store._transaction() as db:
        assert db.execute("SELECT count(*) FROM meta WHERE key = 'lease'").fetchone()[0] == 0
    assert store.waiting() == 1


async def test_one_upload_of_a_client_at_a_time(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", clock=time.time)
    certify(client)
    client.flush(seal=True)
    summaries = await asyncio.gather(*(client.upload() for _ in range(3)))
    assert [summary.failed for summary in summaries] == [
        {"rpc_unavailable": 1},
        {"upload_under_way": 1},
        {"upload_under_way": 1},
    ]
    assert (await client.upload()).failed == {"rpc_unavailable": 1}, "the way is free again"


async def test_a_job_runs_where_it_is_told_to_and_its_error_comes_back() -> None:
    here = threading.get_ident()
    assert await run_job(threading.get_ident, off_loop=False) == here
    assert await run_job(threading.get_ident, off_loop=True) != here

    def fail() -> None:
        raise LookupError("of the job")

    for off_loop in (False, True):
        with pytest.raises(LookupError):
            await run_job(fail, off_loop=off_loop)


def test_without_threads_the_job_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop = asyncio.new_event_loop()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        assert loop.run_until_complete(run_job(threading.get_ident, off_loop=True)) == threading.get_ident()
    loop.close()
