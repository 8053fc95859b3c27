"""The median over cohorts: a number that a few cohorts full of false reports cannot move far.

Each cohort's sum is decoded alone, and the median is over cohorts, weighted by their contributors: unless half of all
contributors are in cohorts with false reports, it lies among those of cohorts without any.

Rules of this file: it is a second number, never the estimate's replacement: where cohorts differ, it is another
quantity than the mean over all devices; its error is that of a median of normal numbers (pi / 2 times the variance).
What it does not do: sums of direct reports are no cohorts; a metric of more rows than are quickly decoded has none.
Source: Yin et al., "Byzantine-Robust Distributed Learning" (ICML 2018), for the median of many small averages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from collector.combination import is_count, metric_estimate

if TYPE_CHECKING:
    from client_sdk.plan import Metric
    from collector.combination import Combined, Pool
    from collector.release import ReleasedSum

FEWEST: Final = 3
"""Cohorts that a median needs: of two, it is the mean."""

MOST_NUMBERS: Final = 1_000_000
"""Rows of all cohorts together, which are decoded one by one."""

ERROR: Final = math.sqrt(math.pi / 2.0)
"""Of a median, in errors of the mean over the same."""


def cohorts_of(rows: Sequence[ReleasedSum]) -> list[ReleasedSum]:
    """Those that hid reports: direct ones stand alone."""
    return [row for row in rows if row.delivery != "direct" and row.contributors]


def median_of_cohorts(
    rows: Sequence[ReleasedSum], metrics: Mapping[bytes, Metric], pools: Sequence[Pool], combined: Combined
) -> list[float | None]:
    """One per row of `combined`, which these pools of these sums came to; counts are of all contributors of the plan
    versions that know the row, as the estimate's are.
    """
    cohorts = cohorts_of(rows)
    decoded = sum(len(metrics[row.plan_hash].mechanism.labels) for row in cohorts)
    if len(cohorts) < FEWEST or decoded > MOST_NUMBERS:
        return [None] * len(combined.labels)
    found: dict[str, list[tuple[float, int]]] = {label: [] for label in combined.labels}
    for row in cohorts:
        metric, n = metrics[row.plan_hash], row.contributors
        values = metric_estimate(metric, row.totals, n).values
        for place, (label, value) in enumerate(zip(metric.mechanism.labels, values, strict=True)):
            if value is not None and label in found:
                found[label].append((value / n if is_count(combined.answer, place) else value, n))
    knowing: Counter[str] = Counter()
    for pool in pools:
        knowing.update(dict.fromkeys(pool.metric.mechanism.labels, pool.contributors))
    medians = [(label, _median(found[label])) for label in combined.labels]
    return [
        median if median is None or not is_count(combined.answer, place) else median * knowing[label]
        for place, (label, median) in enumerate(medians)
    ]


def _median(weighted: Sequence[tuple[float, int]]) -> float | None:
    """The middle of the values that at most half of the weight lies below, and at most half above."""
    if len(weighted) < FEWEST:
        return None
    ordered, total, below = sorted(weighted), sum(weight for _, weight in weighted), 0
    for place, (value, weight) in enumerate(ordered):
        below += weight
        if 2 * below > total:
            return value
        if 2 * below == total:
            return (value + ordered[place + 1][0]) / 2.0
    return None
