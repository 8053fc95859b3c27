"""What a memoised metric costs over time, for `plan check`: numbers from the plan alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from client_sdk.accounting.budget import MICRO, format_micro
from client_sdk.accounting.loss import RELATION
from client_sdk.accounting.memo import MemoCharge
from client_sdk.plan.canonical import minimal
from client_sdk.plan.model import Metric, Plan


@dataclass(frozen=True, slots=True)
class MemoCheck:
    """What a memoised metric's reports cost together, all epsilons under `relation`.

    epsilon_first: of one report alone; epsilon_inf: of all reports of one value; epsilon_most: of `max_distinct`
    values, all that is ever charged but for a millionth a report. epsilon_change: what one report can tell of whether
    its value is that of an earlier report; it adds up over reports, and no other of these bounds it.
    """

    epsilon_first: str
    epsilon_inf: str
    max_distinct: int
    epsilon_most: str
    epsilon_change: float
    relation: str


def check_memo(metric: Metric, charge: MemoCharge) -> MemoCheck:
    """Of a metric whose charge is this."""
    mechanism: Any = metric.mechanism
    return MemoCheck(
        epsilon_first=minimal(mechanism.epsilon),
        epsilon_inf=minimal(mechanism.epsilon_inf),
        max_distinct=charge.max_distinct,
        epsilon_most=format_micro(charge.max_distinct * charge.inf_micro),
        epsilon_change=mechanism.change,
        relation=f"{RELATION} wherever the device held it",
    )


def memo_warnings(plan: Plan, strong: int) -> Iterator[str]:
    """strong: the epsilon above which little is hidden."""
    for name, charge in plan.memos.items():
        mechanism: Any = plan.metrics[name].mechanism
        if mechanism.change > strong:
            better = "lower epsilon" if mechanism.ones else "randomized_response hides changes better"
            yield (
                f"metrics.{name}: one report can tell a change of the value by epsilon {mechanism.change:.3g}; {better}"
            )
        if charge.max_distinct * charge.inf_micro > strong * MICRO:
            yield (
                f"metrics.{name}: {charge.max_distinct} values at epsilon_inf cost "
                f"{format_micro(charge.max_distinct * charge.inf_micro)} together; lower max_distinct or epsilon_inf"
            )
