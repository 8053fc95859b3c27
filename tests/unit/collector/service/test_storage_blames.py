"""Whom a round blames: stored with the round or not at all, and known when the device joins again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from collector.service.storage import CollectorStore, RoundRecord, StoreError
from collector.service.storage_reads import CHUNK
from collector.service.storage_rows import Blamed
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, counts, device, execute, make_plan, make_release

LAST_STATEMENT_FAILS = {
    "sqlite": (
        "CREATE TRIGGER cut BEFORE UPDATE ON device_totals BEGIN SELECT raise(ABORT, 'cut'); END",
        "DROP TRIGGER cut",
    ),
    "postgresql+psycopg": (
        "ALTER TABLE device_totals ADD CONSTRAINT cut CHECK (reports < 2)",
        "ALTER TABLE device_totals DROP CONSTRAINT cut",
    ),
}


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    for plan in (make_plan(), make_plan(2), make_plan(name="other")):
        opened.put_plan(plan, NOW)
    yield opened
    opened.close()


def aborted(round_id: str = "round-2", *blamed: Blamed, version: int = 1) -> RoundRecord:
    dropouts = dict.fromkeys(("shares", "masked_input", "confirm", "unmask"), 0)
    return RoundRecord(
        round_id, make_plan(version).hash, PERIOD, 5, 0, dropouts, "aborted", "wrong_shares", 1.0, NOW, blamed
    )  # fmt: skip


def blamed_of(store: CollectorStore, name: str = "app-health", period_start: int = PERIOD) -> set[int]:
    asked = {(device(number), name, period_start): number for number in range(5)}
    return {asked[question] for question, standing in store.standings(list(asked)).items() if standing.blamed}


def test_blame_is_stored_with_its_round(store: CollectorStore) -> None:
    one, two = Blamed(device(0), "wrong_share"), Blamed(device(0), "unusable_shares")
    released = replace(make_release(make_plan()), blamed=[two, one])
    store.store_release(released)
    record = aborted("round-2", Blamed(device(4), "wrong_seed"))
    store.record_aborted(record)
    first, second = store.rounds()
    assert {first.round_id, second.round_id} == {"round-1", "round-2"}
    found = {round_.round_id: round_.blamed for round_ in (first, second)}
    assert found == {"round-1": (two, one), "round-2": (Blamed(device(4), "wrong_seed"),)}
    assert record in (first, second)


def test_a_device_is_blamed_for_one_name_and_period(store: CollectorStore) -> None:
    """Over all versions of the plan; counted or not; nobody else."""
    store.store_release(replace(make_release(make_plan()), blamed=[Blamed(device(1), "wrong_share")]))
    store.record_aborted(aborted("round-2", Blamed(device(4), "wrong_seed"), version=2))
    assert blamed_of(store) == {1, 4}
    assert blamed_of(store, period_start=PERIOD - DAY_S) == set()
    assert blamed_of(store, name="other") == set()
    (counted,) = store.standings([(device(1), "app-health", PERIOD)]).values()
    assert (counted.counted, counted.blamed) == (("round-1", 3), True)


def test_a_release_that_is_not_stored_blames_nobody(store: CollectorStore, store_url: str) -> None:
    store.store_release(make_release(make_plan()))
    fails, works_again = LAST_STATEMENT_FAILS[store_url.partition(":")[0]]
    execute(store_url, fails)
    tomorrow = make_release(make_plan(), "round-2", period_start=PERIOD + DAY_S)
    with pytest.raises(StoreError):
        store.store_release(replace(tomorrow, blamed=[Blamed(device(1), "wrong_share")]))
    execute(store_url, works_again)
    assert counts(store_url)["blames"] == 0
    assert blamed_of(store) == blamed_of(store, period_start=PERIOD + DAY_S) == set()


def test_more_devices_than_one_statement_takes(store: CollectorStore) -> None:
    many = range(CHUNK + 3)
    store.record_aborted(aborted("round-2", *(Blamed(device(number), "wrong_share") for number in many)))
    asked = [(device(number), "app-health", PERIOD) for number in range(CHUNK + 5)]
    assert [standing.blamed for standing in store.standings(asked).values()] == [True] * len(many) + [False] * 2
