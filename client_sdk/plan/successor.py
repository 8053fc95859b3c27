"""What a later version of a plan may be: one table of rules, asked by the device and by the collector.

Rules of this file: a version never changes; a later one keeps name and period, may lower, never raise, what a device
can spend, keeps the meaning of its names (`names.py`), and may raise, never lower, what hides it in its cohort. The
last is for whoever follows a fetched plan, whoever signed it; an operator may well register a weaker version, for the
apps that ship it.
What it does not do: it decides nothing about who may publish a version (`signature.py`).
"""

from __future__ import annotations

from client_sdk.errors import RefusalReason
from client_sdk.plan.defaults import rolling_24h_micro
from client_sdk.plan.model import Plan
from client_sdk.plan.names import broken_names


def why_no_successor(held: Plan, offered: Plan) -> RefusalReason | None:
    """Why a device that holds `held` must not go over to `offered`; None: it may (or it is the same plan)."""
    if offered.hash == held.hash:
        return None
    if offered.name != held.name:
        return RefusalReason.PLAN_NAME_CHANGED
    if offered.version == held.version:
        return RefusalReason.PLAN_CHANGED_WITHOUT_VERSION
    if offered.version < held.version:
        return RefusalReason.PLAN_VERSION_BACK
    if offered.period_s != held.period_s:
        return RefusalReason.PLAN_PERIOD_CHANGED
    if raised_limit(held, offered) is not None:
        return RefusalReason.PLAN_LIMITS_RAISED
    if weaker_cohort(held, offered) is not None:
        return RefusalReason.PLAN_WEAKER
    return RefusalReason.PLAN_NAMES if broken_names(held, offered) else None


def weaker_cohort(earlier: Plan, later: Plan) -> str | None:
    """The field of `cohort` that hides a device less well than `earlier` did, or None.

    More expected dropouts are the weaker side too: in a sparse graph they bring more neighbours, but a smaller part of
    these as the threshold (1,000 members, 0.1 corrupt: 98 of 138 at 0.1, 298 of 498 at 0.3), so more can be made up.
    """
    before, now = earlier.cohort, later.cohort
    if now.min_size < before.min_size:
        return "min_size"
    if now.corrupt_fraction < before.corrupt_fraction:
        return "corrupt_fraction"
    return "dropout_fraction" if now.dropout_fraction > before.dropout_fraction else None


def raised_limit(earlier: Plan, later: Plan) -> str | None:
    """The field of `budget` that allows a device more than `earlier` did, or None.

    A window that only follows from the version's own reports (the default) may grow with them, so that a version can
    ask one more question; devices still hold it to the strictest that they have seen.
    """
    before, now = earlier.budget, later.budget
    if now.lifetime_micro > before.lifetime_micro:
        return "lifetime"
    for field in ("lifetime", "rolling_24h"):
        earlier_rho, later_rho = (getattr(rules, f"{field}_micro_rho") for rules in (before, now))
        if earlier_rho is not None and (later_rho is None or later_rho > earlier_rho):
            return f"{field}_rho"
    default = rolling_24h_micro(later.period_s, later.report_micro_epsilon)
    return "rolling_24h" if before.rolling_24h_micro < now.rolling_24h_micro != default else None
