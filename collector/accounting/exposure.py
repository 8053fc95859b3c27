"""What each report of a ledger exposes: which losses, and among how many honest others a sum hides it.

Rules of this file: n_h of a sum is its contributors less the assumed corrupt share of its *roster*, rounded up, less
those whose report came twice, and never below 1. Where a report holds only some of its plan's metrics, n_h is each
metric's own: all the corrupt and all the resent are taken to hold it. What is not known hides nobody. A report that no
sum hides exposes its local losses, and why is kept with it.
Of a report that holds some metrics, nobody knows which: against whoever sees it, it is taken to hold the dearest, each
with the worst law of its epsilon; in a sum, to hold all of them.
What it does not do: compose (`figures.py`), or doubt what the ledger says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from client_sdk.accounting.ledger import Cohort, FoldedReports, Ledger, LedgerEntry, is_within
from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from collector.accounting.losses import PURE
from collector.accounting.memoised import MEMOISED, memo_losses

ALONE: Final = "too_few_honest"
"""Why a report falls back whose sum is not known to hold a second honest one."""

NOT_BY_METRIC: Final = "unknown_metric_contributors"
"""Why a report falls back that holds some of its metrics, of a sum that does not say how many hold each."""

Plans = Mapping[str, Plan]
"""By hash, 64 hexadecimal digits."""

Exposed = tuple[PrivacyLoss, int]
"""A loss, and n_h; 1 is the local loss."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """`reports` reports of one plan that are alike. micro_epsilon: charged for all of them together.

    period_start, round: of the one report, None for folded ones. charged_at: of the newest. left_device: seen by
    anybody at all. falls_back: why no sum hides them, None where one does. n_h: by metric, empty where none hides them.
    contributors: the fewest of any of its sums, None where that is not known.
    """

    plan: str
    reports: int
    micro_epsilon: int
    charged_at: int
    left_device: bool
    falls_back: str | None
    n_h: Mapping[str, int]
    contributors: int | None
    failed_but_spent: bool = False
    period_start: int | None = None
    round: str | None = None


def exposures(ledger: Ledger, plans: Plans, corrupt: Fraction | None, window: str) -> list[Exposure]:
    """One per entry and folded row of the window, in the ledger's order.

    corrupt: share of a roster that is assumed to collude, None: each plan's own. ConfigurationError for a plan that is
    not among `plans`.
    """
    rows: tuple[LedgerEntry | FoldedReports, ...] = (*ledger.entries, *ledger.folded)
    inside = (row for row in rows if is_within(row.charged_at, ledger.as_of, window))
    return [_exposure(row, _plan_of(row.plan, ledger, plans), corrupt) for row in inside]


def _plan_of(plan_hash: str, ledger: Ledger, plans: Plans) -> Plan:
    if plan_hash in plans:
        return plans[plan_hash]
    name = next((f"{plan.name} version {plan.version}: " for plan in ledger.plans if plan.hash == plan_hash), "")
    raise ConfigurationError(f"{name}no plan has the hash {plan_hash}; give the plan as it was published")


def _exposure(row: LedgerEntry | FoldedReports, plan: Plan, corrupt: Fraction | None) -> Exposure:
    entry = _as_entry(row)
    n_h: Mapping[str, int] = {}
    reason = entry.falls_back
    if entry.left_device and reason is None and entry.cohort is not None:
        n_h, reason = hidden_by_metric(plan, entry.cohort, entry.metric_contributors, corrupt)
    seen = _sum_size(entry)
    folded = isinstance(row, FoldedReports)
    return Exposure(
        plan=row.plan,
        reports=row.reports if isinstance(row, FoldedReports) else 1,
        micro_epsilon=row.micro_epsilon,
        charged_at=row.charged_at,
        left_device=entry.left_device,
        falls_back=reason,
        n_h=n_h,
        contributors=seen,
        failed_but_spent=entry.failed_but_spent,
        period_start=None if folded else entry.period_start,
        round=entry.round,
    )


def _sum_size(entry: LedgerEntry) -> int | None:
    """Contributors of the metric that the fewest hold; None where it hid in no sum that anybody knows of."""
    if entry.cohort is None or entry.delivery == "direct":
        return None
    return min(_holders(entry.metric_contributors) or [entry.cohort.contributors])


def _as_entry(row: LedgerEntry | FoldedReports) -> LedgerEntry:
    """One of folded reports: all of them were counted."""
    if isinstance(row, LedgerEntry):
        return row
    return LedgerEntry(
        plan=row.plan,
        period_start=0,
        charged_at=row.charged_at,
        micro_epsilon=row.micro_epsilon,
        outcome="counted",
        left_device=True,
        resent=row.resent,
        delivery=row.delivery,
        cohort=row.cohort,
        metric_contributors=row.metric_contributors,
    )


def hidden_by_metric(
    plan: Plan, cohort: Cohort, by_metric: Mapping[str, int], corrupt: Fraction | None
) -> tuple[Mapping[str, int], str | None]:
    """(n_h by metric, None), or nothing and why. corrupt: None for the plan's own share."""
    if plan.sample_metrics is not None and not set(plan.metrics) <= set(by_metric):
        return {}, NOT_BY_METRIC
    counts = by_metric if plan.sample_metrics is not None else dict.fromkeys(plan.metrics, cohort.contributors)
    share = plan.cohort.corrupt_fraction if corrupt is None else corrupt
    # A metric that nobody holds is not in this report either; no sum hides a memoised one.
    n_h = {
        name: honest(counts[name], cohort, share) for name in plan.metrics if counts[name] and name not in plan.memos
    }
    if not n_h:
        return {}, MEMOISED if plan.memos else ALONE
    return (n_h, None) if max(n_h.values()) > 1 else ({}, ALONE)


def _holders(by_metric: Mapping[str, int]) -> list[int]:
    return [count for count in by_metric.values() if count]


def honest(contributors: int, cohort: Cohort, corrupt: Fraction) -> int:
    """n_h: of so many contributors those who are honest and whose report came once, this one among them; at least 1."""
    return max(1, contributors - math.ceil(corrupt * cohort.roster) - cohort.resent_contributors)


def fraction_above(share: Fraction, largest: int) -> Fraction:
    """The smallest fraction >= share whose denominator is at most `largest`.

    ceil(share x roster) is the same of both for every roster up to `largest`: k / roster is such a fraction. So a share
    of eighteen digits costs no database its 64-bit integers.
    """
    near = share.limit_denominator(largest)
    if near >= share:
        return near
    below, b = near.as_integer_ratio()
    # near's right neighbour c / d among them: c b - below d = 1, d as large as can be (Hardy and Wright, theorem 28)
    d = largest - (largest + pow(below, -1, b)) % b
    return Fraction(1 + below * d, b * d)


def local_losses(plan: Plan) -> tuple[PrivacyLoss, ...]:
    """What one report of the plan loses to whoever sees it, but for its memoised metrics (`memoised.memo_losses`)."""
    if plan.sample_metrics is None:
        return tuple(loss for metric in plan.metrics.values() if metric.memo is None for loss in metric.losses)
    dearest = sorted((metric.epsilon for metric in plan.metrics.values()), reverse=True)[: plan.sample_metrics]
    return tuple(PrivacyLoss.of(PURE, epsilon) for epsilon in dearest)


def local_exposed(reports: Mapping[str, int], plans: Plans) -> Counter[Exposed]:
    """What so many reports of each plan (by hash) lose together to whoever sees them all, and how often each."""
    counts: Counter[Exposed] = Counter()
    for plan, count in reports.items():
        for loss in local_losses(plans[plan]):
            counts[loss, 1] += count
    return counts + memo_exposed(reports, plans)


def memo_exposed(reports: Mapping[str, int], plans: Plans) -> Counter[Exposed]:
    """The same of their memoised metrics alone, to whoever sees sums or reports."""
    counts: Counter[Exposed] = Counter()
    for losses in memo_losses(reports, plans).values():
        counts.update({(loss, 1): count for loss, count in losses.items()})
    return counts


def exposed(exposure: Exposure, plan: Plan) -> Iterator[Exposed]:
    """What one of these reports loses to whoever sees only sums: nothing if it never left."""
    if exposure.falls_back is not None:
        yield from ((loss, 1) for loss in local_losses(plan))
        return
    for name, n_h in exposure.n_h.items():
        yield from ((loss, n_h) for loss in plan.metrics[name].losses)


def exposed_by_plan(rows: Iterable[Exposure], plans: Plans) -> dict[str, Counter[Exposed]]:
    """What all of them lose to whoever sees only sums, and how often, by plan."""
    alike: dict[tuple[str, bool, bool, tuple[tuple[str, int], ...]], Exposure] = {}
    reports: Counter[tuple[str, bool, bool, tuple[tuple[str, int], ...]]] = Counter()
    for row in rows:
        key = row.plan, row.left_device, row.falls_back is None, tuple(row.n_h.items())
        alike.setdefault(key, row)
        reports[key] += row.reports
    found: dict[str, Counter[Exposed]] = {}
    seen: Counter[str] = Counter()
    for key, row in alike.items():
        if row.left_device:
            seen[row.plan] += reports[key]
        counts = found.setdefault(row.plan, Counter())
        for one in exposed(row, plans[row.plan]):
            counts[one] += reports[key]
    for plan, losses in memo_losses(seen, plans).items():
        found.setdefault(plan, Counter()).update({(loss, 1): count for loss, count in losses.items()})
    return found
