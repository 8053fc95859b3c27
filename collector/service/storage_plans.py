"""Keeping a plan version, and what its name's history forbids; over a connection whose transaction the caller owns.

Rules of this file: its caller is the only writer meanwhile, so that of two collectors that disagree about a version one
is told so.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from client_sdk.accounting.budget import format_micro
from client_sdk.errors import PlanError
from client_sdk.plan import Plan
from client_sdk.plan.names import broken_names
from client_sdk.plan.successor import raised_limit
from collector.service import tables as t
from collector.service.stored_plans import stored_plan


def put_plan(conn: Connection, plan: Plan, now: int) -> None:
    """Keep a plan version; the same again changes nothing. Raises PlanError where it breaks its name's history."""
    if conn.execute(select(t.plans.c.hash).where(t.plans.c.hash == plan.hash)).first() is not None:
        return
    columns = select(t.plans.c.version, t.plans.c.period_s, t.plans.c.hash, t.plans.c.text)
    for stored in conn.execute(columns.where(t.plans.c.name == plan.name)):
        if stored.version == plan.version:
            raise PlanError(
                f"plan.version: version {plan.version} of {plan.name!r} is in use with other contents "
                f"(hash {stored.hash.hex()[:12]}); a version never changes, give this plan the next number"
            )
        if stored.period_s != plan.period_s:
            raise PlanError(
                f"plan.period: {plan.name!r} has had a period of {stored.period_s} s since version "
                f"{stored.version}, not {plan.period_s} s; a plan's period never changes, take a new plan.name"
            )
        known = stored_plan(stored.text)
        if stored.version < plan.version:
            _refuse_raised_limits(known, plan)
        _refuse_broken_names(known, plan)
    conn.execute(
        insert(t.plans).values(
            hash=plan.hash, name=plan.name, version=plan.version, period_s=plan.period_s, text=plan.text, added_at=now
        )
    )


def _refuse_raised_limits(earlier: Plan, plan: Plan) -> None:
    """A version may lower, never raise, what a device can spend: devices keep the strictest they have seen."""
    field = raised_limit(earlier, plan)
    if field is None:
        return
    before, now = (getattr(version.budget, f"{field}_micro") for version in (earlier, plan))
    raise PlanError(
        f"budget.{field}: {format_micro(now)} is above the {format_micro(before)} of version {earlier.version} "
        f"of {plan.name!r}; a version may lower a device's limits, never raise them; take a new plan.name"
    )


def _refuse_broken_names(known: Plan, plan: Plan) -> None:
    """A name that is given up is listed as removed and never used again: answers are combined by name over versions."""
    earlier, later = sorted((known, plan), key=lambda one: one.version)
    broken = broken_names(earlier, later)
    if broken:
        raise PlanError([f"{line} (plan {plan.name!r} version {later.version})" for line in broken])
