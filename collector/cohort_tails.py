"""How likely is it that one cohort of many is as far from the others as it is, if chance dealt the reports to them?

Three laws: bits dealt without replacement (hypergeometric, exact), numbers behind lattice Laplace noise (Chernoff's
bound with the noise's own law), and any numbers within a range (Hoeffding's bound).

Rules of this file: `p` is never below the chance itself; `logs` only puts cohorts in order, in one pass over arrays,
and by logarithms, for far off many a chance is 0.0 in floats.
What it does not do: choose what is compared with what (`standing_out`).
Sources: Hoeffding 1963, sections 2 and 6; Chvatal 1979 for hypergeometric tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TILTS: Final = 256
_FEW_TILTS: Final = 32
"""To put cohorts in order."""


@dataclass(frozen=True, slots=True)
class Tail:
    """logs: (totals of cohorts, their reports, totals of all in the same rows, reports of all) -> ln of how likely each
    is to lie as far off, nearly, in the order of the chances. p: the same of one cohort -> the chance, at most.
    bits: are totals counts of reports?
    """

    logs: Callable[[Floats, Floats, Floats, int], Floats]
    p: Callable[[float, int, float, int], float]
    bits: bool = False


def _hypergeometric_logs(totals: Floats, reports: Floats, of_all: Floats, all_reports: int) -> Floats:
    """A bound that is near far off: the mass there, and beyond it masses that fall at least as fast as the first."""
    rest = all_reports - of_all
    logs = _log_chooses(of_all, totals) + _log_chooses(rest, reports - totals)
    logs -= _log_chooses(np.full_like(reports, all_reports), reports)
    above = totals * all_reports > of_all * reports
    set_, unset = np.where(above, totals, reports - totals), np.where(above, reports - totals, totals)
    ones, zeros = np.where(above, of_all, rest), np.where(above, rest, of_all)
    falls = (ones - set_) * unset / ((set_ + 1.0) * (zeros - unset + 1.0))
    return np.asarray(np.where(falls < 1.0, logs - np.log1p(-np.minimum(falls, 1.0 - 1e-12)), 0.0))


def _log_chooses(n: Floats, k: Floats) -> Floats:
    return _log_factorials(n) - _log_factorials(k) - _log_factorials(n - k)


def _log_factorials(n: Floats) -> Floats:
    """ln n!, to about 1e-14 of itself: Stirling's series from 10 on."""
    x = np.maximum(n, 9.0) + 1.0
    series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * x * x)) / (x * x)) / (x * x)) / x
    large = (x - 0.5) * np.log(x) - x + _HALF_LOG_TAU + series
    return np.asarray(np.where(n < 10.0, _SMALL[np.minimum(n, 9.0).astype(np.int64)], large))


_HALF_LOG_TAU: Final = 0.5 * math.log(2.0 * math.pi)
_SMALL: Final = np.array([math.lgamma(n + 1) for n in range(10)])


def hypergeometric_tail(total: float, reports: int, of_all: float, all_reports: int) -> float:
    """Twice the smaller tail of `total` among `reports` drawn out of `all_reports`, `of_all` of them set; exact.

    0.0 for a total that cannot be drawn.
    """
    drawn, ones, among = int(total), int(of_all), all_reports
    low, high = max(0, reports - (among - ones)), min(reports, ones)
    if not low <= drawn <= high:
        return 0.0
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


HYPERGEOMETRIC: Final = Tail(_hypergeometric_logs, hypergeometric_tail, bits=True)


def hoeffding(width: float) -> Tail:
    """Of sums of numbers within `width`."""

    def logs(totals: Floats, reports: Floats, of_all: Floats, all_reports: int) -> Floats:
        fewer = np.minimum(reports, all_reports - reports)
        return np.asarray(-((totals - of_all * reports / all_reports) ** 2) / fewer)

    def p(total: float, reports: int, of_all: float, all_reports: int) -> float:
        return hoeffding_tail(total - of_all * reports / all_reports, reports, all_reports, width)

    return Tail(logs, p)


def hoeffding_tail(distance: float, reports: int, all_reports: int, width: float) -> float:
    """Both tails of a sum of `reports` out of `all_reports` numbers within `width`; distance: from its mean."""
    fewer = min(reports, all_reports - reports)
    return min(1.0, 2.0 * math.exp(-2.0 * distance**2 / (fewer * width**2))) if fewer else 1.0


def laplace(steps: int, scale: float) -> Tail:
    """Of sums of numbers within `steps` behind lattice Laplace noise of that scale."""

    def logs(totals: Floats, reports: Floats, of_all: Floats, all_reports: int) -> Floats:
        """Of cohorts of one size only the farthest is worth its bound: it has the smallest."""
        distances = np.abs(totals - of_all * reports / all_reports)
        sizes, first = np.unique(reports[by_distance := np.argsort(-distances)], return_index=True)
        farthest, found = by_distance[first], np.zeros_like(distances)
        found[farthest] = _log_laplace(distances[farthest], sizes, all_reports, steps, scale, _FEW_TILTS)
        return found

    def p(total: float, reports: int, of_all: float, all_reports: int) -> float:
        return laplace_tail(total - of_all * reports / all_reports, reports, all_reports, steps, scale)

    return Tail(logs, p)


def laplace_tail(distance: float, reports: int, all_reports: int, steps: int, scale: float) -> float:
    """The same for numbers within `steps` to each of which lattice Laplace noise of that scale was added.

    The noise of the others is in the mean that the distance is from. What the output's clamp may have moved, a 2^-63rd
    a report, is counted as a false alarm.
    """
    if reports >= all_reports:
        return 1.0
    one, size = np.array([abs(distance)]), np.array([reports])
    bound = float(_log_laplace(one, size, all_reports, steps, scale, _TILTS)[0])
    return min(1.0, 2.0 * math.exp(bound) + all_reports * 2.0**-63)


def _log_laplace(
    distances: Floats, sizes: NDArray[np.number], all_reports: int, steps: int, scale: float, tilts_tried: int
) -> Floats:
    """ln of the bound of one tail, the clamp apart; at most 0. distances, sizes: shape (cohorts,)."""
    reports = sizes.astype(np.float64)[:, None]
    fewer, share = np.minimum(reports, all_reports - reports), reports / all_reports
    tilts = np.linspace(0.0, 1.0, tilts_tried + 1)[1:-1] / (scale * np.maximum(share, 1.0 - share))
    moments = tilts**2 * (fewer * steps**2 / 8.0)
    moments += reports * _log_moment(tilts * (1.0 - share), scale)
    moments += (all_reports - reports) * _log_moment(tilts * share, scale)
    return np.asarray(np.minimum(0.0, (moments - tilts * distances[:, None]).min(axis=1)))


def _log_moment(tilts: Floats, scale: float) -> Floats:
    """ln E[e^(tilt z)], z lattice Laplace noise, for tilts below 1 / scale."""
    ratio = math.exp(-1.0 / scale)
    spread = 4.0 * ratio * np.sinh(tilts / 2.0) ** 2 / (1.0 - ratio) ** 2
    return np.asarray(-np.log1p(-spread))
