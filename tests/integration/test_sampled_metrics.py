"""A plan whose reports hold some of its metrics, from devices over masked rounds to the report and the ledgers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from client_sdk.plan import parse_plan
from client_sdk.report import PeriodState, make_report
from client_sdk.secagg.messages import Receipt, RoundAborted
from collector.service.cli import main
from tests.integration.participants import Device, collector
from tests.unit.collector.plans import SAMPLED as TABLES

PLAN = parse_plan(TABLES.text.replace("min_size = 2", "min_size = 8\ncorrupt_fraction = 0\ndropout_fraction = 0")
                  .replace("target_size = 20", "target_size = 12").replace('"30s"', '"1s"'))  # fmt: skip
MEMBERS = 12


def report() -> list[int]:
    state = PeriodState(PLAN)
    state.add("colour", "x", os.urandom)
    return make_report(PLAN, state, os.urandom)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--format", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


async def test_counts_come_out_of_the_sum_and_both_ledgers_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = [report() for _ in range(MEMBERS)]
    held = {name: sum(vector[place] for vector in vectors) for name, place in PLAN.counts.items()}
    assert sum(held.values()) == 2 * MEMBERS
    async with collector(tmp_path, PLAN) as running:
        devices = [Device(vector, PLAN) for vector in vectors]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        totals = {running.service.store.device_totals(device.identity.device_id) for device in devices}
    assert totals == {(1, PLAN.report_micro_epsilon)}, "what each device has charged itself"
    db = f"sqlite:///{tmp_path / 'collector.db'}"
    metrics = printed(capsys, "report", "--db", db)["metrics"]
    assert {m["name"]: (m["contributors"], m["reports"]) for m in metrics} == {  # type: ignore[attr-defined]
        name: (count, MEMBERS) for name, count in held.items()
    }
    privacy = printed(capsys, "privacy", "--db", db)
    assert privacy["epsilon_local"] == {"min": 5.0, "median": 5.0, "max": 5.0}


@pytest.mark.parametrize("lie", [1, -1])
async def test_a_report_that_holds_more_or_less_than_its_share_ends_in_no_sum(tmp_path: Path, lie: int) -> None:
    vectors = [report() for _ in range(MEMBERS)]
    vectors[0][PLAN.counts["seconds"]] += lie
    if not 0 <= vectors[0][PLAN.counts["seconds"]] <= 1:  # the device had drawn it, or not: it lies about another one
        vectors[0][PLAN.counts["seconds"]] -= 2 * lie
    async with collector(tmp_path, PLAN) as running:
        ended = await running.upload(*(Device(vector, PLAN) for vector in vectors))
        assert {one.outcome.reason for one in ended if isinstance(one.outcome, RoundAborted)} == {"implausible_sum"}
        assert running.sums() == []
