"""What the reports of a memoised metric cost together: a public amount, kept alike by device and collector.

A memoised metric draws a permanent answer once per value and reports noisy copies of it, so its reports do not add up.
Let epsilon_first be what one report alone loses, epsilon_inf what any number of reports of one value loses, and
max_distinct the number of values that are ever answered for. For `reports` reports

    charge(0) = 0, charge(1) = epsilon_first,
    charge(r) = min(r, max_distinct) epsilon_inf + one millionth for each report beyond max_distinct.

Rules of this file: the charge is a function of the number of reports alone, so it tells nobody whether, how often or
when the value changed; each report costs at least one millionth, so that a ledger that was rolled back always shows;
the amounts bound the loss under the relation "replace a value by another wherever the device held it". reports x
epsilon_first would bound nothing: two reports of one value lose more than twice the first (see `mechanisms.memoized`).
What it does not do: it bounds not what the change itself tells; the mechanism's `change` does, report by report.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoCharge:
    """The price of one memoised metric. key: names its permanent answers, 32 bytes; another law has other ones.

    first_micro, inf_micro: epsilon_first and epsilon_inf in micro-epsilon, rounded up.
    """

    key: bytes
    first_micro: int
    inf_micro: int
    max_distinct: int

    def total(self, reports: int) -> int:
        """What so many reports of one device cost together, micro-epsilon."""
        if reports <= 1:
            return self.first_micro * max(reports, 0)
        return min(reports, self.max_distinct) * self.inf_micro + max(reports - self.max_distinct, 0)

    def of_report(self, earlier: int) -> int:
        """What the next report costs after `earlier` ones; at least 1."""
        return self.total(earlier + 1) - self.total(earlier)

    @property
    def dearest(self) -> int:
        """The most that any report costs: mostly the second, from which on values may have changed."""
        return max(self.of_report(earlier) for earlier in range(3))
