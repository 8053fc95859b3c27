"""How far can false but well-formed devices have moved a number? The band in which it lies without any of them.

A report that has the form of one cannot be told from an honest one; that is the promise to its owner. So each number
comes with a band: take any `devices` of its contributors' reports away, whatever they held, and what is left decodes to
a number in the band. What honest devices alone would have given is therefore in it, if no more of them are false.

Rules of this file: a band is exact about the number that is shown, noise included, and holds whatever all others sent;
None where there is none (nobody left, smoothed counts) or none is known.
What it does not do: devices that break the protocol (`influence.reach`), or those that keep a whole cohort for
themselves beyond that number (`standing_out` looks for cohorts unlike the others).
Sources: Cao, Jia & Gong, "Data Poisoning Attacks to Local Differential Privacy Protocols" (USENIX Security 2021), the
maximal gain; Cheu, Smith & Ullman, "Manipulation Attacks in Local Differential Privacy" (S&P 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from client_sdk.mechanisms import Answer, Estimate
from collector.influence import corners, extremes, law_of, quantiles_influence
from collector.slices import slices_bands

if TYPE_CHECKING:
    from client_sdk.mechanisms.optional import OptionalNumber
    from client_sdk.mechanisms.vector import VectorMechanism
    from collector.combination import Combined, Pool

SHARE: Final = Fraction(1, 100)
"""Of the contributors, assumed to be false where nobody says how many."""

Band = tuple[float, float] | None
"""(lowest, highest) that the number can be without the false ones."""


def false_devices(contributors: int, assumed: Fraction | int = SHARE) -> int:
    """How many of `contributors`: a share of them, rounded up, or a number, but never more than there are."""
    wanted = assumed if isinstance(assumed, int) else math.ceil(assumed * contributors)
    return min(wanted, contributors)


def bands(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    """One per row of `combined`, which these pools came to. devices: 0 .. contributors."""
    filled = [pool for pool in pools if pool.contributors > 0]
    rows = len(combined.estimate.values)
    if not filled or combined.smoothed:
        return [None] * rows
    return _BANDS[combined.answer](filled, combined, devices)


def _moved(value: float | None, down: float, up: float) -> Band:
    """A value of which reports made between `down` and `up`."""
    return None if value is None else (value - up, value - down)


# --- counts -----------------------------------------------------------------------------------------


def _counts(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    """A report supports a label or not: it adds (1 - q) / (p - q) to its count, or -q / (p - q)."""
    found: list[Band] = []
    by_pool = [(frozenset(pool.metric.mechanism.labels), law_of(pool.metric.mechanism)) for pool in pools]
    for label, value in zip(combined.labels, combined.estimate.values, strict=True):
        laws = [law for labels, law in by_pool if label in labels]
        known = [law for law in laws if law is not None]
        if not known or len(known) < len(laws):
            found.append(None)
            continue
        down = min(-q / (p - q) for p, q in known)
        up = max((1 - q) / (p - q) for p, q in known)
        found.append(_moved(value, devices * down, devices * up))
    return found


# --- means ------------------------------------------------------------------------------------------


def _mean(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    ends = [extremes(pool.metric.mechanism, 1) for pool in pools]
    return _means(combined.estimate, min(low for low, _ in ends), max(high for _, high in ends), devices)


def _vector(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    mechanisms = [cast("VectorMechanism", pool.metric.mechanism) for pool in pools]
    furthest = max(float(mechanism.unit) * mechanism.bound for mechanism in mechanisms)
    return _means(combined.estimate, -furthest, furthest, devices)


def _means(estimate: Estimate, low: float, high: float, devices: int) -> list[Band]:
    """Of n numbers in low .. high as they were decoded, some are left out: (n mean - their sum) / (n - how many)."""
    n = estimate.contributors
    if devices >= n:
        return [None] * len(estimate.values)
    left = n - devices
    return [
        None if mean is None else tuple(mean + devices * (mean - end) / left for end in (high, low))  # type: ignore[misc]
        for mean in estimate.values
    ]


# --- a ratio: the mean over those that had a reading --------------------------------------------------


def _ratio(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    """sum / count is monotone along every line, so its ends are where all false reports lie in one corner."""
    mean, count = combined.estimate.values
    parts = [one for pool in pools for one in corners(cast("OptionalNumber", pool.metric.mechanism), 1)]
    steps = [float(part.count) for part in parts]
    present = _moved(count, devices * min(steps), devices * max(steps))
    if mean is None or count is None or present is None or present[0] <= 0 or count <= 0:
        return [None, present]
    changes = [float(part.excess + part.absent * part.count) for part in parts]
    ends = [
        (mean * count - devices * change) / (count - devices * step)
        for change, step in zip(changes, steps, strict=True)
    ]
    return [(min(ends), max(ends)), present]


# --- quantiles --------------------------------------------------------------------------------------


def _quantiles(pools: Sequence[Pool], combined: Combined, devices: int) -> list[Band]:
    moves = [quantiles_influence(pool, combined.estimate, devices) for pool in pools]
    known = [move for move in moves if move is not None]
    if len(known) < len(moves):
        return [None] * len(combined.estimate.values)
    return [_moved(value, -max(known), max(known)) for value in combined.estimate.values]


_Bands = Callable[["Sequence[Pool]", "Combined", int], "list[Band]"]
_BANDS: Final[Mapping[Answer, _Bands]] = {
    "counts": _counts,
    "mean": _mean,
    "optional_mean": _ratio,
    "slices": slices_bands,
    "quantiles": _quantiles,
    "vector": _vector,
}
