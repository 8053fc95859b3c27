"""The [metrics.NAME] tables: from fields to a Metric with its mechanism, or to problems that name the field."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from client_sdk.accounting.budget import to_micro
from client_sdk.errors import PlanError
from client_sdk.plan import defaults
from client_sdk.plan.fields import Table, shown
from client_sdk.plan.model import Kind, Metric, OnDevice

if TYPE_CHECKING:
    from client_sdk.mechanisms import Mechanism

METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
MAX_CATEGORIES = 100_000
MAX_LABEL_CHARACTERS = 128
MAX_LEVELS = 1 << 20
EPSILON_LOW, EPSILON_HIGH = Decimal("0.000001"), Decimal(40)

ON_DEVICE: Final = {
    "numeric": ("last", "first", "sample", "mean", "sum", "max", "count"),
    "categorical": ("last", "first", "sample"),
}
# Words that the plan's language reserves and this version refuses.
LATER_KINDS = ("histogram", "quantiles", "vector")
LATER_MECHANISMS = (
    "one_bit", "piecewise", "hybrid", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard",
    "square_wave", "gaussian", "auto",
)  # fmt: skip
LATER_FIELDS = ("optional", "memoize", "sample_metrics", "delivery", "delta")


def read_metrics(metrics: Table) -> dict[str, Metric]:
    """Every metric that could be read, ordered by name; problems go to the table's list."""
    if not metrics.data and metrics.clean:
        metrics.problem("", "a plan needs at least one metric, a table [metrics.NAME]")
    found = {}
    for name in sorted(metrics.data):
        table = metrics.table(name)
        if not METRIC_NAME.fullmatch(name):
            table.problem("", "a metric's name must be a small letter, then up to 62 of a-z, 0-9 and _")
        if not isinstance(metrics.data[name], dict):
            continue
        metric = _metric(name, table)
        if metric is not None:
            found[name] = metric
    return found


def _metric(name: str, table: Table) -> Metric | None:
    kind = cast("Kind", table.choice("kind", defaults.MECHANISM, LATER_KINDS))
    # As a tuple: what stands there may be a list, which no dictionary can be asked for.
    if not table.clean and table.data.get("kind") not in tuple(defaults.MECHANISM):
        return None  # which fields belong here is unknown: more lines would be guesses
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "epsilon": _epsilon(table),
        "on_device": _on_device(table, kind),
        "expires": table.day("expires"),
    }
    mechanism_name = _mechanism_name(table, kind)
    special = _numeric(table, common["on_device"]) if kind == "numeric" else _categorical(table)
    table.finish(later=LATER_FIELDS)
    if not table.clean:
        return None
    mechanism = _build(table, mechanism_name, common["epsilon"], special)
    if mechanism is None:
        return None
    return Metric(**common, **special, mechanism=mechanism, micro_epsilon=to_micro(common["epsilon"]))


def _epsilon(table: Table) -> Decimal:
    before = len(table.problems)
    value = table.decimal("epsilon")
    if len(table.problems) == before and not EPSILON_LOW <= value <= EPSILON_HIGH:
        table.problem("epsilon", f"must lie between {EPSILON_LOW:f} and {EPSILON_HIGH:f}, not {shown(value)}")
    return value


def _on_device(table: Table, kind: Kind) -> OnDevice:
    word = table.data.get("on_device")
    if kind == "categorical" and word in ON_DEVICE["numeric"] and word not in ON_DEVICE["categorical"]:
        table.take("on_device", "")
        table.problem("on_device", f"{shown(word)} needs numbers; categories have last, first or sample")
        return "last"
    return cast("OnDevice", table.choice("on_device", ON_DEVICE[kind], default=defaults.ON_DEVICE))


def _mechanism_name(table: Table, kind: Kind) -> str:
    own = defaults.MECHANISM[kind]
    word = table.data.get("mechanism")
    if isinstance(word, str) and word != own and word in defaults.MECHANISM.values():
        table.take("mechanism", "")
        table.problem("mechanism", f'{shown(word)} does not fit a {kind} metric; it has "{own}"')
        return own
    return table.choice("mechanism", (own,), LATER_MECHANISMS, default=own)


def _numeric(table: Table, on_device: OnDevice) -> dict[str, Any]:
    lower, upper = table.decimal("lower", example="0"), table.decimal("upper", example="100")
    levels = table.integer("levels", 2, MAX_LEVELS, default=defaults.LEVELS)
    if table.clean and lower >= upper:
        table.problem("lower", f"must be below upper, but {shown(lower)} is not below {shown(upper)}")
    default = defaults.number(on_device, lower, upper)
    if table.take("default", "", optional=True) is not None:
        default = _number_default(table, on_device, lower, upper)
    return {"lower": lower, "upper": upper, "levels": levels, "default": default}


def _number_default(table: Table, on_device: OnDevice, lower: Decimal, upper: Decimal) -> Decimal:
    value = table.decimal("default")
    if not table.clean:
        return value
    if on_device in {"count", "sum"}:
        if value != 0:
            table.problem("default", f"a {on_device} without readings is 0; remove the field")
    elif not lower <= value <= upper:
        table.problem("default", f"must lie within lower and upper, not {shown(value)}")
    return value


def _categorical(table: Table) -> dict[str, Any]:
    categories = _categories(table)
    other = table.take("other", "", optional=True)
    if other is not None:
        _check_label(table, "other", other)
    if other is not None and other in categories:
        table.problem("other", f"{shown(other)} is already one of the categories")
    if table.clean and len(categories) + (other is not None) < 2:
        table.problem("categories", "a metric needs at least two categories, `other` included")
    default = table.take("default", "", optional=True)
    if default is None:
        default = defaults.category(categories, cast("str | None", other)) if categories else ""
    elif table.clean and default != other and default not in categories:
        table.problem("default", f"must be one of the categories or `other`, not {shown(default)}")
    return {"categories": categories, "other": other, "default": default}


def _categories(table: Table) -> tuple[str, ...]:
    labels = table.take("categories", '["a", "b"]')
    if labels is None:
        return ()
    if not isinstance(labels, list) or not labels or len(labels) > MAX_CATEGORIES:
        table.problem("categories", f"must be a list of 1 to {MAX_CATEGORIES} labels")
        return ()
    before, seen = len(table.problems), set[str]()
    for label in labels:
        _check_label(table, "categories", label)
        if isinstance(label, str):
            if label in seen:
                table.problem("categories", f"{shown(label)} stands twice in the list")
            seen.add(label)
        if len(table.problems) > before:
            return ()  # one line for the list: a hundred thousand of the same kind would bury the others
    return tuple(labels)


def _check_label(table: Table, field: str, label: object) -> None:
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


def _build(table: Table, name: str, epsilon: Decimal, special: dict[str, Any]) -> Mechanism | None:
    # The mechanism is the last judge of its own parameters.
    try:
        if name == "laplace":
            from client_sdk.mechanisms.laplace import Laplace

            return Laplace(special["lower"], special["upper"], epsilon, special["levels"])
        from client_sdk.mechanisms.randomized_response import RandomizedResponse

        return RandomizedResponse(special["categories"], epsilon, special["other"])
    except PlanError as error:
        for line in error.problems:
            field, colon, text = line.partition(": ")
            if colon and field in table.data:
                table.problem(field, text)
            else:
                table.problem("", line)
        return None
