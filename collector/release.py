"""From released sums to estimates: decoding, adding up over rounds and versions, and a sum's plausible range.

Sums of one plan version are added before decoding: totals and contributors both add up. Each version is then
decoded with its own mechanism and only the estimates are combined: categories by label, means weighted by
contributors, standard errors as of independent noises. Decoding pooled totals of two versions would be wrong.

What this does not do: it never clips, rounds or normalises an estimate, and `implausible_metrics` catches
only impossible sums. A well-formed false report moves a total within the range of one report: `influence` says how
far. A device that breaks the protocol adds what it likes under its mask, and moves a total to anything that passes
that check: `reach` says how far that is, about as far as all contributors of its round together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.mechanisms import Estimate
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.randomized_response import RandomizedResponse

if TYPE_CHECKING:
    from client_sdk.plan import Metric, Plan


@dataclass(frozen=True, slots=True)
class ReleasedSum:
    """One metric's part of one opened sum, as the store keeps it.

    totals: signed integers, the metric's `mechanism.length` of them.
    contributors: how many reports they hold; roster: how many had joined; resent: contributors whose report
        may also stand in an earlier, unopened masked input.
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


@dataclass(frozen=True, slots=True)
class Combined:
    """Estimates of one metric over any number of rounds and plan versions; `labels` names the rows.

    influence: how far one well-formed false report among the contributors can have moved a row, see `influence`.
    reach: how far one device that broke the protocol in one of the rounds can have, see `reach`.
    """

    labels: tuple[str, ...]
    estimate: Estimate
    influence: float | None = None
    reach: float | None = None


@dataclass(slots=True)
class Pool:
    """Totals and contributors of one metric of one plan version, added up round by round.

    largest: contributors of the largest of these rounds.
    """

    metric: Metric
    totals: list[int] = field(default_factory=list)
    contributors: int = 0
    largest: int = 0

    def add(self, totals: Sequence[int], contributors: int) -> None:
        """Add one released sum. Raises ValueError where it is not one of this metric."""
        if len(totals) != self.metric.mechanism.length or contributors < 0:
            raise ValueError(
                f"metric {self.metric.name!r}: a sum of {len(totals)} cells over {contributors} contributors, "
                f"its plan has {self.metric.mechanism.length} cells"
            )
        before = self.totals or [0] * len(totals)
        self.totals = [a + b for a, b in zip(before, totals, strict=True)]
        self.contributors += contributors
        self.largest = max(self.largest, contributors)

    def estimate(self) -> Estimate:
        """Decode what has been added up so far."""
        return metric_estimate(self.metric, self.totals, self.contributors)


def metric_estimate(metric: Metric, total: Sequence[int], contributors: int) -> Estimate:
    """Decode one metric's total; over nobody every row is None, never a NaN (the mechanism's promise)."""
    return metric.mechanism.estimate(total, contributors)


def combine(pools: Sequence[Pool]) -> Combined:
    """One answer over the versions of a metric, oldest version first; all of one kind.

    Categorical: a label's count is the sum over the versions that know it. Rows: the newest version's
    categories in plan order, then those that only older versions had, `other` last.
    Numeric: the mean over all contributors. Raises ValueError on no pool or on mixed kinds.
    """
    kinds = {pool.metric.kind for pool in pools}
    if len(kinds) != 1:
        raise ValueError(f"combine needs versions of one kind, got {sorted(kinds)}")
    combined = _combined_counts(pools) if kinds == {"categorical"} else _combined_mean(pools)
    filled = [pool for pool in pools if pool.contributors > 0]
    total = combined.estimate.contributors
    return replace(
        combined,
        influence=max((influence(pool.metric, total) for pool in filled), default=None),
        reach=max((reach(pool.metric, pool.largest, total) for pool in filled), default=None),
    )


def influence(metric: Metric, contributors: int) -> float:
    """How far one well-formed false report among `contributors` (at least one) moves an estimate, at most.

    Against the same sum without it. Categorical: its label's count goes up by (1 - q) / (p - q), whoever else reports;
    the others go down by less. Numeric: from a mean within the metric's range, by the largest value that one report
    can hold, divided by `contributors`. None that does less can be told apart. What is masked but is no report of
    the mechanism can do more: see `reach`.
    """
    mechanism = metric.mechanism
    if metric.kind == "categorical":
        return mechanism.estimate([1, *[0] * (mechanism.length - 1)], 1).values[0] or 0.0
    highest, lowest = (mechanism.estimate([cell], 1).values[0] or 0.0 for cell in (mechanism.bound, 0))
    return (highest - lowest) / contributors


def reach(metric: Metric, in_round: int, contributors: int) -> float:
    """How far whatever passes the plausibility check in a round of `in_round` moves an estimate over `contributors`.

    The width of what that check lets through, from the lowest to the highest sum of that round: no device in it can
    do more, whatever it sends, and one that knows the others' sum can do nearly all of it. It may do so once a period.
    """
    mechanism = metric.mechanism
    rest = [0] * (mechanism.length - 1)
    lowest, highest = (
        mechanism.estimate([cell, *rest], in_round).values[0] or 0.0 for cell in plausible_range(metric, in_round)
    )
    width = highest - lowest
    return width if metric.kind == "categorical" else width * in_round / contributors


def _combined_mean(pools: Sequence[Pool]) -> Combined:
    labels = pools[-1].metric.mechanism.labels
    filled = [(pool.contributors, pool.estimate()) for pool in pools if pool.contributors > 0]
    contributors = sum(n for n, _ in filled)
    if contributors == 0:
        return Combined(labels, Estimate.empty(len(labels)))
    value = math.fsum(n * (e.values[0] or 0.0) for n, e in filled) / contributors
    error = math.hypot(*(n * (e.standard_errors[0] or 0.0) for n, e in filled)) / contributors
    return Combined(labels, Estimate((value,), (error,), contributors))


def _combined_counts(pools: Sequence[Pool]) -> Combined:
    labels = _labels(pool.metric for pool in reversed(pools))
    filled = [pool for pool in pools if pool.contributors > 0]
    if not filled:
        return Combined(labels, Estimate.empty(len(labels)))
    counts: dict[str, list[float]] = {label: [] for label in labels}
    errors: dict[str, list[float]] = {label: [] for label in labels}
    for pool in filled:
        decoded = pool.estimate()
        rows = zip(pool.metric.mechanism.labels, decoded.values, decoded.standard_errors, strict=True)
        for label, value, error in rows:
            counts[label].append(value or 0.0)
            errors[label].append(error or 0.0)
    return Combined(
        labels,
        Estimate(
            tuple(math.fsum(counts[label]) for label in labels),
            tuple(math.hypot(*errors[label]) for label in labels),
            sum(pool.contributors for pool in filled),
        ),
    )


def _labels(newest_first: Iterable[Metric]) -> tuple[str, ...]:
    plain: dict[str, None] = {}
    others: dict[str, None] = {}
    for metric in newest_first:
        for label in metric.mechanism.labels:
            (others if label == metric.other else plain)[label] = None
    return (*plain, *(label for label in others if label not in plain))


# --- before a sum is stored -------------------------------------------------------------------------


def implausible_metrics(plan: Plan, totals: Sequence[int], contributors: int) -> list[str]:
    """Names of the metrics whose part of an opened sum cannot come from `contributors` valid reports.

    One-hot cells lie in [0, contributors] and add up to contributors; a number lies in
    contributors * [-T, levels + T]; any other mechanism's cells within contributors * bound.
    """
    if len(totals) != plan.length:
        return list(plan.metrics)
    return [
        name for name, metric in plan.metrics.items() if not _plausible(metric, totals[plan.slices[name]], contributors)
    ]


def check_plausible(plan: Plan, totals: Sequence[int], contributors: int) -> None:
    """Raise RoundAbortedError(IMPLAUSIBLE_SUM) where any metric's part of the sum is impossible."""
    if implausible_metrics(plan, totals, contributors):
        raise RoundAbortedError(AbortReason.IMPLAUSIBLE_SUM, have=contributors, need=plan.cohort.min_size)


def plausible_range(metric: Metric, contributors: int) -> tuple[int, int]:
    """The smallest and the largest cell of a sum that `contributors` valid reports can give."""
    mechanism = metric.mechanism
    if isinstance(mechanism, RandomizedResponse):
        return 0, contributors
    if isinstance(mechanism, Laplace):
        return -mechanism.tail * contributors, (mechanism.levels + mechanism.tail) * contributors
    return -mechanism.bound * contributors, mechanism.bound * contributors


def _plausible(metric: Metric, cells: Sequence[int], contributors: int) -> bool:
    lowest, highest = plausible_range(metric, contributors)
    if isinstance(metric.mechanism, RandomizedResponse) and sum(cells) != contributors:
        return False
    return all(lowest <= cell <= highest for cell in cells)


def pool_sums(plans: Mapping[bytes, Plan], rows: Iterable[ReleasedSum]) -> dict[tuple[bytes, str], Pool]:
    """Add up the rows of each (plan hash, metric). Raises KeyError for a row of an unknown plan or metric."""
    pools: dict[tuple[bytes, str], Pool] = {}
    for row in rows:
        key = (row.plan_hash, row.metric)
        if key not in pools:
            pools[key] = Pool(plans[row.plan_hash].metrics[row.metric])
        pools[key].add(row.totals, row.contributors)
    return pools
