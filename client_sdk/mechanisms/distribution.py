"""The share of readings below each edge of a histogram; mixing of several; quantiles with intervals read off one.

Rules of this file: collector only, floats. Between edges everything is taken to run straight: readings are spread
evenly within a bin, and a standard error is at most what runs straight between its ends' (exact where both ends'
errors are the same noise). So a quantile, and either end of its interval, can lie within a bin. An end that lies in a
bin with more readings than noise can explain (a larger share than the band's whole height) would rest on evenness
alone: it is moved to the last value possible however that bin's readings lie, the bin's end. In a mixture this goes
part by part, with the bins that a part's readings were counted in: its share below a value lies between those at the
ends of its bin. A part that other parts' edges cut the bins of was never measured there: it is always taken so. Clipped
readings lie in the first and last bin: an end at the range's end means "or beyond".

A quantile is where the estimated shares, made non-decreasing by least squares, pass the asked one. Its interval holds
every value at which the estimated share is within z standard errors of the asked one (Woodruff), gaps filled.
Source: Woodruff, "Confidence Intervals for Medians and Other Position Measures" (JASA 1952).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Estimate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Estimated shares of readings below edges.

    edges: in the metric's unit, ascending. cdf: one share per edge, 0 at the first and 1 at the last; unbiased ones
        may dip. errors: their standard errors for this cohort. population_errors: the contributors taken as a sample.
    contributors: reports in the total. weight: how many of them had a reading (estimated where optional), and its
        standard error weight_error: what a mixture weighs them by. smoothed: the shares are smoothed, so biased.
    cdf and errors are empty where nobody, or not clearly anybody, had a reading. parts: of a mixture, what was mixed.
    """

    edges: tuple[float, ...]
    cdf: tuple[float, ...]
    errors: tuple[float, ...]
    population_errors: tuple[float, ...]
    contributors: int
    weight: float
    weight_error: float = 0.0
    smoothed: bool = False
    parts: tuple[Distribution, ...] = ()

    @classmethod
    def empty(
        cls, edges: Sequence[float], contributors: int = 0, weight: float = 0.0, weight_error: float = 0.0
    ) -> Distribution:
        """Of no readings."""
        return cls(tuple(edges), (), (), (), contributors, weight, weight_error)


@dataclass(frozen=True, slots=True)
class QuantileEstimate(Estimate):
    """One value per asked quantile, in the metric's unit; `interval` and `interval_at` invert the distribution's band.

    standard_errors: half the width of the interval at one standard error, to have a number: widened to bins as every
    interval is, so that what the bins leave open is in it. Intervals need not be symmetric. distribution: what the
    values were read off. quantiles: the asked shares.
    """

    distribution: Distribution | None = None
    quantiles: tuple[float, ...] = ()

    def interval_at(self, z: float, *, population: bool = False) -> tuple[tuple[float, float] | None, ...]:
        """Per row: all values at which the estimated share is within z standard errors of the asked one."""
        if self.distribution is None or not self.distribution.cdf:
            return (None,) * len(self.quantiles)
        of = self.distribution
        return tuple(_no_finer_than_bins(of, share, z, population=population) for share in self.quantiles)

    def noise_errors(self) -> tuple[float | None, ...]:
        """Per row half the width at one standard error before any widening: what mechanisms differ by."""
        if self.distribution is None or not self.distribution.cdf:
            return (None,) * len(self.quantiles)
        bands = (_band(self.distribution, share, 1.0, population=False) for share in self.quantiles)
        return tuple((high - low) / 2 for low, high in bands)


def quantile_label(share: Decimal) -> str:
    """p50 for 0.5, p99.9 for 0.999: every digit, so that no two shares have one label."""
    sign, digits, exponent = share.as_tuple()
    # not by arithmetic: that would round to the digits that the caller's context has
    percent = f"{Decimal((sign, digits, int(exponent) + 2)):f}"
    return f"p{percent.rstrip('0').rstrip('.') if '.' in percent else percent}"


def mix(distributions: Sequence[Distribution]) -> Distribution:
    """Several distributions (of independent noise), weighed by their readings, over the union of their edges.

    Below its first edge a distribution counts 0, above its last one 1: its clipped readings lie within its range.
    What a weight's own error moves is added to the errors; its covariance with the shares is not.
    """
    import numpy as np

    parts = [part for one in distributions if one.cdf and one.weight > 0 for part in one.parts or (one,)]
    contributors = sum(one.contributors for one in distributions)
    edges = np.array(sorted({edge for one in (parts or distributions) for edge in one.edges}))
    if not parts:
        return Distribution.empty(edges.tolist(), contributors)
    below, errors = _mixed(parts, [edges] * len(parts), population=False)
    _, population = _mixed(parts, [edges] * len(parts), population=True)
    return Distribution(
        edges=tuple(edges.tolist()),
        cdf=tuple(below.tolist()),
        errors=tuple(errors.tolist()),
        population_errors=tuple(population.tolist()),
        contributors=contributors,
        weight=sum(one.weight for one in parts),
        weight_error=math.hypot(*(one.weight_error for one in parts)),
        smoothed=any(one.smoothed for one in parts),
        parts=tuple(parts),
    )


def _mixed(parts: Sequence[Distribution], places: Sequence[Floats], *, population: bool) -> tuple[Floats, Floats]:
    """Shares and standard errors of the mixture, each part read at its own row of places, shape (values,)."""
    import numpy as np

    weight = sum(one.weight for one in parts)
    shares = [np.interp(at, one.edges, one.cdf) for one, at in zip(parts, places, strict=True)]
    below = np.sum([one.weight / weight * share for one, share in zip(parts, shares, strict=True)], axis=0)
    squares = np.zeros(len(below))
    for one, at, share in zip(parts, places, shares, strict=True):
        own = np.interp(at, one.edges, one.population_errors if population else one.errors)
        squares += (one.weight * own) ** 2 + (one.weight_error * (share - below)) ** 2
    return below, np.sqrt(squares) / weight


def quantiles_of(distribution: Distribution, quantiles: Sequence[Decimal]) -> QuantileEstimate:
    """One row per asked share in (0, 1)."""
    shares = tuple(float(share) for share in quantiles)
    if not distribution.cdf:
        rows = (None,) * len(shares)
        return QuantileEstimate(rows, rows, distribution.contributors, rows, distribution, shares)
    rising = non_decreasing(distribution.cdf)
    edges = distribution.edges
    values = tuple(_crossing(edges, rising, share) for share in shares)
    errors = []
    for population in (False, True):
        bands = (_no_finer_than_bins(distribution, share, 1.0, population=population) for share in shares)
        errors.append(tuple((high - low) / 2 for low, high in bands))
    return QuantileEstimate(values, errors[0], distribution.contributors, errors[1], distribution, shares)


def non_decreasing(shares: Sequence[float]) -> list[float]:
    """The nearest non-decreasing sequence (least squares, pooling of adjacent violators), cut to [0, 1]."""
    pools: list[tuple[float, int]] = []
    for share in shares:
        mean, size = share, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return [min(max(mean, 0.0), 1.0) for mean, size in pools for _ in range(size)]


def _crossing(edges: Sequence[float], rising: Sequence[float], share: float) -> float:
    """Where a non-decreasing line passes `share`; the middle of where it equals it."""
    first = _first_reaching(edges, rising, share)
    last = -_first_reaching([-edge for edge in reversed(edges)], [-y for y in reversed(rising)], -share)
    return (first + last) / 2


def _first_reaching(edges: Sequence[float], line: Sequence[float], share: float) -> float:
    """The smallest value at which a broken line reaches `share`; the last edge if it never does."""
    if line[0] >= share:
        return edges[0]
    for left in range(len(edges) - 1):
        low, high = line[left], line[left + 1]
        if high >= share:
            return edges[left] + (edges[left + 1] - edges[left]) * ((share - low) / (high - low))
    return edges[-1]


def _band(distribution: Distribution, share: float, z: float, *, population: bool) -> tuple[float, float]:
    """From where the upper end of the band first reaches the share, to where the lower end last does not pass it."""
    errors = distribution.population_errors if population else distribution.errors
    upper = [y + z * error for y, error in zip(distribution.cdf, errors, strict=True)]
    lower = [y - z * error for y, error in zip(distribution.cdf, errors, strict=True)]
    first = _first_reaching(distribution.edges, upper, share)
    turned = [-edge for edge in reversed(distribution.edges)]
    return first, -_first_reaching(turned, [-y for y in reversed(lower)], -share)


def _no_finer_than_bins(distribution: Distribution, share: float, z: float, *, population: bool) -> tuple[float, float]:
    """The band's interval, or, where an end would rest on evenness alone, all that the bins leave possible.

    A population's holds this cohort's, which its wider band alone does not ensure.
    """
    low, high = _band(distribution, share, z, population=population)
    if population:
        here = _no_finer_than_bins(distribution, share, z, population=False)
        low, high = min(low, here[0]), max(high, here[1])
    parts = distribution.parts or (distribution,)
    cut = [_has_cut_bins(one.edges, distribution.edges) for one in parts]
    ends = [low, high]
    for side in (0, 1):
        coarse = [False] * len(parts)
        while True:  # an end that has moved may lie in other bins of the other parts
            heavy = [_is_heavy(one, ends[side], z, population=population) for one in parts]
            now = [any(of_part) for of_part in zip(cut, heavy, coarse, strict=True)]
            if now == coarse:
                break
            coarse = now
            possible = _possible(distribution, coarse, share, z, population=population)[side]
            ends[side] = max(ends[side], possible) if side else min(ends[side], possible)
    return ends[0], ends[1]


def _has_cut_bins(own: Sequence[float], edges: Sequence[float]) -> bool:
    """Does any of the edges lie within one of its own bins?"""
    return any(own[0] < edge < own[-1] for edge in set(edges).difference(own))


def _is_heavy(distribution: Distribution, value: float, z: float, *, population: bool) -> bool:
    """Does a bin that holds the value strictly within hold a larger share than the band is high at either end of it?"""
    edges, cdf = distribution.edges, distribution.cdf
    errors = distribution.population_errors if population else distribution.errors
    after = bisect_right(edges, value)
    if not 0 < after < len(edges) or edges[after - 1] == value:
        return False
    return cdf[after] - cdf[after - 1] > 2.0 * z * max(errors[after - 1], errors[after])


def _possible(
    distribution: Distribution, coarse: Sequence[bool], share: float, z: float, *, population: bool
) -> tuple[float, float]:
    """`_band` where a coarse part's share below a value is anything between those at the ends of the value's bin."""
    import numpy as np

    parts = distribution.parts or (distribution,)
    edges = np.asarray(distribution.edges)
    starts, stops = edges[:-1], edges[1:]  # of the pieces in which no part has an edge
    line = np.stack([starts, stops], axis=1).reshape(-1)  # both ends of each: shares jump where pieces meet
    least, most = [], []
    for one, is_coarse in zip(parts, coarse, strict=True):
        own = np.asarray(one.edges)
        before = own[np.maximum(np.searchsorted(own, starts, "right") - 1, 0)]
        after = own[np.minimum(np.searchsorted(own, stops), len(own) - 1)]
        # beyond the ends of a part both are that end
        least.append(np.repeat(before, 2) if is_coarse else line)
        most.append(np.repeat(after, 2) if is_coarse else line)
    upper, upper_errors = _mixed(parts, most, population=population)
    lower, lower_errors = _mixed(parts, least, population=population)
    first = _first_reaching(line.tolist(), (upper + z * upper_errors).tolist(), share)
    turned = (-line[::-1]).tolist()
    return first, -_first_reaching(turned, (z * lower_errors - lower)[::-1].tolist(), -share)
