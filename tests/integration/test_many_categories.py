"""A hundred thousand categories: the report is made in time and in little memory, and marked as unusable."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.plan import parse_plan
from collector.service.storage import CollectorStore
from tests.integration.processes import ROOT
from tests.unit.collector.service.stores import NOW, counts, make_release

LABELS = ",".join(f'"c{i}"' for i in range(100_000))
PLAN = f"""
[plan]
name = "wide"
version = 1
period = "1d"
[cohort]
min_size = 50
target_size = 1000
max_wait = "30s"
[budget]
lifetime = 365
[metrics.screen]
kind = "categorical"
categories = [{LABELS}]
epsilon = 1
"""


def cost_of(command: list[str], output: Path) -> tuple[float, float]:
    """Run it; (seconds of CPU, MB of memory at most). Other work on the machine makes it wait, and costs it neither."""
    with output.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


# case G05
@pytest.mark.parametrize("form", ["csv", pytest.param("table", marks=pytest.mark.slow)])
def test_a_report_of_a_hundred_thousand_categories(tmp_path: Path, form: str) -> None:
    plan = parse_plan(PLAN)
    path, output = tmp_path / "collector.db", tmp_path / "report"
    store = CollectorStore.open(str(path))
    store.put_plan(plan, NOW)
    totals = [int(cell < 1000) for cell in range(100_000)]  # a thousand reports, one of them for c0
    store.store_release(make_release(plan, devices=range(1000), totals=totals))
    store.close()
    assert (counts(path)["released_vectors"], counts(path)["released_sums"]) == (1, 0), "one BLOB"
    command = [sys.executable, "-m", "collector.service", "report", "--db", str(path), "--format", form]
    seconds, megabytes = cost_of(command, output)
    assert seconds <= 20
    assert megabytes <= 1000
    if form == "table":
        text = output.read_text(encoding="utf-8")
        assert "The 500 largest of 100,000 rows" in text
        assert text.count("too noisy") >= 500
        return
    with output.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 100_000
    assert {row["verdict"] for row in rows} == {"too noisy"}
    first = rows[0]
    assert float(first["estimate"]) == pytest.approx(57616.694, abs=1)
    assert 5500 <= float(first["standard_error"]) <= 59000
