"""The range of a metric of numbers: its ends, its lattice or bins, the quantiles asked for, and its default.

Rules of this file: bins lie between their edges, [a, b), the last one closed; bins of equal width are written by
`lower`, `upper` and `bins`, any others by `edges`, and both ways of writing the same edges are the same plan.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from client_sdk.plan import defaults
from client_sdk.plan.bins import equal_edges
from client_sdk.plan.fields import Table, shown
from client_sdk.plan.model import Kind, OnDevice
from client_sdk.plan.slicing import LEVELS_MAX as SLICED_LEVELS_MAX

MAX_LEVELS: Final = 1 << 20
MIN_BINS, MAX_BINS = 2, 4096
MAX_QUANTILES: Final = 32


def read_range(
    table: Table, kind: Kind, on_device: OnDevice, *, optional: bool, sliced: bool = False
) -> dict[str, Any]:
    """What a kind of numbers has beside the common fields, as the Metric's fields; `levels` 0: left open (sliced)."""
    found: dict[str, Any] = {}
    edges: tuple[Decimal, ...] = ()
    if kind != "numeric" and "edges" in table.data:
        edges = _edges(table)
        lower, upper = (edges[0], edges[-1]) if edges else (Decimal(0), Decimal(1))
    else:
        lower, upper = _ends(table)
    if sliced:
        found["levels"] = table.integer("levels", 1, SLICED_LEVELS_MAX, default=0)
    elif kind == "numeric":
        found["levels"] = table.integer("levels", 2, MAX_LEVELS, default=defaults.LEVELS)
    elif "edges" not in table.data:
        bins = table.integer("bins", MIN_BINS, MAX_BINS, default=defaults.BINS)
        edges = equal_edges(lower, upper, bins) if lower < upper else ()
    if kind == "quantiles":
        found["quantiles"] = _quantiles(table)
    default = None if optional else _default(table, on_device, lower, upper)
    return found | {"lower": lower, "upper": upper, "edges": edges, "default": default}


def _ends(table: Table) -> tuple[Decimal, Decimal]:
    lower, upper = table.decimal("lower", example="0"), table.decimal("upper", example="100")
    if table.clean and lower >= upper:
        table.problem("lower", f"must be below upper, but {shown(lower)} is not below {shown(upper)}")
    return lower, upper


def _edges(table: Table) -> tuple[Decimal, ...]:
    for field in ("lower", "upper", "bins"):
        if table.take(field, "", optional=True) is not None:
            table.problem(field, "`edges` says where the bins lie; remove one of the two")
    edges = table.decimals("edges", MIN_BINS + 1, MAX_BINS + 1, example="[0, 10, 100]")
    for before, after in pairwise(edges):
        if before >= after:
            table.problem("edges", f"must ascend, but {shown(before)} is not below {shown(after)}")
            return ()
    return edges


def _quantiles(table: Table) -> tuple[Decimal, ...]:
    if "quantiles" not in table.data:
        table.take("quantiles", "", optional=True)
        return defaults.QUANTILES
    asked = table.decimals("quantiles", 1, MAX_QUANTILES, example="[0.5, 0.9, 0.99]")
    if not all(0 < q < 1 for q in asked) or any(a >= b for a, b in pairwise(asked)):
        table.problem("quantiles", "each must lie above 0 and below 1, and they must ascend, like [0.5, 0.9, 0.99]")
    return asked


def _default(table: Table, on_device: OnDevice, lower: Decimal, upper: Decimal) -> Decimal:
    if table.take("default", "", optional=True) is None:
        return defaults.number(on_device, lower, upper)
    value = table.decimal("default")
    if not table.clean:
        return value
    if on_device in {"count", "sum"}:
        if value != 0:
            table.problem("default", f"a {on_device} without readings is 0; remove the field")
    elif not lower <= value <= upper:
        table.problem("default", f"must lie within lower and upper, not {shown(value)}")
    return value
