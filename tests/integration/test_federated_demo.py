"""`ldp-collector federated-demo` as a user runs it: real devices, real gRPC, real SQLite, few of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from client_sdk.files import load_plan
from collector.federated.averaging import State
from tests.demos import stop_at_work

PATCHED = """
import dataclasses, sys
from collector.federated.averaging import RoundSum
real = RoundSum.of
def broken(metric, released):
    found = real(metric, released)
    return dataclasses.replace(found, values=tuple(-value for value in found.values))
RoundSum.of = staticmethod(broken)
from collector.service.cli import main
sys.exit(main(sys.argv[1:]))
"""


def demo(*options: str, program: tuple[str, ...] = ("-m", "collector.service")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *program, "federated-demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def report(command: str, db: str, *options: str) -> Any:
    argv = [sys.executable, "-m", "collector.service", command, "--db", db, "--format", "json", *options]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout)


def test_two_rounds_of_twelve_devices(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = demo("--devices", "12", "--rounds", "2", "--seed", "5", "--json", "--out", str(out))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"].startswith("PASS: 2 of 2 rounds of 12 devices or more; ")
    assert json.loads((out / "result.json").read_text()) == document
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["round 1 of 2", "round 2 of 2"]
    first, second = document["rounds"]
    assert (first["contributors"], second["contributors"]) == (12, 12)
    for name in ("l1", "l2"):
        assert first["lines"][name]["next_clip"] == second["lines"][name]["clip"], "what was carried to the devices"
        assert first["lines"][name]["clip"] != second["lines"][name]["clip"]
        state = State.from_json((out / f"model-{name}.json").read_text())
        assert (state.number, state.clip) == (2, second["lines"][name]["next_clip"])
    check_books(out, document)


def check_books(out: Path, document: dict[str, Any]) -> None:
    """What `report` and `privacy` say of the kept store is what the demo said."""
    db, plan = f"sqlite:///{out / 'collector.db'}", load_plan(out / "plan.toml")
    metrics = {metric["name"]: metric for metric in report("report", db)["metrics"]}
    assert set(metrics) == {"update_l1", "fits_l1", "update_l2", "fits_l2"}
    assert {metric["contributors"] for metric in metrics.values()} == {24}
    fitted = sum(r["lines"]["l1"]["fitted"] - 0.5 for r in document["rounds"]) / 2
    assert metrics["fits_l1"]["vector"]["values"][0] == pytest.approx(fitted), "as many came as were expected"
    assert report("privacy", db)["devices"] == 12
    owed = 2 * plan.report_micro_epsilon / 1e6
    assert sum(cost["lifetime"]["epsilon_plain"] for cost in document["cost"].values()) == pytest.approx(owed)


@pytest.mark.slow
def test_a_broken_decoder_is_exit_1() -> None:
    done = demo("--devices", "10", "--rounds", "1", program=("-c", PATCHED))
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("FAIL: decoding: "), last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_demo_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    said = stop_at_work("federated-demo", number, tmp_path)
    assert said == "ldp-collector federated-demo: ended before its verdict; nothing was kept\n"
