"""One open period: its readings in memory, until they become a sealed report or are dropped.

Rules of this file: a raw reading lives in `PeriodState` only, in memory; sealing perturbs once, with the
operating system's randomness, and from then on only noise exists; the upload offset is drawn here, once per
report, so that no retry and no value can move it. What it does not do: it charges and stores nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_sdk.accounting.budget import Limits
    from client_sdk.device.memos import Answers
    from client_sdk.device.records import SealedReport
    from client_sdk.folding import Reading
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan
    from client_sdk.report import PeriodState

ID_BYTES = 8
OFFSET_STEPS = 1 << 53


class OpenPeriod:
    """The period [start, end) of one plan, opened at `opened_at` by this process."""

    __slots__ = ("adders", "end", "opened_at", "plan", "readings", "start", "state")

    def __init__(self, plan: Plan, now: float, state: PeriodState | None = None, start: int | None = None) -> None:
        self.plan = plan
        self.start = plan.period_start(now) if start is None else start
        if state is None:
            from client_sdk.report import PeriodState

            state = PeriodState(plan, self.start)
        self.end = self.start + plan.period_s
        self.opened_at = now
        self.state = state
        self.readings = 0  # how many are in `state`, set when the recorder lets go of it
        self.adders: Mapping[str, Callable[[Reading, Entropy], None]] = state.adders

    def __repr__(self) -> str:
        return f"OpenPeriod({self.plan.name!r}, start={self.start})"

    def expires_at(self) -> int:
        """When its report is too old to be taken, in seconds since the epoch."""
        return self.end + self.plan.max_delay_s

    def seal(
        self,
        now: float,
        entropy: Entropy,
        *,
        min_cohort: int,
        sealed_by: bytes,
        life: int | None,
        permanent: Answers | None = None,
    ) -> SealedReport:
        """Perturb every metric once and give the report its place in the upload window.

        permanent: the answers that the device keeps, see `make_report`.
        """
        from client_sdk.device.records import SealedReport
        from client_sdk.report import make_report, pack_vector

        plan, answers = self.plan, {} if permanent is None else permanent.by_metric
        return SealedReport(
            plan_name=plan.name,
            plan_version=plan.version,
            plan_hash=plan.hash,
            plan_text=plan.text,
            period_start=self.start,
            period_s=plan.period_s,
            report=pack_vector(make_report(plan, self.state, entropy, answers), plan.bound),
            micro_epsilon=plan.plain_micro_epsilon,
            micro_rho=plan.report_micro_rho,
            sealed_at=now,
            not_before=self.end + uniform(plan.upload_window_s, entropy),
            expires_at=self.expires_at(),
            opened_at=self.opened_at,
            min_cohort=min_cohort,
            plan_limits=plan_limits(plan),
            seal_id=entropy(ID_BYTES),
            sealed_by=sealed_by,
            life=life,
            memos=tuple(plan.memos.values()),
            of_values=permanent is not None and permanent.of_values,
        )


def uniform(below: float, entropy: Entropy) -> float:
    """A uniform number in [0, below) for waiting times; not for noise."""
    return below * (int.from_bytes(entropy(8), "little") % OFFSET_STEPS) / OFFSET_STEPS


def plan_limits(plan: Plan) -> Limits:
    """What the plan itself allows one device."""
    from client_sdk.accounting.budget import Limits

    budget = plan.budget
    return Limits(
        rolling_24h=budget.rolling_24h_micro,
        lifetime=budget.lifetime_micro,
        rolling_24h_rho=budget.rolling_24h_micro_rho,
        lifetime_rho=budget.lifetime_micro_rho,
    )
