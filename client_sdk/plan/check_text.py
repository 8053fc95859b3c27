"""`plan check` as plain text.

Rules of this file: tables of aligned columns, and lines of prose; every number of it stands in the check's data too.
"""

from __future__ import annotations

from client_sdk.mechanisms.verdict import RULE
from client_sdk.plan.check import FLEET_SIZES, MetricCheck, PlanCheck, VectorCheck
from client_sdk.plan.check_memoize import MemoCheck
from client_sdk.plan.check_slices import SlicedCheck
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
        *_concentrated(check),
        "",
        *_delivery(check),
        "",
        "metrics",
        *aligned(_metric_rows(check)),
        *(_vector(m.name, m.vector) for m in check.metrics if m.vector is not None),
        *(_memo(m.name, m.memo) for m in check.metrics if m.memo is not None),
        *(_slices(m.name, m.sliced) for m in check.metrics if m.sliced is not None),
        *([] if check.sample_metrics is None else [_sampled(check)]),
        "",
        "standard error to expect, by contributors (a mean, of a coordinate or a slice too, or a quantile in its unit "
        "and percent of the range; "
        "a count in devices and percent; of an optional metric's numbers, every second device with a reading)",
        *aligned(_error_rows(check)),
        f"  usable from: the fewest contributors; {RULE}; of a count, one of an equal share",
        "",
        f"standard error over {REFERENCE:,} contributors, by mechanism (* the plan's; of a mean, where it is largest; "
        "of a quantile, its noise before it is widened to bins; sliced and optional as above)",
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
        ("  report", check.epsilon_report, *(["at most"] if any(m.memo for m in check.metrics) else [])),
        ("  day", check.epsilon_day),
        ("  30 days", check.epsilon_30_days),
        ("  year", check.epsilon_year),
        ("  lifetime", check.epsilon_lifetime, stops),
    ]


def _concentrated(check: PlanCheck) -> list[str]:
    """Deltas and rhos, where the plan has any."""
    lines = []
    if check.delta_report != "0":
        lines.append(f"  each report's epsilon holds but for delta {check.delta_report}; deltas add up as epsilons do")
    if lines or check.rho_lifetime is not None:
        limit = "no limit in rho" if check.rho_lifetime is None else f"lifetime {check.rho_lifetime}"
        lines.append(f"  zero-concentrated: a report costs rho {check.rho_report}; {limit}")
    return lines


def _vector(name: str, v: VectorCheck) -> str:
    noise = "discrete Laplace" if v.norm == "l1" else f"discrete Gaussian ({v.calibration}), delta {v.delta}"
    return (
        f"  {name}: {v.dimension:,} coordinates, clipped to {v.norm.upper()} norm {v.clip}; sensitivity "
        f"{v.sensitivity:.6g} ({v.relation}; {v.sensitivity_add_remove:.6g} to add or remove one); {noise}, "
        f"{v.noise:.4g} a coordinate, rho {v.rho}; the mean vector's noise is {v.clip} long at {v.covered_at:,} "
        "contributors"
    )


def _memo(name: str, m: MemoCheck) -> str:
    return (
        f"  {name}: memoised: one report alone loses epsilon {m.epsilon_first}, all reports of one value together "
        f"{m.epsilon_inf}, of {m.max_distinct} values (no more are ever answered for) {m.epsilon_most} ({m.relation}); "
        f"charged by the number of reports alone, and never amplified by a sum; that the value changed, each report "
        f"can tell by {m.epsilon_change:.4g}, which adds up"
    )


def _slices(name: str, s: SlicedCheck) -> str:
    return (
        f"  {name}: sliced by {s.by}: one metric over {s.slices} slices x {s.levels + 1} points, {s.labels} labels in "
        f"all; epsilon {s.epsilon} is of number and slice together, beside {s.by}'s own {s.epsilon_by}"
    )


def _delivery(check: PlanCheck) -> list[str]:
    if check.delivery == "direct":
        return ["delivery direct: no cohorts; central epsilon is the local one, whatever the number of devices"]
    lines = [
        "rosters, from the smallest to the target (threshold: shares of one member's seed that open it)",
        *aligned(_roster_rows(check)),
    ]
    if check.fallback_after_s is None:
        return lines
    late = f"a report without a cohort {check.fallback_after_s} s after its period's end goes direct where the device"
    return [*lines, f"  {late} allows it: its central epsilon is the local one"]


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
    levels = "" if m.sliced is None else f" and levels = {m.sliced.levels}"
    return f'  {m.name}: auto came to {m.mechanism}, the {m.why}; to keep it, write mechanism = "{m.mechanism}"{levels}'


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
