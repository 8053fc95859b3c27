"""Two versions of a plan side by side: what the later one breaks, what it changes, and what it costs a device's life.

Rules of this file: pure, from the plans alone. `breaks` is what a collector or a device refuses, or what makes answers
over both versions mean two things at once; `changes` is the rest. Each is one line that begins with the field's name.
Costs are those of `plan check`: of a device that is always on and has spent nothing yet. The new version's are those of
a device that comes from the old one: devices keep the strictest lifetime and 24-hour window of a name that they have
seen, so a version that asks more than the old one allowed makes them fall silent, whatever it allows itself.
What it does not do: know what was spent under the old version (lifetime counts over all versions of the name), or the
limits of versions before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal

from client_sdk.accounting.budget import format_micro
from client_sdk.plan.canonical import minimal
from client_sdk.plan.check import PlanCheck, check_plan
from client_sdk.plan.check_text import aligned
from client_sdk.plan.defaults import rolling_24h_micro
from client_sdk.plan.exact import EXACT
from client_sdk.plan.fields import shown
from client_sdk.plan.model import BudgetRules, Metric, Plan
from client_sdk.plan.names import broken_names, labels, listed
from client_sdk.plan.successor import raised_limit, weaker_cohort


@dataclass(frozen=True, slots=True)
class Price:
    """One cost under both versions. `old`, `new`: decimals of epsilon, or whole numbers; None: nothing can be sent."""

    what: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All of `plan diff`. breaks: lines that speak against the new version; none: it may follow the old one."""

    name: str
    old_version: int
    new_version: int
    old_hash: str
    new_hash: str
    breaks: tuple[str, ...]
    changes: tuple[str, ...]
    prices: tuple[Price, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain data, ready for JSON."""
        return asdict(self)


def diff_plans(old: Plan, new: Plan) -> PlanDiff:
    """What becomes of `old`'s devices and answers when `new` is to follow it."""
    before, after = check_plan(old), check_plan(_held_to(old, new))
    return PlanDiff(
        name=new.name,
        old_version=old.version,
        new_version=new.version,
        old_hash=before.hash,
        new_hash=after.hash,
        breaks=() if new.hash == old.hash else tuple(_breaks(old, new)),
        changes=tuple(_changes(old, new)),
        prices=tuple(_prices(before, after)),
    )


# --- what breaks ------------------------------------------------------------------------------------


def _breaks(old: Plan, new: Plan) -> Iterator[str]:
    if new.name != old.name:
        yield f"plan.name: {shown(new.name)} is another plan than {shown(old.name)}: its own lifetime, its own history"
        return
    if new.version <= old.version:
        yield f"plan.version: must be above {old.version}, not {new.version}"
    if new.period_s != old.period_s:
        yield f"plan.period: {new.period_s} s, but {old.period_s} s before; a plan's period never changes"
    field = raised_limit(old, new)
    if field is not None:
        yield f"budget.{field}: above version {old.version}'s; a version may lower a device's limits, never raise them"
    field = weaker_cohort(old, new)
    if field is not None:
        yield f"cohort.{field}: hides a device less well than before; devices that fetched version {old.version} refuse"
    if new.delivery.delivery == "direct" != old.delivery.delivery:
        yield (
            "delivery.delivery: direct, interactive before: every report goes unmasked, at its local epsilon; devices "
            "that do not allow it fall silent"
        )
    yield from _silenced(old, new)
    yield from broken_names(old, new)
    for name, metric in new.metrics.items():
        before = old.metrics.get(name)
        if before is not None and before.kind == metric.kind:
            yield from _other_meaning(before, metric)


def _strictest(old: Plan, new: Plan) -> BudgetRules:
    """What a device that has seen both versions is held to."""
    return BudgetRules(
        lifetime_micro=min(old.budget.lifetime_micro, new.budget.lifetime_micro),
        rolling_24h_micro=min(old.budget.rolling_24h_micro, new.budget.rolling_24h_micro),
        lifetime_micro_rho=_least(old.budget.lifetime_micro_rho, new.budget.lifetime_micro_rho),
        rolling_24h_micro_rho=_least(old.budget.rolling_24h_micro_rho, new.budget.rolling_24h_micro_rho),
    )


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _held_to(old: Plan, new: Plan) -> Plan:
    """`new`, as a device that comes from `old` reads it: another name has limits of its own."""
    return replace(new, budget=_strictest(old, new)) if new.name == old.name else new


def _silenced(old: Plan, new: Plan) -> Iterator[str]:
    """Limits into which not one report of the new version fits, in epsilon or in rho."""
    epsilon, rho = new.report_micro_epsilon, new.report_micro_rho
    held, own = _strictest(old, new), new.budget
    for field, cost, unit, limit, new_limit in (
        ("rolling_24h", epsilon, "", held.rolling_24h_micro, own.rolling_24h_micro),
        ("lifetime", epsilon, "", held.lifetime_micro, own.lifetime_micro),
        ("rolling_24h_rho", rho, " rho", held.rolling_24h_micro_rho, own.rolling_24h_micro_rho),
        ("lifetime_rho", rho, " rho", held.lifetime_micro_rho, own.lifetime_micro_rho),
    ):
        if limit is not None and cost > limit:
            whose = new if new_limit == limit else old
            what = "ever" if field.startswith("lifetime") else "in any 24 hours"
            yield (
                f"budget.{field}: devices fall silent: a report costs {format_micro(cost)}{unit}, but they keep the "
                f"strictest limit that they have seen, {format_micro(limit)} {what} (version {whose.version}'s); "
                "lower epsilon, or give the plan a new name"
            )


def _other_meaning(before: Metric, now: Metric) -> Iterator[str]:
    """Fields whose change makes one name two questions: their answers cannot be put together."""
    where = f"metrics.{now.name}"
    if before.on_device != now.on_device:
        yield f"{where}.on_device: {now.on_device}, but {before.on_device} before: other values under one name"
    yield from _other_clip(before, now)
    clipped = f"readings are clipped to {_range(now)}, but to {_range(before)} before"
    if before.lower != now.lower:
        yield f"{where}.lower: {clipped}: answers over both versions are of neither"
    elif before.upper != now.upper:
        yield f"{where}.upper: {clipped}: answers over both versions are of neither"
    elif before.optional != now.optional:
        # of a number that is another answer altogether, see `names`
        if before.mechanism.answer == now.mechanism.answer:
            yield f"{where}.optional: without a reading it was {_default(before)}, now it is {_default(now)}"
    elif before.default != now.default:
        yield f"{where}.default: without a reading it was {_default(before)}, now it is {_default(now)}"


def _other_clip(before: Metric, now: Metric) -> Iterator[str]:
    if before.vector is None or now.vector is None:
        return
    old, new = (f"{rules.norm.upper()} norm {minimal(rules.clip)}" for rules in (before.vector, now.vector))
    if old != new:
        yield f"metrics.{now.name}.clip: to {new}, but to {old} before: answers over both versions are of neither"


def _range(metric: Metric) -> str:
    return f"[{minimal(metric.lower or 0)}, {minimal(metric.upper or 0)}]"


def _default(metric: Metric) -> str:
    if metric.vector is not None:
        return "zeros"
    if metric.default is None:
        return "no reading"
    return shown(metric.default) if isinstance(metric.default, str) else minimal(metric.default)


# --- what only changes ------------------------------------------------------------------------------


def _changes(old: Plan, new: Plan) -> Iterator[str]:
    for name in sorted({*old.metrics, *new.metrics}):
        before, now = old.metrics.get(name), new.metrics.get(name)
        if before is None and now is not None:
            sliced = "" if now.slice_by is None else f" sliced by {now.slice_by}"
            yield f"metrics.{name}: new ({now.kind}{sliced}, {now.mechanism.name}, epsilon {minimal(now.epsilon)})"
        elif now is None:
            yield f"metrics.{name}: removed"
        elif before is not None and before.kind == now.kind:
            yield from _changed(before, now)
    if old.sample_metrics != new.sample_metrics:
        yield f"plan.sample_metrics: {_sampled(new)}, {_sampled(old)} before"
    yield from _thinned(old, new)
    yield from _other_delivery(old, new)
    if old.cohort != new.cohort:
        yield "cohort: other rules; `plan check` prints the rosters"
    if old.registrar != new.registrar:
        yield "registrar: another one; devices believe the table of the plan that ships with their app alone"


def _other_delivery(old: Plan, new: Plan) -> Iterator[str]:
    before, now = old.delivery, new.delivery
    if before.resend != now.resend:
        yield f"delivery.resend: {now.resend}, {before.resend} before"
    if before.delivery == "direct" != now.delivery:
        yield "delivery.delivery: interactive, direct before: reports hide in sums from now on"
    if before.fallback != now.fallback:
        what = {"direct": "unmasked where the device allows it, at its local epsilon", "none": "not at all"}
        yield f"delivery.fallback: a report without a cohort leaves {what[now.fallback]}; {before.fallback} before"
    elif before.fallback_after_s != now.fallback_after_s:
        yield f"delivery.fallback_after: {now.fallback_after_s} s, {before.fallback_after_s} s before"


def _thinned(old: Plan, new: Plan) -> Iterator[str]:
    """Where reports fit into the old version's 24 hours, but fewer than the new one counts on.

    In epsilon alone: a limit in rho that grows is a break, and has no default that grows with the reports.
    """
    cost, kept = new.report_micro_epsilon, old.budget.rolling_24h_micro
    needed = min(new.budget.rolling_24h_micro, rolling_24h_micro(new.period_s, cost))
    if new.name == old.name and cost <= kept < needed:
        yield (
            f"budget.rolling_24h: devices keep version {old.version}'s {format_micro(kept)}, less than the reports "
            f"that 24 hours can touch now cost ({format_micro(needed)}): some periods go without a report"
        )


def _sampled(plan: Plan) -> str:
    held = len(plan.metrics) if plan.sample_metrics is None else plan.sample_metrics
    return f"{held} of {len(plan.metrics)} metrics in each report"


def _changed(before: Metric, now: Metric) -> Iterator[str]:
    where = f"metrics.{now.name}"
    if before.epsilon != now.epsilon:
        yield f"{where}.epsilon: {minimal(now.epsilon)}, {minimal(before.epsilon)} before"
    if before.mechanism.name != now.mechanism.name:
        yield f"{where}.mechanism: {now.mechanism.name}, {before.mechanism.name} before"
    yield from _other_memory(before, now)
    if now.slice_by is not None and before.levels != now.levels:
        yield f"{where}.levels: {now.levels}, {before.levels} before; each version is decoded by itself, then added up"
    if before.expires != now.expires:
        yield f"{where}.expires: {now.expires or 'never'}, {before.expires or 'never'} before"
    if before.quantiles != now.quantiles or (now.kind == "quantiles" and before.edges != now.edges):
        yield f"{where}: other quantiles or bins; each version's distribution is decoded by itself, then mixed"
    if now.kind == "categorical":
        yield from _changed_labels(before, now)


def _other_memory(before: Metric, now: Metric) -> Iterator[str]:
    """Permanent answers are kept as long as nothing of their law or price changes."""
    where, old, new = f"metrics.{now.name}.memoize", before.memo, now.memo
    if new is None and old is not None:
        yield f"{where}: false, true before: each report is drawn afresh from now on, and costs its epsilon"
    elif new is not None and (old is None or old.key != new.key):
        most = format_micro(new.max_distinct * new.inf_micro)
        again = "true, false before" if old is None else "other labels, epsilons or max_distinct"
        yield f"{where}: {again}: new permanent answers; all reports under them cost up to {most} beside what was spent"


def _changed_labels(before: Metric, now: Metric) -> Iterator[str]:
    where = f"metrics.{now.name}.categories"
    known, kept = set(labels(before)), set(labels(now))
    added = [label for label in labels(now) if label not in known]
    removed = [label for label in labels(before) if label not in kept]
    if added:
        was = "refused" if before.other is None else f"counted as {shown(before.other)}"
        yield f"{where}: {listed(added)} added: counted from this version on; {was} before"
    if removed:
        will = "refused" if now.other is None else f"counted as {shown(now.other)}"
        yield f"{where}: {listed(removed)} removed: what was counted stays; {will} from now on"
    if added and removed:
        yield f"{where}: a renamed label is a new one: nothing that was counted moves to its new name"
    if not added and not removed and labels(before) != labels(now):
        yield f"{where}: in another order; answers are combined by name"


# --- what it costs ----------------------------------------------------------------------------------


def _prices(before: PlanCheck, after: PlanCheck) -> Iterator[Price]:
    for what, field in (
        ("report", "epsilon_report"),
        ("day", "epsilon_day"),
        ("30 days", "epsilon_30_days"),
        ("year", "epsilon_year"),
        ("lifetime", "epsilon_lifetime"),
    ):
        yield Price(what, getattr(before, field), getattr(after, field))
    yield Price("reports in a lifetime", str(before.lifetime_reports), str(after.lifetime_reports))
    yield Price("days until it is used up", _days(before), _days(after))


def _days(check: PlanCheck) -> str | None:
    return None if check.stops_after_days is None else str(check.stops_after_days)


def format_diff(diff: PlanDiff) -> str:
    """The diff as plain text; ends without a line break."""
    old, new = (
        f"{version} ({text[:12]})"
        for version, text in ((diff.old_version, diff.old_hash), (diff.new_version, diff.new_hash))
    )
    lines = [
        f"plan {diff.name}: version {old} to {new}",
        "",
        *(f"breaks: {line}" for line in diff.breaks),
        *(f"changes: {line}" for line in diff.changes),
    ]
    if not diff.breaks:
        lines.append("the same plan" if diff.old_hash == diff.new_hash else "nothing breaks")
    header = ("  epsilon of one device", f"version {diff.old_version}", f"version {diff.new_version}", "change")
    return "\n".join([*lines, "", *aligned([header, *(_price_row(price) for price in diff.prices)])])


def _price_row(price: Price) -> tuple[str, ...]:
    if price.old is None or price.new is None:
        return f"  {price.what}", price.old or "none", price.new or "none", ""
    change = EXACT.subtract(Decimal(price.new), Decimal(price.old))
    return (
        f"  {price.what}",
        price.old,
        price.new,
        f"{'+' if change > 0 else ''}{minimal(change)}" if change else "same",
    )
