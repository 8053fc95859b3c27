"""The canonical form of a plan, and its hash: the identity that devices bind into their keys.

JSON in UTF-8 with sorted keys and no blanks; only `"` and `\\` are escaped (labels hold no control characters).
The order of categories is kept, the order of tables is not. Decimals are minimal strings ("1", "0.25"),
durations and sizes integers. A field that equals its default is left out, and so is a table that is then
empty: a field that a later version adds changes no hash of a plan that does not use it. `auto` stands as the
mechanism that it came to, and a sliced number's levels always stand; names that are gone stand sorted, for their order
means nothing; bins of equal width stand as ends and number, however they were written.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from client_sdk.accounting.budget import format_micro
from client_sdk.plan import defaults
from client_sdk.plan.bins import are_equal
from client_sdk.plan.exact import EXACT

if TYPE_CHECKING:
    from client_sdk.mechanisms.memoized import Memoized
    from client_sdk.plan.model import Metric, Plan

_Fields = dict[str, object]


def canonical_form(plan: Plan) -> str:
    """The text that the plan's hash is taken over; the same for every way of writing the same plan."""
    document = {
        "plan": _plan(plan),
        "cohort": _cohort(plan),
        "budget": _budget(plan),
        "delivery": _delivery(plan),
        "metrics": {name: _metric(metric) for name, metric in plan.metrics.items()},
        "registrar": _registrar(plan),
    }
    kept = {name: table for name, table in document.items() if table}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plan_hash(plan: Plan) -> bytes:
    """SHA-256 of the canonical form, 32 bytes."""
    return hashlib.sha256(canonical_form(plan).encode()).digest()


def minimal(value: Decimal | Fraction | int) -> str:
    """A decimal in the fewest digits, never with an exponent: 1.00 -> "1", 1E+1 -> "10", -0.0 -> "0"."""
    if isinstance(value, Fraction):
        value = _decimal(value)
    text = format(Decimal(value), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _decimal(value: Fraction) -> Decimal:
    # A share came from a decimal, so a power of ten clears its denominator (of 2s and 5s).
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    return EXACT.scaleb(Decimal(int(value * 10**places)), -places)


def _without(fields: _Fields, default: _Fields) -> _Fields:
    return {name: value for name, value in fields.items() if value is not None and value != default.get(name)}


def _plan(plan: Plan) -> _Fields:
    fields: _Fields = {
        "name": plan.name,
        "version": plan.version,
        "period": plan.period_s,
        "max_delay": plan.max_delay_s,
        "upload_window": plan.upload_window_s,
        "sample_metrics": plan.sample_metrics,
        "removed_metrics": list(plan.removed_metrics),
    }
    return _without(
        fields,
        {
            "max_delay": defaults.max_delay_s(plan.period_s),
            "upload_window": defaults.upload_window_s(plan.period_s),
            "removed_metrics": [],
        },
    )


def _cohort(plan: Plan) -> _Fields:
    fields: _Fields = {
        "min_size": plan.cohort.min_size,
        "target_size": plan.cohort.target_size,
        "max_wait": plan.cohort.max_wait_s,
        "corrupt_fraction": minimal(plan.cohort.corrupt_fraction),
        "dropout_fraction": minimal(plan.cohort.dropout_fraction),
    }
    return _without(
        fields,
        {
            "max_wait": defaults.MAX_WAIT_S,
            "corrupt_fraction": defaults.CORRUPT_FRACTION,
            "dropout_fraction": defaults.DROPOUT_FRACTION,
        },
    )


def _budget(plan: Plan) -> _Fields:
    default = defaults.rolling_24h_micro(plan.period_s, plan.report_micro_epsilon)
    fields: _Fields = {
        "lifetime": format_micro(plan.budget.lifetime_micro),
        "rolling_24h": format_micro(plan.budget.rolling_24h_micro),
    }
    for field, limit in (
        ("lifetime_rho", plan.budget.lifetime_micro_rho),
        ("rolling_24h_rho", plan.budget.rolling_24h_micro_rho),
    ):
        fields[field] = None if limit is None else format_micro(limit)
    return _without(fields, {"rolling_24h": format_micro(default)})


def _delivery(plan: Plan) -> _Fields:
    rules = plan.delivery
    fields: _Fields = {
        "resend": rules.resend,
        "delivery": rules.delivery,
        "fallback": rules.fallback,
        "fallback_after": rules.fallback_after_s if rules.fallback == "direct" else None,
    }
    return _without(
        fields,
        {
            "resend": defaults.RESEND,
            "delivery": defaults.DELIVERY,
            "fallback": defaults.FALLBACK,
            "fallback_after": defaults.fallback_after_s(plan.max_delay_s),
        },
    )


def _registrar(plan: Plan) -> _Fields:
    named = plan.registrar
    return {} if named is None else {"address": named.address, "key": named.key.hex()}


def _metric(metric: Metric) -> _Fields:
    fields: _Fields = {
        "kind": metric.kind,
        "mechanism": metric.mechanism.name,
        "epsilon": minimal(metric.epsilon),
        "on_device": metric.on_device,
        "expires": None if metric.expires is None else metric.expires.isoformat(),
        "optional": metric.optional,
        "presence_share": None if metric.presence_share is None else minimal(metric.presence_share),
    }
    default: _Fields = {
        "mechanism": defaults.MECHANISM.get(metric.kind),
        "on_device": defaults.ON_DEVICE,
        "optional": False,
        "presence_share": minimal(defaults.PRESENCE_SHARE),
    }
    own = {"categorical": _labels, "vector": _vector}.get(metric.kind, _numbers)
    more, more_default = own(metric)
    if metric.slice_by is not None:  # mechanism and levels may have been chosen: they stand as what that came to
        more, default["mechanism"], more_default["levels"] = more | {"slice_by": metric.slice_by}, None, None
    if metric.memo is not None:
        more, more_default = more | _memo(metric), more_default | _memo_defaults(metric)
    return _without(fields | more, default | more_default)


def _labels(metric: Metric) -> tuple[_Fields, _Fields]:
    fields: _Fields = {
        "categories": list(metric.categories),
        "other": metric.other,
        "default": metric.default,
        "removed": list(metric.removed),
    }
    return fields, {"default": defaults.category(metric.categories, metric.other), "removed": []}


def _memo(metric: Metric) -> _Fields:
    mechanism = cast("Memoized", metric.mechanism)
    return {
        "memoize": True,
        "epsilon_inf": minimal(mechanism.epsilon_inf),
        "max_distinct": mechanism.max_distinct,
    }


def _memo_defaults(metric: Metric) -> _Fields:
    labels = len(metric.mechanism.labels)
    return {
        "epsilon_inf": minimal(defaults.epsilon_inf(metric.epsilon)),
        "max_distinct": defaults.max_distinct(labels),
    }


def _vector(metric: Metric) -> tuple[_Fields, _Fields]:
    """The mechanism stands beside the norm that implies it."""
    rules = metric.vector
    if rules is None:
        return {}, {}
    fields: _Fields = {
        "dimension": rules.dimension,
        "clip": minimal(rules.clip),
        "norm": rules.norm,
        "delta": minimal(rules.delta),
        "calibration": rules.calibration,
        "levels": metric.levels,
    }
    return fields, {"delta": "0", "calibration": defaults.CALIBRATION, "levels": defaults.VECTOR_LEVELS}


def _numbers(metric: Metric) -> tuple[_Fields, _Fields]:
    lower, upper = Decimal(metric.lower or 0), Decimal(metric.upper or 0)
    fields: _Fields = {"default": None if metric.default is None else minimal(Decimal(metric.default))}
    if metric.edges and not are_equal(metric.edges):
        fields["edges"] = [minimal(edge) for edge in metric.edges]
    else:
        fields |= {"lower": minimal(lower), "upper": minimal(upper)}
        fields["bins"] = len(metric.edges) - 1 if metric.edges else None
    fields["levels"] = metric.levels
    fields["quantiles"] = [minimal(share) for share in metric.quantiles] or None
    default: _Fields = {
        "default": minimal(defaults.number(metric.on_device, lower, upper)),
        "bins": defaults.BINS,
        "levels": defaults.LEVELS,
        "quantiles": [minimal(share) for share in defaults.QUANTILES],
    }
    return fields, default
