"""A metric that expires, on a device: refused by name, reported as its default, at the same cost and length."""

from __future__ import annotations

from pathlib import Path

from client_sdk.plan import parse_plan
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, plan_text

PLAN = parse_plan(plan_text().replace('kind = "categorical"', 'kind = "categorical"\nexpires = 2026-01-02'))


def test_from_its_day_on_readings_are_refused_and_the_report_keeps_its_shape(tmp_path: Path) -> None:
    clock = Clock()  # noon of the day before
    client = make_client(tmp_path / "d", PLAN, clock=clock)
    client.record("network", "wifi")
    assert client.counters() == {}
    clock.now += DAY_S
    client.record("network", "wifi")
    client.record("cold_start_ms", 7)
    assert client.counters()["metric_expired"] == 1
    client.flush(seal=True)
    before, after = client.preview().waiting
    assert len(before.report) == len(after.report)
    assert before.micro_epsilon == after.micro_epsilon == PLAN.report_micro_epsilon
    client.close()


def test_a_clock_in_the_middle_of_a_period_expires_nothing(tmp_path: Path) -> None:
    """It is the period's start that decides, so all devices of a period agree."""
    plan = parse_plan(PLAN.text.replace('period = "1d"', 'period = "2d"'))
    start = plan.period_start(NOW)
    assert start < 1_767_312_000 < start + plan.period_s, "2026-01-02 lies within"
    client = make_client(tmp_path / "d", plan, clock=Clock(start + plan.period_s - 1))
    client.record("network", "wifi")
    assert client.counters() == {}
    client.close()
    later = make_client(tmp_path / "d", plan, clock=Clock(start + plan.period_s))
    later.record("network", "wifi")
    assert later.counters()["metric_expired"] == 1
    later.close()
