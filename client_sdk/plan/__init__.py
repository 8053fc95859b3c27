"""The plan: one TOML text is the public contract between devices, collector and whoever checks either.

`parse_plan` reads it and finds every fault at once, `canonical_form` is what its hash is taken over,
`check_plan` says what it costs and how exact its answers will be. Pure: `client_sdk.files.load_plan` reads.
"""

from client_sdk.plan.canonical import canonical_form, plan_hash
from client_sdk.plan.model import BudgetRules, CohortRules, DeliveryRules, Metric, Plan, Registrar
from client_sdk.plan.parse import MAX_PLAN_BYTES, parse_plan

__all__ = [
    "MAX_PLAN_BYTES",
    "BudgetRules",
    "CohortRules",
    "DeliveryRules",
    "Metric",
    "Plan",
    "Registrar",
    "canonical_form",
    "check_plan",
    "format_check",
    "parse_plan",
    "plan_hash",
]


def __getattr__(name: str) -> object:
    # `plan check` is the operator's: a device that parses its plan does not load it.
    if name in {"check_plan", "PlanCheck"}:
        from client_sdk.plan import check

        return getattr(check, name)
    if name == "format_check":
        from client_sdk.plan import check_text

        return check_text.format_check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
