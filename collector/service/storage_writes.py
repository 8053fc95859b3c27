"""The statements that store a finished round, each over a connection whose transaction the caller owns.

Plain SQL of every engine; many rows at once go by `storage_bulk.py`. Writers may be at work beside each other: whether
something is counted already, its key decides, not the look before. The reading half is `storage_reads.py`.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from client_sdk.errors import LocalProtocolError
from client_sdk.plan import Plan
from collector.release import metric_contributors
from collector.service import tables as t
from collector.service.storage_bulk import add_to_rows, insert_new, insert_rows
from collector.service.storage_memos import Counts, book_reports, counts_of, drop_unused, hold_counts
from collector.service.storage_reads import counted_devices, opted_out
from collector.service.storage_rows import (
    DIRECT,
    DROPOUT_STEPS,
    Contributor,
    DuplicateContributionError,
    Release,
    RoundRecord,
)


def insert_round(conn: Connection, record: RoundRecord) -> None:
    """One finished round, released or aborted, and whom it blames. One that is there already stays as it is.

    It is there where an answer to its commit was lost: it was then taken for one that was not stored.
    """
    row = {
        "round": record.round_id,
        "plan_hash": record.plan_hash,
        "period_start": record.period_start,
        "joined": record.joined,
        "contributors": record.contributors,
        "outcome": record.outcome,
        "reason": record.reason,
        "seconds": record.seconds,
        "finished_at": record.finished_at,
        **{f"dropped_{step}": record.dropouts.get(step, 0) for step in DROPOUT_STEPS},
    }
    if insert_new(conn, t.rounds, row):
        _insert_blames(conn, record)


def _insert_blames(conn: Connection, record: RoundRecord) -> None:
    gone = opted_out(conn, [blamed.device_id for blamed in record.blamed])
    blames = [blamed for blamed in record.blamed if blamed.device_id not in gone]
    if blames:
        columns = {"device": [blamed.device_id for blamed in blames], "what": [blamed.what for blamed in blames]}
        insert_rows(conn, t.blames, {"round": record.round_id}, columns)


def insert_releases(conn: Connection, releases: Sequence[Release]) -> list[DuplicateContributionError | None]:
    """Everything of these opened sums, in one transaction; per sum why nothing of it was stored, or None.

    Raises LocalProtocolError before the first write, and IntegrityError, where one of them may not be stored at all.
    """
    for release in releases:
        _check_release(release)
    counted = _counted(conn, releases)
    # Who opted out while the round ran is in its sum; but its ledger is gone, and is not begun again.
    gone = opted_out(conn, [one.device_id for release in releases for one in release.contributors])
    memos = _hold_memos(conn, releases, gone)
    totals = Counter[str](), Counter[str](), Counter[str]()
    outcomes = []
    for release in releases:
        booked: dict[str, int] = {}
        already = _already(release, counted[_key(release)]) or _insert_release(conn, release, gone, booked)
        outcomes.append(DuplicateContributionError(already) if already else None)
        if not already:
            _count(totals, release, booked)
            counted[_key(release)].update(one.device_id for one in release.contributors)
    if any(outcomes):
        drop_unused(conn, memos)
    _add_to_totals(conn, *totals)
    return outcomes


def _hold_memos(conn: Connection, releases: Sequence[Release], gone: set[str]) -> Counts:
    """Of several sums, whose devices are in order only one by one, all the rows that another writer may want too."""
    if len(releases) < 2:
        return {}
    reports = [(one.plan, {c.device_id for c in one.contributors} - gone) for one in releases if one.plan.memos]
    memos = counts_of(reports)
    hold_counts(conn, memos)
    return memos


def _insert_release(conn: Connection, release: Release, gone: set[str], booked: dict[str, int]) -> list[str]:
    """All of it but the totals, or nothing and which devices are counted already.

    booked: filled with what the report costs each device, micro-epsilon.
    """
    # in the devices' order: two writers that hold the same devices meet at the first of them
    contributors = sorted(release.contributors, key=lambda contributor: contributor.device_id)
    savepoint = conn.begin_nested()  # left open by other faults: some of them have ended the transaction already
    try:
        insert_round(conn, _round_record(release))
        _insert_sums(conn, release)
        _insert_contributions(conn, release, contributors)
        costs = _insert_spends(conn, release, [one for one in contributors if one.device_id not in gone])
        savepoint.commit()
        booked.update(costs)
    except IntegrityError:
        savepoint.rollback()
        # another writer has been quicker since we looked
        already = _already(release, _counted(conn, [release])[_key(release)])
        if not already:
            raise
        return already
    return []


_Key = tuple[str, int]
"""A plan's name and a period: in them a device is counted once."""


def _key(release: Release) -> _Key:
    return release.plan.name, release.period_start


def _counted(conn: Connection, releases: Sequence[Release]) -> dict[_Key, set[str]]:
    """By name and period: those devices of the releases that stored sums count."""
    devices: dict[_Key, set[str]] = defaultdict(set)
    for release in releases:
        devices[_key(release)].update(contributor.device_id for contributor in release.contributors)
    return {key: counted_devices(conn, sorted(some), *key) for key, some in devices.items()}


def _already(release: Release, counted: set[str]) -> list[str]:
    """Devices of the release that a stored sum, or the release itself, counts already."""
    devices = [contributor.device_id for contributor in release.contributors]
    twice = sorted(device for device, times in Counter(devices).items() if times > 1)
    return twice + [device for device in devices if device in counted and device not in twice]


def _check_release(release: Release) -> None:
    plan, contributors = release.plan, release.contributors
    if len(release.totals) != plan.length:
        raise LocalProtocolError(f"a release of {len(release.totals)} cells, its plan has {plan.length}")
    # A direct report hides in nothing: its device allowed that, and pays its local epsilon for it.
    fewest = 1 if release.delivery == DIRECT else plan.cohort.min_size
    if len(contributors) < fewest:
        raise LocalProtocolError(f"a release over {len(contributors)} contributors, and none under {fewest} is allowed")


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
        head, totals = {"metric": metric, "contributors": held[metric]}, release.totals[part]
        if len(totals) > t.MAX_CELL_ROWS:
            packed = struct.pack(f"<{len(totals)}q", *totals)
            conn.execute(insert(t.released_vectors).values(**base, **head, length=len(totals), totals=packed))
        else:
            cells += [{**head, "cell": i, "total": int(x)} for i, x in enumerate(totals)]
    if cells:
        insert_rows(conn, t.released_sums, base, {name: [cell[name] for cell in cells] for name in cells[0]})


def _insert_contributions(conn: Connection, release: Release, contributors: Sequence[Contributor]) -> None:
    common = {"plan_name": release.plan.name, "period_start": release.period_start, "round": release.round_id}
    columns: dict[str, Sequence[Any]] = {
        "device": [contributor.device_id for contributor in contributors],
        "report_id": [contributor.report_id for contributor in contributors],
        "resent": [contributor.resent for contributor in contributors],
    }
    insert_rows(conn, t.contributions, common, columns)


def report_costs_by_metric(plan: Plan) -> Mapping[str, int]:
    """What one report costs, metric by metric, micro-epsilon; together `plan.report_micro_epsilon`.

    Of a memoised metric the most that it can: what it does, the number of its reports decides (`storage_memos`).

    Where a report holds a sample of the metrics, one row for all of them: which were drawn, nobody here knows, and no
    row may look as if it told.
    """
    if plan.sample_metrics is not None:
        return {t.SAMPLED: plan.report_micro_epsilon}
    return {name: metric.micro_epsilon for name, metric in plan.metrics.items()}


def _insert_spends(conn: Connection, release: Release, contributors: Sequence[Contributor]) -> Mapping[str, int]:
    """By device, what is booked."""
    if not contributors:
        return {}
    common = {
        "plan_name": release.plan.name,
        "plan_hash": release.plan.hash,
        "period_start": release.period_start,
        "round": release.round_id,
        "charged_at": int(release.now),
    }
    direct = release.delivery == DIRECT
    columns: dict[str, Sequence[Any]] = {
        "device": [contributor.device_id for contributor in contributors],
        "central_falls_back": [contributor.resent or direct for contributor in contributors],
    }
    plan = release.plan
    costs = {name: cost for name, cost in report_costs_by_metric(plan).items() if name not in plan.memos}
    if costs:
        insert_rows(conn, t.spends, common, columns, {"metric": list(costs), "micro_epsilon": list(costs.values())})
    booked = dict.fromkeys(columns["device"], sum(costs.values()))
    for name, own in book_reports(conn, plan, columns["device"]).items():
        amounts = [own[device] for device in columns["device"]]
        insert_rows(conn, t.spends, {**common, "metric": name}, {**columns, "micro_epsilon": amounts})
        booked = {device: cost + own[device] for device, cost in booked.items()}
    return booked


_Totals = tuple[Counter[str], Counter[str], Counter[str]]
"""By device: reports, those of them that are resent, micro-epsilon."""


def _count(totals: _Totals, release: Release, booked: Mapping[str, int]) -> None:
    reports, resent, micro_epsilon = totals
    for contributor in release.contributors:
        if contributor.device_id in booked:
            reports[contributor.device_id] += 1
            resent[contributor.device_id] += contributor.resent
            micro_epsilon[contributor.device_id] += booked[contributor.device_id]


def _add_to_totals(conn: Connection, reports: Counter[str], resent: Counter[str], micro_epsilon: Counter[str]) -> None:
    """The lifetime of each device, in the same transaction as the rows that it sums up, and last and in their order:
    two writers wait for each other here at most, never in a circle.
    """
    devices = sorted(reports)
    if not devices:
        return
    columns: dict[str, Sequence[Any]] = {
        "device": devices,
        "reports": [reports[device] for device in devices],
        "resent_reports": [resent[device] for device in devices],
        "micro_epsilon": [micro_epsilon[device] for device in devices],
        **dict.fromkeys(("folded_reports", "folded_micro_epsilon"), [0] * len(devices)),
    }
    add_to_rows(conn, t.device_totals, "device", columns)
