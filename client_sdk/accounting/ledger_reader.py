"""A ledger's document, read strictly: what is not exactly what a ledger says is refused, by the name of its field.

Rules of this file: whole numbers only where whole numbers belong (no true, no 1.0, no "1"), none below what it counts
and none beyond 2^62; no field is skipped and none is made up; what contradicts itself is refused (a sum of more
reports than its roster has members, a report that is counted and never left, a period charged twice).
What it does not do: believe what is stated. `Ledger.counted` adds the rows up again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

from client_sdk.accounting.ledger import (
    FORM,
    WINDOWS,
    Cohort,
    Delivery,
    FoldedReports,
    Ledger,
    LedgerEntry,
    LedgerPlan,
    Source,
    Stated,
)
from client_sdk.accounting.loss import RELATION
from client_sdk.errors import ConfigurationError

LARGEST: Final = 2**62
"""No amount, no count and no time is larger."""

LONGEST: Final = 255
"""Characters of a name, an outcome or a round."""

_HASH = re.compile(r"[0-9a-f]{64}")
_DEVICE = re.compile(r"[0-9a-f]{32}")
_Row = TypeVar("_Row")


def parse_ledger(text: str) -> Ledger:
    """The ledger in a JSON text. ConfigurationError for what is none; a key that stands twice is refused too."""
    try:
        document = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:  # nested too deeply, or a number too long, is no ledger either
        raise ConfigurationError(f"ledger: not JSON ({error}); export it again") from None
    return read_ledger(document)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def read_ledger(document: object) -> Ledger:
    """The ledger that a parsed JSON document holds. ConfigurationError names the field that cannot be."""
    top = _Fields("ledger", document)
    top.word("ledger", FORM)
    ledger = Ledger(
        source=cast(Source, top.word("source", "device", "collector")),
        device=top.text_or_none("device", _DEVICE),
        as_of=top.whole("as_of"),
        relation=top.word("relation", RELATION),
        damaged=top.text_or_none("damaged") if top.has("damaged") else None,
        plans=top.rows("plans", _plan),
        entries=top.rows("entries", _entry),
        carried_micro_epsilon=top.whole("carried_micro_epsilon"),
        carried_until=top.whole_or_none("carried_until") if top.has("carried_until") else None,
        folded=top.rows("folded", _folded) if top.has("folded") else (),
        stated=_stated(top.inner("stated")),
    )
    top.end()
    _check_plans(ledger)
    return ledger


def _check_plans(ledger: Ledger) -> None:
    names = {plan.hash: plan.name for plan in ledger.plans}
    if len(names) < len(ledger.plans):
        _refuse("ledger.plans", "a hash stands twice")
    for place, row in enumerate(ledger.folded):
        if row.plan not in names:
            _refuse(f"ledger.folded[{place}].plan", "is none of `plans`")
    periods: set[tuple[str, int]] = set()
    for place, entry in enumerate(ledger.entries):
        if entry.plan not in names:
            _refuse(f"ledger.entries[{place}].plan", "is none of `plans`")
        period = names[entry.plan], entry.period_start
        if period in periods:  # over all versions of a plan's name: only one report of a period is ever made
            _refuse(f"ledger.entries[{place}].period_start", "this plan's period is charged twice")
        periods.add(period)


def _plan(fields: _Fields) -> LedgerPlan:
    return LedgerPlan(
        fields.text("hash", _HASH), fields.text("name"), fields.whole_or_none("version"), fields.whole("first_used_at")
    )


def _entry(fields: _Fields) -> LedgerEntry:
    entry = LedgerEntry(
        plan=fields.text("plan", _HASH),
        period_start=fields.whole("period_start"),
        charged_at=fields.whole("charged_at"),
        micro_epsilon=fields.whole("micro_epsilon", 1),
        outcome=fields.text("outcome"),
        left_device=fields.flag("left_device"),
        resent=fields.flag("resent"),
        delivery=cast(Delivery, fields.word("delivery", "interactive", "direct")),
        round=fields.text_or_none("round"),
        cohort=(cohort := _cohort(fields)),
        metric_contributors=_metric_contributors(fields, cohort),
    )
    if not entry.left_device and (entry.is_counted or entry.resent):
        _refuse(f"{fields.path}.left_device", "is false, but the report was counted or resent")
    return entry


def _folded(fields: _Fields) -> FoldedReports:
    return FoldedReports(
        plan=fields.text("plan", _HASH),
        charged_at=fields.whole("charged_at"),
        reports=(reports := fields.whole("reports", 1)),
        micro_epsilon=fields.whole("micro_epsilon", reports),
        resent=fields.flag("resent"),
        delivery=cast(Delivery, fields.word("delivery", "interactive", "direct")),
        cohort=(cohort := _cohort(fields)),
        metric_contributors=_metric_contributors(fields, cohort),
    )


def _cohort(fields: _Fields) -> Cohort | None:
    """All three numbers or none of them: without one, what the others say bounds nothing."""
    contributors = fields.whole_or_none("contributors", 1)
    roster = fields.whole_or_none("roster", 1)
    resent = fields.whole_or_none("resent_contributors")
    if contributors is None and roster is None and resent is None:
        return None
    if contributors is None or roster is None or resent is None:
        _refuse(f"{fields.path}.contributors", "contributors, roster and resent_contributors: all are numbers, or none")
    if not resent <= contributors <= roster:
        _refuse(f"{fields.path}.contributors", "must lie between resent_contributors and roster")
    return Cohort(contributors, roster, resent)


def _metric_contributors(fields: _Fields, cohort: Cohort | None) -> Mapping[str, int]:
    if not fields.has("metric_contributors"):
        return {}
    inner = fields.inner("metric_contributors")
    if cohort is None:
        _refuse(inner.path, "stands beside no contributors")
    return {name: inner.whole(name, largest=cohort.contributors) for name in sorted(inner.names())}


def _stated(fields: _Fields) -> Stated:
    windows = fields.inner("windows")
    stated = Stated(
        fields.whole("reports"),
        fields.whole("failed_but_spent"),
        fields.whole("lifetime_micro_epsilon"),
        {window: windows.whole(window) for window in WINDOWS},
    )
    windows.end()
    fields.end()
    return stated


class _Fields:
    """One JSON object; each of its fields is asked for once, and `end` refuses those that were not."""

    def __init__(self, path: str, data: object) -> None:
        if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
            _refuse(path, "must be an object")
        self.path, self._left = path, dict(data)

    def has(self, name: str) -> bool:
        return name in self._left

    def names(self) -> list[str]:
        return list(self._left)

    def end(self) -> None:
        for name in self._left:
            _refuse(f"{self.path}.{name[:LONGEST]!r}", "is no field of a ledger")

    def _take(self, name: str) -> Any:
        if name not in self._left:
            _refuse(f"{self.path}.{name}", "is missing")
        return self._left.pop(name)

    def whole(self, name: str, least: int = 0, largest: int = LARGEST) -> int:
        value = self._take(name)
        if type(value) is not int or not least <= value <= largest:
            _refuse(f"{self.path}.{name}", f"must be a whole number, {least} to {largest}")
        return value

    def whole_or_none(self, name: str, least: int = 0) -> int | None:
        if name in self._left and self._left[name] is None:
            self._take(name)
            return None
        return self.whole(name, least)

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            _refuse(f"{self.path}.{name}", "must be true or false")
        return value

    def text(self, name: str, form: re.Pattern[str] | None = None) -> str:
        value = self._take(name)
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
            _refuse(f"{self.path}.{name}", f"must be a printable text of 1 to {LONGEST} characters")
        if form is not None and not form.fullmatch(value):
            _refuse(f"{self.path}.{name}", f"must be hexadecimal digits, as in {form.pattern}")
        return value

    def text_or_none(self, name: str, form: re.Pattern[str] | None = None) -> str | None:
        if name in self._left and self._left[name] is None:
            self._take(name)
            return None
        return self.text(name, form)

    def word(self, name: str, *words: str) -> str:
        value = self._take(name)
        if value not in words:
            _refuse(f"{self.path}.{name}", f"must be {' or '.join(words)}")
        return cast(str, value)

    def inner(self, name: str) -> _Fields:
        return _Fields(f"{self.path}.{name}", self._take(name))

    def rows(self, name: str, read: Callable[[_Fields], _Row]) -> tuple[_Row, ...]:
        data = self._take(name)
        if not isinstance(data, list | tuple):
            _refuse(f"{self.path}.{name}", "must be a list")
        found = []
        for place, row in enumerate(data):
            fields = _Fields(f"{self.path}.{name}[{place}]", row)
            found.append(read(fields))
            fields.end()
        return tuple(found)


def _refuse(path: str, problem: str) -> NoReturn:
    raise ConfigurationError(f"{path}: {problem}; export the ledger again")
