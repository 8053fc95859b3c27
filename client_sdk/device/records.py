"""Rows of the device's store as frozen values. Times in seconds since the epoch, amounts in micro-epsilon."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from client_sdk.accounting.budget import Limits, format_micro
from client_sdk.accounting.memo import MemoCharge
from client_sdk.report import report_digest, unpack_vector


@dataclass(frozen=True, slots=True)
class SealedReport:
    """A perturbed report that wants to be charged and spooled. Times in seconds since the epoch.

    opened_at: when this process opened the period. min_cohort: the device's own floor for contributors.
    seal_id: names this sealing, so that a repeat after an unclear commit is recognised. sealed_by: names the
    process. life: how often the user had opted out when its readings were recorded; None where nobody could say.
    micro_rho: its zero-concentrated loss in millionths; None: not known, taken to be micro_epsilon. memos: charged
    beside micro_epsilon, at what their earlier reports make of it. of_values: their answers are those of values.
    """

    plan_name: str
    plan_version: int
    plan_hash: bytes
    plan_text: str = field(repr=False)
    period_start: int
    period_s: int
    report: bytes = field(repr=False)
    micro_epsilon: int
    sealed_at: float
    not_before: float
    expires_at: float
    opened_at: float
    min_cohort: int
    plan_limits: Limits
    seal_id: bytes
    sealed_by: bytes
    life: int | None
    micro_rho: int | None = None
    memos: tuple[MemoCharge, ...] = ()
    of_values: bool = False


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """A report in the spool, exactly as it will be sent (under masks, unless its plan has it go direct). It is charged
    already.

    resent: it may have left the device before. not_before: when it wants to leave.
    """

    plan_name: str
    period_start: int
    plan_hash: bytes
    micro_epsilon: int
    report: bytes = field(repr=False)
    resent: bool
    not_before: float
    expires_at: float

    @property
    def epsilon(self) -> Decimal:
        """What it was charged."""
        return Decimal(format_micro(self.micro_epsilon))

    @property
    def digest(self) -> bytes:
        """SHA-256 of its bytes, 32 bytes: what `history()` will keep of it."""
        return report_digest(self.report)

    @property
    def elements(self) -> tuple[int, ...]:
        """Its integers, in the order of the plan's metrics. StorageError where the spool is damaged."""
        return tuple(unpack_vector(self.report))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What became of one report. `digest` is SHA-256 of its bytes; round and cohort only where it was counted.

    resent_contributors: reports in its sum that had left their devices before, as proven to this one; None where the
    round proved nothing. left_device: was it ever handed over, or may it have been? delivery: `direct` where it was
    counted unmasked, or may have been; else `interactive`.
    """

    plan_name: str
    period_start: int
    plan_hash: bytes
    digest: bytes
    micro_epsilon: int
    outcome: str
    resent: bool
    round_id: str | None
    contributors: int | None
    roster_size: int | None
    finished_at: float
    resent_contributors: int | None
    left_device: bool
    delivery: str

    @property
    def epsilon(self) -> Decimal:
        """What it was charged."""
        return Decimal(format_micro(self.micro_epsilon))
