"""How large the cohorts of a time were and how many devices left them on the way, from the counts of finished rounds.

Rules of this file: counts only, never who; a round without a sum counts as aborted, with its reason, and neither to
sizes nor to dropouts. Sums of direct reports are no cohorts and are not in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector.reports.by_period import ByPeriod
from collector.reports.windows import Window

STEPS: Final = ("shares", "masked_input", "confirm", "unmask")
"""`dropouts` counts those who left without sending that step's message."""


@dataclass(frozen=True, slots=True)
class RoundsOfPeriod:
    """Rounds of one plan version and period that ended alike. reason: None of those with a sum.

    joined, contributors, dropouts: added up over the rounds; least, most: contributors of the smallest, the largest.
    """

    plan_hash: bytes
    period_start: int
    reason: str | None
    rounds: int
    joined: int
    contributors: int
    least: int
    most: int
    dropouts: Mapping[str, int] = field(default_factory=dict)


def cohort_counts(rounds: Iterable[RoundsOfPeriod]) -> dict[str, Any]:
    """`{rounds, joined, contributors, smallest, mean, largest, dropouts{step}, aborted, reasons{reason}}`.

    Nulls for the sizes where no round has a sum.
    """
    every = list(rounds)
    released = [one for one in every if one.reason is None]
    count, contributors = sum(one.rounds for one in released), sum(one.contributors for one in released)
    reasons: Counter[str] = Counter()
    for one in every:
        if one.reason is not None:
            reasons[one.reason] += one.rounds
    return {
        "rounds": count,
        "joined": sum(one.joined for one in released),
        "contributors": contributors,
        "smallest": min((one.least for one in released), default=None),
        "mean": contributors / count if count else None,
        "largest": max((one.most for one in released), default=None),
        "dropouts": {step: sum(one.dropouts.get(step, 0) for one in released) for step in STEPS},
        "aborted": sum(reasons.values()),
        "reasons": dict(sorted(reasons.items())),
    }


def cohorts_by_window(rounds: Iterable[RoundsOfPeriod], windows: Sequence[Window]) -> dict[str, Any]:
    """The counts over all, and with its `window` those of each."""
    sliced = ByPeriod(rounds)
    return {
        **cohort_counts(sliced.rows),
        "windows": [{"window": window.label, **cohort_counts(sliced.within(window))} for window in windows],
    }
