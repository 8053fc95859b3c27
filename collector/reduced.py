"""What a report needs of the released sums, and nothing else: their totals by period, and how many rounds were alike.

Rounds of one period are added up cell by cell; of each round only the few numbers stay that errors, epsilons and
influences are computed from (`Head`), like rounds together. Only where a metric's rounds have MOST_COHORT_CELLS cells
at most, they stay one by one beside that, so that cohorts can be compared with each other.

Rules of this file: integers of any size, never a float; whoever reduces (this file, DuckDB, Spark) comes to equal
values, in whatever order the rows came, so that one report is made of all. `reduce_sums` is the definition.
What it does not do: it knows no plan, so it neither decodes nor leaves out periods in which a metric had expired.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from collector.release import ReleasedSum

MOST_COHORT_CELLS: Final = 1_000_000
"""Cells of all cohorts of a metric, whatever plans they are of, up to which they are compared."""

Key = tuple[bytes, str]
"""(plan hash, metric)."""

PeriodKey = tuple[bytes, str, int]
"""(plan hash, metric, start of the period)."""


@dataclass(frozen=True, slots=True)
class Head:
    """`rounds` of one metric and period that are alike in all that is known beside their totals; see `ReleasedSum`."""

    plan_hash: bytes
    metric: str
    period_start: int
    delivery: str
    contributors: int
    roster: int
    resent: int
    reports: int
    rounds: int = 1

    @property
    def key(self) -> PeriodKey:
        """Whose totals it belongs to."""
        return self.plan_hash, self.metric, self.period_start


@dataclass(frozen=True, slots=True)
class Reduced:
    """heads, totals: of the same keys. cohorts: by metric the rounds that hid reports, by period and round.

    not_compared: metrics that have too many cohorts, and so none in `cohorts`.
    """

    heads: Sequence[Head]
    totals: Mapping[PeriodKey, Sequence[int]]
    cohorts: Mapping[Key, Sequence[ReleasedSum]]
    not_compared: frozenset[str] = frozenset()

    def where(self, keep: Callable[[PeriodKey], bool]) -> Reduced:
        """What is left of it with these metrics and periods alone."""
        kept = {key for key in self.totals if keep(key)}
        cohorts = {key: [row for row in rows if (*key, row.period_start) in kept] for key, rows in self.cohorts.items()}
        return Reduced(
            [head for head in self.heads if head.key in kept],
            {key: totals for key, totals in self.totals.items() if key in kept},
            {key: rows for key, rows in cohorts.items() if rows},
            self.not_compared,
        )

    def between(self, since: int | None, until: int | None) -> Reduced:
        """Periods that start in the window, half open; None: it has no such end."""
        if since is None and until is None:
            return self
        return self.where(lambda key: is_between(key[2], since, until))


def is_between(instant: int, since: int | None, until: int | None) -> bool:
    """since <= instant < until; None: no such end."""
    return (since is None or since <= instant) and (until is None or instant < until)


def is_cohort(row: ReleasedSum | Head) -> bool:
    """Did it hide reports? Direct ones stand alone."""
    return row.delivery != "direct" and row.contributors > 0


def reduce_sums(rows: Iterable[ReleasedSum]) -> Reduced:
    """Raises ValueError where sums of one metric and period have different numbers of cells."""
    heads: Counter[Head] = Counter()
    totals: dict[PeriodKey, list[int]] = {}
    hidden: dict[Key, list[ReleasedSum]] = defaultdict(list)
    for row in rows:
        head = head_of(row)
        heads[head] += 1
        _add(totals, head.key, row.totals)
        if is_cohort(row):
            hidden[row.plan_hash, row.metric].append(row)
    too_many = not_compared((len(row.totals), row.metric, 1) for found in hidden.values() for row in found)
    cohorts = {key: in_order(found) for key, found in hidden.items() if key[1] not in too_many}
    return Reduced([_times(head, rounds) for head, rounds in heads.items()], totals, cohorts, too_many)


def head_of(row: ReleasedSum) -> Head:
    """Of one round."""
    return Head(
        row.plan_hash, row.metric, row.period_start, row.delivery,
        row.contributors, row.roster, row.resent, row.reports,
    )  # fmt: skip


def _times(head: Head, rounds: int) -> Head:
    return Head(
        head.plan_hash, head.metric, head.period_start, head.delivery,
        head.contributors, head.roster, head.resent, head.reports, rounds,
    )  # fmt: skip


def _add(totals: dict[PeriodKey, list[int]], key: PeriodKey, cells: Sequence[int]) -> None:
    before = totals.get(key)
    if before is not None and len(before) != len(cells):
        raise ValueError(f"metric {key[1]!r}: sums of {len(before)} and of {len(cells)} cells in one period")
    totals[key] = list(cells) if before is None else [a + b for a, b in zip(before, cells, strict=True)]


def not_compared(cohorts: Iterable[tuple[int, str, int]]) -> frozenset[str]:
    """Metrics whose cohorts have more than MOST_COHORT_CELLS cells. cohorts: (cells of one, metric, how many)."""
    cells: Counter[str] = Counter()
    for of_one, metric, cohorts_alike in cohorts:
        cells[metric] += of_one * cohorts_alike
    return frozenset(metric for metric, count in cells.items() if count > MOST_COHORT_CELLS)


def in_order(rows: Iterable[ReleasedSum]) -> list[ReleasedSum]:
    """By period and round, as every reader has them."""
    return sorted(rows, key=lambda row: (row.period_start, row.round_id))
