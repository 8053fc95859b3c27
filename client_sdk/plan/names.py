"""Names over the versions of a plan: one that is given up never comes back with another meaning.

Rules of this file: a metric's name and a label of a categorical metric mean the same in every version that has them.
A later version that no longer has one lists it as removed, and so does every version after that; a removed name is
in use never again. A metric keeps its kind, whether it tells values from absence and what it is sliced by, a histogram
its bins, a vector its dimension; a label stays a category, stays the place for unknown ones, or stays the product's own
for no reading.
One line for each field that breaks this, beginning with the field's name.
What it does not do: find a rename. A label with another spelling is another label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from client_sdk.mechanisms.categories import ABSENT
from client_sdk.plan.fields import shown
from client_sdk.plan.model import Metric, Plan

SHOWN: Final = 3
"""Names in one line; a hundred thousand labels may be gone."""


def broken_names(earlier: Plan, later: Plan) -> tuple[str, ...]:
    """What `later`, a later version of `earlier`'s plan, does with names that it may not; nothing: all is well."""
    return tuple(_broken(earlier, later))


def _broken(earlier: Plan, later: Plan) -> Iterator[str]:
    for name in _among(later.metrics, earlier.removed_metrics):
        yield f"metrics.{name}: version {earlier.version} had removed this name; it never comes back, take a new one"
    gone = _among((*earlier.metrics, *earlier.removed_metrics), (*later.metrics, *later.removed_metrics), instead=True)
    if gone:
        yield f"plan.removed_metrics: must list {listed(gone)}, known to version {earlier.version} and no longer here"
    for name, metric in later.metrics.items():
        before = earlier.metrics.get(name)
        if before is not None:
            yield from _broken_metric(before, metric, earlier.version)


def _broken_metric(before: Metric, now: Metric, version: int) -> Iterator[str]:
    where = f"metrics.{now.name}"
    if before.kind != now.kind:
        yield f"{where}.kind: {now.kind}, but {before.kind} in version {version}; another kind is another metric's name"
    elif before.slice_by != now.slice_by:
        old, new = (f"sliced by {metric.slice_by}" if metric.slice_by else "not sliced" for metric in (before, now))
        yield f"{where}.slice_by: {new}, but {old} in version {version}: other sums; take a new metric name"
    elif before.mechanism.answer != now.mechanism.answer:
        yield (
            f"{where}.optional: a mean over all devices and one over those with a reading are two things (version "
            f"{version} has the other); take a new name"
        )
    elif now.kind == "categorical":
        yield from _broken_labels(before, now, version)
    elif before.vector is not None and now.vector is not None and before.vector.dimension != now.vector.dimension:
        yield (
            f"{where}.dimension: {now.vector.dimension}, but {before.vector.dimension} in version {version}: sums of "
            "different vectors do not add up; take a new metric name"
        )
    elif now.kind == "histogram" and before.edges != now.edges:
        yield (
            f"{where}: other bins than in version {version}, whose counts would stand beside these under one name; "
            "take a new metric name"
        )


def _broken_labels(before: Metric, now: Metric, version: int) -> Iterator[str]:
    where = f"metrics.{now.name}"
    came_back = _among(labels(now), before.removed)
    if came_back:
        yield f"{where}.categories: version {version} had removed {listed(came_back)}; a removed one never comes back"
    gone = _among((*labels(before), *before.removed), (*labels(now), *now.removed), instead=True)
    if gone:
        yield f"{where}.removed: must list {listed(gone)}, known to version {version} and no longer here"
    if now.optional and ABSENT in (*labels(before), *before.removed):
        yield f"{where}.optional: {shown(ABSENT)} was a label of its own in version {version}; take a new metric name"
    if before.optional and ABSENT in labels(now):
        yield f"{where}.categories: {shown(ABSENT)} meant no reading in version {version}; take a new label"
    if before.other is not None and before.other in now.categories:
        yield f"{where}.categories: {shown(before.other)} held unknown ones in version {version}; take a new label"
    if now.other is not None and now.other in before.categories:
        yield f"{where}.other: {shown(now.other)} was a category in version {version}; take a new label"


def labels(metric: Metric) -> tuple[str, ...]:
    """A categorical metric's labels that the plan names: its categories, then `other`."""
    return metric.categories if metric.other is None else (*metric.categories, metric.other)


def _among(names: Iterable[str], known: Iterable[str], *, instead: bool = False) -> list[str]:
    """Those of `names` that are known; or, `instead`, those that are not."""
    lookup = set(known)
    return [name for name in names if (name in lookup) is not instead]


def listed(names: list[str]) -> str:
    """The first three, quoted, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(map(shown, names[:SHOWN])) + (f" and {more} more" if more > 0 else "")
