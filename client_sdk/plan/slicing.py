"""`slice_by`: a number told together with the category of another metric of the same plan.

Rules of this file: only numbers are sliced, and only by a categorical metric whose labels the plan lists; the slice is
the category that this other metric would report in the same report. A sliced number is one metric over the product of
slices and points: its epsilon is that of the whole answer, whatever the other metric costs by itself. Which mechanism
and how fine a lattice have the least error follows from the plan (`mechanisms.sliced_choice`), where it names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from client_sdk.plan.fields import Table, shown
from client_sdk.plan.model import Kind, Metric

if TYPE_CHECKING:
    from client_sdk.mechanisms import Mechanism
    from client_sdk.mechanisms.categories import CategoricalMechanism

FIELD: Final = "slice_by"
LEVELS_MAX: Final = 64
WORDS: Final = ("auto", "randomized_response", "symmetric_unary", "optimized_unary", "subset_selection")

UNDECLARED: Final = (
    "{metrics} collected by {by}: reports were added up before anybody saw them, and a sum cannot be split; give a new "
    'metric slice_by = "{by}" in the next plan version: one metric over the product, priced as one'
)
"""What whoever asks for slices of sums is told where no plan declared them."""


def is_sliced(data: object) -> bool:
    """Does this raw table ask for slices?"""
    return isinstance(data, dict) and FIELD in data


def why_no_slices(metrics: Iterable[Metric], by: str) -> str | None:
    """One line for whoever asks these metrics for slices by `by`; None where some of them were collected so."""
    listed = list(metrics)
    if any(metric.slice_by == by for metric in listed):
        return None
    numbers = sorted({metric.name for metric in listed if metric.kind == "numeric"})
    if listed and not numbers:
        other = listed[0]
        return f"{other.name} is {other.kind}; only numbers are collected by the categories of another metric"
    some = (
        f"{', '.join(numbers[:3])}{' and others' if len(numbers) > 3 else ''} {'was' if len(numbers) == 1 else 'were'}"
    )
    return UNDECLARED.format(metrics=f"{some} not" if numbers else "nothing was", by=by)


def read_slice(table: Table, kind: Kind, declared: Iterable[str], metrics: Mapping[str, Metric]) -> Metric | None:
    """The metric whose categories are the slices, or None, with the problem noted, where it cannot be one.

    declared: all names of the plan; metrics: those that could be read so far, unsliced ones.
    """
    name = table.take(FIELD, "")
    if kind != "numeric":
        table.problem(FIELD, f"only numbers are sliced, not {kind}; remove it")
        return None
    by = metrics.get(name) if isinstance(name, str) else None
    if by is None:
        # one that is declared has problems of its own, which have been told, or is sliced itself
        known = isinstance(name, str) and name in tuple(declared) and f"metrics.{name}" != table.path
        what = "is sliced itself, or has problems of its own" if known else "is no other metric of this plan"
        table.problem(FIELD, f"must name a categorical metric; {shown(name)} {what}")
        return None
    if by.kind != "categorical":
        table.problem(FIELD, f"must name a categorical metric; {by.name} is {by.kind}")
        return None
    if by.memo is not None:
        table.problem(FIELD, f"{by.name} is memoised: slices would tell its category anew in each report; take another")
        return None
    return by


def build_sliced(word: str, fields: dict[str, Any], by: Metric) -> Mechanism:
    """The mechanism of a sliced number, its lattice and word chosen where the plan leaves them open."""
    from client_sdk.mechanisms.sliced import SlicedNumber, sliced_problems
    from client_sdk.mechanisms.sliced_choice import sliced_choice

    slicer, epsilon, optional = cast("CategoricalMechanism", by.mechanism), fields["epsilon"], fields["optional"]
    named, levels = (None if word == "auto" else word), fields["levels"] or None
    if not sliced_problems(slicer.k, levels or 1, optional=optional):
        named, levels = sliced_choice(slicer.k, epsilon, optional=optional, word=named, levels=levels)
    return SlicedNumber(slicer, fields["lower"], fields["upper"], epsilon, named or WORDS[1], levels or 1, optional)
