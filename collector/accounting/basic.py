"""Pure (delta = 0) local accounting by basic composition: epsilons add up, whatever was reported and why.

What a sum of epsilons says: by this factor, e to the sum, the odds of any guess about the device's values can
change for somebody who sees every one of its reports unmasked. Nothing is forgotten: the windows are views,
the lifetime is the loss. Amounts are integers of micro-epsilon; neighbours differ in one report's values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from client_sdk.accounting import ledger
from client_sdk.accounting.budget import MICRO

WINDOWS: Final[Mapping[str, int]] = ledger.WINDOWS
"""Sliding windows in seconds, by charge time: (now - window, now]. Charges dated after `now` count in all."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How many reports, and what they cost together."""

    reports: int
    micro_epsilon: int


@dataclass(frozen=True, slots=True)
class DeviceSpending:
    """One device's ledger at the collector. `windows` has the keys of WINDOWS; `lifetime` never shrinks."""

    device_id: str
    windows: Mapping[str, Amount]
    lifetime: Amount
    resent_reports: int
    first_period_start: int | None = None
    last_period_start: int | None = None


@dataclass(frozen=True, slots=True)
class FleetSum:
    """`devices` of which each has spent this, all in micro-units.

    micro_rho: bounds the zero-concentrated loss of all of it. whole: were the plans of it fixed before any of its sums
    was seen, and does a row stand for each report? If not, only the plain sum bounds it.
    """

    devices: int
    micro_epsilon: int
    micro_rho: int
    whole: bool


@dataclass(frozen=True, slots=True)
class FleetHistory:
    """`devices` of which each has made these reports.

    reports: (plan hash, n_h, how many), n_h 1 where no sum hid one; plans in the order in which they were first used.
    whole: as in FleetSum. carried_micro_epsilon: spent beside them, for nobody knows what.
    """

    devices: int
    reports: tuple[tuple[bytes, int, int], ...]
    whole: bool = True
    carried_micro_epsilon: int = 0


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """One device in one window. history: its place among those beside it; micro_epsilon: the plain sum of its own.

    least: contributors of the smallest sum that it was in, None where it was in none.
    """

    device_id: str
    history: int
    reports: int
    micro_epsilon: int
    least: int | None


@dataclass(frozen=True, slots=True)
class FleetWindow:
    """The histories of a window, and which device has which."""

    histories: tuple[FleetHistory, ...]
    devices: tuple[DeviceHistory, ...]


@dataclass(frozen=True, slots=True)
class PlanSpend:
    """What a device's reports under one plan have cost. plan: its hash, 64 hexadecimal digits.

    last_period_start: of the last report that still has a row of its own, None where none has.
    """

    plan: str
    micro_epsilon: int
    last_period_start: int | None


@dataclass(frozen=True, slots=True)
class EveryDevice:
    """A fleet as of one moment, device by device.

    plan_spends: by device; what they leave of a lifetime is spent for nobody knows what.
    """

    spendings: tuple[DeviceSpending, ...]
    plan_spends: Mapping[str, tuple[PlanSpend, ...]]
    windows: Mapping[str, FleetWindow]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Smallest, middle and largest lifetime over devices; the median of an even number is rounded up."""

    devices: int
    min_micro: int | None
    median_micro: int | None
    max_micro: int | None


def distribution(lifetimes_micro: Sequence[int]) -> Distribution:
    """Over nobody all three are None."""
    ordered = sorted(lifetimes_micro)
    n = len(ordered)
    if n == 0:
        return Distribution(0, None, None, None)
    median = -(-(ordered[(n - 1) // 2] + ordered[n // 2]) // 2)
    return Distribution(n, ordered[0], median, ordered[-1])


def best_certainty(micro_epsilon: int) -> float:
    """The best chance of guessing right between two equally likely values: e^eps / (1 + e^eps)."""
    return 1.0 / (1.0 + math.exp(-micro_epsilon / MICRO))
