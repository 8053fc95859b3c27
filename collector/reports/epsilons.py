"""What one report of a metric costs who made it, beside the metric's estimates: seen itself, and seen in a sum.

Rules of this file: central epsilon is that of the least hidden report of the window: of the version and of the sum
where it is largest; it never goes without n_h, its delta and its conditions, and is never above the local one.
What it does not do: add up what a user has spent over rounds and metrics (`privacy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from client_sdk.accounting.ledger import Cohort
from collector.accounting.composition import Composer
from collector.accounting.exposure import honest
from collector.accounting.figures import CONDITIONS, DELTA
from collector.accounting.losses import central_pair, method

if TYPE_CHECKING:
    from client_sdk.accounting.loss import PrivacyLoss
    from client_sdk.plan import Metric, Plan
    from collector.reduced import Head

FIELDS: Final = (
    "epsilon_local", "epsilon_central", "n_h", "delta", "central_method", "central_conditions", "delta_local",
)  # fmt: skip


def smallest_n_h(plans: Mapping[bytes, Plan], rows: Iterable[Head]) -> dict[tuple[bytes, str], int]:
    """By plan and metric: n_h of the sum that hides its reports least, of those that hold any."""
    found: dict[tuple[bytes, str], int] = {}
    for row in rows:
        if row.contributors > 0:
            key = (row.plan_hash, row.metric)
            found[key] = min(found.get(key, row.contributors), _n_h(row, plans[row.plan_hash]))
    return found


def _n_h(row: Head, plan: Plan) -> int:
    if row.delivery == "direct" or row.metric in plan.memos:  # no sum hides a memoised answer
        return 1
    cohort = Cohort(row.reports or row.contributors, row.roster, row.resent)
    return honest(row.contributors, cohort, plan.cohort.corrupt_fraction)


def epsilon_fields(versions: Iterable[tuple[Metric, int | None]], newest: Metric) -> dict[str, Any]:
    """FIELDS. versions: of the metric, those that have a sum, each with its smallest n_h; nulls where none has."""
    costs = [(_central(metric, n_h), n_h, metric) for metric, n_h in versions if n_h is not None]
    dearest = max((metric.epsilon for _, _, metric in costs), default=newest.epsilon)
    if not costs:
        return dict.fromkeys(FIELDS) | {"epsilon_local": float(dearest), "delta_local": float(newest.delta)}
    central, n_h, metric = max(costs, key=lambda cost: (cost[0], -cost[1]))
    words = dict.fromkeys(method(loss) for loss in metric.losses)
    return {
        "epsilon_local": float(dearest),
        "epsilon_central": central,
        "n_h": n_h,
        "delta": DELTA,
        "central_method": " and ".join(words) if n_h > 1 else "as local (no sum hides a report)",
        "central_conditions": CONDITIONS,
        "delta_local": float(max(metric.delta for _, _, metric in costs)),
    }


def _central(metric: Metric, n_h: int) -> float:
    composed = _composed(metric.losses, n_h)
    return min(float(metric.epsilon), composed) if metric.delta <= DELTA else composed


@lru_cache(maxsize=4096)
def _composed(losses: tuple[PrivacyLoss, ...], n_h: int) -> float:
    """Kept: reports by windows ask for few numbers of contributors, over and over."""
    pairs = [central_pair(loss, n_h) for loss in losses]
    return Composer(pairs).epsilon([1] * len(pairs), DELTA)
