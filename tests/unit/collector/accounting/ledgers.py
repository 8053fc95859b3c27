"""Ledgers and plans for the tests of figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.plan import Plan, parse_plan

DAY_S = 86_400
NOW = 20_500 * DAY_S
METRICS = """
[metrics.colour]
kind = "categorical"
categories = ["red", "green", "blue"]
epsilon = 0.5
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 100
levels = 100
epsilon = 1
"""


def plan_of(
    metrics: str = METRICS,
    *,
    version: int = 1,
    name: str = "p",
    lifetime: str = "600",
    corrupt: str = "0.1",
    more: str = "",
) -> Plan:
    return parse_plan(f"""
[plan]
name = "{name}"
version = {version}
period = "1d"
{more}
[cohort]
min_size = 20
target_size = 100
max_wait = "30s"
corrupt_fraction = {corrupt}
[budget]
lifetime = {lifetime}
{metrics}
""")


PLAN = plan_of()
"""1.5 a report; a tenth of a roster is taken for corrupt."""


def by_hash(*plans: Plan) -> Mapping[str, Plan]:
    return {plan.hash.hex(): plan for plan in plans}


def entry(day: int = 0, plan: Plan = PLAN, **changes: Any) -> LedgerEntry:
    """Charged `day` days before NOW and counted, among 110 of a roster of 120."""
    fields: dict[str, Any] = {
        "plan": plan.hash.hex(),
        "period_start": NOW - (day + 1) * DAY_S,
        "charged_at": NOW - day * DAY_S,
        "micro_epsilon": plan.report_micro_epsilon,
        "outcome": "counted",
        "left_device": True,
        "resent": False,
        "round": f"r{day}",
        "cohort": Cohort(110, 120, 2),
    }
    return LedgerEntry(**(fields | changes))


def unsent(day: int = 0, **changes: Any) -> LedgerEntry:
    return entry(day, **{"outcome": "expired", "left_device": False, "round": None, "cohort": None} | changes)


def ledger(*entries: LedgerEntry, plans: tuple[Plan, ...] = (PLAN,), **changes: Any) -> Ledger:
    used = tuple(
        LedgerPlan(plan.hash.hex(), plan.name, plan.version, min(times))
        for plan in plans
        if (times := [one.charged_at for one in entries if one.plan == plan.hash.hex()] or [NOW])
    )
    fields: dict[str, Any] = {"source": "device", "device": "c" * 32, "as_of": NOW, "plans": used, "entries": entries}
    return Ledger(**(fields | changes)).with_stated()
