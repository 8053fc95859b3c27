"""The exported ledger: every charge once, what became of it, and nothing of what was reported."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.accounting.budget import Limits
from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.device import database
from client_sdk.device.files import DATABASE_NAME, MIRROR_NAME
from client_sdk.device.records import SealedReport
from client_sdk.device.spool import Lease
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import RefusalReason, StorageError
from client_sdk.identity import IdentityKey
from client_sdk.report import report_digest
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, make_plan, undo_migrations

PLAN, NEXT = make_plan(), make_plan(version=2)
MICRO = 1_000_000


def sealed(period: int, *, at: float = NOW, plan: Any = PLAN, **changes: Any) -> SealedReport:
    fields: dict[str, Any] = {
        "plan_name": plan.name, "plan_version": plan.version, "plan_hash": plan.hash, "plan_text": plan.text,
        "period_start": period * DAY_S, "period_s": DAY_S, "report": os.urandom(40), "micro_epsilon": MICRO,
        "sealed_at": at, "not_before": at, "expires_at": at + 8 * DAY_S, "opened_at": at - 10, "min_cohort": 0,
        "plan_limits": Limits(), "seal_id": os.urandom(8), "sealed_by": b"process1", "life": None,
    }  # fmt: skip
    return SealedReport(**(fields | changes))


def opened(folder: Path) -> DeviceStore:
    return DeviceStore(str(folder / "d"))


def seal(store: DeviceStore, *reports: SealedReport) -> None:
    for report in reports:
        assert store.seal(report, Limits()) is None


def export(store: DeviceStore, now: float = NOW) -> Ledger:
    """As it comes back out of the JSON text."""
    return read_ledger(json.loads(json.dumps(store.export_ledger(now))))


def of(period: int, outcome: str, **changes: Any) -> LedgerEntry:
    fields: dict[str, Any] = {
        "plan": PLAN.hash.hex(), "period_start": period * DAY_S, "charged_at": int(NOW), "micro_epsilon": MICRO,
        "outcome": outcome, "left_device": True, "resent": False,
    }  # fmt: skip
    return LedgerEntry(**(fields | changes))


def test_every_charge_stands_there_with_what_became_of_its_report(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, *(sealed(period) for period in range(8)))
    keys = [(PLAN.name, period * DAY_S) for period in range(8)]
    for period in (1, 2, 2, 4, 5, 6, 7, 7):  # handed over, some twice
        assert store.hand_over(keys[period], resent=True)
    store.give_up(keys[3], RefusalReason.EXPIRED, NOW)
    store.give_up(keys[4], RefusalReason.EXPIRED, NOW)
    sizes = {"round_id": "r5", "contributors": 90, "roster_size": 100, "resent_contributors": 4}
    store.finish(keys[5], "counted", NOW, **sizes)  # type: ignore[arg-type]
    store.finish(keys[6], "already_counted", NOW, round_id="r6", contributors=80)
    store.finish(keys[7], "counted", NOW, **(sizes | {"round_id": "r7"}))  # type: ignore[arg-type]
    ledger = export(store)
    assert ledger.entries == (
        of(0, "waiting", left_device=False),
        of(1, "waiting"),
        of(2, "waiting", resent=True),
        of(3, "expired", left_device=False),
        of(4, "expired"),
        of(5, "counted", round="r5", cohort=Cohort(90, 100, 4)),
        of(6, "already_counted", round="r6"),
        of(7, "counted", resent=True, round="r7", cohort=Cohort(90, 100, 4)),
    )
    assert [entry.falls_back for entry in ledger.entries] == [
        None, "failed_but_spent", "failed_but_spent", None, "failed_but_spent", None, "unknown_cohort", "resent"
    ]  # fmt: skip
    assert (ledger.stated.reports, ledger.stated.failed_but_spent) == (8, 3)
    assert ledger.stated.lifetime_micro_epsilon == store.spent(PLAN.name, NOW)[1].lifetime_micro == 8 * MICRO
    assert ledger.device == IdentityKey(store.identity()).device_id
    assert (ledger.source, ledger.as_of, ledger.relation) == ("device", int(NOW), "replace one value")
    assert (ledger.is_whole, ledger.stated) == (True, ledger.counted())


def test_plans_in_the_order_of_their_first_charge(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1), sealed(2, at=NOW + 5.5, plan=NEXT), sealed(3, at=NOW + DAY_S))
    plans = export(store).plans
    assert [(plan.hash, plan.version, plan.first_used_at) for plan in plans] == [
        (PLAN.hash.hex(), 1, int(NOW)), (NEXT.hash.hex(), 2, int(NOW) + 6)
    ]  # fmt: skip
    with sqlite3.connect(store.path) as db:  # as a store of the first version left it: versions were not kept
        db.execute("DELETE FROM plan_versions")
        db.execute("UPDATE plans SET text = 'no plan' WHERE hash = ?", (NEXT.hash,))
    db.close()
    assert [plan.version for plan in export(store).plans] == [1, None]


def test_reading_changes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1), sealed(2))
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    first, second = store.export_ledger(NOW), store.export_ledger(NOW + 7)
    assert first.pop("as_of") + 7 == second.pop("as_of")
    assert json.dumps(first) == json.dumps(second)
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before


def test_nothing_of_a_report_and_nothing_secret_is_in_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    reports = [sealed(1), sealed(2)]
    seal(store, *reports)
    store.finish((PLAN.name, DAY_S), "counted", NOW)
    text = json.dumps(store.export_ledger(NOW))
    for secret in (store.identity(), *(one.report for one in reports), *(one.seal_id for one in reports)):
        assert secret.hex() not in text
    for report in reports:
        assert report_digest(report.report).hex() not in text
    assert json.dumps(PLAN.text)[1:-1] not in text
    entry = json.loads(text)["entries"][0]
    assert set(entry) == {
        "plan", "period_start", "charged_at", "micro_epsilon", "outcome", "left_device", "resent", "delivery", "round",
        "contributors", "roster", "resent_contributors",
    }  # fmt: skip


@pytest.mark.parametrize("charged_at", [0.0, 0.25, 0.999999])
@pytest.mark.parametrize("read_at", [0.0, 0.25, 0.999999])
def test_whole_seconds_never_lose_a_charge_that_the_device_still_counts(
    tmp_path: Path, charged_at: float, read_at: float
) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1, at=NOW + charged_at))
    for seconds in (DAY_S - 3, DAY_S - 1, DAY_S, DAY_S + 1, DAY_S + 3):
        now = NOW + seconds + read_at
        exact, told = store.spent(PLAN.name, now)[1].rolling_24h_micro, export(store, now).stated.windows["24h"]
        assert exact <= told
        if abs(seconds + read_at - charged_at - DAY_S) >= 2:
            assert exact == told, "the window is at most two seconds longer"


def test_a_clock_set_back_renews_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1))
    assert export(store, NOW - 400 * DAY_S).stated.windows["24h"] == MICRO
    assert export(store, -5.5).as_of == 0


def test_what_a_damaged_ledger_lacks_is_carried_and_lies_in_every_window(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1), sealed(2))
    for period in (1, 2):
        assert store.hand_over((PLAN.name, period * DAY_S), resent=False)
    store.note_collector_total(5 * MICRO)
    damaged = export(store)
    assert damaged.damaged == "the collector has booked more than the ledger holds"
    assert (damaged.carried_micro_epsilon, damaged.carried_until, damaged.is_whole) == (3 * MICRO, None, False)
    assert damaged.stated.lifetime_micro_epsilon == damaged.stated.windows["24h"] == 5 * MICRO
    assert {entry.left_device for entry in damaged.entries} == {True}, "nobody knows"
    store.reset_ledger(NOW + 0.5)
    known = export(store, NOW + 2 * DAY_S)
    assert (known.damaged, known.carried_until, known.is_whole) == (None, int(NOW) + 1, False)
    assert known.stated.windows == {"24h": 0, "7d": 5 * MICRO, "30d": 5 * MICRO, "365d": 5 * MICRO}
    assert known.stated.lifetime_micro_epsilon == 5 * MICRO
    store.note_collector_total(6 * MICRO)  # damaged once more, days later
    again = export(store, NOW + 2 * DAY_S)
    assert (again.carried_micro_epsilon, again.carried_until) == (4 * MICRO, None)
    assert again.stated.windows["24h"] == 4 * MICRO


def test_a_store_that_is_lost_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1))
    (tmp_path / "d" / DATABASE_NAME).unlink()
    ledger = export(opened(tmp_path))
    assert (ledger.entries, ledger.plans, ledger.damaged) == ((), (), "ledger lost")
    assert ledger.stated.lifetime_micro_epsilon == MICRO


def test_opting_out_forgets_the_name_and_keeps_the_spending(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seal(store, sealed(1))
    before = export(store)
    store.opt_out(NOW)
    out = export(store)
    assert (before.device is None, out.device) == (False, None)
    assert out.entries == (of(1, "opted_out", left_device=False),)
    store.opt_in()
    back = export(store)
    assert back.device not in (None, before.device)
    assert back.stated == before.stated


def test_a_store_of_the_second_version_comes_along(tmp_path: Path) -> None:
    """What it could not say is told against privacy: the cohort is not known, and the report may have left."""
    store = opened(tmp_path)
    seal(store, sealed(1), sealed(2))
    store.give_up((PLAN.name, DAY_S), RefusalReason.EXPIRED, NOW)
    store.finish((PLAN.name, 2 * DAY_S), "counted", NOW, round_id="r", contributors=9, roster_size=9)
    with sqlite3.connect(store.path, isolation_level=None) as db:
        undo_migrations(db, 2)
    db.close()
    ledger = export(opened(tmp_path))
    assert ledger.entries == (of(1, "expired"), of(2, "counted", round="r"))
    seal(store, sealed(3))
    assert store.hand_over((PLAN.name, 3 * DAY_S), resent=False)
    store.finish((PLAN.name, 3 * DAY_S), "counted", NOW, contributors=9, roster_size=10, resent_contributors=2)
    assert export(store).entries[-1].cohort == Cohort(9, 10, 2)
    assert [entry.resent_contributors for entry in store.history()] == [None, None, 2]


def test_old_and_new_stores_have_the_same_columns(tmp_path: Path) -> None:
    """Rows are written by position."""
    columns = []
    for version in (1, database.SCHEMA_VERSION):
        path = tmp_path / str(version)
        path.touch()
        with sqlite3.connect(path, isolation_level=None) as db:
            database.create_schema(db, str(path))
            if version == 1:
                undo_migrations(db, 1)
                db.row_factory = sqlite3.Row
                database.migrate(db)
            tables = sorted(row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
            columns.append({t: [row[1] for row in db.execute(f"PRAGMA table_info({t})")] for t in tables})
        db.close()
    assert columns[0] == columns[1]


# --- the client --------------------------------------------------------------------------------------------------


# case C04
def test_a_client_exports_what_its_host_can_read_of_its_budget(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", make_plan(epsilon="0.1", lifetime="0.6"), clock=clock)
    for _ in range(5):
        client.record("cold_start_ms", 4321.0625)
        client.flush(seal=True)
        clock.now += DAY_S
    text = json.dumps(client.export_ledger())
    ledger = read_ledger(json.loads(text))
    assert [entry.micro_epsilon for entry in ledger.entries] == [200_000] * 3, "the budget holds three"
    assert ledger.stated.lifetime_micro_epsilon == client.spent().lifetime_micro == 600_000
    assert (ledger.device, ledger.as_of) == (client.device_id, int(clock.now))
    assert "4321" not in text
    assert "e-" not in text
    assert "." not in text, "no amount is a fraction"
    client.close()
    assert json.dumps(client.export_ledger()) == text, "also after close()"


def test_an_export_is_no_recording(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d")
    document = client.export_ledger()
    assert (document["entries"], document["plans"], document["stated"]["reports"]) == ([], [], 0)
    assert client.counters() == {}
    client.close()


def test_a_store_that_cannot_be_read_raises(tmp_path: Path) -> None:
    client: TelemetryClient = make_client(tmp_path / "d")
    client.flush(seal=True)
    with sqlite3.connect(tmp_path / "d" / DATABASE_NAME) as db:
        db.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StorageError, match="newer version"):
        client.export_ledger()
    assert (tmp_path / "d" / MIRROR_NAME).exists()


def test_counted_in_a_life_that_the_folder_does_not_remember(tmp_path: Path) -> None:
    """A folder restored together with its mirror: the collector knows the report, the spool never handed it over."""
    store = opened(tmp_path)
    seal(store, sealed(1))
    store.finish((PLAN.name, DAY_S), "already_counted", NOW, round_id="r", contributors=80)
    (entry,) = export(store).entries
    assert (entry, entry.falls_back) == (of(1, "already_counted", round="r"), "unknown_cohort")


def test_an_overlapping_attempt_is_resent(tmp_path: Path) -> None:
    """The export's words for a report on its way follow what the spool has committed."""
    store = opened(tmp_path)
    seal(store, sealed(1))
    lease = Lease(b"a", os.getpid(), "here", NOW + 60)
    told = []
    for _ in range(3):
        entries = store.begin_run(lease, NOW, everything=True, alive=lambda pid: True)
        assert entries is not None
        told.append((export(store).entries[0].left_device, export(store).entries[0].resent))
        assert store.hand_over(entries[0].key, resent=entries[0].resent)
    assert told == [(False, False), (True, False), (True, True)]
