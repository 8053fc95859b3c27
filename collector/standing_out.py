"""Cohorts that are unlike the others of their period: a test with a stated rate of false alarms.

Who is in which cohort is taken as chance: of all reports of one plan version and period, each cohort holds a random
part. Then, given what all cohorts of the period add up to, the bits of a cohort (who supports a label, what one bit
says of a number) have a hypergeometric law, exactly; of lattice Laplace reports, the values are a sample without
replacement from numbers in a range, and the noise has the law that ships, so Chernoff's bound holds; of other reports,
Hoeffding's.

Rules of this file: where no cohort is false, the chance that any is named is at most `rate` for a metric, over all its
cohorts, rows and periods together (Bonferroni); a test is skipped where it could name nobody. What stands out most is
taken away before the others are looked at again, so that it does not make honest ones look odd.
What it does not do: say why. A cohort stands out for false reports, and for honest ones where cohorts are not drawn
alike (a new release reaches one region first). Direct reports are in no cohort. Quantiles and vectors have no test.
Sources: Hoeffding 1963, sections 2 and 6; Chvatal 1979 for hypergeometric tails.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.sliced import SlicedNumber

if TYPE_CHECKING:
    from client_sdk.plan import Metric
    from collector.release import ReleasedSum

RATE: Final = 0.01
"""Chance that any cohort of a metric is named where none is false, at most."""

MOST_ROWS: Final = 4096
"""Of a metric that is tested."""

_COULD_BE: Final = 2.0
"""Standard errors from the others at which a tail is worth adding up: nearer, no test names anybody."""

_TILTS: Final = 256


@dataclass(frozen=True, slots=True)
class StandingOut:
    """A cohort that is unlike the others. p: of its row's test, times the number of tests: at most `RATE`.

    share, others: of that row, in the cohort and in those that it was compared with: the share of the reports whose bit
    is set, or a mean report.
    """

    round_id: str
    period_start: int
    row: int
    share: float
    others: float
    p: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """tests: made in all, rows times cohorts; 0 where nothing can be compared."""

    cohorts: int
    tests: int
    found: tuple[StandingOut, ...]


Tail = Callable[[float, int, float, int], float]
"""(total of the cohort, its reports, total of all, their reports) -> how likely it is to lie as far off, at most."""


@dataclass(frozen=True, eq=False)
class _Cohort:
    """totals: by row, of what its reports hold."""

    round_id: str
    period_start: int
    reports: int
    totals: NDArray[np.float64]


def standing_out(rows: Sequence[ReleasedSum], metrics: Mapping[bytes, Metric], rate: float = RATE) -> Verdict:
    """rows: the sums of one metric; metrics: it in each plan version, by plan hash."""
    groups: dict[tuple[bytes, int], list[_Cohort]] = defaultdict(list)
    for row in rows:
        if row.delivery != "direct" and row.contributors:
            metric = metrics[row.plan_hash]
            totals = tested_totals(metric, row) if len(metric.mechanism.labels) <= MOST_ROWS else None
            if totals is not None:
                cohort = _Cohort(row.round_id, row.period_start, row.contributors, totals)
                groups[row.plan_hash, row.period_start].append(cohort)
    compared = {key: group for key, group in groups.items() if len(group) > 1}
    tests = sum(len(group) * len(group[0].totals) for group in compared.values())
    found = [
        one
        for (plan_hash, _), group in sorted(compared.items())
        for one in _of_period(group, _tail(metrics[plan_hash]), tests, rate)
    ]
    return Verdict(sum(map(len, groups.values())), tests, tuple(found))


def tested_totals(metric: Metric, row: ReleasedSum) -> NDArray[np.float64] | None:
    """By row what is compared, None for a metric that has no test."""
    mechanism = metric.mechanism
    if mechanism.answer in ("counts", "slices"):  # of a sliced number who supports a pair
        counted = mechanism.inner if isinstance(mechanism, (Histogram, SlicedNumber)) else mechanism
        if not isinstance(counted, CategoricalMechanism):  # smoothed
            return None
        return np.array(counted.supports(row.totals, row.contributors), np.float64)
    if mechanism.answer == "mean":
        return np.array(row.totals, np.float64) if isinstance(mechanism, NumericMechanism) else None
    if mechanism.answer == "optional_mean":  # who had a reading
        return np.array(row.totals[-1:], np.float64)
    return None


def _of_period(cohorts: list[_Cohort], tail: Tail, tests: int, rate: float) -> list[StandingOut]:
    """Of two that differ nobody can tell which one is false: both are named."""
    found, left = [], sorted(cohorts, key=lambda one: one.round_id)
    table, sizes = np.array([one.totals for one in left]), np.array([one.reports for one in left])
    while len(left) > 1:
        place, row, p = _least(table, sizes, tail)
        if p * tests > rate:
            break
        for named in left if len(left) == 2 else [left[place]]:
            found.append(_named(named, row, left, min(1.0, p * tests)))
        if len(left) == 2:
            break
        del left[place]
        table, sizes = np.delete(table, place, axis=0), np.delete(sizes, place)
    return found


def _named(one: _Cohort, row: int, left: Sequence[_Cohort], p: float) -> StandingOut:
    others = [other for other in left if other is not one]
    rest = float(sum(other.totals[row] for other in others)) / sum(other.reports for other in others)
    return StandingOut(one.round_id, one.period_start, row, float(one.totals[row]) / one.reports, rest, p)


def _least(table: NDArray[np.float64], sizes: NDArray[np.int64], tail: Tail) -> tuple[int, int, float]:
    """(cohort, row, how likely that is) where a cohort is least like all of them together.

    table: totals, shape (cohorts, rows). sizes: reports of each cohort.
    """
    totals, reports = table.sum(axis=0), int(sizes.sum())
    of_all = sizes / reports
    off = np.multiply.outer(of_all, totals)
    np.abs(np.subtract(table, off, out=off), out=off)
    # The bits' deviation; that of other reports is larger, and their bounds lie above it.
    share = np.clip(totals / reports, 0.0, 1.0)
    off /= np.sqrt(sizes * (1.0 - of_all))[:, None]
    worth = np.argwhere(off >= _COULD_BE * np.sqrt(share * (1.0 - share))).tolist()
    tails = [(tail(float(table[i, j]), int(sizes[i]), float(totals[j]), reports), i, j) for i, j in worth]
    p, place, row = min(tails, default=(1.0, 0, 0))
    return place, row, p


# --- tails ------------------------------------------------------------------------------------------


def _tail(metric: Metric) -> Tail:
    mechanism = metric.mechanism
    if mechanism.answer != "mean":
        return hypergeometric_tail
    numeric = cast("NumericMechanism", mechanism)
    lowest, highest = numeric.law.lowest, numeric.law.highest
    if (lowest, highest) == (0, 1):
        return hypergeometric_tail
    if isinstance(numeric, Laplace):
        scale, steps = float(numeric.scale), numeric.law.steps
        return lambda total, reports, of_all, all_reports: laplace_tail(
            total - of_all * reports / all_reports, reports, all_reports, steps, scale
        )
    return lambda total, reports, of_all, all_reports: hoeffding_tail(
        total - of_all * reports / all_reports, reports, all_reports, float(highest - lowest)
    )


def hypergeometric_tail(total: float, reports: int, of_all: float, all_reports: int) -> float:
    """Twice the smaller tail of `total` among `reports` drawn out of `all_reports`, `of_all` of them set; exact."""
    drawn, ones, among = int(total), int(of_all), all_reports
    low, high = max(0, reports - (among - ones)), min(reports, ones)
    mass = math.exp(_log_choose(ones, drawn) + _log_choose(among - ones, reports - drawn) - _log_choose(among, reports))
    tails = []
    for step in (1, -1):
        tail, term, at = mass, mass, drawn
        while low <= at + step <= high and term > 1e-17 * tail:
            up, down = (at, at + 1) if step > 0 else (at - 1, at)
            ratio = (ones - up) * (reports - up) / (down * (among - ones - reports + down))
            term *= ratio if step > 0 else 1.0 / ratio
            at += step
            tail += term
        tails.append(tail)
    return min(1.0, 2.0 * min(tails) * (1.0 + 1e-9))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def hoeffding_tail(distance: float, reports: int, all_reports: int, width: float) -> float:
    """Both tails of a sum of `reports` out of `all_reports` numbers within `width`; distance: from its mean."""
    fewer = min(reports, all_reports - reports)
    return min(1.0, 2.0 * math.exp(-2.0 * distance**2 / (fewer * width**2))) if fewer else 1.0


def laplace_tail(distance: float, reports: int, all_reports: int, steps: int, scale: float) -> float:
    """The same for numbers within `steps` to each of which lattice Laplace noise of that scale was added.

    The noise of the others is in the mean that the distance is from. What the output's clamp may have moved, a 2^-63rd
    a report, is counted as a false alarm.
    """
    fewer, share = min(reports, all_reports - reports), reports / all_reports
    if not fewer:
        return 1.0
    tilts = np.linspace(0.0, 1.0, _TILTS + 1)[1:-1] / (scale * max(share, 1.0 - share))
    moments = tilts**2 * (fewer * steps**2 / 8.0)
    moments += reports * _log_moment(tilts * (1.0 - share), scale)
    moments += (all_reports - reports) * _log_moment(tilts * share, scale)
    bound = float((moments - tilts * abs(distance)).min())
    return min(1.0, 2.0 * math.exp(min(0.0, bound)) + all_reports * 2.0**-63)


def _log_moment(tilts: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """ln E[e^(tilt z)], z lattice Laplace noise, for tilts below 1 / scale."""
    ratio = math.exp(-1.0 / scale)
    spread = 4.0 * ratio * np.sinh(tilts / 2.0) ** 2 / (1.0 - ratio) ** 2
    return np.asarray(-np.log1p(-spread))
