"""Garbage collection of spends: what the lifetime's figures need stays, in as few rows as can be.

Rules of this file: the caller owns the transaction; the lifetime of no device changes, and no figure made of what is
left is smaller than it was. Sums that hid their reports about equally well become one cohort: contributors rounded
down, and without the resent ones, who hide nobody; the roster rounded up. Round by round, a few statements for
hundreds of devices; plain SQL of every engine. A transaction holds up all other writers, so it ends after about
PIECE_S and says how much it did: what is left of a round, the next one folds.
What it does not do: it keeps neither periods nor rounds of what it folds, nor when each of the reports was charged.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, select, update

from collector.service import tables as t
from collector.service.storage_histories import Sum, sums_of
from collector.service.storage_reads import chunks

RATIO: Final = 0.05
"""Sizes of cohorts are rounded by at most this share; below 1 / RATIO they stay exact."""

PIECE_S: Final = 1.0
"""How long a transaction goes on beginning further steps."""

MOST_ROWS: Final = 20_000
"""Of the oldest spends, among which a transaction looks for rounds."""

MOST_REPORTS: Final = 400
"""Of one step: a piece of a round."""


@lru_cache(maxsize=4096)
def rounded_down(size: int, ratio: float = RATIO) -> int:
    """The largest of 0, 1, and each the last times 1 + ratio (rounded down, at least one more), that is not above."""
    grid = 0
    while (following := _following(grid, ratio)) <= size:
        grid = following
    return grid


def rounded_up(size: int, ratio: float = RATIO) -> int:
    """The smallest of the same numbers that is not below."""
    down = rounded_down(size, ratio)
    return size if down == size else _following(down, ratio)


def _following(grid: int, ratio: float) -> int:
    return max(grid + 1, math.floor(grid * (1.0 + ratio)))


@dataclass(frozen=True, slots=True)
class _Report:
    """What is booked for a report: micro-epsilon over all its metrics, seconds since the epoch."""

    cost: int
    charged_at: int
    falls_back: bool


@dataclass(frozen=True, slots=True)
class FoldedCohort:
    """A row of `folded_cohorts`."""

    plan_hash: bytes
    delivery: str
    contributors: int
    least_contributors: int
    roster: int
    metric_contributors: str

    @classmethod
    def of(cls, held: Sum, *, sampled: bool) -> FoldedCohort:
        """That of one sum: hides nobody better than it did. sampled: each report holds some of the metrics."""
        counts = held.metric_contributors if sampled else {}
        metrics = {name: _hiding(count, held) for name, count in sorted(counts.items())}
        contributors = _hiding(held.contributors, held)
        least = min([contributors, *(count for count in metrics.values() if count)])
        text = json.dumps(metrics, separators=(",", ":"))
        return cls(held.plan_hash, held.delivery, contributors, least, rounded_up(held.roster), text)

    @property
    def key(self) -> bytes:
        """The same for alike cohorts, in every store."""
        values = [self.plan_hash.hex(), self.delivery, self.contributors, self.roster, self.metric_contributors]
        return hashlib.sha256(json.dumps(values).encode()).digest()

    def values(self) -> dict[str, Any]:
        """The row."""
        return {"cohort": self.key, **asdict(self)}


def _hiding(contributors: int, held: Sum) -> int:
    """0 stays what it is: a metric that nobody holds is in no report."""
    return rounded_down(max(1, contributors - held.resent)) if contributors else 0


def fold_spends(conn: Connection, before: int) -> int:
    """Fold spends charged before `before` into their devices' rows and drop theirs: those of some of the oldest rounds,
    so that a transaction stays short. How many went; 0: there are none any more.
    """
    until, c, dropped = time.monotonic() + PIECE_S, t.spends.c, 0
    oldest = _oldest_rounds(conn, before)
    sums = sums_of(conn, [one.round for one in oldest])
    for one in oldest:
        rows = and_(c.charged_at.between(one.since, one.until), c.round == one.round)  # the index finds them
        cohort = FoldedCohort.of(sums[one.round], sampled=one.metric == t.SAMPLED)
        while some := _fold_some(conn, rows, cohort):
            dropped += some
            if time.monotonic() >= until:
                return dropped
    return dropped


def _oldest_rounds(conn: Connection, before: int) -> Sequence[Any]:
    """(round, since, until, metric) of those to which the MOST_ROWS oldest spends belong: the index finds these.

    A report's spends all have one time, so none of it is left out.
    """
    s = t.spends.c
    oldest = select(s.round, s.charged_at, s.metric).where(s.charged_at < before).order_by(s.charged_at)
    c = oldest.limit(MOST_ROWS).subquery().c
    first = func.min(c.charged_at)
    columns = select(
        c.round, first.label("since"), func.max(c.charged_at).label("until"), func.min(c.metric).label("metric")
    )
    return conn.execute(columns.group_by(c.round).order_by(first, c.round)).all()


def _fold_some(conn: Connection, rows: ColumnElement[bool], cohort: FoldedCohort) -> int:
    """The first MOST_REPORTS of these reports of one round; how many rows went."""
    alike = _alike(conn, rows)
    if not alike:
        return 0
    if conn.execute(select(t.folded_cohorts.c.cohort).where(t.folded_cohorts.c.cohort == cohort.key)).first() is None:
        conn.execute(insert(t.folded_cohorts).values(cohort.values()))
    for report, devices in alike.items():
        for chunk in chunks(devices):
            _add(conn, cohort.key, report, chunk)
    last = max(devices[-1] for devices in alike.values())
    return int(conn.execute(delete(t.spends).where(rows, t.spends.c.device <= last)).rowcount)


def _alike(conn: Connection, rows: ColumnElement[bool]) -> dict[_Report, list[str]]:
    """The first MOST_REPORTS devices of a round, each of which has one report in it, by what is booked for that."""
    c = t.spends.c
    columns = select(c.device, func.sum(c.micro_epsilon), func.min(c.charged_at), c.central_falls_back)
    some = columns.where(rows).group_by(c.device, c.central_falls_back).order_by(c.device).limit(MOST_REPORTS)
    devices: dict[_Report, list[str]] = defaultdict(list)
    for device, cost, charged_at, falls_back in conn.execute(some):
        devices[_Report(int(cost), charged_at, falls_back)].append(device)
    return devices


def _add(conn: Connection, cohort: bytes, report: _Report, devices: Sequence[str]) -> None:
    """One such report more for each of `devices`, which are different ones and fit into an `IN` list."""
    f = t.folded_spends.c
    same = and_(f.cohort == cohort, f.central_falls_back == report.falls_back, f.device.in_(devices))
    known = set(conn.execute(select(f.device).where(same)).scalars())
    earlier, later = f.first_charged_at > report.charged_at, f.last_charged_at < report.charged_at
    more = {
        "reports": f.reports + 1,
        "micro_epsilon": f.micro_epsilon + report.cost,
        "first_charged_at": case((earlier, report.charged_at), else_=f.first_charged_at),
        "last_charged_at": case((later, report.charged_at), else_=f.last_charged_at),
    }
    if known:
        conn.execute(update(t.folded_spends).where(same).values(more))
    key = {"cohort": cohort, "central_falls_back": report.falls_back}
    charged = {"first_charged_at": report.charged_at, "last_charged_at": report.charged_at}
    new = [
        {"device": device, **key, "reports": 1, "micro_epsilon": report.cost, **charged}
        for device in devices
        if device not in known
    ]
    if new:
        conn.execute(insert(t.folded_spends), new)
    d = t.device_totals.c
    folded = {"folded_reports": d.folded_reports + 1, "folded_micro_epsilon": d.folded_micro_epsilon + report.cost}
    conn.execute(update(t.device_totals).where(d.device.in_(devices)).values(folded))
