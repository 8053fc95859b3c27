"""The page: what stands on it, what cannot get onto it, and how much of it there is."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from dataclasses import replace

import pytest

from client_sdk.errors import MissingExtraError
from collector.release import ReleasedSum
from collector.reports import build_report
from collector.reports.html import html_report, views
from collector.reports.html.page import MOST_CHARACTERS, policy, seen
from tests.unit.collector.reports.html.pages import (
    EVIL,
    PLAN,
    STYLE,
    TEMPLATE,
    Parsed,
    data_of,
    evil_data,
    page_of,
    sums,
)

PLAIN_OF = {days: Parsed(page_of(data_of(days))) for days in (1, 3)}
PLAIN = PLAIN_OF[3]


# case G06
@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("days", [1, 3])
def test_names_are_text_and_nothing_else(name: str, days: int) -> None:
    parsed = Parsed(page_of(evil_data(days, name)))
    assert set(parsed.elements) <= set(PLAIN.elements) | {("p", ("class",)), ("bdi", ())}
    assert parsed.text.count(name) > 15 * days, "plan, metrics, labels, windows, rounds, reasons: all can be read"
    assert parsed.text.count("49") == PLAIN_OF[days].text.count("49"), "nothing was computed"
    assert not [value for _, _, value in parsed.attributes if name in value]
    assert {attribute for _, attribute, _ in parsed.attributes} <= {attribute for _, attribute, _ in PLAIN.attributes}
    (style,) = parsed.styles
    assert style == STYLE


def test_the_policy_is_of_this_style_and_of_nothing_else() -> None:
    page = page_of(data_of(2))
    parsed = Parsed(page)
    (style,) = parsed.styles
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (content,) = [value for value in parsed.values("content") if "default-src" in value]
    assert (
        content
        == policy(STYLE)
        == (f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")
    )
    assert "unsafe" not in content
    assert page.startswith("<!doctype html>")
    assert page.index("charset") < page.index("Content-Security-Policy") < page.index("<title>") < 1024
    assert not {"script", "link", "iframe", "img", "object", "form", "base"} & {tag for tag, _ in parsed.elements}
    attributes = {attribute for _, attribute, _ in parsed.attributes}
    assert not {"style", "src", "srcset", "xlink:href", "action"} & attributes
    assert not [attribute for attribute in attributes if attribute.startswith("on")]
    assert all(re.fullmatch(r"#m[0-9]+", value) for value in parsed.values("href"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_a_style_that_ends_early_is_none() -> None:
    with pytest.raises(ValueError, match="end tag"):
        html_report(data_of(1), TEMPLATE, "a{}</style><script>")


def test_whatever_has_a_title_is_named_by_it() -> None:
    parsed = Parsed(page_of(data_of(3)))
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    named = [one for value in parsed.values("aria-labelledby") for one in value.split()]
    assert set(named) <= set(ids)
    charts = [attributes for tag, attributes in parsed.elements if tag == "svg" and "role" in attributes]
    assert len(charts) == 2 + 1 + 2 + 2, "labels, a mean, a mean and its presence, two of cohorts"
    assert all("aria-labelledby" in attributes for attributes in charts)
    others = [attributes for tag, attributes in parsed.elements if tag == "svg" and "role" not in attributes]
    assert all("aria-hidden" in attributes for attributes in others)
    assert [tag for tag, _ in parsed.elements].count("details") == 3 + 1 + 1, "every chart has its table"


def test_what_stands_on_it() -> None:
    text = " ".join(Parsed(page_of(data_of(3))).text.split())
    for words in (
        "By day in UTC, 1970-01-01 to 1970-01-03",
        "a period belongs to the window in which it starts",
        "9,000 contributors",
        "stands out in red",
        "9 rounds opened a sum over 990 to 1,010 contributors",
        "2 were aborted",
        "too few survivors: 2",
        "Left before they sent shares: 30; masked input: 15",
        "Epsilon over 1,000 devices",
        "lifetime, central: n_h 800, smallest sum over 990 contributors",
        "against somebody who sees only sums",
        "a count below 0 is noise",
    ):
        assert words in text, words


def test_the_same_documents_are_the_same_page() -> None:
    assert page_of(data_of(3)) == page_of(data_of(3))


@pytest.mark.parametrize("days", [0, 1])
def test_without_windows_there_are_no_charts(days: int) -> None:
    page = page_of(data_of(days))
    assert "<figure>" not in page
    assert "no number" in page or days
    assert "nan" not in page.lower()
    assert not re.search(r">None<|None (±|…|%)", page)


def test_a_store_without_a_plan_and_a_source_without_rounds_or_ledger() -> None:
    data = replace(data_of(0), report=build_report([], []), cohorts=None, fleet=None)
    text = Parsed(page_of(data)).text
    for words in ("No plan in this store yet", "are not read over the network", "Not read here"):
        assert words in text


def test_nobody_has_spent_anything() -> None:
    data = data_of(1)
    assert data.fleet is not None
    nothing = {"min": None, "p50": None, "p95": None, "p99": None, "max": None}
    (window,) = data.fleet["windows"]
    empty = {**window, "eps_local_pure": nothing, "eps_local": nothing, "eps_central": nothing, "n_h": None}
    text = Parsed(page_of(replace(data, fleet={**data.fleet, "devices": 0, "windows": [empty]}))).text
    assert "Nobody's report is counted yet" in text
    partly = {**window, "eps_central": None, "n_h": None, "n_min": None}  # the closed form alone
    text = Parsed(page_of(replace(data, fleet={**data.fleet, "windows": [partly]}))).text
    assert "lifetime, central" not in text


def test_negative_and_huge_numbers() -> None:
    huge = 2**70
    rows = [
        ReleasedSum("r1", PLAN.hash, 0, "colour", (-huge, huge), 1000),
        ReleasedSum("r1", PLAN.hash, 0, "seconds", (-huge,), 1000),
        ReleasedSum("r1", PLAN.hash, 86_400, "seconds", (huge * 10**30,), 1000),
        ReleasedSum("r2", PLAN.hash, 86_400, "colour", (-100, 1100), 1000),
    ]
    page = page_of(data_of(2, rows))
    parsed = Parsed(page)
    assert re.search(r"-2\.55[0-9]*e\+21", parsed.text)
    assert max(map(len, parsed.text.split())) < 60, "no number runs over the page"
    assert "nan" not in page.lower()
    assert not re.search(r"\binf", page)
    for path in parsed.values("d"):
        assert re.fullmatch(r"[MLHVhZ0-9. -]*", path), path


# case G05
def test_a_hundred_thousand_categories_are_a_short_page() -> None:
    data = data_of(2)
    (first, *_), labels = data.report["metrics"], range(100_000)
    rows = [
        {**first["estimates"][0], "label": f"c{i}", "estimate": 5.0 - i % 7 + 100.0 * (i == 99_000)} for i in labels
    ]
    report = {**data.report, "metrics": [{**first, "estimates": rows}]}
    page = page_of(replace(data, report=report, windows=[{"window": str(i), **report} for i in range(2)]))
    assert len(page) < 100_000
    assert "c99000" in page
    assert f"The {views.MOST_ROWS} largest of 100,000 rows; --format csv and json have them all." in page


def test_many_metrics_are_named_as_such() -> None:
    data = data_of(2)
    metrics = [{**data.report["metrics"][0], "name": f"metric-{i}"} for i in range(views.MOST_METRICS + 7)]
    page = page_of(replace(data, report={**data.report, "metrics": metrics}))
    assert "And 7 more metrics" in page
    assert f"metric-{views.MOST_METRICS - 1}<" in page
    assert f"metric-{views.MOST_METRICS}<" not in page


def test_windows_that_are_left_out_are_said_to_be() -> None:
    assert "The charts show the last 3 windows; 1,234 before them are not shown." in " ".join(
        Parsed(page_of(replace(data_of(3), left_out=1234))).text.split()
    )


def test_what_hides_or_moves_text_is_written_out() -> None:
    assert seen("a\u202eb\n\x00\u200f") == "a\\u202eb\\n\\x00\\u200f"
    assert seen("é–日本") == "é–日本"
    assert len(seen("x" * 10_000)) == MOST_CHARACTERS + 1


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"ldp-telemetry\[reports\]"):
        page_of(data_of(1))


def test_versions_are_windows_too() -> None:
    data = data_of(2)
    page = page_of(replace(data, header={**data.header, "by": "version", "straddling": []}))
    assert "Beside the whole, each plan version by itself." in page
    assert "<h3>By plan version</h3>" in page


def test_sums_of_the_fixture_stand_out_once() -> None:
    assert len({row.round_id for row in sums(3)}) == 9
