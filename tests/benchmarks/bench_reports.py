"""Report jobs: the reduce against the same SQL in the bare engine, and a fleet's ledger, with time and peak memory.

    python -m pytest tests/benchmarks/bench_reports.py -m bench -n0 -s
    LDP_BENCH_FULL=1 python -m pytest tests/benchmarks/bench_reports.py -m bench -n0 -s

The first has a tenth of the rows and a fiftieth of the devices. In full: 10 million released cells, and 300 million
spends of 10 million devices in 30 days (about 12 GB of files in the temporary folder, and as much again while DuckDB
and Spark sort). Every measurement is a process of its own, so that its peak is its own; the bare engine and ours take
turns in it, three times, and the best of each counts. Targets: at most twice the bare engine; DuckDB under 8 GiB.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from collector.accounting import fleet
from collector.reports import build_report
from collector.service import documents
from collector.service.engines import arrow
from collector.service.engines.base import Engine, Files
from collector.service.engines.spending import Spending
from tests import generated_export
from tests.unit.collector.plans import plan_of
from tests.unit.collector.service.stores import make_plan

FULL: Final = os.environ.get("LDP_BENCH_FULL") == "1"
ROOT: Final = Path(__file__).parents[2]
DAYS, ROUNDS = 365, 136 if FULL else 14
DEVICES: Final = 10_000_000 if FULL else 200_000
LEDGER_DAYS: Final = 30
SUMS: Final = make_plan(categories=[f"c{i}" for i in range(200)])
LEDGER: Final = plan_of('[metrics.seconds]\nkind = "numeric"\nlower = 0\nupper = 10\nepsilon = 1\n')

TOTALS: Final = """
SELECT plan_hash, metric, period_start, cell, sum(CAST(total AS DECIMAL(38, 0))) AS total, count(*) AS rounds,
    count(total) AS known
FROM released_sums GROUP BY plan_hash, metric, period_start, cell"""
HEADS: Final = """
SELECT plan_hash, metric, period_start, delivery, contributors, roster, resent, reports, count(*) AS rounds
FROM released_sums WHERE cell = 0
GROUP BY plan_hash, metric, period_start, delivery, contributors, roster, resent, reports"""
COHORTS: Final = """
SELECT round, plan_hash, metric, period_start, delivery, contributors, roster, resent, reports, cell, total
FROM released_sums WHERE delivery <> 'direct' AND contributors > 0 AND metric NOT IN ('network')"""
"""Of the metric that has few enough to be compared."""

QUESTIONS: Final = (TOTALS, HEADS, COHORTS)

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]


# --- in a process of its own ------------------------------------------------------------------------


def engine_of(name: str, files: Files) -> Engine:
    """duckdb, spark (on this machine), or a cluster's URL."""
    if name == "duckdb":
        from collector.service.engines.on_duckdb import OnDuckdb

        return OnDuckdb(files)
    from collector.service.engines.on_spark import OnSpark

    settings = {"spark.driver.memory": "3g", "spark.executor.memory": "2g", "spark.sql.shuffle.partitions": "64"}
    return OnSpark(files, "local[2]" if name == "spark" else name, settings)


def bare(name: str, engine: Any) -> int:
    """The same questions without us: rows that came back."""
    if name == "duckdb":
        return sum(len(batch) for sql in QUESTIONS for batch in engine._ibis.con.sql(sql).to_arrow_reader())
    return sum(engine._spark.sql(sql).toArrow().num_rows for sql in QUESTIONS)


def reduce_and_report(name: str, folder: str) -> dict[str, float]:
    engine = engine_of(name, Files.of(Path(folder)))
    engine.table("released_sums")
    times: dict[str, list[float]] = {"bare": [], "ours": [], "report": []}
    for _ in range(3):
        _timed(times["bare"], lambda: bare(name, engine))
        reduced = _timed(times["ours"], lambda: arrow.reduced(engine, None, None, None))
        _timed(times["report"], lambda found=reduced: build_report([SUMS], found))
    engine.close()
    return {what: min(found) for what, found in times.items()}


def ledger_totals(name: str, folder: str) -> dict[str, float]:
    files = Files.of(Path(folder))
    engine = engine_of(name, files)
    times: list[float] = []
    source = Spending(files, engine)
    rhos = {LEDGER.hash: fleet.micro_rho(LEDGER)}
    sums = _timed(times, lambda: source.fleet_sums(files.manifest.exported_at, "lifetime", rhos))
    assert sum(one.devices for one in sums) == DEVICES
    engine.close()
    return {"totals": times[0]}


def ledger_document(name: str, folder: str) -> dict[str, float]:
    files = Files.of(Path(folder))
    engine = engine_of(name, files)
    times: list[float] = []
    source, now = Spending(files, engine), files.manifest.exported_at
    _timed(times, lambda: documents.exact_fleet_document(source, now, ["30d", "lifetime"], documents.DEFAULT))
    engine.close()
    return {"document": times[0]}


def _timed(times: list[float], work: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    found = work()
    times.append(time.perf_counter() - began)
    return found


def main() -> None:
    work = {one.__name__: one for one in (reduce_and_report, ledger_totals, ledger_document)}
    found = work[sys.argv[1]](*sys.argv[2:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(json.dumps({**found, "peak_gib": peak}) + "\n")


def measured(what: str, engine: str, folder: Path) -> dict[str, float]:
    """Of a process of its own; Spark's JVM is another one, and is counted by `memory_of`."""
    command = [sys.executable, __file__, what, engine, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- measurements -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from _generated(tmp_path_factory, lambda folder: generated_export.released_sums(folder, SUMS, DAYS, ROUNDS))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    make = lambda folder: generated_export.ledger(folder, LEDGER, DEVICES, LEDGER_DAYS)  # noqa: E731
    yield from _generated(tmp_path_factory, make)


def _generated(factory: pytest.TempPathFactory, make: Callable[[Path], int]) -> Iterator[Path]:
    import shutil

    folder = factory.mktemp("bench") / "out"
    began = time.perf_counter()
    rows = make(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 2**20
    print(f"\n{rows:,} rows, {size:,.0f} MiB of Parquet, made in {time.perf_counter() - began:,.0f} s")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_the_reduce_against_the_bare_engine(sums: Path, engine: str) -> None:
    found = measured("reduce_and_report", engine, sums)
    print(
        f"\n{engine}: bare {found['bare']:.2f} s, ours {found['ours']:.2f} s ({found['ours'] / found['bare']:.2f} x), "
        f"then decoding {found['report']:.2f} s; peak {found['peak_gib']:.2f} GiB"
    )


def test_ledger_totals_on_duckdb(ledger: Path) -> None:
    found = measured("ledger_totals", "duckdb", ledger)
    print(f"\nduckdb: totals of {DEVICES:,} devices in {found['totals']:.1f} s; peak {found['peak_gib']:.2f} GiB")
    assert found["peak_gib"] < 8


def test_the_distribution_on_duckdb(ledger: Path) -> None:
    found = measured("ledger_document", "duckdb", ledger)
    print(f"\nduckdb: 30d and lifetime, exactly, in {found['document']:.1f} s; peak {found['peak_gib']:.2f} GiB")
    assert found["peak_gib"] < 8


def test_ledger_totals_on_a_cluster(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.spark_cluster import cluster

    with cluster(tmp_path, memory="3g") as running, memory_of(running.groups) as peak:
        found = measured("ledger_totals", running.url, ledger)
        workers = peak()
    print(
        f"\nspark, two workers: totals of {DEVICES:,} devices in {found['totals']:.1f} s; peak {workers:.2f} GiB of "
        "the cluster's processes together"
    )


@contextmanager
def memory_of(groups: Callable[[], set[int]]) -> Iterator[Callable[[], float]]:
    """The largest resident memory of these process groups together, GiB, looked at ten times a second."""
    most, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            most[0] = max(most[0], _resident(groups()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most[0]
    finally:
        done.set()
        thread.join()


def _resident(groups: set[int]) -> float:
    pages = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) in groups:
                pages += int((path / "statm").read_text().split()[1])
        except (OSError, ProcessLookupError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


if __name__ == "__main__":
    main()
