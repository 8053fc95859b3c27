"""`ldp-collector audit`: a table or JSON, one verdict at the end, an exit status that says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk.mechanisms import Value
from client_sdk.mechanisms.memoized import MemoizedResponse
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from collector.service import cli

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
[plan]
name = "audited"
version = 2
period = "1d"
[cohort]
min_size = 10
target_size = 20
[budget]
lifetime = 100
[metrics.latency]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1
on_device = "last"
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
epsilon = 2
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    return path


def audit(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        status = cli.main(["audit", *map(str, arguments)])
    except SystemExit as end:
        status = int(end.code or 0)
    return status, *capsys.readouterr()


def leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk sampler of categories draws at four times its epsilon."""
    honest = RandomizedResponse.perturb_many

    def loud(self: RandomizedResponse, values: Any, entropy: Any) -> Any:
        return honest(RandomizedResponse(self.categories, 4 * self.epsilon, self.other), values, entropy)

    monkeypatch.setattr(RandomizedResponse, "perturb_many", loud)


def test_a_plan_that_keeps_its_claims(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    status, out, err = audit(capsys, "--plan", plan, "--samples", 20_000)
    assert (status, err) == (0, "")
    header, *rows, verdict = out.splitlines()
    assert header.split() == ["metric", "mechanism", "claimed", "exact", "sampler", "at", "least", "samples", "verdict"]
    assert [row.split()[-1] for row in rows] == ["PASS"] * 4
    assert rows[0].split()[:5] == ["latency", "laplace", "1", "1.000000", "perturb_many"]
    assert rows[2].split()[:5] == ["network", "randomized_response", "2", "2.000000", "perturb_many"]
    assert 1.0 < float(rows[2].split()[5]) < 2.0
    assert rows[2].split()[6] == "20,000"
    assert verdict == "audit: PASS, 2 metrics, no claim refuted (false alarms: at most 1e-06 of audits)"


def test_a_sampler_that_leaks(capsys: pytest.CaptureFixture[str], plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leak(monkeypatch)
    status, out, err = audit(capsys, "--plan", plan, "--samples", 20_000)
    assert (status, err) == (1, "")
    *table, why, verdict = out.splitlines()
    assert [row.split()[-1] for row in table[1:]] == ["PASS", "PASS", "FAIL", "PASS"]
    assert why.startswith("network, perturb_many: 'cell ")
    assert why.endswith("than epsilon 2 allows")
    assert verdict == "audit: FAIL, 1 of 2 metrics: network"


def test_permanent_answers_that_leak(
    capsys: pytest.CaptureFixture[str], plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a memoised metric what all reports of one value tell is a claim, and a row, of its own."""
    plan.write_text(PLAN + "memoize = true\nepsilon_inf = 3\nmax_distinct = 2\n", encoding="utf-8")
    status, out, _ = audit(capsys, "--plan", plan, "--samples", 4_000)
    row = next(line for line in out.splitlines() if line.startswith("network, all reports"))
    assert row.split()[3:7] == ["randomized_response", "3", "3.000000", "permanent"]
    assert (status, row.split()[-1]) == (0, "PASS")
    assert "audit: PASS, 2 metrics, no claim refuted" in out
    monkeypatch.setattr(MemoizedResponse, "permanent", lambda self, code, entropy: code)
    status, out, _ = audit(capsys, "--plan", plan, "--samples", 4_000)
    assert status == 1
    assert out.endswith("audit: FAIL, 1 of 2 metrics: network, all reports\n")
    status, out, _ = audit(capsys, "--plan", plan, "--samples", 4_000, "--format", "json")
    found = [(one["metric"], one["all_reports"], one["verdict"]) for one in json.loads(out)["metrics"]]
    assert found == [("latency", False, "PASS"), ("network", False, "PASS"), ("network", True, "FAIL")]


def test_integers_above_the_claim(
    capsys: pytest.CaptureFixture[str], plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit of 2^-64 too much is no matter for sampling: the exact check alone sees it."""
    honest = RandomizedResponse._prepare

    def one_more(self: RandomizedResponse) -> None:
        honest(self)
        self._set(keep=self.keep + 1)

    monkeypatch.setattr(RandomizedResponse, "_prepare", one_more)
    status, out, _ = audit(capsys, "--plan", plan, "--samples", 2_000)
    assert status == 1
    assert "2.000000 ABOVE" in out
    assert out.splitlines()[-2] == "network: the shipped integers' largest ratio is above e^2"
    assert out.endswith("audit: FAIL, 1 of 2 metrics: network\n")


@pytest.mark.parametrize("leaks", [False, True])
def test_json(capsys: pytest.CaptureFixture[str], plan: Path, monkeypatch: pytest.MonkeyPatch, leaks: bool) -> None:
    if leaks:
        leak(monkeypatch)
    status, out, _ = audit(capsys, "--plan", plan, "--samples", 20_000, "--format", "json")
    document = json.loads(out)
    assert status == int(leaks)
    assert document["verdict"] == ("FAIL" if leaks else "PASS")
    assert (document["plan"], document["version"], document["alpha"]) == ("audited", 2, 1e-6)
    latency, network = document["metrics"]
    assert (latency["metric"], latency["verdict"], latency["claimed_epsilon"]) == ("latency", "PASS", "1")
    assert (network["exact_holds"], network["verdict"]) == (True, document["verdict"])
    bulk, single = network["samplers"]
    assert (bulk["epsilon_at_least"] > 2) == leaks
    assert (bulk["sampler"], bulk["samples"], bulk["fault"]) == ("perturb_many", 20_000, None)
    assert (single["sampler"], single["samples"], single["verdict"]) == ("perturb", 2_000, "PASS")
    known: tuple[Value, ...] = ("wifi", "cellular", "offline", "?" * 9)
    assert bulk["likely"] in known
    assert bulk["unlikely"] in known


@pytest.mark.parametrize("samples", ["0", "15", "10000001", "-1", "many"])
def test_samples_out_of_range(capsys: pytest.CaptureFixture[str], plan: Path, samples: str) -> None:
    status, out, err = audit(capsys, "--plan", plan, "--samples", samples)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "--samples" in err


def test_no_such_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = audit(capsys, "--plan", tmp_path / "none.toml")
    assert status == 2
    assert len(err.splitlines()) == 1


def test_the_installed_command_on_the_plan_that_is_deployed() -> None:
    """As an operator calls it, another process and fresh randomness; a false alarm is one in a million."""
    command = [sys.executable, "-m", "collector.service", "audit", "--plan", "deploy/plan.toml", "--samples", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("audit: PASS")
    assert Decimal(done.stdout.split("laplace")[1].split()[0]) == 1
