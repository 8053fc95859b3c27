"""Memoised metrics in the store: a price by the number of reports, on both engines, never booked twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.plan import Plan, parse_plan
from collector.accounting.figures import figures
from collector.service.doctor import examine
from collector.service.documents import Assumed, all_devices_document
from collector.service.storage import CollectorStore, DuplicateContributionError, Release, StoreError
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, execute, make_release, plan_text, query

MICRO = 1_000_000
MEMO = "memoize = true\nepsilon_inf = 2\nmax_distinct = 2\n"


def memo_plan(version: int = 1, *, epsilon: str = "1.0", memo: str = MEMO) -> Plan:
    """`cold_start_ms` beside the memoised `network`."""
    return parse_plan(plan_text(version, epsilon=epsilon) + memo)


PLAN = memo_plan()


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(PLAN, NOW)
    yield opened
    opened.close()


def release(day: int, *, plan: Plan = PLAN, first: int = 0, count: int = 3, round_id: str | None = None) -> Release:
    """Of one period, by devices `first` and on."""
    devices = range(first, first + count)
    return make_release(
        plan,
        round_id or f"round-{plan.version}-{day}-{first}",
        devices,
        period_start=PERIOD + day * DAY_S,
        now=NOW + day,
    )


def faults(store: CollectorStore, now: float = NOW + 10) -> list[str]:
    """Checks that found something, but for how durable a test's database is."""
    results = examine(store, now).results
    return [result.check.name for result in results if result.found and result.check.name != "durability"]


def spent(store: CollectorStore, number: int = 0) -> tuple[int, int]:
    return store.device_totals(device(number))


def test_the_price_follows_the_number_of_reports(store: CollectorStore, store_url: str) -> None:
    charged = []
    for day in range(5):
        store.store_release(release(day))
        charged.append(spent(store))
    assert charged == [(n + 1, (n + 1) * MICRO + cost) for n, cost in enumerate(
        [MICRO, 4 * MICRO, 4 * MICRO + 1, 4 * MICRO + 2, 4 * MICRO + 3]
    )]  # fmt: skip
    rows = query(store_url, "SELECT DISTINCT period_start, metric, micro_epsilon FROM spends ORDER BY 1, 2")
    assert [cost for _, metric, cost in rows if metric == "network"] == [MICRO, 3 * MICRO, 1, 1, 1]
    assert {cost for _, metric, cost in rows if metric == "cold_start_ms"} == {MICRO}
    assert faults(store) == []


def test_devices_have_their_own_count_and_order_of_periods_means_nothing(store: CollectorStore) -> None:
    store.store_release(release(3))
    store.store_release(release(1, first=1))
    store.store_release(release(0))
    assert [spent(store, number) for number in range(4)] == [
        (2, 6 * MICRO), (3, 7 * MICRO + 1), (3, 7 * MICRO + 1), (1, 2 * MICRO),
    ]  # fmt: skip


def test_several_sums_of_one_transaction_count_one_after_the_other(store: CollectorStore) -> None:
    assert store.store_releases([release(0), release(1), release(0, round_id="again"), release(2)])[2] is not None
    assert spent(store) == (3, 3 * MICRO + 4 * MICRO + 1), "what was refused counts nothing"


def test_a_refused_release_leaves_the_count_alone(store: CollectorStore, store_url: str) -> None:
    store.store_release(release(0))
    with pytest.raises(DuplicateContributionError):
        store.store_release(release(0, round_id="again"))
    assert {row[0] for row in query(store_url, "SELECT reports FROM memo_reports")} == {1}


def test_versions_share_the_count_while_nothing_of_the_memory_changes(store: CollectorStore) -> None:
    other = parse_plan(PLAN.text.replace("version = 1", "version = 2").replace("upper = 5000", "upper = 5001"))
    dearer = memo_plan(3, memo=MEMO.replace("epsilon_inf = 2", "epsilon_inf = 1.5"))
    for plan in (other, dearer):
        store.put_plan(plan, NOW)
    store.store_release(release(0))
    store.store_release(release(1, plan=other))
    assert spent(store) == (2, 2 * MICRO + 4 * MICRO)
    store.store_release(release(2, plan=dearer))
    assert spent(store) == (3, 3 * MICRO + 4 * MICRO + MICRO), "other permanent answers, paid anew"


def test_folding_old_spends_keeps_the_count(store: CollectorStore, store_url: str) -> None:
    for day in range(3):
        store.store_release(release(day))
    before = spent(store)
    assert store.fold_spends(NOW + 500 * DAY_S) == 3 * 3 * 2
    assert spent(store) == before
    store.store_release(release(3))
    assert spent(store) == (4, before[1] + MICRO + 1), "a fourth report, not a first one"
    ledger = store.ledger(NOW + 500 * DAY_S, device(0))
    assert ledger is not None
    assert ledger.stated.lifetime_micro_epsilon == before[1] + MICRO + 1


def test_opting_out_forgets_the_count(store: CollectorStore, store_url: str) -> None:
    store.store_release(release(0))
    assert store.forget(device(0), NOW, certified=True)
    left = {row[0] for row in query(store_url, "SELECT device FROM memo_reports")}
    assert left == {device(1), device(2)}


def test_two_writers_never_book_the_same_report(store: CollectorStore) -> None:
    """Different periods of the same devices at once: each of the prices once, whoever comes first."""
    faults: list[BaseException] = []

    def write(day: int) -> None:
        try:
            store.store_release(release(day, count=20))
        except BaseException as error:  # noqa: BLE001 - told below
            faults.append(error)

    threads = [threading.Thread(target=write, args=(day,)) for day in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults
    assert {spent(store, number) for number in range(20)} == {(4, 4 * MICRO + 4 * MICRO + 2)}


def test_groups_of_two_replicas_never_wait_in_a_circle(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same devices in either order, in sums of other periods: each has all counts before it writes any."""
    replicas = [CollectorStore.open(postgres_url) for _ in range(2)]
    replicas[0].put_plan(PLAN, NOW)
    gave_way: list[object] = []
    once, barrier = CollectorStore._once, threading.Barrier(2)

    def noted(store: CollectorStore, *arguments: Any) -> Any:
        try:
            return once(store, *arguments)
        except StoreError as error:
            gave_way.append(error.code)
            raise

    def write(n: int) -> None:
        for day in range(0, 6, 2):
            group = [release(day + n, first=first, count=200) for first in (0, 1000)]
            barrier.wait(20)
            replicas[n].store_releases(group if n else group[::-1])

    monkeypatch.setattr(CollectorStore, "_once", noted)
    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert gave_way == []
    assert {spent(replicas[0], number)[0] for number in (0, 199, 1000, 1199)} == {6}
    for replica in replicas:
        replica.close()


def test_of_a_group_that_is_refused_no_count_is_left(store: CollectorStore, store_url: str) -> None:
    store.store_release(release(0))
    refused = store.store_releases([release(0, round_id="a", first=2, count=5), release(1)])
    assert [one is None for one in refused] == [False, True]
    found = query(store_url, "SELECT device, reports FROM memo_reports ORDER BY device")
    assert found == [(device(n), 2) for n in range(3)]


def test_the_doctor_sees_a_price_that_no_report_has(store: CollectorStore, store_url: str) -> None:
    store.store_release(release(0))
    assert faults(store) == []
    execute(store_url, f"UPDATE spends SET micro_epsilon = {4 * MICRO} WHERE metric = 'network'")  # noqa: S608
    assert "spends of each contribution" in faults(store)


def test_every_device_of_a_window_has_the_figures_of_its_ledger(store: CollectorStore) -> None:
    for day in range(4):
        store.store_release(replace(release(day), now=NOW + day * DAY_S))
    now = NOW + 3 * DAY_S + 1
    shown = all_devices_document(store, now, ["24h", "lifetime"], Assumed())
    ledger = store.ledger(now, device(0))
    assert ledger is not None
    rows = {row["window"]: row for row in shown["devices"][0]["windows"]}
    for window in ("24h", "lifetime"):
        own = figures(ledger, {PLAN.hash.hex(): PLAN}, window=window)
        assert rows[window]["eps_local_pure"] == float(own.eps_local_pure)
        assert rows[window]["eps_local"] == pytest.approx(own.eps_local, rel=1e-4)
    assert rows["24h"]["eps_local_pure"] == 2.0, "one report of each metric, whatever it was charged"
    assert rows["lifetime"]["eps_local_pure"] == 8.000002
