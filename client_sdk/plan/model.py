"""The plan as frozen data: what every room of the product knows of it.

Metrics stand in the order of their names, not of the text: the vector's layout must follow from the canonical
form (and so from the hash), which keeps no order of tables. The order of categories is kept everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import tanh
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import date

    from client_sdk.accounting.loss import PrivacyLoss
    from client_sdk.accounting.memo import MemoCharge
    from client_sdk.mechanisms import Mechanism
    from client_sdk.secagg.parameters import RoundRules

Kind = Literal["numeric", "categorical", "histogram", "quantiles", "vector"]
OnDevice = Literal["last", "first", "sample", "mean", "sum", "max", "count"]
Resend = Literal["same_bytes", "never"]
Way = Literal["interactive", "direct"]
Fallback = Literal["none", "direct"]
Norm = Literal["l1", "l2"]

DAY_S = 86_400
EPOCH_DAY = 719_163
"""1970-01-01 in the days that `date.toordinal` counts."""


@dataclass(frozen=True, slots=True)
class CohortRules:
    """Who may be added up together. Sizes in participants; fractions exact, in [0, 0.5)."""

    min_size: int
    target_size: int
    max_wait_s: int
    corrupt_fraction: Fraction
    dropout_fraction: Fraction


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """What one device can spend on this plan's name over all versions, in micro-epsilon. 0: nothing.

    *_micro_rho: the same in zero-concentrated loss, in millionths; None: no such limit.
    """

    lifetime_micro: int
    rolling_24h_micro: int
    lifetime_micro_rho: int | None = None
    rolling_24h_micro_rho: int | None = None


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """How reports leave. `direct`: unmasked, at their local epsilon, and only from devices that allow it.

    resend: `same_bytes`, a report that may have left is sent again as it is; `never`, it is given up. delivery: the way
    of every report. fallback: `direct` for reports that have found no cohort fallback_after_s seconds after the end of
    their period (0 where there is no fallback).
    """

    resend: Resend
    delivery: Way = "interactive"
    fallback: Fallback = "none"
    fallback_after_s: int = 0

    @property
    def takes_direct(self) -> bool:
        """May any report of the plan come unmasked?"""
        return "direct" in (self.delivery, self.fallback)

    def goes_direct(self, period_end: int, now: float) -> bool:
        """Is this the way of a report whose period ended at `period_end`, at `now` (seconds since the epoch)?"""
        falls_back = self.fallback == "direct" and now >= period_end + self.fallback_after_s
        return self.delivery == "direct" or falls_back


@dataclass(frozen=True, slots=True)
class Registrar:
    """Who vouches for devices: HOST:PORT, and the Ed25519 public key (32 bytes) that its certificates hold under.

    Believed only in a plan that the app ships; that of a fetched plan is the collector's word about itself.
    """

    address: str
    key: bytes


@dataclass(frozen=True, slots=True)
class VectorRules:
    """A metric of vectors: `dimension` numbers, scaled down to `clip` in `norm`.

    delta: 0 for L1, whose epsilon is pure. calibration: of L2's noise, `analytic` or `classic`.
    """

    dimension: int
    clip: Decimal
    norm: Norm
    delta: Decimal
    calibration: str


@dataclass(frozen=True, repr=False)
class Metric:
    """One question of the plan.

    epsilon: what one report of it costs; micro_epsilon: the same for the ledger, rounded up.
    on_device: how a period's readings become one value. default: that value without a reading.
    lower, upper: all kinds but categorical and vector. levels: numeric and vector. vector: that kind only; its default
    is all zeros, and None here. categories (in the plan's order), other, removed (labels of earlier versions that may
    never come back): categorical only. edges (ends of the bins, in order, one more than there are bins): histogram and
    quantiles. quantiles (in (0, 1), ascending): quantiles only.
    optional: a period without a reading is reported as such, behind noise; `default` is then None. presence_share:
    the part of epsilon that a presence bit gets, where the value is sent beside one; else None.
    chosen: the plan said `auto`; the mechanism is what that came to.
    memo: memoised metrics only (`mechanisms.memoized`): what its reports cost together; epsilon is then what one alone
    does, and micro_epsilon the most that any of them adds.
    slice_by: of a sliced number (`mechanisms.sliced`), the categorical metric that says the slice; epsilon is then that
    of number and slice together.
    expires: the day (UTC) from which on no period's readings of it are reported, None: never.
    """

    name: str
    kind: Kind
    mechanism: Mechanism
    epsilon: Decimal
    micro_epsilon: int
    on_device: OnDevice
    default: Decimal | str | None
    lower: Decimal | None = None
    upper: Decimal | None = None
    levels: int | None = None
    categories: tuple[str, ...] = ()
    other: str | None = None
    expires: date | None = None
    edges: tuple[Decimal, ...] = ()
    quantiles: tuple[Decimal, ...] = ()
    optional: bool = False
    presence_share: Decimal | None = None
    removed: tuple[str, ...] = ()
    chosen: bool = False
    vector: VectorRules | None = None
    memo: MemoCharge | None = None
    slice_by: str | None = None

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """What one report of it loses: its parts, each with a law of its own, that together cost at most epsilon.

        Of a memoised metric: one report alone; several do not add up (`memo`).
        """
        return self.mechanism.losses

    @property
    def delta(self) -> Decimal:
        """What its epsilon holds up to; 0 for all but Gaussian noise."""
        return Decimal(0) if self.vector is None else self.vector.delta

    @property
    def micro_rho(self) -> int:
        """Zero-concentrated loss of one report of it, in millionths, rounded up.

        Of a memoised metric: epsilon_inf's, which each report adds at most; over many a loose bound.
        """
        if self.memo is not None:
            return _pure_micro_rho(self.memo.inf_micro / 1_000_000)
        return sum(micro_rho(loss) for loss in self.losses)

    @property
    def width(self) -> float | None:
        """Of its range, in the metric's unit; above 0 wherever the range is, however far from 0. None: of labels.

        Of a vector: that of any coordinate alone, 2 clip.
        """
        if self.vector is not None:
            return 2.0 * float(self.vector.clip)
        return None if self.lower is None or self.upper is None else float(Fraction(self.upper) - Fraction(self.lower))

    def is_expired(self, period_start: int) -> bool:
        """Does the period start on the day that it expires, or later? From the period alone: alike on all devices."""
        return self.expires is not None and period_start >= (self.expires.toordinal() - EPOCH_DAY) * DAY_S

    def __repr__(self) -> str:
        return f"Metric({self.name}: {self.kind}, {self.mechanism.name}, epsilon {self.epsilon})"


def report_cost(metrics: Iterable[Metric], sample_metrics: int | None) -> int:
    """The dearest `sample_metrics` of these (None: all), in micro-epsilon."""
    return sum(sorted((metric.micro_epsilon for metric in metrics), reverse=True)[:sample_metrics])


def micro_rho(loss: PrivacyLoss) -> int:
    """Zero-concentrated loss in millionths, rounded up: of Gaussian noise its own, else epsilon tanh(epsilon / 2).

    The latter bounds every pure mechanism (accounting reference, *Local composition*).
    """
    if loss.delta:
        return loss.micro_rho
    return _pure_micro_rho(float(loss.epsilon))


def _pure_micro_rho(epsilon: float) -> int:
    return int(epsilon * tanh(epsilon / 2.0) * 1_000_000) + 1


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The public contract of one version of one plan. Equal when the hashes are.

    metrics: read-only, ordered by name. sample_metrics: each report holds this many of them, drawn anew for each
    period without a look at the data; None: all. removed_metrics: names of earlier versions that may never come back.
    text: the TOML as it was written. hash: SHA-256 of the canonical
    form, 32 bytes. registrar: None where the plan names none. Times in whole seconds.
    """

    name: str
    version: int
    period_s: int
    max_delay_s: int
    upload_window_s: int
    cohort: CohortRules
    budget: BudgetRules
    delivery: DeliveryRules
    metrics: Mapping[str, Metric]
    text: str
    registrar: Registrar | None = None
    sample_metrics: int | None = None
    removed_metrics: tuple[str, ...] = ()
    hash: bytes = field(default=b"")

    @cached_property
    def length(self) -> int:
        """Elements of a report's vector."""
        return sum(metric.mechanism.length for metric in self.metrics.values()) + len(self.counts)

    @cached_property
    def bound(self) -> int:
        """Largest absolute value of any element of one report."""
        return max(metric.mechanism.bound for metric in self.metrics.values())

    @cached_property
    def report_micro_epsilon(self) -> int:
        """What one report costs: the sum over the metrics that it can hold at most (basic composition), micro-epsilon.

        With `sample_metrics` = m that is the m dearest, whichever were drawn: the charge must not tell. Of a memoised
        metric: its dearest report; what any number of reports costs together says `spent_micro`.
        """
        return report_cost(self.metrics.values(), self.sample_metrics)

    @cached_property
    def memos(self) -> Mapping[str, MemoCharge]:
        """The charges of the memoised metrics, by name."""
        return MappingProxyType({name: metric.memo for name, metric in self.metrics.items() if metric.memo is not None})

    @cached_property
    def plain_micro_epsilon(self) -> int:
        """What each report costs without its memoised metrics."""
        return self.report_micro_epsilon - sum(memo.dearest for memo in self.memos.values())

    def spent_micro(self, reports: int) -> int:
        """What a device's first so many reports cost together, micro-epsilon; a function of their number alone."""
        return reports * self.plain_micro_epsilon + sum(memo.total(reports) for memo in self.memos.values())

    def reports_within(self, micro_epsilon: int, earlier: int = 0) -> int:
        """How many more reports the amount pays for after `earlier` ones."""
        if not self.memos:
            return micro_epsilon // self.report_micro_epsilon
        before, low, high = self.spent_micro(earlier), 0, micro_epsilon
        while low < high:  # each report costs at least one millionth
            middle = (low + high + 1) // 2
            fits = self.spent_micro(earlier + middle) - before <= micro_epsilon
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    @cached_property
    def report_micro_rho(self) -> int:
        """The same in zero-concentrated loss, of the metrics with the largest; millionths."""
        return sum(sorted((metric.micro_rho for metric in self.metrics.values()), reverse=True)[: self.sample_metrics])

    @cached_property
    def lifetime_reports(self) -> int:
        """How many reports the lifetime budget lets through, in epsilon and in rho."""
        by_epsilon = self.reports_within(self.budget.lifetime_micro)
        limit = self.budget.lifetime_micro_rho
        return by_epsilon if limit is None else min(by_epsilon, limit // self.report_micro_rho)

    @cached_property
    def report_delta(self) -> Decimal:
        """What one report's epsilon holds up to: the sum over the metrics (basic composition), 0 without Gaussians."""
        return sum((metric.delta for metric in self.metrics.values()), Decimal(0))

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Where each metric's elements stand in the vector, in the order of `metrics`."""
        places, start = {}, 0
        for name, metric in self.metrics.items():
            places[name] = slice(start, start + metric.mechanism.length)
            start += metric.mechanism.length + (self.sample_metrics is not None)
        return MappingProxyType(places)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Where the element right after each metric's says whether the report holds it (1) or zeros (0).

        Summed: the contributors of that metric. Empty where every report holds every metric.
        """
        if self.sample_metrics is None:
            return MappingProxyType({})
        return MappingProxyType({name: place.stop for name, place in self.slices.items()})

    def period_start(self, now: float) -> int:
        """Start of the period that `now` (seconds since the epoch) lies in: [start, start + period_s), UTC."""
        return int(now // self.period_s) * self.period_s

    def round_rules(self) -> RoundRules:
        """What both ends of a secure-aggregation round take from the plan."""
        from client_sdk.secagg.parameters import RoundRules

        return RoundRules(
            min_size=self.cohort.min_size,
            corrupt_fraction=self.cohort.corrupt_fraction,
            dropout_fraction=self.cohort.dropout_fraction,
            max_wait_s=self.cohort.max_wait_s,
            length=self.length,
            bound=self.bound,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"Plan({self.name} version {self.version}, {len(self.metrics)} metrics, {self.hash.hex()[:12]})"

    def __reduce__(self) -> tuple[Callable[[str], Plan], tuple[str]]:
        # A plan travels between processes as its text: the reader checks it again.
        from client_sdk.plan.parse import parse_plan

        return parse_plan, (self.text,)
