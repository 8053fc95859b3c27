"""Garbage collection of spends: what the lifetime's figures need stays, in as few rows as can be.

Rules of this file: the caller owns the transaction; the lifetime of no device changes, and no figure made of what is
left is smaller than it was. Sums that hid their reports about equally well become one cohort: contributors rounded
down, and without the resent ones, who hide nobody; the roster rounded up. Round by round, a few statements for
hundreds of devices; plain SQL of every engine.
What it does not do: it keeps neither periods nor rounds of what it folds, nor when each of the reports was charged.
"""

from __future__ import annotations

import hashlib
import json
import math
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
    """Fold the spends charged before `before` into their devices' rows and drop theirs; how many went."""
    c = t.spends.c
    first, last = func.min(c.charged_at), func.max(c.charged_at)
    old = (
        select(c.round, first, last, func.min(c.metric)).where(c.charged_at < before).group_by(c.round).order_by(first)
    )
    dropped = 0
    for some in chunks(conn.execute(old).all()):
        sums = sums_of(conn, [round_id for round_id, *_ in some])
        for round_id, since, until, metric in some:
            rows = and_(c.charged_at.between(since, until), c.round == round_id)  # the index finds them
            dropped += _fold_round(conn, rows, FoldedCohort.of(sums[round_id], sampled=metric == t.SAMPLED))
    return dropped


def _fold_round(conn: Connection, rows: ColumnElement[bool], cohort: FoldedCohort) -> int:
    if conn.execute(select(t.folded_cohorts.c.cohort).where(t.folded_cohorts.c.cohort == cohort.key)).first() is None:
        conn.execute(insert(t.folded_cohorts).values(cohort.values()))
    for report, devices in _alike(conn, rows).items():
        for chunk in chunks(devices):
            _add(conn, cohort.key, report, chunk)
    return int(conn.execute(delete(t.spends).where(rows)).rowcount)


def _alike(conn: Connection, rows: ColumnElement[bool]) -> dict[_Report, list[str]]:
    """The devices of a round, each of which has one report in it, by what is booked for that."""
    c = t.spends.c
    columns = select(c.device, func.sum(c.micro_epsilon), func.min(c.charged_at), c.central_falls_back)
    devices: dict[_Report, list[str]] = defaultdict(list)
    for device, cost, charged_at, falls_back in conn.execute(
        columns.where(rows).group_by(c.device, c.central_falls_back).order_by(c.device)
    ):
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
