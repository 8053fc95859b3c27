"""The report: unbiased estimates of every metric over a window of periods, from released sums.

Every number carries its contributors, its standard error (for these contributors' values: only noise is
random) and `ci95`, 95 % of such intervals hold the truth; beside them the same for the population that the
contributors are a sample of, and intervals that all rows of a metric lie in together. Neither estimates nor interval
ends are cut to what is possible: a count below 0 or above n is noise, and cutting it would bias every total made of
it. `one_false_report` is how far a single well-formed lie among the contributors moves one of the metric's numbers,
at most; `one_broken_device` is the same for a device that breaks the protocol in one round: the width of all that
passes the plausibility check of the largest round's sum (a report that came unmasked was judged alone). Null where
neither is known. `false_devices` well-formed liars are assumed beside that, and what they can have done stands at every
number, with a combination that they move less (`trust`). `epsilon_local` and `epsilon_central` are what one report of
the metric costs who made it (`epsilons`). `direct`: how many of the contributors came unmasked; they are decoded
together with all others, and cost their devices the local epsilon, which `epsilon_central` then is: it is that of the
least hidden report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from collector.combination import Pool, combine, pools_of
from collector.plan_texts import HasPlanText, read_plan
from collector.poisoning import SHARE
from collector.reduced import Head, Key, PeriodKey, Reduced, is_between, is_cohort, reduce_sums
from collector.reports.epsilons import epsilon_fields, smallest_n_h
from collector.reports.estimates import INTERVALS, SUMS, VIEWS, estimate_rows, population_interval, vector_object
from collector.reports.text import Cell, format_instant
from collector.reports.trust import COLUMNS as TRUST_COLUMNS
from collector.reports.trust import cells as trust_cells
from collector.reports.trust import trust_of_metric, trust_of_rows

if TYPE_CHECKING:
    from collector.release import ReleasedSum

EPSILONS: Final = ("epsilon_local", "epsilon_central", "n_h", "delta", "central_method")
"""Beside them `delta_local`: what epsilon_local holds up to, 0 but for Gaussian noise."""

COLUMNS = (
    "plan", "metric", "kind", "mechanism", "epsilon", "plan_versions", "contributors",
    "label", "estimate", "standard_error", "ci95_low", "ci95_high", "expires", "one_false_report",
    "one_broken_device", "reports",
    "population_error", *(f"{name}_{end}" for name in INTERVALS[1:] for end in ("low", "high")), *VIEWS,
    *EPSILONS, "population_interval", *SUMS, "direct", *TRUST_COLUMNS,
)  # fmt: skip


class UnknownMetricError(ConfigurationError):
    """The metric that was asked for stands in no plan of the store."""


@dataclass(frozen=True, slots=True)
class _Version:
    """n_h: of the sum that hides its reports least, None where it has no sum. heads: of those that the pool added up;
    cohorts: the ones of them that are compared.
    """

    plan: Plan
    pool: Pool
    n_h: int | None
    heads: Sequence[Head] = ()
    cohorts: Sequence[ReleasedSum] = ()
    compared: bool = True


def build_report(
    plans: Iterable[HasPlanText],
    rows: Reduced | Iterable[ReleasedSum],
    since: int | None = None,
    until: int | None = None,
    metric: str | None = None,
    false_devices: Fraction | int = SHARE,
) -> dict[str, Any]:
    """`{since, until, plans[], metrics[]}`, ready for JSON. false_devices: how many, or a share of the contributors.

    rows: released sums of these plans, or what they were reduced to; those outside since <= period_start < until are
    left out, and so are those of periods in which their metric had expired: they hold its default and nothing else.
    A metric without a sum in the window has contributors 0 and nulls; one with too many cohorts to compare them has
    `cohorts_compared` false, and nulls where they would be. Raises UnknownMetricError.
    """
    parsed, groups = _asked(plans, rows, since, until, metric)
    return {
        "since": format_instant(since),
        "until": format_instant(until),
        "plans": [{"name": p.name, "version": p.version, "hash": p.hash.hex()} for p in parsed],
        "metrics": [_metric_object(versions, false_devices) for versions in groups],
    }


def build_numbers(
    plans: Iterable[HasPlanText],
    rows: Reduced | Iterable[ReleasedSum],
    since: int | None = None,
    until: int | None = None,
    metric: str | None = None,
) -> dict[str, Any]:
    """`{metrics[]}` of `build_report`, each with its name, plan, kind, contributors and estimates alone, and those
    without what false devices can have done: all that a chart needs, a small part of the work.
    """
    _, groups = _asked(plans, rows, since, until, metric)
    return {"metrics": [_numbers(versions) for versions in groups]}


def _asked(
    plans: Iterable[HasPlanText],
    rows: Reduced | Iterable[ReleasedSum],
    since: int | None,
    until: int | None,
    metric: str | None,
) -> tuple[list[Plan], list[list[_Version]]]:
    """The plans, and the versions of each metric that is asked for."""
    parsed = sorted((_parsed(plan) for plan in plans), key=lambda plan: (plan.name, plan.version))
    by_hash = {plan.hash: plan for plan in parsed}
    inside = _reduced(rows, since, until)
    groups = _groups(parsed, inside.where(lambda key: not _is_expired(key, by_hash)))
    if metric is not None and metric not in {name for _, name, _ in groups}:
        raise UnknownMetricError(_unknown(metric, {name for _, name, _ in groups}))
    return parsed, [versions for (_, name, _), versions in groups.items() if metric in (None, name)]


def _parsed(plan: HasPlanText) -> Plan:
    return plan if isinstance(plan, Plan) else read_plan(plan.text, plan.hash)


def _reduced(rows: Reduced | Iterable[ReleasedSum], since: int | None, until: int | None) -> Reduced:
    if isinstance(rows, Reduced):
        return rows.between(since, until)
    return reduce_sums(row for row in rows if is_between(row.period_start, since, until))


def _is_expired(key: PeriodKey, plans: Mapping[bytes, Plan]) -> bool:
    plan_hash, metric, period_start = key
    return plans[plan_hash].metrics[metric].is_expired(period_start)


def _unknown(metric: str, known: set[str]) -> str:
    names = ", ".join(sorted(known)[:20]) or "none, no plan was served on it yet"
    return f"no metric {metric[:64]!r} in the store's plans; it has: {names}"


def _groups(plans: Sequence[Plan], reduced: Reduced) -> dict[tuple[str, str, str], list[_Version]]:
    """Per (plan name, metric, kind and answer) its versions, oldest first.

    A metric that changed its kind is two metrics, and so is a number that became optional: a mean over everybody, and
    one over those that had a reading.
    """
    by_hash = {plan.hash: plan for plan in plans}
    pools, n_h = pools_of(by_hash, reduced), smallest_n_h(by_hash, reduced.heads)
    heads: dict[Key, list[Head]] = defaultdict(list)
    for head in reduced.heads:
        heads[head.plan_hash, head.metric].append(head)
    groups: dict[tuple[str, str, str], list[_Version]] = defaultdict(list)
    for plan in plans:
        for name, metric in plan.metrics.items():
            key, compared = (plan.hash, name), name not in reduced.not_compared
            cohorts = reduced.cohorts.get(key, ())
            groups[plan.name, name, f"{metric.kind} {metric.mechanism.answer}"].append(
                _Version(plan, pools.get(key) or Pool(metric), n_h.get(key), heads.get(key, ()), cohorts, compared)
            )
    return groups


def _metric_object(versions: Sequence[_Version], assumed: Fraction | int) -> dict[str, Any]:
    """Estimates over the versions that have sums; where none has, the newest version's rows, empty."""
    counted = [version for version in versions if version.pool.contributors > 0]
    used = counted or [versions[-1]]
    newest = used[-1].pool.metric
    pools = [version.pool for version in used]
    combined = combine(pools)
    sums = [row for version in used for row in version.cohorts]
    metrics = {version.plan.hash: version.pool.metric for version in used}
    trust = trust_of_metric(sums, metrics, combined.estimate.contributors, assumed) | _uncompared(used)
    estimates = estimate_rows(combined, [pool.metric for pool in pools])
    beside = trust_of_rows(sums, metrics, pools, combined, trust["false_devices"])
    return {
        "name": newest.name,
        "plan": used[-1].plan.name,
        "kind": newest.kind,
        # of the newest version that has sums; `versions` has them all
        "mechanism": newest.mechanism.name,
        "epsilon": float(newest.epsilon),
        # from that day's periods on it was not asked for any more; None: it is
        "expires": None if newest.expires is None else newest.expires.isoformat(),
        "plan_versions": [version.plan.version for version in counted],
        "versions": [_version_object(version) for version in counted],
        "contributors": combined.estimate.contributors,
        # that the sums hold, more than contributors where each holds a sample of the metrics
        "reports": sum(version.pool.reports for version in counted),
        "direct": sum(version.pool.direct for version in counted),
        "one_false_report": combined.influence,
        "one_broken_device": combined.reach,
        **epsilon_fields([(version.pool.metric, version.n_h) for version in counted], newest),
        "population_interval": population_interval(combined),
        **trust,
        "estimates": [{**row, **more} for row, more in zip(estimates, beside, strict=True)],
        **({"vector": vector_object(combined)} if combined.answer == "vector" else {}),
    }


def _numbers(versions: Sequence[_Version]) -> dict[str, Any]:
    used = [version for version in versions if version.pool.contributors > 0] or [versions[-1]]
    pools = [version.pool for version in used]
    combined = combine(pools, reaches=False)
    return {
        "name": pools[-1].metric.name,
        "plan": used[-1].plan.name,
        "kind": pools[-1].metric.kind,
        "contributors": combined.estimate.contributors,
        "estimates": estimate_rows(combined, [pool.metric for pool in pools]),
    }


def _uncompared(versions: Sequence[_Version]) -> dict[str, Any]:
    """What is said of cohorts that were too many to be compared; nothing of others."""
    cohorts = sum(head.rounds for version in versions for head in version.heads if is_cohort(head))
    return {} if versions[-1].compared or not cohorts else {"cohorts": cohorts, "cohorts_compared": False}


def _version_object(version: _Version) -> dict[str, Any]:
    metric = version.pool.metric
    return {
        "version": version.plan.version,
        "mechanism": metric.mechanism.name,
        "epsilon": float(metric.epsilon),
        "contributors": version.pool.contributors,
    }


def report_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """A report as one row per estimate, in COLUMNS."""
    return [
        [
            metric["plan"], metric["name"], metric["kind"], metric["mechanism"], metric["epsilon"],
            " ".join(str(version) for version in metric["plan_versions"]), metric["contributors"],
            row["label"], row["estimate"], row["standard_error"], *row["ci95"], metric["expires"],
            metric["one_false_report"], metric["one_broken_device"], metric["reports"],
            row["population_error"], *(end for name in INTERVALS[1:] for end in row[name]),
            *(row[name] for name in VIEWS), *(metric[name] for name in EPSILONS),
            metric["population_interval"], *(row[name] for name in SUMS), metric["direct"],
            *trust_cells(metric, row),
        ]
        for metric in document["metrics"]
        for row in metric["estimates"]
    ]  # fmt: skip
