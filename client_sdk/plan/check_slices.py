"""What a sliced number is, for `plan check`: numbers from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from client_sdk.plan.canonical import minimal
from client_sdk.plan.model import Metric


@dataclass(frozen=True, slots=True)
class SlicedCheck:
    """One metric over the product of `slices` and `levels` + 1 points, `labels` in all.

    epsilon: of number and slice together; beside it the metric `by` has its own price in the same report.
    """

    by: str
    slices: int
    levels: int
    labels: int
    epsilon: str
    epsilon_by: str


def check_sliced(metric: Metric, by: Metric) -> SlicedCheck:
    """Of a number that is sliced by `by`."""
    mechanism: Any = metric.mechanism
    return SlicedCheck(
        by=by.name,
        slices=len(mechanism.slices),
        levels=mechanism.levels,
        labels=mechanism.inner.k,
        epsilon=minimal(metric.epsilon),
        epsilon_by=minimal(by.epsilon),
    )
