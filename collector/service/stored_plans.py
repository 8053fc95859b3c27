"""Plans as the store has them, parsed: once per text, because nearly everything that asks the store wants them all."""

from __future__ import annotations

from functools import lru_cache

from client_sdk.plan import Plan, parse_plan


@lru_cache(maxsize=256)
def stored_plan(text: str) -> Plan:
    """A version never changes, so neither does what is remembered here. Raises PlanError."""
    return parse_plan(text)
