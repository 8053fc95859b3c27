"""The ledger's grouped sums over spends: what a fleet has spent, and which sums hid its reports. Ibis, for all engines.

Rules of this file: the same questions as `storage_statements` asks a store, with the same answers, and on the same side
where something is not certain. All reports of one plan version have rows of the same metrics, so one of these stands
for the report; nothing is counted by what is distinct, which would have to stay in memory.
What it does not do: it computes no epsilon, and asks nothing by itself (`spending` does).
"""

from __future__ import annotations

from dataclasses import dataclass

import ibis
import ibis.expr.types as ir

from collector.accounting.basic import WINDOWS
from collector.service.storage_rows import DIRECT
from collector.service.storage_statements import LIFETIME

_CARRIED_IN = ("365d", LIFETIME)
"""See `storage_statements`."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Of an export. A plan is a number in here (`plans`: plan_hash, plan): groups of millions of devices stay small.

    spends: with is_report; folded: folded spends with the cohorts that they were in; sums: released sums.
    """

    plans: ir.Table
    spends: ir.Table
    folded: ir.Table
    totals: ir.Table
    sums: ir.Table
    rounds: ir.Table

    @classmethod
    def of(cls, plans: ir.Table, spends: ir.Table, folded: ir.Table, cohorts: ir.Table, *others: ir.Table) -> Tables:
        """plans: plan_hash, plan, first_metric (`first_metrics`). others: device_totals, released_sums, rounds."""
        marked = spends.inner_join(plans, "plan_hash")
        reports = marked.mutate(is_report=marked.metric == marked.first_metric)
        reports = reports.drop("first_metric", "metric", "plan_hash", "plan_name", "period_start")
        numbers = plans.select("plan_hash", "plan")
        numbered = folded.inner_join(cohorts.inner_join(numbers, "plan_hash"), "cohort")
        return cls(numbers, reports, numbered, *others)


def first_metrics(spends: ir.Table) -> ir.Table:
    """Per plan_hash the metric whose rows stand for its reports. Asked once and handed back as a part of `plans`: a
    table that an engine knows to be small goes to the rows, where a join would bring all rows of a plan to one place.
    """
    return spends.group_by("plan_hash").agg(first_metric=spends.metric.min())


def _inside(charged_at: ir.Value, now: int, window: str) -> ir.Value:
    return ibis.literal(True) if window == LIFETIME else charged_at > now - WINDOWS[window]  # noqa: FBT003 - a value


# --- costs ------------------------------------------------------------------------------------------


def of_devices(tables: Tables, rhos: ir.Table, now: int, window: str) -> ir.Table:
    """Per device that has a total: device, cost, rho, carried, whole. rhos: plan, micro_rho of known plans.

    Rows of one device come together by grouping, never by a join: what does not fit in memory goes to disk.
    """
    plan = _by_plan(tables, now, window).left_join(rhos, "plan")
    f, total = tables.folded, tables.totals
    rows = plan.select(
        "device",
        "cost",
        rho=plan.reports * plan.micro_rho.fill_null(0),
        first=plan.first,
        used=ibis.cases((plan.reports > 0, plan.used)),
        known=ibis.cases((plan.reports > 0, plan.micro_rho.notnull().cast("int64")), else_=1),
        folded=_ZERO,
        has_total=_ZERO,
    )
    same = {"rho": _ZERO, "first": _NONE, "used": _NONE, "known": ibis.literal(1, "int64")}
    kept = f.select("device", cost=_ZERO, **same, folded=-f.micro_epsilon, has_total=_ZERO)
    booked = total.select("device", cost=_ZERO, **same, folded=total.folded_micro_epsilon, has_total=_ONE)
    every = rows.union(kept, booked)
    device = every.group_by("device").agg(
        **{name: every[name].sum().cast("int64") for name in ("cost", "rho", "folded", "has_total")},
        first=every.first.min(),
        used=every.used.max(),
        known=every.known.min(),
    )
    device = device.filter(device.has_total > 0)
    device = device.mutate(carried=device.folded if window in _CARRIED_IN else _ZERO)
    # a plan that was first used after a report under another one had left may have been chosen by what came of that
    whole = ibis.cases((device.carried > 0, 0), (device.first < device.used, 0), (device.known == 0, 0), else_=1)
    return device.select("device", "carried", "rho", cost=device.cost + device.carried, whole=whole)


_ZERO = ibis.literal(0, "int64")
_ONE = ibis.literal(1, "int64")
_NONE = ibis.null("int64")


def _by_plan(tables: Tables, now: int, window: str) -> ir.Table:
    """Per device and plan, what lies in the window: reports, cost, first charge; and `used`, the first charge ever."""
    s, f = tables.spends, tables.folded
    live, old = _inside(s.charged_at, now, window), _inside(f.last_charged_at, now, window)
    rows = s.select(
        "device",
        "plan",
        reports=ibis.cases((live & s.is_report, _ONE), else_=_ZERO),
        cost=ibis.cases((live, s.micro_epsilon), else_=_ZERO),
        first=ibis.cases((live, s.charged_at)),
        used=s.charged_at,
    )
    kept = f.select(
        "device",
        "plan",
        reports=ibis.cases((old, f.reports), else_=_ZERO),
        cost=ibis.cases((old, f.micro_epsilon), else_=_ZERO),
        first=ibis.cases((old, f.first_charged_at)),
        used=f.first_charged_at,
    )
    either = rows.union(kept)
    return either.group_by("device", "plan").agg(
        reports=either.reports.sum().cast("int64"),
        cost=either.cost.sum().cast("int64"),
        first=either.first.min(),
        used=either.used.min(),
    )


def alike(devices: ir.Table) -> ir.Table:
    """How many devices have spent the same."""
    return devices.group_by("cost", "rho", "whole").agg(devices=devices.count())


# --- which sums hid the reports ---------------------------------------------------------------------


def released(sums: ir.Table) -> ir.Table:
    """Per released round: contributors of the metric that the fewest hold, of those that anybody holds."""
    held = sums.filter(sums.contributors > 0, sums.cell == 0)
    return held.group_by("round").agg(
        contributors=held.contributors.min(),
        roster=held.roster.max(),
        resent=held.resent.max(),
        delivery=held.delivery.min(),
    )


def reports_by_n_h(tables: Tables, corrupt: ir.Table, now: int, window: str) -> ir.Table:
    """Per device, plan and n_h: reports, first (charge), least (contributors of a sum). corrupt: plan, numerator,
    denominator of the share of a roster that is assumed to collude; a plan that is not among them hides nobody.
    """
    row = _live(tables, corrupt, now, window).union(_folded(tables, corrupt, now, window))
    return row.group_by("device", "plan", "n_h").agg(
        reports=row.reports.sum().cast("int64"), first=row.first.min(), least=row.contributors.min()
    )


def _live(tables: Tables, corrupt: ir.Table, now: int, window: str) -> ir.Table:
    """A row for each report. Whom its sum hid it among is a matter of the round: of many reports."""
    rounds = tables.rounds.select("round", "plan_hash").inner_join(tables.plans, "plan_hash").drop("plan_hash")
    held = released(tables.sums).inner_join(rounds, "round")
    hidden = _honest(held.mutate(hiding=held.contributors - held.resent), corrupt)
    s = tables.spends.filter(tables.spends.is_report, _inside(tables.spends.charged_at, now, window))
    report = s.inner_join(hidden.select("round", "honest", "size", "delivery"), "round")
    n_h = ibis.cases((report.central_falls_back | (report.delivery == DIRECT), 1), else_=report.honest)
    return report.select(
        "device", "plan", n_h=n_h.cast("int64"), reports=_ONE, first=report.charged_at, contributors=report["size"]
    )


def _folded(tables: Tables, corrupt: ir.Table, now: int, window: str) -> ir.Table:
    """Alike ones in a row."""
    f = tables.folded.filter(_inside(tables.folded.last_charged_at, now, window))
    row = _honest(f.mutate(hiding=f.least_contributors, contributors=f.least_contributors), corrupt)
    n_h = ibis.cases((row.central_falls_back | (row.delivery == DIRECT), 1), else_=row.honest)
    return row.select(
        "device", "plan", n_h=n_h.cast("int64"), reports=row.reports.cast("int64"), first=row.first_charged_at,
        contributors=row["size"],
    )  # fmt: skip


def _honest(row: ir.Table, corrupt: ir.Table) -> ir.Table:
    """With honest: hiding - ceil(corrupt x roster), at least 1; size: contributors of a sum that hides, else None."""
    row = row.left_join(corrupt, "plan")
    up = row.roster * row.numerator + row.denominator - 1
    colluding = ((up - up % row.denominator) / row.denominator).cast("int64")  # exact: what is divided is a multiple
    honest = ibis.cases((row.numerator.isnull(), 1), else_=ibis.greatest(row.hiding - colluding, 1))
    size = ibis.cases((row.delivery != DIRECT, row.contributors))
    return row.mutate(honest=honest.cast("int64"), size=size.cast("int64"))


def by_device(devices: ir.Table, reports: ir.Table) -> ir.Table:
    """Rows of `reports_by_n_h` and, without a plan, those of `of_devices`, in the devices' order."""
    known = devices.select(
        "device", whole=devices.whole.cast("int64"), carried=devices.carried, cost=devices.cost,
        plan=_NONE, n_h=_NONE, reports=_NONE, first=_NONE, least=_NONE,
    )  # fmt: skip
    made = reports.select(
        "device", whole=_NONE, carried=_NONE, cost=_NONE, plan=reports.plan, n_h=reports.n_h, reports=reports.reports,
        first=reports.first, least=reports.least,
    )  # fmt: skip
    return known.union(made).order_by("device")


def smallest_sum(tables: Tables, now: int, window: str) -> ir.Table:
    """Contributors of the smallest sum of the window that hides reports."""
    held = released(tables.sums).inner_join(tables.rounds.select("round", "finished_at"), "round")
    held = held.filter(held.delivery != DIRECT, _inside(held.finished_at, now, window))
    return held.agg(contributors=held.contributors.min())


# --- device by device -------------------------------------------------------------------------------


def spending(tables: Tables, now: int) -> ir.Table:
    """Every device's total, and reports and cost in each of the windows, by device."""
    s = tables.spends
    columns: dict[str, ir.Value] = {}
    for name, window_s in WINDOWS.items():
        inside = s.charged_at > now - window_s
        columns[f"reports_{name}"] = s.count(where=inside & s.is_report)
        columns[f"cost_{name}"] = s.micro_epsilon.sum(where=inside)
    windows = s.group_by("device").agg(**columns)
    total = tables.totals.select("device", "reports", "micro_epsilon", "resent_reports")
    joined = total.left_join(windows, "device").drop("device_right")
    return joined.mutate(**{name: joined[name].fill_null(0) for name in columns}).order_by("device")


def plan_spends(spends: ir.Table, tables: Tables) -> ir.Table:
    """Per device and plan hash: cost over its life, last period that still has a row of its own. spends: as exported,
    for the periods.
    """
    kept = tables.folded.select("device", "plan_hash", "micro_epsilon", period_start=_NONE)
    row = spends.select("device", "plan_hash", "micro_epsilon", "period_start").union(kept)
    sums = row.group_by("device", "plan_hash").agg(cost=row.micro_epsilon.sum(), last=row.period_start.max())
    return sums.order_by("device", "plan_hash")
