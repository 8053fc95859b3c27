"""A plan as a store, an export or a document holds it: its text, and the hash that it had when it was put there."""

from __future__ import annotations

from typing import Protocol

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, parse_plan


class HasPlanText(Protocol):
    """A Plan, or a stored one: what can be parsed."""

    @property
    def text(self) -> str:
        """The plan's TOML."""

    @property
    def hash(self) -> bytes:
        """Its identity when it was put."""


def read_plan(text: str, plan_hash: bytes | str) -> Plan:
    """The plan that was collected under. Raises PlanError where the text means another one here: what was collected
    would be decoded with the wrong constants. plan_hash: 32 bytes, or as hex digits.
    """
    plan, wanted = parse_plan(text), plan_hash if isinstance(plan_hash, str) else plan_hash.hex()
    if plan.hash.hex() != wanted:
        raise PlanError(
            f"{plan.name!r} version {plan.version} in the store has hash {wanted[:12]}, but its text reads as "
            f"{plan.hash.hex()[:12]} here; use the version that collected it"
        )
    return plan
