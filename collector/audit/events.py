"""Which events tell two inputs apart, and how often each was seen: what an auditor looks at in a report.

Rules of this file: an event is fixed before the reports are counted that certify it. The reports of each input are cut
in three: *learn* orders the outcomes by how much they tell, *choose* picks one event among those orders' beginnings,
*certify* is looked at once, for that event. Any function of a report is a fair view of it: what it gives away, the
report gives away. What it does not do: find every leak. An event that none of the views shows stays unseen.

Views: the whole report, each cell, two cells at once, the cells' sum, and a score that adds up what each cell tells
about one pair of inputs (naive Bayes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
"""Reports or views of them: whole numbers of whatever width holds them."""

CELLS_ALL = 64
CELLS_TELLING = 24
CELLS_IN_PAIRS = 6
SCORE_VALUES = 4096
SCORE_STEPS = 32
"""Steps of the score per unit of natural logarithm."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Where n reports of one input are cut: the first quarter, the second, the half that certifies."""

    n: int

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        """learn, choose, certify."""
        return slice(0, self.n // 4), slice(self.n // 4, self.n // 2), slice(self.n // 2, self.n)

    @property
    def certifying(self) -> int:
        """Reports of each input that an event is certified with."""
        return self.n - self.n // 2

    @property
    def choosing(self) -> int:
        """Reports of each input that an event is chosen with."""
        return self.n // 2 - self.n // 4


@dataclass(frozen=True, slots=True)
class View:
    """One whole number per report, tabulated: which values, and how often each input gave them in each part.

    kind: of the views among which one event is certified. values: those of the first two parts, ascending, shape (d,).
    places: per input where each report's value stands in `values`, or d where it was not seen in time.
    learn, choose, certify: counts, shape (inputs, d).
    """

    kind: str
    label: str
    values: Ints
    places: tuple[Ints, ...]
    learn: Ints
    choose: Ints
    certify: Ints

    @classmethod
    def of(cls, kind: str, label: str, columns: Sequence[Ints], parts: Parts) -> View:
        """Tabulate; `columns` holds one array of n numbers per input."""
        seen = np.unique(np.concatenate([column[: parts.n // 2] for column in columns]))
        places = tuple(_places(column, seen) for column in columns)
        tables = (
            np.stack([np.bincount(place[part], minlength=seen.size + 1)[: seen.size] for place in places])
            for part in parts.slices
        )
        return cls(kind, label, seen, places, *tables)


@dataclass(frozen=True, slots=True)
class Event:
    """A set of a view's values, chosen without the reports that certify it."""

    view: View
    chosen: npt.NDArray[np.bool_]
    promise: float
    """ln of the ratio that the choosing part would have certified, roughly."""

    def counts(self, likely: int, unlikely: int) -> tuple[int, int]:
        """How often the certifying part of the two inputs' reports has it."""
        table = self.view.certify
        return int(table[likely, self.chosen].sum()), int(table[unlikely, self.chosen].sum())

    def __str__(self) -> str:
        picked = self.view.values[self.chosen]
        if self.view.kind in ("report", "score"):  # their values are no numbers that anybody knows
            return f"{self.view.label} is one of {picked.size}"
        if picked.size == 1:
            return f"{self.view.label} = {picked[0]}"
        if picked.size == int(np.sum((self.view.values >= picked[0]) & (self.view.values <= picked[-1]))):
            return f"{self.view.label} in {picked[0]} .. {picked[-1]}"
        return f"{self.view.label} is one of {picked.size} values"


def views_of(rows: Sequence[Ints], parts: Parts) -> list[View]:
    """Every view of the inputs' reports (arrays of shape (n, length)) but the scores."""
    length = rows[0].shape[1]
    telling = _telling_cells(rows, parts)
    views = [View.of("cell", f"cell {j}", [r[:, j] for r in rows], parts) for j in telling]
    if length == 1:
        return views
    views.append(View.of("report", "the report", [_digests(r) for r in rows], parts))
    views.append(View.of("sum", "the sum of the cells", [r.sum(axis=1, dtype=np.int64) for r in rows], parts))
    views += [_both(one, other, parts) for one, other in combinations(views[:CELLS_IN_PAIRS], 2)]
    return views


def score_of(views: Sequence[View], one: int, other: int, parts: Parts) -> tuple[View, ...]:
    """One view that adds up, over the cells, ln of how much more often input `one` gave their values than `other`.

    Tabulated for these two inputs alone. Nothing for reports of a single cell: its own view says it all.
    """
    cells = [view for view in views if view.kind == "cell" and view.values.size <= SCORE_VALUES]
    if len(cells) < 2:
        return ()
    scores = np.zeros((2, parts.n))
    for cell in cells:
        told = np.append(np.log((cell.learn[one] + 0.5) / (cell.learn[other] + 0.5)), 0.0)
        scores[0] += told[cell.places[one]]
        scores[1] += told[cell.places[other]]
    columns = list(np.rint(scores * SCORE_STEPS).astype(np.int64))
    return (View.of("score", "the score of all cells", columns, parts),)


def best_events(views: Sequence[View], likely: int, unlikely: int, choosing: int, z: float) -> Iterator[Event]:
    """Per kind of view the event that promises most for P(event | likely) / P(event | unlikely)."""
    best: dict[str, Event] = {}
    for view in views:
        event = _best_event(view, likely, unlikely, choosing, z)
        if view.kind not in best or event.promise > best[view.kind].promise:
            best[view.kind] = event
    yield from best.values()


def _best_event(view: View, likely: int, unlikely: int, choosing: int, z: float) -> Event:
    """Among single values, all up to one, all from one on, and the most telling ones as `learn` orders them."""
    x, y = view.choose[likely], view.choose[unlikely]
    ascending = np.arange(x.size)
    told = np.log((view.learn[likely] + 0.5) / (view.learn[unlikely] + 0.5))
    promises = _promise(x, y, choosing, z)
    place = int(promises.argmax())
    best = Event(view, ascending == place, float(promises[place]))
    for order in (ascending, ascending[::-1], np.argsort(-told, kind="stable")):
        promises = _promise(np.cumsum(x[order]), np.cumsum(y[order]), choosing, z)
        place = int(promises.argmax())
        if promises[place] > best.promise:
            chosen = np.zeros(x.size, bool)
            chosen[order[: place + 1]] = True
            best = Event(view, chosen, float(promises[place]))
    return best


def _promise(x: Ints, y: Ints, n: int, z: float) -> npt.NDArray[np.float64]:
    """ln of (lower end of x/n) / (upper end of y/n) by Wilson's interval: good enough to choose by."""
    low, high = _wilson(x, n, z, -1.0), _wilson(y, n, z, 1.0)
    return np.log(np.maximum(low, 1e-300)) - np.log(high)


def _wilson(counts: Ints, n: int, z: float, side: float) -> npt.NDArray[np.float64]:
    share = counts / n
    half = z * np.sqrt(share * (1.0 - share) / n + z * z / (4.0 * n * n))
    return np.asarray((share + z * z / (2.0 * n) + side * half) / (1.0 + z * z / n), np.float64)


def _places(column: Ints, seen: Ints) -> Ints:
    places = np.searchsorted(seen, column)
    places[seen[np.minimum(places, seen.size - 1)] != column] = seen.size
    return places.astype(np.int32)


def _both(one: View, other: View, parts: Parts) -> View:
    """Two cells at once; a value of either that was not seen in time is one more value."""
    width = other.values.size + 1
    columns = [a.astype(np.int64) * width + b for a, b in zip(one.places, other.places, strict=True)]
    return View.of("two cells", f"{one.label} and {other.label} (joint place)", columns, parts)


def _telling_cells(rows: Sequence[Ints], parts: Parts) -> list[int]:
    """Cells by how far the inputs' means lie apart in the part that learns, the farthest first; the first cells too.

    All of them where the report is short.
    """
    learn = parts.slices[0]
    means = np.stack([r[learn].mean(axis=0) for r in rows])
    spreads = np.stack([r[learn].std(axis=0) for r in rows]).mean(axis=0)
    order = np.argsort(-np.ptp(means, axis=0) / (spreads + 1e-9), kind="stable").tolist()
    if len(order) <= CELLS_ALL:
        return [int(j) for j in order]
    return [int(j) for j in dict.fromkeys([*order[:CELLS_TELLING], *range(CELLS_IN_PAIRS)])]


def _digests(rows: Ints) -> Ints:
    """One number per report; two reports may share one, which can only hide a difference."""
    weights = np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    weights ^= weights >> np.uint64(29)
    weights *= np.uint64(0xBF58476D1CE4E5B9)
    digests = np.zeros(rows.shape[0], np.uint64)
    for column, weight in zip(rows.T, weights | np.uint64(1), strict=True):
        digests += column.astype(np.int64).view(np.uint64) * weight
    return digests
