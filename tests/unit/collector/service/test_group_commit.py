"""What queues while the store writes is committed together; each item hears of its own fate, once it is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from client_sdk.errors import LocalProtocolError, StorageError
from collector.service import storage_bulk, store_access
from collector.service.group_commit import MOST, MOST_ROWS, GroupCommit, rows_of
from collector.service.monitoring import Monitor
from collector.service.storage import CollectorStore, DuplicateContributionError, Release, StoreError, StoreProblem
from collector.service.store_access import StoreAccess
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, counts, device, make_plan, make_release


class Slow:
    """Commits after a moment; notes its groups."""

    def __init__(self, fails: dict[int, Exception] | None = None, refuses: dict[int, Exception] | None = None) -> None:
        self.groups: list[list[int]] = []
        self.fails, self.refuses = fails or {}, refuses or {}

    async def __call__(self, items: Sequence[int]) -> list[Exception | None]:
        self.groups.append(list(items))
        await asyncio.sleep(0.01)
        for item in items:
            if item in self.fails:
                raise self.fails[item]
        return [self.refuses.get(item) for item in items]


async def outcomes(group: GroupCommit[int], items: Sequence[int]) -> list[BaseException | None]:
    return await asyncio.gather(*(group.put(item) for item in items), return_exceptions=True)


async def test_what_queues_goes_together_and_the_first_waits_for_nobody() -> None:
    slow = Slow()
    group = GroupCommit(slow)
    first = asyncio.create_task(group.put(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slow.groups == [[0]], "at once, alone"
    await outcomes(group, range(1, MOST + 5))
    await first
    assert slow.groups == [[0], list(range(1, MOST + 1)), list(range(MOST + 1, MOST + 5))]


async def test_a_group_is_bounded_by_its_rows_and_one_item_always_goes() -> None:
    slow = Slow()
    rows = [2 * MOST_ROWS, MOST_ROWS - 1, 1, 1, MOST_ROWS, MOST_ROWS + 1, 1]
    found = await outcomes(GroupCommit(slow, rows.__getitem__), range(7))
    assert found == [None] * 7
    assert slow.groups == [[0], [1, 2], [3], [4], [5], [6]]


def test_a_release_says_how_many_rows_it_makes() -> None:
    assert rows_of(release(0, range(5))) == 5 * (2 + 2)
    assert rows_of(3) == 1


async def test_one_that_is_refused_is_refused_alone() -> None:
    slow = Slow(refuses={2: DuplicateContributionError(["aa"])})
    found = await outcomes(GroupCommit(slow), range(4))
    assert [type(one) for one in found] == [type(None), type(None), DuplicateContributionError, type(None)]
    assert slow.groups == [[0, 1, 2, 3]]


@pytest.mark.parametrize("fault", [LocalProtocolError("cells"), StoreError("db", StoreProblem.REFUSED)])
async def test_a_group_that_fails_for_one_of_them_is_done_one_by_one(fault: Exception) -> None:
    slow = Slow(fails={2: fault})
    found = await outcomes(GroupCommit(slow), range(4))
    assert [type(one) for one in found] == [type(None), type(None), type(fault), type(None)]
    assert [len(one) for one in slow.groups] == [4, 1, 1, 1, 1]


async def test_where_the_store_fails_nothing_is_tried_again_and_all_are_told() -> None:
    """It may have been committed."""
    slow = Slow(fails={1: StoreError("db", StoreProblem.UNREACHABLE, "lost")})
    found = await outcomes(GroupCommit(slow), range(3))
    assert [getattr(one, "problem", None) for one in found] == [StoreProblem.UNREACHABLE] * 3
    assert len({id(one) for one in found}) == 3, "each has an exception of its own"
    assert len(slow.groups) == 1
    assert {str(one) for one in found} == {"db: lost"}


async def test_who_left_meanwhile_troubles_nobody_and_a_slip_of_ours_is_said_to_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = GroupCommit(Slow())
    leaves, stays = asyncio.create_task(group.put(1)), asyncio.create_task(group.put(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await stays
    broken = GroupCommit(Slow(fails={1: ZeroDivisionError()}))
    found = await asyncio.wait_for(outcomes(broken, [1, 2]), 5)
    assert [type(one) for one in found] == [StorageError] * 2, "an error, not the end of their rounds' tasks"
    assert "ZeroDivisionError" in caplog.text
    await asyncio.wait_for(broken.put(3), 5)


# --- with a store -----------------------------------------------------------------------------------


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    with closing(CollectorStore.open(store_url)) as opened:
        opened.put_plan(make_plan(), NOW)
        yield opened


def release(number: int, devices: Sequence[int], period: int = 0) -> Release:
    return make_release(make_plan(), f"round-{number}", devices, period_start=PERIOD + period * DAY_S)


async def test_rounds_that_end_together_share_a_transaction(
    store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []

    def noted(store: CollectorStore, releases: Sequence[Release]) -> list[DuplicateContributionError | None]:
        groups.append(len(releases))
        return store.store_releases(releases)

    access = StoreAccess(store, Monitor())
    releases = [release(n, range(10 * n, 10 * n + 10)) for n in range(8)]
    releases[5] = release(5, [1, 2])  # counted by the first of them
    found = await asyncio.gather(*(access.call_gathered(noted, one) for one in releases), return_exceptions=True)
    assert [index for index, one in enumerate(found) if one is not None] == [5]
    assert isinstance(found[5], DuplicateContributionError)
    assert set(found[5].devices) == {device(1), device(2)}
    assert len(groups) < 8
    assert counts(store_url)["contributions"] == 70
    assert len(store.rounds()) == 7
    await access.close(5)


async def test_a_wrong_one_in_a_group_keeps_nobody_out(store: CollectorStore, store_url: str) -> None:
    access = StoreAccess(store, Monitor())
    wrong = [make_release(make_plan(), "small", [90]), make_release(make_plan(9), "no plan", [91, 92])]
    todo = [release(0, range(5)), *wrong, release(1, range(5, 10))]
    found = await asyncio.gather(
        *(access.call_gathered(CollectorStore.store_releases, one) for one in todo), return_exceptions=True
    )
    assert [type(one) for one in found] == [type(None), LocalProtocolError, StoreError, type(None)]
    assert {one.round_id for one in store.rounds()} == {"round-0", "round-1"}
    access.require_working()
    await access.close(5)


async def test_in_an_outage_it_waits_a_while(store: CollectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 0.05)
    access = StoreAccess(store, Monitor())

    def fails(_: CollectorStore) -> None:
        raise StoreError("db", StoreProblem.UNREACHABLE)

    with pytest.raises(StoreError):
        await access.call(fails)
    assert not access.working
    await access.call_gathered(CollectorStore.store_releases, release(0, range(5)))
    assert len(store.rounds()) == 1
    await access.close(5)


async def test_a_probe_that_fails_by_a_slip_of_ours_ends_no_watch(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 0.02)
    access = StoreAccess(store, Monitor())
    slips = [ZeroDivisionError(), OSError(24, "Too many open files")]

    def probe(*_: Any) -> None:
        if slips:
            raise slips.pop()

    def fails(_: CollectorStore) -> None:
        raise StoreError("db", StoreProblem.UNREACHABLE)

    monkeypatch.setattr(type(store._backend), "probe", probe)
    with pytest.raises(StoreError):
        await access.call(fails)
    await access.call_gathered(CollectorStore.store_releases, release(0, range(5)))
    assert access.working
    assert slips == []
    assert "failed with OSError in test_group_commit.py" not in caplog.text, "only what is ours is named"
    assert caplog.text.count("failed with OSError") == 1, "said once, for both are one kind of outage"
    await access.close(5)


def test_rows_go_in_in_slices(store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no statement of a large round takes long."""
    monkeypatch.setattr(storage_bulk, "MOST_ROWS", 3)
    sizes: list[int] = []
    real = storage_bulk._insert_some

    def insert(conn: Any, table: Any, common: Any, columns: Any, each: Any) -> None:
        sizes.append(len(next(iter(columns.values()))) * len(next(iter((each or {0: [0]}).values()))))
        real(conn, table, common, columns, each)

    monkeypatch.setattr(storage_bulk, "_insert_some", insert)
    store.store_release(release(0, range(8)))
    assert max(sizes) == 3
    found = counts(store_url)
    assert (found["contributions"], found["spends"], found["released_sums"]) == (8, 16, make_plan().length)
    assert store.device_totals(device(7)) == (1, 2_000_000)


def test_a_group_is_one_transaction(store: CollectorStore, store_url: str) -> None:
    """The last of them may not be stored at all: then none is."""
    with pytest.raises(StoreError) as caught:
        store.store_releases([release(0, range(5)), make_release(make_plan(9), "no plan", [91, 92])])
    assert caught.value.problem is StoreProblem.REFUSED
    assert counts(store_url)["rounds"] == counts(store_url)["device_totals"] == 0


def test_in_a_group_a_device_is_counted_once_and_its_totals_add_up(store: CollectorStore) -> None:
    group = [release(0, [1, 2, 3]), release(1, [3, 4]), release(2, [1, 2, 3], period=1)]
    first, second, third = store.store_releases(group)
    assert first is third is None
    assert second is not None
    assert second.devices == (device(3),)
    assert [store.device_totals(device(n)) for n in (1, 3, 4)] == [(2, 4_000_000), (2, 4_000_000), (0, 0)]
    assert store.store_releases([]) == []
