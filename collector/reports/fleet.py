"""What the devices of a fleet have spent, as distributions: how many devices, and no device.

Of each window, and of the lifetime always, the smallest, the median, the 95th and 99th percentile and the largest over
devices, of the three epsilons of `privacy.py`. A percentile is a value that some device has: at least that share of all
devices have no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from client_sdk.accounting.budget import MICRO
from collector.accounting.basic import FleetSum, distribution
from collector.accounting.figures import ACCOUNTANT, CONDITIONS
from collector.reports.privacy import as_plain, composition, rounded_up
from collector.reports.text import Cell, micro_as_number

QUANTILES: Final = {"min": 0.0, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
EPSILONS: Final = {
    "eps_local_pure": "local, pure",
    "eps_local": "local",
    "eps_central": "central",
}
CLOSED_FORM: Final = "closed form"
EXACT: Final = "exact composition of like histories"
NOT_COMPUTED: Final = "not computed here; ask with --window"

_CONDITIONS: Final = ("method", "central_method", "n_h", "n_min", "by_plain_sum", "eps_delta")
FLEET_COLUMNS: Final = (
    "devices", "epsilon_local_min", "epsilon_local_median", "epsilon_local_max", "window",
    *(f"{epsilon}_{quantile}" for epsilon in EPSILONS for quantile in QUANTILES), *_CONDITIONS,
)  # fmt: skip
TABLE_COLUMNS: Final = ("window and epsilon", *QUANTILES, "n_h", "n_min", "method")

Weighted = Iterable[tuple[float, int]]
"""(epsilon, devices that have it)."""


def fleet_privacy(lifetimes_micro: Sequence[int], *, is_pure: bool) -> dict[str, Any]:
    """`{devices, epsilon_local{min, median, max}}` over devices with a counted report; nulls over nobody.

    is_pure: see `composition`.
    """
    d = distribution(lifetimes_micro)
    smallest, middle, largest = (micro_as_number(x) for x in (d.min_micro, d.median_micro, d.max_micro))
    return {
        "devices": d.devices,
        "epsilon_local": {"min": smallest, "median": middle, "max": largest},
        **composition(is_pure=is_pure),
    }


def with_windows(document: Mapping[str, Any], windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Such a document with what `fleet_window` says of some windows."""
    return {**document, "windows": list(windows), "conditions": CONDITIONS, "accountant": ACCOUNTANT}


def fleet_window(
    window: str,
    sums: Sequence[FleetSum],
    local: Weighted,
    central: Weighted | None,
    *,
    delta: float,
    is_pure: bool,
    n_h: int | None = None,
    n_min: int | None = None,
) -> dict[str, Any]:
    """sums: for the pure epsilon. central: None where it was not computed, and then `local` is of the closed form.

    is_pure: no plan has a delta of its own, so a plain sum bounds the composed epsilon. Histories that were rounded
    cost more than they are: each percentile is then the least of what bounds it. n_h: the smallest that was assumed.
    n_min: contributors of the smallest sum.
    """
    pure = quantiles((one.micro_epsilon / MICRO, one.devices) for one in sums)
    composed = _least(quantiles(local), pure) if is_pure else quantiles(local)
    return {
        "window": window,
        "devices": sum(one.devices for one in sums),
        "eps_local_pure": pure,
        "eps_local": composed,
        "eps_central": None if central is None else _least(quantiles(central), composed),
        "method": CLOSED_FORM if central is None else EXACT,
        "central_method": NOT_COMPUTED if central is None else EXACT,
        "n_h": n_h,
        "n_min": n_min,
        # of whom plans changed after sums were seen, or whose spending has no rows
        "by_plain_sum": sum(one.devices for one in sums if not one.whole),
        "eps_delta": delta,
    }


def _least(values: Mapping[str, float | None], bounds: Mapping[str, float | None]) -> dict[str, float | None]:
    """Percentile by percentile: where both bound every device's number, both bound its percentiles."""
    return {
        name: value if value is None or (bound := bounds[name]) is None else min(value, bound)
        for name, value in values.items()
    }


def quantiles(values: Weighted) -> dict[str, float | None]:
    """Of QUANTILES each, None over nobody."""
    ordered = sorted(values)
    devices = sum(weight for _, weight in ordered)
    return {name: _at(ordered, share * devices) for name, share in QUANTILES.items()}


def _at(ordered: Sequence[tuple[float, int]], rank: float) -> float | None:
    """The first value with which as many devices as `rank` have no more."""
    seen = 0
    for value, weight in ordered:
        seen += weight
        if seen >= rank:
            return value
    return None


def fleet_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row per window, in FLEET_COLUMNS, amounts as plain decimals."""
    return [_row(document, row) for row in document["windows"]]


def _row(document: Mapping[str, Any], row: Mapping[str, Any]) -> list[Cell]:
    pure, booked = row["eps_local_pure"], document["epsilon_local"]
    if row["window"] == "lifetime":
        first = [as_plain(booked[name]) for name in ("min", "median", "max")]
    else:
        first = [as_plain(pure[name]) for name in ("min", "p50", "max")]
    epsilons = [None if row[name] is None else row[name][quantile] for name in EPSILONS for quantile in QUANTILES]
    return [row["devices"], *first, row["window"], *epsilons, *(row[name] for name in _CONDITIONS)]


def table_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """For the eye, in TABLE_COLUMNS: a row for each epsilon of each window; central ones beside their n_h."""
    return [
        [f"{row['window']}: {words}", *_digits(name, row[name]), *_beside(name, row)]
        for row in document["windows"]
        for name, words in EPSILONS.items()
    ]


def _digits(name: str, values: Mapping[str, float | None] | None) -> list[Cell]:
    found = [None if values is None else values[quantile] for quantile in QUANTILES]
    if name == "eps_local_pure":
        return [as_plain(value) for value in found]
    return [None if value is None else rounded_up(value) for value in found]


def _beside(name: str, row: Mapping[str, Any]) -> list[Cell]:
    if name == "eps_central":
        return [row["n_h"], row["n_min"], row["central_method"]]
    return [None, None, "basic composition" if name == "eps_local_pure" else row["method"]]
