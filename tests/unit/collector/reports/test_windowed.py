"""One report per window: each as if it had been asked for alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo

import pytest

from client_sdk.plan import Plan, parse_plan
from collector.reduced import Reduced, reduce_sums
from collector.release import ReleasedSum
from collector.reports import build_report, to_csv, to_json
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import csv_rows, json_pieces
from collector.reports.windowed import COLUMNS as WINDOW_COLUMNS
from collector.reports.windowed import builder, split, starts_of, window_rows, windowed, windowed_header
from collector.reports.windows import DAY_S, Window, windows_of
from tests.unit.collector.plans import make_plan, plan_of

V1, V2 = make_plan(1, other="other"), make_plan(2, "3.0", ("x", "z"), other="other")
PLANS = [V1, V2]


def rows_of(plan: Plan, day: int, colour: tuple[int, ...], seconds: int, round_id: str = "") -> list[ReleasedSum]:
    n, name = sum(colour), round_id or f"{plan.version}-{day}"
    return [
        ReleasedSum(name, plan.hash, day * DAY_S, "colour", colour, n, roster=n),
        ReleasedSum(name, plan.hash, day * DAY_S, "seconds", (seconds,), n, roster=n),
    ]


ROWS = [
    *rows_of(V1, 0, (60, 30, 10), 50_000), *rows_of(V1, 0, (50, 40, 10), 40_000, "second"),
    *rows_of(V1, 2, (20, 70, 10), -500), *rows_of(V2, 2, (80, 15, 5), 60_000),
    *rows_of(V2, 3, (5, 1, 0), 3_000),
]  # fmt: skip


def by(what: str, zone: tzinfo = UTC, rows: Sequence[ReleasedSum] = ROWS) -> tuple[Reduced, list[Window]]:
    reduced = reduce_sums(rows)
    return reduced, windows_of(what, zone, PLANS, starts_of(reduced), None, None)


@pytest.mark.parametrize("what", ["day", "week", "month"])
def test_a_window_is_the_report_of_that_time(what: str) -> None:
    reduced, windows = by(what)
    made = list(windowed(builder(PLANS, reduced, windows), windows))
    assert len(made) == {"day": 4, "week": 1, "month": 1}[what]
    for window, one in zip(made, windows, strict=True):
        alone = build_report(PLANS, ROWS, one.since, one.until)
        assert list(window) == ["window", "since", "until", "metrics"]
        assert window["metrics"] == alone["metrics"], "decoded by version and combined, as in a report of that time"
        assert (window["since"], window["until"]) == (alone["since"], alone["until"])


def test_a_day_without_a_sum_is_a_window_without_numbers() -> None:
    reduced, windows = by("day")
    day = list(windowed(builder(PLANS, reduced, windows), windows))[1]
    assert [metric["contributors"] for metric in day["metrics"]] == [0, 0]
    assert {row["estimate"] for metric in day["metrics"] for row in metric["estimates"]} == {None}


def test_a_version_knows_no_other() -> None:
    reduced, windows = by("version")
    first, second = windowed(builder(PLANS, reduced, windows), windows)
    assert (first["window"], second["window"]) == ("p version 1", "p version 2")
    assert first["metrics"] == build_report([V1], [row for row in ROWS if row.plan_hash == V1.hash])["metrics"]
    assert [row["label"] for row in second["metrics"][0]["estimates"]] == ["x", "z", "other"]
    assert [metric["plan_versions"] for metric in second["metrics"]] == [[2], [2]]
    another = parse_plan(V1.text.replace('name = "p"', 'name = "q"'))
    (alone, _) = windowed(builder([*PLANS, another], reduced, windows), windows)
    assert alone == first, "nor another plan"


def test_a_period_belongs_to_the_window_in_which_it_starts() -> None:
    west = timezone(timedelta(hours=-8))  # 00:00 UTC is 16:00 of the day before
    reduced, windows = by("day", west)
    header = windowed_header("day", "UTC-8", PLANS, starts_of(reduced), windows)
    made = list(windowed(builder(PLANS, reduced, windows), windows))
    assert [(one["window"], one["metrics"][0]["contributors"]) for one in made] == [
        ("1969-12-31", 200), ("1970-01-01", 0), ("1970-01-02", 200), ("1970-01-03", 6),
    ]  # fmt: skip
    assert header["straddling"] == ["p"]
    assert header["rule"] == "half open; a period belongs to the window in which it starts"


def test_the_windows_parts_are_all_there_is() -> None:
    reduced, windows = by("day")
    parts = split(reduced, windows)
    assert [head for part in parts for head in part.heads] == list(reduced.heads)
    assert {key: total for part in parts for key, total in part.totals.items()} == dict(reduced.totals)
    assert sum(len(part.totals) for part in parts) == len(reduced.totals)
    rounds = [row.round_id for part in parts for rows in part.cohorts.values() for row in rows]
    assert sorted(rounds) == sorted(row.round_id for row in ROWS)
    assert split(reduced, windows[:1])[0].totals.keys() == {k for k in reduced.totals if k[2] == 0}


def test_numbers_for_a_chart_are_those_of_the_report() -> None:
    reduced, windows = by("day")
    whole = builder(PLANS, reduced, windows, metric="colour")
    numbers = builder(PLANS, reduced, windows, metric="colour", numbers_only=True)
    for window in windows:
        for full, few in zip(whole(window)["metrics"], numbers(window)["metrics"], strict=True):
            assert {name: full[name] for name in few} | {"estimates": None} == {**few, "estimates": None}
            for full_row, row in zip(full["estimates"], few["estimates"], strict=True):
                assert {name: full_row[name] for name in row} == row
                assert {"estimate", "smoothed", "standard_error", "ci95", "verdict", "estimator"} <= set(row)


# --- as text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [[], [1], [{"a": [1.5, None]}, {"b": {}, "c": "\n"}]], ids=len)
def test_pieces_are_the_text(items: list[object]) -> None:
    document = {"by": "day", "plans": [{"name": "é"}]}
    assert "".join(json_pieces(document, "windows", items)) == to_json({**document, "windows": items})


def test_the_whole_document() -> None:
    reduced, windows = by("day")
    header = windowed_header("day", "UTC", PLANS, starts_of(reduced), windows)
    text = "".join(json_pieces(header, "windows", windowed(builder(PLANS, reduced, windows), windows)))
    document = json.loads(text)
    assert list(document) == ["by", "zone", "rule", "since", "until", "straddling", "plans", "windows"]
    assert (document["since"], document["until"]) == ("1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z")
    assert [plan["version"] for plan in document["plans"]] == [1, 2]
    assert [window["window"] for window in document["windows"]] == [f"1970-01-0{i}" for i in (1, 2, 3, 4)]
    reduced = reduce_sums([])
    assert windowed_header("day", "UTC", PLANS, {}, [])["since"] is None


# case G04
def test_csv_has_the_windows_columns_first() -> None:
    plan = plan_of(
        """
[metrics.colour]
kind = "categorical"
categories = ["a,b", "=2+5", "-7", "@x", "'q"]
epsilon = 1
"""
    )
    rows = [ReleasedSum("r", plan.hash, 0, "colour", (40, 0, 0, 0, 0), 40)]
    reduced = reduce_sums(rows)
    windows = windows_of("version", UTC, [plan], starts_of(reduced), None, None)
    made = [{**one, "window": "=cmd()"} for one in windowed(builder([plan], reduced, windows), windows)]
    text = to_csv((*WINDOW_COLUMNS, *COLUMNS), ()) + csv_rows(window_rows(made))
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    assert header[:5] == ["window", "window_since", "window_until", "plan", "metric"]
    assert {len(line) for line in lines} == {len(header)}
    assert not [cell for line in lines for cell in line if cell.startswith(("=", "+", "@", "\t", "\r"))]
    assert [line[header.index("label")].removeprefix("'") for line in lines] == ["a,b", "=2+5", "-7", "@x", "'q"]
    assert {line[0] for line in lines} == {"'=cmd()"}
    assert all(float(line[header.index("estimate")]) < 0 for line in lines[1:]), "negative numbers are numbers"
    raw, alone = (
        list(csv.reader(io.StringIO(csv_rows(cells, raw_text=True), newline="")))
        for cells in (window_rows(made), report_rows(build_report([plan], rows)))
    )
    assert [line[3:] for line in raw] == alone, "a report's own columns, as they are without windows"
