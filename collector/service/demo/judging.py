"""By which error the demo judges an estimate, now that it knows the truth.

Rules of this file: a row is judged by the larger of two errors: the one it was printed with, and the one that its
mechanism has where the truth is what was found. The first alone can be next to nothing (no support of a rare label: its
estimated share, and with it the population's error, is 0), and then a good estimate would lie many errors off. To a
count's error that of one single support is added (in squares), to a sampled mean's that of one reading across the
range: chance moves none by less.
Where each report holds a sample of the metrics, errors are the population's: who held the metric is chance too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.optional import OptionalNumber
from client_sdk.plan import Metric

MANY: Final = 10**6
"""Times as many contributors, of whom a rare reading's share is a whole number; errors of means fall with the root."""


def judged_errors(
    metric: Metric,
    rows: Sequence[Mapping[str, Any]],
    truths: Sequence[float | None],
    contributors: int,
    *,
    sampled: bool,
) -> list[float | None]:
    """Per row the error to judge it by, in its unit.

    None where it has no estimate or no truth, and for a quantile, which bins round too; a smoothed row has no estimate.
    """
    expected = _expected_errors(metric, truths, contributors, sampled=sampled)
    errors: list[float | None] = []
    for row, truth, at_truth in zip(rows, truths, expected, strict=True):
        own = row["population_error" if sampled else "standard_error"]
        known = row["estimate"] is not None and truth is not None and row.get("estimator") != "quantile"
        errors.append(max(own or 0.0, at_truth or 0.0) if known else None)
    return errors


def _expected_errors(
    metric: Metric, truths: Sequence[float | None], contributors: int, *, sampled: bool
) -> Sequence[float | None]:
    """Of the mechanism, if what it is asked were the truth."""
    mechanism: Any = metric.mechanism
    if not contributors or None in truths:
        return [None] * len(truths)
    if mechanism.answer == "slices":  # its own errors are the shipped law's, of the whole slice
        return [None] * len(truths)
    known = [truth for truth in truths if truth is not None]
    inner = getattr(mechanism, "inner", mechanism)
    if metric.mechanism.answer == "counts":
        return [_count_error(float(inner.p), float(inner.q), truth, contributors, sampled=sampled) for truth in known]
    total = _expected_total(mechanism, known, contributors * MANY)
    if total is None:
        return [None] * len(truths)
    estimate = mechanism.estimate(total, contributors * MANY)
    error = (estimate.population_errors if sampled else estimate.standard_errors)[0]
    mean = None if error is None else error * math.sqrt(MANY)
    if mean is not None and sampled:
        mean = math.hypot(mean, (metric.width or 0.0) / contributors)
    if isinstance(mechanism, OptionalNumber):
        p = mechanism.keep / 2**64
        return [mean, _count_error(p, 1.0 - p, known[1], contributors, sampled=sampled)]
    return [mean]


def _count_error(p: float, q: float, truth: float, contributors: int, *, sampled: bool) -> float:
    """Of a label that so many of n have, with the error of one support: of supports, over p - q."""
    share = min(max(truth / contributors, 0.0), 1.0)
    seen = q + share * (p - q)
    cohort = share * p * (1.0 - p) + (1.0 - share) * q * (1.0 - q)
    variance = contributors * (seen * (1.0 - seen) if sampled else cohort)
    return math.sqrt(max(variance, 0.0) + 1.0) / (p - q)


def _expected_total(mechanism: Any, truths: Sequence[float], contributors: int) -> list[int] | None:
    """Of a number's cells over MANY times the contributors, in whole numbers; None for other kinds of answers."""
    if isinstance(mechanism, NumericMechanism):
        return [_sum_at(mechanism, truths[0], contributors, contributors)]
    if isinstance(mechanism, OptionalNumber):
        mean, present = truths[0], truths[1] * MANY
        keep = mechanism.keep / 2**64
        bits = contributors * (1.0 - keep) + (2.0 * keep - 1.0) * present
        return [_sum_at(mechanism.inner, mean, present, contributors), round(bits)]
    return None


def _sum_at(mechanism: NumericMechanism, mean: float, present: float, contributors: int) -> int:
    """Where `present` of the contributors have this mean, and the others send the middle of the range."""
    law, lattice = mechanism.law, mechanism.lattice
    steps = (mean - float(lattice.low)) * lattice.levels / float(lattice.width) - law.steps / 2
    return round(contributors * float(law.centre) + present * float(law.slope) * steps)
