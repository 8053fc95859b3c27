"""What memoised metrics lose: by the number of their reports, to whoever sees sums as to whoever sees reports.

Every report of a value is made from the same permanent answer, so two sums over cohorts that differ by one device tell
that device's answer whatever n_h is: a memoised metric is never amplified. One report loses epsilon_first; any number
of reports of at most D values loses D times epsilon_inf, and the permanent answers of different values are drawn
independently, so they compose like D pure mechanisms.

Rules of this file: a metric's reports count together over all versions of the plan that have the same permanent
answers (the same key under the same plan's name); amounts follow from numbers of reports alone.
What it does not do: bound what *changes* of the value tell (`client_sdk.mechanisms.memoized`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from client_sdk.accounting.budget import MICRO
from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.accounting.memo import MemoCharge
from client_sdk.plan import Plan

MEMOISED: Final = "memoised"
"""The mechanism's word of what a memoised metric loses, and why its reports hide in no sum."""


def memo_losses(reports: Mapping[str, int], plans: Mapping[str, Plan]) -> dict[str, Counter[PrivacyLoss]]:
    """By plan, the losses of so many reports of each (by plan hash) and how often each: independent, all local."""
    together: Counter[tuple[str, bytes]] = Counter()
    for plan_hash, name, memo in _memos(reports, plans):
        together[name, memo.key] += reports[plan_hash]
    found: dict[str, Counter[PrivacyLoss]] = {}
    for plan_hash, name, memo in _memos(reports, plans):
        single = together[name, memo.key] == 1
        micro = memo.first_micro if single else memo.inf_micro
        loss = PrivacyLoss.of(MEMOISED, Decimal(micro) / MICRO)
        found.setdefault(plan_hash, Counter())[loss] += min(reports[plan_hash], memo.max_distinct)
    return found


def spent_micro(reports: Mapping[str, int], plans: Mapping[str, Plan]) -> int:
    """What so many reports of each plan (by hash) were charged at least, micro-epsilon."""
    plain = sum(count * plans[plan].plain_micro_epsilon for plan, count in reports.items())
    together: Counter[tuple[str, MemoCharge]] = Counter()
    for plan_hash, name, memo in _memos(reports, plans):
        together[name, memo] += reports[plan_hash]
    return plain + sum(memo.total(count) for (_, memo), count in together.items())


def alone_micro(reports: Mapping[str, int], plans: Mapping[str, Plan]) -> int:
    """What a window's reports of plans with memoised metrics cost had there been none before it, micro-epsilon.

    What they were charged is what they add to those before; by themselves they tell more.
    """
    return spent_micro({plan: count for plan, count in reports.items() if plans[plan].memos}, plans)


def _memos(reports: Mapping[str, int], plans: Mapping[str, Plan]) -> Iterator[tuple[str, str, MemoCharge]]:
    for plan_hash, count in reports.items():
        if count:
            for memo in plans[plan_hash].memos.values():
                yield plan_hash, plans[plan_hash].name, memo
