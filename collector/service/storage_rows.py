"""What goes into the collector's store and comes out of it, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_sdk.errors import TelemetryError

if TYPE_CHECKING:
    from client_sdk.plan import Plan

DROPOUT_STEPS: Final = ("shares", "masked_input", "confirm", "unmask")
"""`dropouts[step]` counts those who left without sending that step's message."""

DIRECT: Final = "direct"
"""`Release.delivery` of reports that came unmasked: any number of them is a sum, and every one stands at its local
epsilon. Else it is `interactive`."""


class DuplicateContributionError(TelemetryError):
    """Some of a release's devices are already counted for this plan name and period; nothing was stored."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices: tuple[str, ...] = tuple(devices)
        super().__init__(f"{len(self.devices)} of the release's devices are already counted for this period")


Question = tuple[str, str, int]
"""(device id, plan name, period start): what a device that joins is looked up by."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is booked for a device, and the (round, contributors) that holds its report of a period.

    blamed: it has broken the rules of a round of this plan's name and period. opted_out: it is never taken again.
    """

    reports: int
    micro_epsilon: int
    counted: tuple[str, int] | None
    blamed: bool = False
    opted_out: bool = False


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan version as it was put; parse `text` to use it."""

    hash: bytes
    name: str
    version: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Contributor:
    """A device whose report is in the sum. `resent`: the report may also stand in an earlier masked input."""

    device_id: str
    report_id: bytes
    resent: bool


@dataclass(frozen=True, slots=True)
class Blamed:
    """A device that broke a round's rules; `what` is the value of a `collector.secagg.blame.Fault`."""

    device_id: str
    what: str


@dataclass(frozen=True, slots=True)
class Release:
    """An opened sum and everything that is stored with it, in one transaction.

    totals: `plan.length` signed integers. now: seconds since the epoch, becomes the time of the charges. delivery:
    `interactive` (at least the plan's `min_size` contributors) or `DIRECT`.
    """

    round_id: str
    plan: Plan
    period_start: int
    totals: Sequence[int] = field(repr=False)
    contributors: Sequence[Contributor] = field(repr=False)
    roster_size: int
    resent: int
    dropouts: Mapping[str, int]
    seconds: float
    now: float
    delivery: str = "interactive"
    blamed: Sequence[Blamed] = field(default=(), repr=False)

    @property
    def rows(self) -> int:
        """About how many it makes: per contributor its contribution, its totals, and a spend for each metric."""
        return len(self.contributors) * (len(self.plan.metrics) + 2)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A finished round. `outcome` is `released` or `aborted`; `reason` is None or an AbortReason's value."""

    round_id: str
    plan_hash: bytes
    period_start: int
    joined: int
    contributors: int
    dropouts: Mapping[str, int]
    outcome: str
    reason: str | None
    seconds: float
    finished_at: int
    blamed: Sequence[Blamed] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Contribution:
    """That a device is counted, once, for a plan's name and period."""

    device_id: str
    plan_name: str
    period_start: int
    report_id: bytes
    round_id: str
    resent: bool
