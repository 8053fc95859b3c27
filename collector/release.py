"""A released sum, and what is asked of an opened one before it is stored.

Rules of this file: an opened sum is stored only where reports that follow the plan can add up to it, all metrics
together; of a plan whose reports hold a sample of its metrics, how many hold each metric comes out of the sum itself,
and is bound to what such reports can give.
What it does not do: it decodes nothing (`combination`), and catches only impossible sums: see `influence` for how far
what passes reaches. Nor does it ask for a floor per metric: `min_size` is of the round's reports; a sampled metric's
contributors, as many as drew it, have no floor of their own (`plan check` warns where few are to be expected).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client_sdk.errors import AbortReason, RoundAbortedError

if TYPE_CHECKING:
    from client_sdk.plan import Plan


@dataclass(frozen=True, slots=True)
class ReleasedSum:
    """One metric's part of one opened sum, as the store keeps it.

    totals: signed integers, the metric's `mechanism.length` of them.
    contributors: how many reports hold the metric; roster: how many had joined; resent: contributors whose report
        may also stand in an earlier, unopened masked input.
    reports: how many reports the round added up, more than `contributors` where they hold a sample of the metrics;
        0: as many.
    """

    round_id: str
    plan_hash: bytes
    period_start: int
    metric: str
    totals: tuple[int, ...]
    contributors: int
    roster: int = 0
    resent: int = 0
    delivery: str = "interactive"
    reports: int = 0


def metric_contributors(plan: Plan, totals: Sequence[int], reports: int) -> Mapping[str, int]:
    """How many of `reports` hold each metric: all of them, or the sum's own count of it where the plan samples."""
    return {name: totals[plan.counts[name]] if plan.counts else reports for name in plan.metrics}


def implausible_metrics(plan: Plan, totals: Sequence[int], reports: int) -> list[str]:
    """Names of the metrics whose part of an opened sum cannot come from `reports` valid reports.

    What can: see `is_plausible` of each mechanism. Where each report holds `sample_metrics` of the metrics, each is
    held by 0 .. `reports` of them and all together by `sample_metrics` times as many; else no metric can be believed.
    """
    if len(totals) != plan.length:
        return list(plan.metrics)
    held = metric_contributors(plan, totals, reports)
    if plan.sample_metrics is not None and sum(held.values()) != plan.sample_metrics * reports:
        return list(plan.metrics)
    return [
        name
        for name, metric in plan.metrics.items()
        if not 0 <= held[name] <= reports or not metric.mechanism.is_plausible(totals[plan.slices[name]], held[name])
    ]


def check_plausible(plan: Plan, totals: Sequence[int], reports: int) -> None:
    """Raise RoundAbortedError(IMPLAUSIBLE_SUM) where any metric's part of the sum is impossible."""
    if implausible_metrics(plan, totals, reports):
        raise RoundAbortedError(AbortReason.IMPLAUSIBLE_SUM, have=reports, need=plan.cohort.min_size)
