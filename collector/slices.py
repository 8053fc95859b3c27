"""Sliced numbers over plan versions, and how far false reports move them: what `combination`, `influence` and
`poisoning` need to know of them.

Rules of this file: slices are combined by name, from the parts that each version's own mechanism decodes; a slice that
a version does not know adds nothing. What a false report can hold is what its mechanism lets any report hold: for each
number of supported points of a slice, the highest ones or the lowest. A mean is a ratio, monotone along every line, so
it is farthest off in one of these corners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.slices import SlicePart, slice_rows, slices_of

if TYPE_CHECKING:
    from client_sdk.mechanisms import Estimate
    from client_sdk.mechanisms.sliced import SlicedNumber
    from client_sdk.mechanisms.slices import SlicesEstimate
    from client_sdk.plan import Metric
    from collector.combination import Combined, Pool

Corner = tuple[float, float]
"""What reports add to a slice's sum, in the metric's unit, and to its count."""

_MEAN = ": mean"


def sliced(metric: Metric) -> SlicedNumber:
    """Its mechanism."""
    return cast("SlicedNumber", metric.mechanism)


def rows_of(newest_first: Iterable[Metric]) -> tuple[str, ...]:
    """Two rows a slice: the newest version's in plan order, then older ones', `other` and "no reading" last."""
    plain: dict[str, None] = {}
    others: dict[str, None] = {}
    for by in (sliced(metric).by for metric in newest_first):
        for label in by.labels:
            is_last = label == by.other or (by.optional and label == ABSENT)
            (others if is_last else plain)[label] = None
    last = sorted((label for label in others if label not in plain), key=lambda label: label == ABSENT)
    return slice_rows((*plain, *last))


def label_of(mechanism: SlicedNumber, pair: int) -> str:
    """The row that a label of the mechanism over the pairs counts in."""
    place = pair // mechanism.points
    return f"{mechanism.slices[place]}: present" if place < len(mechanism.slices) else ABSENT


def combined_slices(pools: Sequence[Pool], rows: tuple[str, ...]) -> SlicesEstimate:
    """Of each slice the mean over all its devices, and their number."""
    parts: dict[str, list[SlicePart]] = {row.removesuffix(_MEAN): [] for row in rows[::2]}
    for pool in pools:
        mechanism = sliced(pool.metric)
        for label, part in zip(mechanism.slices, mechanism.parts(pool.totals, pool.contributors), strict=True):
            parts[label].append(part)
    return slices_of(list(parts.values()), sum(pool.contributors for pool in pools))


def corners(mechanism: SlicedNumber, reports: int = 1) -> list[Corner]:
    """The ends of what so many reports can add to one slice, decoded: alike for all slices."""
    points, inner = mechanism.points, mechanism.inner
    most = points if inner.ones is None else min(points, inner.ones)
    least = 0 if inner.ones is None else max(0, inner.ones - (inner.k - points))
    gap, step = inner.p - inner.q, mechanism.lattice.width / (2 * mechanism.levels)
    found = []
    for ones in range(least, most + 1):
        count = (ones - points * inner.q) / gap * reports
        # the highest weights, levels, levels - 2, ...
        off = sum(mechanism.levels - 2 * place for place in range(ones)) * step / gap * reports
        found += [(float(mechanism.middle * count + sign * off), float(count)) for sign in (-1, 1)]
    return found


def means_and_counts(estimate: Estimate) -> list[tuple[float | None, float | None]]:
    """By slice."""
    return list(zip(estimate.values[::2], estimate.values[1::2], strict=True))


def moved(estimate: Estimate, steps: Sequence[Corner]) -> float | None:
    """How far a slice's mean lies from the same without one of `steps`, at most. None: by any amount, or no mean."""
    moves = []
    for mean, count in means_and_counts(estimate):
        if mean is None or count is None:
            continue
        if any(count - step <= 0 for _, step in steps):
            return None
        moves.append(max(abs(mean - (mean * count - change) / (count - step)) for change, step in steps))
    return max(moves, default=None)


def slices_influence(pool: Pool, estimate: Estimate) -> float | None:
    """One report of any form. None where there is no mean, or too few devices bear one."""
    return moved(estimate, corners(sliced(pool.metric)))


def slices_reach(pool: Pool, estimate: Estimate) -> float | None:
    """The round's part may have been at one end of what is plausible and be at another."""
    ends = corners(sliced(pool.metric), pool.largest)
    return moved(estimate, [(b[0] - a[0], b[1] - a[1]) for a in ends for b in ends])


def slices_bands(pools: Sequence[Pool], combined: Combined, devices: int) -> list[tuple[float, float] | None]:
    """(lowest, highest) that each row can be without so many reports, all of which lie in one corner."""
    steps = [one for pool in pools for one in corners(sliced(pool.metric))]
    counts = [devices * step for _, step in steps]
    found: list[tuple[float, float] | None] = []
    for mean, count in means_and_counts(combined.estimate):
        present = None if count is None else (count - max(counts), count - min(counts))
        if mean is None or count is None or present is None or present[0] <= 0:
            found += [None, present]
            continue
        ends = [(mean * count - devices * change) / (count - devices * step) for change, step in steps]
        found += [(min(ends), max(ends)), present]
    return found
