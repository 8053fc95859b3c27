"""Whatever goes wrong in a transaction is a StoreError of one line without a value: nobody who serves ends by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import LocalProtocolError
from collector.service import standings as standings_module
from collector.service import storage_reads as reads
from collector.service.doctor import examine
from collector.service.housekeeping import Housekeeping
from collector.service.monitoring import Monitor
from collector.service.retention import Retention
from collector.service.standings import Standings
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_rows import Standing
from collector.service.store_access import StoreAccess
from tests.integration.participants import until
from tests.unit.collector.service.stores import NOW, PERIOD, counts, device, execute, make_plan, make_release

PLAN = make_plan()
SURROGATE, TOO_LARGE = "secret-\udcff", 2**63


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(PLAN, NOW)
    opened.store_release(make_release(PLAN))
    yield opened
    opened.close()


def refused(work: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        work()
    error = caught.value
    assert error.problem is StoreProblem.REFUSED
    assert error.__cause__ is None
    said = str(error)
    assert "\n" not in said
    assert not [word for word in ("secret", "udcff", str(TOO_LARGE)) if word in said]
    return error


# --- values that no row can hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.contributions(SURROGATE),
        lambda store: store.contributions(since=TOO_LARGE),
        lambda store: store.released_sums(SURROGATE),
        lambda store: store.released_sums(until=TOO_LARGE),
        lambda store: store.spending(NOW, SURROGATE),
        lambda store: store.ledger(NOW, SURROGATE),
        lambda store: store.standings([(SURROGATE, "app-health", PERIOD)]),
        lambda store: store.period_range(SURROGATE),
        lambda store: store.forget(SURROGATE, NOW, certified=True),
        lambda store: store.store_release(replace(make_release(PLAN, "r2", range(5, 9)), now=TOO_LARGE)),
    ],
    ids=[
        "contributions of", "contributions since", "sums of", "sums until", "spending", "ledger", "standings", "range",
        "forget", "charged at",
    ],
)  # fmt: skip
def test_a_value_that_no_row_can_hold(store: CollectorStore, ask: Callable[[CollectorStore], object]) -> None:
    said = str(refused(lambda: ask(store)))
    assert "doctor" not in said, "the store is whole"
    store.probe()
    assert len(store.contributions()) == 3


# --- slips of ours, and rows that nobody expects ----------------------------------------------------------------------


def test_a_slip_in_a_transaction_is_said_with_its_place_and_keeps_nothing(
    store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slips(conn: Any, record: Any) -> None:
        raise KeyError("secret-device")

    monkeypatch.setattr("collector.service.storage_writes._insert_sums", slips)
    before = counts(store_url)
    error = refused(lambda: store.store_release(make_release(PLAN, "r2", range(5, 9))))
    assert "failed with KeyError in storage_writes.py:" in str(error)
    assert "run `ldp-collector doctor`" in str(error)
    assert store.where in str(error)
    assert error.code == "KeyError"
    assert counts(store_url) == before


def test_what_is_a_telemetry_error_already_stays_what_it_is(store: CollectorStore) -> None:
    with pytest.raises(LocalProtocolError):
        store.store_release(make_release(PLAN, "r2", totals=[1]))


def test_who_is_interrupted_is_interrupted(store: CollectorStore) -> None:
    with pytest.raises(KeyboardInterrupt), store._reading():
        raise KeyboardInterrupt


def test_rows_that_are_missing_are_a_fault_of_the_store(store: CollectorStore, store_url: str) -> None:
    """A round whose sums are gone: who wants its ledger looks for them in vain."""
    execute(store_url, "DELETE FROM released_sums")
    assert "failed with KeyError" in str(refused(lambda: store.ledger(NOW, device(1))))


# --- who must go on --------------------------------------------------------------------------------------------------


async def test_standings_survive_it_and_everybody_is_answered(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standings_module, "GATHER_S", 0.001)
    access = StoreAccess(store, Monitor())
    desk, slips = Standings(access), [ZeroDivisionError(), OverflowError()]
    real = reads.standings

    def slipping(*arguments: Any) -> dict[str, Standing]:
        if slips:
            raise slips.pop()
        return real(*arguments)

    monkeypatch.setattr(reads, "standings", slipping)
    question = (device(1), "app-health", PERIOD)
    for _ in range(2):
        answers = await asyncio.gather(*(desk.ask(question) for _ in range(3)), return_exceptions=True)
        assert [getattr(answer, "problem", answer) for answer in answers] == [StoreProblem.REFUSED] * 3
    assert slips == []
    assert (await desk.ask(question)).reports == 1
    assert access.working, "no outage: it is one call's fault"
    assert await access.close(5)


async def test_housekeeping_survives_it_and_comes_back(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slips: list[Exception] = [ZeroDivisionError(), KeyError("secret")]
    real = reads.chunks

    def slipping(*arguments: Any) -> Any:
        if slips:
            raise slips.pop()
        return real(*arguments)

    monkeypatch.setattr("collector.service.storage_folding.chunks", slipping)
    monkeypatch.setattr("collector.service.housekeeping.FIRST_S", 0.0)
    monkeypatch.setattr("collector.service.housekeeping.EVERY_S", 0.01)
    monkeypatch.setattr(CollectorStore, "agreed_time", lambda _store, now: now)
    monitor = Monitor()
    access = StoreAccess(store, monitor)
    keeping = Housekeeping(access, monitor, lambda: NOW + 800 * 86_400, Retention())
    task = asyncio.create_task(keeping.run())
    await until(lambda: keeping.last_success_at is not None or task.done(), timeout_s=20)
    assert not task.done(), "it goes on"
    task.cancel()
    assert (slips, monitor.counted("housekeeping.failures")) == ([], 2)
    assert monitor.counted("housekeeping.spends") == 6
    assert "failed with ZeroDivisionError in " in caplog.text
    assert "secret" not in caplog.text
    assert await access.close(5)


def test_the_doctor_goes_on_where_a_check_meets_what_nobody_expects(
    store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slips(*_: object) -> Any:
        raise TypeError("secret")

    monkeypatch.setattr("collector.service.doctor_sums._add_cell", slips)
    found = {result.check.name: result.examples for result in examine(store, NOW).results if result.found}
    found.pop("durability", None)
    assert found == dict.fromkeys(("sums complete", "sums plausible"), ("cannot be read to the end (TypeError)",))


# --- a file that cannot be looked at ----------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [True, False])
def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path, *, read_only: bool) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path / ("n" * 300), loop / "collector.db"):
        with pytest.raises(StoreError) as caught:
            CollectorStore.open(str(path), read_only=read_only)
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreError):
            CollectorStore.open_existing(str(path))


def test_a_folder_and_what_lies_below_a_file_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, says in ((tmp_path, "is a folder"), (tmp_path / "file" / "db", "no such store")):
        with pytest.raises(StoreError, match=says) as caught:
            CollectorStore.open(str(path), read_only=True)
        assert caught.value.problem is StoreProblem.MISSING
