"""What would be sent, and what it costs, shown to the host before anything is spent.

Rules of this file: nothing is charged, spooled, sent or counted here; an example is drawn afresh at each call,
with the operating system's randomness, and is never the report that will be made; examples stay out of every
repr, for a repr ends in logs. What it does not do: it shows no reading, and it sends nothing.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from client_sdk.accounting.budget import format_micro
from client_sdk.device.period import OpenPeriod
from client_sdk.device.records import SealedReport, WaitingReport
from client_sdk.errors import RefusalReason
from client_sdk.report import PeriodState, unpack_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_sdk.device.engine import Engine
    from client_sdk.plan import Metric, Plan

SHOWN = 1000
"""Integers of a metric's example in text; a vector may have a million."""

EXAMPLE = "EXAMPLE, drawn for this view only: never sent, and not the report that will be made"


@dataclass(frozen=True, slots=True)
class MetricPreview:
    """One metric's part of a report. `elements`: how many integers; `example`: as many, see `ReportPreview`.

    In a plan that samples its metrics the last of them is 1 where the report holds the metric and 0 where it does not.
    """

    name: str
    mechanism: str
    epsilon: Decimal
    elements: int
    example: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReportPreview:
    """The report of a period that is not sealed yet: its shape and price, and one example of how it may look.

    period_start, period_end: seconds since the epoch. epsilon: what sealing it charges, the sum over `metrics`
    (which stand in the order of the report), or over the dearest `sample_metrics` of them, as many as each report
    holds, drawn anew; None: all. length: integers in it. encoding: how they are written. refused:
    why no report would be made if the period were sealed now (a key of `counters()`), or None.
    """

    plan_name: str
    plan_version: int
    plan_hash: bytes
    period_start: int
    period_end: int
    epsilon: Decimal
    length: int
    encoding: str
    metrics: tuple[MetricPreview, ...]
    refused: str | None
    sample_metrics: int | None = None

    @property
    def example(self) -> tuple[int, ...]:
        """All integers of the example: drawn for this view only, never sent."""
        return tuple(element for metric in self.metrics for element in metric.example)


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be sent: reports still to be made (oldest period first), and those that wait.

    not_recording: why no period is open (a key of `counters()`), or None where the last of `unsealed` is open.
    """

    unsealed: tuple[ReportPreview, ...]
    waiting: tuple[WaitingReport, ...]
    not_recording: str | None

    def as_text(self) -> str:
        """All of it in lines for a person, examples included and marked as such: for a screen, not for a log."""
        lines = [line for report in self.unsealed for line in _report_lines(report)]
        if self.not_recording is not None:
            lines.append(f"no period is open: {self.not_recording}")
        lines.append(f"waiting: {len(self.waiting)}")
        for waiting in self.waiting:
            again = ", may have left before" if waiting.resent else ""
            lines.append(
                f"  {waiting.plan_name} {_utc(waiting.period_start)}: epsilon {waiting.epsilon} (charged), "
                f"{len(waiting.report)} bytes, SHA-256 {waiting.digest.hex()}{again}"
            )
        return "\n".join(lines)


def _report_lines(report: ReportPreview) -> list[str]:
    lines = [
        f"{report.plan_name} version {report.plan_version}, {_utc(report.period_start)} to {_utc(report.period_end)}",
        f"  costs epsilon {report.epsilon}; {report.length} integers: {report.encoding}",
    ]
    if report.sample_metrics is not None:
        lines.append(
            f"  holds {report.sample_metrics} of {len(report.metrics)} metrics, drawn anew for each report without a "
            "look at any reading; the last integer of a metric says whether it does"
        )
    if report.refused is not None:
        lines.append(f"  would not be made now: {report.refused}")
    lines.append(f"  {EXAMPLE}:")
    for metric in report.metrics:
        numbers = " ".join(map(str, metric.example[:SHOWN]))
        if metric.elements > SHOWN:
            numbers += f" and {metric.elements - SHOWN:,} more"
        lines.append(f"    {metric.name} ({metric.mechanism}, epsilon {metric.epsilon}): {numbers}")
    return lines


def _utc(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%MZ")


def make_preview(engine: Engine, *, consent: bool) -> Preview:
    """What `engine` would send; without consent nothing is looked up either. Raises StorageError."""
    periods, refusal = engine.recorder.peek(engine.clock())
    return Preview(
        tuple(_report(engine, period, raw) for period, raw in periods),
        tuple(engine.access.store().waiting_reports()) if consent else (),
        None if refusal is None else refusal.value,
    )


def _report(engine: Engine, period: OpenPeriod, raw: bytes) -> ReportPreview:
    """Perturb a copy of the period's state: its own must be drawn from once only, when it is sealed."""
    plan, now = period.plan, engine.clock()
    copy = OpenPeriod(plan, period.opened_at, PeriodState.load(plan, raw, period.start), period.start)
    drawn = engine.sealer.perturb(copy, now, keep=False)
    example = unpack_vector(drawn.report)
    prices = engine.access.store().memo_prices(plan) if plan.memos else {}
    metrics = tuple(
        _metric(plan, metric, prices.get(name, metric.micro_epsilon), example) for name, metric in plan.metrics.items()
    )
    return ReportPreview(
        plan.name,
        plan.version,
        plan.hash,
        period.start,
        period.end,
        _epsilon(plan.plain_micro_epsilon + sum(prices.values())),
        plan.length,
        _encoding(drawn, plan),
        metrics,
        _refused(engine, drawn, now),
        plan.sample_metrics,
    )


def _metric(plan: Plan, metric: Metric, micro: int, example: Sequence[int]) -> MetricPreview:
    place = plan.slices[metric.name]
    part = tuple(example[place.start : place.stop + (metric.name in plan.counts)])
    return MetricPreview(metric.name, metric.mechanism.name, _epsilon(micro), len(part), part)


def _refused(engine: Engine, drawn: SealedReport, now: float) -> str | None:
    if drawn.expires_at <= now:
        return RefusalReason.EXPIRED.value
    reason = engine.access.store().would_refuse(drawn, engine.settings.host_limits)
    return None if reason is None else reason.value


def _encoding(drawn: SealedReport, plan: Plan) -> str:
    masked = "each is masked modulo 2^16, 2^32 or 2^64, whichever the cohort's sum needs"
    bare = "they are as they stand here: the collector sees this very report"
    way = bare if plan.delivery.delivery == "direct" else masked
    if plan.delivery.fallback == "direct":
        way += f"; without a cohort in time, and where the host allows it, {bare}"
    return (
        f"each within +-{plan.bound}, signed, little-endian, {drawn.report[0]} byte(s); {len(drawn.report)} bytes with "
        f"the width before them; on the way {way}"
    )


def _epsilon(micro: int) -> Decimal:
    return Decimal(format_micro(micro))
