"""A host's typed use of the public API. Read by mypy --strict only, never run: every line must be accepted."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import assert_type

import client_sdk
from client_sdk import (
    BudgetExceededError,
    BudgetView,
    ConfigurationError,
    Estimate,
    LogEntry,
    MetricPreview,
    MissingExtraError,
    Plan,
    PlanError,
    Preview,
    RefusalReason,
    ReportPreview,
    StorageError,
    TelemetryClient,
    TelemetryError,
    UploadSummary,
    ValueRefusedError,
    WaitingReport,
    load_plan,
    parse_plan,
)


def make(folder: Path, can_upload: Callable[[], bool]) -> TelemetryClient:
    plan = assert_type(load_plan(folder / "plan.toml"), Plan)
    TelemetryClient(consent=False)  # everything else from the environment
    TelemetryClient("collector.example:443", consent=True, plan="plan.toml", data_dir="/var/lib/app")
    return TelemetryClient(
        "collector.example:443",
        consent=True,
        plan=plan,
        data_dir=folder,
        enrolment_token="once",
        root_certificates=folder / "ca.pem",
        insecure=False,
        max_epsilon_report="2.5",
        max_epsilon_24h=Decimal(4),
        max_epsilon_lifetime=365,
        min_cohort=50,
        seal_key=bytes(32),
        background=True,
        can_upload=can_upload,
        clock=lambda: 0.0,
    )


def use(client: TelemetryClient) -> None:
    with client as same:
        assert_type(same, TelemetryClient)
        client.record("cold_start_ms", 812)
        client.record("cold_start_ms", 812.5)
        client.record("network", "wifi")
        client.consent(False)
    assert_type(client.flush(seal=True, timeout_s=2), bool)
    client.close(timeout_s=0.5)
    assert_type(client.device_id, str | None)
    assert_type(client.counters(), dict[str, int])
    assert_type(client.reset_ledger(), Decimal)
    spent = assert_type(client.spent(), BudgetView)
    assert_type(spent.lifetime, Decimal)
    assert_type(spent.left_24h, Decimal | None)
    for entry in assert_type(client.history(), list[LogEntry]):
        assert_type(entry.contributors, int | None)
        assert_type(entry.digest, bytes)
        assert_type(entry.epsilon, Decimal)


def look(client: TelemetryClient) -> str:
    preview = assert_type(client.preview(), Preview)
    for report in preview.unsealed:
        assert_type(report, ReportPreview)
        assert_type(report.epsilon, Decimal)
        assert_type(report.metrics, tuple[MetricPreview, ...])
        assert_type(report.example, tuple[int, ...])
    for waiting in preview.waiting:
        assert_type(waiting, WaitingReport)
        assert_type(waiting.elements, tuple[int, ...])
    return preview.as_text()


async def send(client: TelemetryClient) -> int:
    def before(step: str) -> None:
        print(step)

    summary = assert_type(await client.upload(before_send=before), UploadSummary)
    return summary.counted


def faults(text: str) -> tuple[str, ...]:
    try:
        parse_plan(text)
    except PlanError as error:
        return error.problems
    except (ConfigurationError, StorageError, MissingExtraError, BudgetExceededError, ValueRefusedError) as error:
        return (str(error),)
    except TelemetryError:
        pass
    return (RefusalReason.NO_CONSENT.value, client_sdk.__version__)


def bars(estimate: Estimate) -> tuple[tuple[float, float] | None, ...]:
    return estimate.interval(level=0.9)
