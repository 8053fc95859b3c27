"""Every figure of one user's ledger, for one window: what was spent, against whom, and what is left.

Three epsilons, all for replacing the user's values, whoever takes part being public. *Pure local*: the plain sum, at
delta 0, whatever anybody chose after seeing anything. *Local*: at delta, against somebody who sees each report.
*Central*: at delta, against somebody who sees only sums; it never stands without n_h and its conditions.

Rules of this file: all reports of a window are one composition under one delta, those that no sum hides as local pairs
among the others, so that the figure is min(composed, local) and no epsilon with a delta of its own is added to another.
Where the parameters may have been chosen after sums were seen, no composition is claimed: local is the plain sum, and
central the sum of single ones, each at its share of delta that was fixed beforehand (`adaptive`). What a ledger spent
and cannot say for what is added to central as it is, and leaves nothing but the plain sum for local. Groups are sorted
before anything is added up, so the order of a ledger changes no digit, and reading changes nothing.
What it does not do: know who colludes: `corrupt` is an assumption, and a cohort that the operator filled hides nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from client_sdk.accounting.budget import MICRO
from client_sdk.accounting.ledger import Ledger, is_within
from client_sdk.accounting.loss import RELATION, plain
from collector.accounting.adaptive import filtered, is_adaptive
from collector.accounting.allowance import Allowance, allowance
from collector.accounting.composition import Composer
from collector.accounting.exposure import Exposed, Exposure, Plans, exposed_by_plan, exposures, local_exposed
from collector.accounting.grid import merged
from collector.accounting.losses import central_pair
from collector.accounting.memoised import alone_micro
from collector.accounting.pairs import check_delta

ACCOUNTANT: Final = "1"
"""Version of the rules that figures follow: whoever recomputes one compares this first."""

DELTA: Final = 1e-6

COMPOSED: Final = "exact composition"
PURE_CHANGED: Final = "pure (plan changed after sums were seen)"
PURE_CARRIED: Final = "pure (part of the spending has no rows)"
PURE_DAMAGED: Final = "pure (the ledger is damaged)"
SUMS: Final = "composition of sums"
FILTER: Final = "filter (plan changed after sums were seen)"
AS_LOCAL: Final = "as local (no sum hides a report)"

CONDITIONS: Final = (
    "against somebody who sees only sums, n_h of each sum's reports being honest, n_h and n public, fresh coins in "
    "every report, and no other release of them"
)
"""What a central epsilon holds under; it is never shown without."""


@dataclass(frozen=True, slots=True)
class FallbackRound:
    """Reports that no sum hides. round, period_start: None where they are not known or several are folded."""

    plan: str
    reason: str
    reports: int
    period_start: int | None
    round: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """One window of one ledger. n_h: the smallest assumed, 1 where no sum hides anything.

    eps_local_pure is exact, at delta_pure: 0, or what the deltas of Gaussian noise add up to. n_min: the smallest
    number of contributors that any sum had, None where none is known.
    """

    window: str
    reports: int
    failed_but_spent: int
    eps_local_pure: Decimal
    eps_local: float
    method: str
    eps_central: float
    central_method: str
    n_h: int
    n_min: int | None
    fallback_rounds: tuple[FallbackRound, ...]
    allowance: Allowance
    delta: float
    relation: str = RELATION
    accountant: str = ACCOUNTANT
    delta_pure: Decimal = Decimal(0)

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Reports that fell back, by reason."""
        found: Counter[str] = Counter()
        for one in self.fallback_rounds:
            found[one.reason] += one.reports
        return dict(sorted(found.items()))


def figures(
    ledger: Ledger,
    plans: Plans,
    *,
    delta: float = DELTA,
    corrupt: Fraction | None = None,
    now: int | None = None,
    window: str = "lifetime",
) -> Figures:
    """plans: by hash. corrupt: share of each roster assumed to collude, None: as each plan says. now: the window's end,
    None: the ledger's own. ConfigurationError for a plan that is missing, ValueError for a delta outside [0, 1).
    """
    check_delta(delta)
    if now is not None:
        ledger = replace(ledger, as_of=now)
    rows = exposures(ledger, plans, corrupt, window)
    pure = Fraction(max(ledger.spent_micro_epsilon(window), alone_micro(_reports(rows), plans)), MICRO)
    delta_pure = sum((plans[row.plan].report_delta * row.reports for row in rows), Decimal(0))
    local, method = _local(ledger, rows, plans, window, pure, delta, delta_pure)
    central, central_method = _central(ledger, rows, plans, window, pure, delta)
    if delta_pure <= delta or method == COMPOSED:
        central = min(central, local)
    else:  # the plain sum holds at a delta of its own
        at_delta = {method: f"{method}, at delta {plain(delta_pure)}"}
        method, central_method = at_delta[method], at_delta.get(central_method, central_method)
    hidden = [n_h for row in rows for n_h in row.n_h.values()]
    return Figures(
        window=window,
        reports=sum(row.reports for row in rows),
        failed_but_spent=sum(row.failed_but_spent for row in rows),
        eps_local_pure=Decimal(pure.numerator) / Decimal(pure.denominator),
        eps_local=local,
        method=method,
        eps_central=central,
        central_method=AS_LOCAL if central >= local > 0.0 and not hidden else central_method,
        n_h=min(hidden, default=1),
        n_min=min((row.contributors for row in rows if row.contributors is not None), default=None),
        fallback_rounds=tuple(_fallback(row) for row in rows if row.falls_back is not None),
        allowance=allowance(ledger, plans),
        delta=delta,
        delta_pure=delta_pure,
    )


def _reports(rows: Sequence[Exposure]) -> Counter[str]:
    """By plan."""
    reports: Counter[str] = Counter()
    for row in rows:
        reports[row.plan] += row.reports
    return reports


def _fallback(row: Exposure) -> FallbackRound:
    return FallbackRound(row.plan, row.falls_back or "", row.reports, row.period_start, row.round)


# --- local ------------------------------------------------------------------------------------------


def _local(
    ledger: Ledger,
    rows: Sequence[Exposure],
    plans: Plans,
    window: str,
    pure: Fraction,
    delta: float,
    delta_pure: Decimal,
) -> tuple[float, str]:
    if ledger.damaged is not None:
        return float(pure), PURE_DAMAGED
    if _carried(ledger, window):
        return float(pure), PURE_CARRIED
    if is_adaptive(ledger, rows):
        return float(pure), PURE_CHANGED
    composed = _composed(local_exposed(_reports(rows), plans), delta)
    return min(float(pure), composed) if delta_pure <= delta else composed, COMPOSED


def _carried(ledger: Ledger, window: str) -> int:
    """Micro-epsilon spent in the window, perhaps, for which there is no row."""
    dateless = ledger.carried_until is None or is_within(ledger.carried_until, ledger.as_of, window)
    return ledger.carried_micro_epsilon if dateless else 0


# --- central ----------------------------------------------------------------------------------------


def _central(
    ledger: Ledger, rows: Sequence[Exposure], plans: Plans, window: str, pure: Fraction, delta: float
) -> tuple[float, str]:
    if ledger.damaged is not None:
        return float(pure), PURE_DAMAGED
    carried = _carried(ledger, window) / MICRO
    if is_adaptive(ledger, rows):
        return carried + filtered(ledger, rows, plans, delta), FILTER
    counts: Counter[Exposed] = Counter()
    for found in exposed_by_plan(rows, plans).values():
        counts.update(found)
    return carried + _composed(counts, delta), SUMS


def _composed(counts: Mapping[Exposed, int], delta: float) -> float:
    groups = merged(counts)
    pairs = [central_pair(loss, n_h) for loss, n_h in groups]
    return Composer(pairs).epsilon(list(groups.values()), delta)
