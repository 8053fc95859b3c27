"""An outage is over when what failed would work: one line begins it, one ends it, and nothing is tried on devices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from client_sdk.errors import LocalProtocolError
from client_sdk.identity import IdentityKey
from collector.service import store_access
from collector.service.monitoring import Monitor
from collector.service.registrar.store import RegistrarStore
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.store_access import StoreAccess
from tests.integration.participants import until
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, connection, counts, execute, make_plan, make_release

PLAN = make_plan()
RELEASE = make_release(PLAN, "r2", range(2), period_start=PERIOD - DAY_S)


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROBE_EVERY_S", 0.02)


@pytest.fixture
def store(own_store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(own_store_url, busy_timeout_s=0.05)
    opened.put_plan(PLAN, NOW)
    opened.store_release(make_release(PLAN))
    yield opened
    opened.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def one_outage(
    access: StoreAccess[CollectorStore], trouble: AbstractContextManager[None], caplog: pytest.LogCaptureFixture
) -> StoreError:
    """A release fails in the trouble; the outage lasts as long as that. Returns what was said of it."""
    with trouble:
        with pytest.raises(StoreError) as caught:
            await access.call(CollectorStore.store_release, RELEASE)
        await asyncio.sleep(0.5)  # many probes
        assert not access.working
        assert len(lines(caplog)) == 1
    await until(lambda: access.working)
    await until(lambda: len(lines(caplog)) == 2)
    assert "is over after" in lines(caplog)[1]
    return caught.value


def counts_of(store: CollectorStore) -> tuple[int, ...]:
    return len(store.rounds()), len(store.contributions()), len(store.released_sums())


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, place: str) -> Iterator[None]:
    """A step of the write, which nothing but the write comes to, fails."""

    def fails(*_: object) -> None:
        raise StoreError("db", StoreProblem.INPUT_OUTPUT)

    with monkeypatch.context() as patch:
        patch.setattr(place, fails)
        yield


async def test_an_outage_lasts_until_the_write_that_failed_works(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, access = counts_of(store), StoreAccess(store, Monitor())
    await one_outage(access, broken(monkeypatch, "collector.service.storage_writes._count"), caplog)
    assert counts_of(store) == before, "what was gone through once more left nothing"
    await access.call(CollectorStore.store_release, RELEASE)
    assert len(store.contributions()) == 5
    await access.close(5)


@contextmanager
def transaction(url: str, statement: str) -> Iterator[None]:
    """Somebody's, left open."""
    with connection(url) as conn:
        conn.execute(statement)
        try:
            yield
        finally:
            conn.rollback()


@pytest.mark.parametrize(
    "holds",
    [
        "LOCK TABLE contributions IN ACCESS EXCLUSIVE MODE",
        "LOCK TABLE spends IN SHARE MODE",
        "SELECT * FROM device_totals FOR UPDATE",
    ],
    ids=["table", "index", "rows"],
)
async def test_a_lock_that_somebody_holds_is_one_outage(
    postgres_url: str, caplog: pytest.LogCaptureFixture, holds: str
) -> None:
    store, monitor = CollectorStore.open(postgres_url, busy_timeout_s=0.05), Monitor()
    store.put_plan(PLAN, NOW)
    store.store_release(make_release(PLAN))
    access = StoreAccess(store, monitor)
    said = await one_outage(access, transaction(postgres_url, holds), caplog)
    assert said.problem is StoreProblem.LOCKED
    assert monitor.counted("outages.locked") == 1
    await access.call(CollectorStore.store_release, RELEASE)
    assert counts(postgres_url)["contributions"] == 5
    await access.close(5)


def test_a_probe_sees_what_no_write_has_met_yet(store: CollectorStore, own_store_url: str) -> None:
    store.probe()
    execute(own_store_url, "DROP TABLE spends")
    with pytest.raises(StoreError) as caught:
        store.probe()
    assert caught.value.problem is StoreProblem.DAMAGED


def test_a_write_that_is_refused_when_it_is_repeated_has_had_its_answer(
    store: CollectorStore,
) -> None:
    answers: list[Exception] = [LocalProtocolError("no"), StoreError("db", StoreProblem.LOCKED)]

    def work(_conn: object) -> None:
        raise answers.pop()

    with pytest.raises(StoreError):
        store._write(work)
    store.probe()
    assert answers == []
    store.probe()


def test_housekeeping_is_not_gone_through_again(store: CollectorStore) -> None:
    """It may take minutes, in which devices could be counted."""
    asked: list[str] = []

    def work(_conn: object) -> None:
        asked.append("tidied")
        raise StoreError("db", StoreProblem.UNREACHABLE)

    with pytest.raises(StoreError):
        store._tidy(work)
    store.probe()
    assert asked == ["tidied"]


def test_a_device_that_enrols_is_gone_through_again_and_not_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = RegistrarStore.open(str(tmp_path / "r.db")), IdentityKey(b"k" * 32).public_key
    (token,) = store.issue_tokens(1, NOW)
    with broken(monkeypatch, "collector.service.registrar.store._note_certified"):
        with pytest.raises(StoreError):
            store.enrol(token, key, NOW, until=NOW + 9, repeat_for_s=9)
        with pytest.raises(StoreError):
            store.probe()
        with pytest.raises(StoreError):
            store.renew(key, NOW, until=NOW + 9)
        with pytest.raises(StoreError):
            store.probe()
    assert token not in repr(store._failed)
    store.probe()
    assert (store.overview(NOW).tokens_open, store.overview(NOW).identities) == (1, 0)
    store.close()


# --- tables that are gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opens", [CollectorStore.open, CollectorStore.open_existing])
def test_a_store_without_all_its_tables_is_refused_by_name(
    store: CollectorStore, own_store_url: str, opens: Callable[[str], CollectorStore]
) -> None:
    execute(own_store_url, "DROP TABLE spends")
    with pytest.raises(StoreError) as caught:
        store.store_release(make_release(PLAN, "r2", range(5, 9)))
    assert caught.value.problem is StoreProblem.DAMAGED
    with pytest.raises(StoreError, match="table spends is missing; run `ldp-collector doctor`") as caught:
        opens(own_store_url)
    assert caught.value.problem is StoreProblem.DAMAGED
    assert "\n" not in str(caught.value)
