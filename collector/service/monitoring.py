"""What the service counts and measures about itself: rounds by outcome, dropouts by step, latencies.

Rules of this file: counts and durations only. No identity, address, payload or total is ever given to a counter, and
names and labels come from fixed vocabularies, so that their number is bounded whatever the outside sends. Nothing of
Prometheus is needed here: `metrics` turns what stands here into its format.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from client_sdk.errors import AbortReason, RejectionReason
from collector.service.statuses import Refusal

COHORT_SIZE: Final = "cohort_size"
ROUND_SECONDS: Final = "round_seconds"
STEP_SECONDS: Final = "step_seconds"
OPENING_SECONDS: Final = "opening_seconds"
DATABASE_SECONDS: Final = "database_seconds"
CLOCK_SKEW_SECONDS: Final = "clock_skew_seconds"

IDENTITY_FULL: Final = "direct.identity_full"
"""Counts reports that are refused as `busy` for what their own identity holds, here or in another call."""

OPERATIONS: Final = frozenset({
    "store_releases", "record_aborted", "standings", "access_tokens", "probe", "forget", "keep_house",
    "enrol", "renew", "other",
})  # fmt: skip
"""What is asked of a store while it serves: the names of its methods."""

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)

BOUNDS: Final[Mapping[str, tuple[float, ...]]] = {
    COHORT_SIZE: (10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 4000, 8000, 16384),
    ROUND_SECONDS: _SLOW,
    STEP_SECONDS: _SLOW,
    OPENING_SECONDS: (0.01, *_SLOW),
    DATABASE_SECONDS: _QUICK,
    CLOCK_SKEW_SECONDS: (-300, -120, -60, -30, -10, -5, -1, 0, 1, 5, 10, 30, 60, 120, 300),
}
"""What is measured, and the upper bounds of its classes."""


class Histogram:
    """How many observations fell into each class. counts: one more than bounds, the last without an upper one."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more; a value on a bound belongs to the class below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Monitor:
    """In memory since the start; used on the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._streams_open = 0

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count one participant's stream while it is open."""
        self._counts["streams.total"] += 1
        self._streams_open += 1
        try:
            yield
        finally:
            self._streams_open -= 1

    @property
    def streams_open(self) -> int:
        """Participants' streams that are open now."""
        return self._streams_open

    def count(self, name: str, by: int = 1) -> None:
        """Count an event of the service's own vocabulary, e.g. `joins`, `come_back`, `enrolled`."""
        self._counts[name] += by

    def observe(self, name: str, value: float, label: str = "") -> None:
        """Measure something of BOUNDS; the label, where it has one, is of a fixed vocabulary too."""
        histogram = self._histograms.get((name, label))
        if histogram is None:
            histogram = self._histograms[name, label] = Histogram(BOUNDS[name])
        histogram.observe(value)

    @contextmanager
    def timed(self, name: str, label: str = "") -> Iterator[None]:
        """Measure how long the block takes, also where it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(name, time.perf_counter() - began, label)

    def database(self, operation: str, seconds: float) -> None:
        """A call of the store took that long, without what it queued."""
        self.observe(DATABASE_SECONDS, seconds, operation if operation in OPERATIONS else "other")

    def rejected(self, refusal: Refusal) -> None:
        """One message or one participant was refused."""
        reason = refusal if isinstance(refusal, RejectionReason) else RejectionReason.STORAGE
        self._counts[f"rejections.{reason.value}"] += 1

    def blamed(self, faults: Iterable[str]) -> None:
        """Whom a round blames, by what they did (values of `collector.secagg.blame.Fault`)."""
        for fault in faults:
            self._counts[f"blamed.{fault}"] += 1

    def round_released(self, contributors: int, dropouts: Mapping[str, int], seconds: float) -> None:
        """A sum was stored; `seconds` from forming to release."""
        self._counts["contributors"] += contributors
        self.observe(COHORT_SIZE, contributors)
        self.observe(ROUND_SECONDS, seconds)
        self._round("rounds.released", dropouts, seconds)

    def round_aborted(self, reason: AbortReason, dropouts: Mapping[str, int], seconds: float) -> None:
        """A round ended without a sum."""
        self._counts[f"aborts.{reason.value}"] += 1
        self._round("rounds.aborted", dropouts, seconds)

    def direct_stored(self, contributors: int) -> None:
        """Reports that came unmasked, on their devices' own permission, were stored as one sum."""
        self._counts["contributors.direct"] += contributors
        self._counts["direct.sums"] += 1

    def _round(self, outcome: str, dropouts: Mapping[str, int], seconds: float) -> None:
        self._counts[outcome] += 1
        self._counts["rounds.milliseconds"] += round(seconds * 1000)
        for step, lost in dropouts.items():
            self._counts[f"dropouts.{step}"] += lost

    def counted(self, name: str) -> int:
        """One counter; 0 where it never moved."""
        return self._counts.get(name, 0)

    def histogram(self, name: str, label: str = "") -> Histogram:
        """What was measured under that name; an empty one where nothing was."""
        return self._histograms.get((name, label)) or Histogram(BOUNDS[name])

    def snapshot(self) -> dict[str, int]:
        """A copy of every counter that moved, by dotted name, and `streams.open`."""
        return {**dict(sorted(self._counts.items())), "streams.open": self._streams_open}
