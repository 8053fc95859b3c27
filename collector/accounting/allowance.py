"""What a user's budget still allows, and when it is used up: from the ledger and the public plans alone.

Rules of this file: a plan's name has one lifetime budget over all its versions, and a later version may lower it, never
raise it; amounts are micro-epsilon; nothing is ever given back.
What it does not do: know the host's own ceilings, which may stop a device earlier.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from client_sdk.accounting.ledger import FoldedReports, Ledger, LedgerEntry
from client_sdk.plan import Plan
from collector.accounting.basic import PlanSpend

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
    spent: Counter[str] = Counter({used.hash: 0 for used in ledger.plans})
    for row in _rows(ledger):
        spent[row.plan] += row.micro_epsilon
    last: dict[str, int] = {}
    for entry in ledger.entries:
        last[entry.plan] = max(entry.period_start, last.get(entry.plan, entry.period_start))
    spends = [PlanSpend(plan, cost, last.get(plan)) for plan, cost in spent.items()]
    return allowed(spends, plans, carried_micro_epsilon=ledger.carried_micro_epsilon, as_of=ledger.as_of)


def allowed(
    spends: Iterable[PlanSpend], plans: Mapping[str, Plan], *, carried_micro_epsilon: int, as_of: int
) -> Allowance:
    """The same from what each plan has cost, each once. carried_micro_epsilon: what no plan accounts for."""
    names: dict[str, list[PlanSpend]] = defaultdict(list)
    for one in spends:
        if one.plan in plans:
            names[plans[one.plan].name].append(one)
    if not names:
        return Allowance(None, None, None)
    caps, lefts, end = 0, 0, 0
    for under in names.values():
        versions = [plans[one.plan] for one in under]
        cap = min(plan.budget.lifetime_micro for plan in versions)
        left = max(0, cap - sum(one.micro_epsilon for one in under))
        caps, lefts = caps + cap, lefts + left
        end = max(end, _end(under, versions, max(0, left - carried_micro_epsilon), as_of))
    return Allowance(caps, max(0, lefts - carried_micro_epsilon), end if end <= LAST_INSTANT else None)


def spent_by_name(ledger: Ledger, plans: Mapping[str, Plan]) -> defaultdict[str, int]:
    """Micro-epsilon by the plan's name, over all of the ledger's rows whose plan is known."""
    spent: defaultdict[str, int] = defaultdict(int)
    for row in _rows(ledger):
        if row.plan in plans:
            spent[plans[row.plan].name] += row.micro_epsilon
    return spent


def _rows(ledger: Ledger) -> tuple[LedgerEntry | FoldedReports, ...]:
    return (*ledger.entries, *ledger.folded)


def _end(under: Iterable[PlanSpend], versions: list[Plan], affordable_micro: int, as_of: int) -> int:
    newest = max(versions, key=lambda plan: plan.version)
    lasts = [one.last_period_start + newest.period_s for one in under if one.last_period_start is not None]
    following = max(newest.period_start(as_of), *lasts) if lasts else newest.period_start(as_of)
    # Once anything was spent, memoised metrics are taken to have had all the reports that cost more than a millionth.
    earlier = max((memo.max_distinct for memo in newest.memos.values()), default=0) + 1 if lasts else 0
    return following + newest.reports_within(affordable_micro, earlier) * newest.period_s
