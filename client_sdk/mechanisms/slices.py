"""What sliced numbers are decoded to: per slice a mean with Fieller's interval, a count and a sum; over versions too.

Rules of this file: collector only. Sums and counts of several plan versions add up, and so do their variances; the
mean is the ratio of the sums, never a mean of the versions' ratios. Sums are counted from the middle of a version's
range, in widths of it, so that a range far from 0 costs no digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from client_sdk.mechanisms import Estimate
from client_sdk.mechanisms.optional import CLEAR_ERRORS, fieller_interval

Moments = tuple[float, float, float]
"""Variance of a sum, its covariance with the count, the count's variance."""


@dataclass(frozen=True, slots=True)
class SlicePart:
    """What one plan version's total says of one slice.

    total: the sum of the readings' distances from `middle`, in widths of the range; count: devices with a reading; both
    unbiased. noise: of this cohort, population: of a sample; in the same units. middle, width: in the metric's unit.
    """

    total: Fraction
    count: Fraction
    noise: Moments
    population: Moments
    middle: Fraction
    width: Fraction


@dataclass(frozen=True, slots=True)
class SlicesEstimate(Estimate):
    """(mean, present) of each slice in turn: a ratio of two estimates, and a count.

    fieller: by slice, what the mean's interval is made from, (sum, its variance, covariance with the count, count, its
    variance) about the estimated mean, for this cohort and for the population; sums are in `unit`.
    sums: by slice, the sum of the readings and its standard error for this cohort; unbiased, and given without a mean.
    """

    unit: float = 1.0
    fieller: tuple[tuple[tuple[float, float, float, float, float], ...], ...] = ()
    sums: tuple[tuple[float | None, float | None], ...] = ()

    def interval_at(self, z: float, *, population: bool = False) -> tuple[tuple[float, float] | None, ...]:
        """Fieller's interval for each mean, None where it is unbounded; z standard errors for each count."""
        # super() without arguments does not work in a class with slots
        rows = list(Estimate.interval_at(self, z, population=population))
        for place, of in enumerate(self.fieller):
            mean = self.values[2 * place]
            ends = None if mean is None else fieller_interval(z, *of[population])
            rows[2 * place] = None
            if mean is not None and ends is not None:
                rows[2 * place] = (mean + self.unit * ends[0], mean + self.unit * ends[1])
        return tuple(rows)


def slice_rows(slices: Sequence[str]) -> tuple[str, ...]:
    """The labels of the rows: two a slice. No two slices have the same."""
    return tuple(row for label in slices for row in (f"{label}: mean", f"{label}: present"))


def clipped_moments(zeroth: Fraction, first: Fraction, second: Fraction, n: int, levels: int) -> Moments:
    """Estimated sums over a slice's devices of 1, weight and weight squared -> shares that devices can have.

    For errors alone: estimates themselves are never cut. Weights lie in -levels .. levels.
    """
    in_slice = min(max(float(zeroth / n), 0.0), 1.0)
    mean = min(max(float(first / n), -levels * in_slice), levels * in_slice)
    least = mean**2 / in_slice if in_slice else 0.0
    return in_slice, mean, min(max(float(second / n), least), levels**2 * in_slice)


def slices_of(slices: Sequence[Sequence[SlicePart]], contributors: int) -> SlicesEstimate:
    """One estimate from each slice's parts, of one or more plan versions."""
    if contributors == 0:
        nothing: tuple[None, ...] = (None,) * (2 * len(slices))
        return SlicesEstimate(nothing, nothing, 0, nothing, sums=((None, None),) * len(slices))
    unit = max((part.width for parts in slices for part in parts), default=Fraction(1))
    found = [_slice(parts, unit) for parts in slices]
    return SlicesEstimate(
        tuple(value for one in found for value in one.values),
        tuple(error for one in found for error in one.standard_errors),
        contributors,
        tuple(error for one in found for error in one.population_errors),
        float(unit),
        tuple(of for one in found for of in one.fieller),
        tuple(total for one in found for total in one.sums),
    )


def _slice(parts: Sequence[SlicePart], unit: Fraction) -> SlicesEstimate:
    count = sum((part.count for part in parts), Fraction(0))
    total = sum((part.total * part.width + part.middle * part.count for part in parts), Fraction(0))
    errors = [math.sqrt(math.fsum(of[2] for of in each)) for each in _of_each(parts)]
    sums = float(total), float(unit) * math.sqrt(_about(Fraction(0), parts, unit, population=False)[1])
    if count <= 0 or count < CLEAR_ERRORS * Fraction(errors[0]):
        nothing = (math.nan,) * 5
        return SlicesEstimate(
            (None, float(count)), (None, errors[0]), 0, (None, errors[1]), fieller=((nothing, nothing),), sums=(sums,)
        )
    mean = total / count
    about = tuple(_about(mean, parts, unit, population=population) for population in (False, True))
    of_mean = [float(unit) * math.sqrt(one[1]) / float(count) for one in about]
    return SlicesEstimate(
        (float(mean), float(count)), (of_mean[0], errors[0]), 0, (of_mean[1], errors[1]), fieller=(about,), sums=(sums,)
    )


def _of_each(parts: Sequence[SlicePart]) -> tuple[list[Moments], list[Moments]]:
    return [part.noise for part in parts], [part.population for part in parts]


def _about(
    mean: Fraction, parts: Sequence[SlicePart], unit: Fraction, *, population: bool
) -> tuple[float, float, float, float, float]:
    """(sum, its variance, covariance with the count, count, its variance) of the readings' distances from `mean`."""
    variance = covariance = count_variance = 0.0
    for part, of in zip(parts, _of_each(parts)[population], strict=True):
        scale, shift = float(part.width / unit), float((part.middle - mean) / unit)
        variance += scale**2 * of[0] + 2.0 * scale * shift * of[1] + shift**2 * of[2]
        covariance += scale * of[1] + shift * of[2]
        count_variance += of[2]
    count = sum((part.count for part in parts), Fraction(0))
    return 0.0, max(variance, 0.0), covariance, float(count), count_variance
