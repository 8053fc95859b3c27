"""Devices that opted out: what goes at once, what goes when its period is too old, what stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import insert, select

from client_sdk.plan import parse_plan
from collector.service import tables as t
from collector.service.retention import Tidied
from collector.service.storage import CollectorStore, DuplicateContributionError, StoreError
from collector.service.storage_rows import Blamed
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, make_plan, make_release

PLAN = make_plan()
GONE, OTHER = device(1), device(2)


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    store = CollectorStore.open(store_url)
    store.put_plan(PLAN, NOW)
    release = make_release(PLAN)
    store.store_release(replace(release, blamed=[Blamed(GONE, "bad_share"), Blamed(OTHER, "bad_share")]))
    yield store
    store.close()


def mentions(store: CollectorStore, device_id: str) -> set[str]:
    """Tables in which a device stands."""
    with store._reading() as conn:
        return {
            table.name
            for table in t.metadata.tables.values()
            if "device" in table.c
            and conn.execute(select(table.c.device).where(table.c.device == device_id)).first() is not None
        }


def test_the_ledger_goes_and_the_sum_stays(store: CollectorStore) -> None:
    sums = store.released_sums()
    assert mentions(store, GONE) == {"contributions", "spends", "device_totals", "blames"}
    assert store.forget(GONE, NOW, certified=True)
    assert mentions(store, GONE) == {"contributions", "opt_outs"}
    assert mentions(store, OTHER) == {"contributions", "spends", "device_totals", "blames"}
    assert store.released_sums() == sums
    assert [row.device_id for row in store.spending(NOW)] == [device(0), OTHER]
    assert len(store.lifetimes_micro_epsilon()) == 2
    assert not store.forget(GONE, NOW + 1, certified=True), "a repeat changes nothing"
    assert mentions(store, GONE) == {"contributions", "opt_outs"}


def test_a_request_that_comes_again_waits_for_no_writer(store: CollectorStore, store_url: str) -> None:
    """And holds up none: whoever repeats its own old request would else stop all collectors again and again."""
    assert store.forget(GONE, NOW, certified=True)
    with closing(CollectorStore.open(store_url, busy_timeout_s=0.2)) as replica, store._writing():
        assert not replica.forget(GONE, NOW + 1, certified=True)
        with pytest.raises(StoreError):
            replica.forget(OTHER, NOW + 1, certified=True)


def test_what_is_left_of_a_device_that_opted_out_goes(store: CollectorStore) -> None:
    store._write(lambda conn: conn.execute(insert(t.opt_outs).values(device=GONE, acknowledged_at=NOW)))
    store.forget(GONE, NOW, certified=True)
    assert mentions(store, GONE) == {"contributions", "opt_outs"}


def test_who_is_not_known_is_listed_only_if_it_was_certified(store: CollectorStore) -> None:
    assert not store.forget(device(9), NOW, certified=False)
    assert mentions(store, device(9)) == set()
    assert store.forget(device(9), NOW, certified=True)
    assert mentions(store, device(9)) == {"opt_outs"}
    assert store.forget(GONE, NOW, certified=False), "known by what is booked for it"


def test_standings_say_so(store: CollectorStore) -> None:
    store.forget(GONE, NOW, certified=True)
    first, second = store.standings([(GONE, PLAN.name, PERIOD), (OTHER, PLAN.name, PERIOD)]).values()
    assert (first.opted_out, first.micro_epsilon, first.counted) == (True, 0, ("round-1", 3))
    assert (second.opted_out, second.micro_epsilon > 0) == (False, True)


def test_a_round_that_was_under_way_begins_no_new_ledger(store: CollectorStore) -> None:
    store.forget(GONE, NOW, certified=True)
    release = make_release(PLAN, "round-2", period_start=PERIOD + DAY_S)
    store.store_release(replace(release, blamed=[Blamed(GONE, "bad_share")]))
    assert mentions(store, GONE) == {"contributions", "opt_outs"}
    assert store.device_totals(OTHER)[0] == 2
    everybody = [device(n) for n in range(3)]
    for device_id in everybody:
        store.forget(device_id, NOW, certified=True)
    store.store_release(make_release(PLAN, "round-3", period_start=PERIOD + 2 * DAY_S))
    assert store.spending(NOW) == []
    assert store.rounds()[-1].contributors == 3, "the sum says how many it is over"


def test_uniqueness_outlives_the_ledger_until_the_period_is_too_old(store: CollectorStore) -> None:
    store.put_plan(make_plan(2, epsilon="0.5"), NOW)
    store.forget(GONE, NOW, certified=True)
    with pytest.raises(DuplicateContributionError):
        store.store_release(make_release(PLAN, "round-2", devices=[1, 5]))
    last_second = PERIOD + 2 * DAY_S - 1  # its end, and max_delay: a day by default
    assert store.keep_house(last_second) == Tidied()
    assert mentions(store, GONE) == {"contributions", "opt_outs"}
    assert store.keep_house(last_second + 1) == Tidied(contributions=1)
    assert mentions(store, GONE) == {"opt_outs"}
    assert "contributions" in mentions(store, OTHER), "of the others nothing is dropped"
    assert store.keep_house(last_second + 1) == Tidied()


def test_the_version_that_waits_longest_decides(store: CollectorStore) -> None:
    patient = make_plan(2).text.replace('period = "1d"', 'period = "1d"\nmax_delay = "5d"')
    store.put_plan(parse_plan(patient), NOW)
    store.forget(GONE, NOW, certified=True)
    assert store.keep_house(PERIOD + 6 * DAY_S - 1).contributions == 0
    assert store.keep_house(PERIOD + 6 * DAY_S).contributions == 1


def test_housekeeping_folds_old_spends(store: CollectorStore) -> None:
    before = store.device_totals(OTHER)
    assert store.keep_house(NOW + 400 * DAY_S).spends == 6
    assert store.device_totals(OTHER) == before
