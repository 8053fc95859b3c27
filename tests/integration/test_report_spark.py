"""Apache Spark, on this machine and on a real cluster: the same bytes as from the store, also when a worker dies.

    pytest -n0 -m spark tests/integration/test_report_spark.py

takes some minutes, and needs Java 17 and the `spark` extra.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import ibis

from collector.reduced import Reduced, reduce_sums
from collector.reports import build_report, to_json
from collector.reports.due import SETTLE_S
from collector.service import documents
from collector.service.engines import arrow, on_spark
from collector.service.engines.base import EngineError, Files
from collector.service.engines.exported import Exported
from collector.service.engines.on_duckdb import OnDuckdb
from collector.service.engines.on_spark import OnSpark
from collector.service.engines.one_device import one_device
from collector.service.job.config import JobConfig
from collector.service.job.running import run_job
from collector.service.parquet_export import Asked, export
from collector.service.storage import CollectorStore, StoredPlan
from tests import generated_export
from tests import hostile_sums as hostile
from tests.spark_cluster import cluster
from tests.unit.collector.service.stores import DAY_S, PERIOD, make_plan, make_release

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FEW = {"spark.sql.shuffle.partitions": "4", "spark.default.parallelism": "4"}
NOW = hostile.NOW + 3 * hostile.DAY_S


class OfStore:
    """As `hostile.reports` asks."""

    def __init__(self, store: CollectorStore) -> None:
        self.store = store

    def plans(self) -> list[StoredPlan]:
        return self.store.plans()

    def reduced(self, metric: str | None, since: int | None, until: int | None) -> Reduced:
        return reduce_sums(self.store.released_sums(metric, since, until))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorStore]:
    made = CollectorStore.open(str(tmp_path_factory.mktemp("store") / "a.db"))
    hostile.fill(made)
    yield made
    made.close()


@pytest.fixture(scope="module")
def files(store: CollectorStore, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("exported") / "out"
    store.look(lambda conn: export(conn, folder, NOW, Asked()))
    return Files.of(folder)


def test_on_this_machine(store: CollectorStore, files: Files, tmp_path: Path) -> None:
    """Reports; what a fleet has spent; a device; rounds by period; tables without rows. One session for all."""
    few = CollectorStore.open(str(tmp_path / "few.db"))
    hostile.fill(few, versions=6)
    hostile.fold(few)
    few.look(lambda conn: export(conn, tmp_path / "few", NOW, Asked()))
    empty = CollectorStore.open(str(tmp_path / "empty.db"))
    empty.look(lambda conn: export(conn, tmp_path / "empty", NOW, Asked()))
    source = Exported(files, OnSpark(files, "local[2]", FEW))
    assert hostile.reports(source) == hostile.reports(OfStore(store))
    source.close()
    source = Exported(Files.of(tmp_path / "few"), OnSpark(Files.of(tmp_path / "few"), "local[2]", FEW))
    assert hostile.ledgers(source.spending(), NOW, ("lifetime",)) == hostile.ledgers(few, NOW, ("lifetime",))
    asked = Exported(Files.of(tmp_path / "few"), OnDuckdb(Files.of(tmp_path / "few"))).rounds_of_periods(None, None)
    assert sorted(map(repr, source.rounds_of_periods(None, None))) == sorted(map(repr, asked))
    with one_device(source.engine, hostile.device(0)) as alone:
        of_store = documents.device_document(few, hostile.device(0), NOW)
        assert to_json(documents.device_document(alone, hostile.device(0), NOW)) == to_json(of_store)
    source.close()
    source = Exported(Files.of(tmp_path / "empty"), OnSpark(Files.of(tmp_path / "empty"), "local[2]", FEW))
    assert to_json(build_report(source.plans(), source.reduced())) == to_json(build_report([], []))
    assert hostile.ledgers(source.spending(), NOW, ("lifetime",)) == hostile.ledgers(empty, NOW, ("lifetime",))
    source.close()


def test_the_nightly_job_writes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two days, the first with a cohort that came after its grace; from an export, and from the store itself."""
    monkeypatch.setattr(on_spark, "SETTINGS", on_spark.SETTINGS | FEW)
    made = CollectorStore.open(str(tmp_path / "a.db"))
    plan, now = make_plan(), PERIOD + 3 * DAY_S + SETTLE_S
    made.put_plan(plan, PERIOD)
    for name, day, after, devices in (
        ("r", 0, 0, range(40)),
        ("late", 0, 2 * DAY_S, range(40, 60)),
        ("s", 1, 0, range(30)),
    ):
        start = PERIOD + day * DAY_S
        made.store_release(make_release(plan, name, devices, period_start=start, now=start + DAY_S + after))
    made.look(lambda conn: export(conn, tmp_path / "exported", now, Asked()))
    made.close()
    outputs = ("json", "csv", "html", "parquet", "privacy", "prometheus")
    config = JobConfig(tmp_path / "plain", str(tmp_path / "a.db"), engine="python", outputs=outputs)
    spark = replace(config, engine="spark", master="local[2]")
    wanted: dict[str, bytes] = {}
    for one in (
        config,
        replace(spark, out=tmp_path / "of_store"),
        replace(spark, out=tmp_path / "of_export", db=None, parquet=tmp_path / "exported"),
    ):
        assert run_job(one, now).failed == []
        found = {
            f"{path.parent.name}/{path.name}": path.read_bytes()
            for path in one.out.glob("day=*/*")
            if path.name != "manifest.json"
        }
        assert found == (wanted := wanted or found)
    assert len(wanted) == 3 * len(outputs), "a folder for each day that has closed"


def test_a_sum_that_does_not_fit_is_an_error(files: Files) -> None:
    """DECIMAL(38) has room for every total of a store; this is what happens beyond."""
    engine = OnSpark(files, "local[2]", FEW)
    sums = engine.table("released_sums")
    wide = sums.mutate(wide=ibis.literal(Decimal(6 * 10**37), "decimal(38, 0)"))
    with pytest.raises(EngineError, match="Spark"):
        list(arrow.rows(engine.batches(wide.agg(total=wide.wide.sum()))))
    engine.close()


def test_on_a_cluster_and_with_a_worker_that_dies(store: CollectorStore, files: Files, tmp_path: Path) -> None:
    plan = make_plan(categories=[f"c{i}" for i in range(200)])
    generated_export.released_sums(tmp_path / "large", plan, days=20, rounds=200)
    large = Files.of(tmp_path / "large")
    expected = to_json(build_report([plan], arrow.reduced(OnDuckdb(large), None, None, None)))
    settings = FEW | {"spark.executor.memory": "512m", "spark.sql.files.maxPartitionBytes": "1m"}
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as running:
        source = Exported(files, OnSpark(files, running.url, settings))
        assert hostile.reports(source) == hostile.reports(OfStore(store))
        source.close()
        engine = OnSpark(large, running.url, settings)
        killed = threading.Event()
        killer = threading.Thread(target=_kill_when_busy, args=(engine, running, killed))
        killer.start()
        assert to_json(build_report([plan], arrow.reduced(engine, None, None, None))) == expected
        killer.join()
        assert killed.is_set(), "the job was over before the worker died"
        assert to_json(build_report([plan], arrow.reduced(engine, None, None, None))) == expected
        engine.close()


def _kill_when_busy(engine: OnSpark, running: Any, killed: threading.Event) -> None:
    """As soon as a stage has finished some of its tasks and not all."""
    status = engine._spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for stage in status.getActiveStageIds():
            info = status.getStageInfo(stage)
            if info is not None and 0 < info.numCompletedTasks < info.numTasks:
                running.kill_worker()
                killed.set()
                return
        time.sleep(0.01)
