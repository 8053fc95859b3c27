"""Plans that may have been chosen after sums were seen: how to know them, and what still bounds them.

Composition theorems need every release fixed before the first is seen. Where it was not, a privacy filter holds: each
loss at a share of delta that was fixed beforehand, and the plain sum of their epsilons (Rogers et al. 2016).
Rules of this file: whatever left a device counts as seen from then on; a share depends on nothing but the order in
which plans' names came and on their lifetime budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from client_sdk.accounting.ledger import Ledger
from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.plan import Plan
from collector.accounting.allowance import spent_by_name
from collector.accounting.exposure import Exposure, Plans, exposed_by_plan
from collector.accounting.grid import grid_for, rounded_down
from collector.accounting.losses import central_pair
from collector.accounting.memoised import MEMOISED


def is_adaptive(ledger: Ledger, rows: Sequence[Exposure]) -> bool:
    """Was a plan of the window first used after a report under another one of it had left?"""
    first_used = {plan.hash: plan.first_used_at for plan in ledger.plans}
    seen: dict[str, int] = {}
    for row in rows:
        if row.left_device:
            at = row.charged_at if row.period_start is not None else first_used[row.plan]
            seen[row.plan] = min(at, seen.get(row.plan, at))
    used = {row.plan for row in rows}
    return any(seen[plan] < first_used[other] for plan in seen for other in used if other != plan)


def filtered(ledger: Ledger, rows: Sequence[Exposure], plans: Plans, delta: float) -> float:
    """The sum, over reports and metrics, of the central epsilon of one sum, at shares of delta fixed beforehand."""
    shares = _shares(ledger, plans)
    by_plan = exposed_by_plan(rows, plans)
    grid = grid_for({one for counts in by_plan.values() for one in counts})
    # A sum that is rounded once: in whatever order, the same.
    return math.fsum(
        count * single(loss, rounded_down(n_h, grid), Fraction(delta) * shares[plan])
        for plan, counts in by_plan.items()
        for (loss, n_h), count in counts.items()
    )


@lru_cache(maxsize=4096)
def single(loss: PrivacyLoss, n_h: int, share: Fraction) -> float:
    """Of one sum, at `share` of delta for each micro-epsilon."""
    if loss.mechanism == MEMOISED:  # it has no share: what it costs is not one report's
        return float(loss.epsilon)
    delta = share * loss.micro_epsilon
    central = central_pair(loss, n_h).epsilon(float(delta))
    return min(float(loss.epsilon), central) if Fraction(loss.delta) <= delta else central


def _shares(ledger: Ledger, plans: Plans) -> Mapping[str, Fraction]:
    """By plan hash: the share of delta that one micro-epsilon of one loss in a sum has.

    The i-th plan's name that was used has 2^-i of delta, and each of its reports what its charge is of the name's
    lifetime budget, so however reports are chosen, the shares never add up to more than 1. None where a ledger holds
    more than its budget.
    """
    first_used: dict[str, int] = {}
    lifetimes: dict[str, int] = {}
    for used in ledger.plans:
        if used.hash in plans:
            plan = plans[used.hash]
            first_used[plan.name] = min(used.first_used_at, first_used.get(plan.name, used.first_used_at))
            lifetimes[plan.name] = max(plan.budget.lifetime_micro, lifetimes.get(plan.name, 0))
    spent = spent_by_name(ledger, plans)
    place = {name: i for i, name in enumerate(sorted(first_used, key=lambda name: (first_used[name], name)), start=1)}
    return {
        plan_hash: share_of_delta(plan, 0 if spent[plan.name] > lifetimes[plan.name] else lifetimes[plan.name], i)
        for plan_hash, plan in plans.items()
        if (i := place.get(plan.name)) is not None
    }


def share_of_delta(plan: Plan, lifetime_micro: int, place: int) -> Fraction:
    """Of one micro-epsilon of one loss in a sum, of the plan's name that came `place`-th, 1 first."""
    if lifetime_micro == 0:
        return Fraction(0)
    shared = [metric for metric in plan.metrics.values() if metric.memo is None]
    in_a_sum = sum(loss.micro_epsilon for metric in shared for loss in metric.losses)
    return Fraction(plan.plain_micro_epsilon, 2**place * lifetime_micro * in_a_sum) if shared else Fraction(0)
