"""The device's store: one transaction for charge and spool, the mirror, damage, two processes."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk.accounting.budget import Limits
from client_sdk.device import opening, spool, storage, store_base, store_spool
from client_sdk.device.database import SCHEMA_VERSION
from client_sdk.device.files import (
    DAMAGED_NAME,
    DATABASE_NAME,
    MIRROR_NAME,
    StoreUnavailableError,
    read_mirror,
)
from client_sdk.device.records import SealedReport
from client_sdk.device.spool import Lease
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import RefusalReason, StorageError
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, make_plan

PLAN = make_plan()
NO_LIMITS = Limits()
MICRO = 1_000_000


def sealed(
    period: int = 0, micro: int = MICRO, *, now: float = NOW, name: str = PLAN.name, **changes: Any
) -> SealedReport:
    fields: dict[str, Any] = {
        "plan_name": name,
        "plan_version": 1,
        "plan_hash": PLAN.hash,
        "plan_text": PLAN.text,
        "period_start": period * DAY_S,
        "period_s": DAY_S,
        "report": bytes([2, period % 256]) * 10,
        "micro_epsilon": micro,
        "sealed_at": now,
        "not_before": now,
        "expires_at": now + 8 * DAY_S,
        "opened_at": now - 10,
        "min_cohort": 0,
        "plan_limits": NO_LIMITS,
        "seal_id": os.urandom(8),
        "sealed_by": b"process1",
        "life": None,
    }
    return SealedReport(**(fields | changes))


def lease(owner: bytes = b"a", pid: int | None = None, until: float = NOW + 60) -> Lease:
    return Lease(owner, os.getpid() if pid is None else pid, "here", until)


def due(store: DeviceStore, now: float = NOW) -> list[spool.SpoolEntry]:
    entries = store.begin_run(lease(), now, everything=True, alive=lambda pid: True)
    assert entries is not None
    return entries


def total(store: DeviceStore) -> int:
    return store.spent(PLAN.name, NOW)[1].lifetime_micro


def test_charge_and_spool_are_one_transaction(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    assert store.seal(sealed(1), NO_LIMITS) is None
    assert (total(store), store.waiting(), store.counters()) == (MICRO, 1, {"sealed": 1})
    assert due(store)[0].report == sealed(1).report


@pytest.mark.parametrize("place", ["write_mirror", "charge", "insert"])
def test_a_crash_while_sealing_leaves_neither_charge_nor_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whatever fails, before or after the mirror was written ahead, the next process starts from a sound ledger."""
    store = DeviceStore(str(tmp_path / "d"))
    assert store.seal(sealed(1), NO_LIMITS) is None
    module: Any = {"write_mirror": storage, "charge": storage.ledger, "insert": storage.spool}[place]
    real: Callable[..., Any] = getattr(module, place)

    def crash(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, place, crash)
        with pytest.raises(KeyboardInterrupt):
            store.seal(sealed(2), NO_LIMITS)
    mirror = read_mirror(store.folder)
    assert mirror is not None
    assert mirror.pending_micro == 2 * MICRO, "the mirror was written before the charge"
    again = DeviceStore(str(tmp_path / "d"))
    assert (total(again), again.waiting(), again.damage()) == (MICRO, 1, None)
    assert again.seal(sealed(2), NO_LIMITS) is None, "the period is still free"


def test_the_mirror_is_ahead_of_the_charge_and_settled_after_it(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    seed = store.identity()
    for period in (1, 2, 3):
        store.seal(sealed(period), NO_LIMITS)
        mirror = read_mirror(store.folder)
        assert mirror is not None
        assert (mirror.seed, mirror.total_micro, mirror.pending_micro) == (seed, period * MICRO, None)
        assert seed.hex() not in repr(mirror)


# --- damage --------------------------------------------------------------------------------------------


def lose(folder: Path) -> None:
    (folder / DATABASE_NAME).unlink()


def scramble(folder: Path) -> None:
    (folder / DATABASE_NAME).write_bytes(os.urandom(8192))


def truncate(folder: Path) -> None:
    (folder / DATABASE_NAME).write_bytes(b"")


def break_pages(folder: Path) -> None:
    raw = bytearray((folder / DATABASE_NAME).read_bytes())
    raw[4096:] = bytes(255 for _ in raw[4096:])
    (folder / DATABASE_NAME).write_bytes(bytes(raw))


@pytest.mark.parametrize("harm", [lose, scramble, truncate, break_pages])
def test_a_lost_ledger_counts_as_used_up_until_it_is_reset(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    identity = store.identity()[0]
    for period in range(3):
        store.seal(sealed(period), NO_LIMITS)
    harm(folder)
    store = DeviceStore(str(folder))
    assert store.identity()[0] == identity, "the mirror kept the identity"
    assert store.damage() is not None
    assert store.seal(sealed(7), NO_LIMITS) is RefusalReason.LEDGER_DAMAGED
    assert store.waiting() == 0
    assert store.reset_ledger(NOW) == 3 * MICRO
    assert store.damage() is None
    spent = store.spent(PLAN.name, NOW)[0]
    assert (spent.lifetime_micro, spent.rolling_24h_micro) == (3 * MICRO, 3 * MICRO)
    assert store.seal(sealed(7), Limits(lifetime=4 * MICRO)) is None
    assert store.seal(sealed(8), Limits(lifetime=4 * MICRO)) is RefusalReason.BUDGET_LIFETIME


def test_damage_while_it_runs_is_put_aside_and_counts_as_used_up(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    store.seal(sealed(1), NO_LIMITS)
    scramble(folder)
    with pytest.raises(StoreUnavailableError):
        store.seal(sealed(2), NO_LIMITS)
    assert (folder / DAMAGED_NAME).exists()
    assert store.seal(sealed(2), NO_LIMITS) is RefusalReason.LEDGER_DAMAGED


def test_an_older_copy_of_the_ledger_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    store.seal(sealed(1), NO_LIMITS)
    backup = (folder / DATABASE_NAME).read_bytes()
    store.seal(sealed(2), NO_LIMITS)
    (folder / DATABASE_NAME).write_bytes(backup)
    assert store.seal(sealed(3), NO_LIMITS) is RefusalReason.LEDGER_DAMAGED, "seen without reopening"
    store = DeviceStore(str(folder))
    assert store.begin_run(lease(), NOW, everything=True, alive=lambda pid: True) == [], "nothing is sent either"
    assert store.reset_ledger(NOW) == 2 * MICRO
    assert [entry.resent for entry in due(store)] == [True], "it may have left in the life that was rolled back"


def test_a_restored_folder_is_caught_by_the_collectors_total(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(1), NO_LIMITS)
    assert store.hand_over(due(store)[0].key, resent=False)
    assert store.note_collector_total(MICRO)
    assert not store.note_collector_total(5 * MICRO)
    assert store.seal(sealed(2), NO_LIMITS) is RefusalReason.LEDGER_DAMAGED
    assert not DeviceStore(str(tmp_path / "d")).note_collector_total(0), "once is enough"
    assert store.reset_ledger(NOW) == 5 * MICRO
    assert not store.note_collector_total(2**64 - 1), "a collector's nonsense is cut, not overflowing"


def test_what_has_not_left_hides_no_forgotten_charge(tmp_path: Path) -> None:
    """One report was counted that the restored ledger does not know; as much was charged here since."""
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(2), NO_LIMITS)
    assert store.note_collector_total(0)
    assert not store.note_collector_total(MICRO)
    assert store.reset_ledger(NOW) == 2 * MICRO, "the forgotten one, and the one that waits"
    assert store.note_collector_total(2 * MICRO), "now it may leave"


def send_all(store: DeviceStore) -> None:
    """Each that waits leaves, and is counted."""
    for entry in due(store):
        assert store.hand_over(entry.key, resent=False)
        store.finish(entry.key, "counted", NOW)


def test_charges_of_an_earlier_identity_hide_no_forgotten_charge(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    assert [store.seal(sealed(period), NO_LIMITS) for period in range(5)] == [None] * 5
    send_all(store)
    store.seal(sealed(5), NO_LIMITS)
    store.opt_out(NOW)  # it had not left
    store.opt_in()
    backup = shutil.copytree(tmp_path / "d", tmp_path / "backup")
    assert [store.seal(sealed(period), NO_LIMITS) for period in (6, 7, 8)] == [None] * 3
    send_all(store)
    assert store.note_collector_total(3 * MICRO), "what the collector has of the one who reports now"
    left = store.identity()
    store.opt_out(NOW)
    store.opt_in()
    assert store.note_collector_total(3 * MICRO, left), "an answer that was on its way"
    assert store.note_collector_total(0, store.identity())
    assert total(store) == 9 * MICRO, "the device's own limits go on"
    assert not store.note_collector_total(1)
    for booked in (1, 3 * MICRO, 5 * MICRO):
        shutil.rmtree(tmp_path / "d")
        shutil.copytree(backup, tmp_path / "d")
        restored = DeviceStore(str(tmp_path / "d"))
        assert restored.note_collector_total(0)
        assert not restored.note_collector_total(booked)
        assert restored.reset_ledger(NOW) == 6 * MICRO + booked
        assert restored.note_collector_total(booked), "and it goes on"


@pytest.mark.parametrize("reset", [False, True])
def test_what_was_known_of_a_damaged_ledger_is_the_earlier_identitys(tmp_path: Path, reset: bool) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    assert not store.note_collector_total(5 * MICRO)
    if reset:
        store.reset_ledger(NOW)
    store.opt_out(NOW)
    store.opt_in()
    assert store.reset_ledger(NOW) == 5 * MICRO
    assert store.note_collector_total(0)
    assert not store.note_collector_total(1)
    assert store.reset_ledger(NOW) == 5 * MICRO + 1


def test_what_expired_unsent_is_not_the_collectors_either(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(1), NO_LIMITS)
    store.give_up(due(store)[0].key, RefusalReason.EXPIRED, NOW)
    assert store.note_collector_total(0)
    assert not store.note_collector_total(MICRO)


def test_the_mirror_alone_may_be_lost_or_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    store.seal(sealed(1), NO_LIMITS)
    identity = store.identity()[0]
    for harm in (b"{", b"", b'{"seed": "00", "total_micro_epsilon": -1, "pending_micro_epsilon": null}', None):
        (folder / MIRROR_NAME).unlink() if harm is None else (folder / MIRROR_NAME).write_bytes(harm)
        again = DeviceStore(str(folder))
        assert (again.identity()[0], again.damage()) == (identity, None)
        mirror = read_mirror(str(folder))
        assert mirror is not None
        assert mirror.total_micro == MICRO


def test_both_files_unreadable_is_a_new_identity_with_nothing_to_spend(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    identity = DeviceStore(str(folder)).identity()[0]
    (folder / MIRROR_NAME).write_bytes(b"?")
    scramble(folder)
    store = DeviceStore(str(folder))
    assert store.identity()[0] != identity
    assert store.seal(sealed(1), NO_LIMITS) is RefusalReason.LEDGER_DAMAGED


# --- files ---------------------------------------------------------------------------------------------


def test_modes_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = DeviceStore(str(tmp_path / "a" / "b"))
        store.seal(sealed(1), NO_LIMITS)
    finally:
        os.umask(before)
    folder = tmp_path / "a" / "b"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        DATABASE_NAME: 0o600,
        MIRROR_NAME: 0o600,
    }


@pytest.mark.parametrize("name", [DATABASE_NAME, MIRROR_NAME, DATABASE_NAME + "-journal"])
def test_a_link_inside_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    # case H03
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(outside)
    with pytest.raises(StorageError):
        DeviceStore(str(folder)).seal(sealed(1), NO_LIMITS)
    assert outside.read_bytes() == b"precious"


def test_names_from_the_plan_never_reach_the_file_system(tmp_path: Path) -> None:
    # case H03
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    names = ["../escape", "..\\escape", "a/b", "a\0b", ".", "..", "-rf", "CON", "x" * 300, "%2e%2e%2fescape"]
    for period, name in enumerate(names):
        assert store.seal(sealed(period, name=name), NO_LIMITS) is None
    assert {path.name for path in folder.iterdir()} == {DATABASE_NAME, MIRROR_NAME}
    assert {path.name for path in tmp_path.iterdir()} == {"d"}


def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o777)
    with pytest.raises(StorageError, match="everybody may write"):
        DeviceStore(str(tmp_path / "d"))


def test_a_newer_schema_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    path = Path(store.path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    with pytest.raises(StorageError, match="newer version"):
        DeviceStore(str(tmp_path / "d"))
    with pytest.raises(StorageError, match="newer version"):
        store.seal(sealed(1), NO_LIMITS)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_somebody_elses_database_is_not_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / DATABASE_NAME) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    with pytest.raises(StorageError, match="not a store of this package"):
        DeviceStore(str(folder))


def test_a_locked_store_is_unavailable_not_broken(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"), busy_timeout_s=0.05)
    db = sqlite3.connect(store.path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        store.seal(sealed(1), NO_LIMITS)
    db.execute("ROLLBACK")
    db.close()
    assert store.seal(sealed(1), NO_LIMITS) is None


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "IMMEDIATE", "reader"])
def test_a_short_lock_from_outside_is_waited_for(tmp_path: Path, kind: str) -> None:
    store = DeviceStore(str(tmp_path / "d"), busy_timeout_s=60)
    db = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    if kind == "reader":
        db.execute("BEGIN")
        db.execute("SELECT * FROM meta").fetchall()
    else:
        db.execute(f"BEGIN {kind}")
    release = threading.Timer(0.3, lambda: db.execute("ROLLBACK"))  # longer than SQLite itself waits here
    release.start()
    assert store.seal(sealed(1), NO_LIMITS) is None
    assert release.finished.is_set(), "it was waited for"
    release.join()
    db.close()


def test_a_full_disk_seals_nothing_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # case F01, played with SQLite's own page limit; the mirror's half with the error of a full disk
    store = DeviceStore(str(tmp_path / "d"))
    for period in range(3):
        assert store.seal(sealed(period), NO_LIMITS) is None
    real = store_base.transaction

    class Full:
        """A connection limited to the pages that it has."""

        def __init__(self, path: str, busy_timeout_s: float) -> None:
            self._context = real(path, busy_timeout_s)

        def __enter__(self) -> sqlite3.Connection:
            db = self._context.__enter__()
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {pages}")
            return db

        def __exit__(self, *exc: Any) -> bool | None:
            return self._context.__exit__(*exc)

    with monkeypatch.context() as patch:
        patch.setattr(store_base, "transaction", Full)
        for attempt in range(20):
            with pytest.raises(StoreUnavailableError, match="disk is full"):
                store.seal(sealed(10 + attempt, report=bytes(50_000)), NO_LIMITS)
    assert (total(store), store.waiting(), store.damage()) == (3 * MICRO, 3, None)
    assert DeviceStore(str(tmp_path / "d")).damage() is None, "a charge that never committed is no damage"


# --- one period, one report ----------------------------------------------------------------------------


def test_a_period_is_sealed_once_over_versions_and_processes(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    first = sealed(1)
    assert store.seal(first, NO_LIMITS) is None
    assert store.seal(first, NO_LIMITS) is None, "the same sealing, its commit was unclear: no second charge"
    assert store.seal(sealed(1, plan_hash=bytes(32)), NO_LIMITS) is RefusalReason.PERIOD_SEALED
    other = sealed(1, sealed_by=b"process2", opened_at=NOW - 5)
    assert store.seal(other, NO_LIMITS) is RefusalReason.OTHER_PROCESS
    later = sealed(1, sealed_by=b"process3", opened_at=NOW + 5)
    assert store.seal(later, NO_LIMITS) is RefusalReason.PERIOD_SEALED, "it was sealed before this process began"
    assert (total(store), store.waiting()) == (MICRO, 1)


def test_two_connections_that_race_for_one_period_make_one_row(tmp_path: Path) -> None:
    stores = [DeviceStore(str(tmp_path / "d")) for _ in range(8)]
    barrier = threading.Barrier(len(stores))
    answers: list[RefusalReason | None] = []

    def race(store: DeviceStore, number: int) -> None:
        barrier.wait()
        answers.append(store.seal(sealed(1, sealed_by=bytes([number])), NO_LIMITS))

    threads = [threading.Thread(target=race, args=(store, n)) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == [None] + [RefusalReason.OTHER_PROCESS] * 7
    assert (total(stores[0]), stores[0].waiting()) == (MICRO, 1)


def _spend(folder: str, number: int, barrier: Any, answers: Any) -> None:
    store = DeviceStore(folder, busy_timeout_s=30)
    barrier.wait()
    for attempt in range(5):
        report = sealed(number * 5 + attempt, 100_000, plan_limits=Limits(lifetime=MICRO))
        answers.put(store.seal(report, NO_LIMITS))


def test_processes_that_share_a_ledger_never_overspend(tmp_path: Path) -> None:
    # case C03
    folder = str(tmp_path / "d")
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(20), context.Queue()
    processes = [context.Process(target=_spend, args=(folder, n, barrier, answers)) for n in range(20)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in range(100)]
    for process in processes:
        process.join()
    assert found.count(None) == 10
    assert found.count(RefusalReason.BUDGET_LIFETIME) == 90
    store = DeviceStore(folder)
    assert (total(store), store.waiting(), store.damage()) == (MICRO, 10, None)


# --- budgets -------------------------------------------------------------------------------------------


def test_limits_of_the_plan_count_its_name_and_those_of_the_host_count_all(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    plan_limits = Limits(lifetime=2 * MICRO)
    host = Limits(lifetime=3 * MICRO)
    answers = [
        store.seal(sealed(period, name=name, plan_limits=plan_limits), host)
        for period, name in enumerate(["a", "a", "a", "b", "b"])
    ]
    assert answers == [None, None, RefusalReason.BUDGET_LIFETIME, None, RefusalReason.BUDGET_LIFETIME]
    assert store.spent("a", NOW)[0].lifetime_micro == 2 * MICRO
    assert total(store) == 3 * MICRO


def test_a_later_version_lowers_a_devices_limits_and_never_raises_them(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    versions = [Limits(lifetime=2 * MICRO), Limits(lifetime=9 * MICRO), Limits(rolling_24h=MICRO), Limits()]
    answers = [store.seal(sealed(period, plan_limits=limits), NO_LIMITS) for period, limits in enumerate(versions)]
    assert answers == [None, None, RefusalReason.BUDGET_24H, RefusalReason.BUDGET_24H]
    assert store.plan_limits(PLAN.name, Limits()) == Limits(rolling_24h=MICRO, lifetime=2 * MICRO)
    assert store.plan_limits("another", Limits(lifetime=7)) == Limits(lifetime=7)


def test_a_version_with_another_period_is_refused(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    assert store.seal(sealed(1), NO_LIMITS) is None
    assert store.seal(sealed(2, period_s=3600), NO_LIMITS) is RefusalReason.PLAN_PERIOD_CHANGED
    assert total(store) == MICRO


def test_two_attempts_that_overlap_hand_a_fresh_report_over_once(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(1), NO_LIMITS)
    (entry,) = store.begin_run(lease(b"a"), NOW, everything=True, alive=lambda pid: True) or []
    assert store.hand_over(entry.key, resent=entry.resent)
    assert not store.hand_over(entry.key, resent=entry.resent), "the second advert called it fresh too"
    assert store.hand_over(entry.key, resent=True)


def test_the_rolling_window_slides_and_a_clock_set_back_renews_nothing(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    limits = Limits(rolling_24h=MICRO)
    assert store.seal(sealed(1, plan_limits=limits), NO_LIMITS) is None
    steps = [
        (NOW + DAY_S - 1, RefusalReason.BUDGET_24H),
        (NOW - 40 * DAY_S, RefusalReason.BUDGET_24H),
        (NOW + DAY_S, None),
        (NOW - 40 * DAY_S, RefusalReason.BUDGET_24H),
        (NOW + 2 * DAY_S - 1, RefusalReason.BUDGET_24H),
        (NOW + 2 * DAY_S, None),
    ]
    for period, (now, expected) in enumerate(steps, start=2):
        assert store.seal(sealed(period, now=now, plan_limits=limits), NO_LIMITS) is expected, period


def test_a_charge_made_while_the_clock_was_set_back_is_booked_at_the_latest_time(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    limits = Limits(rolling_24h=2 * MICRO)
    answers = [
        store.seal(sealed(period, now=now, plan_limits=limits), NO_LIMITS)
        for period, now in enumerate([NOW, NOW - 40 * DAY_S, NOW - 40 * DAY_S])
    ]
    assert answers == [None, None, RefusalReason.BUDGET_24H]


@pytest.mark.parametrize(
    ("budget", "epsilon", "accepted"), [(300_000, 100_000, 3), (MICRO, 100_000, 10), (MICRO, 333_333, 3)]
)
def test_decimal_amounts_fill_a_budget_exactly(tmp_path: Path, budget: int, epsilon: int, accepted: int) -> None:
    # case C04
    store = DeviceStore(str(tmp_path / "d"))
    answers = [
        store.seal(sealed(period, epsilon, plan_limits=Limits(lifetime=budget)), NO_LIMITS)
        for period in range(accepted + 2)
    ]
    assert answers == [None] * accepted + [RefusalReason.BUDGET_LIFETIME] * 2


# --- the spool -----------------------------------------------------------------------------------------


def test_the_same_bytes_come_out_on_every_attempt_and_resent_is_remembered(tmp_path: Path) -> None:
    # case C01
    store = DeviceStore(str(tmp_path / "d"))
    report = os.urandom(100)
    store.seal(sealed(1, report=report), NO_LIMITS)
    seen = []
    for _ in range(3):
        entry = due(DeviceStore(str(tmp_path / "d")))[0]
        seen.append((entry.report, entry.resent))
        assert store.hand_over(entry.key, resent=entry.resent)
        store.postpone({entry.key: NOW}, "timeout", failed=True)
    assert seen == [(report, False), (report, True), (report, True)]
    store.finish(entry.key, "counted", NOW, round_id="r", contributors=5, roster_size=6)
    assert not store.hand_over(entry.key, resent=True), "what is done with cannot be handed over again"
    (logged,) = store.history()
    assert (logged.outcome, logged.resent, logged.contributors, logged.micro_epsilon) == ("counted", True, 5, MICRO)
    assert store.counters() == {"counted": 1, "sealed": 1, "timeout": 3}
    assert report not in Path(store.path).read_bytes() or store.waiting() == 0
    assert total(store) == MICRO, "attempts cost nothing, and nothing is refunded"


def test_an_old_report_expires_and_stays_charged(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(1, expires_at=NOW + 5), NO_LIMITS)
    store.seal(sealed(2, expires_at=NOW + 50), NO_LIMITS)
    assert [entry.period_start for entry in due(store, NOW + 5)] == [2 * DAY_S]
    assert store.counters()["expired"] == 1
    assert [entry.outcome for entry in store.history()] == ["expired"]
    assert total(store) == 2 * MICRO


def test_the_spool_is_capped_and_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_REPORTS", 3)
    store = DeviceStore(str(tmp_path / "d"))
    for period in (3, 1, 2, 5, 4):
        store.seal(sealed(period), NO_LIMITS)
    assert [entry.period_start // DAY_S for entry in due(store)] == [3, 4, 5]
    assert store.counters()["spool_full"] == 2
    monkeypatch.setattr(spool, "MAX_BYTES", 250)
    store.seal(sealed(6, report=bytes(200)), NO_LIMITS)
    assert [entry.period_start // DAY_S for entry in due(store)] == [4, 5, 6], "20 + 20 + 200 bytes"
    assert store.seal(sealed(7, report=bytes(251)), NO_LIMITS) is RefusalReason.TOO_LARGE
    assert total(store) == 6 * MICRO


def test_one_living_process_at_a_time_works_on_the_spool(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    store.seal(sealed(1), NO_LIMITS)

    def begin(owner: bytes, *, now: float = NOW, alive: bool = True) -> bool:
        until = now + store_spool.LEASE_S
        entries = store.begin_run(lease(owner, until=until), now, everything=True, alive=lambda pid: alive)
        return entries is not None

    assert begin(b"a")
    assert begin(b"a"), "its own lease"
    assert not begin(b"b")
    assert begin(b"b", alive=False), "the holder is dead"
    assert not begin(b"c")
    assert begin(b"c", now=NOW + store_spool.LEASE_S), "the lease has ended"
    assert not begin(b"d", now=NOW), "a clock set back a little does not break a living holder's lease"
    assert begin(b"d", now=NOW - 1), "far longer than any lease: the clock was set back"
    store.end_run(b"x")
    assert not begin(b"e", now=NOW - 1)
    store.end_run(b"d")
    assert begin(b"e", now=NOW - 1)


def test_not_before_and_backoff_are_on_disk(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    for period in (1, 2):
        store.seal(sealed(period), NO_LIMITS)
    key = (PLAN.name, DAY_S)
    store.postpone({key: NOW + 100}, "rpc_unavailable", failed=True, everything=True)
    again = DeviceStore(str(tmp_path / "d"))
    assert again.next_due() == NOW + 100
    assert again.begin_run(lease(), NOW + 99, everything=False, alive=lambda pid: True) == []
    assert [entry.attempts for entry in due(again)] == [1, 0]
    again.postpone({key: NOW + 200}, "come_back", failed=False)
    assert due(again)[0].attempts == 0


def test_several_reports_are_put_off_together_and_counted_one_by_one(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    for period in (1, 2, 3):
        store.seal(sealed(period), NO_LIMITS)
    first, second, _ = ((PLAN.name, period * DAY_S) for period in (1, 2, 3))
    store.postpone({second: NOW + 9, first: NOW + 5}, "rpc_unavailable", failed=True, cause="why")
    assert [(one.period_start, one.not_before) for one in store.waiting_reports()] == [
        (DAY_S, NOW + 5),
        (2 * DAY_S, NOW + 9),
        (3 * DAY_S, NOW),
    ]
    assert [entry.attempts for entry in due(store)] == [1, 1, 0]
    assert {k: v for k, v in store.counters().items() if k != "sealed"} == {"rpc_unavailable": 2, "why": 2}


def test_opening_makes_no_second_identity(tmp_path: Path) -> None:
    stores = itertools.islice(iter(lambda: DeviceStore(str(tmp_path / "d")), None), 3)
    assert len({store.identity()[0] for store in stores}) == 1
    assert json.loads((tmp_path / "d" / MIRROR_NAME).read_text())["total_micro_epsilon"] == 0
    assert opening.readable_mirror(str(tmp_path / "d"))[0] is not None
