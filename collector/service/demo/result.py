"""Compares what the collector released with what its contributors really held, and says one verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, cast

from client_sdk.accounting.budget import format_micro
from client_sdk.mechanisms import Value
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.plan import Metric, Plan
from collector.combination import MOST_COORDINATES, is_count
from collector.reports import build_report
from collector.service.demo.judging import judged_errors
from collector.service.demo.run import DeviceRun, FleetRun
from collector.service.storage import CollectorStore
from collector.slices import sliced

MAX_STANDARD_ERRORS = 5.0
"""Further than this from its truth, an estimate fails the demo: chance does that once in 1.7 million."""

SAMPLE_USERS = 3


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The demo's JSON document and its verdict; `ok` decides the exit status."""

    document: dict[str, Any]
    ok: bool
    verdict: str


def build_result(plan: Plan, run: FleetRun, url: str, left_out: Mapping[str, int]) -> DemoResult:
    """Read the store once more, as `report` would, and put the truth over the contributors beside it."""
    store = CollectorStore.open_existing(url)
    try:
        rounds = [_round_row(r) for r in store.rounds()]
        report = build_report(plans=store.plans(), rows=store.released_sums(), since=None, until=None)
        counted = {c.device_id for c in store.contributions()}
        collector_totals = {d.device_id: store.device_totals(d.device_id)[1] for d in run.devices}
    finally:
        store.close()
    contributors = [d for d in run.devices if d.device_id in counted]
    metrics = [_with_truth(m, plan, contributors) for m in report["metrics"]]
    ok, verdict = _verdict(rounds, metrics, run.devices, collector_totals)
    document = {
        "devices": len(run.devices),
        "seconds": round(run.seconds, 2),
        "cpu_seconds": {"devices": round(run.device_cpu_s, 2), "collector": round(run.collector_cpu_s, 2)},
        "plan": {"name": plan.name, "version": plan.version, "hash": plan.hash.hex()},
        "rounds": rounds,
        "metrics": metrics,
        "privacy": _privacy(plan, run, counted, collector_totals),
        "left_out": dict(left_out),
        "verdict": verdict,
    }
    return DemoResult(document, ok, verdict)


def _round_row(record: Any) -> dict[str, Any]:
    return {
        "cohort": record.round_id,
        "joined": record.joined,
        "contributors": record.contributors,
        "dropouts": dict(record.dropouts),
        "outcome": record.outcome,
        "reason": record.reason,
        "seconds": round(record.seconds, 3),
    }


def _with_truth(row: dict[str, Any], plan: Plan, contributors: Sequence[DeviceRun]) -> dict[str, Any]:
    """Beside each estimate its truth. Which reports held a metric that is sampled, nobody knows: then it is that of
    all contributors, of whom those that held it are a random part, and the population's error is the one to judge by;
    `judged_error` is what that comes to, see `judging`.
    """
    metric = plan.metrics[row["name"]]
    truths = true_estimates(metric, [d.truth[metric.name] for d in contributors])
    share = 1.0 if plan.sample_metrics is None or not contributors else row["contributors"] / len(contributors)
    sampled = plan.sample_metrics is not None
    shown = [
        truth * share if truth is not None and counted else truth
        for truth, counted in zip(truths, _are_counts(metric), strict=True)
    ]
    errors = judged_errors(metric, row["estimates"], shown, row["contributors"], sampled=sampled)
    estimates = [
        {**e, "truth": truth, "judged_by": "population_error" if sampled else "standard_error", "judged_error": error}
        for e, truth, error in zip(row["estimates"], shown, errors, strict=True)
    ]
    return {**row, "estimates": estimates}


def _are_counts(metric: Metric) -> list[bool]:
    answer, rows = metric.mechanism.answer, len(_labels(metric))
    return [is_count(answer, place) for place in range(rows)]


def true_estimates(metric: Metric, values: Sequence[Value]) -> list[float | None]:
    """What a perfect estimator would print for these values, None for no reading: a row per label."""
    labels = _labels(metric)
    known = [value for value in values if value is not None]
    if metric.mechanism.answer == "slices":
        return _true_slices(metric, values)
    if not values or (not known and metric.mechanism.answer != "counts"):
        return [None] * len(labels)
    if metric.mechanism.answer == "counts":
        counts = Counter(_code(metric, value) for value in values)
        return [float(counts[place]) for place in range(len(labels))]
    if metric.mechanism.answer == "vector":
        vectors = [
            cast("Sequence[float]", value)
            for value in known
            if isinstance(value, Sequence) and not isinstance(value, str)
        ]
        return [math.fsum(v[i] for v in vectors) / len(vectors) for i in range(len(labels))]
    numbers = sorted(value for value in known if isinstance(value, (int, float)))
    if metric.mechanism.answer == "quantiles":
        return [numbers[min(int(q * len(numbers)), len(numbers) - 1)] for q in metric.quantiles]
    mean = sum(numbers) / len(numbers)
    return [mean] if metric.mechanism.answer == "mean" else [mean, float(len(numbers))]


def _true_slices(metric: Metric, values: Sequence[Value]) -> list[float | None]:
    """values: (category, number), the number None without a reading."""
    by = sliced(metric).by
    numbers: list[list[float]] = [[] for _ in by.labels]
    for category, number in cast("Sequence[tuple[str | None, float | None]]", values):
        if number is not None:
            numbers[by.code(category)].append(number)
    rows = ((math.fsum(of) / len(of) if of else None, float(len(of)) if values else None) for of in numbers)
    return [truth for row in rows for truth in row]


def _labels(metric: Metric) -> Sequence[str]:
    """Those that have a row."""
    labels = metric.mechanism.labels
    return labels[:MOST_COORDINATES] if metric.mechanism.answer == "vector" else labels


def _code(metric: Metric, value: Value) -> int:
    """The place of the label that a value counts under."""
    mechanism = metric.mechanism
    if isinstance(mechanism, (CategoricalMechanism, Histogram)):
        return mechanism.code(value)
    raise TypeError(f"{mechanism.name} has no labels for values")


def standard_errors_off(estimate: Mapping[str, Any]) -> float | None:
    """|estimate - truth| in the errors that it is judged by; None where it is not judged."""
    error = estimate["judged_error"]
    if not error:
        return None
    return float(abs(estimate["estimate"] - estimate["truth"]) / error)


def _verdict(
    rounds: Sequence[Mapping[str, Any]],
    metrics: Sequence[Mapping[str, Any]],
    devices: Sequence[DeviceRun],
    collector_totals: Mapping[str, int],
) -> tuple[bool, str]:
    released = [r for r in rounds if r["outcome"] == "released"]
    reports = sum(r["contributors"] for r in released)
    offs = [
        (off, f"{m['name']} {e['label']}")
        for m in metrics
        for e in m["estimates"]
        if (off := standard_errors_off(e)) is not None
    ]
    if not released:
        return False, f"FAILED: nothing was released ({len(rounds)} rounds)"
    worst, which = max(offs, default=(0.0, ""))
    if worst > MAX_STANDARD_ERRORS:
        return False, f"FAILED: an estimate ({which}) lies {worst:.1f} standard errors from its truth"
    undercharged = sum(d.spent_micro_epsilon < collector_totals[d.device_id] for d in devices)
    if undercharged:
        return False, f"FAILED: {undercharged} devices booked less epsilon than the collector did"
    judged = f"every estimate lies within {MAX_STANDARD_ERRORS:.0f} standard errors of its truth (worst {worst:.1f})"
    return True, (
        f"OK: {len(released)} of {len(rounds)} rounds released {reports} reports; "
        f"{judged if offs else 'no row is judged: quantiles, smoothed numbers and rows without an answer are not'}"
    )


def _privacy(plan: Plan, run: FleetRun, counted: set[str], collector_totals: Mapping[str, int]) -> dict[str, Any]:
    spent = sorted(d.spent_micro_epsilon for d in run.devices)
    return {
        "devices": len(run.devices),
        "epsilon_local": {"min": spent[0] / 1e6, "median": median(spent) / 1e6, "max": spent[-1] / 1e6},
        "sample_users": [
            {
                "device": d.device_id,
                "left_before": d.drops_before,
                "entries": [_ledger_entry(plan, run.period_start, d, d.device_id in counted)],
                "epsilon_on_device": format_micro(d.spent_micro_epsilon),
                "epsilon_at_collector": format_micro(collector_totals[d.device_id]),
            }
            for d in _sample_users(run.devices)
        ],
    }


def _ledger_entry(plan: Plan, period_start: int, device: DeviceRun, counted: bool) -> dict[str, Any]:
    return {
        "period_start": datetime.fromtimestamp(period_start, UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "plan": plan.name,
        "version": plan.version,
        "epsilon": format_micro(device.spent_micro_epsilon),
        "outcome": "counted in a sum" if counted else "charged, waits on the device",
    }


def _sample_users(devices: Sequence[DeviceRun]) -> list[DeviceRun]:
    """One that stayed, one lost before its masked input, one lost after it (or whoever there is)."""
    wanted = (None, "shares", "unmask")
    picked = [next((d for d in devices if d.drops_before == w), None) for w in wanted]
    rest = iter([d for d in devices if d not in picked])
    filled = [d if d is not None else next(rest, None) for d in picked]
    return [d for d in filled if d is not None][:SAMPLE_USERS]
