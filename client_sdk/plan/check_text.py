"""`plan check` as plain text.

Rules of this file: tables of aligned columns, and lines of prose; every number of it stands in the check's data too.
"""

from __future__ import annotations

from client_sdk.mechanisms.verdict import RULE
from client_sdk.plan.check import FLEET_SIZES, MetricCheck, PlanCheck
from client_sdk.plan.prices import REFERENCE, Choice, ExpectedError


def format_check(check: PlanCheck) -> str:
    """The check as plain text, one table of costs and one of errors; ends without a line break."""
    lines = [
        f"plan {check.name} version {check.version}",
        f"hash {check.hash}",
        *([] if check.registrar is None else [f"registrar {check.registrar}"]),
        "",
        "epsilon that one device spends at most (basic composition, no mask trusted)",
        *aligned(_cost_rows(check)),
        "",
        "rosters, from the smallest to the target (threshold: shares of one member's seed that open it)",
        *aligned(_roster_rows(check)),
        "",
        "metrics",
        *aligned(_metric_rows(check)),
        *([] if check.sample_metrics is None else [_sampled(check)]),
        "",
        "standard error to expect, by contributors (a mean or a quantile in its unit and percent of the range; "
        "a count in devices and percent; of an optional metric's numbers, every second device with a reading)",
        *aligned(_error_rows(check)),
        f"  usable from: the fewest contributors; {RULE}; of a count, one of an equal share",
        "",
        f"standard error over {REFERENCE:,} contributors, by mechanism (* the plan's; of a mean, where it is largest; "
        "of a quantile, its noise before it is widened to bins; optional as above)",
        *_choice_rows(check),
    ]
    if check.warnings:
        lines += ["", *(f"warning: {line}" for line in check.warnings)]
    return "\n".join(lines)


def _cost_rows(check: PlanCheck) -> list[tuple[str, ...]]:
    stops = "nothing can be sent"
    if check.stops_after_days is not None:
        stops = f"stops after {check.lifetime_reports} reports, day {check.stops_after_days}"
    return [
        ("  report", check.epsilon_report),
        ("  day", check.epsilon_day),
        ("  30 days", check.epsilon_30_days),
        ("  year", check.epsilon_year),
        ("  lifetime", check.epsilon_lifetime, stops),
    ]


def _roster_rows(check: PlanCheck) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("  members", "neighbours", "threshold", "graph")]
    for r in check.rosters:
        graph = "complete" if r.is_complete else "sparse"
        rows.append((f"  {r.size:,}", str(r.neighbours), str(r.threshold), graph))
    return rows


def _metric_rows(check: PlanCheck) -> list[tuple[str, ...]]:
    header = ("  name", "mechanism", "epsilon", "on_device", "without a reading", "elements", "expires")
    rows: list[tuple[str, ...]] = [header]
    for m in check.metrics:
        expires = m.expires or "never"
        mechanism = f"{m.mechanism} (auto)" if m.auto else m.mechanism
        default = m.default if m.presence_share is None else f"{m.default} ({m.presence_share} of epsilon says so)"
        rows.append((f"  {m.name}", mechanism, m.epsilon, m.on_device, default, str(m.length), expires))
    return rows


def _error_rows(check: PlanCheck) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("  name", *(f"{size:,}" for size in FLEET_SIZES), "usable from")]
    for m in check.metrics:
        rows.append((f"  {m.name}", *map(_error, m.errors), _usable(m)))
    return rows


def _usable(m: MetricCheck) -> str:
    if m.usable_from is None or m.devices is None:
        return "never (bins too coarse)"
    return f"{m.usable_from:,}" + ("" if m.devices == m.usable_from else f" (of {m.devices:,} devices)")


def _error(error: ExpectedError) -> str:
    return "none" if error.standard_error is None else f"{error.standard_error:.4g} ({error.percent:.3g} %)"


def _choice_rows(check: PlanCheck) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for m in check.metrics:
        rows.append((f"  {m.name}", *map(_choice, m.choices)))
    return [*aligned(rows), *(_auto(m) for m in check.metrics if m.auto)]


def _choice(choice: Choice) -> str:
    error = "none" if choice.standard_error is None else f"{choice.standard_error:.4g}"
    return f"{choice.mechanism}{'*' if choice.chosen else ''} {error}"


def _auto(m: MetricCheck) -> str:
    # The word that a later release of this software comes to may be another one: another plan of the same text.
    return f'  {m.name}: auto came to {m.mechanism}, the {m.why}; to keep it, write mechanism = "{m.mechanism}"'


def _sampled(check: PlanCheck) -> str:
    return (
        f"  each report holds {check.sample_metrics} of these {len(check.metrics)}, drawn by the device without a look "
        "at its readings, and costs as much as the dearest"
    )


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [0] * max(len(row) for row in rows)
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
