"""Windows of a report: calendar days, weeks and months of a zone, or plan versions, one report for each.

Rules of this file: windows are half open, follow each other without a gap, and a period belongs, whole, to the window
in which it starts; a plan whose periods reach over a window's end is named in the header. A day is a zone's own, from
its midnight to the next: 23 or 25 hours where the clock changes, from its first instant where midnight is skipped, and
none where the zone skipped the whole day. A week is ISO 8601's, from Monday.
What it does not do: it looks nothing up; the zone and its rules come in as an argument.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from client_sdk.errors import ConfigurationError
from collector.reduced import is_between

if TYPE_CHECKING:
    from client_sdk.plan import Plan

BY: Final = ("day", "week", "month", "version")
RULE: Final = "half open; a period belongs to the window in which it starts"
MOST_WINDOWS: Final = 5_000

DAY_S: Final = 86_400
LEAST_S: Final = {"day": DAY_S, "week": 7 * DAY_S, "month": 28 * DAY_S}
"""About how long the shortest is, to count before making them."""

Starts = Mapping[bytes, Collection[int]]
"""By plan hash: the periods that have a sum, by their start."""


@dataclass(frozen=True, slots=True)
class Window:
    """Periods that start in since <= period_start < until, in seconds since the epoch; `plan`: of that version only."""

    label: str
    since: int
    until: int
    plan: bytes | None = None


def windows_of(
    by: str, zone: tzinfo, plans: Sequence[Plan], starts: Starts, since: int | None, until: int | None
) -> list[Window]:
    """From `since` to `until`, or from the first period to the last; of versions, those that have a sum there.

    by: one of BY. Raises ConfigurationError for more than MOST_WINDOWS.
    """
    inside = {key: [start for start in held if is_between(start, since, until)] for key, held in starts.items()}
    if by == "version":
        return _versions(plans, inside)
    every = [start for held in inside.values() for start in held]
    first = min(every, default=None) if since is None else since
    last = max(every, default=None) if until is None else until - 1
    if first is None or last is None:
        return []
    return calendar_windows(by, zone, first, last, cut=(since, until))


def _versions(plans: Sequence[Plan], starts: Starts) -> list[Window]:
    found = []
    for plan in sorted(plans, key=lambda plan: (plan.name, plan.version)):
        if held := starts.get(plan.hash):
            label = f"{plan.name} version {plan.version}"
            found.append(Window(label, min(held), max(held) + plan.period_s, plan.hash))
    return found


# --- the calendar -----------------------------------------------------------------------------------


def calendar_windows(
    by: str, zone: tzinfo, first: int, last: int, cut: tuple[int | None, int | None] = (None, None)
) -> list[Window]:
    """Those from the instant `first` to the instant `last`, the outer ones cut to `cut` where that is given.

    Raises ConfigurationError for more than MOST_WINDOWS, and for one that has no end.
    """
    first = max(first, 0)  # nothing was collected before
    if last - first > MOST_WINDOWS * LEAST_S[by]:
        raise ConfigurationError(
            f"--by {by}: more than {MOST_WINDOWS:,} windows; give --since and --until, or take longer windows"
        )
    try:
        return list(_calendar(by, zone, first, last, cut))
    except (OverflowError, ValueError):
        raise ConfigurationError(f"--by {by}: the calendar ends with the year 9999; give an earlier --until") from None


def _calendar(by: str, zone: tzinfo, first: int, last: int, cut: tuple[int | None, int | None]) -> Iterator[Window]:
    low, high = cut
    day = _begin(by, _local_date(first, zone))
    while (since := day_start(day, zone)) <= last:
        following = _following(by, day)
        until = day_start(following, zone)
        ends = max(since, first if low is not None else since), until if high is None else min(until, high)
        if ends[0] < ends[1]:
            yield Window(_label(by, day), *ends)
        day = following


def day_start(day: date, zone: tzinfo) -> int:
    """The first instant of a zone's day, in seconds since the epoch; of a day that it skipped, where that would be."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    instant = int((midnight - EPOCH).total_seconds())
    if datetime.fromtimestamp(instant, zone).time() == time(0):
        return instant
    around = range(instant - DAY_S, instant)  # the clock jumped over midnight: where it did is the beginning
    return around.start + bisect_left(around, day, key=lambda one: _local_date(one, zone))


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _local_date(instant: int, zone: tzinfo) -> date:
    return datetime.fromtimestamp(instant, zone).date()


def _begin(by: str, day: date) -> date:
    """The first day of the window that `day` is in."""
    if by == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if by == "month" else day


def _following(by: str, day: date) -> date:
    """The first day of the next window."""
    if by == "month":
        return date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return day + timedelta(days=7 if by == "week" else 1)


def _label(by: str, day: date) -> str:
    if by == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return f"{day:%Y-%m}" if by == "month" else day.isoformat()


# --- what lies in which -----------------------------------------------------------------------------


def place_in(windows: Sequence[Window]) -> Callable[[bytes, int], int | None]:
    """(plan hash, period start) -> which of `windows_of` holds that period; None: none of them."""
    by_plan = {window.plan: place for place, window in enumerate(windows) if window.plan is not None}
    begins = [window.since for window in windows]

    def place(plan: bytes, start: int) -> int | None:
        found = by_plan.get(plan, -1) if by_plan else bisect_right(begins, start) - 1
        return found if found >= 0 and windows[found].since <= start < windows[found].until else None

    return place


def straddling(plans: Sequence[Plan], starts: Starts, windows: Sequence[Window]) -> list[str]:
    """Names of the plans of which a period with a sum begins in one of these windows and ends after it."""
    place = place_in(windows)

    def reaches_over(plan: Plan, start: int) -> bool:
        found = place(plan.hash, start)
        return found is not None and start + plan.period_s > windows[found].until

    return sorted({p.name for p in plans if any(reaches_over(p, start) for start in starts.get(p.hash, ()))})
