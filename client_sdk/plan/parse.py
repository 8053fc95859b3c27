"""parse_plan: TOML text -> Plan, or one PlanError with every fault.

Rules of this file: unknown fields are refused at every level; numbers are read as decimals, never as binary
fractions; a plan that a round could not carry (a sum that wraps, a cohort that can never reach its threshold,
a vector over the limit) is refused here, when it is planned, and not on a device.
What it does not do: it reads no file and changes no device's own limits.
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal, DecimalException, localcontext
from math import floor
from types import MappingProxyType
from typing import cast

from client_sdk.accounting.budget import MAX_EPSILON, limit_to_micro
from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.plan import defaults
from client_sdk.plan.canonical import plan_hash
from client_sdk.plan.exact import EXACT
from client_sdk.plan.fields import Table, shown
from client_sdk.plan.limits import too_much
from client_sdk.plan.metrics import LATER_FIELDS, read_choice, read_metrics
from client_sdk.plan.model import (
    DAY_S,
    BudgetRules,
    CohortRules,
    DeliveryRules,
    Fallback,
    Metric,
    Plan,
    Registrar,
    Resend,
    Way,
    report_cost,
)

PLAN_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}", re.ASCII)
MAX_PLAN_BYTES = 1 << 20
MAX_DOTS = 32
"""Per line, outside of text. The TOML reader walks a key's whole path again for each line below it: 170 kB of a
hostile plan took it 100 seconds, a megabyte an hour."""
MAX_LENGTH = 1_000_000
"""Elements of one report's vector."""
MAX_TARGET_SIZE = 10_000
"""Larger cohorts would gain little (the error shrinks with the root of all reports, over however many sums)."""
MIN_SIZE = 2
ADDRESS = re.compile(
    r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):"
    r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})",
    re.ASCII,
)
PUBLIC_KEY = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
MAX_PERIOD_S = 366 * DAY_S

# Quotes right before the closing three belong to the text, as many as two. Text that nobody closes reaches to the end
# of its line, or of all, where the reader stops; if it did not match, each later quote would be followed there again.
_TEXT_OR_COMMENT = re.compile(
    r""""{3}(?:[^\\]|\\.)*?(?:"{3,5}|\\?\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|#[^\n]*""", re.DOTALL
)
_ODD_AMOUNT = re.compile(
    r"""^[^#\n]*?(?<![\w-])(epsilon|lifetime|rolling_24h)["']?[ \t]*=[ \t]*"""
    r"""([+-]?(?:0[xob][0-9A-Fa-f_]+|[0-9.]+_[0-9_.eE+-]+))""",
    re.MULTILINE,
)


def parse_plan(text: str) -> Plan:
    """Read a plan. PlanError lists all problems, one line each, each beginning with its field's name."""
    # The context of whoever calls rounds to its own digits, and may trap: a plan is the same plan in every process.
    with localcontext(EXACT):
        return _parse(text)


def _parse(text: str) -> Plan:
    problems: list[str] = []
    root = Table("", _toml(text), problems)
    excess = too_much(root.data.get("metrics"), MAX_LENGTH)
    if excess is not None:
        raise PlanError(f"metrics: {excess}")
    # `0x1` and `1_000` are TOML, but an amount of privacy is written so that nobody can misread it.
    line, counted = 1, 0
    for found in _ODD_AMOUNT.finditer(text):
        line, counted = line + text.count("\n", counted, found.start()), found.start()
        problems.append(f"{found[1]}: write amounts in plain decimal digits, not {shown(found[2])} (line {line})")
    plan = _plan(root, text)
    if plan is None:
        raise PlanError(problems)
    return plan


def _toml(text: str) -> dict[str, object]:
    if len(text) > MAX_PLAN_BYTES or len(text.encode("utf-8", "replace")) > MAX_PLAN_BYTES:
        raise PlanError(f"plan: the text is larger than the limit of {MAX_PLAN_BYTES} bytes")
    if any(line.count(".") > MAX_DOTS for line in _TEXT_OR_COMMENT.sub('"', text).splitlines()):
        raise PlanError(f"plan: more than {MAX_DOTS} dots outside of text in one line; no field lies that deep")
    try:
        return tomllib.loads(text, parse_float=_parse_float)
    except RecursionError:
        raise PlanError("plan: not valid TOML: nested too deeply") from None
    except ValueError as error:
        # ValueError too: a number of thousands of digits is refused by int(), not by the TOML reader.
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number with too many digits"
        raise PlanError(f"plan: not valid TOML: {' '.join(reason.split())[:300]}") from None


def _parse_float(text: str) -> Decimal:
    try:
        return Decimal(text)
    except DecimalException:
        return Decimal("Infinity")  # an exponent beyond Decimal: refused with every other endless number


def _plan(root: Table, text: str) -> Plan | None:
    head, cohort, budget, delivery = (
        root.table("plan"), root.table("cohort"), root.table("budget"), root.table("delivery", optional=True)
    )  # fmt: skip
    name, version, period_s, max_delay_s, upload_window_s = _head(head)
    sample_metrics, removed_metrics = read_choice(head, root.data.get("metrics"))
    head.finish(later=LATER_FIELDS)
    cohort_rules = _cohort(cohort)
    metrics = read_metrics(root.table("metrics"))
    gaussian = next((name for name, metric in metrics.items() if metric.delta), None)
    if sample_metrics is not None and gaussian is not None:
        head.problem(
            "sample_metrics",
            f"every report must hold {gaussian}, whose epsilon has a delta (gaussian); remove the field",
        )
    memoised = next((name for name, metric in metrics.items() if metric.memo is not None), None)
    if sample_metrics is not None and memoised is not None:
        head.problem("sample_metrics", f"every report must hold {memoised}, which is memoised; remove the field")
    budget_rules = _budget(budget, period_s, report_cost(metrics.values(), sample_metrics))
    registrar = _registrar(root.table("registrar")) if "registrar" in root.data else None
    delivery_rules = _delivery(delivery, max_delay_s if head.clean else MAX_PERIOD_S + 1)
    root.finish(later=("aggregation", *LATER_FIELDS))
    if root.problems:
        return None
    _check_vector(root, metrics, cohort_rules.target_size, count_cells=0 if sample_metrics is None else len(metrics))
    if root.problems:
        return None
    plan = Plan(
        name=name,
        version=version,
        period_s=period_s,
        max_delay_s=max_delay_s,
        upload_window_s=upload_window_s,
        cohort=cohort_rules,
        budget=budget_rules,
        delivery=delivery_rules,
        metrics=MappingProxyType(metrics),
        text=text,
        registrar=registrar,
        sample_metrics=sample_metrics,
        removed_metrics=removed_metrics,
    )
    object.__setattr__(plan, "hash", plan_hash(plan))  # the one field that is made from all the others
    return plan


def _head(table: Table) -> tuple[str, int, int, int, int]:
    name = table.take("name", '"app-health"')
    if name is not None and not (isinstance(name, str) and PLAN_NAME.fullmatch(name)):
        table.problem("name", f"must be a small letter, then up to 62 of a-z, 0-9 and -, not {shown(name)}")
    version = table.integer("version", 1, 2**31 - 1)
    before = len(table.problems)
    period_s = table.duration_s("period", 60, MAX_PERIOD_S, example="1d")
    if len(table.problems) == before and DAY_S % period_s and period_s % DAY_S:
        table.problem("period", "must divide a day or be whole days, so that days begin with a period")
    readable = len(table.problems) == before
    max_delay_s = table.duration_s("max_delay", 1, MAX_PERIOD_S, example="7d", default_s=defaults.max_delay_s(period_s))
    upload_window_s = table.duration_s(
        "upload_window", 1, MAX_PERIOD_S, example="6h", default_s=defaults.upload_window_s(period_s)
    )
    if readable and len(table.problems) == before and upload_window_s > max_delay_s:
        table.problem(
            "upload_window",
            f"is {upload_window_s} s, longer than max_delay ({max_delay_s} s): reports would expire unsent",
        )
    return str(name), version, period_s, max_delay_s, upload_window_s


def _cohort(table: Table) -> CohortRules:
    rules = CohortRules(
        min_size=table.integer("min_size", MIN_SIZE, MAX_TARGET_SIZE, example="50"),
        target_size=table.integer("target_size", MIN_SIZE, MAX_TARGET_SIZE, example="200"),
        max_wait_s=table.duration_s("max_wait", 1, 3_600, example="30s", default_s=defaults.MAX_WAIT_S),
        corrupt_fraction=table.fraction("corrupt_fraction", defaults.CORRUPT_FRACTION),
        dropout_fraction=table.fraction("dropout_fraction", defaults.DROPOUT_FRACTION),
    )
    table.finish()
    if table.clean:
        _check_cohort(table, rules)
    return rules


def _check_cohort(table: Table, rules: CohortRules) -> None:
    from client_sdk.secagg.parameters import MAX_NEIGHBOURS, MAX_ROSTER, min_roster, round_parameters, threshold

    smallest = min_roster(rules.min_size, rules.dropout_fraction)
    if rules.target_size < smallest:
        table.problem(
            "target_size",
            f"must be at least {smallest}, the smallest roster that can lose dropout_fraction "
            f"and still hold min_size {rules.min_size}, not {rules.target_size}",
        )
        return
    # Up to twice the target: a remainder may join the last cohort.
    largest, complete_up_to = min(2 * rules.target_size - 1, MAX_ROSTER), MAX_NEIGHBOURS + 1
    for size in range(smallest, min(largest, complete_up_to) + 1):
        left, needed = size - floor(rules.dropout_fraction * size), threshold(size, rules.corrupt_fraction)
        if left < needed:
            table.problem(
                "dropout_fraction",
                f"a roster of {size} would keep {left} participants, but needs {needed} to open its sum; "
                f"lower dropout_fraction or corrupt_fraction",
            )
            return
    # Larger ones have a sparse graph or none. More members need more neighbours, so the ends speak for the rest.
    for size in sorted({max(smallest, complete_up_to + 1), rules.target_size, largest}):
        if complete_up_to < size <= largest:
            try:
                round_parameters(size, rules.corrupt_fraction, rules.dropout_fraction)
            except PlanError as error:
                table.problem("target_size", str(error))
                return


def _delivery(table: Table, max_delay_s: int) -> DeliveryRules:
    resend = cast("Resend", table.choice("resend", ("same_bytes", "never"), default=defaults.RESEND))
    way = cast("Way", table.choice("delivery", ("interactive", "direct"), default=defaults.DELIVERY))
    fallback = cast("Fallback", table.choice("fallback", ("none", "direct"), default=defaults.FALLBACK))
    given = "fallback_after" in table.data
    default_s = defaults.fallback_after_s(max_delay_s)
    after_s = table.duration_s("fallback_after", 1, MAX_PERIOD_S, example="12h", default_s=default_s)
    table.finish(later=("mode", "direct", "kind"))
    if table.clean and way == "direct" and fallback == "direct":
        table.problem("fallback", 'must be left out beside delivery = "direct": every report goes unmasked already')
    elif table.clean and given and fallback == "none":
        table.problem("fallback_after", 'means nothing without fallback = "direct"; add that, or remove this')
    elif table.clean and after_s >= max_delay_s and fallback == "direct":
        table.problem(
            "fallback_after", f"is {after_s} s, not before max_delay ({max_delay_s} s): reports would expire unsent"
        )
    return DeliveryRules(resend, way, fallback, after_s if fallback == "direct" else 0)


def _registrar(table: Table) -> Registrar:
    address, key = table.take("address", '"registrar.example:443"'), table.take("key", '"<64 hex digits>"')
    if address is not None and not (isinstance(address, str) and ADDRESS.fullmatch(address)):
        table.problem("address", f"must be HOST:PORT, not {shown(address)}")
    if key is not None and not (isinstance(key, str) and PUBLIC_KEY.fullmatch(key)):
        table.problem("key", f"must be an Ed25519 public key as 64 hex digits, not {shown(key)}")
    table.finish()
    if not table.clean:
        return Registrar("", b"")
    from client_sdk.identity import is_valid_public_key

    registrar = Registrar(str(address), bytes.fromhex(str(key)))
    if not is_valid_public_key(registrar.key):
        table.problem("key", "is no Ed25519 public key (of small order, or not in its one encoding)")
    return registrar


def _budget(table: Table, period_s: int, report: int) -> BudgetRules:
    """report: what one costs, in micro-epsilon."""
    lifetime = _limit(table, "lifetime", 0)
    rolling = _limit(table, "rolling_24h", defaults.rolling_24h_micro(period_s, report), optional=True)
    lifetime_rho, rolling_rho = (
        _limit(table, field, 0, optional=True) if field in table.data else None
        for field in ("lifetime_rho", "rolling_24h_rho")
    )
    for field in ("lifetime_rho", "rolling_24h_rho"):
        table.take(field, "", optional=True)  # known, given or not
    table.finish(later=("delta",))
    return BudgetRules(lifetime, rolling, lifetime_rho, rolling_rho)


def _limit(table: Table, field: str, default: int, *, optional: bool = False) -> int:
    value = table.take(field, "365", optional=optional)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        table.problem(field, f"must be a decimal number, not {shown(value)}")
        return default
    try:
        return limit_to_micro(value)
    except ConfigurationError:
        table.problem(field, f"must be 0, or a decimal from 0.000001 to {MAX_EPSILON}, not {shown(value)}")
        return default


def _check_vector(root: Table, metrics: dict[str, Metric], target_size: int, *, count_cells: int = 0) -> None:
    from client_sdk.secagg.parameters import ring_bits

    length = sum(metric.mechanism.length for metric in metrics.values()) + count_cells
    if length > MAX_LENGTH:
        root.problem(
            "metrics",
            f"a report would have {length} elements, {8 * length} bytes; the limit is {MAX_LENGTH} elements",
        )
    for metric in metrics.values():
        # Twice the target: a remainder may join the last cohort.
        try:
            ring_bits(2 * target_size, metric.mechanism.bound)
        except PlanError:
            root.problems.append(
                f"metrics.{metric.name}: the sum of {2 * target_size} reports of at most {metric.mechanism.bound} "
                f"each does not fit into 64 bits; lower levels or raise epsilon",
            )
