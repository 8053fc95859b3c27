"""Counters about the service itself: rounds by outcome, dropouts by step, rejections by reason.

Rules of this file: counts only. No identity, address, payload or total is ever given to a counter, and
names come from fixed vocabularies, so that their number is bounded whatever the outside sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from client_sdk.errors import AbortReason, RejectionReason
from collector.service.statuses import Refusal


class Monitor:
    """In-memory counters since the start; used on the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
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

    def count(self, name: str, by: int = 1) -> None:
        """Count an event of the service's own vocabulary, e.g. `joins`, `come_back`, `enrolled`."""
        self._counts[name] += by

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
        self._round("rounds.released", dropouts, seconds)

    def round_aborted(self, reason: AbortReason, dropouts: Mapping[str, int], seconds: float) -> None:
        """A round ended without a sum."""
        self._counts[f"aborts.{reason.value}"] += 1
        self._round("rounds.aborted", dropouts, seconds)

    def _round(self, outcome: str, dropouts: Mapping[str, int], seconds: float) -> None:
        self._counts[outcome] += 1
        self._counts["rounds.milliseconds"] += round(seconds * 1000)
        for step, lost in dropouts.items():
            self._counts[f"dropouts.{step}"] += lost

    def snapshot(self) -> dict[str, int]:
        """A copy of every counter that moved, by dotted name, and `streams.open`."""
        return {**dict(sorted(self._counts.items())), "streams.open": self._streams_open}
