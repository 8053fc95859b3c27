"""Cohorts that are unlike the others of their period: a test with a stated rate of false alarms.

Who is in which cohort is taken as chance: of all reports of one plan version and period, each cohort holds a random
part. Then, given what all cohorts of the period add up to, the bits of a cohort (who supports a label, what one bit
says of a number) have a hypergeometric law, exactly; of lattice Laplace reports, the values are a sample without
replacement from numbers in a range, and the noise has the law that ships, so Chernoff's bound holds; of other reports,
Hoeffding's.

Rules of this file: where no cohort is false, the chance that any is named is at most `rate` for a metric, over all its
cohorts, rows and periods together (Bonferroni); a test is skipped where it could name nobody. What stands out most is
taken away before the others are looked at again, so that it does not make honest ones look odd. Which does is told by
logarithms: far off, many a chance is 0.0 in floats. A cohort whose bits are fewer than none or more than its reports
holds a sum that no reports give: it is named first, by itself. The first look at a period decides whether any of its
cohorts is named, so that to stop looking again (MOST_LOOKED_AT) names fewer, and raises no rate.
What it does not do: say why. A cohort stands out for false reports, and for honest ones where cohorts are not drawn
alike (a new release reaches one region first). Direct reports are in no cohort. Quantiles and vectors have no test.
The chances themselves: `cohort_tails`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.sliced import SlicedNumber
from collector.cohort_tails import HYPERGEOMETRIC, Floats, Tail, hoeffding, laplace

if TYPE_CHECKING:
    from client_sdk.plan import Metric
    from collector.release import ReleasedSum

RATE: Final = 0.01
"""Chance that any cohort of a metric is named where none is false, at most."""

MOST_ROWS: Final = 4096
"""Of a metric that is tested."""

MOST_LOOKED_AT: Final = 30_000_000
"""Cells of a metric, over all looks: so many looks at most that each period's are within its part of them."""

_COULD_BE: Final = 2.0
"""Standard errors from the others at which a tail is worth adding up: nearer, no test names anybody."""


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


@dataclass(frozen=True, eq=False)
class _Cohort:
    """totals: by row, of what its reports hold."""

    round_id: str
    period_start: int
    reports: int
    totals: Floats


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


def tested_totals(metric: Metric, row: ReleasedSum) -> Floats | None:
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
    left = sorted(cohorts, key=lambda one: one.round_id)
    table, sizes = np.array([one.totals for one in left]), np.array([one.reports for one in left])
    found: list[StandingOut] = []
    if tail.bits and (wrong := (table < 0) | (table > sizes[:, None])).any():
        found = _impossible(left, table, sizes, wrong)
        kept = np.flatnonzero(~wrong.any(axis=1)).tolist()
        left, table, sizes = [left[place] for place in kept], table[kept], sizes[kept]
    for _ in range(max(1, MOST_LOOKED_AT // tests)):
        if len(left) < 2 or (least := _least(table, sizes, tail)) is None:
            break
        place, row = least
        of_all, among = float(table[:, row].sum()), int(sizes.sum())
        p = tail.p(float(table[place, row]), int(sizes[place]), of_all, among)
        if p * tests > rate:
            break
        for at in range(2) if len(left) == 2 else [place]:
            found.append(_named(left[at], row, of_all, among, min(1.0, p * tests)))
        if len(left) == 2:
            break
        del left[place]
        table, sizes = np.delete(table, place, axis=0), np.delete(sizes, place)
    return found


def _impossible(
    cohorts: Sequence[_Cohort], table: Floats, sizes: NDArray[np.int64], wrong: NDArray[np.bool_]
) -> list[StandingOut]:
    """Those with fewer bits than none, or more than reports. wrong: where, shape as `table`."""
    totals, among = table.sum(axis=0), int(sizes.sum())
    places, rows = np.flatnonzero(wrong.any(axis=1)).tolist(), wrong.argmax(axis=1).tolist()
    return [_named(cohorts[place], rows[place], float(totals[rows[place]]), among, 0.0) for place in places]


def _named(one: _Cohort, row: int, of_all: float, among: int, p: float) -> StandingOut:
    total = float(one.totals[row])
    rest = (of_all - total) / (among - one.reports)
    return StandingOut(one.round_id, one.period_start, row, total / one.reports, rest, p)


def _least(table: Floats, sizes: NDArray[np.int64], tail: Tail) -> tuple[int, int] | None:
    """(cohort, row) where a cohort is least like all of them together; None where every one is like them.

    table: totals, shape (cohorts, rows). sizes: reports of each cohort.
    """
    totals, reports = table.sum(axis=0), int(sizes.sum())
    of_all = sizes / reports
    off = np.multiply.outer(of_all, totals)
    np.abs(np.subtract(table, off, out=off), out=off)
    # The bits' deviation; that of other reports is larger, and their bounds lie above it.
    share = np.clip(totals / reports, 0.0, 1.0)
    off /= np.sqrt(sizes * (1.0 - of_all))[:, None]
    places, rows = np.nonzero(off >= _COULD_BE * np.sqrt(share * (1.0 - share)))
    if not len(places):
        return None
    least = int(tail.logs(table[places, rows], sizes[places].astype(np.float64), totals[rows], reports).argmin())
    return int(places[least]), int(rows[least])


def _tail(metric: Metric) -> Tail:
    mechanism = metric.mechanism
    if mechanism.answer != "mean":
        return HYPERGEOMETRIC
    numeric = cast("NumericMechanism", mechanism)
    lowest, highest = numeric.law.lowest, numeric.law.highest
    if (lowest, highest) == (0, 1):
        return HYPERGEOMETRIC
    if isinstance(numeric, Laplace):
        return laplace(numeric.law.steps, float(numeric.scale))
    return hoeffding(float(highest - lowest))
