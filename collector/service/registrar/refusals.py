"""What the log says of refusals: one line a minute at most, with counts by reason.

Rules of this file: no token, identity or address, and no line for each request, or whoever asks could fill the disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from collector.service.logs import fields

EVERY_S: Final = 60.0


class RefusalLog:
    """Used on the event loop only. clock: monotonic seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._hints: dict[str, str] = {}
        self._next_at = clock()

    def note(self, reason: str, hint: str = "") -> None:
        """One more refusal. The first one is said at once, what follows within a minute together.

        reason: of a fixed vocabulary. hint: what the operator should look at; of a reason's hints the first is said.
        """
        self._counts[reason] += 1
        if hint:
            self._hints.setdefault(reason, f" ({hint})")
        if self._clock() >= self._next_at:
            self.flush()

    def flush(self) -> None:
        """Say what has not been said yet."""
        if self._counts:
            counts = sorted(self._counts.items())
            said = ", ".join(f"{reason} {count}{self._hints.get(reason, '')}" for reason, count in counts)
            self._log.warning("refused: %s", said, extra=fields("refused", reasons=dict(counts)))
            self._counts.clear()
            self._hints.clear()
            self._next_at = self._clock() + EVERY_S
