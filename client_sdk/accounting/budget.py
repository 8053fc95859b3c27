"""Budgets: amounts of epsilon as integers of micro-epsilon, and the check before a charge.

Rules of this file: an amount is a finite decimal, never a binary fraction, so that three charges of 0.1 fill
a budget of 0.3 exactly; conversion rounds against the sender (a cost up, a limit down); anything else (NaN,
infinity, a negative or vanishing amount, "1_000", "0x1") is refused, because a meaningless amount is no
limit. A limit of zero means that nothing may be sent; only `None` means that this limit does not exist.
A charge is never refunded and a clock set back never renews.
What it does not do: it stores nothing and knows no clock. Check and charge must be one transaction of the
caller's store, or two processes both see the last of the budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from client_sdk.errors import BudgetExceededError, ConfigurationError, RefusalReason, StorageError

MICRO = 1_000_000
"""Micro-epsilon in one epsilon: the unit of every ledger."""

MAX_EPSILON = 10**9
"""Largest amount taken (10^15 micro-epsilon): thousands of them still add up within 64 bits."""

WINDOW_S = 86_400
"""The rolling window of `rolling_24h`, in seconds."""

Amount = Decimal | int | float | str
"""An amount of epsilon as a human gives it. A float counts as the decimal it prints as."""

_PLAIN = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60})?(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
_EXACT = Context(prec=200)


def to_micro(amount: Amount) -> int:
    """The cost `amount` in micro-epsilon, rounded up. Raises ConfigurationError below one unit."""
    value = _decimal(amount)
    if value < Decimal(1) / MICRO:
        raise ConfigurationError("an epsilon must be at least 0.000001, the unit of the ledger")
    return int(_EXACT.multiply(value, Decimal(MICRO)).to_integral_value(ROUND_CEILING))


def limit_to_micro(amount: Amount) -> int:
    """The limit `amount` in micro-epsilon, rounded down. Zero is a limit: nothing may be sent."""
    value = _decimal(amount)
    if 0 < value < Decimal(1) / MICRO:
        raise ConfigurationError("a budget must be 0 or at least 0.000001, the unit of the ledger")
    return int(_EXACT.multiply(value, Decimal(MICRO)).to_integral_value(ROUND_FLOOR))


def _decimal(amount: Amount) -> Decimal:
    if isinstance(amount, bool) or not isinstance(amount, (Decimal, int, float, str)):
        raise ConfigurationError(f"an amount of epsilon must be a decimal number, not {type(amount).__name__}")
    # str() of a float is its shortest decimal, the one that its author wrote. The huge int is stopped first:
    # Python refuses to print it.
    if isinstance(amount, int) and not -MAX_EPSILON <= amount <= MAX_EPSILON:
        raise ConfigurationError(f"an amount of epsilon must lie between 0 and {MAX_EPSILON}")
    text = str(amount)
    if not _PLAIN.fullmatch(text):
        raise ConfigurationError(
            "an amount of epsilon must be a finite decimal that is not negative, written in plain digits"
        )
    value = Decimal(text)
    if value > MAX_EPSILON:
        raise ConfigurationError(f"an amount of epsilon must lie between 0 and {MAX_EPSILON}")
    return value


def format_micro(micro_epsilon: int) -> str:
    """Micro-epsilon as a plain decimal: no exponent, no digit that was not put in. 333333 -> "0.333333"."""
    sign, (whole, rest) = "-" if micro_epsilon < 0 else "", divmod(abs(micro_epsilon), MICRO)
    return sign + f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent, in micro-epsilon: by one report, in 24 hours, ever. None: no such limit.

    *_rho: the same for the zero-concentrated loss, in millionths; both kinds hold at once.
    """

    report: int | None = None
    rolling_24h: int | None = None
    lifetime: int | None = None
    report_rho: int | None = None
    rolling_24h_rho: int | None = None
    lifetime_rho: int | None = None

    def __post_init__(self) -> None:
        for limit in self._all():
            if limit is not None and (type(limit) is not int or limit < 0):
                raise ConfigurationError("a limit must be a whole number of millionths (micro-epsilon), 0 or more")

    def _all(self) -> tuple[int | None, ...]:
        return (
            self.report, self.rolling_24h, self.lifetime, self.report_rho, self.rolling_24h_rho, self.lifetime_rho
        )  # fmt: skip

    def lowered_to(self, other: Limits) -> Limits:
        """The stricter of the two, limit by limit: how a host's wishes meet a plan's. Never raises one."""
        pairs = zip(self._all(), other._all(), strict=True)
        return Limits(*(min((x for x in pair if x is not None), default=None) for pair in pairs))


def check_charge(
    limits: Limits, spent_24h_micro_epsilon: int, spent_lifetime_micro_epsilon: int, cost_micro_epsilon: int
) -> None:
    """Pass silently when `cost` still fits into every limit; BudgetExceededError names the first that it breaks.

    All amounts in micro-epsilon. The caller holds its store's write lock from here to the charge.
    """
    if type(cost_micro_epsilon) is not int or cost_micro_epsilon < 1:
        raise ConfigurationError("a charge must be a whole number of micro-epsilon, at least 1")
    if spent_24h_micro_epsilon < 0 or spent_lifetime_micro_epsilon < 0:
        raise StorageError("the ledger holds a negative total; reset it before anything is sent")
    for limit, spent, reason in (
        (limits.report, 0, RefusalReason.BUDGET_REPORT),
        (limits.rolling_24h, spent_24h_micro_epsilon, RefusalReason.BUDGET_24H),
        (limits.lifetime, spent_lifetime_micro_epsilon, RefusalReason.BUDGET_LIFETIME),
    ):
        if limit is not None and spent + cost_micro_epsilon > limit:
            raise BudgetExceededError(reason, cost_micro_epsilon, max(0, limit - spent))


def check_rho(limits: Limits, spent_24h_micro_rho: int, spent_lifetime_micro_rho: int, cost_micro_rho: int) -> None:
    """The same for the limits in zero-concentrated loss. BudgetExceededError(BUDGET_RHO), its amounts in millionths."""
    for limit, spent in (
        (limits.report_rho, 0),
        (limits.rolling_24h_rho, spent_24h_micro_rho),
        (limits.lifetime_rho, spent_lifetime_micro_rho),
    ):
        if limit is not None and spent + cost_micro_rho > limit:
            raise BudgetExceededError(RefusalReason.BUDGET_RHO, cost_micro_rho, max(0, limit - spent))


def charge_time(now: float, last_charged_at: float | None) -> float:
    """The time to book a charge at: never before the last one, so a clock set back cannot renew a budget."""
    return now if last_charged_at is None else max(now, last_charged_at)


def spent_in_window(charges: Iterable[tuple[float, int]], now: float) -> int:
    """Micro-epsilon of the (charged_at, micro_epsilon) rows in (now - 24 h, now].

    `now` counts as no earlier than the last charge: with the clock set back, nothing falls out of the window,
    and nothing that is stored can lie in its future.
    """
    rows = list(charges)
    end = charge_time(now, max((at for at, _ in rows), default=None))
    # now - at < 24 h, exactly: as binary fractions the subtraction may round across the window's edge
    start = Fraction(end) - WINDOW_S
    return sum(micro for at, micro in rows if Fraction(at) > start)
