"""The reduce of released sums: one grouped integer sum, and what a report needs beside it. Ibis, for every engine.

Rules of this file: totals are added as DECIMAL(38), which no number of 64-bit totals that a store can hold leaves;
nothing depends on an order of rows. `collector.reduced` defines what comes out.
"""

from __future__ import annotations

from collections.abc import Collection

import ibis
import ibis.expr.types as ir

from collector.reports.cohorts import STEPS
from collector.service.storage_rows import DIRECT

HEAD = ("plan_hash", "metric", "period_start", "delivery", "contributors", "roster", "resent", "reports")
TOTAL = "decimal(38, 0)"


def inside(sums: ir.Table, metric: str | None, since: int | None, until: int | None) -> ir.Table:
    """Of one metric (None: all), since <= period_start < until."""
    conditions = [] if metric is None else [sums.metric == metric]
    conditions += [] if since is None else [sums.period_start >= since]
    conditions += [] if until is None else [sums.period_start < until]
    return sums.filter(*conditions) if conditions else sums


def totals(sums: ir.Table) -> ir.Table:
    """Per plan version, metric, period and cell: total, and of how many rounds; known: of how many that is a number."""
    return sums.group_by("plan_hash", "metric", "period_start", "cell").agg(
        total=sums.total.cast(TOTAL).sum(), rounds=sums.count(), known=sums.total.count()
    )


def heads(sums: ir.Table) -> ir.Table:
    """Rounds that are alike in all but their totals, and how many."""
    return sums.filter(sums.cell == 0).group_by(*HEAD).agg(rounds=ibis._.count())


def cohorts(sums: ir.Table, without: Collection[str]) -> ir.Table:
    """Of metrics that are not among `without`, the rounds that hid reports, cell by cell."""
    found = sums.filter(sums.delivery != DIRECT, sums.contributors > 0)
    found = found.filter(~found.metric.isin(sorted(without))) if without else found
    return found.select("round", *HEAD, "cell", "total")


def rounds_of_periods(rounds: ir.Table, sums: ir.Table, since: int | None, until: int | None) -> ir.Table:
    """Finished rounds by plan version, period and how they ended; `storage_cohorts` asks a store the same."""
    direct = sums.filter(sums.delivery == DIRECT, sums.cell == 0).select("round").distinct()
    cohorts = inside(rounds, None, since, until).anti_join(direct, "round")
    counted = cohorts.group_by("plan_hash", "period_start", "reason").agg(
        rounds=cohorts.count(),
        joined=cohorts.joined.sum(),
        contributors=cohorts.contributors.sum(),
        least=cohorts.contributors.min(),
        most=cohorts.contributors.max(),
        **{step: cohorts[f"dropped_{step}"].sum() for step in STEPS},
    )
    return counted.select(
        "plan_hash", "period_start", "reason", "rounds", "joined", "contributors", "least", "most", *STEPS
    )
