"""A ledger as a document: what one device was charged, when, for what, and what became of each report.

The device exports its own, the collector prints the one that it keeps of a device; both are this form, and whoever
holds one and the public plans can compute every figure again.

Rules of this file: amounts are whole micro-epsilon and times whole seconds, never a float; nothing that is read is
guessed at or filled in: an unknown field, a missing one, a text in place of a number is refused by its name. Where a
count may be wrong, it is wrong against the reader's wish: charges without a date lie in every window, a sum whose size
is not known hides nobody. No reading and no report is in it, and no digest of one.
`ledger_reader` reads it again.
What it does not do: hide anything. It says in which periods the device took part, when it sealed its reports and how
large its cohorts were: whoever reads it learns when the device was in use. It is its user's, to show or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from client_sdk.accounting.loss import RELATION

FORM: Final = "ldp-telemetry/1"

WINDOWS: Final[Mapping[str, int]] = {"24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400, "365d": 365 * 86_400}
"""Rolling windows in seconds; beside each stands the lifetime figure."""

COUNTED: Final = frozenset({"counted", "already_counted"})
"""Outcomes of reports that are in a stored sum."""

Source = Literal["device", "collector"]
Delivery = Literal["interactive", "direct"]


def is_within(charged_at: int, as_of: int, window: str) -> bool:
    """Does (as_of - window, as_of] hold the charge? One dated later counts too; `lifetime` holds all."""
    return window == "lifetime" or charged_at > as_of - WINDOWS[window]


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    """A plan that something was charged under. hash: 64 hex digits. version: None where nobody remembers it.

    first_used_at: when the first of its reports was charged, in seconds since the epoch.
    """

    hash: str
    name: str
    version: int | None
    first_used_at: int


@dataclass(frozen=True, slots=True)
class Cohort:
    """Whom a sum hides a report among: reports in the sum, members of its roster, reports in it that were resent."""

    contributors: int
    roster: int
    resent_contributors: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One report. plan: its hash, 64 hex digits. charged_at: in seconds since the epoch, rounded up.

    outcome: counted, already_counted, waiting, or why it was given up. left_device: it was, or may have been, handed
    to the collector, under masks. resent: more than once. round, cohort: of the sum that it is in; None where that is
    not known (a device takes no size on trust: of a sum whose receipt was lost, it knows none). metric_contributors: by
    metric, where a plan's reports hold some of its metrics and the sums have told how many hold each.
    """

    plan: str
    period_start: int
    charged_at: int
    micro_epsilon: int
    outcome: str
    left_device: bool
    resent: bool
    delivery: Delivery = "interactive"
    round: str | None = None
    cohort: Cohort | None = None
    metric_contributors: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def is_counted(self) -> bool:
        """Is it in a stored sum?"""
        return self.outcome in COUNTED

    @property
    def failed_but_spent(self) -> bool:
        """It left the device and is in no sum that is known: masks may break later, so it is spent all the same."""
        return self.left_device and not self.is_counted

    @property
    def falls_back(self) -> str | None:
        """Why no sum hides it, so that its central loss is its local loss; None where one does, or it never left."""
        if not self.left_device:
            return None
        if not self.is_counted:
            return "failed_but_spent"
        if self.delivery == "direct":  # whether or not it came twice: it stood alone either way
            return "direct"
        if self.resent:
            return "resent"
        return "unknown_cohort" if self.cohort is None else None


@dataclass(frozen=True, slots=True)
class FoldedReports:
    """Counted reports whose rows are gone; those of one plan and of like cohorts together.

    charged_at: of the newest. micro_epsilon: of all of them. cohort: of the smallest sum among them, or smaller.
    """

    plan: str
    charged_at: int
    reports: int
    micro_epsilon: int
    resent: bool
    delivery: Delivery = "interactive"
    cohort: Cohort | None = None
    metric_contributors: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Stated:
    """What the ledger's keeper says it adds up to; all over the lifetime, but for `windows` (micro-epsilon by name)."""

    reports: int = 0
    failed_but_spent: int = 0
    lifetime_micro_epsilon: int = 0
    windows: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One device's ledger. device: its id, 32 hex digits; None where it has opted out. as_of: seconds since the epoch.

    carried_micro_epsilon: spent, but no row says for what. carried_until: when the last of that was spent at the
    latest; None where nobody knows. damaged: why not even the sum is to be believed, None for a sound ledger. stated:
    what its keeper says that it adds up to; `with_stated` says it.
    """

    source: Source
    device: str | None
    as_of: int
    plans: tuple[LedgerPlan, ...]
    entries: tuple[LedgerEntry, ...]
    carried_micro_epsilon: int = 0
    carried_until: int | None = None
    folded: tuple[FoldedReports, ...] = ()
    damaged: str | None = None
    stated: Stated = field(default_factory=Stated)
    relation: str = RELATION

    def with_stated(self) -> Ledger:
        """The same, stating what it adds up to."""
        return replace(self, stated=self.counted())

    def spent_micro_epsilon(self, window: str = "lifetime") -> int:
        """Spent in a window by basic composition, micro-epsilon: what no row dates, wherever it may have been."""
        rows: Iterable[LedgerEntry | FoldedReports] = (*self.entries, *self.folded)
        dated = sum(row.micro_epsilon for row in rows if is_within(row.charged_at, self.as_of, window))
        within = self.carried_until is None or is_within(self.carried_until, self.as_of, window)
        return dated + (self.carried_micro_epsilon if within else 0)

    def counted(self) -> Stated:
        """What the rows add up to, to hold against `stated`."""
        return Stated(
            len(self.entries) + sum(row.reports for row in self.folded),
            sum(entry.failed_but_spent for entry in self.entries),
            self.spent_micro_epsilon(),
            {window: self.spent_micro_epsilon(window) for window in WINDOWS},
        )

    @property
    def is_whole(self) -> bool:
        """Does a row stand for everything that was spent? If not, nothing but the plain sum bounds it."""
        return self.damaged is None and self.carried_micro_epsilon == 0

    def to_json(self) -> dict[str, Any]:
        """The document: JSON-ready, its order always the same."""
        document: dict[str, Any] = {"ledger": FORM, "source": self.source, "device": self.device, "as_of": self.as_of}
        document |= {"relation": self.relation, "damaged": self.damaged}
        document["plans"] = [_plan_row(plan) for plan in self.plans]
        document["entries"] = [_entry_row(entry) for entry in self.entries]
        document["carried_micro_epsilon"] = self.carried_micro_epsilon
        document["carried_until"] = self.carried_until
        if self.folded:
            document["folded"] = [_folded_row(row) for row in self.folded]
        document["stated"] = {
            "reports": self.stated.reports,
            "failed_but_spent": self.stated.failed_but_spent,
            "lifetime_micro_epsilon": self.stated.lifetime_micro_epsilon,
            "windows": dict(self.stated.windows),
        }
        return document


def _plan_row(plan: LedgerPlan) -> dict[str, Any]:
    return {"hash": plan.hash, "name": plan.name, "version": plan.version, "first_used_at": plan.first_used_at}


def _entry_row(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "plan": entry.plan,
        "period_start": entry.period_start,
        "charged_at": entry.charged_at,
        "micro_epsilon": entry.micro_epsilon,
        "outcome": entry.outcome,
        "left_device": entry.left_device,
        "resent": entry.resent,
        "delivery": entry.delivery,
        "round": entry.round,
        **_cohort_fields(entry),
    }


def _folded_row(row: FoldedReports) -> dict[str, Any]:
    return {
        "plan": row.plan,
        "charged_at": row.charged_at,
        "reports": row.reports,
        "micro_epsilon": row.micro_epsilon,
        "resent": row.resent,
        "delivery": row.delivery,
        **_cohort_fields(row),
    }


def _cohort_fields(row: LedgerEntry | FoldedReports) -> dict[str, Any]:
    cohort = row.cohort
    fields: dict[str, Any] = {
        "contributors": None if cohort is None else cohort.contributors,
        "roster": None if cohort is None else cohort.roster,
        "resent_contributors": None if cohort is None else cohort.resent_contributors,
    }
    if row.metric_contributors:
        fields["metric_contributors"] = dict(sorted(row.metric_contributors.items()))
    return fields
