"""What a plan costs its users and how exact its answers will be: the data behind `plan check`.

Rules of this file: pure numbers from the plan alone. Costs are what a device that is always on can spend, each
limit applied; errors are those of `prices.py`, for as many contributors of the metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from math import ceil, sqrt
from typing import Any

from client_sdk.accounting.budget import format_micro
from client_sdk.accounting.loss import RELATION
from client_sdk.plan.canonical import minimal
from client_sdk.plan.check_memoize import MemoCheck, check_memo, memo_warnings
from client_sdk.plan.check_slices import SlicedCheck, check_sliced
from client_sdk.plan.defaults import rolling_24h_micro
from client_sdk.plan.model import Metric, Plan, VectorRules
from client_sdk.plan.prices import Choice, ExpectedError, choices, expected_error, usable_from

FLEET_SIZES = (100, 1_000, 10_000, 100_000)
DAY_S = 86_400
STRONG_EPSILON = 8
"""Above this epsilon a single report all but names its value: e^8 is 2981 to 1."""

SMALL_COHORT = 20


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One metric: what it costs, what stands for a period without readings, its expected errors, and other mechanisms.

    auto: the plan left the mechanism to the product; why: by which rule it came to this one, else empty.
    expires: the first day whose periods report it no more (they report the default, at the same cost); None: never.
    usable_from: the fewest contributors whose answer is worth reading (`verdict.RULE`; of a count, one of an equal
    share); None: never, the bins are too coarse for the asked quantiles. devices: how many of a fleet that is, where a
    report holds a sample of the metrics.
    """

    name: str
    kind: str
    mechanism: str
    auto: bool
    why: str
    epsilon: str
    optional: bool
    presence_share: str | None
    on_device: str
    default: str
    expires: str | None
    length: int
    errors: tuple[ExpectedError, ...]
    usable_from: int | None
    devices: int | None
    choices: tuple[Choice, ...]
    vector: VectorCheck | None = None
    memo: MemoCheck | None = None
    sliced: SlicedCheck | None = None


@dataclass(frozen=True, slots=True)
class VectorCheck:
    """What a metric of vectors is clipped to, how far a neighbour can lie, and behind how much noise.

    Lengths in the metric's unit: sensitivity under `relation`, and under add or remove one vector; noise: standard
    deviation of one coordinate in one report. covered_at: contributors whose mean vector's noise is `clip` long (L2).
    """

    dimension: int
    norm: str
    clip: str
    relation: str
    sensitivity: float
    sensitivity_add_remove: float
    noise: float
    delta: str
    rho: str
    calibration: str
    covered_at: int


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
    sample_metrics: how many metrics each report holds; None: all. delivery: `interactive` or `direct`, the way of each
    report; fallback_after_s: how long after its period's end a report that found no cohort goes direct; None: never.
    rosters: empty where every report goes direct.
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
    sample_metrics: int | None
    delivery: str
    fallback_after_s: int | None
    registrar: str | None
    rosters: tuple[RosterCheck, ...]
    metrics: tuple[MetricCheck, ...]
    warnings: tuple[str, ...]
    delta_report: str
    rho_report: str
    rho_lifetime: str | None

    def as_dict(self) -> dict[str, object]:
        """The same as plain data, ready for JSON."""
        return asdict(self)


def check_plan(plan: Plan) -> PlanCheck:
    """Work out costs, errors and warnings of a plan that has been parsed."""
    cost = plan.report_micro_epsilon
    reports, rho_limit = plan.lifetime_reports, plan.budget.lifetime_micro_rho
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
        sample_metrics=plan.sample_metrics,
        delivery=plan.delivery.delivery,
        fallback_after_s=plan.delivery.fallback_after_s if plan.delivery.fallback == "direct" else None,
        registrar=None if plan.registrar is None else f"{plan.registrar.address} {plan.registrar.key.hex()}",
        rosters=tuple(_check_rosters(plan)),
        metrics=tuple(_check_metric(plan, metric) for metric in plan.metrics.values()),
        warnings=(),
        delta_report=minimal(plan.report_delta),
        rho_report=format_micro(plan.report_micro_rho),
        rho_lifetime=None if rho_limit is None else format_micro(rho_limit),
    )
    return replace(check, warnings=tuple(_warnings(plan, check)))


def _reports_per_day(plan: Plan) -> int:
    """Reports that one day's rolling budget lets through, for periods of at most a day."""
    reports = min(max(1, DAY_S // plan.period_s), plan.reports_within(plan.budget.rolling_24h_micro))
    limit = plan.budget.rolling_24h_micro_rho
    return reports if limit is None else min(reports, limit // plan.report_micro_rho)


def _spent_in(plan: Plan, days: int) -> int:
    per_day = _reports_per_day(plan)
    # Periods of several days: as many reports as periods end in the window at most.
    reports = per_day * days if plan.period_s <= DAY_S else per_day * -(-days * DAY_S // plan.period_s)
    reports = min(reports, plan.lifetime_reports)
    # A memoised metric's dearest report is its second.
    return max(plan.spent_micro(reports + earlier) - plan.spent_micro(earlier) for earlier in (0, 1))


def _stops_after_days(plan: Plan, reports: int) -> int | None:
    per_day = _reports_per_day(plan)
    if not reports or not per_day:
        return None
    return -(-reports // per_day) * max(1, plan.period_s // DAY_S)


def _check_rosters(plan: Plan) -> Iterator[RosterCheck]:
    """The smallest roster and the one of target_size; none where no report ever joins one."""
    if plan.delivery.delivery == "direct":
        return
    rules = plan.round_rules()
    for size in sorted({rules.min_roster, plan.cohort.target_size}):
        neighbours = rules.degree(size)
        yield RosterCheck(size, neighbours, rules.threshold(size), neighbours == size - 1)


def _check_metric(plan: Plan, metric: Metric) -> MetricCheck:
    needed = usable_from(metric)
    return MetricCheck(
        name=metric.name,
        kind=metric.kind,
        mechanism=metric.mechanism.name,
        auto=metric.chosen,
        why=_why(metric) if metric.chosen else "",
        epsilon=minimal(metric.epsilon),
        optional=metric.optional,
        presence_share=None if metric.presence_share is None else minimal(metric.presence_share),
        on_device=metric.on_device,
        default=_default(metric),
        expires=None if metric.expires is None else metric.expires.isoformat(),
        length=metric.mechanism.length,
        errors=tuple(expected_error(metric, size) for size in FLEET_SIZES),
        usable_from=needed,
        devices=None if needed is None else _devices(plan, needed),
        choices=choices(metric),
        vector=None if metric.vector is None else _check_vector(metric, metric.vector),
        memo=None if metric.memo is None else check_memo(metric, metric.memo),
        sliced=None if metric.slice_by is None else check_sliced(metric, plan.metrics[metric.slice_by]),
    )


def _check_vector(metric: Metric, rules: VectorRules) -> VectorCheck:
    mechanism: Any = metric.mechanism
    steps = mechanism.ball.sensitivity if rules.norm == "l1" else sqrt(mechanism.ball.sensitivity_squared)
    sensitivity = float(mechanism.unit) * steps
    return VectorCheck(
        dimension=rules.dimension,
        norm=rules.norm,
        clip=minimal(rules.clip),
        relation=RELATION,
        sensitivity=sensitivity,
        sensitivity_add_remove=sensitivity / 2.0,
        noise=mechanism.deviation,
        delta=minimal(rules.delta),
        rho=format_micro(metric.micro_rho),
        calibration=rules.calibration,
        covered_at=ceil(rules.dimension * (mechanism.deviation / float(rules.clip)) ** 2),
    )


def _devices(plan: Plan, contributors: int) -> int:
    """So many that each metric has these contributors."""
    metrics = len(plan.metrics)
    return -(-contributors * metrics // (plan.sample_metrics or metrics))


def _default(metric: Metric) -> str:
    if metric.vector is not None:
        return "zeros"
    if metric.default is None:
        return "no reading"
    return metric.default if isinstance(metric.default, str) else minimal(metric.default)


def _why(metric: Metric) -> str:
    k = len(metric.mechanism.labels)
    if metric.slice_by is not None:
        return "least expected error of a slice's mean"
    if metric.kind == "numeric":
        return "least variance for the reading where it is largest"
    if metric.kind == "quantiles" and not metric.optional:
        return "least error to expect of the asked quantiles (by rule)"
    bins = len(metric.edges) - 1 + metric.optional if metric.edges else k
    return f"least mean squared error over {bins} {'bins' if metric.edges else 'labels'}"


def _warnings(plan: Plan, check: PlanCheck) -> Iterator[str]:
    yield from _budget_warnings(plan, check)
    if plan.report_micro_epsilon > STRONG_EPSILON * 10**6:
        yield (
            f"one report costs epsilon {check.epsilon_report}: above {STRONG_EPSILON} it hides little from whoever "
            f"sees it alone"
        )
    yield from _delivery_warnings(plan, check)
    yield from memo_warnings(plan, STRONG_EPSILON)
    if plan.delivery.delivery == "direct":
        pass  # nothing of `cohort` is ever used
    elif plan.cohort.min_size < SMALL_COHORT:
        yield f"cohort.min_size: a sum over {plan.cohort.min_size} devices hides each of them among few"
    elif plan.sample_metrics is not None:
        fewest = plan.cohort.min_size * plan.sample_metrics // len(plan.metrics)
        if fewest < SMALL_COHORT:
            yield (
                f"plan.sample_metrics: of a cohort of min_size {plan.cohort.min_size} about {fewest} devices hold each "
                f"metric, and none has a floor of its own: its sum hides each of them among few"
            )
    if plan.cohort.corrupt_fraction == 0 and plan.delivery.delivery != "direct":
        yield "cohort.corrupt_fraction: 0 tolerates no member that works with the collector"
    if plan.max_delay_s < plan.period_s:
        yield "plan.max_delay: shorter than the period: a device that is offline for one period loses its report"
    for metric in plan.metrics.values():
        held = plan.cohort.target_size * (plan.sample_metrics or len(plan.metrics)) // len(plan.metrics)
        yield from _metric_warnings(metric, plan.cohort.target_size, max(held, 1))
    for checked in check.metrics:
        if checked.usable_from is None:
            yield (
                f"metrics.{checked.name}: bins too coarse for a usable quantile: its interval is whole bins, as many "
                "as two; make the bins at most a twentieth of the range wide"
            )


def _delivery_warnings(plan: Plan, check: PlanCheck) -> Iterator[str]:
    rules, cost = plan.delivery, f"the collector sees it at its local epsilon, {check.epsilon_report}, never amplified"
    if rules.delivery == "direct":
        yield f"delivery.delivery: every report goes unmasked: {cost}; devices that do not allow it record nothing"
    elif rules.fallback == "direct":
        yield (
            f"delivery.fallback: a report without a cohort {rules.fallback_after_s} s after its period goes unmasked "
            f"where the device allows it: {cost}"
        )
        if rules.fallback_after_s < plan.upload_window_s:
            yield (
                "delivery.fallback_after: shorter than upload_window: reports whose turn comes later never try a cohort"
            )


_TOUCHED = "less than the reports that a window of 24 hours can touch: some periods will go without a report"


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
        yield f"budget.rolling_24h: {_TOUCHED}"
    for field, limit in (("lifetime", budget.lifetime_micro_rho), ("rolling_24h", budget.rolling_24h_micro_rho)):
        if limit is not None and limit < plan.report_micro_rho:
            yield f"budget.{field}_rho: less than one report ({check.rho_report}): nothing is ever sent"
        elif (
            field == "rolling_24h"
            and limit is not None
            and limit < rolling_24h_micro(plan.period_s, plan.report_micro_rho)
        ):
            yield f"budget.{field}_rho: {_TOUCHED}"
    days = check.stops_after_days
    if days is not None and days < 30:
        by_rho = plan.lifetime_reports < plan.reports_within(budget.lifetime_micro)
        field = "lifetime_rho" if by_rho else "lifetime"
        yield f"budget.{field}: used up after {days} days; then the device is silent for ever"


def _metric_warnings(metric: Metric, target_size: int, contributors: int) -> Iterator[str]:
    where = f"metrics.{metric.name}"
    error = expected_error(metric, contributors).standard_error
    half_range = None if metric.width is None else metric.width / 2
    low, high, default = metric.lower, metric.upper, metric.default
    if low is not None and high is not None and isinstance(default, Decimal) and not low <= default <= high:
        yield f"{where}: without a reading it is {minimal(default)}, clipped into [lower, upper]"
    tells_nothing = f"{where}: one cohort of {target_size} tells nothing: the standard error is over"
    if metric.mechanism.answer == "counts":
        if error is None or error > contributors:
            yield f"{tells_nothing} the cohort's size"
    elif error is None or (half_range is not None and error > half_range):
        yield f"{tells_nothing} half the range"
