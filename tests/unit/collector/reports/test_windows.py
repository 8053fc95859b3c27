"""Windows of a report: a zone's days, weeks and months, and plan versions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan, parse_plan
from collector.reports.windows import (
    DAY_S,
    MOST_WINDOWS,
    Window,
    calendar_windows,
    day_start,
    place_in,
    straddling,
    windows_of,
)

HOUR_S = 3600
ZURICH = ZoneInfo("Europe/Zurich")
ODD_ZONES = [
    "UTC", "Europe/Zurich", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia",
    "Pacific/Kwajalein", "Asia/Beirut", "Australia/Lord_Howe", "Africa/Monrovia", "America/Toronto", "Asia/Kathmandu",
]  # fmt: skip
"""Midnight skipped or said twice, whole days skipped, changes of half an hour, offsets of seconds."""


def at(text: str, zone: tzinfo = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


def plan_of(period: str, version: int = 1, name: str = "p") -> Plan:
    return parse_plan(f"""
[plan]
name = "{name}"
version = {version}
period = "{period}"
[cohort]
min_size = 2
target_size = 10
max_wait = "30s"
[budget]
lifetime = 365
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 10
epsilon = 1
""")


def hours(windows: list[Window]) -> list[float]:
    return [(window.until - window.since) / HOUR_S for window in windows]


# --- the calendar -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "first", "labels", "long"),
    [
        ("UTC", "2026-03-28", ["2026-03-28", "2026-03-29", "2026-03-30"], [24, 24, 24]),
        ("Europe/Zurich", "2026-03-28", ["2026-03-28", "2026-03-29", "2026-03-30"], [24, 23, 24]),
        ("Europe/Zurich", "2026-10-24", ["2026-10-24", "2026-10-25", "2026-10-26"], [24, 25, 24]),
        # at 00:00 the clock was put to 01:00, so the day began at 01:00
        ("America/Sao_Paulo", "2018-11-03", ["2018-11-03", "2018-11-04", "2018-11-05"], [24, 23, 24]),
        # at 00:00 the clock was put to 23:00 of the day before
        ("America/Sao_Paulo", "2019-02-16", ["2019-02-16", "2019-02-17", "2019-02-18"], [25, 24, 24]),
        # at 01:00 the clock was put to 00:00: the day began at the first of two midnights
        ("America/Havana", "2025-11-01", ["2025-11-01", "2025-11-02", "2025-11-03"], [24, 25, 24]),
        # half an hour
        ("Australia/Lord_Howe", "2026-04-04", ["2026-04-04", "2026-04-05", "2026-04-06"], [24, 24.5, 24]),
        # 30 December 2011 was left out
        ("Pacific/Apia", "2011-12-28", ["2011-12-28", "2011-12-29", "2011-12-31"], [24, 24, 24]),
    ],
)
def test_days_around_clock_changes(zone: str, first: str, labels: list[str], long: list[float]) -> None:
    rules = ZoneInfo(zone)
    since = at(first, rules)
    windows = calendar_windows("day", rules, since, since + int(sum(long) * HOUR_S) - 1)
    assert [window.label for window in windows] == labels
    assert hours(windows) == long


def test_a_day_begins_where_its_midnight_was_skipped() -> None:
    rules = ZoneInfo("America/Sao_Paulo")
    assert day_start(datetime(2018, 11, 4, tzinfo=UTC).date(), rules) == at("2018-11-04T03:00:00")
    before = ZoneInfo("America/Toronto")  # in 1919 its clocks went from 23:30 to 00:30
    begin = day_start(datetime(1919, 3, 31, tzinfo=UTC).date(), before)
    local = datetime.fromtimestamp(begin, before)
    assert (local.isoformat()[:16], datetime.fromtimestamp(begin - 1, before).isoformat()[:16]) == (
        "1919-03-31T00:30", "1919-03-30T23:29",
    )  # fmt: skip


@given(
    st.sampled_from(ODD_ZONES),
    st.sampled_from(["day", "week", "month"]),
    st.integers(0, at("2037-01-01")),
    st.integers(0, 80 * DAY_S),
)
def test_windows_are_a_partition(name: str, by: str, first: int, span: int) -> None:
    rules, last = ZoneInfo(name), first + span
    windows = calendar_windows(by, rules, first, last)
    assert all(a.until == b.since for a, b in pairwise(windows)), "no gap, nothing twice"
    assert windows[0].since <= first < windows[0].until
    assert windows[-1].since <= last < windows[-1].until
    assert min(hours(windows)) > 0
    assert len({window.label for window in windows}) == len(windows)
    place = place_in(windows)
    assert (place(b"", first), place(b"", last)) == (0, len(windows) - 1)
    assert place(b"", windows[0].since - 1) is place(b"", windows[-1].until) is None


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    first, last = at("2025-12-27", ZURICH), at("2026-01-12", ZURICH)
    weeks = calendar_windows("week", ZURICH, first, last)
    assert [window.label for window in weeks] == ["2025-W52", "2026-W01", "2026-W02", "2026-W03"]
    assert {datetime.fromtimestamp(window.since, ZURICH).strftime("%a %H:%M") for window in weeks} == {"Mon 00:00"}
    months = calendar_windows("month", ZURICH, first, last)
    assert [window.label for window in months] == ["2025-12", "2026-01"]
    assert [window.since for window in months] == [at("2025-12-01", ZURICH), at("2026-01-01", ZURICH)]
    assert hours(calendar_windows("month", ZURICH, at("2026-03-05"), at("2026-03-05"))) == [31 * 24 - 1]


def test_what_is_asked_for_cuts_the_outer_windows_and_nothing_else_does() -> None:
    since, until = at("2026-01-01T06:00"), at("2026-01-03T18:00")
    asked = windows_of("day", UTC, [], {}, since, until)
    assert [(window.since, window.until) for window in asked] == [
        (since, at("2026-01-02")), (at("2026-01-02"), at("2026-01-03")), (at("2026-01-03"), until),
    ]  # fmt: skip
    found = windows_of("day", UTC, [], {b"a": [since], b"b": [until]}, None, None)
    assert [(window.since, window.until) for window in found] == [
        (at(f"2026-01-0{day}"), at(f"2026-01-0{day + 1}")) for day in (1, 2, 3)
    ]  # fmt: skip
    assert windows_of("day", UTC, [], {b"a": [since - 9 * DAY_S]}, since, None) == [], "it ends before it begins"
    assert windows_of("day", UTC, [], {}, None, None) == []
    whole = windows_of("day", UTC, [], {}, at("2026-01-01"), at("2026-01-02"))
    assert [window.label for window in whole] == ["2026-01-01"], "half open"


@pytest.mark.parametrize("by", ["day", "week", "month"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_a_window_that_ends_after_the_calendar_is_refused(by: str, zone: str) -> None:
    last = at("9999-12-31T23:59:59")
    with pytest.raises(ConfigurationError, match="9999"):
        calendar_windows(by, ZoneInfo(zone), last, last)


def test_too_many_windows_are_refused_before_they_are_made() -> None:
    with pytest.raises(ConfigurationError, match="--by day: more than 5,000 windows"):
        windows_of("day", UTC, [], {}, -(10**11), 2 * 10**11)
    assert len(windows_of("day", UTC, [], {}, 0, MOST_WINDOWS * DAY_S)) == MOST_WINDOWS
    with pytest.raises(ConfigurationError, match="more than"):
        windows_of("day", UTC, [], {}, 0, MOST_WINDOWS * DAY_S + 2)


# --- versions ---------------------------------------------------------------------------------------


def test_versions_that_have_a_sum_in_the_time() -> None:
    plans = [plan_of("1d", version, name) for name, version in (("b", 1), ("a", 10), ("a", 9), ("a", 11))]
    b1, a10, a9, _ = plans
    starts = {b1.hash: [3 * DAY_S], a10.hash: [2 * DAY_S, 3 * DAY_S], a9.hash: [0, 2 * DAY_S]}
    assert windows_of("version", UTC, plans, starts, None, None) == [
        Window("a version 9", 0, 3 * DAY_S, a9.hash),
        Window("a version 10", 2 * DAY_S, 4 * DAY_S, a10.hash),
        Window("b version 1", 3 * DAY_S, 4 * DAY_S, b1.hash),
    ]
    inside = windows_of("version", UTC, plans, starts, DAY_S, 3 * DAY_S)
    assert [window.label for window in inside] == ["a version 9", "a version 10"]
    assert {window.since for window in inside} == {2 * DAY_S}
    place = place_in(windows_of("version", UTC, plans, starts, None, None))
    assert [place(plan.hash, 2 * DAY_S) for plan in plans] == [None, 1, 0, None], "versions overlap, and never mix"


# --- periods that reach over a window ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "by", "zone", "over"),
    [
        ("1d", "day", UTC, []),
        ("1d", "day", timezone(timedelta(hours=-8)), ["p"]),
        ("1d", "day", ZURICH, ["p"]),
        ("1h", "day", ZURICH, []),
        ("7d", "day", UTC, ["p"]),
        ("7d", "week", UTC, ["p"]),  # periods are counted from 1970-01-01, a Thursday
        ("1d", "week", UTC, []),
        ("1d", "month", UTC, []),
    ],
)
def test_plans_whose_periods_reach_over_are_named(period: str, by: str, zone: tzinfo, over: list[str]) -> None:
    plan = plan_of(period)
    start = at("2026-01-10") // plan.period_s * plan.period_s
    starts = {plan.hash: [start + i * plan.period_s for i in range(3)]}
    assert straddling([plan], starts, windows_of(by, zone, [plan], starts, None, None)) == over


def test_a_plan_without_a_sum_reaches_over_nothing() -> None:
    week, day = plan_of("7d", name="w"), plan_of("1d")
    starts = {day.hash: [0, DAY_S]}
    windows = windows_of("day", UTC, [week, day], starts, None, None)
    assert straddling([week, day], starts, windows) == []
