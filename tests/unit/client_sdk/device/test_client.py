"""What the host holds: recording, periods, budgets, consent, counters; and what must never be seen anywhere."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import ConfigurationError, StorageError, TelemetryClient
from client_sdk.device import period as period_module
from client_sdk.device.storage import DeviceStore
from tests.unit.client_sdk.device.helpers import DAY_S, DEAD, NOW, Clock, make_client, make_plan

PLAN = make_plan()


def reports(client: TelemetryClient) -> list[tuple[str, int]]:
    db = DeviceStore(client._engine.settings.data_dir)
    with db._transaction() as rows:
        return [tuple(row) for row in rows.execute("SELECT plan_name, period_start FROM spool ORDER BY period_start")]


# --- recording -----------------------------------------------------------------------------------------


class Odd:
    def __hash__(self) -> int:
        raise RuntimeError("odd")

    def __float__(self) -> float:
        raise RuntimeError("odd")


def test_record_never_raises_and_counts_by_reason(tmp_path: Path) -> None:
    plan = make_plan(other=False)
    client = make_client(tmp_path / "d", plan)
    odd: Any = Odd()
    refused: list[tuple[Any, Any, str]] = [
        ("cold_start_ms", float("nan"), "not_finite"),
        ("cold_start_ms", float("inf"), "not_finite"),
        ("cold_start_ms", "12", "wrong_type"),
        ("cold_start_ms", None, "wrong_type"),
        ("cold_start_ms", True, "wrong_type"),
        ("cold_start_ms", odd, "wrong_type"),
        ("network", "satellite", "unknown_category"),
        ("network", 3, "wrong_type"),
        ("no_such_metric", 1, "unknown_metric"),
        (None, 1, "unknown_metric"),
        (odd, 1, "wrong_type"),
        ([], 1, "wrong_type"),
    ]
    expected: dict[str, int] = {}
    for name, value, reason in refused:
        client.record(name, value)
        expected[reason] = expected.get(reason, 0) + 1
        assert client.counters() == dict(sorted(expected.items(), key=lambda item: list(expected).index(item[0])))
    client.record("cold_start_ms", 10**400)
    client.record("cold_start_ms", 5)
    client.record("network", "wifi")
    assert client.counters() == expected


def test_record_from_many_threads_loses_nothing(tmp_path: Path) -> None:
    from client_sdk.plan import parse_plan

    text = PLAN.text.replace('kind = "numeric"', 'kind = "numeric"\non_device = "count"')
    client = make_client(tmp_path / "d", parse_plan(text))

    def hammer() -> None:
        for _ in range(2000):
            client.record("cold_start_ms", 1)
            client.record("nobody", 1)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    period = client._engine.recorder._period
    assert period is not None
    assert period.state.values()["cold_start_ms"] == 8000.0
    assert client.counters() == {"unknown_metric": 8000}


def test_a_finaliser_that_records_while_its_thread_records_does_not_deadlock(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d")

    class Reading(float):
        def __float__(self) -> float:
            client.record("network", "wifi")
            return 1.0

    client.record("cold_start_ms", Reading(2))
    assert client.counters() == {}


# --- periods -------------------------------------------------------------------------------------------


def test_a_report_is_made_of_every_period_with_or_without_readings(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    start = PLAN.period_start(NOW)
    client.record("cold_start_ms", 1)
    clock.now += DAY_S
    client.record("cold_start_ms", 2)
    assert reports(client) == [], "record() does no I/O: sealing is the thread's, or the next call's"
    clock.now += DAY_S
    client.flush()
    assert reports(client) == [(PLAN.name, start), (PLAN.name, start + DAY_S)]
    client.close()
    assert reports(client)[2:] == [(PLAN.name, start + 2 * DAY_S)], "nothing was recorded, and silence says nothing"
    assert len({len(entry.report) for entry in _entries(client)}) == 1, "length never depends on values"


def _entries(client: TelemetryClient) -> list[Any]:
    from client_sdk.device.spool import due

    with DeviceStore(client._engine.settings.data_dir)._transaction() as db:
        return due(db, NOW, everything=True)


def test_later_readings_of_a_sealed_period_are_dropped_and_counted(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    client.flush(seal=True)
    client.record("cold_start_ms", 1)
    client.flush(seal=True)
    assert client.counters() == {"sealed": 1, "period_sealed": 1}
    clock.now += DAY_S
    client.record("cold_start_ms", 1)
    client.flush(seal=True)
    assert client.counters() == {"sealed": 2, "period_sealed": 1}
    client.close()
    again = make_client(tmp_path / "d", clock=clock)
    again.record("cold_start_ms", 1)
    again.close()
    assert again.counters() == {"sealed": 2, "period_sealed": 2}, "another process, the same period"


def test_a_report_leaves_at_its_period_end_plus_a_stored_offset(tmp_path: Path) -> None:
    waits = []
    for number in range(8):
        client = make_client(tmp_path / str(number))
        client.flush(seal=True)
        store = DeviceStore(str(tmp_path / str(number)))
        wait = store.next_due()
        assert wait == DeviceStore(str(tmp_path / str(number))).next_due()
        assert wait is not None
        waits.append(wait - PLAN.period_start(NOW) - DAY_S)
    assert all(0 <= wait < PLAN.upload_window_s for wait in waits)
    assert len(set(waits)) == 8
    assert max(period_module.uniform(1.0, lambda n: b"\xff" * n), 0.0) < 1.0


def test_a_clock_set_back_a_little_stays_and_a_lot_starts_over(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    start = PLAN.period_start(NOW)
    clock.now = start + DAY_S
    client.record("cold_start_ms", 1)
    clock.now -= 5
    client.record("cold_start_ms", 2)
    clock.now -= 3 * DAY_S
    client.record("cold_start_ms", 3)
    client.close()
    assert reports(client) == [(PLAN.name, start - 3 * DAY_S), (PLAN.name, start)]
    assert client.counters() == {"clock_set_back": 1, "sealed": 2}


def test_a_period_too_old_to_be_taken_is_not_even_charged(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    client.record("cold_start_ms", 1)
    clock.now += 9 * DAY_S
    client.flush()
    assert client.counters() == {"expired": 1}
    assert client.spent().lifetime_micro == 0


# case F01
def test_what_no_store_took_in_time_is_not_even_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    full = True
    seal = DeviceStore.seal

    def sealed(store: DeviceStore, *arguments: Any) -> Any:
        if full:
            raise StorageError("the disk is full")
        return seal(store, *arguments)

    monkeypatch.setattr(DeviceStore, "seal", sealed)
    days = 9
    for _ in range(days):
        client.record("cold_start_ms", 1)
        clock.now += DAY_S
        client.flush()
    full = False
    client.flush()
    taken = PLAN.max_delay_s // DAY_S
    assert 0 < taken < days, "some are too old by now"
    assert client.counters() == {"storage": days, "expired": days - taken, "sealed": taken}
    assert client.spent().lifetime_micro == taken * PLAN.report_micro_epsilon
    assert len(reports(client)) == taken


# --- budgets -------------------------------------------------------------------------------------------


def test_budgets_are_exact_and_printed_without_exponent(tmp_path: Path) -> None:
    # case C04
    for budget, epsilon, accepted, left in (
        ("0.6", "0.1", 3, "0"),
        ("2.0", "0.1", 10, "0"),
        ("2.0", "0.333333", 3, "0.000002"),
    ):
        folder = tmp_path / f"{budget}-{epsilon}"
        clock = Clock()
        client = make_client(folder, make_plan(epsilon=epsilon, lifetime=budget, rolling_24h="100"), clock=clock)
        for _ in range(accepted + 2):
            client.flush(seal=True)
            clock.now += DAY_S
        assert client.counters() == {"sealed": accepted, "budget_lifetime": 2}
        view = client.spent()
        assert str(view.left_lifetime) == left
        assert view.lifetime == accepted * 2 * Decimal(epsilon)
        assert "E" not in f"{view.lifetime} {view.left_lifetime} {view.report} {view.rolling_24h} {view.left_24h}"


def test_the_host_only_lowers_limits(tmp_path: Path) -> None:
    # case C05
    for number, (limit, reason) in enumerate(
        [
            ({"max_epsilon_report": "1.999999"}, "budget_report"),
            ({"max_epsilon_lifetime": 0}, "budget_lifetime"),
            ({"max_epsilon_24h": "0.000001"}, "budget_24h"),
        ]
    ):
        client = make_client(tmp_path / str(number), **limit)
        client.record("cold_start_ms", 1)
        client.flush(seal=True)
        assert client.counters() == {reason: 1}
        assert client.spent().all_lifetime_micro == 0
    generous = make_client(tmp_path / "g", make_plan(lifetime="2"), max_epsilon_lifetime=1000, clock=Clock())
    generous.flush(seal=True)
    generous._engine.clock.now += DAY_S  # type: ignore[attr-defined]
    generous.flush(seal=True)
    assert generous.counters() == {"sealed": 1, "budget_lifetime": 1}
    assert generous.spent().left_lifetime_micro == 0


# --- consent -------------------------------------------------------------------------------------------


def test_without_consent_nothing_is_recorded_and_nothing_is_written(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", consent=False)
    client.record("cold_start_ms", 1)
    assert client.flush(seal=True)
    client.close()
    client.record("cold_start_ms", 1)
    assert client.counters() == {"no_consent": 1, "closed": 1}
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("answer", ["no", "", 1, 0, None])
def test_only_true_and_false_answer_for_the_user(tmp_path: Path, answer: Any) -> None:
    for given in (False, True):
        client = make_client(tmp_path / f"{given}", consent=given)
        with pytest.raises(ConfigurationError, match="consent: must be True or False"):
            client.consent(answer)
        client.record("cold_start_ms", 1)
        assert client.counters() == ({} if given else {"no_consent": 1}), "nothing has changed"
        client.close()


def test_consent_withdrawn_drops_what_waits_and_keeps_the_charge(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    client.flush(seal=True)
    clock.now += DAY_S
    client.record("cold_start_ms", 1)
    client.consent(False)
    client.record("cold_start_ms", 1)
    assert reports(client) == []
    client.consent(True)
    client.record("cold_start_ms", 1)
    assert client.counters() == {"sealed": 1, "no_consent": 3}, "a reading dropped, one refused, and a report"
    assert client.spent().lifetime_micro == PLAN.report_micro_epsilon
    client.close()
    assert len(reports(client)) == 1
    make_client(tmp_path / "d", clock=clock, consent=False)
    assert reports(client) == [], "withdrawn by the next start"


# --- an open period that outlives the process ----------------------------------------------------------


def test_with_a_seal_key_the_open_period_goes_on_in_the_next_process(tmp_path: Path) -> None:
    from client_sdk.plan import parse_plan

    plan = parse_plan(PLAN.text.replace('kind = "numeric"', 'kind = "numeric"\non_device = "sum"'))
    key, clock = bytes(range(32)), Clock()
    first = make_client(tmp_path / "d", plan, seal_key=key, clock=clock)
    first.record("cold_start_ms", 1357.25)
    first.record("network", "cellular")
    first.close()
    assert reports(first) == [], "it is open still"
    raw = b"".join(path.read_bytes() for path in (tmp_path / "d").iterdir())
    assert b"1357" not in raw
    assert key not in raw
    second = make_client(tmp_path / "d", plan, seal_key=key, clock=clock)
    second.record("cold_start_ms", 1000)
    period = second._engine.recorder._period
    assert period is not None
    assert period.state.values() == {"cold_start_ms": 2357.25, "network": "cellular"}
    second.close()
    clock.now += DAY_S
    third = make_client(tmp_path / "d", plan, seal_key=key, clock=clock)
    third.flush()
    assert reports(third) == [(PLAN.name, PLAN.period_start(NOW))], "it ended while nobody was there"
    third.close()
    other = make_client(tmp_path / "d", plan, seal_key=bytes(32), clock=clock)
    assert other.counters()["kept_period_lost"] == 1


# --- trouble -------------------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_costs_counts_not_reports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import sqlite3

    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    store = client._engine.access.store()
    store.busy_timeout_s = 0.01
    lock = sqlite3.connect(store.path, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.DEBUG, "ldp_telemetry"):
        for _ in range(3):
            client.record("cold_start_ms", 1)
            assert not client.flush(seal=True)
            clock.now += DAY_S
    lock.execute("ROLLBACK")
    lock.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]
    client.close()
    assert len(reports(client)) == 4, "perturbed once, they waited in memory"
    assert client.counters() == {"storage": 3, "sealed": 4}


def test_a_damaged_ledger_is_one_outage_until_it_is_reset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", PLAN, clock=clock)
    with caplog.at_level(logging.DEBUG, "ldp_telemetry"):
        for booked in (10**7, 10**8):
            assert not client._engine.access.store().note_collector_total(booked)
            for _ in range(2):
                client.record("cold_start_ms", 812)
                client.flush(seal=True)
                clock.now += DAY_S
            client.reset_ledger()
    client.close()
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    closed = "ledger: not to be believed; no report is made until reset_ledger()"
    assert said == [("WARNING", closed), ("DEBUG", closed), ("INFO", "ledger: works again")] * 2


def test_one_warning_an_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def many() -> None:
        for _ in range(4):
            await client.upload()

    client = make_client(tmp_path / "d", clock=time.time)
    client.flush(seal=True)
    with caplog.at_level(logging.DEBUG, "ldp_telemetry"):
        asyncio.run(many())
    levels = [record.levelname for record in caplog.records if record.name == "ldp_telemetry"]
    assert levels == ["WARNING", "DEBUG", "DEBUG", "DEBUG"]


def test_the_hosts_hook_decides_when_the_thread_may_send(tmp_path: Path) -> None:
    asked = threading.Event()

    def not_now() -> bool:
        asked.set()
        raise RuntimeError("no radio")

    clock = Clock(NOW)
    client = make_client(tmp_path / "d", background=True, clock=clock, can_upload=not_now)
    client.record("cold_start_ms", 1)
    clock.now += 2 * DAY_S
    client.record("cold_start_ms", 1)
    assert asked.wait(60)
    client.close()
    assert client.counters()["can_upload_failed"] >= 1
    assert not [name for name in client.counters() if name.startswith(("rpc_", "registrar_"))]


def test_upload_needs_a_foreground_client_that_is_open(tmp_path: Path) -> None:
    from client_sdk import ConfigurationError

    background = make_client(tmp_path / "d", background=True)
    with pytest.raises(ConfigurationError, match="background"):
        asyncio.run(background.upload())
    background.close()
    closed = make_client(tmp_path / "d")
    closed.close()
    with pytest.raises(ConfigurationError, match="closed"):
        asyncio.run(closed.upload())


# --- what must never be seen ---------------------------------------------------------------------------


def test_no_reading_token_or_key_is_seen_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    # case H02
    number, unknown, token = 13579.2468, "SENTINEL-OTHER", "SENTINEL-TOKEN"
    plan = make_plan(epsilon="0.01", upper=100_000, categories=("SENTINEL-CATEGORY", "wifi"))
    key = b"SENTINEL-SEAL-KEY-32-BYTES-LONG!"
    shown: list[str] = []
    with caplog.at_level(1):
        logging.getLogger().setLevel(1)
        client = make_client(
            tmp_path / "d", plan, enrolment_token=token, seal_key=key, background=True, clock=time.time
        )
        client.record("cold_start_ms", number)
        client.record("network", unknown)
        client.record("network", "SENTINEL-CATEGORY")
        client.record("cold_start_ms", str(number))
        client.record(str(number), number)
        client.flush(seal=True, timeout_s=0.3)
        engine = client._engine
        entries = _entries(client)
        shown += [
            repr(thing)
            for thing in (
                client,
                engine,
                engine.settings,
                engine.recorder,
                engine.sealer,
                engine.connections.delivery(),
                engine.access.store(),
                entries,
                client.spent(),
                client.history(),
                client.counters(),
                plan,
            )
        ]
        client.close()
        kept = make_client(tmp_path / "k", plan, enrolment_token=token, seal_key=key, clock=time.time)
        kept.record("cold_start_ms", number)
        kept.record("network", unknown)
        kept.close()
    assert entries, "a report was made and could not be delivered"
    out, err = capfd.readouterr()
    seed = engine.access.store().identity()
    texts = [*shown, caplog.text, out, err]
    for text in texts:
        for sentinel in (str(number), unknown, token, "SENTINEL-SEAL", seed.hex()):
            assert sentinel not in text
    files = [path for folder in ("d", "k") for path in (tmp_path / folder).iterdir()]
    assert len(files) >= 4
    for path in files:
        raw = path.read_bytes()
        for sentinel in (str(number), unknown, token, "SENTINEL-SEAL"):
            assert sentinel.encode() not in raw
        assert raw.count(b"SENTINEL-CATEGORY") == raw.count(b'categories = ["SENTINEL-CATEGORY"'), "only in the plan"


def test_noise_does_not_come_from_seedable_generators(tmp_path: Path) -> None:
    # case B02
    import random

    import numpy as np

    runs = []
    for number in range(2):
        random.seed(0)
        np.random.seed(0)  # the global state is what must not matter
        client = make_client(tmp_path / str(number))
        client.record("cold_start_ms", 3.0)
        client.flush(seal=True)
        runs.append(_entries(client)[0].report)
    assert runs[0] != runs[1]


def test_the_address_of_a_dead_endpoint_is_a_port_nobody_listens_on() -> None:
    import socket

    host, _, port = DEAD.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=1)
