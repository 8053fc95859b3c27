"""What a plan costs its users and how exact its answers will be: the data behind `plan check`.

Rules of this file: pure numbers from the plan alone. Costs are what a device that is always on can spend, each
limit applied; errors are what `estimate` itself would print for a fleet of that size, without dropouts, for
readings in the middle of the range and for categories of equal shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from client_sdk.accounting.budget import format_micro
from client_sdk.plan.canonical import minimal
from client_sdk.plan.defaults import rolling_24h_micro
from client_sdk.plan.model import Metric, Plan

FLEET_SIZES = (100, 1_000, 10_000, 100_000)
DAY_S = 86_400
STRONG_EPSILON = 8
"""Above this epsilon a single report all but names its value: e^8 is 2981 to 1."""

SMALL_COHORT = 20


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """Standard error of one metric over `contributors` reports.

    Numeric: of the mean, in the metric's unit, percent of the range. Categorical: of one count, in devices,
    percent of the contributors.
    """

    contributors: int
    standard_error: float
    percent: float


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One metric: what it costs, what stands for a period without readings, and its expected errors.

    expires: the first day whose periods report it no more (they report the default, at the same cost); None: never.
    """

    name: str
    kind: str
    mechanism: str
    epsilon: str
    on_device: str
    default: str
    expires: str | None
    length: int
    errors: tuple[ExpectedError, ...]


@dataclass(frozen=True, slots=True)
class RosterCheck:
    """One size of roster: neighbours of each member, shares that open a seed, and whether everybody neighbours all."""

    size: int
    neighbours: int
    threshold: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """All of `plan check`. Epsilons as plain decimals; a device that is always on spends these at most.

    stops_after_days: days until the lifetime budget is used up; None where nothing can be sent at all.
    """

    name: str
    version: int
    hash: str
    epsilon_report: str
    epsilon_day: str
    epsilon_30_days: str
    epsilon_year: str
    epsilon_lifetime: str
    lifetime_reports: int
    stops_after_days: int | None
    vector_elements: int
    registrar: str | None
    rosters: tuple[RosterCheck, ...]
    metrics: tuple[MetricCheck, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain data, ready for JSON."""
        return asdict(self)


def check_plan(plan: Plan) -> PlanCheck:
    """Work out costs, errors and warnings of a plan that has been parsed."""
    cost = plan.report_micro_epsilon
    reports = plan.budget.lifetime_micro // cost
    check = PlanCheck(
        name=plan.name,
        version=plan.version,
        hash=plan.hash.hex(),
        epsilon_report=format_micro(cost),
        epsilon_day=format_micro(_spent_in(plan, 1)),
        epsilon_30_days=format_micro(_spent_in(plan, 30)),
        epsilon_year=format_micro(_spent_in(plan, 365)),
        epsilon_lifetime=format_micro(plan.budget.lifetime_micro),
        lifetime_reports=reports,
        stops_after_days=_stops_after_days(plan, reports),
        vector_elements=plan.length,
        registrar=None if plan.registrar is None else f"{plan.registrar.address} {plan.registrar.key.hex()}",
        rosters=tuple(_check_rosters(plan)),
        metrics=tuple(_check_metric(metric) for metric in plan.metrics.values()),
        warnings=(),
    )
    return replace(check, warnings=tuple(_warnings(plan, check)))


def _reports_per_day(plan: Plan) -> int:
    """Reports that one day's rolling budget lets through, for periods of at most a day."""
    return min(max(1, DAY_S // plan.period_s), plan.budget.rolling_24h_micro // plan.report_micro_epsilon)


def _spent_in(plan: Plan, days: int) -> int:
    per_day = _reports_per_day(plan)
    # Periods of several days: as many reports as periods end in the window at most.
    reports = per_day * days if plan.period_s <= DAY_S else per_day * -(-days * DAY_S // plan.period_s)
    return min(reports, plan.budget.lifetime_micro // plan.report_micro_epsilon) * plan.report_micro_epsilon


def _stops_after_days(plan: Plan, reports: int) -> int | None:
    per_day = _reports_per_day(plan)
    if not reports or not per_day:
        return None
    return -(-reports // per_day) * max(1, plan.period_s // DAY_S)


def _check_rosters(plan: Plan) -> Iterator[RosterCheck]:
    """The smallest roster and the one of target_size."""
    rules = plan.round_rules()
    for size in sorted({rules.min_roster, plan.cohort.target_size}):
        neighbours = rules.degree(size)
        yield RosterCheck(size, neighbours, rules.threshold(size), neighbours == size - 1)


def _check_metric(metric: Metric) -> MetricCheck:
    return MetricCheck(
        name=metric.name,
        kind=metric.kind,
        mechanism=metric.mechanism.name,
        epsilon=minimal(metric.epsilon),
        on_device=metric.on_device,
        default=metric.default if isinstance(metric.default, str) else minimal(metric.default),
        expires=None if metric.expires is None else metric.expires.isoformat(),
        length=metric.mechanism.length,
        errors=tuple(expected_error(metric, size) for size in FLEET_SIZES),
    )


def expected_error(metric: Metric, contributors: int) -> ExpectedError:
    """What `estimate` prints for a typical total of `contributors` >= 1 reports."""
    estimate = metric.mechanism.estimate(_typical_total(metric, contributors), contributors)
    worst = max(error for error in estimate.standard_errors if error is not None)
    scale = float(contributors)
    if metric.lower is not None and metric.upper is not None:
        scale = float(metric.upper - metric.lower)
    return ExpectedError(contributors, worst, 100.0 * worst / scale)


def _typical_total(metric: Metric, contributors: int) -> list[int]:
    # Noise is symmetric around the middle, and equal shares stay equal under randomised response: the expected
    # totals need no formula of the mechanism.
    if metric.kind == "numeric":
        return [contributors * (metric.levels or 0) // 2]
    share, rest = divmod(contributors, metric.mechanism.length)
    return [share + (cell < rest) for cell in range(metric.mechanism.length)]


def _warnings(plan: Plan, check: PlanCheck) -> Iterator[str]:
    yield from _budget_warnings(plan, check)
    if plan.report_micro_epsilon > STRONG_EPSILON * 10**6:
        yield (
            f"one report costs epsilon {check.epsilon_report}: above {STRONG_EPSILON} it hides little from whoever "
            f"sees it alone"
        )
    if plan.cohort.min_size < SMALL_COHORT:
        yield f"cohort.min_size: a sum over {plan.cohort.min_size} devices hides each of them among few"
    if plan.cohort.corrupt_fraction == 0:
        yield "cohort.corrupt_fraction: 0 tolerates no member that works with the collector"
    if plan.max_delay_s < plan.period_s:
        yield "plan.max_delay: shorter than the period: a device that is offline for one period loses its report"
    for metric in plan.metrics.values():
        yield from _metric_warnings(metric, plan.cohort.target_size)


def _budget_warnings(plan: Plan, check: PlanCheck) -> Iterator[str]:
    cost, budget = plan.report_micro_epsilon, plan.budget
    if budget.lifetime_micro < cost:
        yield (
            f"budget.lifetime: {check.epsilon_lifetime} is less than one report ({check.epsilon_report}): "
            f"nothing is ever sent"
        )
    if budget.rolling_24h_micro < cost:
        yield f"budget.rolling_24h: less than one report ({check.epsilon_report}): nothing is ever sent"
    elif budget.rolling_24h_micro < rolling_24h_micro(plan.period_s, cost):
        yield (
            "budget.rolling_24h: less than the reports that a window of 24 hours can touch: "
            "some periods will go without a report"
        )
    days = check.stops_after_days
    if days is not None and days < 30:
        yield f"budget.lifetime: used up after {days} days; then the device is silent for ever"


def _metric_warnings(metric: Metric, target_size: int) -> Iterator[str]:
    where = f"metrics.{metric.name}"
    if metric.lower is not None and metric.upper is not None:
        if not isinstance(metric.default, str) and not metric.lower <= metric.default <= metric.upper:
            yield f"{where}: without a reading it is {minimal(metric.default)}, clipped into [lower, upper]"
        half_range = float(metric.upper - metric.lower) / 2
        if expected_error(metric, target_size).standard_error > half_range:
            yield f"{where}: one cohort of {target_size} tells nothing: the standard error is over half the range"
    elif expected_error(metric, target_size).standard_error > target_size:
        yield f"{where}: one cohort of {target_size} tells nothing: the standard error is over the cohort's size"


def format_check(check: PlanCheck) -> str:
    """The check as plain text, one table of costs and one of errors; ends without a line break."""
    lines = [
        f"plan {check.name} version {check.version}",
        f"hash {check.hash}",
        *([] if check.registrar is None else [f"registrar {check.registrar}"]),
        "",
        "epsilon that one device spends at most (basic composition, no mask trusted)",
        *_aligned(_cost_rows(check)),
        "",
        "rosters, from the smallest to the target (threshold: shares of one member's seed that open it)",
        *_aligned(_roster_rows(check)),
        "",
        "metrics",
        *_aligned(_metric_rows(check)),
        "",
        "standard error to expect, by contributors (a mean in its unit and percent of the range; "
        "a count in devices and percent)",
        *_aligned(_error_rows(check)),
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
        rows.append((f"  {m.name}", m.mechanism, m.epsilon, m.on_device, m.default, str(m.length), expires))
    return rows


def _error_rows(check: PlanCheck) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("  name", *(f"{size:,}" for size in FLEET_SIZES))]
    for m in check.metrics:
        rows.append((f"  {m.name}", *(f"{e.standard_error:.4g} ({e.percent:.3g} %)" for e in m.errors)))
    return rows


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [0] * max(len(row) for row in rows)
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
