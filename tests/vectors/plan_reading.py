"""A plan by the words of protos/README.md, section 4: from its TOML text to canonical form, hash and layout.

Only tomllib, hashlib and exact numbers; nothing of the SDK. What `auto` and a sliced number's levels come to is told by
the vector: choosing is no part of reading.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

EXACT = Context(prec=200)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
Table = dict[str, Any]


def read(text: str) -> Table:
    return tomllib.loads(text, parse_float=Decimal)


def seconds(duration: str) -> int:
    return int(duration[:-1]) * SECONDS[duration[-1]]


def decimal(value: Any) -> str:
    """Fewest digits, no exponent."""
    text = f"{Decimal(value):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def fraction(value: Fraction) -> str:
    """The same, of a fraction that is a decimal."""
    return decimal(EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)))


def micro(epsilon: Any) -> int:
    """Micro-epsilon that a cost comes to: rounded up."""
    return -(-Fraction(epsilon) * 10**6 // 1)


def report_price(plan: Table) -> int:
    prices = sorted((metric_price(metric) for metric in plan["metrics"].values()), reverse=True)
    return sum(prices[: plan["plan"].get("sample_metrics")])


def metric_price(table: Table) -> int:
    """Of a memoised metric that of its dearest report, one of the first three."""
    first = micro(table["epsilon"])
    if not table.get("memoize"):
        return first
    inf = micro(table.get("epsilon_inf", min(2 * Fraction(table["epsilon"]), 40)))
    distinct = table.get("max_distinct", min(4, labels(table)))
    totals = [0, first, *(min(r, distinct) * inf + max(0, r - distinct) for r in (2, 3))]
    return max(after - before for before, after in pairwise(totals))


# --- tables -----------------------------------------------------------------------------------------


def left(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> Table:
    """Without what is missing or equals its default."""
    return {name: value for name, value in fields.items() if value is not None and value != defaults.get(name)}


def canonical(plan: Table, mechanisms: Mapping[str, str], chosen: Mapping[str, int] | None = None) -> str:
    head, cohort, budget = plan["plan"], plan["cohort"], plan["budget"]
    period = seconds(head["period"])
    levels = chosen or {}
    tables = {
        "plan": left(
            {"name": head["name"], "version": head["version"], "period": period}
            | {name: seconds(head[name]) for name in ("max_delay", "upload_window") if name in head}
            | {"sample_metrics": head.get("sample_metrics")}
            | {"removed_metrics": sorted(head.get("removed_metrics", []))},
            {"max_delay": period, "upload_window": period // 4, "removed_metrics": []},
        ),
        "cohort": left(
            {name: cohort[name] for name in ("min_size", "target_size")}
            | {"max_wait": seconds(cohort.get("max_wait", "30s"))}
            | {name: decimal(cohort.get(name, "0.1")) for name in ("corrupt_fraction", "dropout_fraction")},
            {"max_wait": 30, "corrupt_fraction": "0.1", "dropout_fraction": "0.1"},
        ),
        "budget": left(
            {
                name: decimal(budget[name])
                for name in ("lifetime", "rolling_24h", "lifetime_rho", "rolling_24h_rho")
                if name in budget
            },
            {"rolling_24h": fraction(Fraction((-(-86_400 // period) + 1) * report_price(plan), 10**6))},
        ),
        "delivery": delivery(plan.get("delivery", {}), seconds(head.get("max_delay", head["period"]))),
        "registrar": {
            name: value.lower() if name == "key" else value for name, value in plan.get("registrar", {}).items()
        },
        "metrics": {
            name: metric(table | ({"levels": levels[name]} if name in levels else {}), mechanisms[name])
            for name, table in plan["metrics"].items()
        },
    }
    kept = {name: table for name, table in tables.items() if table}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def delivery(table: Table, max_delay: int) -> Table:
    after = {"fallback_after": seconds(table["fallback_after"])} if "fallback_after" in table else {}
    defaults = {"resend": "same_bytes", "delivery": "interactive", "fallback": "none", "fallback_after": max_delay // 2}
    return left({**table, **after}, defaults)


def metric(table: Table, mechanism: str) -> Table:
    fields: Table = {
        name: table[name]
        for name in ("kind", "on_device", "categories", "other", "levels", "slice_by")
        if name in table
    }
    fields |= {"mechanism": mechanism, "epsilon": decimal(table["epsilon"])}
    if table["kind"] == "vector":
        fields |= {name: table[name] for name in ("dimension", "norm", "calibration") if name in table}
        fields |= {name: decimal(table[name]) for name in ("clip", "delta") if name in table}
        fields["expires"] = str(table["expires"]) if "expires" in table else None
        return left(fields, {"on_device": "last", "levels": 4096, "calibration": "analytic"})
    fields["expires"] = str(table["expires"]) if "expires" in table else None
    fields["optional"] = table.get("optional", False)
    fields["presence_share"] = decimal(table.get("presence_share", "0.25"))
    fields["removed"] = sorted(table.get("removed", []))
    defaults: Table = {"on_device": "last", "optional": False, "presence_share": "0.25", "removed": [], "levels": 1000}
    if table["kind"] == "categorical":
        defaults |= {"mechanism": "randomized_response", "default": table.get("other", table["categories"][0])}
        fields["default"] = table.get("default")
        return left(fields | memory(table), defaults | memory_defaults(table))
    fields |= bins(table)
    lower, upper = Fraction(ends(table)[0]), Fraction(ends(table)[1])
    middle = Fraction(0) if table.get("on_device") in ("count", "sum") else (lower + upper) / 2
    defaults |= {"bins": 20, "quantiles": ["0.5", "0.9", "0.99"], "default": fraction(middle)}
    if "slice_by" in table:
        defaults["levels"] = None
    elif table["kind"] == "numeric":
        defaults["mechanism"] = "laplace"
    fields["default"] = decimal(table["default"]) if "default" in table else None
    fields["quantiles"] = [decimal(share) for share in table["quantiles"]] if "quantiles" in table else None
    return left(fields, defaults)


def memory(table: Table) -> Table:
    if not table.get("memoize"):
        return {}
    inf = decimal(table["epsilon_inf"]) if "epsilon_inf" in table else None
    return {"memoize": True, "epsilon_inf": inf, "max_distinct": table.get("max_distinct")}


def memory_defaults(table: Table) -> Table:
    twice = fraction(min(2 * Fraction(table["epsilon"]), Fraction(40)))
    return {"epsilon_inf": twice, "max_distinct": min(4, labels(table))}


def ends(table: Table) -> tuple[Any, Any]:
    return (table["edges"][0], table["edges"][-1]) if "edges" in table else (table["lower"], table["upper"])


def bins(table: Table) -> Table:
    lower, upper = ends(table)
    if "edges" in table:
        given = [decimal(edge) for edge in table["edges"]]
        if given != equal(Fraction(lower), Fraction(upper), len(given) - 1):
            return {"edges": given}
        return {"lower": decimal(lower), "upper": decimal(upper), "bins": len(given) - 1}
    found = {"lower": decimal(lower), "upper": decimal(upper)}
    return found if table["kind"] == "numeric" else found | {"bins": table.get("bins", 20)}


def equal(lower: Fraction, upper: Fraction, count: int) -> list[str]:
    width = (upper - lower) / count
    edges = [lower + width * step for step in range(count + 1)]
    if all((edge * 10**30).denominator == 1 for edge in edges):
        return [fraction(edge) for edge in edges]
    digits = next(d for d in range(100) if Fraction(1, 10**d) <= width / 1000)
    inner = [Fraction(round(edge * 10**digits), 10**digits) for edge in edges[1:-1]]
    return [fraction(edge) for edge in (lower, *inner, upper)]


# --- the vector -------------------------------------------------------------------------------------


def labels(table: Table) -> int:
    """How many a mechanism for categories tells apart."""
    if table["kind"] == "categorical":
        count = len(table["categories"]) + ("other" in table)
    else:
        count = bins(table).get("bins") or len(table["edges"]) - 1
    return int(count) + table.get("optional", False)


def elements(table: Table, mechanism: str) -> int | None:
    """Elements of a metric, by its mechanism; None where only the mechanism's own section can say (square_wave)."""
    if table["kind"] == "vector":
        return int(table["dimension"])
    if table["kind"] == "numeric":
        return 1 + table.get("optional", False)
    if mechanism == "square_wave":
        return None
    k = labels(table)
    return 1 << k.bit_length() if mechanism == "hadamard" else k  # the power of two above k, of k + 1 at least


def pairs(metrics: Table, name: str, levels: int) -> int:
    """Elements of a sliced number."""
    return labels(metrics[metrics[name]["slice_by"]]) * (levels + 1) + int(metrics[name].get("optional", False))


def sha256(form: str) -> str:
    return hashlib.sha256(form.encode()).hexdigest()
