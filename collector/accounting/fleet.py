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
from typing import Final

import numpy as np

from client_sdk.accounting.budget import MICRO
from client_sdk.accounting.ledger import Cohort, FoldedReports, Ledger, LedgerPlan
from client_sdk.plan import Plan
from collector.accounting.basic import FleetHistory, FleetSum
from collector.accounting.composition import Composer
from collector.accounting.exposure import Exposed, Plans, local_exposed, local_losses, memo_exposed
from collector.accounting.figures import AS_LOCAL, COMPOSED, SUMS, figures
from collector.accounting.grid import grid_for, order, rounded_down
from collector.accounting.local import closed_form, rho
from collector.accounting.losses import central_pair
from collector.accounting.memoised import alone_micro, spent_micro

TOLERANCE: Final = 1e-4
"""By about what share of itself an epsilon of a fleet may come out too high."""

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
    method: str
    central_method: str


def micro_rho(plan: Plan) -> int:
    """What one report of the plan adds to the closed form, rounded up to millionths."""
    if plan.report_delta:
        return plan.report_micro_rho
    total = sum(rho(float(loss.epsilon)) for loss in local_losses(plan))
    # of a memoised metric no report adds more than a new value's permanent answer
    total += sum(rho(memo.inf_micro / MICRO) for memo in plan.memos.values())
    return int(total * MICRO) + 1


def closed_forms(sums: Iterable[FleetSum], delta: float, *, is_pure: bool = True) -> list[tuple[float, int]]:
    """(local epsilon, devices): an upper bound of the exact one, from two sums. Raises ValueError for a bad delta.

    is_pure: no plan has Gaussian noise. Where one has, the plain sum of epsilons bounds nothing at this delta, and
    stands only for what is not whole: at the sum of the deltas.
    """
    listed = list(sums)
    s1, s3 = (np.array([getattr(one, name) / MICRO for one in listed]) for name in ("micro_epsilon", "micro_rho"))
    bounds = np.where(
        [one.whole for one in listed], closed_form(s1 if is_pure else np.full_like(s1, np.inf), s3, delta), s1
    )
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

    local = _composed([local_exposed(_reports(one), plans) for one in whole], delta, step)
    done = len(whole)
    central = _composed([_central(one, plans) for one in whole], delta, step)
    done += len(whole)
    composed = iter(zip(local, central, strict=True))
    found = []
    for one, n_h in zip(histories, least, strict=True):
        if one.whole and one.reports:
            eps_local, eps_central = next(composed)
            if _delta_pure(one, plans) <= delta:
                eps_local = min(eps_local, _pure(one, plans))
            how = COMPOSED, AS_LOCAL if n_h == 1 else SUMS
        else:
            own = figures(_as_ledger(one, plans), plans, delta=delta, corrupt=Fraction(0))
            eps_local, eps_central, how = own.eps_local, own.eps_central, (own.method, own.central_method)
            done += 1
            step(0, 0)
        if one.whole or _delta_pure(one, plans) <= delta:  # else the plain sum holds at a delta of its own
            eps_central = min(eps_local, eps_central)
        found.append(FleetFigures(one.devices, eps_local, eps_central, n_h, *how))
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
    micro = spent_micro(_reports(one), plans)
    return (micro + one.carried_micro_epsilon) / MICRO


def _delta_pure(one: FleetHistory, plans: Plans) -> float:
    return float(sum(plans[plan.hex()].report_delta * count for plan, _, count in one.reports))


def _reports(one: FleetHistory) -> Counter[str]:
    """By plan."""
    counts: Counter[str] = Counter()
    for plan, _, count in one.reports:
        counts[plan.hex()] += count
    return counts


def alone(one: FleetHistory, plans: Plans) -> int:
    """At least what a window's pure sum must show, micro-epsilon; see `memoised.alone_micro`."""
    return alone_micro(_reports(one), plans)


def _central(one: FleetHistory, plans: Plans) -> Counter[Exposed]:
    counts: Counter[Exposed] = Counter()
    for plan_hash, n_h, count in one.reports:
        plan = plans[plan_hash.hex()]
        hidden = [loss for metric in plan.metrics.values() if metric.memo is None for loss in metric.losses]
        for loss in local_losses(plan) if n_h == 1 else hidden:
            counts[loss, n_h] += count
    return counts + memo_exposed(_reports(one), plans)


def _composed(histories: Sequence[Mapping[Exposed, int]], delta: float, step: Progress) -> list[float]:
    """The epsilon of each, all at the same delta and by one composer; those that are alike once."""
    used = sorted({one for counts in histories for one in counts}, key=order)
    composer = Composer([central_pair(loss, n_h) for loss, n_h in used], TOLERANCE)
    rows = [tuple(counts.get(one, 0) for one in used) for counts in histories]
    # In order of size, so that neighbours share their grids and the composer's memory of them suffices.
    different, found = sorted(set(rows), key=lambda row: (sum(row), row)), {}
    for done, row in enumerate(different, start=1):
        found[row] = composer.epsilon(row, delta)
        step(done, len(different))
    return [found[row] for row in rows]


def _as_ledger(one: FleetHistory, plans: Plans) -> Ledger:
    """One that has the same figures, for a history that is not whole."""
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
        micro_epsilon=plan.spent_micro(count),
        resent=n_h == 1,
        cohort=Cohort(n_h, n_h, 0),
        metric_contributors={} if plan.sample_metrics is None else dict.fromkeys(plan.metrics, n_h),
    )
