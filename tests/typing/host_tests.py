"""A host's typed use of the test helpers. Read by mypy --strict only, never run: every line must be accepted."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from client_sdk import Estimate, TelemetryClient, UploadSummary
from client_sdk.mechanisms import Value
from client_sdk.testing import (
    FakeClock,
    InMemoryCollector,
    ReceivedReport,
    SeededEntropy,
    collector_of,
    recorded,
    telemetry_client,
)

fixture = telemetry_client


def test_the_start_is_measured(telemetry_client: TelemetryClient) -> None:
    collector = assert_type(collector_of(telemetry_client), InMemoryCollector)
    assert_type(collector.deliver(telemetry_client), UploadSummary)
    assert_type(recorded(telemetry_client), dict[str, Value])
    assert_type(collector.reports, list[ReceivedReport])
    assert_type(collector.totals(), dict[str, tuple[int, ...]])
    assert_type(collector.estimates(), dict[str, Estimate])


def make(folder: Path) -> TelemetryClient:
    clock = FakeClock()
    clock.advance(86_400)
    collector = InMemoryCollector(folder / "plan.toml", clock=clock, seed=1)
    collector.reachable = False
    assert_type(SeededEntropy(1)(32), bytes)
    TelemetryClient(collector.endpoint, consent=True, clock=clock)
    return collector.client(folder, background=True)
