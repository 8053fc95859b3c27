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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from collector.combination import Pool, combine

if TYPE_CHECKING:
    from client_sdk.plan import Metric
    from collector.combination import Combined
    from collector.release import ReleasedSum

FEWEST: Final = 3
"""Cohorts that a median needs: of two, it is the mean."""

MOST_NUMBERS: Final = 1_000_000
"""Rows times cohorts that are decoded one by one."""

ERROR: Final = math.sqrt(math.pi / 2.0)
"""Of a median, in errors of the mean over the same."""


def cohorts_of(rows: Sequence[ReleasedSum]) -> list[ReleasedSum]:
    """Those that hid reports: direct ones stand alone."""
    return [row for row in rows if row.delivery != "direct" and row.contributors]


def median_of_cohorts(
    rows: Sequence[ReleasedSum], metrics: Mapping[bytes, Metric], combined: Combined
) -> list[float | None]:
    """One per row of `combined`, which these sums came to; counts are of all its contributors."""
    cohorts, nothing = cohorts_of(rows), [None] * len(combined.labels)
    if not FEWEST <= len(cohorts) <= MOST_NUMBERS // max(1, len(combined.labels)):
        return [*nothing]
    found: dict[str, list[tuple[float, int]]] = {label: [] for label in combined.labels}
    for row in cohorts:
        pool = Pool(metrics[row.plan_hash])
        pool.add(row.totals, row.contributors, row.reports)
        one = combine([pool])
        for place, (label, value) in enumerate(zip(one.labels, one.estimate.values, strict=True)):
            if value is not None and label in found:
                found[label].append((value / row.contributors if is_count(one, place) else value, row.contributors))
    n = combined.estimate.contributors
    medians = (_median(found[label]) for label in combined.labels)
    return [
        median if median is None or not is_count(combined, place) else median * n
        for place, median in enumerate(medians)
    ]


def is_count(combined: Combined, place: int) -> bool:
    """Is this row a number of devices?"""
    return combined.answer == "counts" or (combined.answer == "optional_mean" and place == 1)


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
