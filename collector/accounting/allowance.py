"""What a user's budget still allows, and when it is used up: from the ledger and the public plans alone.

Rules of this file: a plan's name has one lifetime budget over all its versions, and a later version may lower it, never
raise it; amounts are micro-epsilon; nothing is ever given back.
What it does not do: know the host's own ceilings, which may stop a device earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from client_sdk.accounting.ledger import FoldedReports, Ledger, LedgerEntry
from client_sdk.plan import Plan

LAST_INSTANT = 253_402_300_799
"""The end of the year 9999: what lies beyond is never."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """cap, left: of all the plans' lifetime budgets, micro-epsilon; None where no plan is known. stops_on: when the
    first period starts, in seconds since the epoch, of which no plan makes a report, at one a period; None: never.
    """

    cap_micro_epsilon: int | None
    left_micro_epsilon: int | None
    stops_on: int | None


def allowance(ledger: Ledger, plans: Mapping[str, Plan]) -> Allowance:
    """As of the ledger's `as_of`. What no row accounts for is taken off what is left."""
    names: dict[str, list[Plan]] = defaultdict(list)
    for used in ledger.plans:
        if used.hash in plans:
            names[plans[used.hash].name].append(plans[used.hash])
    if not names:
        return Allowance(None, None, None)
    spent = spent_by_name(ledger, plans)
    lefts = {name: max(0, _lifetime(versions) - spent[name]) for name, versions in names.items()}
    ends = [_end(ledger, plans, versions, lefts[name]) for name, versions in names.items()]
    return Allowance(
        sum(_lifetime(versions) for versions in names.values()),
        max(0, sum(lefts.values()) - ledger.carried_micro_epsilon),
        end if (end := max(ends)) <= LAST_INSTANT else None,
    )


def spent_by_name(ledger: Ledger, plans: Mapping[str, Plan]) -> defaultdict[str, int]:
    """Micro-epsilon by the plan's name, over all of the ledger's rows whose plan is known."""
    spent: defaultdict[str, int] = defaultdict(int)
    rows: tuple[LedgerEntry | FoldedReports, ...] = (*ledger.entries, *ledger.folded)
    for row in rows:
        if row.plan in plans:
            spent[plans[row.plan].name] += row.micro_epsilon
    return spent


def _lifetime(versions: Iterable[Plan]) -> int:
    return min(plan.budget.lifetime_micro for plan in versions)


def _end(ledger: Ledger, plans: Mapping[str, Plan], versions: list[Plan], left: int) -> int:
    newest = max(versions, key=lambda plan: plan.version)
    following = newest.period_start(ledger.as_of)
    for entry in ledger.entries:
        if entry.plan in plans and plans[entry.plan].name == newest.name:
            following = max(following, entry.period_start + newest.period_s)
    affordable = max(0, left - ledger.carried_micro_epsilon) // newest.report_micro_epsilon
    return following + affordable * newest.period_s
