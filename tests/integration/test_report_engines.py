"""One store, read as it is, from PostgreSQL, and out of an export by every engine: the same documents, to the byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from collector.reduced import Reduced, reduce_sums
from collector.reports import build_report, to_json
from collector.service import documents
from collector.service.engines.base import Files
from collector.service.engines.exported import Exported
from collector.service.engines.on_duckdb import OnDuckdb
from collector.service.engines.one_device import one_device
from collector.service.parquet_export import Asked, export
from collector.service.storage import CollectorStore, StoredPlan
from collector.service.storage_cohorts import rounds_of_periods
from tests import hostile_sums as hostile
from tests.postgres import database
from tests.unit.collector.service.stores import make_plan, make_release


class OfStore:
    """As `reports` asks."""

    def __init__(self, store: CollectorStore) -> None:
        self.store = store

    def plans(self) -> list[StoredPlan]:
        return self.store.plans()

    def reduced(self, metric: str | None, since: int | None, until: int | None) -> Reduced:
        return reduce_sums(self.store.released_sums(metric, since, until))


def exported(store: CollectorStore, folder: Path) -> Files:
    store.look(lambda conn: export(conn, folder, hostile.NOW, Asked()))
    return Files.of(folder)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CollectorStore]]:
    with database() as url:
        found = {
            "sqlite": CollectorStore.open(str(tmp_path_factory.mktemp("store") / "a.db")),
            "postgres": CollectorStore.open(url),
        }
        for store in found.values():
            hostile.fill(store)
        yield found
        for store in found.values():
            store.close()


@pytest.fixture(scope="module")
def files(stores: dict[str, CollectorStore], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    return {name: exported(store, tmp_path_factory.mktemp("out") / name) for name, store in stores.items()}


@pytest.fixture(scope="module")
def expected(stores: dict[str, CollectorStore]) -> list[str]:
    return hostile.reports(OfStore(stores["sqlite"]))


def test_the_hard_cases_are_reached(stores: dict[str, CollectorStore], expected: list[str]) -> None:
    reduced = reduce_sums(stores["sqlite"].released_sums())
    numbers = [total for totals in reduced.totals.values() for total in totals]
    assert max(numbers) == 4 * hostile.LARGEST - 6 > 2**63
    assert min(numbers) == -4 * hostile.LARGEST + 2 < -(2**63)
    assert len({plan_hash for plan_hash, _, _ in reduced.totals}) == 400 + 3
    assert any(head.contributors == 0 for head in reduced.heads)
    assert {head.delivery for head in reduced.heads} == {"interactive", "direct"}
    assert {len(totals) for totals in reduced.totals.values()} >= {hostile.LONG, 1}
    assert "прив" in expected[0]


def test_postgresql_gives_the_same_bytes(stores: dict[str, CollectorStore], expected: list[str]) -> None:
    assert hostile.reports(OfStore(stores["postgres"])) == expected


def test_exports_of_both_are_the_same_files(files: dict[str, Files]) -> None:
    parts = [{name: list(found) for name, found in one.manifest.tables.items()} for one in files.values()]
    names = [{name: [part.path for part in found] for name, found in one.items()} for one in parts]
    assert names[0] == names[1], "a file's name is the digest of its content"


@pytest.mark.parametrize("engine", ["python", "duckdb"])
def test_an_export_gives_the_same_bytes(files: dict[str, Files], expected: list[str], engine: str) -> None:
    source = Exported(files["postgres"], OnDuckdb(files["postgres"]) if engine == "duckdb" else None)
    try:
        assert hostile.reports(source) == expected
    finally:
        source.close()


@pytest.mark.parametrize("engine", ["python", "duckdb"])
def test_what_is_left_is_of_the_window_and_the_metric_alone(
    stores: dict[str, CollectorStore], files: dict[str, Files], engine: str
) -> None:
    source = Exported(files["sqlite"], OnDuckdb(files["sqlite"]) if engine == "duckdb" else None)
    for metric, (since, until) in product((None, "seconds"), hostile.WINDOWS):
        found = source.reduced(metric, since, until)
        expected = OfStore(stores["sqlite"]).reduced(metric, since, until)
        assert sorted(map(repr, found.heads)) == sorted(map(repr, expected.heads))
        assert {key: list(one) for key, one in found.totals.items()} == expected.totals
        assert found.cohorts == expected.cohorts
    source.close()


def test_rounds_of_periods_are_the_stores(stores: dict[str, CollectorStore], files: dict[str, Files]) -> None:
    source = Exported(files["sqlite"], OnDuckdb(files["sqlite"]))
    for since, until in hostile.WINDOWS:
        asked = stores["sqlite"].look(lambda conn, window=(since, until): rounds_of_periods(conn, *window))
        found = source.rounds_of_periods(since, until)
        assert sorted(map(repr, found)) == sorted(map(repr, asked))
    assert any(one.reason is None and one.contributors for one in source.rounds_of_periods(None, None))
    source.close()


@pytest.mark.parametrize("folded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_ledgers_of_an_export_are_the_stores(tmp_path: Path, folded: bool) -> None:
    store = CollectorStore.open(str(tmp_path / "a.db"))
    hostile.fill(store, versions=12)
    if folded:
        hostile.fold(store)
    now = hostile.NOW + 3 * hostile.DAY_S
    source = Exported(exported(store, tmp_path / "out"), OnDuckdb(Files.of(tmp_path / "out")))
    windows = ("7d", "lifetime")
    rhos = {plan.hash: 10**6 + i for i, plan in enumerate(hostile.PLANS) if i != 3}  # and one unknown
    for window in windows:
        of_store = store.fleet_sums(now, window, rhos)
        of_store.sort(key=lambda one: (one.micro_epsilon, one.micro_rho, one.whole))
        assert source.spending().fleet_sums(now, window, rhos) == of_store
    assert hostile.ledgers(source.spending(), now, windows) == hostile.ledgers(store, now, windows)
    for number in (0, 21, 9_001):
        device = hostile.device(number)
        with one_device(source.engine, device) as alone:
            expected = documents.device_document(store, device, now)
            assert to_json(documents.device_document(alone, device, now)) == to_json(expected)
    with one_device(source.engine, "f" * 32) as alone, pytest.raises(documents.UnknownDeviceError):
        documents.device_document(alone, "f" * 32, now)
    source.close()


def test_an_empty_store(tmp_path: Path) -> None:
    store = CollectorStore.open(str(tmp_path / "a.db"))
    files = exported(store, tmp_path / "out")
    for engine in (None, OnDuckdb(files)):
        source = Exported(files, engine)
        assert to_json(build_report(source.plans(), source.reduced())) == to_json(build_report([], []))
        source.close()
    source = Exported(files, OnDuckdb(files))
    assert hostile.ledgers(source.spending()) == hostile.ledgers(store)
    source.close()


# case F03
def test_an_export_and_its_report_while_rounds_are_stored_are_of_one_moment(tmp_path: Path) -> None:
    """Every round has three devices, two metrics of one moment, and costs its devices: no part of one is ever seen."""
    path, plan, rounds = str(tmp_path / "a.db"), make_plan(), 40
    store = CollectorStore.open(path)
    store.put_plan(plan, hostile.NOW)
    done = threading.Event()
    failed: list[BaseException] = []

    def upload() -> None:
        try:
            for i in range(rounds):
                store.store_release(make_release(plan, f"r{i}", range(3 * i, 3 * i + 3)))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test says so
            failed.append(error)
        done.set()

    writer = threading.Thread(target=upload)
    writer.start()
    seen: list[int] = []
    while not (ended := done.is_set()) or not seen:
        reader = CollectorStore.open(path, read_only=True)
        files = exported(reader, tmp_path / "out")
        source = Exported(files, OnDuckdb(files))
        colour, seconds = build_report(source.plans(), source.reduced())["metrics"]
        spent = source.spending().lifetimes_micro_epsilon()
        assert colour["contributors"] == seconds["contributors"] == len(spent)
        assert len(spent) % 3 == 0
        seen.append(len(spent))
        source.close()
        reader.close()
        if ended:
            break
    writer.join()
    assert not failed
    assert seen == sorted(seen)
    final = exported(store, tmp_path / "out")
    assert Exported(final, None).reduced().heads[0].rounds == rounds
