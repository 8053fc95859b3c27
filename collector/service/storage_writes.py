"""The statements that change the collector's store, each over a connection whose transaction the caller owns.

Plain SQL of every engine: no upsert, no engine's own functions. The reading half is `storage_reads.py`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, insert, select, update

from client_sdk.accounting.budget import format_micro
from client_sdk.errors import LocalProtocolError, PlanError
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.names import broken_names
from client_sdk.plan.successor import raised_limit
from collector.release import metric_contributors
from collector.service import tables as t
from collector.service.storage_reads import chunks, opted_out
from collector.service.storage_rows import (
    DROPOUT_STEPS,
    Contributor,
    DuplicateContributionError,
    Release,
    RoundRecord,
)

# --- plans ------------------------------------------------------------------------------------------


def put_plan(conn: Connection, plan: Plan, now: int) -> None:
    """Keep a plan version; the same again changes nothing. Raises PlanError where it breaks its name's history."""
    if conn.execute(select(t.plans.c.hash).where(t.plans.c.hash == plan.hash)).first() is not None:
        return
    columns = select(t.plans.c.version, t.plans.c.period_s, t.plans.c.hash, t.plans.c.text)
    for stored in conn.execute(columns.where(t.plans.c.name == plan.name)):
        if stored.version == plan.version:
            raise PlanError(
                f"plan.version: version {plan.version} of {plan.name!r} is in use with other contents "
                f"(hash {stored.hash.hex()[:12]}); a version never changes, give this plan the next number"
            )
        if stored.period_s != plan.period_s:
            raise PlanError(
                f"plan.period: {plan.name!r} has had a period of {stored.period_s} s since version "
                f"{stored.version}, not {plan.period_s} s; a plan's period never changes, take a new plan.name"
            )
        known = parse_plan(stored.text)
        if stored.version < plan.version:
            _refuse_raised_limits(known, plan)
        _refuse_broken_names(known, plan)
    conn.execute(
        insert(t.plans).values(
            hash=plan.hash, name=plan.name, version=plan.version, period_s=plan.period_s, text=plan.text, added_at=now
        )
    )


def _refuse_raised_limits(earlier: Plan, plan: Plan) -> None:
    """A version may lower, never raise, what a device can spend: devices keep the strictest they have seen."""
    field = raised_limit(earlier, plan)
    if field is None:
        return
    before, now = (getattr(version.budget, f"{field}_micro") for version in (earlier, plan))
    raise PlanError(
        f"budget.{field}: {format_micro(now)} is above the {format_micro(before)} of version {earlier.version} "
        f"of {plan.name!r}; a version may lower a device's limits, never raise them; take a new plan.name"
    )


def _refuse_broken_names(known: Plan, plan: Plan) -> None:
    """A name that is given up is listed as removed and never used again: answers are combined by name over versions."""
    earlier, later = sorted((known, plan), key=lambda one: one.version)
    broken = broken_names(earlier, later)
    if broken:
        raise PlanError([f"{line} (plan {plan.name!r} version {later.version})" for line in broken])


# --- one round --------------------------------------------------------------------------------------


def insert_round(conn: Connection, record: RoundRecord) -> None:
    """One finished round, released or aborted, and whom it blames."""
    conn.execute(
        insert(t.rounds).values(
            round=record.round_id,
            plan_hash=record.plan_hash,
            period_start=record.period_start,
            joined=record.joined,
            contributors=record.contributors,
            outcome=record.outcome,
            reason=record.reason,
            seconds=record.seconds,
            finished_at=record.finished_at,
            **{f"dropped_{step}": record.dropouts.get(step, 0) for step in DROPOUT_STEPS},
        )
    )
    gone = opted_out(conn, [blamed.device_id for blamed in record.blamed])
    blames = [
        {"round": record.round_id, "device": blamed.device_id, "what": blamed.what}
        for blamed in record.blamed
        if blamed.device_id not in gone
    ]
    if blames:
        conn.execute(insert(t.blames), blames)


def insert_release(conn: Connection, release: Release) -> None:
    """Everything of an opened sum. Raises DuplicateContributionError before the first write."""
    _check_release(release)
    already = already_counted(conn, release)
    if already:
        raise DuplicateContributionError(already)
    insert_round(conn, _round_record(release))
    _insert_sums(conn, release)
    _insert_contributions(conn, release)
    # Who opted out while the round ran is in its sum; but its ledger is gone, and is not begun again.
    gone = opted_out(conn, [contributor.device_id for contributor in release.contributors])
    staying = [contributor for contributor in release.contributors if contributor.device_id not in gone]
    if staying:
        _insert_spends(conn, release, staying)
        _add_to_totals(conn, release, staying)


def _check_release(release: Release) -> None:
    plan, contributors = release.plan, release.contributors
    if len(release.totals) != plan.length:
        raise LocalProtocolError(f"a release of {len(release.totals)} cells, its plan has {plan.length}")
    if len(contributors) < plan.cohort.min_size:
        raise LocalProtocolError(
            f"a release over {len(contributors)} contributors, its plan allows none under {plan.cohort.min_size}"
        )


def already_counted(conn: Connection, release: Release) -> list[str]:
    """Devices of the release that a stored sum, or the release itself, counts already."""
    devices = [contributor.device_id for contributor in release.contributors]
    twice = sorted(device for device, times in Counter(devices).items() if times > 1)
    c = t.contributions.c
    mine = and_(c.plan_name == release.plan.name, c.period_start == release.period_start)
    for chunk in chunks(devices):
        twice += conn.execute(select(c.device).where(mine, c.device.in_(chunk))).scalars()
    return twice


def _round_record(release: Release) -> RoundRecord:
    return RoundRecord(
        release.round_id, release.plan.hash, release.period_start, release.roster_size, len(release.contributors),
        release.dropouts, "released", None, release.seconds, int(release.now), release.blamed,
    )  # fmt: skip


def _insert_sums(conn: Connection, release: Release) -> None:
    base = {
        "round": release.round_id,
        "plan_hash": release.plan.hash,
        "period_start": release.period_start,
        "roster": release.roster_size,
        "resent": release.resent,
        "delivery": release.delivery,
    }
    held = metric_contributors(release.plan, release.totals, len(release.contributors))
    cells: list[dict[str, Any]] = []
    for metric, part in release.plan.slices.items():
        head, totals = {**base, "metric": metric, "contributors": held[metric]}, release.totals[part]
        if len(totals) > t.MAX_CELL_ROWS:
            packed = struct.pack(f"<{len(totals)}q", *totals)
            conn.execute(insert(t.released_vectors).values(**head, length=len(totals), totals=packed))
        else:
            cells += [{**head, "cell": i, "total": int(x)} for i, x in enumerate(totals)]
    if cells:
        conn.execute(insert(t.released_sums), cells)


def _insert_contributions(conn: Connection, release: Release) -> None:
    conn.execute(
        insert(t.contributions),
        [
            {
                "device": contributor.device_id,
                "plan_name": release.plan.name,
                "period_start": release.period_start,
                "report_id": contributor.report_id,
                "round": release.round_id,
                "resent": contributor.resent,
            }
            for contributor in release.contributors
        ],
    )


def report_costs_by_metric(plan: Plan) -> Mapping[str, int]:
    """What one report costs, metric by metric, micro-epsilon; together `plan.report_micro_epsilon`.

    Where a report holds a sample of the metrics, one row for all of them: which were drawn, nobody here knows, and no
    row may look as if it told.
    """
    if plan.sample_metrics is not None:
        return {t.SAMPLED: plan.report_micro_epsilon}
    return {name: metric.micro_epsilon for name, metric in plan.metrics.items()}


def _insert_spends(conn: Connection, release: Release, contributors: Sequence[Contributor]) -> None:
    costs = report_costs_by_metric(release.plan)
    conn.execute(
        insert(t.spends),
        [
            {
                "device": contributor.device_id,
                "plan_name": release.plan.name,
                "plan_hash": release.plan.hash,
                "period_start": release.period_start,
                "metric": name,
                "micro_epsilon": cost,
                "round": release.round_id,
                "charged_at": int(release.now),
                "central_falls_back": contributor.resent,
            }
            for contributor in contributors
            for name, cost in costs.items()
        ],
    )


def _add_to_totals(conn: Connection, release: Release, contributors: Sequence[Contributor]) -> None:
    """The lifetime of each of `contributors`, in the same transaction as the rows that it sums up."""
    cost = release.plan.report_micro_epsilon
    c = t.device_totals.c
    devices = [contributor.device_id for contributor in contributors]
    for chunk in chunks(devices):
        known = set(conn.execute(select(c.device).where(c.device.in_(chunk))).scalars())
        new = [_no_total(device) for device in chunk if device not in known]
        if new:
            conn.execute(insert(t.device_totals), new)
        more = {"reports": c.reports + 1, "micro_epsilon": c.micro_epsilon + cost}
        conn.execute(update(t.device_totals).where(c.device.in_(chunk)).values(more))
    resent = [contributor.device_id for contributor in contributors if contributor.resent]
    for chunk in chunks(resent):
        once_more = {"resent_reports": c.resent_reports + 1}
        conn.execute(update(t.device_totals).where(c.device.in_(chunk)).values(once_more))


def _no_total(device: str) -> dict[str, Any]:
    counts = ("reports", "resent_reports", "micro_epsilon", "folded_reports", "folded_micro_epsilon")
    return {"device": device, **dict.fromkeys(counts, 0)}
