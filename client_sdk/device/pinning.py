"""Which fetched plan a device holds, and which it refuses to go over to.

Rules of this file: what the host pinned (a hash, an operator's key) is asked of every plan that was fetched, each time
a client begins, so a pin that comes with the app's next release counts too; a later version is held to
`plan.successor` by every one that is held; it begins with the period after the one in which it was pinned. Without a
pin the plan is the collector's own word, so one that hides nobody from the collector is refused (unless the host allows
its reports to leave unmasked).
What it does not do: without a pin it cannot tell a collector's plan from an operator's; the host's limits hold then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from client_sdk.device.store_plans import PinnedPlan
from client_sdk.errors import PlanRefusedError, RefusalReason
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.names import broken_names
from client_sdk.plan.signature import is_signed
from client_sdk.plan.successor import weaker_cohort, why_no_successor

LEAST_CORRUPT_FRACTION: Final = Fraction(1, 20)
"""Of a fetched plan without a pin: whoever chose it would otherwise say that it has no helper among the devices."""


@dataclass(frozen=True, slots=True)
class PlanPin:
    """What the host asks of a fetched plan. hash: SHA-256 of it, 32 bytes. key: who must have signed it, 32 bytes.

    min_cohort: fewest contributors of a sum that the device joins; without hash and key the plan must allow for them.
    allow_direct: the plan may have every report leave unmasked; then it has no cohorts that could be too weak.
    """

    hash: bytes | None = None
    key: bytes | None = None
    min_cohort: int = 0
    allow_direct: bool = False

    def refusal(self, plan: Plan, signature: bytes) -> RefusalReason | None:
        """Why this plan is not to be held, or None."""
        if self.hash is not None and plan.hash != self.hash:
            return RefusalReason.PLAN_NOT_PINNED
        if self.key is not None and not is_signed(plan, signature, self.key):
            return RefusalReason.PLAN_SIGNATURE
        if plan.delivery.delivery == "direct":
            return None if self.allow_direct else RefusalReason.DIRECT_NOT_ALLOWED
        return RefusalReason.PLAN_TOO_WEAK if self.hash is self.key is None and self._is_too_weak(plan) else None

    def _is_too_weak(self, plan: Plan) -> bool:
        """Or useless: a report that no cohort of this plan suits would be charged for nothing."""
        cohort = plan.cohort
        expected = cohort.target_size * (1 - cohort.dropout_fraction)
        return cohort.corrupt_fraction < LEAST_CORRUPT_FRACTION or expected < self.min_cohort


@dataclass(frozen=True, slots=True)
class Held:
    """A fetched plan that the pin accepts."""

    plan: Plan
    pinned_at: float


def held_plans(pinned: Sequence[PinnedPlan], pin: PlanPin) -> list[Held]:
    """Those of the plans that were fetched that the pin accepts, the newest first. Raises PlanError."""
    plans = [(parse_plan(one.text), one) for one in pinned]
    return [Held(plan, one.pinned_at) for plan, one in plans if pin.refusal(plan, one.signature) is None]


def why_none_held(pinned: Sequence[PinnedPlan], pin: PlanPin) -> RefusalReason | None:
    """Why the pin accepts none of the plans that were fetched, the newest's reason. None: nothing was."""
    return pin.refusal(parse_plan(pinned[0].text), pinned[0].signature) if pinned else None


def in_force(held: Sequence[Held], now: float) -> Plan | None:
    """The plan to record under: the newest that was pinned before this period began, else the oldest."""
    for one in held:
        if one.pinned_at < one.plan.period_start(now):
            return one.plan
    return held[-1].plan if held else None


def check_fetched(plan: Plan, signature: bytes, pin: PlanPin, held: Sequence[Held]) -> None:
    """May this plan be pinned? Raises PlanRefusedError."""
    reason = pin.refusal(plan, signature)
    if reason is None and held:
        reason = why_no_successor(held[0].plan, plan)
        if reason is None:
            reason = _refused_by_older([one.plan for one in held[1:] if one.plan.name == plan.name], plan)
    if reason is not None:
        raise PlanRefusedError(reason)


def _refused_by_older(held: Sequence[Plan], plan: Plan) -> RefusalReason | None:
    """What follows the newest must follow the others of its name too: versions between may have been lost here."""
    if any(weaker_cohort(one, plan) for one in held):
        return RefusalReason.PLAN_WEAKER
    older = (one for one in held if one.version < plan.version)
    return RefusalReason.PLAN_NAMES if any(broken_names(one, plan) for one in older) else None
