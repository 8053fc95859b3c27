"""`report --by`, `--zone`, `--format html` and `--out`, and what is read for them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.wire.messages import GetPrivacyRequest, GetReportRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD, Method
from collector.reports.cohorts import RoundsOfPeriod, cohort_counts
from collector.reports.windows import Window
from collector.service import documents
from collector.service.output import output
from collector.service.remote import Remote
from collector.service.report_answers import MOST_POINTS, RemoteAnswers
from collector.service.report_export import ExportReading
from collector.service.report_page import page
from collector.service.report_store import StoreReading
from collector.service.report_windows import Question, Zone, finest, from_collector, zone_of
from collector.service.settings import MachineError
from collector.service.storage import CollectorStore, RoundRecord
from collector.service.storage_rows import DIRECT, Release
from tests.commands import Run
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, make_plan, make_release

EVERYTHING = Question(None, None, None, 0)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Version 1 on three days of which the second has none, version 2 on the last."""
    path = tmp_path / "c.db"
    store = CollectorStore.open(str(path))
    first, second = make_plan(), make_plan(2, epsilon="2.0")
    for plan in (first, second):
        store.put_plan(plan, NOW)
    store.store_release(make_release(first, "r1", range(40)))
    store.store_release(make_release(first, "r2", range(50), period_start=PERIOD + 2 * DAY_S))
    store.store_release(make_release(second, "r3", range(100, 160), period_start=PERIOD + 2 * DAY_S))
    store.record_aborted(RoundRecord("a1", first.hash, PERIOD, 9, 0, {"shares": 2}, "aborted", "timeout", 1.0, NOW))
    store.close()
    return path


def day(place: int) -> str:
    return datetime.fromtimestamp(PERIOD + place * DAY_S, UTC).date().isoformat()


def test_by_day_as_json(run: Run, db: Path) -> None:
    status, out, err = run("report", "--db", db, "--by", "day", "--format", "json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert (document["by"], document["zone"], document["straddling"]) == ("day", "UTC", [])
    assert [(one["window"], one["metrics"][0]["contributors"]) for one in document["windows"]] == [
        (day(0), 40), (day(1), 0), (day(2), 110),
    ]  # fmt: skip
    assert out.endswith("}\n")
    for one in document["windows"]:
        alone = json.loads(
            run("report", "--db", db, "--since", one["since"], "--until", one["until"], "--format", "json")[1]
        )
        assert alone["metrics"] == one["metrics"]


def test_by_version(run: Run, db: Path) -> None:
    document = json.loads(run("report", "--db", db, "--by", "version", "--format", "json")[1])
    assert [(one["window"], one["metrics"][0]["contributors"]) for one in document["windows"]] == [
        ("app-health version 1", 90), ("app-health version 2", 60),
    ]  # fmt: skip


# case G04
def test_by_day_as_csv(run: Run, db: Path) -> None:
    status, out, _ = run("report", "--db", db, "--by", "day", "--metric", "network", "--format", "csv")
    assert status == 0
    header, *rows = csv.reader(io.StringIO(out, newline=""))
    assert header[:4] == ["window", "window_since", "window_until", "plan"]
    assert [row[0] for row in rows] == [day(i) for i in (0, 1, 2) for _ in range(4)]
    assert {len(row) for row in rows} == {len(header)}


def test_by_day_as_a_table_says_what_reaches_over(run: Run, db: Path) -> None:
    status, out, _ = run("report", "--db", db, "--by", "day", "--zone", "America/Los_Angeles", "--metric", "network")
    words = " ".join(out.split())
    assert status == 0
    assert "By day in America/Los_Angeles, half open; a period belongs to the window in which it starts" in words
    assert "periods of app-health reach over the end of a window" in words
    cells = next(line.split("│") for line in out.splitlines() if f"│ {day(-1)}" in line)
    assert cells[2].strip() == "40"
    assert day(2) not in out


def test_bare_dates_are_the_zones(run: Run, db: Path) -> None:
    def contributors(*options: str) -> int:
        document = json.loads(run("report", "--db", db, "--format", "json", "--since", day(0), *options)[1])
        return int(document["metrics"][0]["contributors"])

    assert contributors() == 150
    assert contributors("--zone", "Asia/Tokyo") == 150, "Tokyo's day began nine hours before"
    assert contributors("--zone", "America/Los_Angeles") == 110, "and Los Angeles' seven hours after"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--zone", "Europe/Nowhere"], ["--zone 'Europe/Nowhere'", "Europe/Zurich"]),
        (["--zone", "../../etc/passwd"], ["--zone"]),
        (["--zone", "/etc/localtime"], ["--zone"]),
        (["--zone", "Europe"], ["--zone"]),
        (["--zone", "a\x00b"], ["--zone"]),
        (["--by", "year"], ["--by", "year"]),
        (["--by", "day", "--since", "1970-01-01"], ["--by day", "5,000 windows"]),
        (["--by", "day", "--metric", "nope"], ["nope", "cold_start_ms"]),
        (["--by", "day", "--metric", "nope", "--since", "2100-01-01"], ["nope", "cold_start_ms"]),
        (["--out", "x.html"], ["--out", "html"]),
        (["--format", "html", "--raw-text"], ["--raw-text"]),
        (["--format", "html", "--population"], ["--population"]),
    ],
)
def test_wrong_input_is_one_line(run: Run, db: Path, options: list[str], words: list[str]) -> None:
    status, out, err = run("report", "--db", db, *options)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


@pytest.mark.parametrize("form", ["json", "csv", "table", "html"])
def test_a_store_without_a_sum(run: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / "empty.db"
    CollectorStore.open(str(path)).close()
    for by in ([], ["--by", "day"], ["--by", "version"]):
        status, out, err = run("report", "--db", path, "--format", form, *by)
        assert (status, err) == (0, "")
        assert "nan" not in out.lower()


# --- pages and files ---------------------------------------------------------------------------------


def test_a_page_into_a_file(run: Run, db: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "report.html"
    path.parent.mkdir()
    path.write_text("old")
    status, out, err = run("report", "--db", db, "--format", "html", "--out", path)
    assert (status, out, err) == (0, "", "")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    for words in (
        f"By day in <bdi>UTC</bdi>, {day(0)} to {day(2)}",
        "3 rounds opened a sum over 40 to 60",
        "timeout: 1",
        "Epsilon over 110 devices",
    ):
        assert words in text, words
    assert os.listdir(path.parent) == ["report.html"]
    assert run("report", "--db", db, "--format", "html")[1] == text, "and the same on stdout"


def test_a_page_by_version(run: Run, db: Path) -> None:
    text = run("report", "--db", db, "--format", "html", "--by", "version")[1]
    assert "each plan version by itself" in text
    assert "app-health version 2" in text


@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_what_went_wrong_leaves_the_file_as_it_was(run: Run, db: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "out" / "out.txt"
    path.parent.mkdir()
    path.write_text("old")
    status, _, err = run("report", "--db", db, "--by", "day", "--metric", "nope", "--format", form, "--out", path)
    assert (status, path.read_text()) == (2, "old")
    status, _, err = run("report", "--db", db, "--format", form, "--out", tmp_path / "no" / "out.txt")
    assert status == 3
    assert "--out" in err
    assert err.count("\n") == 1
    assert os.listdir(path.parent) == ["out.txt"]


def _write(out: TextIO, text: str, fails: BaseException) -> None:
    out.write(text)
    raise fails


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for fails in (RuntimeError("a fault"), KeyboardInterrupt()):
        with pytest.raises(type(fails)), output(path) as out:
            _write(out, "half", fails)
    assert os.listdir(tmp_path) == []
    with output(path) as out:
        out.write("é\r\n")
        assert not path.exists()
    assert path.read_bytes() == "é\r\n".encode()
    with pytest.raises(MachineError, match="cannot be written"), output(tmp_path / "a" / "b"):
        pass


# --- which windows ------------------------------------------------------------------------------------


def test_a_page_takes_the_shortest_windows_that_it_has_room_for(tmp_path: Path) -> None:
    store = CollectorStore.open(str(tmp_path / "long.db"))
    plan = make_plan()
    store.put_plan(plan, NOW)
    first, days = PERIOD - 500 * DAY_S, []
    for place in (0, 10, 500):
        store.store_release(make_release(plan, f"r{place}", period_start=first + place * DAY_S))
        days.append(finest(*StoreReading(store).sums(EVERYTHING), Zone(), EVERYTHING, MOST_POINTS))
    assert days == ["day", "day", "week"]
    sums = StoreReading(store).sums(EVERYTHING)
    assert finest(*sums, Zone(), EVERYTHING, 20) == "month"
    since_1970 = Question(None, 0, None, 0)
    assert finest(*sums, Zone(), since_1970, MOST_POINTS) == "month", "days are too many to be made"
    store.close()


def test_a_page_of_very_many_labels_takes_few_windows(tmp_path: Path) -> None:
    store = CollectorStore.open(str(tmp_path / "wide.db"))
    plan = make_plan(categories=[f"c{i}" for i in range(20_000)])
    store.put_plan(plan, NOW)
    for place in (0, 50):
        store.store_release(make_release(plan, f"r{place}", period_start=PERIOD + place * DAY_S))
    sums = StoreReading(store).sums(EVERYTHING)
    assert finest(*sums, Zone(), EVERYTHING, MOST_POINTS) == "week"
    assert finest(*sums, Zone(), Question("cold_start_ms", None, None, 0), MOST_POINTS) == "day"
    store.close()


def asked(window: Window) -> Mapping[str, Any]:
    return {"plans": [{"name": "p"}], "metrics": [window.since, window.until]}


def test_a_running_collector_is_asked_window_by_window() -> None:
    question = Question(None, PERIOD, PERIOD + 2 * DAY_S, 0)
    windowed = from_collector(asked, "day", Zone(), question)
    assert [one["metrics"] for one in windowed.documents()] == [
        [PERIOD, PERIOD + DAY_S], [PERIOD + DAY_S, PERIOD + 2 * DAY_S],
    ]  # fmt: skip
    assert windowed.header["plans"] == [{"name": "p"}]
    assert windowed.header["straddling"] is None, "not known from there"
    for by, since, until, words in (
        ("version", 0, 1, "give --db"),
        ("day", None, 1, "--since and --until"),
        ("day", 1, None, "--since and --until"),
        ("day", -1, 1, "1970"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            from_collector(asked, by, Zone(), Question(None, since, until, 0))


def test_a_page_from_a_running_collector(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rounds to tell of; windows only where it is said which."""
    requests: list[Any] = []
    store = CollectorStore.open(str(db), read_only=True)

    def answered(_: Remote, method: Method[Any, Any], request: Any) -> Mapping[str, Any]:
        requests.append(request)
        if method is GET_PRIVACY_METHOD:
            return documents.exact_fleet_document(store, NOW, (request.window,), documents.DEFAULT)
        return documents.report_document(store, request.metric or None, request.since or None, request.until or None)

    monkeypatch.setattr("collector.service.report_answers.fetch", answered)
    remote = Remote("host:1", "token", None, False)
    text = page(RemoteAnswers(remote, EVERYTHING, "1%"), None, Zone())
    assert "are not read over the network" in text
    assert "150 contributors" in text
    assert "Epsilon over 110 devices" in text
    assert "<h3>By day</h3>" not in text
    assert [type(request) for request in requests] == [GetReportRequest, GetPrivacyRequest]
    question = Question("network", PERIOD, PERIOD + 3 * DAY_S, 0)
    assert "<h3>By day</h3>" in page(RemoteAnswers(remote, question, "3"), "day", Zone())
    assert {request.false_devices for request in requests[2:] if isinstance(request, GetReportRequest)} == {"3"}
    with pytest.raises(ConfigurationError, match="1970"):
        RemoteAnswers(remote, Question(None, None, 0, 0), "1%")
    store.close()


def test_a_page_composes_as_privacy_does(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories that are rounded further give other figures, local ones above the pure ones among them."""
    assumed: list[documents.Assumed] = []

    def asked_for(*question: Any) -> Mapping[str, Any]:
        assumed.append(question[-1])
        return {}

    for module in ("documents", "report_export"):
        monkeypatch.setattr(f"collector.service.{module}.exact_fleet_document", asked_for)
    store = CollectorStore.open(str(db), read_only=True)
    exported: Any = SimpleNamespace(has_devices=True, as_of=NOW, spending=lambda: None)
    for reading in (StoreReading(store), ExportReading(exported)):
        reading.fleet()
    store.close()
    assert assumed == [documents.DEFAULT] * 2


def test_utc_needs_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.service.report_windows.ZoneInfo", None)
    assert zone_of("UTC").rules is UTC


# --- cohorts ------------------------------------------------------------------------------------------


def test_rounds_are_added_up_in_the_store(tmp_path: Path) -> None:
    store = CollectorStore.open(str(tmp_path / "c.db"))
    plan = make_plan()
    store.put_plan(plan, NOW)
    store.store_release(make_release(plan, "r1", range(5)))
    store.store_release(make_release(plan, "r2", range(10, 13)))
    store.store_release(make_release(plan, "r3", range(4), period_start=PERIOD + DAY_S))
    bare = make_release(plan, "d1", range(20, 29))
    store.store_release(Release(**{f: getattr(bare, f) for f in bare.__slots__} | {"delivery": DIRECT}))
    store.record_aborted(RoundRecord("a1", plan.hash, PERIOD, 9, 0, {"shares": 2}, "aborted", "timeout", 1.0, NOW))
    found = StoreReading(store).rounds(EVERYTHING)
    dropouts = {"shares": 2, "masked_input": 2, "confirm": 0, "unmask": 0}
    assert sorted(found, key=lambda one: (one.period_start, one.reason or "")) == [
        RoundsOfPeriod(plan.hash, PERIOD, None, 2, 12, 8, 3, 5, dropouts),
        RoundsOfPeriod(plan.hash, PERIOD, "timeout", 1, 9, 0, 0, 0, {**dict.fromkeys(dropouts, 0), "shares": 2}),
        RoundsOfPeriod(plan.hash, PERIOD + DAY_S, None, 1, 6, 4, 4, 4, {**dropouts, "shares": 1, "masked_input": 1}),
    ]
    later = StoreReading(store).rounds(Question(None, PERIOD + 1, PERIOD + 2 * DAY_S, 0))
    assert cohort_counts(later)["contributors"] == 4
    store.close()
