"""The epsilons of a whole fleet: one computation for all devices whose histories are alike.

Rules of this file: the accountant's rules for one ledger hold (`figures.py`): one composition under one delta, central
<= local, no composition where plans may have been chosen after sums were seen. Where too many different sums occur,
n_h is rounded down.
What it does not do: it knows no device, and leaves a fleet's distribution to whoever shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.accounting.budget import MICRO
from client_sdk.accounting.ledger import Cohort, FoldedReports, Ledger, LedgerPlan
from client_sdk.plan import Plan
from collector.accounting import history
from collector.accounting.basic import FleetHistory, FleetSum
from collector.accounting.exposure import Exposed, Plans, local_losses
from collector.accounting.figures import figures
from collector.accounting.grid import grid_for, order, rounded_down
from collector.accounting.local import closed_form, rho
from collector.accounting.losses import central_pair

Progress = Callable[[int, int], None]
"""(done, in all)."""


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What `devices` like ones have spent.

    n_h: the smallest assumed of a sum, 1 where none hides anything, None for a history without a report.
    """

    devices: int
    eps_local: float
    eps_central: float
    n_h: int | None


def micro_rho(plan: Plan) -> int:
    """What one report of the plan adds to the closed form, rounded up to millionths."""
    total = sum(rho(float(loss.epsilon)) for loss in local_losses(plan))
    return int(total * MICRO) + 1


def closed_forms(sums: Iterable[FleetSum], delta: float) -> list[tuple[float, int]]:
    """(local epsilon, devices): an upper bound of the exact one, from two sums. Raises ValueError for a bad delta."""
    listed = list(sums)
    s1, s3 = (np.array([getattr(one, name) / MICRO for one in listed]) for name in ("micro_epsilon", "micro_rho"))
    bounds = np.where([one.whole for one in listed], closed_form(s1, s3, delta), s1)
    return [(float(bound), one.devices) for bound, one in zip(bounds, listed, strict=True)]


def fleet_figures(
    histories: Sequence[FleetHistory], plans: Plans, delta: float, progress: Progress | None = None
) -> list[FleetFigures]:
    """The figures of each history, in order. Raises ConfigurationError for a plan that is missing."""
    least = [_least(one) for one in histories]
    histories = _on_one_grid(histories, plans)
    whole = [one for one in histories if one.whole and one.reports]
    total, done = len(histories) + len(whole), 0

    def step(more: int, _: int) -> None:
        if progress is not None:
            progress(done + more, total)

    local = _composed([_local(one, plans) for one in whole], delta, step)
    done = len(whole)
    central = _composed([_central(one, plans) for one in whole], delta, step)
    done += len(whole)
    composed = iter(zip(local, central, strict=True))
    found = []
    for one, n_h in zip(histories, least, strict=True):
        if one.whole and one.reports:
            eps_local, eps_central = next(composed)
            eps_local = min(eps_local, _pure(one, plans))
        else:
            eps_local, eps_central = _one_by_one(one, plans, delta)
            done += 1
            step(0, 0)
        found.append(FleetFigures(one.devices, eps_local, min(eps_local, eps_central), n_h))
    return found


def _least(one: FleetHistory) -> int | None:
    hidden = [n_h for _, n_h, _ in one.reports if n_h > 1]
    return min(hidden, default=1) if one.reports else None


def _on_one_grid(histories: Sequence[FleetHistory], plans: Plans) -> list[FleetHistory]:
    """n_h rounded down so far that few different sums remain in all of them together."""
    grid = grid_for({one for history in histories for one in _central(history, plans)})
    return [
        replace(one, reports=tuple((plan, rounded_down(n_h, grid), count) for plan, n_h, count in one.reports))
        for one in histories
    ]


def _pure(one: FleetHistory, plans: Plans) -> float:
    micro = sum(plans[plan.hex()].report_micro_epsilon * count for plan, _, count in one.reports)
    return (micro + one.carried_micro_epsilon) / MICRO


def _local(one: FleetHistory, plans: Plans) -> Counter[Exposed]:
    counts: Counter[Exposed] = Counter()
    for plan, _, count in one.reports:
        for loss in local_losses(plans[plan.hex()]):
            counts[loss, 1] += count
    return counts


def _central(one: FleetHistory, plans: Plans) -> Counter[Exposed]:
    counts: Counter[Exposed] = Counter()
    for plan_hash, n_h, count in one.reports:
        plan = plans[plan_hash.hex()]
        hidden = [loss for metric in plan.metrics.values() for loss in metric.losses]
        for loss in local_losses(plan) if n_h == 1 else hidden:
            counts[loss, n_h] += count
    return counts


def _composed(histories: Sequence[Mapping[Exposed, int]], delta: float, step: Progress) -> list[float]:
    """The epsilon of each, all at the same delta and by one composer."""
    used = sorted({one for counts in histories for one in counts}, key=order)
    place = {one: i for i, one in enumerate(used)}
    matrix: NDArray[np.integer[Any]] = np.zeros((len(histories), len(used)), dtype=np.int64)
    for row, counts in zip(matrix, histories, strict=True):
        for one, count in counts.items():
            row[place[one]] = count
    pairs = [central_pair(loss, n_h) for loss, n_h in used]
    return [float(epsilon) for epsilon in history.fleet(pairs, matrix, delta, ratio=0.0, progress=step)]


def _one_by_one(one: FleetHistory, plans: Plans, delta: float) -> tuple[float, float]:
    """(local, central) of a history that is not whole: as its ledger's."""
    found = figures(_as_ledger(one, plans), plans, delta=delta, corrupt=Fraction(0))
    return found.eps_local, found.eps_central


def _as_ledger(one: FleetHistory, plans: Plans) -> Ledger:
    """One that has the same figures."""
    hashes = list(dict.fromkeys(plan.hex() for plan, _, _ in one.reports))
    return Ledger(
        source="collector",
        device=None,
        as_of=len(hashes),
        plans=tuple(LedgerPlan(used, plans[used].name, plans[used].version, i) for i, used in enumerate(hashes)),
        entries=(),
        carried_micro_epsilon=one.carried_micro_epsilon,
        folded=tuple(_as_row(plans[plan.hex()], n_h, count) for plan, n_h, count in one.reports),
    )


def _as_row(plan: Plan, n_h: int, count: int) -> FoldedReports:
    return FoldedReports(
        plan=plan.hash.hex(),
        charged_at=0,
        reports=count,
        micro_epsilon=count * plan.report_micro_epsilon,
        resent=n_h == 1,
        cohort=Cohort(n_h, n_h, 0),
        metric_contributors={} if plan.sample_metrics is None else dict.fromkeys(plan.metrics, n_h),
    )
