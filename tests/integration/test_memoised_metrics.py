"""A memoised metric over real rounds: both sides keep the same price, and neither amplifies it."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.accounting.ledger_reader import parse_ledger
from client_sdk.plan import Plan, parse_plan
from collector.accounting.figures import figures
from collector.service.doctor import examine
from collector.service.documents import report_document
from tests.integration.participants import Running, collector
from tests.registrar import running

DAY_S = 86_400
MICRO = 1_000_000
DAYS = 4


PLAN = parse_plan("""
[plan]
name = "memoised"
version = 1
period = "1d"
max_delay = "10d"
[cohort]
min_size = 3
target_size = 5
max_wait = "2s"
[budget]
lifetime = 100
rolling_24h = 50
[metrics.answer]
kind = "categorical"
categories = ["a", "b", "c"]
epsilon = 1.0
memoize = true
epsilon_inf = 2.0
max_distinct = 2
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 10
epsilon = 0.5
""")
CHARGES = [MICRO, 3 * MICRO, 1, 1]


class Clock:
    def __init__(self) -> None:
        self.now = time.time() - (DAYS - 1) * DAY_S  # the last day is today

    def __call__(self) -> float:
        return self.now


def made(
    at: Running, registrar: Any, folder: Path, clock: Clock, token: str | None = None, plan: Plan = PLAN
) -> TelemetryClient:
    return TelemetryClient(
        at.address, plan=plan, data_dir=folder, consent=True, insecure=True, background=False, clock=clock,
        enrolment_token=token, **registrar.settings,
    )  # fmt: skip


def live(client: TelemetryClient, clock: Clock, values: str) -> None:
    """One sealed report a day, the last one's today."""
    for day, value in enumerate(values):
        clock.now += DAY_S if day else 0
        client.record("answer", value)
        client.flush(seal=True)


async def test_both_sides_keep_one_price_that_tells_nothing_of_changes(tmp_path: Path) -> None:
    histories = ["aaaa", "abab", "abca", "cccc", "bacb"]
    with running(tmp_path / "registrar") as registrar:
        async with collector(tmp_path, PLAN) as at:
            clients = []
            for number, values in enumerate(histories):
                clock = Clock()
                client = made(at, registrar, tmp_path / str(number), clock, registrar.token())
                live(client, clock, values)
                clients.append(client)
            ended = await asyncio.wait_for(asyncio.gather(*(client.upload() for client in clients)), 120)
            assert [one.counted for one in ended] == [DAYS] * 5
            store = at.service.store
            expected = sum(CHARGES) + DAYS * MICRO // 2
            for client, values in zip(clients, histories, strict=True):
                device = str(client.device_id)
                assert client.spent().lifetime_micro == expected
                assert store.device_totals(device) == (DAYS, expected), "both ledgers agree"
                (memo,) = client.memoised()
                assert (memo.reports, memo.micro_epsilon) == (DAYS, sum(CHARGES))
                assert memo.distinct == min(2, len(set(values))), "what only the device knows"
                own = parse_ledger(json.dumps(client.export_ledger()))
                assert sorted(entry.micro_epsilon - MICRO // 2 for entry in own.entries) == sorted(CHARGES)
            check_figures([store.ledger(time.time(), str(client.device_id)) for client in clients])
            check_report(report_document(store, None, None, None))
            assert examine(store, time.time()).whole
        for client in clients:
            client.close()


def check_figures(ledgers: list[Any]) -> None:
    """Four epsilon for the answers, as for two values of epsilon_inf each; half of one for every number."""
    plans = {PLAN.hash.hex(): PLAN}
    for ledger in ledgers:
        found = figures(ledger, plans)
        assert int(found.eps_local_pure * MICRO) == sum(CHARGES) + DAYS * MICRO // 2
        assert 3.9 < found.eps_central < found.eps_local < 6.0, "no sum hides a memoised answer"
        assert found.n_h == 4, "of the numbers"
        without = figures(ledger, {PLAN.hash.hex(): PLAN}, corrupt=Fraction(99, 100))
        assert found.eps_central < without.eps_central <= found.eps_local


def check_report(document: dict[str, Any]) -> None:
    metrics = {metric["name"]: metric for metric in document["metrics"]}
    answer, seconds = metrics["answer"], metrics["seconds"]
    assert (answer["n_h"], answer["epsilon_local"]) == (1, 1.0)
    assert answer["epsilon_central"] == pytest.approx(1.0, abs=1e-5)
    assert seconds["epsilon_central"] < seconds["epsilon_local"] == 0.5
    mechanism: Any = PLAN.metrics["answer"].mechanism
    p, q = float(mechanism.p), float(mechanism.q)
    for row in answer["estimates"]:
        share = min(max(row["estimate"] / 20, 0.0), 1.0)
        independent = (20 * (share * p * (1 - p) + (1 - share) * q * (1 - q))) ** 0.5 / (p - q)
        assert row["standard_error"] == pytest.approx(2 * independent), "one device's noise is the same every day"


async def test_a_restored_backup_is_caught_by_the_smallest_of_charges(tmp_path: Path) -> None:
    plan = parse_plan(PLAN.text[: PLAN.text.index("[metrics.seconds]")])
    with running(tmp_path / "registrar") as registrar:
        async with collector(tmp_path, plan) as at:
            clocks = [Clock() for _ in range(5)]
            clients = [
                made(at, registrar, tmp_path / str(n), clock, registrar.token(), plan) for n, clock in enumerate(clocks)
            ]
            for client, clock in zip(clients, clocks, strict=True):
                live(client, clock, "aba")
            clients[0].close()
            shutil.copytree(tmp_path / "0", tmp_path / "backup")
            clients[0] = made(at, registrar, tmp_path / "0", clocks[0], registrar.token(), plan)
            for client, clock in zip(clients, clocks, strict=True):
                clock.now += DAY_S
                live(client, clock, "a")
            await asyncio.wait_for(asyncio.gather(*(client.upload() for client in clients)), 120)
            assert at.service.store.device_totals(str(clients[0].device_id)) == (4, 4 * MICRO + 2)
            clients[0].close()
            shutil.rmtree(tmp_path / "0")
            (tmp_path / "backup").rename(tmp_path / "0")
            # three reports that it thinks unsent: they leave nothing before the collector's total is known
            clients[0] = made(at, registrar, tmp_path / "0", clocks[0], registrar.token(), plan)
            await clients[0].upload()
            assert clients[0].spent().damaged == "the collector has booked more than the ledger holds"
        for client in clients:
            client.close()
