"""From released sums to one answer: adding up rounds, decoding each plan version, combining the versions.

Sums of one plan version are added before decoding: totals and contributors both add up. Each version is then
decoded with its own mechanism and only what comes out is combined, by what the rows are: counts by label, means
weighted by contributors, ratios from the parts that they are made of, quantiles from the mixed distribution; errors
as of independent noises. Decoding pooled totals of two versions would be wrong.

What this does not do: it never clips, rounds or normalises an estimate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from client_sdk.mechanisms import Answer, Estimate
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.distribution import mix, quantiles_of
from client_sdk.mechanisms.optional import ratio_of
from collector.influence import influence, reach
from collector.reduced import Head, Key, Reduced, reduce_sums
from collector.slices import combined_slices, rows_of

MOST_COORDINATES: Final = 4096
"""Of a vector that are shown row by row."""

if TYPE_CHECKING:
    from client_sdk.mechanisms.optional import OptionalNumber
    from client_sdk.mechanisms.quantiles import Quantiles
    from client_sdk.plan import Metric, Plan
    from collector.release import ReleasedSum


@dataclass(frozen=True, slots=True)
class Combined:
    """Estimates of one metric over any number of rounds and plan versions; `labels` names the rows.

    answer: what the rows are. smoothed: at least one version's are smoothed, and so biased.
    influence: how far one well-formed false report among the contributors can have moved a row, see `influence`.
    reach: how far one device that broke the protocol in one of the rounds can have, see `reach`.
    """

    labels: tuple[str, ...]
    estimate: Estimate
    answer: Answer
    smoothed: bool = False
    influence: float | None = None
    reach: float | None = None


def beginning(combined: Combined) -> Combined:
    """The same, of a vector with its first MOST_COORDINATES rows alone."""
    if combined.answer != "vector" or len(combined.labels) <= MOST_COORDINATES:
        return combined
    cut, estimate = slice(MOST_COORDINATES), combined.estimate
    columns = estimate.values, estimate.standard_errors, estimate.population_errors
    values, errors, population = (column[cut] for column in columns)
    first = replace(estimate, values=values, standard_errors=errors, population_errors=population)
    return replace(combined, labels=combined.labels[cut], estimate=first)


def is_count(answer: Answer, place: int) -> bool:
    """Is this row of such an answer a number of devices?"""
    return answer == "counts" or (answer in ("optional_mean", "slices") and place % 2 == 1)


@dataclass(slots=True)
class Pool:
    """Totals and contributors of one metric of one plan version, added up round by round.

    periods: contributors of each. reports: those included that do not hold the metric; largest: how many of them the
    largest round added up, where direct sums, whose reports were judged one by one, count as one. direct: contributors
    that came unmasked.
    """

    metric: Metric
    totals: list[int] = field(default_factory=list)
    contributors: int = 0
    reports: int = 0
    largest: int = 0
    direct: int = 0
    periods: Counter[int] = field(default_factory=Counter)

    def add(self, totals: Sequence[int], contributors: int, reports: int = 0) -> None:
        """Add one released sum that hid its reports; see `ReleasedSum`. Raises ValueError where it is none of this
        metric.
        """
        self.add_rounds(Head(b"", self.metric.name, 0, "interactive", contributors, 0, 0, reports))
        self.add_totals(totals)

    def add_rounds(self, head: Head) -> None:
        """Of some rounds all but their totals."""
        contributors, is_direct = head.contributors, head.delivery == "direct"
        if contributors < 0:
            raise ValueError(f"metric {self.metric.name!r}: a sum over {contributors} contributors")
        self.contributors += contributors * head.rounds
        self.periods[head.period_start] += contributors * head.rounds
        self.reports += max(head.reports, contributors) * head.rounds
        self.largest = max(self.largest, min(contributors, 1) if is_direct else max(head.reports, contributors))
        self.direct += contributors * head.rounds * is_direct

    def add_totals(self, totals: Sequence[int]) -> None:
        """The totals of rounds that `add_rounds` has. Raises ValueError where they are none of this metric."""
        if len(totals) != self.metric.mechanism.length:
            raise ValueError(
                f"metric {self.metric.name!r}: a sum of {len(totals)} cells, its plan has "
                f"{self.metric.mechanism.length} cells"
            )
        before = self.totals or [0] * len(totals)
        self.totals = [a + b for a, b in zip(before, totals, strict=True)]

    def estimate(self) -> Estimate:
        """Decode what has been added up so far."""
        estimate = metric_estimate(self.metric, self.totals, self.contributors)
        if self.metric.memo is None or self.contributors == 0:
            return estimate
        return _remembered(estimate, [count for count in self.periods.values() if count])


def _remembered(estimate: Estimate, contributors: Sequence[int]) -> Estimate:
    """Over several periods of a memoised metric, errors that hold although a device's noise is the same in each.

    contributors: of each period. Whatever correlation there is, the deviation of a sum is at most the sum of the
    periods' deviations, and each of them goes with the root of its contributors.
    """
    if len(contributors) < 2:
        return estimate
    wider = math.fsum(map(math.sqrt, contributors)) / math.sqrt(sum(contributors))
    errors, population = (
        tuple(None if error is None else wider * error for error in listed)
        for listed in (estimate.standard_errors, estimate.population_errors)
    )
    return Estimate(estimate.values, errors, estimate.contributors, population)


def pool_sums(plans: Mapping[bytes, Plan], rows: Iterable[ReleasedSum]) -> dict[Key, Pool]:
    """Add up the rows of each (plan hash, metric). Raises KeyError for a row of an unknown plan or metric."""
    return pools_of(plans, reduce_sums(rows))


def pools_of(plans: Mapping[bytes, Plan], reduced: Reduced) -> dict[Key, Pool]:
    """The same of what was added up elsewhere."""
    pools: dict[Key, Pool] = {}
    for head in reduced.heads:
        key = (head.plan_hash, head.metric)
        if key not in pools:
            pools[key] = Pool(plans[head.plan_hash].metrics[head.metric])
        pools[key].add_rounds(head)
    for (plan_hash, metric, _), totals in reduced.totals.items():
        pools[plan_hash, metric].add_totals(totals)
    return pools


def metric_estimate(metric: Metric, total: Sequence[int], contributors: int) -> Estimate:
    """Decode one metric's total; over nobody every row is None, never a NaN (the mechanism's promise)."""
    return metric.mechanism.estimate(total, contributors)


def combine(pools: Sequence[Pool], *, reaches: bool = True) -> Combined:
    """One answer over the versions of a metric, oldest version first; all of one kind, with one kind of answer.

    Counts: a label's is the sum over the versions that know it. Rows: the newest version's labels in plan order, then
    those that only older versions had, `other` and "no reading" last. Otherwise the rows of the newest version that
    has contributors. Without `reaches` no influence and no reach, which take most of the time. Raises ValueError on no
    pool or on mixed kinds.
    """
    kinds = {(pool.metric.kind, pool.metric.mechanism.answer) for pool in pools}
    if len(kinds) != 1:
        raise ValueError(f"combine needs versions of one kind, got {sorted(kinds)}")
    ((_, answer),) = kinds
    filled = [pool for pool in pools if pool.contributors > 0]
    labels = (filled or pools)[-1].metric.mechanism.labels
    if answer == "counts":
        labels = _labels(pool.metric for pool in reversed(pools))
    elif answer == "slices":
        labels = rows_of(pool.metric for pool in reversed(pools))
    smoothed = any(_is_smoothed(pool.metric) for pool in filled or pools)
    if not filled:
        return Combined(labels, Estimate.empty(len(labels)), answer, smoothed)
    estimate = _COMBINE[answer](filled, labels)
    if not reaches:
        return Combined(labels, estimate, answer, smoothed)
    return Combined(labels, estimate, answer, smoothed, influence(filled, estimate), reach(filled, estimate))


def _is_smoothed(metric: Metric) -> bool:
    """Only mechanisms that can smooth say so."""
    return bool(getattr(metric.mechanism, "smoothed", False))


def _single(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate | None:
    """One version's own estimate where it has these rows: it may know better intervals than the normal ones."""
    if len(pools) > 1 or pools[0].metric.mechanism.labels != labels:
        return None
    return pools[0].estimate()


# --- counts -----------------------------------------------------------------------------------------


def _labels(newest_first: Iterable[Metric]) -> tuple[str, ...]:
    plain: dict[str, None] = {}
    others: dict[str, None] = {}
    for metric in newest_first:
        for label in metric.mechanism.labels:
            (others if _is_last(metric, label) else plain)[label] = None
    last = sorted((label for label in others if label not in plain), key=lambda label: label == ABSENT)
    return (*plain, *last)


def _is_last(metric: Metric, label: str) -> bool:
    return label == metric.other or (metric.optional and label == ABSENT)


def _combined_counts(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate:
    single = _single(pools, labels)
    if single is not None:
        return single
    rows: dict[str, list[tuple[float, float, float | None]]] = {label: [] for label in labels}
    for pool in pools:
        decoded = pool.estimate()
        for label, *row in zip(pool.metric.mechanism.labels, *_columns(decoded), strict=True):
            rows[label].append((row[0] or 0.0, row[1] or 0.0, row[2]))
    return Estimate(
        tuple(math.fsum(value for value, _, _ in rows[label]) for label in labels),
        tuple(math.hypot(*(error for _, error, _ in rows[label])) for label in labels),
        sum(pool.contributors for pool in pools),
        tuple(_independent(error for _, _, error in rows[label]) for label in labels),
    )


def _columns(estimate: Estimate) -> tuple[tuple[float | None, ...], ...]:
    population = estimate.population_errors or (None,) * len(estimate.values)
    return estimate.values, estimate.standard_errors, population


def _independent(errors: Iterable[float | None]) -> float | None:
    """The error of a sum of independent numbers; None where one of theirs is not known."""
    known = list(errors)
    return None if None in known else math.hypot(*(error for error in known if error is not None))


# --- means ------------------------------------------------------------------------------------------


def _combined_mean(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate:
    single = _single(pools, labels)
    if single is not None:
        return single
    n = sum(pool.contributors for pool in pools)
    decoded = [(pool.contributors / n, pool.estimate()) for pool in pools]
    value = math.fsum(share * (e.values[0] or 0.0) for share, e in decoded)
    error = math.hypot(*(share * (e.standard_errors[0] or 0.0) for share, e in decoded))
    errors = ((share, _columns(e)[2][0]) for share, e in decoded)
    population = _independent(None if error is None else share * error for share, error in errors)
    return Estimate((value,), (error,), n, (population,))


def _combined_ratio(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate:  # noqa: ARG001 - alike in all
    """The mean over all that had a reading, from each version's parts: never a mean of the versions' ratios."""
    return ratio_of([cast("OptionalNumber", p.metric.mechanism).parts(p.totals, p.contributors) for p in pools])


# --- quantiles --------------------------------------------------------------------------------------


def _combined_quantiles(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate:
    """Of the versions' distributions, mixed as their readings are; the newest version says which quantiles."""
    single = _single(pools, labels)
    if single is not None:
        return single
    mechanisms = [cast("Quantiles", pool.metric.mechanism) for pool in pools]
    mixed = mix([m.distribution(pool.totals, pool.contributors) for m, pool in zip(mechanisms, pools, strict=True)])
    return quantiles_of(mixed, pools[-1].metric.quantiles)


# --- vectors ----------------------------------------------------------------------------------------


def _combined_vector(pools: Sequence[Pool], labels: tuple[str, ...]) -> Estimate:
    """Means by coordinate, weighted by contributors; all versions have as many coordinates (`plan.names`)."""
    single = _single(pools, labels)
    if single is not None:
        return single
    if any(pool.metric.mechanism.length != len(labels) for pool in pools):
        raise ValueError(f"metric {pools[0].metric.name!r}: versions with vectors of different dimensions")
    n = sum(pool.contributors for pool in pools)
    parts = [(pool.contributors / n, _columns(pool.estimate())) for pool in pools]
    columns = (np.array([part[i] for _, part in parts], np.float64) for i in range(3))
    shares = np.array([share for share, _ in parts])[:, None]
    values, errors, population = columns
    return Estimate(
        tuple((shares * values).sum(axis=0).tolist()),
        tuple(np.sqrt(((shares * errors) ** 2).sum(axis=0)).tolist()),
        n,
        tuple(np.sqrt(((shares * population) ** 2).sum(axis=0)).tolist()),
    )


_COMBINE: Final[Mapping[Answer, Callable[[Sequence[Pool], tuple[str, ...]], Estimate]]] = {
    "counts": _combined_counts,
    "mean": _combined_mean,
    "optional_mean": _combined_ratio,
    "slices": combined_slices,
    "quantiles": _combined_quantiles,
    "vector": _combined_vector,
}
