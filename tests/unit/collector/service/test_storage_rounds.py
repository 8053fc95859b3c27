"""Releases: one transaction or nothing, counted once, totals that add up and never shrink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError, LocalProtocolError, PlanError
from client_sdk.plan import Plan
from client_sdk.plan.metrics import METRIC_NAME
from collector.accounting.basic import WINDOWS, Amount
from collector.service import storage_writes
from collector.service.storage import (
    CollectorStore,
    Contribution,
    DuplicateContributionError,
    Release,
    RoundRecord,
    Standing,
    StoreError,
    StoreProblem,
)
from collector.service.tables import MAX_CELL_ROWS
from collector.service.tables import SAMPLED as SAMPLED_METRIC
from tests.unit.collector.plans import SAMPLED
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, counts, device, make_plan, make_release, query


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(make_plan(), NOW)
    yield opened
    opened.close()


def ledger_adds_up(store_url: str) -> bool:
    """Lifetime = what was folded + what still stands in the ledger, device by device."""
    rows = query(
        store_url,
        "SELECT d.micro_epsilon, d.folded_micro_epsilon + coalesce(sum(s.micro_epsilon), 0)"
        " FROM device_totals d LEFT JOIN spends s ON s.device = d.device GROUP BY d.device",
    )
    return bool(rows) and all(lifetime == parts for lifetime, parts in rows)


# --- plans ------------------------------------------------------------------------------------------


def test_a_plan_version_is_kept_as_it_was_put(store: CollectorStore) -> None:
    store.put_plan(make_plan(), NOW + 1)
    store.put_plan(make_plan(2, epsilon="2.0"), NOW)
    plans = store.plans()
    assert [(p.name, p.version, p.hash) for p in plans] == [
        ("app-health", 1, make_plan().hash),
        ("app-health", 2, make_plan(2, epsilon="2.0").hash),
    ]
    assert plans[0].text == make_plan().text


@pytest.mark.parametrize(
    ("options", "field"),
    [({"version": 1, "epsilon": "2.0"}, "plan.version"), ({"version": 2, "period": "2d"}, "plan.period")],
)
def test_a_version_never_changes_nor_its_names_period(
    store: CollectorStore, options: dict[str, object], field: str
) -> None:
    with pytest.raises(PlanError, match=field) as caught:
        store.put_plan(make_plan(**options), NOW)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert len(store.plans()) == 1


# --- a release --------------------------------------------------------------------------------------


def test_a_release_comes_back_whole(store: CollectorStore, store_url: str) -> None:
    plan = make_plan()
    totals = [-7, 2, 1, 0, 0]  # a number's total may be negative
    store.store_release(make_release(plan, totals=totals, resent=[1]))
    sums = {s.metric: s for s in store.released_sums()}
    assert sums["cold_start_ms"].totals == (-7,)
    assert sums["network"].totals == (2, 1, 0, 0)
    assert {(s.contributors, s.roster, s.resent, s.delivery) for s in sums.values()} == {(3, 5, 1, "interactive")}
    assert store.rounds() == [
        RoundRecord("round-1", plan.hash, PERIOD, 5, 3, make_release(plan).dropouts, "released", None, 1.5, NOW)
    ]
    assert store.contributions()[1] == Contribution(
        device(1), "app-health", PERIOD, (1).to_bytes(16, "big"), "round-1", resent=True
    )
    assert store.device_totals(device(1)) == (1, 2_000_000)
    assert ledger_adds_up(store_url)
    columns = "metric, micro_epsilon, charged_at, central_falls_back"
    spends = query(store_url, f"SELECT {columns} FROM spends WHERE device = '{device(1)}' ORDER BY metric")  # noqa: S608
    assert spends == [("cold_start_ms", 1_000_000, NOW, 1), ("network", 1_000_000, NOW, 1)]


def test_nobody_is_counted_in_an_empty_store(store: CollectorStore) -> None:
    assert store.device_totals(device(1)) == (0, 0)
    assert (store.released_sums(), store.rounds(), store.contributions(), store.spending(NOW)) == ([], [], [], [])


@pytest.mark.parametrize("categories", [MAX_CELL_ROWS - 1, MAX_CELL_ROWS, MAX_CELL_ROWS + 1])
def test_long_vectors_come_back_too(store: CollectorStore, store_url: str, categories: int) -> None:
    # `other` is one more cell: the middle length is the first that becomes one BLOB
    plan = make_plan(name="wide", categories=[f"c{i}" for i in range(categories)])
    store.put_plan(plan, NOW)
    totals = [(-1) ** i * i for i in range(plan.length)]
    totals[1], totals[2] = 2**63 - 1, -(2**63)
    store.store_release(make_release(plan, totals=totals))
    sums = {s.metric: s.totals for s in store.released_sums()}
    assert sums["cold_start_ms"] + sums["network"] == tuple(totals)
    is_blob = categories + 1 > MAX_CELL_ROWS
    assert counts(store_url)["released_vectors"] == (1 if is_blob else 0)
    assert counts(store_url)["released_sums"] == 1 + (0 if is_blob else categories + 1)


def test_the_window_is_half_open(store: CollectorStore) -> None:
    for day in range(3):
        store.store_release(make_release(make_plan(), f"round-{day}", period_start=PERIOD + day * DAY_S))
    rows = store.released_sums("network", PERIOD + DAY_S, PERIOD + 2 * DAY_S)
    assert [(row.round_id, row.metric) for row in rows] == [("round-1", "network")]
    assert len(store.contributions(device(0), PERIOD, PERIOD + 2 * DAY_S)) == 2
    assert store.period_range(device(0)) == (PERIOD, PERIOD + 2 * DAY_S)
    assert store.period_range(device(9)) == (None, None)


# case C01
def test_a_device_is_counted_once_per_period_over_all_versions(store: CollectorStore, store_url: str) -> None:
    store.put_plan(make_plan(2, epsilon="2.0"), NOW)
    store.store_release(make_release(make_plan(), devices=[0, 1, 2]))
    before = counts(store_url)
    for plan, devices in ((make_plan(), [2, 3]), (make_plan(2, epsilon="2.0"), [3, 0, 1])):
        with pytest.raises(DuplicateContributionError) as caught:
            store.store_release(make_release(plan, "round-2", devices))
        assert set(caught.value.devices) == {device(n) for n in devices if n < 3}
    assert counts(store_url) == before
    assert store.device_totals(device(0)) == (1, 2_000_000)
    assert store.device_totals(device(3)) == (0, 0)


def test_a_device_twice_in_one_release(store: CollectorStore, store_url: str) -> None:
    with pytest.raises(DuplicateContributionError) as caught:
        store.store_release(make_release(make_plan(), devices=[4, 5, 4]))
    assert caught.value.devices == (device(4),)
    assert counts(store_url)["rounds"] == 0


def test_the_next_period_and_another_plan_count_again(store: CollectorStore, store_url: str) -> None:
    other = make_plan(name="other-plan")
    store.put_plan(other, NOW)
    store.store_release(make_release(make_plan()))
    store.store_release(make_release(make_plan(), "round-2", period_start=PERIOD + DAY_S))
    store.store_release(make_release(other, "round-3"))
    assert store.device_totals(device(0)) == (3, 6_000_000)
    assert ledger_adds_up(store_url)


def test_a_cohort_larger_than_an_in_list(store: CollectorStore, store_url: str) -> None:
    store.store_release(make_release(make_plan(), devices=range(1_203)))
    assert {total.lifetime for total in store.spending(NOW)} == {Amount(1, 2_000_000)}
    with pytest.raises(DuplicateContributionError) as caught:
        store.store_release(make_release(make_plan(), "round-2", devices=range(1_200, 2_500)))
    assert set(caught.value.devices) == {device(n) for n in (1_200, 1_201, 1_202)}


def test_what_no_round_may_release_is_refused(store: CollectorStore, store_url: str) -> None:
    with pytest.raises(LocalProtocolError, match="2"):
        store.store_release(make_release(make_plan(), devices=[1]))
    with pytest.raises(LocalProtocolError, match="cells"):
        store.store_release(make_release(make_plan(), totals=[1, 2]))
    with pytest.raises(StoreError) as caught:  # a plan that was never put
        store.store_release(make_release(make_plan(7)))
    assert caught.value.problem is StoreProblem.REFUSED
    assert counts(store_url)["rounds"] == 0


def test_an_aborted_round_leaves_its_reason(store: CollectorStore) -> None:
    drops = {"shares": 4, "masked_input": 1, "confirm": 0, "unmask": 0}
    record = RoundRecord("r", make_plan().hash, PERIOD, 9, 0, drops, "aborted", "too_few_responses", 30.0, NOW)
    store.record_aborted(record)
    assert store.rounds() == [record]


# case H03
@pytest.mark.parametrize(
    "name",
    ["../escape", "..\\escape", "a/b", ".", "-rf", "CON", "x" * 300, "%2e%2e%2fescape", "' OR 1=1 --", '"; DROP'],
)
def test_a_name_is_a_value_and_nothing_else(store: CollectorStore, store_url: str, name: str) -> None:
    store.store_release(make_release(make_plan()))
    before = counts(store_url)
    assert store.released_sums(name) == store.contributions(name) == store.spending(NOW, name) == []
    assert (store.ledger(NOW, name), store.device_totals(name), store.period_range(name)) == (
        None,
        (0, 0),
        (None, None),
    )
    assert store.standings([(name, name, PERIOD)]) == {(name, name, PERIOD): Standing(0, 0, None)}
    assert not store.forget(name, NOW, certified=False)
    token = store.issue_access(Role.ANALYST, name[:64], NOW, 60)
    assert [one.name for one in store.access_tokens()] == [name[:64]]
    assert token not in repr(store.access_tokens())
    assert counts(store_url) == before | {"access_tokens": 1}


class PowerCutError(Exception):
    """Stands for anything that ends a transaction half way."""


def test_a_crash_at_any_statement_leaves_nothing(store: CollectorStore, store_url: str) -> None:
    store.store_release(make_release(make_plan(), "round-0", period_start=PERIOD - DAY_S))
    before, totals = counts(store_url), store.device_totals(device(0))
    position = [0]
    dies_at = [0]

    @event.listens_for(store._engine, "after_cursor_execute")
    def _after(*_: object) -> None:
        position[0] += 1
        if position[0] == dies_at[0]:
            raise PowerCutError

    crashes = 0
    while True:
        position[0], dies_at[0] = 0, dies_at[0] + 1
        try:
            store.store_release(make_release(make_plan(), resent=[1]))
        except StoreError as error:
            if error.code != "PowerCutError":
                raise
            crashes += 1
            dies_at_now, dies_at[0] = dies_at[0], 0
            assert counts(store_url) == before
            assert store.device_totals(device(0)) == totals
            dies_at[0] = dies_at_now
        else:
            break
    dies_at[0] = 0
    assert crashes >= 9, "the check, savepoints, the round, sums, contributions, spends and totals"
    assert store.device_totals(device(0)) == (2, 4_000_000)
    assert ledger_adds_up(store_url)


def test_of_writers_that_race_for_one_device_one_wins(store: CollectorStore, store_url: str) -> None:
    results: list[str] = []

    def write(n: int) -> None:
        try:
            store.store_release(make_release(make_plan(), f"round-{n}", devices=[0, n]))
        except DuplicateContributionError as error:
            results.append(f"duplicate {error.devices}")
        else:
            results.append("stored")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [f"duplicate ('{device(0)}',)"] * 7 + ["stored"]
    assert store.device_totals(device(0)) == (1, 2_000_000)
    assert ledger_adds_up(store_url)


def test_where_writers_do_not_queue_the_key_still_decides(
    store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with replicas on one server: the check saw nothing, another writer committed, the insert collides."""
    store.store_release(make_release(make_plan(), devices=[0, 1, 2]))
    before = counts(store_url)
    monkeypatch.setattr(storage_writes, "counted_devices", _blind_once(storage_writes.counted_devices))
    with pytest.raises(DuplicateContributionError) as caught:
        store.store_release(make_release(make_plan(), "round-2", devices=[2, 3]))
    assert caught.value.devices == (device(2),)
    assert counts(store_url) == before


def _blind_once(real: Callable[..., set[str]]) -> Callable[..., set[str]]:
    asked: list[int] = []

    def counted_devices(*arguments: object) -> set[str]:
        asked.append(1)
        return set() if len(asked) == 1 else real(*arguments)

    return counted_devices


# --- spending ---------------------------------------------------------------------------------------


def test_windows_are_half_open_and_lifetime_is_not_a_window(store: CollectorStore) -> None:
    ages = (0, DAY_S - 1, DAY_S, 7 * DAY_S, 30 * DAY_S - 1, 30 * DAY_S, 400 * DAY_S, -60)
    for n, age in enumerate(ages):
        release = make_release(make_plan(), f"round-{n}", [0, 1], period_start=PERIOD - n * DAY_S, now=NOW - age)
        store.store_release(release)
    (spending,) = store.spending(NOW, device(0))
    reports = {window: amount.reports for window, amount in spending.windows.items()}
    # (now - window, now], and a charge dated after `now`, by a clock set back, never leaves a window
    assert reports == {"24h": 3, "7d": 4, "30d": 6, "365d": 7}
    assert spending.windows["24h"].micro_epsilon == 3 * 2_000_000
    assert spending.lifetime == Amount(8, 16_000_000)


def test_the_lifetime_survives_garbage_collection(store: CollectorStore, store_url: str) -> None:
    for n in range(40):
        start, charged_at = PERIOD - n * DAY_S, NOW - 10 * n * DAY_S
        store.store_release(make_release(make_plan(), f"r{n}", [0, 1], period_start=start, now=charged_at, resent=[1]))
    before = store.spending(NOW)
    assert store.fold_spends(NOW) == 3 * 2 * 2, "three old rounds, two devices, two metrics"
    assert store.spending(NOW) == before
    assert store.fold_spends(NOW) == 0
    assert ledger_adds_up(store_url)
    assert "r39" in [row.round_id for row in store.contributions(device(0))]
    store.fold_spends(NOW + 10_000 * DAY_S)
    (spending,) = store.spending(NOW + 10_000 * DAY_S, device(1))
    assert spending.windows == dict.fromkeys(WINDOWS, Amount(0, 0))
    assert (spending.lifetime, spending.resent_reports) == (Amount(40, 80_000_000), 40)
    assert ledger_adds_up(store_url)


def test_windows_that_are_shown_cannot_be_collected(store: CollectorStore) -> None:
    with pytest.raises(ConfigurationError):
        store.fold_spends(NOW, keep_s=365 * DAY_S - 1)


def test_direct_reports_are_a_sum_of_any_size_and_hide_in_nothing(store: CollectorStore, store_url: str) -> None:
    one = replace(make_release(make_plan(), devices=[1]), delivery="direct")
    store.store_release(one)
    assert {(row.delivery, row.contributors) for row in store.released_sums()} == {("direct", 1)}
    assert set(query(store_url, "SELECT central_falls_back FROM spends")) == {(True,)}
    assert store.device_totals(device(1)) == (1, 2_000_000)
    (spending,) = store.spending(NOW)
    assert spending.resent_reports == 0, "it was sent once"
    with pytest.raises(DuplicateContributionError):
        store.store_release(make_release(make_plan(), "round-2", devices=[1, 2]))
    with pytest.raises(LocalProtocolError, match="1 is allowed"):
        store.store_release(replace(one, round_id="round-3", contributors=[]))
    assert ledger_adds_up(store_url)


# --- reports that hold a sample of the metrics --------------------------------------------------------


@pytest.fixture
def sampled() -> Plan:
    """Two of three metrics in each report; their epsilons are 1, 3 and 2."""
    return SAMPLED


def sampled_release(plan: Plan, **options: Any) -> Release:
    """Of three devices two hold `colour`, one `seconds`, and all `shape`."""
    return make_release(plan, totals=[2, 0, 2, 700, 1, 1, 1, 1, 3], **options)


def test_contributors_of_a_sampled_metric_are_its_own_count(store: CollectorStore, sampled: Plan) -> None:
    store.put_plan(sampled, NOW)
    store.store_release(sampled_release(sampled))
    sums = {s.metric: (s.totals, s.contributors, s.reports) for s in store.released_sums()}
    assert sums == {"colour": ((2, 0), 2, 3), "seconds": ((700,), 1, 3), "shape": ((1, 1, 1), 3, 3)}
    assert [r.contributors for r in store.rounds()] == [3]


def test_a_sampled_report_is_charged_the_dearest_it_can_hold(
    store: CollectorStore, store_url: str, sampled: Plan
) -> None:
    """And no row says which metrics it held: all devices' rows are alike."""
    assert sampled.report_micro_epsilon == 5_000_000
    store.put_plan(sampled, NOW)
    store.store_release(sampled_release(sampled, resent=[1]))
    rows = query(store_url, "SELECT device, metric, micro_epsilon, central_falls_back FROM spends")
    assert sorted(rows) == [(device(n), SAMPLED_METRIC, 5_000_000, int(n == 1)) for n in range(3)]
    assert METRIC_NAME.fullmatch(SAMPLED_METRIC) is None, "no metric of a plan can have that name"
    assert {store.device_totals(device(n)) for n in range(3)} == {(1, 5_000_000)}
    assert {total.lifetime for total in store.spending(NOW)} == {Amount(1, 5_000_000)}
    assert ledger_adds_up(store_url)


def test_a_sampled_plans_charges_fold_like_others(store: CollectorStore, store_url: str, sampled: Plan) -> None:
    store.put_plan(sampled, NOW)
    store.store_release(sampled_release(sampled, now=NOW - 400 * DAY_S))
    assert store.fold_spends(NOW) == 3, "one row a report"
    assert store.device_totals(device(0)) == (1, 5_000_000)
    assert ledger_adds_up(store_url)
