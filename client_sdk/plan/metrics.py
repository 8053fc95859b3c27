"""The [metrics.NAME] tables: from fields to a Metric with its mechanism, or to problems that name the field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from client_sdk.accounting.budget import to_micro
from client_sdk.plan import defaults
from client_sdk.plan.build import MECHANISMS, build, value_epsilon
from client_sdk.plan.exact import EXACT
from client_sdk.plan.fields import Table, shown
from client_sdk.plan.labels import label_list, read_labels
from client_sdk.plan.memoize import charge_of, read_memoize
from client_sdk.plan.model import Kind, Metric, OnDevice
from client_sdk.plan.ranges import read_range
from client_sdk.plan.slicing import FIELD, WORDS, is_sliced, read_slice
from client_sdk.plan.vectors import read_vector

if TYPE_CHECKING:
    from client_sdk.mechanisms.memoized import Memoized
    from client_sdk.mechanisms.sliced import SlicedNumber

METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
EPSILON_LOW, EPSILON_HIGH = Decimal("0.000001"), Decimal(40)

NUMBER_RULES: Final = ("last", "first", "sample", "mean", "sum", "max", "count")
LABEL_RULES: Final = ("last", "first", "sample")
VECTOR_RULES: Final = ("last", "first", "mean")
RULES_OF: Final[dict[str, tuple[str, ...]]] = {"categorical": LABEL_RULES, "vector": VECTOR_RULES}
# Words that the plan's language reserves and this version refuses.
LATER_FIELDS = ("delivery", "delta")


def read_metrics(metrics: Table) -> dict[str, Metric]:
    """Every metric that could be read, ordered by name; problems go to the table's list."""
    if not metrics.data and metrics.clean:
        metrics.problem("", "a plan needs at least one metric, a table [metrics.NAME]")
    found: dict[str, Metric] = {}
    # what others are sliced by comes first
    for name in sorted(metrics.data, key=lambda name: (is_sliced(metrics.data[name]), name)):
        table = metrics.table(name)
        if not METRIC_NAME.fullmatch(name):
            table.problem("", "a metric's name must be a small letter, then up to 62 of a-z, 0-9 and _")
        if not isinstance(metrics.data[name], dict):
            continue
        metric = _metric(name, table, metrics.data, found)
        if metric is not None:
            found[name] = metric
    return {name: found[name] for name in sorted(found)}


def read_choice(head: Table, metrics: object) -> tuple[int | None, tuple[str, ...]]:
    """`sample_metrics` and `removed_metrics` of [plan], checked against the names in the table `metrics`."""
    names = tuple(metrics) if isinstance(metrics, dict) else ()
    sampled = None
    if "sample_metrics" in head.data:
        if len(names) == 1:
            head.take("sample_metrics", "")
            head.problem("sample_metrics", "needs a plan of at least two metrics to draw from; remove it")
        else:  # without metrics that is the problem; as many as there are: all, which is the default
            sampled = _sampled(head, len(names))
    removed = label_list(head, "removed_metrics")
    in_use = frozenset(names)
    for name in removed:
        if not METRIC_NAME.fullmatch(name):
            head.problem("removed_metrics", f"{shown(name)} is no name of a metric")
        elif name in in_use:
            head.problem("removed_metrics", f"{shown(name)} is in use; a removed name never comes back, take a new one")
    return sampled, tuple(sorted(removed))


def _sampled(head: Table, metrics: int) -> int:
    """1 to one less than there are metrics; without any, that is the problem."""
    value, most = head.take("sample_metrics", "1"), max(1, metrics - 1)
    if type(value) is int and 1 <= value <= most:
        return value
    wanted = "1" if most == 1 else f"a whole number from 1 to {most}"
    head.problem(
        "sample_metrics",
        f"must be {wanted}, less than the plan's {metrics} metrics (without the field each report holds all), "
        f"not {shown(value)}",
    )
    return 1


def _metric(name: str, table: Table, declared: Iterable[str], found: Mapping[str, Metric]) -> Metric | None:
    """declared: the names of all metrics; found: those that have been read, all that are not sliced among them."""
    kind = cast("Kind", table.choice("kind", MECHANISMS))
    # As a tuple: what stands there may be a list, which no dictionary can be asked for.
    if not table.clean and table.data.get("kind") not in tuple(MECHANISMS):
        return None  # which fields belong here is unknown: more lines would be guesses
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "epsilon": _epsilon(table),
        "on_device": _on_device(table, kind),
        "expires": table.day("expires"),
    }
    sliced = FIELD in table.data
    by = read_slice(table, kind, declared, found) if sliced else None
    if kind == "vector":
        word, special = read_vector(table)
    else:
        own = table.choice("mechanism", WORDS, default="auto") if sliced and kind == "numeric" else ""
        word = own or _mechanism_word(table, kind)
        common |= _presence(table, kind, common["epsilon"], sliced=sliced)
        optional = common["optional"]
        if kind == "categorical":
            special = read_labels(table, optional=optional)
        else:
            special = read_range(table, kind, common["on_device"], optional=optional, sliced=sliced)
    labels = len(special.get("categories", ())) + (special.get("other") is not None) + bool(common.get("optional"))
    memo = read_memoize(table, kind, word, common["epsilon"], labels)
    table.finish(later=LATER_FIELDS)
    if not table.clean:
        return None
    fields = common | special
    built = build(table, word, fields | memo, by)
    if built is None:
        return None
    if by is not None:
        fields |= {"slice_by": by.name, "levels": cast("SlicedNumber", built).levels}
    if memo:
        charge = charge_of(name, cast("Memoized", built))
        return Metric(**fields, mechanism=built, micro_epsilon=charge.dearest, memo=charge)
    return Metric(**fields, mechanism=built, micro_epsilon=to_micro(common["epsilon"]), chosen=word == "auto")


def _epsilon(table: Table) -> Decimal:
    before = len(table.problems)
    value = table.decimal("epsilon")
    if len(table.problems) == before and not EPSILON_LOW <= value <= EPSILON_HIGH:
        table.problem("epsilon", f"must lie between {EPSILON_LOW:f} and {EPSILON_HIGH:f}, not {shown(value)}")
    return value


def _on_device(table: Table, kind: Kind) -> OnDevice:
    rules = RULES_OF.get(kind, NUMBER_RULES)
    word = table.data.get("on_device")
    if word in NUMBER_RULES and word not in rules:
        table.take("on_device", "")
        what = "categories" if kind == "categorical" else "vectors"
        table.problem("on_device", f"{shown(word)} needs numbers; {what} have {', '.join(rules[:-1])} or {rules[-1]}")
        return "last"
    return cast("OnDevice", table.choice("on_device", rules, default=defaults.ON_DEVICE))


def _mechanism_word(table: Table, kind: Kind) -> str:
    own, word = MECHANISMS[kind], table.data.get("mechanism")
    if isinstance(word, str) and word not in own and any(word in words for words in MECHANISMS.values()):
        table.take("mechanism", "")
        fits = ", ".join(other for other, words in MECHANISMS.items() if word in words)
        offered = ", ".join(shown(name) for name in own)
        table.problem("mechanism", f"must be one of {offered} for {kind}, not {shown(word)}, which fits {fits} only")
        return own[0]
    return table.choice("mechanism", own, default=defaults.MECHANISM[kind])


def _presence(table: Table, kind: Kind, epsilon: Decimal, *, sliced: bool) -> dict[str, Any]:
    """`optional` and, for a number, the part of epsilon that says whether there was a reading."""
    optional = table.flag("optional")
    if optional and table.take("default", "", optional=True) is not None:
        table.problem(
            "default", "an optional metric has none: it says that there was no reading; remove one of the two"
        )
    if sliced or not (optional and kind == "numeric"):
        if table.take("presence_share", "", optional=True) is not None:
            where = "a sliced number has none" if sliced else "belongs to a numeric metric with optional = true"
            table.problem("presence_share", f"{where}; remove it")
        return {"optional": optional, "presence_share": None}
    share = table.decimal("presence_share", default=defaults.PRESENCE_SHARE)
    if not 0 < share < 1:
        table.problem("presence_share", f"must lie above 0 and below 1, not {shown(share)}")
    elif table.clean and min(EXACT.multiply(epsilon, share), value_epsilon(epsilon, share)) < EPSILON_LOW:
        table.problem("presence_share", f"leaves less than {EPSILON_LOW:f} of epsilon to the value or to its presence")
    return {"optional": True, "presence_share": share}
