"""The fields of a memoised metric: `memoize`, `epsilon_inf`, `max_distinct`, and what its reports cost together.

Rules of this file: only categories are memoised, by the two mechanisms whose chain is worked out; the key that names a
metric's permanent answers covers all that fixes their law and their price, so whatever a later version changes of it
means other permanent answers, and they are paid for again (`plan diff` says so).
What it does not do: keep an answer (the device does).
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from client_sdk.accounting.budget import to_micro
from client_sdk.accounting.memo import MemoCharge
from client_sdk.plan import defaults
from client_sdk.plan.canonical import minimal
from client_sdk.plan.fields import Table, shown

if TYPE_CHECKING:
    from client_sdk.mechanisms.memoized import Memoized

FIELDS: Final = ("epsilon_inf", "max_distinct")
LAWS: Final = ("randomized_response", "optimized_unary")
MOST_DISTINCT: Final = 1000


def read_memoize(table: Table, kind: str, word: str, epsilon: Decimal, labels: int) -> dict[str, Any]:
    """The mechanism's further parameters where the metric is memoised; else nothing, and no such field may stand."""
    if not table.flag("memoize"):
        for field in FIELDS:
            if table.take(field, "", optional=True) is not None:
                table.problem(field, "means nothing without memoize = true; add that, or remove this")
        return {}
    if kind != "categorical":
        table.problem("memoize", f"only categories are memoised, not {kind}; give the value's ranges as categories")
    elif word not in LAWS:
        table.problem("memoize", f"goes with mechanism = {' or '.join(map(shown, LAWS))}, not {shown(word)}")
    inf = table.decimal("epsilon_inf", default=defaults.epsilon_inf(epsilon))
    if table.clean and not epsilon < inf <= 40:
        table.problem(
            "epsilon_inf",
            f"must lie above epsilon ({minimal(epsilon)}, what one report alone loses) and be at most 40, "
            f"not {shown(inf)}",
        )
    most = min(labels, MOST_DISTINCT) if labels >= 2 else MOST_DISTINCT
    distinct = table.integer("max_distinct", 1, most, default=defaults.max_distinct(most))
    return {"epsilon_inf": inf, "max_distinct": distinct}


def charge_of(name: str, mechanism: Memoized) -> MemoCharge:
    """What reports of the metric `name` cost together."""
    law = {
        "metric": name,
        "mechanism": mechanism.name,
        "labels": list(mechanism.labels),
        "other": mechanism.other,
        "optional": mechanism.optional,
        "epsilon": minimal(mechanism.epsilon),
        "epsilon_inf": minimal(mechanism.epsilon_inf),
        "max_distinct": mechanism.max_distinct,
    }
    text = json.dumps(law, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    key = hashlib.sha256(text.encode()).digest()
    return MemoCharge(key, to_micro(mechanism.epsilon), to_micro(mechanism.epsilon_inf), mechanism.max_distinct)
