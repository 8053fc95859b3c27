"""What the host reads: budgets as exact decimals, and what one upload achieved."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from client_sdk.accounting.budget import Limits, format_micro
from client_sdk.device.period import plan_limits
from client_sdk.device.storage import DeviceStore
from client_sdk.plan import Plan


def _decimal(micro: int | None) -> Decimal | None:
    return None if micro is None else Decimal(format_micro(micro))


@dataclass(frozen=True, slots=True)
class BudgetView:
    """What this device has spent and has left, exactly. Amounts in micro-epsilon; the properties in epsilon.

    report_micro: what one report of the current plan costs (None before there is a plan). rolling_24h_micro,
    lifetime_micro: spent on this plan's name. all_*: spent on all plan names of the folder. left_*: what may
    still be spent under the plan's limits and the host's own (None: no such limit). damaged: why the budget
    counts as used up, or None. *_micro_rho: the same in zero-concentrated loss, millionths. report_delta: what the
    report's epsilon holds up to, 0 but for Gaussian noise; None before there is a plan.
    """

    report_micro: int | None
    rolling_24h_micro: int
    lifetime_micro: int
    all_rolling_24h_micro: int
    all_lifetime_micro: int
    left_24h_micro: int | None
    left_lifetime_micro: int | None
    damaged: str | None = None
    report_micro_rho: int | None = None
    rolling_24h_micro_rho: int = 0
    lifetime_micro_rho: int = 0
    left_24h_micro_rho: int | None = None
    left_lifetime_micro_rho: int | None = None
    report_delta: Decimal | None = None

    @property
    def report(self) -> Decimal | None:
        """Epsilon of one report."""
        return _decimal(self.report_micro)

    @property
    def rolling_24h(self) -> Decimal:
        """Epsilon spent on this plan's name in the rolling 24 hours."""
        return Decimal(format_micro(self.rolling_24h_micro))

    @property
    def lifetime(self) -> Decimal:
        """Epsilon ever spent on this plan's name."""
        return Decimal(format_micro(self.lifetime_micro))

    @property
    def left_24h(self) -> Decimal | None:
        """Epsilon left in the rolling 24 hours."""
        return _decimal(self.left_24h_micro)

    @property
    def left_lifetime(self) -> Decimal | None:
        """Epsilon left, ever."""
        return _decimal(self.left_lifetime_micro)


def budget_view(store: DeviceStore, plan: Plan | None, host: Limits, now: float) -> BudgetView:
    """The ledger as the host may read it. Raises StorageError."""
    by_plan, by_all = store.spent("" if plan is None else plan.name, now)
    own = Limits() if plan is None else store.plan_limits(plan.name, plan_limits(plan))
    damaged = store.damage()
    window = ((own.rolling_24h, by_plan.rolling_24h_micro), (host.rolling_24h, by_all.rolling_24h_micro))
    ever = ((own.lifetime, by_plan.lifetime_micro), (host.lifetime, by_all.lifetime_micro))
    return BudgetView(
        None if plan is None else plan.report_micro_epsilon,
        by_plan.rolling_24h_micro,
        by_plan.lifetime_micro,
        by_all.rolling_24h_micro,
        by_all.lifetime_micro,
        _left(damaged, *window),
        _left(damaged, *ever),
        damaged,
        None if plan is None else plan.report_micro_rho,
        by_plan.rolling_24h_micro_rho,
        by_plan.lifetime_micro_rho,
        _left(
            damaged,
            (own.rolling_24h_rho, by_plan.rolling_24h_micro_rho),
            (host.rolling_24h_rho, by_all.rolling_24h_micro_rho),
        ),
        _left(damaged, (own.lifetime_rho, by_plan.lifetime_micro_rho), (host.lifetime_rho, by_all.lifetime_micro_rho)),
        None if plan is None else plan.report_delta,
    )


def _left(damaged: str | None, *scopes: tuple[int | None, int]) -> int | None:
    """What the strictest (limit, spent) leaves; nothing while the ledger is not to be believed."""
    if damaged is not None:
        return 0
    return min((max(0, limit - spent) for limit, spent in scopes if limit is not None), default=None)


@dataclass(slots=True)
class UploadSummary:
    """What one pass over the spool achieved, in reports.

    counted: now in a stored sum. already_counted: were in one before. waiting: still in the spool. failed: by
    reason, attempts that ended without a sum (the reports wait) and reports given up. next_attempt_at:
    seconds since the epoch, None where nothing waits.
    """

    counted: int = 0
    already_counted: int = 0
    waiting: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    next_attempt_at: float | None = None

    def add(self, reason: str) -> None:
        """Book one attempt."""
        if reason == "counted":
            self.counted += 1
        elif reason == "already_counted":
            self.already_counted += 1
        else:
            self.failed[reason] = self.failed.get(reason, 0) + 1

    def as_dict(self) -> dict[str, int]:
        """All of it as one flat dict of counts."""
        return {
            "counted": self.counted,
            "already_counted": self.already_counted,
            "waiting": self.waiting,
            **self.failed,
        }
