"""The labels of a categorical metric: its categories, `other`, what stands for no reading, and names that are gone.

Rules of this file: a label is one line of printable text that cannot look like another one in a table; none stands
twice; a label of an earlier version that was given up (`removed`) is nobody's name any more.
"""

from __future__ import annotations

from typing import Any, Final, cast

from client_sdk.mechanisms.categories import ABSENT
from client_sdk.plan import defaults
from client_sdk.plan.fields import Table, shown

MAX_CATEGORIES: Final = 100_000
MAX_LABEL_CHARACTERS: Final = 128


def read_labels(table: Table, *, optional: bool) -> dict[str, Any]:
    """`categories`, `other`, `default` and `removed` of a categorical metric, as the Metric's fields."""
    categories = label_list(table, "categories", required=True)
    other = table.take("other", "", optional=True)
    if other is not None:
        check_label(table, "other", other)
    if other is not None and other in categories:
        table.problem("other", f"{shown(other)} is already one of the categories")
    if table.clean and len(categories) + (other is not None) < 2:
        table.problem("categories", "a metric needs at least two categories, `other` included")
    default = None if optional else _default(table, categories, other)
    removed = label_list(table, "removed")
    _check_removed(table, removed, (*categories, other, ABSENT if optional else None))
    return {"categories": categories, "other": other, "default": default, "removed": tuple(sorted(removed))}


def _default(table: Table, categories: tuple[str, ...], other: object) -> object:
    default = table.take("default", "", optional=True)
    if default is None:
        return defaults.category(categories, cast("str | None", other)) if categories else ""
    if table.clean and default != other and default not in categories:
        table.problem("default", f"must be one of the categories or `other`, not {shown(default)}")
    return default


def _check_removed(table: Table, removed: tuple[str, ...], in_use: tuple[object, ...]) -> None:
    known = set(in_use)
    back = next((label for label in removed if label in known), None) if table.clean else None
    if back is not None:
        table.problem("removed", f"{shown(back)} is in use; a removed label never comes back, give the new one a name")


def label_list(table: Table, field: str, *, required: bool = False) -> tuple[str, ...]:
    """A list of labels, none twice; one problem for the whole list. Empty where it is missing and may be."""
    labels = table.take(field, '["a", "b"]', optional=not required)
    if labels is None:
        return ()
    if not isinstance(labels, list) or not labels or len(labels) > MAX_CATEGORIES:
        table.problem(field, f"must be a list of 1 to {MAX_CATEGORIES} labels")
        return ()
    before, seen = len(table.problems), set[str]()
    for label in labels:
        check_label(table, field, label)
        if isinstance(label, str):
            if label in seen:
                table.problem(field, f"{shown(label)} stands twice in the list")
            seen.add(label)
        if len(table.problems) > before:
            return ()  # one line for the list: a hundred thousand of the same kind would bury the others
    return tuple(labels)


def check_label(table: Table, field: str, label: object) -> None:
    """Note what is wrong with one label."""
    # isprintable() also keeps out line breaks, bidirectional overrides and invisible characters: a label goes
    # into tables, CSV and terminals, where they would make one label look like another.
    if not isinstance(label, str):
        table.problem(field, f"a label must be text, not {shown(label)}")
    elif not 0 < len(label) <= MAX_LABEL_CHARACTERS or not label.isprintable() or label != label.strip():
        table.problem(
            field,
            f"a label must be 1 to {MAX_LABEL_CHARACTERS} printable characters "
            f"without blanks at its ends, not {shown(label)}",
        )
