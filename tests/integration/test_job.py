"""The nightly job among other processes: uploads that go on, a second run, and a power switch at every step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.reports.due import SETTLE_S
from collector.reports.manifest import NAME
from collector.service.job import files
from collector.service.job.config import JobConfig
from collector.service.job.running import run_job
from collector.service.storage import CollectorStore
from tests.postgres import database
from tests.unit.collector.service.stores import DAY_S, PERIOD, make_plan, make_release

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = ("json", "privacy", "prometheus")
NOW = PERIOD + 3 * DAY_S


def filled(path: Path) -> CollectorStore:
    store = CollectorStore.open(str(path))
    plan = make_plan()
    store.put_plan(plan, PERIOD)
    for day in range(2):
        start = PERIOD + day * DAY_S
        store.store_release(make_release(plan, f"r{day}", range(30), period_start=start, now=start + DAY_S - 9))
    return store


def interrupted(db: Path, work: Path, now: int, before: int, outputs: tuple[str, ...]) -> dict[str, int]:
    work.mkdir()
    words = [
        sys.executable,
        "-m",
        "tests.interrupted_job",
        str(db),
        str(work),
        str(now),
        str(before),
        f"{db}-before",
        ",".join(outputs),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_step_and_run_again(tmp_path: Path) -> None:
    filled(tmp_path / "c.db").close()
    found = interrupted(tmp_path / "c.db", tmp_path / "work", PERIOD + DAY_S, 0, OUTPUTS)
    assert found["files"] == len(OUTPUTS) + 2
    assert found["steps"] > 3 * found["files"], "at each of its files: opened, on the disk, named"
    assert found["torn"] > found["steps"] // 2, "most of them have left something half done"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_while_a_late_cohort_is_added_and_a_window_made_final(tmp_path: Path) -> None:
    filled(tmp_path / "c.db").close()
    shutil.copy(tmp_path / "c.db", tmp_path / "c.db-before")
    store, over = CollectorStore.open(str(tmp_path / "c.db")), PERIOD + 3 * DAY_S + 60
    late = make_release(make_plan(), "late", range(30, 50), period_start=PERIOD + DAY_S, now=over - 60)
    store.store_release(late)
    store.close()
    # the first day becomes final, the second gets the cohort, the third is new
    found = interrupted(tmp_path / "c.db", tmp_path / "work", over, PERIOD + 2 * DAY_S, ("json", "prometheus"))
    assert found["files"] == 3 * 3 + 1
    said = [_said(tmp_path / "work" / "torn" / f"day={day}") for day in ("2026-05-28", "2026-05-29")]
    assert [(one["final"], one["reports"]) for one in said] == [(True, 30), (False, 50)]
    assert found["torn"] > found["steps"] // 2


# case F03
def test_uploads_go_on_while_it_runs(tmp_path: Path) -> None:
    store = filled(tmp_path / "c.db")
    plan, stop, failed, stored = make_plan(), threading.Event(), [], []

    def upload() -> None:
        number = 0
        while not stop.is_set():
            devices = range(1_000 + 3 * number, 1_003 + 3 * number)
            start = PERIOD + (number % 3) * DAY_S
            try:
                store.store_release(make_release(plan, f"u{number}", devices, period_start=start, now=NOW))
                stored.append(number)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed upload
                failed.append(error)
            number += 1

    config = JobConfig(tmp_path / "out", str(tmp_path / "c.db"), outputs=("json", "privacy", "html"))
    thread = threading.Thread(target=upload)
    thread.start()
    try:
        for _ in range(4):
            seen = len(stored)
            assert run_job(config, NOW).failed == []
            assert len(stored) > seen, "uploads went on meanwhile"
            for folder in config.out.glob("day=*"):
                document, said = (json.loads((folder / name).read_text()) for name in ("report.json", "manifest.json"))
                assert document["metrics"][0]["contributors"] == said["reports"], "both of one moment"
    finally:
        stop.set()
        thread.join()
    assert failed == []
    store.close()
    run_job(config, NOW)
    said = [_said(folder) for folder in sorted(config.out.glob("day=*"))]
    late = 3 * len([number for number in stored if number % 3 == 0])
    assert (said[0]["reports"], said[0]["late"]["reports"]) == (30, late), "its grace was over"
    assert sum(one["reports"] + one["late"]["reports"] for one in said) == 60 + 3 * len(stored)


def _said(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def test_postgresql_gives_the_same_files(tmp_path: Path) -> None:
    """A late cohort within the grace and one after it, two plan versions; read as it is and by DuckDB."""
    every = ("json", "csv", "html", "parquet", "privacy", "prometheus")
    with database() as url:
        found = {}
        for name, db in (("sqlite", str(tmp_path / "a.db")), ("postgres", url), ("duckdb", url)):
            if name != "duckdb":
                fill(db)
            engine = "duckdb" if name == "duckdb" else None
            config = JobConfig(tmp_path / name, db, engine=engine, outputs=every)
            assert run_job(config, NOW + SETTLE_S).failed == []
            found[name] = {path: data for path, data in contents(config.out).items() if path != "latest.prom"}
    assert len(found["sqlite"]) == 3 * (len(every) + 1)
    assert found["postgres"] == found["sqlite"]
    assert found["duckdb"] == found["sqlite"]
    (said,) = (json.loads(data) for path, data in found["sqlite"].items() if path == "day=2026-05-28/manifest.json")
    assert (said["final"], said["reports"], said["late"]) == (True, 50, {"rounds": 1, "reports": 20})


def fill(db: str) -> None:
    """The same rounds, whatever the store."""
    store = CollectorStore.open(db)
    for version, name, day, after in (
        (1, "a", 0, -9),
        (2, "b", 0, DAY_S),
        (2, "late", 0, 2 * DAY_S + 1),
        (1, "c", 1, 5),
    ):
        plan = make_plan(version, epsilon=f"{version}.0")
        store.put_plan(plan, PERIOD)
        start, devices = (
            PERIOD + day * DAY_S,
            range(30) if name in "ac" else range(len(name) * 100, len(name) * 100 + 20),
        )
        store.store_release(make_release(plan, name, devices, period_start=start, now=start + DAY_S + after))
    store.close()


def contents(out: Path) -> dict[str, bytes]:
    """Every file, of manifests what does not name the source."""
    found = {}
    for path in out.rglob("*"):
        if path.is_file() and path.name != files.LOCK:
            data = path.read_bytes()
            if path.name == NAME:
                data = json.dumps({**json.loads(data), "source": None}).encode()
            found[str(path.relative_to(out))] = data
    return found


def test_two_at_once(tmp_path: Path) -> None:
    filled(tmp_path / "c.db").close()
    (tmp_path / "job.toml").write_text('db = "c.db"\nout = "out"\nsince = "2026-05-01"\nlog_level = "warning"\n')
    words = [sys.executable, "-m", "collector.service", "job", "--config", "job.toml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [*words, *wait], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for wait in ([], ["--wait", "2m"], ["--wait", "2m"])
    ]
    done = [(*one.communicate(timeout=180), one.returncode) for one in both]
    impatient, *patient = done
    assert {status for *_, status in patient} == {0}
    assert impatient[2] in {0, 4}
    if impatient[2] == 4:
        assert "another run is writing there (process " in impatient[1]
        assert impatient[1].count("\n") == 1
    written = [int(out.split(": ")[1].split()[0]) for out, _, status in done if status == 0]
    closed = int(patient[0][0].split()[0])
    assert sorted(written)[:-1] == [0] * (len(written) - 1), "one did it all, the others found it done"
    assert max(written) == closed >= 2
