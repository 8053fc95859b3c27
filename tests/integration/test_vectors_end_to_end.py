"""Vectors from devices over masked rounds to the report, the ledgers, `recompute` and the audit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from client_sdk.plan import parse_plan
from client_sdk.report import PeriodState, make_report
from client_sdk.secagg.messages import Receipt, RoundAborted
from collector.service.cli import main
from collector.service.tables import MAX_CELL_ROWS
from tests.integration.participants import Device, collector

MEMBERS = 12
LONG = MAX_CELL_ROWS + 904


def plan_of(dimension: int):  # type: ignore[no-untyped-def]
    return parse_plan(
        '[plan]\nname = "updates"\nversion = 1\nperiod = "1d"\n[cohort]\nmin_size = 8\ntarget_size = 12\n'
        'max_wait = "1s"\ncorrupt_fraction = 0\ndropout_fraction = 0\n[budget]\nlifetime = 365\n'
        f'[metrics.grad]\nkind = "vector"\ndimension = {dimension}\nclip = 1\nnorm = "l2"\nepsilon = 20\ndelta = 1e-6\n'
        '[metrics.sparse]\nkind = "vector"\ndimension = 3\nclip = 1\nnorm = "l1"\nepsilon = 20\non_device = "mean"\n'
    )


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--format", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("dimension", [5, LONG])
async def test_vectors_come_out_as_their_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dimension: int
) -> None:
    """Short ones are stored by cell, long ones as one row; both ledgers hold the same."""
    plan = plan_of(dimension)
    grad = np.zeros(dimension)
    grad[:2] = 3.0, 4.0  # clipped to 0.6, 0.8
    vectors = []
    for _ in range(MEMBERS):
        state = PeriodState(plan)
        state.add("grad", grad, os.urandom)
        for reading in ([0.5, 0.0, 0.0], (0.0, -0.5, 0.0)):
            state.add("sparse", reading, os.urandom)
        vectors.append(make_report(plan, state, os.urandom))
    async with collector(tmp_path, plan) as running:
        devices = [Device(vector, plan) for vector in vectors]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        totals = {running.service.store.device_totals(device.identity.device_id) for device in devices}
    assert totals == {(1, plan.report_micro_epsilon)}
    db = f"sqlite:///{tmp_path / 'collector.db'}"
    by_name = {metric["name"]: metric for metric in printed(capsys, "report", "--db", db)["metrics"]}  # type: ignore[attr-defined]
    for name, wanted in (("grad", [0.6, 0.8, 0.0]), ("sparse", [0.25, -0.25, 0.0])):
        vector = by_name[name]["vector"]
        assert len(vector["values"]) == plan.metrics[name].mechanism.length
        off = (np.array(vector["values"][:3]) - wanted) / vector["standard_error"]
        assert np.abs(off).max() < 5.5
        assert by_name[name]["contributors"] == MEMBERS
    exact = np.sum(vectors, axis=0)[plan.slices["grad"]] / MEMBERS * float(plan.metrics["grad"].mechanism.unit)  # type: ignore[attr-defined]
    assert by_name["grad"]["vector"]["values"] == pytest.approx(exact.tolist()), "decoded from the very sum"
    assert (by_name["grad"]["delta_local"], by_name["sparse"]["delta_local"]) == (1e-6, 0.0)
    device = devices[0].identity.device_id
    ledger = printed(capsys, "privacy", "--db", db, "--device", device)
    window = ledger["windows"][-1]  # type: ignore[index]
    assert window["eps_local_pure"] == 40.0
    assert 0 < window["eps_central"] < window["eps_local"] <= 40.0


async def test_a_vector_beyond_what_reports_can_hold_ends_in_no_sum(tmp_path: Path) -> None:
    plan = plan_of(5)
    vectors = [make_report(plan, PeriodState(plan), os.urandom) for _ in range(MEMBERS)]
    for vector in vectors:  # the most that twelve reports can add up to: taken
        vector[2] = plan.metrics["grad"].mechanism.bound
    async with collector(tmp_path, plan) as running:
        ended = await running.upload(*(Device(vector, plan) for vector in vectors))
        assert all(isinstance(one.outcome, Receipt) for one in ended)
    sparse = plan.slices["sparse"].start
    assert plan.bound > plan.metrics["sparse"].mechanism.bound
    for vector in vectors:  # within the round's bound, which is the other metric's, but not within this one's
        vector[sparse] = plan.metrics["sparse"].mechanism.bound + 1
    (tmp_path / "again").mkdir()
    async with collector(tmp_path / "again", plan) as running:
        ended = await running.upload(*(Device(vector, plan) for vector in vectors))
        assert {one.outcome.reason for one in ended if isinstance(one.outcome, RoundAborted)} == {"implausible_sum"}


def test_tables_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_of(20).text)
    assert main(["plan", "check", str(path)]) == 0
    assert "clipped to L2 norm 1; sensitivity" in capsys.readouterr().out
    assert main(["audit", "--plan", str(path), "--samples", "500"]) == 0
    assert "20, delta 0.000001" in capsys.readouterr().out
