"""`ldp-collector demo` as a user runs it: real devices, real gRPC, real SQLite, small fleets."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.service.cli import main
from tests.demos import stop_at_work
from tests.registrar import KEY
from tests.unit.collector.service.test_demo_parts import CSV_PLAN

STEPS = ("shares", "masked_input", "confirm", "unmask")


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "collector.service", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def check_document(document: dict[str, Any], devices: int, dropping: int) -> None:
    assert document["devices"] == devices
    assert sum(r["joined"] for r in document["rounds"]) == devices
    assert sum(sum(r["dropouts"].values()) for r in document["rounds"]) == dropping
    for r in document["rounds"]:
        assert set(r) == {"cohort", "joined", "contributors", "dropouts", "outcome", "reason", "seconds"}
        assert set(r["dropouts"]) == set(STEPS)
        lost = r["dropouts"]["shares"] + r["dropouts"]["masked_input"]
        assert r["contributors"] == r["joined"] - lost, "those lost later remain contributors"
    for metric in document["metrics"]:
        assert {"name", "kind", "mechanism", "epsilon", "plan_versions", "contributors", "estimates"} <= set(metric)
        for e in metric["estimates"]:
            assert {"label", "estimate", "standard_error", "ci95", "truth"} <= set(e)
            low, high = e["ci95"]
            assert high - low == pytest.approx(2 * 1.959964 * e["standard_error"], rel=1e-5)
    assert document["privacy"]["devices"] == devices
    assert set(document["privacy"]["epsilon_local"]) == {"min", "median", "max"}


@pytest.mark.slow
def test_cohorts_of_target_size_and_the_remainder_joins_the_last(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(CSV_PLAN)
    out = tmp_path / "out"
    done = demo("--devices", "21", "--dropout", "0.1", "--plan", str(plan), "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_document(document, devices=21, dropping=2)
    assert sorted(r["joined"] for r in document["rounds"]) == [8, 13]
    assert [m["name"] for m in document["metrics"]] == ["os", "seconds"]
    assert [e["label"] for e in document["metrics"][0]["estimates"]] == ["a", "b", "other"]
    assert json.loads((out / "result.json").read_text()) == document
    assert (out / "plan.toml").read_text() == CSV_PLAN
    assert len(list((out / "devices").iterdir())) == 21
    # what `report` says of the kept store is what the demo said
    command = [sys.executable, "-m", "collector.service", "report", "--db", f"sqlite:///{out / 'collector.db'}"]
    report = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, timeout=60, check=True)
    metric = json.loads(report.stdout)["metrics"][0]
    assert metric["estimates"][0]["estimate"] == document["metrics"][0]["estimates"][0]["estimate"]
    assert demo("--out", str(out)).returncode == 2, "a used folder is refused"


def test_data_of_a_users_own(tmp_path: Path) -> None:
    plan, data = tmp_path / "plan.toml", tmp_path / "facts.csv"
    registrar = f'[registrar]\naddress = "registrar.example:7444"\nkey = "{KEY.hex()}"\n'
    plan.write_text(CSV_PLAN + registrar)
    rng = random.Random(5)
    with data.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["who", "date", "os", "seconds"])
        for device in range(12):
            for day in range(3):
                writer.writerow([device, f"2020-01-0{day + 1}", rng.choice(["a", "b", "new"]), rng.randint(0, 150)])
        writer.writerow([99, "2020-01-01", "a", ""])
    options = ("--plan", str(plan), "--data", str(data), "--device-column", "who", "--devices", "10")
    done = demo(*options, "--dropout", "0", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_document(document, devices=10, dropping=0)
    assert document["left_out"] == {
        "rows_without_device": 0,
        "refused_readings": 0,
        "incomplete_devices": 1,
        "further_devices": 2,
    }


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        signal.SIGINT,
    ],
)
def test_a_demo_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    assert "Traceback" not in stop_at_work("demo", number, tmp_path)


@pytest.mark.slow
def test_a_closed_stdout_is_no_traceback() -> None:
    command = f"{sys.executable} -m collector.service demo --devices 6 >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_released_is_exit_1() -> None:
    done = demo("--devices", "12", "--dropout", "1", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [r["outcome"] for r in document["rounds"]] == ["aborted"]
    assert document["rounds"][0]["reason"]
    assert all(e["estimate"] is None for m in document["metrics"] for e in m["estimates"])
    assert "NaN" not in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--devices", "1"], "--devices"),
        (["--dropout", "1.5"], "--dropout"),
        (["--dropout", "nan"], "--dropout"),
        (["--data", "x.csv"], "--plan"),
        (["--device-column", "who"], "--data"),
        (["--out", ""], "--out"),
        (["--plan", "missing.toml"], "missing.toml"),
        (["--plan", "deploy/plan.toml", "--devices", "49"], "min_size"),
        (["--plan", "deploy/plan.toml", "--devices", "51"], "smallest roster"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["demo", *options])
    except SystemExit as ended:
        code = int(ended.code or 0)
    printed = capsys.readouterr()
    assert code == 2
    assert words in printed.err
    assert len(printed.err.strip().splitlines()) == 1, printed.err
    assert printed.out == ""


@pytest.mark.skipif("LDP_GREENHUB_CSV" not in os.environ, reason="names the GreenHub file (MIT, not kept here)")
def test_data_that_nobody_here_wrote(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = demo(
        "--plan", "deploy/greenhub.toml", "--data", os.environ["LDP_GREENHUB_CSV"], "--devices", "600",
        "--json", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_document(document, devices=600, dropping=60)
    for metric in document["metrics"]:
        for e in metric["estimates"]:
            assert abs(e["estimate"] - e["truth"]) < 4 * e["standard_error"]
    with sqlite3.connect(out / "collector.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
