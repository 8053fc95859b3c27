"""Rows by period, so that hundreds of windows each find theirs without looking at all of them.

Rules of this file: what comes in is sorted once; what a window asks for is a slice of it, and never a copy of more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from collector.reports.windows import Starts, Window


class OfPeriod(Protocol):
    """A row that belongs to a plan version and a period."""

    @property
    def plan_hash(self) -> bytes:
        """The version."""

    @property
    def period_start(self) -> int:
        """Seconds since the epoch."""


Row = TypeVar("Row", bound=OfPeriod)


class ByPeriod(Generic[Row]):
    """Rows in the order of their periods; rows of one period keep theirs."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: Sequence[Row] = sorted(rows, key=lambda row: row.period_start)
        self._starts = [row.period_start for row in self.rows]

    def within(self, window: Window) -> Sequence[Row]:
        """The window's."""
        first, end = (bisect_left(self._starts, edge) for edge in (window.since, window.until))
        found = self.rows[first:end]
        return found if window.plan is None else [row for row in found if row.plan_hash == window.plan]

    def starts(self) -> Starts:
        """By plan hash the periods that have a row."""
        found: dict[bytes, set[int]] = defaultdict(set)
        for row in self.rows:
            found[row.plan_hash].add(row.period_start)
        return found
