"""One metric's estimates as rows of the report: every number with its errors, intervals, views and verdict.

Rules of this file: `estimate` is unbiased, or says in `estimator` what else it is; a smoothed number stands in
`smoothed` and a normalised one in `normalised`, never in its place; errors and intervals are of the number that the
row was decoded to (`estimate`, or `smoothed` where there is no other). Nothing is cut to what is possible.

The population's interval of one version's unbiased counts is Wilson's score interval: 1.96 errors to each side miss a
rare label too often, for its error shrinks with its estimate. Counts of several versions are sums with other chances
in each, and keep the normal one; `population_interval` names which it is. A mean's row carries the sum over the same
contributors too (of an optional number: over those that had a reading), with its standard error for this cohort.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from client_sdk.mechanisms import normal_quantile
from client_sdk.mechanisms.optional import RatioEstimate
from client_sdk.mechanisms.pure import CountEstimate
from client_sdk.mechanisms.slices import SlicesEstimate
from client_sdk.mechanisms.verdict import Verdict, count_tolerance, range_tolerance, verdict
from collector.combination import beginning, is_count
from collector.views import norm_sub

if TYPE_CHECKING:
    from client_sdk.mechanisms import Estimate
    from client_sdk.plan import Metric
    from collector.combination import Combined

LEVEL: Final = 0.95

Interval = tuple[float, float] | None

INTERVALS: Final = ("ci95", "ci95_simultaneous", "population_ci95", "population_ci95_simultaneous")
"""This cohort's and the population's; one row's, and those that all rows of the metric lie in together."""

VIEWS: Final = ("estimator", "smoothed", "normalised", "verdict")

SUMS: Final = ("sum", "sum_standard_error")

ESTIMATORS: Final = {
    "counts": "unbiased", "mean": "unbiased", "optional_mean": "ratio", "slices": "ratio", "quantiles": "quantile",
    "vector": "unbiased",
}  # fmt: skip
"""By answer, of a metric's first row: a ratio of two unbiased numbers and a place on an estimated distribution are
only nearly unbiased."""


def estimate_rows(combined: Combined, versions: Sequence[Metric]) -> list[dict[str, Any]]:
    """One object per row; of a vector its `beginning`, all of it stands in `vector_object`.

    versions: the metric in those that have sums; a mean is measured by their narrowest range.
    """
    at_once, combined = len(combined.labels), beginning(combined)
    estimate = combined.estimate
    columns = zip(
        combined.labels, estimate.values, estimate.standard_errors, _population_errors(estimate),
        _normalised(combined), _intervals(estimate, at_once), strict=True,
    )  # fmt: skip
    rows = []
    for place, (label, value, error, population_error, normalised, intervals) in enumerate(columns):
        rows.append(
            {
                "label": label,
                "estimate": None if combined.smoothed else value,
                "standard_error": error,
                "ci95": intervals[0],
                "population_error": population_error,
                **dict(zip(INTERVALS[1:], intervals[1:], strict=True)),
                "estimator": _estimator(combined, place),
                "smoothed": value if combined.smoothed else None,
                "normalised": normalised,
                "verdict": _verdict(versions, place, value, intervals[0], estimate.contributors),
                **dict(zip(SUMS, _sum(estimate, place) if _is_mean(combined, place) else (None, None), strict=True)),
            }
        )
    return rows


def _population_errors(estimate: Estimate) -> Sequence[float | None]:
    return estimate.population_errors or (None,) * len(estimate.values)


def vector_object(combined: Combined) -> dict[str, Any]:
    """All coordinates of a vector's mean; the standard error is the same for each (None and nulls over nobody)."""
    estimate = combined.estimate
    return {
        "dimension": len(estimate.values),
        "standard_error": estimate.standard_errors[0],
        "values": list(estimate.values),
    }


def _intervals(estimate: Estimate, at_once: int) -> list[list[list[float | None]]]:
    """Per row its intervals in the order of INTERVALS, [None, None] where there is none. at_once: rows in all."""
    columns = (
        _interval(estimate, rows=at_once if simultaneous else 1, population=population)
        for population in (False, True)
        for simultaneous in (False, True)
    )
    return [[_ends(interval) for interval in row] for row in zip(*columns, strict=True)]


def _interval(estimate: Estimate, *, rows: int, population: bool) -> tuple[Interval, ...]:
    simultaneous = rows > 1
    if population and isinstance(estimate, CountEstimate):
        return estimate.wilson(LEVEL, simultaneous=simultaneous)
    if rows in (1, len(estimate.values)):
        return estimate.interval(LEVEL, simultaneous=simultaneous, population=population)
    return estimate.interval_at(normal_quantile(LEVEL, rows), population=population)


def population_interval(combined: Combined) -> str | None:
    """How `population_ci95` and its simultaneous twin were made; None where there are none."""
    if combined.estimate.contributors == 0:
        return None
    if isinstance(combined.estimate, CountEstimate):
        return "Wilson"
    if combined.answer == "quantiles":
        return "Woodruff"
    return "Fieller (mean), normal (present)" if combined.answer in ("optional_mean", "slices") else "normal"


def _ends(interval: Interval) -> list[float | None]:
    return [None, None] if interval is None else list(interval)


def _normalised(combined: Combined) -> Sequence[float | None]:
    """Counts that add up to the contributors; nothing for what is no count, or is smoothed (and so adds up already)."""
    estimate = combined.estimate
    if combined.answer != "counts" or combined.smoothed:
        return (None,) * len(combined.labels)
    return norm_sub(estimate.values, estimate.contributors)


def _sum(estimate: Estimate, place: int) -> tuple[float | None, float | None]:
    """Of all contributors' values, or of those that had a reading; None where there is no mean. Of a slice always."""
    if isinstance(estimate, SlicesEstimate):
        return estimate.sums[place // 2]
    mean, error = estimate.values[0], estimate.standard_errors[0]
    if mean is None or error is None:
        return None, None
    if isinstance(estimate, RatioEstimate):
        return estimate.total()
    return mean * estimate.contributors, error * estimate.contributors


def _is_mean(combined: Combined, place: int) -> bool:
    return combined.answer == "mean" or (combined.answer in ("optional_mean", "slices") and place % 2 == 0)


def _estimator(combined: Combined, place: int) -> str:
    if combined.smoothed:
        return "smoothed"
    return "unbiased" if is_count(combined.answer, place) else ESTIMATORS[combined.answer]


def _verdict(
    versions: Sequence[Metric], place: int, value: float | None, ends: Sequence[float | None], contributors: int
) -> Verdict:
    low, high = ends
    width = None if value is None or low is None or high is None else high - low
    ranges = [metric.width for metric in versions if metric.width is not None]
    if is_count(versions[-1].mechanism.answer, place) or not ranges:
        return verdict(width, count_tolerance(value or 0.0, contributors), contributors)
    return verdict(width, range_tolerance(min(ranges)), contributors)
