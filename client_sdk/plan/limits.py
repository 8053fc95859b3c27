"""How much work a plan's text may ask for, said before any of it is done: a few kB can declare hours of it.

Rules of this file: looks at the raw tables alone, at each field once, and builds nothing. What is no number, no list
or no table here is somebody else's problem to name. With these limits, and those of the text itself, a plan of the
largest size is read or refused in about two seconds of a processor.
What it does not do: weigh what the text itself holds (labels, edges), which `MAX_PLAN_BYTES` keeps small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from client_sdk.plan import defaults

MAX_METRICS: Final = 1_000
MAX_BINS_IN_ALL: Final = 65_536
"""Of all histograms and quantiles together: each bin has an edge, a label and a fraction to be made."""
MAX_SEARCHES: Final = 64
"""Different settings whose best window, or noise, is looked for in exact arithmetic, up to 20 milliseconds each."""

SEARCHED: Final = ("auto", "piecewise", "hybrid")
_Fields = Mapping[str, object]


def too_much(metrics: object, max_length: int) -> str | None:
    """Why the raw table `metrics` asks for more than one plan may; None: it does not.

    max_length: elements of one report's vector.
    """
    if not isinstance(metrics, dict):
        return None
    if len(metrics) > MAX_METRICS:
        return f"{len(metrics)} metrics; a plan has at most {MAX_METRICS}"
    tables = [table for table in metrics.values() if isinstance(table, dict)]
    bins = sum(_bins(table) for table in tables)
    if bins > MAX_BINS_IN_ALL:
        return f"{bins} bins over all metrics; a plan has at most {MAX_BINS_IN_ALL}; take fewer and wider ones"
    length = bins + sum(_labels(table) * _points(table, metrics) for table in tables)
    if length > max_length:
        return f"a report would have {length} elements or more; the limit is {max_length} elements"
    searches = len(set(_searches(tables)))
    if searches > MAX_SEARCHES:
        return (
            f"{searches} different settings (epsilon, levels, presence_share) of {', '.join(SEARCHED)} numbers, "
            "(epsilon, levels, slice_by) of sliced ones and (epsilon, delta) of gaussian vectors; "
            f'a plan has at most {MAX_SEARCHES}; give metrics the same ones, or mechanism = "laplace"'
        )
    return None


def _bins(table: _Fields) -> int:
    if table.get("kind") not in ("histogram", "quantiles"):
        return 0
    edges, bins = table.get("edges"), table.get("bins", defaults.BINS)
    if isinstance(edges, list):
        return max(0, len(edges) - 1)
    return bins if type(bins) is int and bins > 0 else 0


def _labels(table: _Fields) -> int:
    if table.get("kind") == "numeric":
        return 1
    if table.get("kind") == "vector":
        dimension = table.get("dimension")
        return dimension if type(dimension) is int and dimension > 0 else 0
    labels = table.get("categories") if table.get("kind") == "categorical" else None
    return len(labels) if isinstance(labels, list) else 0


def _points(table: _Fields, metrics: Mapping[str, object]) -> int:
    """Elements for each that `_labels` counts: of a sliced number slices times points, two or more."""
    by = table.get("slice_by")
    if table.get("kind") != "numeric" or by is None:
        return 1
    slicer, levels = metrics.get(by) if isinstance(by, str) else None, table.get("levels")
    slices = _labels(slicer) if isinstance(slicer, dict) and slicer.get("kind") == "categorical" else 1
    return slices * (levels + 1 if type(levels) is int and levels > 0 else 2)


def _searches(tables: Sequence[_Fields]) -> Iterator[tuple[object, ...]]:
    for table in tables:
        if table.get("kind") == "numeric" and table.get("mechanism") in SEARCHED:
            settings = tuple(table.get(field) for field in ("epsilon", "levels", "presence_share", "optional"))
            # others are refused before anything is looked for; a list could not even be put into a set
            if all(value is None or isinstance(value, (int, Decimal)) for value in settings):
                yield settings
        if table.get("kind") == "numeric" and "slice_by" in table:
            choice = tuple(table.get(field) for field in ("epsilon", "levels", "optional", "mechanism", "slice_by"))
            if all(value is None or isinstance(value, (int, Decimal, str)) for value in choice):
                yield ("sliced", *choice)
        if table.get("kind") == "vector" and table.get("norm") == "l2":
            noise = tuple(table.get(field) for field in ("epsilon", "delta", "calibration"))
            if all(value is None or isinstance(value, (int, Decimal, str)) for value in noise):
                yield ("vector", *noise)
