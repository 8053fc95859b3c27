"""The nightly job among other processes: uploads that go on, a second run, and a power switch at every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.service.job.config import JobConfig
from collector.service.job.running import run_job
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, PERIOD, make_plan, make_release

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = ("json", "csv", "html", "parquet", "privacy", "prometheus")
NOW = PERIOD + 3 * DAY_S

INTERRUPTED = """
import hashlib, json, os, shutil, signal, sys
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once, before the children
from collector.service.job import files, running
from collector.service.job.config import JobConfig
import collector.reports.html, collector.service.report_page, collector.service.engines.exported  # noqa: E401, F401

db, work, now, before, outputs = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5]), sys.argv[5].split(",")
POINTS = [("replace", os), ("fsync", os), ("mkdir", os), ("open", os), ("ftruncate", os)]


def in_child(work_of):
    pid = os.fork()
    if pid == 0:
        try:
            work_of()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(repr(error))
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def run(out, moment):
    outcome = running.run_job(JobConfig(out, db, outputs=tuple(outputs)), moment)
    assert outcome.failed == [], outcome.failed


def dying(out, moment, at, after):
    seen = 0

    def patched(call):
        def replaced(*args, **kwargs):
            nonlocal seen
            seen += 1
            if seen == at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*args, **kwargs)
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return found
        return replaced

    for name, module in POINTS:
        setattr(module, name, patched(getattr(module, name)))
    run(out, moment)


def tree(out):
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*") if path.is_file() and path.name != files.LOCK
    }


def prepared(out):
    shutil.rmtree(out, ignore_errors=True)
    if before:
        shutil.copytree(work / "before", out)


if before:
    assert in_child(lambda: run(work / "before", before)) == 0
whole = work / "whole"
prepared(whole)
assert in_child(lambda: run(whole, now)) == 0
wanted, steps, torn = tree(whole), 0, 0
while True:
    for after in (False, True):
        out = work / "torn"
        prepared(out)
        status = in_child(lambda: dying(out, now, steps + 1, after))
        if status == 0:
            break
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        torn += tree(out) != wanted
        assert in_child(lambda: run(out, now)) == 0
        assert tree(out) == wanted, (steps, after, sorted(set(tree(out).items()) ^ set(wanted.items())))
    else:
        steps += 1
        continue
    break
print(json.dumps({"steps": steps, "torn": torn, "files": len(wanted)}))
"""


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
    words = [sys.executable, "-c", INTERRUPTED, str(db), str(work), str(now), str(before), ",".join(outputs)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_step_and_run_again(tmp_path: Path) -> None:
    filled(tmp_path / "c.db").close()
    found = interrupted(tmp_path / "c.db", tmp_path / "work", PERIOD + 2 * DAY_S, 0, OUTPUTS)
    assert found["files"] == 2 * (len(OUTPUTS) + 1) + 1
    assert found["steps"] > 3 * found["files"], "at each of its files: opened, on the disk, named"
    assert found["torn"] > found["steps"], "most of them have left something half done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_while_a_late_cohort_is_added_and_a_window_made_final(tmp_path: Path) -> None:
    store = filled(tmp_path / "c.db")
    over = PERIOD + 3 * DAY_S + 60
    late = make_release(make_plan(), "late", range(30, 50), period_start=PERIOD + DAY_S, now=over - 60)
    # what the first run has not seen yet: it is in the store, and ended before neither grace was over
    store.store_release(late)
    store.close()
    found = interrupted(tmp_path / "c.db", tmp_path / "work", over, PERIOD + DAY_S, ("json", "prometheus"))
    assert found["files"] == 3 * 3 + 1
    assert found["torn"] > found["steps"]


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
    assert sum(_said(folder)["reports"] for folder in config.out.glob("day=*")) == 60 + 3 * len(stored)


def _said(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


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
