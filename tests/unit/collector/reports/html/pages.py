"""Documents and pages for the tests of the page, and what a parser finds in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from html.parser import HTMLParser
from importlib import resources
from typing import Any

from collector.accounting.basic import FleetSum
from collector.reduced import reduce_sums
from collector.release import ReleasedSum
from collector.reports import build_report, fleet_privacy
from collector.reports.cohorts import RoundsOfPeriod, cohorts_by_window
from collector.reports.fleet import fleet_window, with_windows
from collector.reports.html import PageData, html_report
from collector.reports.windowed import builder, starts_of, windowed, windowed_header
from collector.reports.windows import DAY_S, windows_of
from tests.unit.collector.plans import plan_of

FILES = resources.files("collector.reports.html")
TEMPLATE = FILES.joinpath("report.html.j2").read_text(encoding="utf-8")
STYLE = FILES.joinpath("report.css").read_text(encoding="utf-8")

PLAN = plan_of(
    """
[metrics.colour]
kind = "categorical"
categories = ["red", "green"]
epsilon = 1
[metrics.seconds]
kind = "numeric"
lower = -10
upper = 10
epsilon = 1
[metrics.level]
kind = "numeric"
lower = 0
upper = 1
optional = true
epsilon = 2
"""
)
EVIL = [
    "<svg onload=zz()>", '"><b id=zz>bold</b>', "' onfocus='zz()", "</script><script>zz()</script>", "javascript:zz()",
    "{{7*7}}",
]  # fmt: skip
"""The names of case G06."""


def sums(days: int, n: int = 1000) -> list[ReleasedSum]:
    """Three cohorts a day, of which one stands out on the second."""
    rows = []
    for day in range(days):
        for cohort in range(3):
            red = n - 10 if (day, cohort) == (1, 0) else n // 2
            cells = {"colour": (red, n - red), "seconds": (100 * n * (day + 1),), "level": (300 * n, 2 * n // 3)}
            rows += [
                ReleasedSum(f"r{day}-{cohort}", PLAN.hash, day * DAY_S, name, totals, n, roster=n + 5)
                for name, totals in cells.items()
            ]
    return rows


def data_of(days: int, rows: Sequence[ReleasedSum] | None = None) -> PageData:
    """A page's data as a store gives it."""
    rows = sums(days) if rows is None else rows
    reduced = reduce_sums(rows)
    windows = windows_of("day", UTC, [PLAN], starts_of(reduced), None, None)
    rounds = [
        RoundsOfPeriod(PLAN.hash, day * DAY_S, None, 3, 3015, 3000, 990, 1010, {"shares": 10, "masked_input": 5})
        for day in range(days)
    ]
    rounds += [RoundsOfPeriod(PLAN.hash, 0, "too_few_survivors", 2, 60, 0, 0, 0, {"shares": 40})]
    fleet = [FleetSum(500, micro, micro, True) for micro in (1_000_000, 2_500_000)]
    local, central = [(1.0, 500), (2.5, 500)], [(0.1, 500), (0.4, 500)]
    window = fleet_window("lifetime", fleet, local, central, delta=1e-6, is_pure=True, n_h=800, n_min=990)
    return PageData(
        report=build_report([PLAN], reduced),
        header=windowed_header("day", "UTC", [PLAN], starts_of(reduced), windows),
        windows=list(windowed(builder([PLAN], reduced, windows, numbers_only=True), windows)),
        cohorts=cohorts_by_window(rounds if days else [], windows),
        fleet=with_windows(fleet_privacy([1_000_000] * 500 + [2_500_000] * 500, is_pure=True), [window]),
    )


def page_of(data: PageData) -> str:
    return html_report(data, TEMPLATE, STYLE)


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The document with other texts: every text that `names` knows, wherever it stands."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {key: renamed(item, names) for key, item in value.items()}
    return [renamed(item, names) for item in value] if isinstance(value, (list, tuple)) else value


def evil_data(days: int, name: str) -> PageData:
    """All that comes from outside is called `name`."""
    data = data_of(days)
    texts = ["p", "colour", "red", "mean", "laplace", "randomized_response", "unbiased", "usable", "too noisy", "r1-0"]
    texts += ["day", "UTC", "lifetime", "exact composition of like histories"]  # not by what rows are told apart
    names = dict.fromkeys([*texts, *(window["window"] for window in data.windows)], name)
    names |= {text: f"{name}{text}" for text in ("seconds", "level", "green", "present")}
    assert data.cohorts is not None
    assert data.fleet is not None
    return replace(
        data,
        report=renamed(data.report, names) | {"since": name, "until": name},
        header=renamed(data.header, names) | {"straddling": [name]},
        windows=renamed(data.windows, names),
        cohorts=renamed(data.cohorts, names) | {"reasons": {name: 2}},
        fleet=renamed(data.fleet, {**names, data.fleet["conditions"]: name}),
    )


class Parsed(HTMLParser):
    """Elements with the names of their attributes, attributes with their values, and the text outside of the style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.styles: list[str] = []
        self._inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass
        if tag in {"td", "th"}:
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "style":
            self.styles.append(data)
        else:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]
