"""When is a number worth reading? One rule, for the report (what came out) and for `plan check` (what to expect).

Too few: fewer than `FEWEST` contributors, or no value at all. Too noisy: the 95 % interval for these contributors is
wider than the tolerance. A count's tolerance is the count itself, or 2 % of the contributors where that is more: it
is known to within half of itself, or to within 1 % of everybody. A mean's, and a quantile's, is a tenth of the range.
"""

from __future__ import annotations

from typing import Final, Literal

Verdict = Literal["usable", "too noisy", "too few"]

FEWEST: Final = 30
"""Below, an interval by the normal law says little, and so does its width."""

COUNT_TOLERANCE: Final = 0.02
RANGE_TOLERANCE: Final = 0.1

_ROUNDING: Final = 1e-9
"""An interval of whole bins that is just a tenth of the range may come out an ulp wider."""

RULE: Final = (
    f"too few: under {FEWEST} contributors, or no value; too noisy: a 95 % interval wider than a tenth of the range, "
    "or, of a count, wider than the count and than 2 % of the contributors"
)


def count_tolerance(count: float, contributors: int) -> float:
    """How wide a count's interval may be. An estimate above the contributors is noise and buys no room."""
    return max(min(count, contributors), COUNT_TOLERANCE * contributors)


def range_tolerance(width: float) -> float:
    """How wide the interval of a mean or a quantile may be. width: of the metric's range, in its unit."""
    return RANGE_TOLERANCE * width


def verdict(width: float | None, tolerance: float, contributors: int) -> Verdict:
    """Of one row. width: of its 95 % interval, None where it has no value or no interval."""
    if width is None or contributors < FEWEST:
        return "too few"
    return "usable" if is_within(width, tolerance) else "too noisy"


def is_within(width: float, tolerance: float) -> bool:
    """Is an interval no wider than it may be, but for rounding?"""
    return width <= tolerance * (1.0 + _ROUNDING)
