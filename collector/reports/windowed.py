"""One report per window: each decoded by itself, version by version; nothing of one window goes into another.

Rules of this file: windows are made one at a time, so that no more than one report need be held at once; where the
report of a window comes from (a reduced form at hand, a collector far away) is its caller's business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from client_sdk.plan import Plan
from collector.poisoning import SHARE
from collector.reduced import Head, Key, PeriodKey, Reduced
from collector.release import ReleasedSum
from collector.reports.report import build_numbers, build_report, report_rows
from collector.reports.text import Cell, format_instant
from collector.reports.windows import RULE, Starts, Window, place_in, straddling

COLUMNS: Final = ("window", "window_since", "window_until")
"""In front of a report's own, in a CSV."""

Build = Callable[[Window], Mapping[str, Any]]
"""The report of one window."""


def starts_of(reduced: Reduced, metric: str | None = None) -> Starts:
    """By plan hash the periods that have a sum, of that metric or of any."""
    found: dict[bytes, set[int]] = defaultdict(set)
    for plan, name, start in reduced.totals:
        if metric in (None, name):
            found[plan].add(start)
    return found


def builder(
    plans: Sequence[Plan],
    reduced: Reduced,
    windows: Sequence[Window],
    metric: str | None = None,
    false_devices: Fraction | int = SHARE,
    *,
    numbers_only: bool = False,
) -> Build:
    """Reports of `windows`, from sums that are at hand; or only what a chart of them needs (`build_numbers`).

    A version's window knows no other version.
    """
    parts = dict(zip(windows, split(reduced, windows), strict=True))

    def build(window: Window) -> Mapping[str, Any]:
        known = [plan for plan in plans if window.plan in {None, plan.hash}]
        if numbers_only:
            return build_numbers(known, parts[window], metric=metric)
        return build_report(known, parts[window], metric=metric, false_devices=false_devices)

    return build


def split(reduced: Reduced, windows: Sequence[Window]) -> list[Reduced]:
    """Each window's part, in one pass over all."""
    place = place_in(windows)
    heads: list[list[Head]] = [[] for _ in windows]
    totals: list[dict[PeriodKey, Sequence[int]]] = [{} for _ in windows]
    cohorts: list[dict[Key, list[ReleasedSum]]] = [defaultdict(list) for _ in windows]
    for head in reduced.heads:
        if (found := place(head.plan_hash, head.period_start)) is not None:
            heads[found].append(head)
    for key, total in reduced.totals.items():
        if (found := place(key[0], key[2])) is not None:
            totals[found][key] = total
    for of_metric, rows in reduced.cohorts.items():
        for row in rows:
            if (found := place(row.plan_hash, row.period_start)) is not None:
                cohorts[found][of_metric].append(row)
    return [Reduced(*parts, reduced.not_compared) for parts in zip(heads, totals, cohorts, strict=True)]


def windowed_header(
    by: str, zone: str, plans: Iterable[Plan], starts: Starts, windows: Sequence[Window]
) -> dict[str, Any]:
    """What stands before the windows: by what, in which zone, from when to when, and whose periods reach over them.

    zone: its name. `straddling`: names of plans of which a period begins in one window and ends after it.
    """
    versions = sorted(plans, key=lambda plan: (plan.name, plan.version))
    is_calendar = by != "version"
    return {
        "by": by,
        "zone": zone,
        "rule": RULE,
        "since": format_instant(windows[0].since) if windows and is_calendar else None,
        "until": format_instant(windows[-1].until) if windows and is_calendar else None,
        "straddling": straddling(versions, starts, windows) if is_calendar else [],
        "plans": [{"name": p.name, "version": p.version, "hash": p.hash.hex()} for p in versions],
    }


def windowed(build: Build, windows: Iterable[Window]) -> Iterator[dict[str, Any]]:
    """`{window, since, until, metrics[]}` of each."""
    for window in windows:
        yield {
            "window": window.label,
            "since": format_instant(window.since),
            "until": format_instant(window.until),
            "metrics": build(window)["metrics"],
        }


def window_rows(windows: Iterable[Mapping[str, Any]]) -> Iterator[list[Cell]]:
    """Rows of a CSV: COLUMNS, and then a report's own."""
    for window in windows:
        first = [window["window"], window["since"], window["until"]]
        yield from ([*first, *row] for row in report_rows(window))
