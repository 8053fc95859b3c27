"""`ldp-collector report | privacy | plan | registrar` on a real store: output, exit status, one line per fault."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from client_sdk.accounting.ledger_reader import parse_ledger
from client_sdk.files import load_plan, load_plan_signature
from client_sdk.identity import IdentityKey
from client_sdk.plan import Registrar, parse_plan
from collector.reports import shown
from collector.service import cli, report_tables
from collector.service.registrar.folder import RegistrarFolder
from collector.service.storage import CollectorStore
from tests.commands import Run
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, make_plan, make_release, plan_text

ROOT = Path(__file__).resolve().parents[4]
NAMES = ["a,b", 'say "hi"', "=2+5", "+7", "-7", "@x", "'quoted'"]
"""Those of the case that a plan takes as labels; for the others see `test_names_that_no_report_can_hold`."""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Two days of one plan: five devices, then three of them again."""
    path = tmp_path / "collector.db"
    store = CollectorStore.open(str(path))
    plan = make_plan()
    store.put_plan(plan, NOW)
    now = time.time()
    store.store_release(make_release(plan, "r1", range(5), period_start=PERIOD, now=now - 20 * DAY_S))
    store.store_release(make_release(plan, "r2", range(3), period_start=PERIOD + DAY_S, now=now, resent=[1]))
    store.close()
    return path


def one_line(error: str, *words: str) -> bool:
    return error.count("\n") == 1 and error.startswith("ldp-collector") and all(word in error for word in words)


# --- report -----------------------------------------------------------------------------------------


def test_report_as_json(run: Run, db: Path) -> None:
    status, out, err = run("report", "--db", f"sqlite:///{db}", "--format", "json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert [m["name"] for m in document["metrics"]] == ["cold_start_ms", "network"]
    assert [m["contributors"] for m in document["metrics"]] == [8, 8]
    assert [row["label"] for row in document["metrics"][1]["estimates"]] == ["wifi", "cellular", "offline", "other"]
    assert document["metrics"][0]["estimates"][0]["estimate"] == 2500.0


def test_report_selects(run: Run, db: Path) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(PERIOD + DAY_S))
    for option, contributors in (("--since", 3), ("--until", 5)):
        _, out, _ = run("report", "--db", db, "--metric", "network", option, day, "--format", "json")
        (metric,) = json.loads(out)["metrics"]
        assert (metric["name"], metric["contributors"]) == ("network", contributors)


# case A03
@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_an_empty_window_is_no_fault(run: Run, db: Path, form: str) -> None:
    status, out, err = run("report", "--db", db, "--since", "2100-01-01", "--format", form)
    assert (status, err) == (0, "")
    assert "nan" not in out.lower()
    if form == "json":
        assert {m["contributors"] for m in json.loads(out)["metrics"]} == {0}
    if form == "csv":
        header, mean = (line.split(",") for line in out.split("\r\n")[:2])
        assert mean[header.index("contributors") :][:9] == ["0", "mean", *[""] * 7]
        assert mean[header.index("verdict")] == "too few"


# case G04
def test_report_as_csv(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    store = CollectorStore.open(str(path))
    plan = make_plan(categories=NAMES)
    store.put_plan(plan, NOW)
    totals = [0] * plan.length
    totals[plan.slices["cold_start_ms"].start] = -300_000  # means may come out negative
    totals[plan.slices["network"].start + 3] = 3
    store.store_release(make_release(plan, totals=totals))
    store.close()
    status, out, _ = run("report", "--db", path, "--format", "csv")
    header, mean, *counts = list(csv.reader(io.StringIO(out, newline="")))
    assert status == 0
    assert {len(row) for row in (mean, *counts)} == {len(header)}
    assert float(mean[header.index("estimate")]) == -500_000.0
    labels = [row[header.index("label")] for row in counts]
    assert [label.removeprefix("'") for label in labels] == [*NAMES, "other"]
    assert not [label for label in labels if label.startswith(("=", "+", "-", "@", "\t", "\r"))]
    _, raw, _ = run("report", "--db", path, "--format", "csv", "--raw-text")
    assert [row[7] for row in csv.reader(io.StringIO(raw, newline=""))][2:] == [*NAMES, "other"]


# case G04
@pytest.mark.parametrize("name", ["line1\nline2", "\tq", "\rq", " =7"], ids=repr)
def test_names_that_no_report_can_hold(run: Run, tmp_path: Path, name: str) -> None:
    """The rest of the case's names: a label with a line break, a control character or a blank at its end is refused
    when the plan is checked, before any device sees it. That is the answer for them here; the CSV writer would hold
    (reports/test_text.py), but nobody could type or compare such a label.
    """
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(categories=["wifi", name]), encoding="utf-8")
    status, out, err = run("plan", "check", path)
    assert (status, out) == (2, "")
    assert one_line(err, "metrics.network.categories", "printable")


def test_report_as_a_table_for_people(run: Run, db: Path) -> None:
    status, out, _ = run("report", "--db", db)
    assert status == 0
    assert "2,500" in out
    assert "1.96 standard errors" in out
    assert "Nothing is cut" in out


def test_a_tables_title_names_every_mechanism_and_its_sums_are_there() -> None:
    versions = [{"version": v, "mechanism": m, "epsilon": e} for v, m, e in (
        (1, "laplace", 1.0), (2, "hybrid", 2.5), (3, "laplace", 1.0),
    )]  # fmt: skip
    metric = {"mechanism": "laplace", "epsilon": 1.0, "versions": versions}
    assert shown.mechanisms(metric) == "laplace, epsilon 1.0 (version 1, 3); hybrid, epsilon 2.5 (version 2)"
    assert shown.mechanisms({**metric, "versions": versions[:1]}) == "laplace, epsilon 1.0"
    assert shown.mechanisms({**metric, "versions": []}) == "laplace, epsilon 1.0"
    assert report_tables._sum({"sum": 1234.5678, "sum_standard_error": 12.3}) == "1,235 ± 12"
    assert report_tables._sum({"sum": None, "sum_standard_error": None}) == "-"


# case A09
def test_a_table_shows_raw_normalised_and_verdict(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "low.db"
    store = CollectorStore.open(str(path))
    plan = make_plan(categories=["x"])  # and `other`: two labels at epsilon 1
    store.put_plan(plan, NOW)
    totals = [0] * plan.length
    totals[plan.slices["network"]] = [200, 800]
    store.store_release(make_release(plan, devices=range(1000), totals=totals))
    store.close()
    status, out, _ = run("report", "--db", path, "--metric", "network")
    assert status == 0
    assert [cell.strip() for cell in next(line for line in out.splitlines() if "│ x" in line).split("│")[1:-1]] == [
        "x", "-149", "30", "-209 .. -90", "0", "-165 .. -143", "too noisy",
    ]  # fmt: skip
    words = " ".join(out.split())
    assert (
        "Normalised counts are not below 0 and add up to the contributors (Norm-Sub): easier to draw, but biased"
        in words
    )
    assert "too noisy: a 95 % interval wider than" in words
    assert "for these contributors: only the noise and the rounding are random" in words


# case H05
def test_how_far_false_devices_reach_stands_beside_every_number(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "poisoned.db"
    store = CollectorStore.open(str(path))
    plan = make_plan(categories=["x"])
    store.put_plan(plan, NOW)
    for number, shares in enumerate([(90, 10), (41, 59), (42, 58), (40, 60)]):
        totals = [0] * plan.length
        totals[plan.slices["network"]], totals[plan.slices["cold_start_ms"]] = shares, [50_000]
        devices = range(100 * number, 100 * number + 100)
        store.store_release(make_release(plan, f"r{number}", devices, totals=totals))
    store.close()
    found = {}
    for assumed, devices in ((None, 4), ("7", 7), ("2.5%", 10), ("0", 0), ("99999", 400)):
        option = [] if assumed is None else ["--false-devices", assumed]
        metrics = json.loads(run("report", "--db", path, "--format", "json", *option)[1])["metrics"]
        assert {metric["false_devices"] for metric in metrics} == {devices}
        for row in (row for metric in metrics for row in metric["estimates"]):
            low, high = row["without_false"]
            assert (low is None) == (devices == 400 and row["label"] == "mean"), "nobody is left to have a mean"
            assert low is None or low <= row["estimate"] <= high
            found[devices, row["label"]] = None if low is None else high - low
    assert found[0, "x"] == found[0, "mean"] == 0.0
    assert 0 < found[4, "x"] < found[7, "x"] < found[10, "x"]
    number, network = metrics
    assert [one["round"] for one in network["standing_out"]] == ["r0"]
    assert (number["standing_out"], network["cohorts"], network["false_alarm_rate"]) == ([], 4, 0.01)
    _, table, _ = run("report", "--db", path)
    words = " ".join(table.split())
    for part in ("Round r0 of period", "stands out in x: 0.9 a report, in the others 0.41", "at most 1 %",
                 "None of its 4 cohorts stands out", "median of cohorts"):  # fmt: skip
        assert part in words, part
    rows = list(csv.DictReader(io.StringIO(run("report", "--db", path, "--format", "csv")[1], newline="")))
    assert {row["false_devices"] for row in rows} == {"4"}
    assert [row["standing_out"] for row in rows] == ["0", "1", "1"]
    assert all(row["median_of_cohorts"] for row in rows)


def test_a_table_of_the_population_and_of_all_rows_together(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mixed.db"
    store = CollectorStore.open(str(path))
    plan = make_plan()
    store.put_plan(plan, NOW)
    totals = [0] * plan.length
    totals[plan.slices["network"]] = [40, 30, 20, 10]
    store.store_release(make_release(plan, devices=range(100), totals=totals))
    store.close()

    def first(*options: str) -> tuple[str, list[str]]:
        _, out, _ = run("report", "--db", path, "--metric", "network", *options)
        row = next(line for line in out.splitlines() if "│ wifi" in line)
        return " ".join(out.split()), [cell.strip() for cell in row.split("│")[1:-1]]

    plain_text, plain = first()
    population_text, population = first("--population")
    together_text, together = first("--simultaneous")
    _, both = first("--population", "--simultaneous")
    assert plain[1] == population[1] == together[1] == both[1], "the estimate is the same"
    assert len({plain[3], population[3], together[3], both[3]}) == 4
    assert plain[2] == together[2]
    assert ["population error" in text for text in (plain_text, population_text)] == [False, True]
    assert "random sample of" in population_text
    assert "random sample of" not in plain_text
    assert "All intervals of one metric hold together with 95 %" in together_text


def test_a_long_table_is_cut_and_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    store = CollectorStore.open(str(path))
    plan = make_plan(categories=[f"c{i}" for i in range(600)])
    store.put_plan(plan, NOW)
    totals = [0] * plan.length
    totals[plan.slices["network"].start + 599] = 3
    store.store_release(make_release(plan, totals=totals))
    store.close()
    _, out, _ = run("report", "--db", path)
    assert "The 500 largest of 601 rows; --format csv and json have them all." in out
    assert "│ c599" in out
    assert "│ other" not in out
    assert len(list(csv.reader(io.StringIO(run("report", "--db", path, "--format", "csv")[1], newline="")))) == 603


def test_names_are_no_markup(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    store = CollectorStore.open(str(path))
    store.put_plan(make_plan(categories=["[bold]x[/bold]", ":smile:"]), NOW)
    store.close()
    status, out, _ = run("report", "--db", path)
    assert status == 0
    assert "[bold]x[/bold]" in out
    assert ":smile:" in out


# case F03
def test_report_while_a_collector_writes(run: Run, db: Path) -> None:
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM released_sums")
    status, out, _ = run("report", "--db", db, "--format", "json")
    writer.execute("ROLLBACK")
    writer.close()
    assert status == 0
    assert json.loads(out)["metrics"][0]["contributors"] == 8


# --- wrong input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["report"], ["privacy"], ["privacy", "--all"], ["privacy", "--device", "0"]])
def test_reading_a_store_that_is_not_there(run: Run, tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "no.db"
    status, out, err = run(*command, "--db", f"sqlite:///{path}")
    assert (status, out) == (2, "")
    assert one_line(err, str(path), "no such store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "--db", "DB", "--since", "yesterday"], ["--since", "ISO 8601"]),
        (["report", "--db", "DB", "--until", "nan"], ["--until", "ISO 8601"]),
        (["report", "--db", "DB", "--since", "2026-02-01", "--until", "2026-01-01"], ["--since", "--until"]),
        (["report", "--db", "DB", "--metric", "../escape"], ["../escape", "cold_start_ms, network"]),
        (["report", "--db", "DB", "--metric", "a\nb\x1b[2J"], ["a\\nb\\x1b[2J"]),
        (["report", "--db", "DB", "--raw-text"], ["--raw-text", "csv"]),
        (["report", "--db", "DB", "--false-devices", "-1"], ["--false-devices", "such as 1%"]),
        (["report", "--db", "DB", "--false-devices", "101%"], ["--false-devices", "such as 1%"]),
        (["report", "--db", "DB", "--false-devices", "1e1%"], ["--false-devices", "such as 1%"]),
        (["report", "--db", "DB", "--population", "--format", "json"], ["--population", "have all"]),
        (["report", "--db", "DB", "--simultaneous", "--format", "csv"], ["--simultaneous", "have all"]),
        (["report", "--db", "DB", "--slice", "network"], ["--slice", "--metric"]),
        (
            ["report", "--db", "DB", "--metric", "cold_start_ms", "--slice", "network"],
            ["--slice", "not collected by network", "cannot be split", "slice_by"],
        ),
        (["report", "--server", "h:1", "--metric", "a", "--slice", "b"], ["--slice", "--db"]),
        (["report", "--db", "mysql://u:SENTINEL@h/d"], ["sqlite:///PATH"]),
        (["report", "--db", "DB", "--format", "xml"], ["--format", "xml"]),
        (["report"], ["--db"]),
        (["privacy", "--db", "DB", "--device", "../escape"], ["../escape", "no such device"]),
        (["privacy", "--db", "DB", "--device", "x", "--all"], ["--all", "not allowed"]),
        (["privacy", "--db", "DB", "--window", "1y"], ["--window", "1y"]),
        (["privacy", "--db", "DB", "--delta", "1"], ["--delta", "below 1"]),
        (["privacy", "--db", "DB", "--delta", "nan"], ["--delta", "a probability"]),
        (["privacy", "--db", "DB", "--corrupt", "1.1"], ["--corrupt", "from 0 to 1"]),
        (["privacy", "--db", "DB", "--delta", "0"], ["--delta", "above 0", "pure figure"]),
        (["plan", "check", "no-such-plan.toml"], ["no-such-plan.toml"]),
        (["plan"], ["ACTION"]),
        (["registrar", "issue-token", "--dir", "D", "--count", "0"], ["--count"]),
        (["registrar", "issue-token", "--dir", "D", "--count", "1e3"], ["--count"]),
        (["registrar", "issue-token", "--dir", "D", "--ttl", "nan"], ["--ttl"]),
        (["registrar", "issue-token", "--dir", "D", "--ttl", "inf"], ["--ttl"]),
        (["registrar", "issue-token", "--dir", "D", "--ttl", "-1d"], ["--ttl"]),
        (["registrar", "issue-token", "--dir", "D", "--ttl", "0s"], ["--ttl"]),
        (["registrar", "issue-token", "--dir", "D", "--ttl", "999999999d"], ["--ttl"]),
        (["registrar", "issue-token", "--dir", "no-such-folder"], ["no-such-folder", "registrar init"]),
        (["registrar", "serve", "--dir", "no-such-folder", "--insecure"], ["no-such-folder", "registrar init"]),
        (["registrar", "serve", "--dir", "D", "--listen", "0.0.0.0:1", "--insecure"], ["loopback"]),
        (["registrar", "serve", "--dir", "D", "--insecure", "--lifetime", "59m"], ["--lifetime"]),
        (["registrar", "revoke", "--dir", "D", "everybody"], ["DEVICE", "32 hex digits"]),
        (["registrar", "init", "--dir", "D", "--address", "here"], ["--address: 'here' is not HOST:PORT"]),
        (["frobnicate"], ["frobnicate"]),
        ([], ["COMMAND"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run: Run, db: Path, arguments: list[str], words: list[str]) -> None:
    before = db.read_bytes()
    status, out, err = run(*[str(db) if a == "DB" else a for a in arguments])
    assert (status, out) == (2, "")
    assert one_line(err, *words), err
    assert "SENTINEL" not in err
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--db", "DB", "--metric", "x\udcff"],
        ["report", "--db", "DB", "--since", "9223372036854775808"],
        ["report", "--db", "x\udcff"],
        ["report", "--db", "postgresql+psycopg://localhost/x\udcff"],
        ["report", "--db", "postgresql+psycopg://x\udcff@localhost/x"],
        ["privacy", "--db", "DB", "--device", "x\udcff"],
        ["privacy", "--db", "DB", "--device", "9223372036854775808"],
        ["access", "issue", "--db", "DB", "--role", "analyst", "--name", "x\udcff"],
        ["access", "revoke", "x\udcff", "--db", "DB"],
        ["housekeeping", "--db", "DB", "--keep-spends", "9223372036854775808d"],
        ["housekeeping", "--db", "DB", "--keep-contributions", "9" * 400 + "d"],
        ["registrar", "issue-token", "--dir", "DIR", "--count", "9223372036854775808"],
        ["registrar", "revoke", "--dir", "DIR", "x\udcff"],
        ["backup", "--db", "DB", "--out", "x\udcff/copy"],
        ["doctor", "--db", "DB", "--log", "x\udcff"],
    ],
    ids=lambda words: " ".join(words).replace("\udcff", "?")[:60],
)
def test_half_a_character_and_too_large_a_number_are_one_line(
    run: Run, db: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """What a shell hands over where a terminal does not speak UTF-8; and what no engine's integer holds."""
    assert run("registrar", "init", "--dir", tmp_path / "registrar")[0] == 0
    places = {"DB": str(db), "DIR": str(tmp_path / "registrar")}
    status, out, error = run(*(places.get(word, word) for word in arguments))
    assert status in {cli.WRONG_INPUT, cli.ENVIRONMENT}
    assert out == ""
    assert one_line(error)
    assert len(error) < 400


def test_a_damaged_store_is_the_environment(run: Run, db: Path) -> None:
    db.write_bytes(db.read_bytes()[:100] + b"\xa5" * 8092)
    status, _, err = run("report", "--db", db)
    assert status == 3
    assert one_line(err, str(db), "damaged")


@pytest.mark.parametrize("command", [["report"], ["privacy"], ["access", "list"], ["access", "issue", "--role=health"]])
def test_another_file_is_wrong_input(run: Run, tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(), encoding="utf-8")
    status, _, err = run(*command, "--db", path)
    assert status == 2
    assert one_line(err, str(path), "no SQLite file")
    assert path.read_text(encoding="utf-8") == plan_text()


def test_a_folder_is_wrong_input(run: Run, tmp_path: Path) -> None:
    status, _, err = run("report", "--db", tmp_path)
    assert status == 2
    assert one_line(err, "folder")


# --- privacy ----------------------------------------------------------------------------------------


def test_privacy_of_the_fleet(run: Run, db: Path) -> None:
    status, out, _ = run("privacy", "--db", db, "--format", "json")
    assert status == 0
    document = json.loads(out)
    assert document["devices"] == 5
    assert document["epsilon_local"] == {"min": 2.0, "median": 4.0, "max": 4.0}
    (lifetime,) = document["windows"]
    assert (lifetime["window"], lifetime["n_min"], lifetime["n_h"]) == ("lifetime", 3, 4)
    for name in ("eps_local_pure", "eps_local", "eps_central"):
        assert list(lifetime[name]) == ["min", "p50", "p95", "p99", "max"]
        assert lifetime[name]["max"] <= lifetime["eps_local_pure"]["max"] == 4.0
    _, table, _ = run("privacy", "--db", db)
    assert "the lifetime never shrinks" in table.replace("\n", " ")


# case C01
def test_privacy_of_one_device(run: Run, db: Path) -> None:
    status, out, _ = run("privacy", "--db", db, "--device", device(1).upper(), "--format", "json")
    assert status == 0
    document = json.loads(out)
    assert (document["reports"], document["resent_reports"]) == (2, 1)
    assert {w["window"]: w["epsilon_local"] for w in document["windows"]} == {
        "24h": 2.0, "7d": 2.0, "30d": 4.0, "365d": 4.0, "lifetime": 4.0,
    }  # fmt: skip
    for form in ("table", "csv"):
        status, out, _ = run("privacy", "--db", db, "--device", device(4), "--format", form)
        assert status == 0
        assert "lifetime" in out


def test_privacy_of_all_devices(run: Run, db: Path) -> None:
    status, out, _ = run("privacy", "--db", db, "--all", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert status == 0
    assert [row["device"] for row in rows] == [device(n) for n in range(5)]
    assert [row["epsilon_local_lifetime"] for row in rows] == ["4", "4", "4", "2", "2"]
    assert [row["epsilon_local_24h"] for row in rows] == ["2", "2", "2", "0", "0"]
    assert {row["window"] for row in rows} == {"lifetime"}
    status, table, _ = run("privacy", "--db", db, "--all")
    assert status == 0
    assert "honest" in table, "central never goes without its conditions"


@pytest.mark.parametrize("more", [[], ["--window", "7d", "--delta", "1e-4"], ["--corrupt", "0"]])
def test_each_device_of_all_has_the_figures_of_that_device(run: Run, db: Path, more: list[str]) -> None:
    """Names, order and numbers: like the single device's, but for the rounding of a composition that many share."""
    every = json.loads(run("privacy", "--db", db, "--all", "--format", "json", *more)[1])
    assert every["conditions"]
    for found in every["devices"]:
        own = json.loads(run("privacy", "--db", db, "--device", found["device"], "--format", "json", *more)[1])
        alone = {row["window"]: row for row in own["windows"]}
        assert [row["window"] for row in found["windows"]][-1] == "lifetime"
        for row in found["windows"]:
            expected = {name: value for name, value in alone[row["window"]].items() if name in row}
            for name in ("eps_local", "eps_central"):
                assert row[name] == pytest.approx(expected.pop(name), rel=2e-4)
            assert {name: row[name] for name in expected} == expected
            assert set(alone[row["window"]]) - set(row) == {"fallbacks", "fallback_rounds"}
    header, *lines = csv.reader(io.StringIO(run("privacy", "--db", db, "--all", "--format", "csv", *more)[1]))
    single = next(csv.reader(io.StringIO(run("privacy", "--db", db, "--device", device(0), "--format", "csv")[1])))
    assert header[: len(single)] == single
    assert len(lines) == sum(len(found["windows"]) for found in every["devices"])


def test_a_window_stands_beside_the_lifetime(run: Run, db: Path) -> None:
    for which in ([], ["--device", device(1)]):
        status, out, err = run("privacy", "--db", db, *which, "--window", "7d", "--format", "json", "--corrupt", "0")
        assert (status, err) == (0, "")
        week, lifetime = json.loads(out)["windows"]
        assert (week["window"], lifetime["window"]) == ("7d", "lifetime")
        _, table, _ = run("privacy", "--db", db, *which, "--window", "7d")
        assert "lifetime" in table
        assert "n_h" in table
        _, lines, _ = run("privacy", "--db", db, *which, "--window", "7d", "--format", "csv")
        assert len(lines.splitlines()) == 3
    assert (week["reports"], lifetime["reports"]) == (1, 2)
    assert lifetime["fallbacks"] == {"resent": 1}


def test_one_device_and_the_fleet_agree(run: Run, db: Path) -> None:
    fleet = json.loads(run("privacy", "--db", db, "--format", "json", "--corrupt", "0", "--delta", "1e-5")[1])
    own = [
        json.loads(run("privacy", "--db", db, "--device", device(n), "--format", "json", "--corrupt", "0", "--delta",
                       "0.00001")[1])["windows"][-1]
        for n in range(5)
    ]  # fmt: skip
    (lifetime,) = fleet["windows"]
    for name in ("eps_local_pure", "eps_local", "eps_central"):
        found = sorted(row[name] for row in own)
        assert lifetime[name]["min"] == pytest.approx(found[0], rel=2e-4)
        assert lifetime[name]["p50"] == pytest.approx(found[2], rel=2e-4)
        assert lifetime[name]["max"] == pytest.approx(found[4], rel=2e-4)
    assert (lifetime["n_h"], lifetime["n_min"]) == (2, 3)


def test_the_ledger_is_one_that_can_be_recomputed(run: Run, db: Path) -> None:
    status, out, _ = run("privacy", "--db", db, "--device", device(1), "--ledger")
    assert status == 0
    ledger = parse_ledger(out)
    assert ledger.stated == ledger.counted()
    assert [entry.resent for entry in ledger.entries] == [False, True]
    status, _, err = run("privacy", "--db", db, "--ledger")
    assert status == 2
    assert one_line(err, "--ledger goes with --device")


def test_reading_the_ledger_changes_nothing(run: Run, db: Path) -> None:
    before = db.read_bytes()
    for which in ([], ["--device", device(1)], ["--device", device(1), "--ledger"], ["--window", "24h"]):
        assert run("privacy", "--db", db, *which)[0] == 0
    outputs = [run("privacy", "--db", db, "--all", "--format", "json")[1] for _ in range(3)]
    assert len(set(outputs)) == 1
    assert db.read_bytes() == before


# --- plan and registrar -----------------------------------------------------------------------------


def test_plan_check(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text())
    status, out, _ = run("plan", "check", path)
    assert status == 0
    assert make_plan().hash.hex() in out
    status, out, _ = run("plan", "check", path, "--format", "json")
    assert status == 0
    assert json.loads(out)["epsilon_report"] == "2"


# case C05
@pytest.mark.parametrize("epsilon", ["nan", "inf", "-inf", "-1", "0", "1e-320", "1e400", '""', '"1_000"', "0x1"])
def test_plan_check_refuses_what_is_no_epsilon(run: Run, tmp_path: Path, epsilon: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(epsilon=epsilon))
    status, out, err = run("plan", "check", path)
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 2, "one line for each of the two metrics"
    assert all("epsilon" in line and line.startswith("ldp-collector plan: ") for line in lines)


def test_a_registrar_from_init_to_revocation(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "registrar"
    status, out, err = run("registrar", "init", "--dir", folder, "--address", "r.example:7444")
    assert (status, err) == (0, "")
    key = RegistrarFolder(folder).key().public_key
    table = tomllib.loads(out[out.index("[registrar]") :])["registrar"]
    assert table == {"address": "r.example:7444", "key": key.hex()}
    assert parse_plan(plan_text() + out[out.index("[registrar]") :]).registrar == Registrar("r.example:7444", key)
    assert (folder / "registrar.pub").read_text() == key.hex() + "\n"

    status, out, err = run("registrar", "issue-token", "--dir", folder, "--count", "3", "--ttl", "1h")
    assert (status, err) == (0, "")
    tokens = out.splitlines()
    assert len(set(tokens)) == 3, "nothing but tokens"
    store, identity = RegistrarFolder(folder).open_store(), IdentityKey(b"k" * 32)
    terms = {"until": 2**32, "repeat_for_s": 60}
    assert not store.enrol(tokens[0], identity.public_key, time.time() + 3_601, **terms)
    assert store.enrol(tokens[0], identity.public_key, time.time() + 3_500, **terms)
    store.close()

    status, out, _ = run("registrar", "revoke", "--dir", folder, identity.device_id.upper())
    assert (status, "its last certificate ends at 2106-02-07" in out) == (0, True)
    assert "was revoked already" in run("registrar", "revoke", "--dir", folder, identity.device_id)[1]
    revoke = ("registrar", "revoke", "--dir", folder, "0" * 32)
    for _ in range(2):  # nothing is kept of the first time
        status, out, err = run(*revoke)
        assert (status, out) == (1, "")
        assert one_line(err, "0" * 32, "never issued it a certificate", "--force")
    assert "has no certificate" in run(*revoke, "--force")[1]
    assert run(*revoke)[0] == 0, "it is on the list"
    status, out, _ = run("registrar", "show", "--dir", folder, "--format", "json")
    assert json.loads(out) == {
        "public_key": key.hex(),
        "identities": 1,
        "certified": 1,
        "revoked": 2,
        "tokens_open": 2,
        "tokens_used": 1,
        "tokens_expired": 0,
    }
    assert key.hex() in run("registrar", "show", "--dir", folder)[1]


# --- help, extras, pipes ----------------------------------------------------------------------------

HELP = [
    ["report"],
    ["privacy"],
    ["plan"],
    ["plan", "check"],
    ["registrar"],
    *(["registrar", action] for action in ("init", "serve", "issue-token", "revoke", "show")),
    ["serve"],
    ["demo"],
    ["federated-demo"],
    ["export"],
    ["job"],
]


@pytest.mark.parametrize("command", HELP)
def test_every_command_has_help_with_an_example(run: Run, command: list[str]) -> None:
    status, out, _ = run(*command, "--help")
    assert status == 0
    assert f"\n  ldp-collector {command[0]}" in out, "an example that can be copied"


def test_help_names_every_command(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(f"\n    {command}" in out for command in cli.COMMANDS)


def ldp_collector(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}\nfrom collector.service.cli import main\nsys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("missing", ["sqlalchemy", "rich"])
def test_a_missing_extra_is_named(db: Path, missing: str) -> None:
    done = ldp_collector("report", "--db", str(db), before=f"sys.modules[{missing!r}] = None")
    assert done.returncode == 3
    assert one_line(done.stderr, "ldp-telemetry[collector]")
    # ... and stops nothing that does not need it
    assert ldp_collector("--help", before=f"sys.modules[{missing!r}] = None").returncode == 0


def test_a_missing_database_driver_is_named() -> None:
    without = "sys.modules['psycopg'] = None"
    done = ldp_collector("report", "--db", "postgresql+psycopg://user@127.0.0.1:9/name", before=without)
    assert done.returncode == 3
    assert one_line(done.stderr, "a store in PostgreSQL needs", "ldp-telemetry[postgres]")


def test_a_missing_migration_tool_is_named_and_readers_do_without(tmp_path: Path, db: Path) -> None:
    without = "sys.modules['alembic'] = None"
    done = ldp_collector("registrar", "init", "--dir", str(tmp_path / "new"), before=without)
    assert done.returncode == 3
    assert one_line(done.stderr, "ldp-telemetry[collector]")
    assert ldp_collector("report", "--db", str(db), before=without).returncode == 0


def test_a_reader_that_leaves_early_is_no_traceback(db: Path) -> None:
    code = "import sys\nfrom collector.service.cli import main\nsys.exit(main(sys.argv[1:]))"
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", code, "report", "--db", str(db), "--format", "csv"],
        stdout=write_end, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert (done.returncode, done.stderr) == (3, "")


def test_output_is_utf_8_whatever_the_terminal_says(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    store = CollectorStore.open(str(path))
    store.put_plan(make_plan(categories=["grün", "日本"]), NOW)
    store.close()
    for form in ("csv", "json"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(
            [sys.executable, "-m", "collector.service", "report", "--db", str(path), "--format", form],
            capture_output=True, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "日本" in done.stdout.decode("utf-8")


def test_an_operator_signs_a_plan(run: Run, tmp_path: Path) -> None:
    key, plan, other = tmp_path / "operator.key", tmp_path / "plan.toml", tmp_path / "other.toml"
    plan.write_text(plan_text(), encoding="utf-8")
    other.write_text(plan_text(2), encoding="utf-8")
    status, public, err = run("plan", "keygen", key)
    assert (status, err) == (0, "")
    assert key.stat().st_mode & 0o777 == 0o600
    status, out, _ = run("plan", "sign", plan, "--key", key)
    assert status == 0
    assert public.strip() in out
    signature = load_plan_signature(plan)
    assert signature is not None
    assert signature.key.hex() == public.strip()
    assert signature.holds(load_plan(plan))
    assert not signature.holds(load_plan(other))
    plan.write_text(plan_text(2), encoding="utf-8")
    assert run("plan", "sign", plan, "--key", key)[0] == 0, "the next version, over the signature of the last"
    signature = load_plan_signature(plan)
    assert signature is not None
    assert signature.holds(load_plan(other))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".plan")]


def test_what_cannot_be_signed(run: Run, tmp_path: Path) -> None:
    key, plan = tmp_path / "operator.key", tmp_path / "plan.toml"
    plan.write_text(plan_text().replace("epsilon = 1.0", "epsilon = 0"), encoding="utf-8")
    assert one_line(run("plan", "sign", tmp_path / "none.toml", "--key", key)[2], "none.toml")
    run("plan", "keygen", key)
    status, _, err = run("plan", "sign", plan, "--key", key)
    assert (status, len(err.splitlines())) == (2, 2), "every fault of the plan"
    plan.write_text(plan_text(), encoding="utf-8")
    assert one_line(run("plan", "sign", plan, "--key", tmp_path / "no.key")[2], "no.key", "plan keygen")
    key.chmod(0o644)
    assert one_line(run("plan", "sign", plan, "--key", key)[2], "operator.key", "chmod 600")
    status, _, err = run("plan", "keygen", key)
    assert status == 2
    assert one_line(err, "operator.key", "never written over")
    assert not (tmp_path / "plan.toml.sig").exists()


def test_a_registrars_key_signs_no_plan(run: Run, tmp_path: Path) -> None:
    key, plan = tmp_path / "registrar.key", tmp_path / "plan.toml"
    _, public, _ = run("plan", "keygen", key)
    table = f'[registrar]\naddress = "r.example:7444"\nkey = "{public.strip()}"\n'
    plan.write_text(plan_text() + table, encoding="utf-8")
    status, out, err = run("plan", "sign", plan, "--key", key)
    assert (status, out) == (2, "")
    assert one_line(err, "registrar.key", "the registrar's key", "plan keygen")
    assert load_plan_signature(plan) is None


def test_another_keys_signature_stays_unless_forced(run: Run, tmp_path: Path) -> None:
    plan, first, second = tmp_path / "plan.toml", tmp_path / "first.key", tmp_path / "second.key"
    plan.write_text(plan_text(), encoding="utf-8")
    keys = [run("plan", "keygen", key)[1].strip() for key in (first, second)]
    run("plan", "sign", plan, "--key", first)
    before = (tmp_path / "plan.toml.sig").read_bytes()
    plan.write_text(plan_text(2), encoding="utf-8")
    status, out, err = run("plan", "sign", plan, "--key", second)
    assert (status, out) == (2, "")
    assert one_line(err, "plan.toml.sig", keys[0], "--force")
    assert (tmp_path / "plan.toml.sig").read_bytes() == before
    assert run("plan", "sign", plan, "--key", second, "--force")[0] == 0
    signature = load_plan_signature(plan)
    assert signature is not None
    assert signature.key.hex() == keys[1]
    (tmp_path / "plan.toml.sig").write_text("junk")
    assert run("plan", "sign", plan, "--key", first)[0] == 0, "junk is no signature"


def test_one_half_of_a_key_in_place_of_the_other(run: Run, tmp_path: Path) -> None:
    folder, plan = tmp_path / "r", tmp_path / "plan.toml"
    plan.write_text(plan_text(), encoding="utf-8")
    run("registrar", "init", "--dir", folder)
    status, _, err = run("plan", "sign", plan, "--key", folder / "registrar.pub")
    assert status == 2
    assert one_line(err, "registrar.pub: is a public key; give the private one")
    serve = ("serve", "--plan", plan, "--db", tmp_path / "c.db", "--listen", "127.0.0.1:0", "--insecure")
    status, _, err = run(*serve, "--registrar-key", folder / "registrar.key")
    assert status == 2
    assert one_line(err, "--registrar-key", str(folder / "registrar.key"), "private half")
    assert (folder / "registrar.key").read_text().splitlines()[1] not in err


@pytest.mark.parametrize("action", ["keygen", "sign"])
def test_a_folder_that_may_not_be_written_is_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    key, plan = tmp_path / "operator.key", tmp_path / "plan.toml"
    plan.write_text(plan_text(), encoding="utf-8")
    run("plan", "keygen", key)

    def denied(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("os.link", denied)  # the last step of `keygen`
    monkeypatch.setattr(Path, "replace", denied)  # ... and of `sign`
    command, target = {
        "keygen": (("keygen", tmp_path / "new.key"), "new.key"),
        "sign": (("sign", plan, "--key", key), "plan.toml.sig"),
    }[action]
    status, out, err = run("plan", *command)
    assert (status, out) == (3, "")
    assert one_line(err, f"{tmp_path / target}: cannot be written (Permission denied)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["operator.key", "plan.toml"]


def test_a_key_in_a_folder_that_is_not_there(run: Run, tmp_path: Path) -> None:
    status, _, err = run("plan", "keygen", tmp_path / "none" / "operator.key")
    assert status == 2
    assert one_line(err, "none/operator.key", "create it first")
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_another_registrar_is_not_served(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("registrar", "init", "--dir", tmp_path / name)
    (tmp_path / "one" / "registrar.db").replace(tmp_path / "two" / "registrar.db")
    status, out, err = run(
        "registrar", "serve", "--dir", tmp_path / "two", "--listen", "127.0.0.1:0", "--insecure"
    )  # fmt: skip
    assert (status, out) == (2, "")
    assert one_line(err, "two/registrar.db", "another key than", "two/registrar.key")


@pytest.mark.parametrize("option", ["--max-calls", "--max-calls-per-address"])
@pytest.mark.parametrize("bad", ["0", "1000001", "99999999999999999999"])
def test_a_registrars_limits_have_bounds(run: Run, tmp_path: Path, option: str, bad: str) -> None:
    code, _, err = run("registrar", "serve", "--dir", tmp_path, "--insecure", option, bad)
    assert code == 2
    assert one_line(err, f"{option}: must be a whole number, 1 to 1000000, not {bad}")


def test_a_registrars_farewell_ends_within_a_day(run: Run, tmp_path: Path) -> None:
    code, _, err = run("registrar", "serve", "--dir", tmp_path, "--insecure", "--drain", "99999999999d")
    assert code == 2
    assert one_line(err, "--drain: must be a time at least 0 and at most 86400 seconds (1d)")


def test_a_registrars_folder_that_cannot_be_made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    code, _, err = run("registrar", "init", "--dir", tmp_path / "reg")
    assert code == 3
    assert one_line(err, f"--dir {tmp_path / 'reg'}: cannot be made (Permission denied); name a folder")


@pytest.mark.parametrize("content", [b"", b"no certificate\n", "\u00e9".encode(), b"\xff\x00"])
def test_an_authority_that_is_no_certificate(run: Run, tmp_path: Path, content: bytes) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(content)
    code, _, err = run("health", "--server", "127.0.0.1:9", "--ca", ca)
    assert code == 2
    assert one_line(err, f"--ca {ca}: holds no certificate in PEM form; give that of the authority")


def test_a_log_that_is_not_there(run: Run, db: Path, tmp_path: Path) -> None:
    code, _, err = run("doctor", "--db", db, "--log", tmp_path / "none")
    assert code == 2
    assert one_line(err, f"--log {tmp_path / 'none'}: cannot be read (No such file or directory); name a file")


@pytest.mark.parametrize("bad", ["200%", "-1%", "1e1%", "100.01%"])
def test_a_share_of_false_devices_is_refused_as_it_was_written(run: Run, db: Path, bad: str) -> None:
    code, _, err = run("report", "--db", db, f"--false-devices={bad}")
    assert code == 2
    assert one_line(err, "--false-devices: must be", "from 0% to 100%", repr(bad))
