"""Opting out on the device: over processes, crashes, lost files and a disk that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from client_sdk import ConfigurationError, StorageError, TelemetryClient
from client_sdk.device import database, store_base
from client_sdk.device.files import DAMAGED_NAME, DATABASE_NAME, StoreUnavailableError, read_mirror
from client_sdk.device.storage import DeviceStore
from client_sdk.device.store_deletions import DeletionStore
from client_sdk.identity import IdentityKey, deletion_message, verify
from client_sdk.testing import FakeClock, InMemoryCollector
from tests.registrar import certificate_of
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, make_plan

PLAN = make_plan()


def enrolled(folder: Path) -> IdentityKey:
    """A folder whose identity has a certificate, as after its first upload."""
    store = DeviceStore(str(folder))
    identity = IdentityKey(store.identity())
    store.keep_certificate(certificate_of(identity, NOW), "enrolled", NOW)
    return identity


def test_the_request_is_signed_by_the_identity_that_goes(tmp_path: Path) -> None:
    identity, store = enrolled(tmp_path / "d"), DeviceStore(str(tmp_path / "d"))
    store.opt_out(NOW)
    (pending,) = store.pending_deletions(NOW, everything=False)
    request = pending.request
    assert request.identity_key == identity.public_key
    assert request.certificate == certificate_of(identity, NOW)
    assert request.requested_at == NOW
    assert verify(request.identity_key, request.signature, deletion_message(request.identity_key, int(NOW)))
    assert store.identity() != identity.seed
    assert store.certificate() is None
    assert store.damage() is None
    store.opt_out(NOW + 5)
    assert len(store.pending_deletions(NOW + 5, everything=True)) == 1, "to opt out twice is to opt out once"
    assert store.life() == 1


def test_each_life_has_its_own_request(tmp_path: Path) -> None:
    first, store = enrolled(tmp_path / "d"), DeviceStore(str(tmp_path / "d"))
    store.opt_out(NOW)
    store.opt_in()
    second = enrolled(tmp_path / "d")
    store.opt_out(NOW + 1)
    requests = [pending.request.identity_key for pending in store.pending_deletions(NOW + 1, everything=True)]
    assert requests == [first.public_key, second.public_key]
    store.postpone_deletion(first.public_key, NOW + 60, "deletion_rpc_unavailable")
    assert len(store.pending_deletions(NOW + 1, everything=False)) == 1
    assert store.next_deletion() == NOW + 1
    store.deletion_acknowledged(second.public_key)
    store.deletion_acknowledged(second.public_key)
    assert store.next_deletion() == NOW + 60
    assert store.counters()["deletion_acknowledged"] == 1


def test_a_crash_before_the_mirror_is_written_leaves_one_identity_and_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, store = enrolled(tmp_path / "d"), DeviceStore(str(tmp_path / "d"))

    def die(_self: DeletionStore) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(store_base.StoreBase, "_settle_mirror", die)
        store.opt_out(NOW)
    mirror = read_mirror(str(tmp_path / "d"))
    assert mirror is not None
    assert mirror.seed == identity.seed, "the case that this is about"
    again = DeviceStore(str(tmp_path / "d"))
    mirror = read_mirror(str(tmp_path / "d"))
    assert mirror is not None
    assert (again.damage(), again.opted_out(), mirror.seed) == (None, True, again.identity())
    assert again.identity() != identity.seed


@pytest.mark.parametrize("reset", [False, True], ids=["damaged", "reset"])
def test_a_lost_ledger_does_not_keep_the_request_back(tmp_path: Path, reset: bool) -> None:
    """The new database knows the identity from the mirror, and nothing of its certificate."""
    client = make_client(tmp_path / "d", PLAN)
    identity = enrolled(tmp_path / "d")
    client.flush(seal=True)
    client.close()
    (tmp_path / "d" / DATABASE_NAME).unlink()
    store = DeviceStore(str(tmp_path / "d"))
    assert (store.identity(), store.certificate()) == (identity.seed, None)
    if reset:
        store.reset_ledger(NOW)
        assert store.damage() is None
    store.opt_out(NOW)
    (pending,) = store.pending_deletions(NOW, everything=False)
    request = pending.request
    assert (request.identity_key, request.certificate) == (identity.public_key, b"")
    assert verify(request.identity_key, request.signature, deletion_message(request.identity_key, int(NOW)))


def test_a_lost_ledger_does_not_record_again(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", PLAN)
    client.opt_out()
    client.close()
    (tmp_path / "d" / DATABASE_NAME).unlink()
    again = make_client(tmp_path / "d", PLAN)
    assert again.opted_out
    again.reset_ledger()
    again.record("cold_start_ms", 1)
    again.flush(seal=True)
    assert again.counters() == {"opted_out": 1}
    again.close()


def test_nothing_of_before_is_left_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, key = database._connect, bytes(range(32))

    def careless(path: str) -> sqlite3.Connection:
        """As an SQLite that was built to leave deleted bytes where they are."""
        connection = real(path)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(database, "_connect", careless)
    client = make_client(tmp_path / "d", PLAN, seal_key=key)
    identity = enrolled(tmp_path / "d")
    client.flush(seal=True)
    report = client.preview().waiting[0].report
    client.close()
    later = make_client(tmp_path / "d", PLAN, seal_key=key, clock=Clock(NOW + DAY_S))
    later.record("cold_start_ms", 4242)
    later.close()
    (tmp_path / "d" / DAMAGED_NAME).write_bytes(identity.seed)
    assert has(tmp_path / "d", identity.seed)
    assert has(tmp_path / "d", report)
    last = make_client(tmp_path / "d", PLAN, seal_key=key, clock=Clock(NOW + DAY_S))
    last.close()
    with sqlite3.connect(tmp_path / "d" / DATABASE_NAME) as db:
        (kept,) = db.execute("SELECT sealed FROM open_periods").fetchone()
    db.close()
    assert has(tmp_path / "d", kept)
    client = make_client(tmp_path / "d", PLAN, consent=False)
    client.opt_out()
    for gone in (identity.seed, report, kept):
        assert not has(tmp_path / "d", gone)
    client.close()


def has(folder: Path, secret: bytes) -> bool:
    return any(secret in data or secret.hex().encode() in data for data in map(Path.read_bytes, folder.iterdir()))


def test_another_process_neither_seals_nor_keeps_what_it_read_before(tmp_path: Path) -> None:
    one, two = (make_client(tmp_path / "d", PLAN) for _ in range(2))
    three = make_client(tmp_path / "d", PLAN, seal_key=bytes(32))
    for client in (two, three):
        client.record("cold_start_ms", 1)
    one.opt_out()
    one.opt_in()
    two.flush(seal=True)
    three.close()  # would keep its open period for the next process
    assert two.counters()["opted_out"] == 2, "one of its own, one that the third has left in the store"
    assert one.spent().lifetime == 0
    assert DeviceStore(str(tmp_path / "d")).take_open_periods(PLAN.name) == []
    two.record("cold_start_ms", 1)
    assert two.counters()["opted_out"] == 3, "it has stopped"
    one.record("cold_start_ms", 1)
    one.flush(seal=True)
    assert one.spent().lifetime == 2
    for client in (one, two):
        client.close()


def test_a_disk_that_does_not_answer_is_said_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(tmp_path / "d", PLAN)
    client.record("cold_start_ms", 1)

    def full(*_: object) -> None:
        raise StoreUnavailableError("device.db: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store_base, "transaction", full)
        with pytest.raises(StorageError, match="disk is full"):
            client.opt_out()
    client.record("cold_start_ms", 2)
    client.flush(seal=True)
    assert client.spent().lifetime == 0
    assert not DeviceStore(str(tmp_path / "d")).opted_out(), "which is why it was raised"
    client.opt_out()
    assert DeviceStore(str(tmp_path / "d")).opted_out()
    client.close()
    with pytest.raises(ConfigurationError, match="closed"):
        client.opt_out()
    with pytest.raises(ConfigurationError, match="closed"):
        client.opt_in()


def test_consent_is_no_way_back(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", PLAN)
    client.opt_out()
    client.consent(False)
    client.consent(True)
    client.record("cold_start_ms", 1)
    assert client.counters() == {"opted_out": 1}
    assert client.opted_out
    with pytest.raises(ConfigurationError, match="enrolment_token"):
        client.opt_in(enrolment_token="")
    assert client.opted_out
    client.opt_in()
    client.record("cold_start_ms", 1)
    assert not client.opted_out
    assert client.counters() == {"opted_out": 1}
    client.close()


def test_in_memory_an_app_can_test_both_ways(tmp_path: Path) -> None:
    clock = FakeClock()
    collector = InMemoryCollector(PLAN, clock=clock)
    client = collector.client(tmp_path / "d")
    old = client.device_id
    assert old is not None
    assert collector.deliver(client).counted == 1
    client.opt_out()
    assert client.device_id is None, "nobody, until the user comes back"
    asyncio.run(client.upload())
    assert collector.forgotten == {old}
    assert client.device_id is None
    clock.advance(DAY_S)
    client.opt_in()
    assert collector.deliver(client).counted == 1
    assert [report.device_id for report in collector.reports] == [old, client.device_id]
    assert client.device_id not in (None, old)
    client.close()


def test_disabled_by_the_environment_it_is_written_down_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrolled(tmp_path / "d")
    monkeypatch.setenv("LDP_TELEMETRY_DISABLED", "1")
    client = make_client(tmp_path / "d", PLAN, background=True)
    client.opt_out()
    client.opt_in(enrolment_token="t")
    assert client.opted_out
    assert client._engine._uploader is None
    client.close()
    store = DeviceStore(str(tmp_path / "d"))
    assert store.opted_out()
    assert store.next_deletion() == NOW


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_knows_that_the_user_has_left(tmp_path: Path) -> None:
    client: TelemetryClient = make_client(tmp_path / "d", PLAN)
    client.opt_out()
    child = os.fork()
    if child == 0:
        client.record("cold_start_ms", 1)
        os._exit(0 if client.opted_out and client.counters() == {"opted_out": 1} else 1)
    assert os.waitpid(child, 0)[1] == 0
    client.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_childs_readings_go_into_no_report_of_the_next_life(tmp_path: Path) -> None:
    client: TelemetryClient = make_client(tmp_path / "d", PLAN)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        client.record("cold_start_ms", 1)
        os.read(told, 1)
        client.flush(seal=True)
        os._exit(0 if client.counters().get("opted_out") == 1 else 1)
    client.opt_out()
    client.opt_in()
    os.write(tell, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert client.spent().lifetime == 0
    client.close()
