"""Ledgers from the store: what garbage collection leaves of them, what an older store knew, sums over a fleet."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from client_sdk.accounting.ledger import WINDOWS, Cohort, Ledger, is_within
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.plan import Plan
from collector.accounting.allowance import allowed
from collector.accounting.basic import FleetHistory, FleetSum
from collector.accounting.exposure import exposures
from collector.accounting.figures import figures
from collector.service import storage_reads
from collector.service.storage import CollectorStore
from collector.service.storage_fleet import fleet_histories
from collector.service.storage_folding import FoldedCohort, rounded_down, rounded_up
from collector.service.storage_histories import Sum
from collector.service.storage_reads import CHUNK
from collector.service.tables import MAX_CELL_ROWS
from tests.unit.collector.plans import SAMPLED
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, connection, device, make_plan, make_release, query

PLAN, LATER = make_plan(), make_plan(2, epsilon="2.0")
LATER_YET = NOW + 10_000 * DAY_S


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    for plan in (PLAN, LATER, SAMPLED):
        opened.put_plan(plan, NOW)
    yield opened
    opened.close()


def days(store: CollectorStore, number: int, *, plan: Plan = PLAN, first: int = 0, **options: Any) -> None:
    """One round a day, the last of them now."""
    releases = [
        make_release(plan, f"r{day}", period_start=PERIOD - day * DAY_S, now=NOW - day * DAY_S, **options)
        for day in range(first, first + number)
    ]
    assert store.store_releases(releases) == [None] * number


def ledger(store: CollectorStore, number: int, now: float = NOW) -> Ledger:
    found = store.ledger(now, device(number))
    assert found is not None
    assert read_ledger(found.to_json()) == found, "whoever reads it reads the same"
    assert found.stated == found.counted()
    return found


# --- one device -------------------------------------------------------------------------------------


def test_a_ledger_names_each_report_and_its_sum(store: CollectorStore) -> None:
    days(store, 2, devices=range(7), resent=[1, 2])
    (plan,) = ledger(store, 1).plans
    assert (plan.hash, plan.name, plan.version) == (PLAN.hash.hex(), "app-health", 1)
    assert plan.first_used_at == NOW - DAY_S
    for number, why in ((0, None), (1, "resent")):
        found = ledger(store, number)
        assert (found.source, found.device, found.as_of) == ("collector", device(number), NOW)
        assert (found.folded, found.carried_micro_epsilon, found.is_whole) == ((), 0, True)
        assert [entry.charged_at for entry in found.entries] == [NOW - DAY_S, NOW]
        assert [entry.round for entry in found.entries] == ["r1", "r0"]
        assert {entry.micro_epsilon for entry in found.entries} == {2_000_000}
        assert {entry.cohort for entry in found.entries} == {Cohort(7, 9, 2)}
        assert {entry.falls_back for entry in found.entries} == {why}
        assert not any(entry.metric_contributors for entry in found.entries)
        assert found.stated.windows == {"24h": 2_000_000, "7d": 4_000_000, "30d": 4_000_000, "365d": 4_000_000}
    assert store.ledger(NOW, device(99)) is None


def test_a_direct_report_falls_back(store: CollectorStore) -> None:
    store.store_release(replace(make_release(PLAN), delivery="direct"))
    assert [entry.falls_back for entry in ledger(store, 0).entries] == ["direct"]


def test_only_a_report_that_came_twice_is_resent(store: CollectorStore) -> None:
    """A direct one falls back for another reason: before and after its row is folded."""
    days(store, 1, devices=range(7), resent=[1])
    store.store_release(replace(make_release(PLAN, "d", period_start=PERIOD - DAY_S), delivery="direct"))
    for number, again in ((0, False), (1, True)):
        entries = ledger(store, number).entries
        assert {(entry.delivery, entry.resent) for entry in entries} == {("direct", False), ("interactive", again)}
    assert store.fold_spends(LATER_YET) > 0
    for number, again in ((0, False), (1, True)):
        folded = ledger(store, number).folded
        assert {(row.delivery, row.resent) for row in folded} == {("direct", False), ("interactive", again)}


def test_a_report_that_holds_a_sample_says_how_many_hold_each_metric(store: CollectorStore) -> None:
    store.store_release(make_release(SAMPLED, totals=[2, 0, 2, 700, 1, 1, 1, 1, 3]))
    (entry,) = ledger(store, 0).entries
    assert (entry.micro_epsilon, entry.cohort) == (5_000_000, Cohort(3, 5, 0))
    assert entry.metric_contributors == {"colour": 2, "seconds": 1, "shape": 3}
    store.fold_spends(LATER_YET)
    (folded,) = ledger(store, 0).folded
    assert (folded.micro_epsilon, folded.metric_contributors) == (5_000_000, {"colour": 2, "seconds": 1, "shape": 3})


def test_a_long_vector_has_a_cohort_too(store: CollectorStore) -> None:
    wide = make_plan(name="wide", categories=[f"c{i}" for i in range(MAX_CELL_ROWS)])
    store.put_plan(wide, NOW)
    store.store_release(make_release(wide))
    assert ledger(store, 0).entries[0].cohort == Cohort(3, 5, 0)


@pytest.mark.slow_on_postgres
@pytest.mark.parametrize(("most", "rounds"), [(3, 7), pytest.param(CHUNK, CHUNK + 1, marks=pytest.mark.slow)])
def test_a_ledger_of_more_rounds_than_an_in_list_holds(
    store: CollectorStore, most: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_reads, "CHUNK", most)
    days(store, rounds, devices=range(2))
    assert len(ledger(store, 0).entries) == rounds


# --- garbage collection -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 19, 20, 21, 137, 50_000, 99_999])
def test_sizes_are_rounded_by_a_twentieth_at_most(size: int) -> None:
    assert size / 1.06 <= rounded_down(size) <= size <= rounded_up(size) <= size * 1.06 + 1
    assert rounded_down(rounded_down(size)) == rounded_down(size)
    assert rounded_up(rounded_up(size)) == rounded_up(size)
    if size <= 20:
        assert rounded_down(size) == size == rounded_up(size)


def test_a_folded_cohort_hides_nobody_better() -> None:
    draw = random.Random(6)
    for _ in range(300):
        roster = draw.randint(1, 3000)
        contributors = draw.randint(1, roster)
        resent = draw.randint(0, contributors)
        metric = draw.randint(0, contributors)
        held = Sum(PLAN.hash, contributors, roster, resent, "interactive", {"a": metric, "b": contributors})
        folded = FoldedCohort.of(held, sampled=True)
        assert 1 <= folded.contributors <= max(1, contributors - resent)
        assert folded.contributors >= (contributors - resent) / 1.06
        assert roster <= folded.roster <= 1.06 * roster + 1
        assert folded.least_contributors <= max(1, (metric or contributors) - resent)
        assert (json.loads(folded.metric_contributors)["a"] == 0) == (metric == 0), "what nobody holds is in no report"
        assert FoldedCohort.of(replace(held), sampled=True).key == folded.key
        assert FoldedCohort.of(held, sampled=False).metric_contributors == "{}"
        assert FoldedCohort.of(replace(held, delivery="direct"), sampled=True).key != folded.key


def test_folded_reports_stay_under_their_plan_and_in_like_cohorts(store: CollectorStore, store_url: str) -> None:
    days(store, 20, devices=range(30), resent=[1])
    days(store, 20, first=20, devices=range(31), plan=LATER)
    before = {number: ledger(store, number) for number in (0, 1, 30)}
    assert store.fold_spends(LATER_YET) == 20 * 30 * 2 + 20 * 31 * 2
    assert store.fold_spends(LATER_YET) == 0
    for number, old in before.items():
        found = ledger(store, number)
        assert (found.entries, found.is_whole) == ((), True)
        assert found.plans == old.plans, "when each was used first is not forgotten"
        assert found.stated.lifetime_micro_epsilon == old.stated.lifetime_micro_epsilon
        assert found.stated.reports == old.stated.reports
        for window, spent in old.stated.windows.items():
            assert found.stated.windows[window] >= spent, "of all that is folded together only the last date is known"
        for plan in old.plans:
            reports = Counter(entry.resent for entry in old.entries if entry.plan == plan.hash)
            assert {row.resent: row.reports for row in found.folded if row.plan == plan.hash} == reports
            newest = max(entry.charged_at for entry in old.entries if entry.plan == plan.hash)
            assert {row.charged_at for row in found.folded if row.plan == plan.hash} == {newest}
    assert len(query(store_url, "SELECT 1 FROM folded_spends")) == 30 + 31, "one row for twenty reports"
    assert ledger(store, 0, LATER_YET).stated.windows == dict.fromkeys(WINDOWS, 0)


def test_what_was_folded_one_by_one_is_what_was_folded_at_once(
    store: CollectorStore, store_url: str, tmp_path: Path
) -> None:
    days(store, 12, resent=[2])
    for day in range(11, -1, -1):
        assert store.fold_spends(NOW - day * DAY_S + 365 * DAY_S + 1) == 3 * 2
    piecemeal = query(store_url, "SELECT * FROM folded_spends ORDER BY device")
    assert len(piecemeal) == 3
    other = CollectorStore.open(str(tmp_path / "other.db"))
    other.put_plan(PLAN, NOW)
    days(other, 12, resent=[2])
    other.fold_spends(LATER_YET)
    other.close()
    assert query(tmp_path / "other.db", "SELECT * FROM folded_spends ORDER BY device") == piecemeal


def test_no_figure_is_smaller_after_it(store: CollectorStore) -> None:
    """Cohorts that are rounded, resent members, a metric that nobody holds; and another plan after that."""
    plans = {plan.hash.hex(): plan for plan in (PLAN, LATER, SAMPLED)}
    for day, size in enumerate((137, 140, 151)):
        days(store, 1, first=day, devices=range(size), resent=range(day, day + 9))
    totals = [70, 0, 70, 700, 60, 0, 0, 0, 0]
    store.store_release(make_release(SAMPLED, "s", range(75), totals=totals, now=NOW - 9 * DAY_S, resent=[70]))
    before = {}
    for number in (1, 20, 74, 100, 145):
        before[number] = figures(ledger(store, number), plans)
    store.fold_spends(LATER_YET)
    for number, old in before.items():
        new = figures(ledger(store, number), plans)
        assert (new.reports, new.eps_local_pure, new.method, new.central_method, new.fallbacks) == (
            old.reports, old.eps_local_pure, old.method, old.central_method, old.fallbacks,
        )  # fmt: skip
        assert new.eps_local == old.eps_local
        assert old.eps_central <= new.eps_central <= 1.15 * old.eps_central
        assert new.n_h <= old.n_h
    assert any(figures(ledger(store, n), plans).eps_central > old.eps_central for n, old in before.items())


def test_reports_that_were_sent_again_are_kept_apart(store: CollectorStore) -> None:
    for day in range(6):
        days(store, 1, first=day, devices=range(9), resent=[day % 2])
    store.fold_spends(LATER_YET)
    for number, again in ((0, 3), (1, 3), (2, 0)):
        folded = ledger(store, number).folded
        assert {row.resent: row.reports for row in folded} == {False: 6 - again} | ({True: again} if again else {})
        assert {row.cohort for row in folded} == {Cohort(8, 11, 0)}


def test_a_clock_that_was_set_back_does_not_move_when_a_plan_was_used_first(store: CollectorStore) -> None:
    for round_id, charged_at in (("a", NOW), ("b", NOW - 50), ("c", NOW + 50)):
        start = PERIOD + DAY_S * ord(round_id)
        store.store_release(make_release(PLAN, round_id, period_start=start, now=charged_at))
        store.fold_spends(LATER_YET)
        found = ledger(store, 0)
        first, last = (NOW, NOW) if round_id == "a" else (NOW - 50, max(NOW, charged_at))
        assert (found.plans[0].first_used_at, found.folded[0].charged_at) == (first, last)


def test_who_opts_out_leaves_no_folded_row(store: CollectorStore, store_url: str) -> None:
    days(store, 3)
    store.fold_spends(LATER_YET)
    store.forget(device(1), NOW, certified=True)
    assert store.ledger(NOW, device(1)) is None
    assert {row[0] for row in query(store_url, "SELECT device FROM folded_spends")} == {device(0), device(2)}


# --- an older store ---------------------------------------------------------------------------------


def test_an_older_store_comes_along_with_its_rows(own_store_url: str) -> None:
    """What it had folded, nobody can say any more what for; its last date is that of the reports without a row."""
    store = CollectorStore.open(own_store_url)
    store.put_plan(PLAN, NOW)
    days(store, 4, resent=[1])
    store.close()
    old = dict(zip(("r3", "r2"), (NOW - 3 * DAY_S, NOW - 2 * DAY_S), strict=True))
    with connection(own_store_url) as conn:  # as the version before has left it, with two days folded
        conn.execute("DROP TABLE memo_reports")
        conn.execute("DROP TABLE folded_spends")
        conn.execute("DROP TABLE folded_cohorts")
        conn.execute("DELETE FROM spends WHERE round IN ('r3', 'r2')")
        conn.execute("UPDATE device_totals SET folded_reports = 2, folded_micro_epsilon = 4000000")
        conn.execute("UPDATE alembic_version SET version_num = '0005'")
    kept = [f"SELECT * FROM {table}" for table in ("spends", "device_totals", "contributions")]  # noqa: S608
    before = [query(own_store_url, statement) for statement in kept]
    store = CollectorStore.open(own_store_url)
    assert [query(own_store_url, statement) for statement in kept] == before
    found = ledger(store, 1)
    assert [entry.round for entry in found.entries] == ["r1", "r0"]
    assert (found.carried_micro_epsilon, found.carried_until) == (4_000_000, old["r2"])
    assert not found.is_whole
    assert found.stated.lifetime_micro_epsilon == store.device_totals(device(1))[1] == 8_000_000
    assert found.stated.windows["24h"] == 2_000_000
    sums = store.fleet_sums(NOW, "lifetime", {PLAN.hash: 1})
    assert sums == [FleetSum(3, 8_000_000, 2, whole=False)]
    store.fold_spends(LATER_YET)
    again = ledger(store, 1)
    assert again.carried_micro_epsilon == 4_000_000, "what came later has its rows"
    assert [row.reports for row in again.folded] == [2]
    store.close()


def _adaptive(own: Ledger, window: str) -> bool:
    """Was a plan of the window first used after a report under another one had left?"""
    used = {plan.hash: plan.first_used_at for plan in own.plans}
    charges = [(e.charged_at, e.plan) for e in own.entries if is_within(e.charged_at, own.as_of, window)]
    charges += [(used[row.plan], row.plan) for row in own.folded if is_within(row.charged_at, own.as_of, window)]
    return any(at < used[other] for at, _ in charges for _, other in charges)


# --- a fleet ----------------------------------------------------------------------------------------


def test_sums_over_a_fleet_are_those_of_its_devices(store: CollectorStore) -> None:
    days(store, 9, devices=range(5))
    days(store, 4, first=9, devices=range(3, 8), plan=LATER)
    rhos = {PLAN.hash: 7, LATER.hash: 1_000}
    for folded in (False, True):
        for window in (*WINDOWS, "lifetime"):
            expected: Counter[tuple[int, int, bool]] = Counter()
            for number in range(8):
                own = ledger(store, number)
                reports = Counter(e.plan for e in own.entries if is_within(e.charged_at, NOW, window))
                for row in own.folded:
                    if is_within(row.charged_at, NOW, window):
                        reports[row.plan] += row.reports
                rho = sum(rhos[bytes.fromhex(plan)] * n for plan, n in reports.items())
                expected[own.spent_micro_epsilon(window), rho, not _adaptive(own, window)] += 1
            sums = store.fleet_sums(NOW, window, rhos)
            assert {(s.micro_epsilon, s.micro_rho, s.whole): s.devices for s in sums} == expected
            assert len(sums) == len(expected)
        if not folded:
            store.fold_spends(NOW + 360 * DAY_S)
            assert ledger(store, 4).folded, "half of its history is folded now"
            assert ledger(store, 4).entries


def test_plans_that_were_first_used_together_are_one_history(store: CollectorStore) -> None:
    other = make_plan(name="other")
    store.put_plan(other, NOW)
    store.store_release(make_release(PLAN))
    store.store_release(make_release(other, "r-other"))
    rhos = {PLAN.hash: 3, other.hash: 4}
    assert store.fleet_sums(NOW, "lifetime", rhos) == [FleetSum(3, 4_000_000, 7, whole=True)]
    assert store.fleet_sums(NOW, "lifetime", {PLAN.hash: 3}) == [FleetSum(3, 4_000_000, 3, whole=False)]
    assert store.fleet_sums(NOW, "lifetime", {}) == [FleetSum(3, 4_000_000, 0, whole=False)]
    assert store.fleet_sums(NOW + 400 * DAY_S, "365d", {}) == [FleetSum(3, 0, 0, whole=True)]


@pytest.mark.slow_on_postgres
def test_histories_of_a_fleet_are_those_of_its_devices(store: CollectorStore) -> None:
    """Against the accountant's own reading of each device's ledger, folded or not."""
    days(store, 6, devices=range(30), resent=[1, 2])
    days(store, 3, first=6, devices=range(20, 45), plan=LATER)
    store.store_release(make_release(SAMPLED, "s", range(40, 43), totals=[2, 0, 2, 700, 1, 0, 0, 0, 0]))
    store.store_release(replace(make_release(PLAN, "d", range(40, 44)), delivery="direct"))
    plans = {plan.hash.hex(): plan for plan in (PLAN, LATER, SAMPLED)}
    ledgers = [ledger(store, number) for number in range(45)]
    for corrupt in (Fraction(1, 10), Fraction(0), Fraction(1, 3)):
        for window in ("7d", "lifetime"):
            expected: Counter[FleetHistory] = Counter()
            for own in ledgers:
                reports = Counter[tuple[bytes, int]]()
                for row in exposures(own, plans, corrupt, window):
                    reports[bytes.fromhex(row.plan), min(row.n_h.values(), default=1)] += row.reports
                changed, used = _adaptive(own, window), {plan.hash: plan.first_used_at for plan in own.plans}
                first = {plan: used[plan.hex()] if changed else 0 for plan, _ in reports}
                alike = sorted(reports.items(), key=lambda item: (first[item[0][0]], *item[0]))
                expected[FleetHistory(0, tuple((*key, count) for key, count in alike), not changed)] += 1
            found = store.fleet_histories(NOW, window, {plan.hash: corrupt for plan in plans.values()})
            assert {replace(history, devices=0): history.devices for history in found} == expected
            assert len(found) == len(expected) >= 5
        if corrupt == 0:
            store.fold_spends(NOW + 361 * DAY_S)
            ledgers = [ledger(store, number) for number in range(45)]


def test_many_histories_are_rounded_to_fewer_that_bound_them(store: CollectorStore) -> None:
    for n in range(60):  # device i takes part in the first i + 1 rounds; all sums are of 70
        days(store, 1, first=n, devices=[*range(n, 60), *range(100, 110 + n)])
    corrupt = {PLAN.hash: Fraction(0)}
    with store._reading() as conn:
        exact = fleet_histories(conn, NOW, "lifetime", corrupt, 4096)
        rounded = fleet_histories(conn, NOW, "lifetime", corrupt, 30)
    assert [sum(one.devices for one in found) for found in (exact, rounded)] == [129, 129]
    assert len(rounded) < 40 < len(exact) == 60

    def reports(found: list[FleetHistory]) -> int:
        return sum(one.devices * count for one in found for *_, count in one.reports)

    assert reports(exact) < reports(rounded) < 1.15 * reports(exact)
    hidden = [
        sum(one.devices * n_h * count for one in found for _, n_h, count in one.reports) for found in (exact, rounded)
    ]
    assert hidden[1] / reports(rounded) < hidden[0] / reports(exact), "less well"


def test_histories_of_nobody_and_of_plans_that_are_not_known(store: CollectorStore) -> None:
    assert store.fleet_histories(NOW, "lifetime", {}) == []
    store.store_release(make_release(PLAN, devices=range(5)))
    assert store.fleet_histories(NOW, "lifetime", {}) == [FleetHistory(5, ((PLAN.hash, 1, 1),), whole=False)]
    assert store.fleet_histories(NOW + 2 * DAY_S, "24h", {PLAN.hash: Fraction(0)}) == [FleetHistory(5, ())]


@pytest.mark.slow_on_postgres
def test_every_device_has_its_own_history_and_what_is_left_of_its_budget(store: CollectorStore) -> None:
    days(store, 6, devices=range(30), resent=[1, 2])
    days(store, 3, first=6, devices=range(20, 45), plan=LATER)
    store.store_release(make_release(SAMPLED, "s", range(40, 43), totals=[2, 0, 2, 700, 1, 0, 0, 0, 0]))
    store.store_release(replace(make_release(PLAN, "d", range(40, 44)), delivery="direct"))
    plans = {plan.hash.hex(): plan for plan in (PLAN, LATER, SAMPLED)}
    corrupt = {plan.hash: Fraction(1, 10) for plan in plans.values()}
    for folded in (False, True):
        every = store.every_device(NOW, ["7d", "lifetime"], corrupt)
        assert [one.device_id for one in every.spendings] == [device(n) for n in range(45)]
        ledgers = [ledger(store, number) for number in range(45)]
        for window, found in every.windows.items():
            assert list(found.histories) == store.fleet_histories(NOW, window, corrupt)
            for number, mine in enumerate(found.devices):
                # at delta 0, where nothing is composed: what is compared here is the same at any
                own = figures(ledgers[number], plans, delta=0.0, corrupt=Fraction(1, 10), window=window)
                assert (mine.device_id, mine.reports) == (device(number), own.reports)
                assert mine.micro_epsilon == own.eps_local_pure * 1_000_000
                assert mine.least == own.n_min
                history = found.histories[mine.history]
                assert sum(count for *_, count in history.reports) == own.reports
                left = allowed(every.plan_spends[device(number)], plans, carried_micro_epsilon=0, as_of=NOW)
                assert left == own.allowance
        if not folded:
            store.fold_spends(NOW + 361 * DAY_S)
            assert ledgers[0].folded == ()
            assert ledger(store, 0).folded


def test_a_device_of_a_rounded_history_is_bounded_by_it(store: CollectorStore) -> None:
    for n in range(60):
        days(store, 1, first=n, devices=[*range(n, 60), *range(100, 110 + n)])
    corrupt = {PLAN.hash: Fraction(0)}
    exact = store.every_device(NOW, ["lifetime"], corrupt).windows["lifetime"]
    rounded = store.every_device(NOW, ["lifetime"], corrupt, 20, (0.1, 0.5)).windows["lifetime"]
    assert len(rounded.histories) <= 20 < len(exact.histories)
    for one, coarse in zip(exact.devices, rounded.devices, strict=True):
        assert replace(one, history=0) == replace(coarse, history=0), "what is its own is never rounded"
        ((_, n_h, count),), ((_, less, more),) = (
            found.histories[mine.history].reports for found, mine in ((exact, one), (rounded, coarse))
        )
        assert less <= n_h
        assert more >= count
    assert sum(one.devices for one in rounded.histories) == len(rounded.devices)


def test_direct_reports_hide_in_nothing_and_count_for_no_sum(store: CollectorStore) -> None:
    """Among interactive ones: local pairs in the same composition, and neither n_h nor n_min is theirs."""
    days(store, 3, devices=range(40))
    store.store_release(replace(make_release(PLAN, "d", range(2), period_start=PERIOD + DAY_S), delivery="direct"))
    for folded in (False, True):
        own = figures(ledger(store, 0), {PLAN.hash.hex(): PLAN}, corrupt=Fraction(0))
        other = figures(ledger(store, 5), {PLAN.hash.hex(): PLAN}, corrupt=Fraction(0))
        assert own.fallbacks == {"direct": 1}
        assert (own.n_h, own.n_min) == (other.n_h, other.n_min) == (40, 40) or folded
        assert own.n_h == other.n_h <= 40
        assert other.eps_central + 1.85 < own.eps_central <= other.eps_central + 2.0, "the local epsilon of that one"
        assert store.smallest_sum(NOW, "lifetime") == 40
        found = store.fleet_histories(NOW, "lifetime", {PLAN.hash: Fraction(0)})
        assert {n_h == 1 for one in found if one.devices == 2 for _, n_h, _ in one.reports} == {True, False}
        store.fold_spends(LATER_YET)
