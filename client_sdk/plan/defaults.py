"""Defaults of the plan, said once: the parser fills them in, the canonical form leaves them out.

A default is part of the hash by its absence. So none of these may ever change: a new wish is a new field,
whose default is what was done before.
"""

from __future__ import annotations

from decimal import Decimal

from client_sdk.plan.exact import EXACT

CORRUPT_FRACTION = "0.1"
DROPOUT_FRACTION = "0.1"
MAX_WAIT_S = 30
LEVELS = 1000
ON_DEVICE = "last"
RESEND = "same_bytes"
DELIVERY = "interactive"
FALLBACK = "none"
MECHANISM = {"numeric": "laplace", "categorical": "randomized_response", "histogram": "auto", "quantiles": "auto"}
BINS = 20
QUANTILES = (Decimal("0.5"), Decimal("0.9"), Decimal("0.99"))
PRESENCE_SHARE = Decimal("0.25")
VECTOR_LEVELS = 4096
CALIBRATION = "analytic"
MOST_DISTINCT = 4


def max_delay_s(period_s: int) -> int:
    """Older reports expire on the device: after one period."""
    return period_s


def upload_window_s(period_s: int) -> int:
    """Uploads are spread over a quarter of the period."""
    return max(1, period_s // 4)


def fallback_after_s(max_delay_s: int) -> int:
    """A report that found no cohort waits for half of its life before it goes unmasked."""
    return max_delay_s // 2


def rolling_24h_micro(period_s: int, report_micro_epsilon: int) -> int:
    """ceil(24 h / period) + 1 reports: a window of 24 h can touch one period more than fit into it."""
    return (-(-86_400 // period_s) + 1) * report_micro_epsilon


def epsilon_inf(epsilon: Decimal) -> Decimal:
    """What all reports of one memoised value lose together: twice what the first one does."""
    return min(EXACT.multiply(epsilon, Decimal(2)), Decimal(40))


def max_distinct(labels: int) -> int:
    """Values that a memoised metric ever answers for."""
    return min(labels, MOST_DISTINCT)


def number(on_device: str, lower: Decimal, upper: Decimal) -> Decimal:
    """A number without a reading: 0 for `count` and `sum` (nothing happened), else the middle of the range."""
    if on_device in {"count", "sum"}:
        return Decimal(0)
    return EXACT.divide(EXACT.add(lower, upper), Decimal(2))


def category(categories: tuple[str, ...], other: str | None) -> str:
    """A category without a reading: `other` where declared, else the first one."""
    return categories[0] if other is None else other
