"""The nightly job over a real store: what it writes, when, and that it writes the same again."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from client_sdk.errors import ConfigurationError, MissingExtraError
from collector.reports.due import SETTLE_S
from collector.reports.report import COLUMNS
from collector.reports.windows import Window
from collector.service import cli
from collector.service.job import files, outputs, source
from collector.service.job.config import JobConfig
from collector.service.job.running import run_job
from collector.service.job.telemetry import families_of
from collector.service.parquet_export import Asked, export
from collector.service.parquet_tables import ExportError
from collector.service.report_windows import zone_of
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, PERIOD, make_plan, make_release

EVERYTHING = ("json", "csv", "html", "parquet", "privacy", "prometheus")
GRACE_S = 2 * DAY_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CollectorStore]:
    store = CollectorStore.open(str(tmp_path / "c.db"))
    yield store
    store.close()


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    return JobConfig(tmp_path / "out", str(tmp_path / "c.db"), outputs=EVERYTHING)


def label(day: int) -> str:
    return datetime.fromtimestamp(PERIOD + day * DAY_S, UTC).date().isoformat()


def closes(day: int) -> int:
    return PERIOD + (day + 1) * DAY_S


def release(store: CollectorStore, name: str, day: int, at: int, devices: range = range(40), version: int = 1) -> None:
    plan = make_plan(version, epsilon=f"{version}.0")
    store.put_plan(plan, PERIOD)
    store.store_release(make_release(plan, name, devices, period_start=PERIOD + day * DAY_S, now=at))


def tree(folder: Path) -> dict[str, str]:
    """Digests of all files but the lock."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != files.LOCK
    }


def manifest(config: JobConfig, day: int) -> dict[str, Any]:
    return dict(json.loads((config.out / f"day={label(day)}" / "manifest.json").read_text()))


def report(config: JobConfig, day: int) -> dict[str, Any]:
    return dict(json.loads((config.out / f"day={label(day)}" / "report.json").read_text()))


def contributors(config: JobConfig, day: int) -> int:
    return int(report(config, day)["metrics"][0]["contributors"])


# --- what is written --------------------------------------------------------------------------------


def test_windows_that_have_closed_are_written_whole(store: CollectorStore, config: JobConfig) -> None:
    for day in (0, 2):
        release(store, f"r{day}", day, closes(day) - 60)
    outcome = run_job(config, closes(2) - 1)
    assert (outcome.windows, outcome.written, outcome.failed) == (2, 2, []), "today has not closed"
    assert {path.name for path in config.out.iterdir()} == {
        ".lock", f"day={label(0)}", f"day={label(1)}", "latest.prom",
    }  # fmt: skip
    assert (contributors(config, 0), contributors(config, 1)) == (40, 0)
    for day in (0, 1):
        folder, said = config.out / f"day={label(day)}", manifest(config, day)
        assert {path.name for path in folder.iterdir()} == {*said["outputs"], "manifest.json"}
        for name, one in said["outputs"].items():
            data = (folder / name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (one["bytes"], one["sha256"])
    said = manifest(config, 0)
    assert (said["rounds"], said["reports"], said["rows_read"], said["final"]) == (1, 40, 2, False)
    assert said["plans"] == [{"name": "app-health", "version": 1, "hash": make_plan().hash.hex()}]
    assert (said["since"], said["until"]) == (f"{label(0)}T00:00:00Z", f"{label(1)}T00:00:00Z")
    assert said["source"] == {"kind": "store", "url": config.db}
    assert manifest(config, 1)["plans"] == []


def test_the_report_is_what_report_prints(
    store: CollectorStore, config: JobConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    release(store, "r", 0, closes(0))
    run_job(config, closes(0))
    for form in ("json", "csv"):
        asked = ["report", "--db", str(config.db), "--since", label(0), "--until", label(1), "--format", form]
        assert cli.main(asked) == 0
        printed = capsys.readouterr().out.encode()
        assert (config.out / f"day={label(0)}" / f"report.{form}").read_bytes() == printed


def test_parquet_has_the_columns_of_the_csv(store: CollectorStore, config: JobConfig) -> None:
    release(store, "r", 0, closes(0))
    release(store, "s", 0, closes(0), range(40, 90), version=2)
    run_job(config, closes(0))
    folder = config.out / f"day={label(0)}"
    table = pq.read_table(folder / "report.parquet")
    assert tuple(table.column_names) == COLUMNS
    written = list(csv.DictReader(io.StringIO((folder / "report.csv").read_text(), newline="")))
    assert len(written) == table.num_rows == 5
    for row, line in zip(table.to_pylist(), written, strict=True):
        for name, cell in row.items():
            if pa.types.is_floating(table.schema.field(name).type):
                assert line[name] == ("" if cell is None else line[name])
                assert cell is None or cell == float(line[name])
            else:
                assert line[name] == ("" if cell is None else str(cell)), name
    assert table.schema.field("contributors").type == pa.int64()
    assert table.column("plan_versions").to_pylist()[0] == "1 2", "a version in mid-window"


def test_a_second_run_changes_no_byte(store: CollectorStore, config: JobConfig) -> None:
    for day in range(3):
        release(store, f"r{day}", day, closes(day) - 60)
    run_job(config, closes(2) + 3600)
    before = tree(config.out)
    times = {path: path.stat().st_mtime_ns for path in config.out.rglob("*.*") if path.name != files.LOCK}
    outcome = run_job(config, closes(2) + 7200)
    assert (outcome.written, outcome.noted) == (0, 0)
    assert tree(config.out) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times, "not even written again"
    other = replace(config, out=config.out.with_name("other"))
    run_job(other, closes(2) + 7200)
    assert tree(other.out) == before, "nothing of the moment is in a file"


def test_an_empty_source(store: CollectorStore, config: JobConfig) -> None:
    assert store.plans() == []
    outcome = run_job(config, closes(0))
    assert (outcome.windows, outcome.written, outcome.failed) == (0, 0, [])
    assert tree(config.out) == {}


def test_since_names_the_first_window(store: CollectorStore, config: JobConfig) -> None:
    for day in range(3):
        release(store, f"r{day}", day, closes(day) - 60)
    run_job(replace(config, since=PERIOD + DAY_S + 7), closes(2))
    assert sorted(path.name for path in files.folders_of(config.out, "day")) == [f"day={label(1)}", f"day={label(2)}"]


# --- grace ------------------------------------------------------------------------------------------


def test_a_late_cohort_within_the_grace_and_one_after_it(
    store: CollectorStore, config: JobConfig, caplog: pytest.LogCaptureFixture
) -> None:
    release(store, "r", 0, closes(0) - 60)
    run_job(config, closes(0))
    first = tree(config.out)
    release(store, "late", 0, closes(0) + GRACE_S - 1, range(40, 70))
    run_job(config, closes(0) + GRACE_S - 1)
    assert (contributors(config, 0), manifest(config, 0)["final"]) == (70, False)
    assert tree(config.out)[f"day={label(0)}/report.json"] != first[f"day={label(0)}/report.json"]

    over = closes(0) + GRACE_S + SETTLE_S
    outcome = run_job(config, over)
    assert (contributors(config, 0), manifest(config, 0)["final"]) == (70, True)
    assert manifest(config, 0)["late"] == {"rounds": 0, "reports": 0}
    final = {name: digest for name, digest in tree(config.out).items() if label(0) in name and "manifest" not in name}

    release(store, "too late", 0, over + 5, range(70, 95))
    with caplog.at_level(logging.WARNING):
        outcome = run_job(config, over + 10)
    assert outcome.late == 25
    assert "25 reports of 1 rounds came after its grace" in caplog.text
    assert manifest(config, 0)["late"] == {"rounds": 1, "reports": 25}
    assert {name: tree(config.out)[name] for name in final} == final, "a final report stays"
    before = tree(config.out)
    assert run_job(config, over + 20).late == 25, "said at every run"
    assert tree(config.out) == before


def test_a_job_that_was_away_writes_what_it_would_have(store: CollectorStore, config: JobConfig) -> None:
    release(store, "r", 0, closes(0) - 60)
    release(store, "late", 0, closes(0) + GRACE_S - 1, range(40, 70))
    release(store, "too late", 0, closes(0) + GRACE_S, range(70, 95))
    run_job(config, closes(0) + 30 * DAY_S)
    said = manifest(config, 0)
    assert (said["rounds"], said["reports"], said["rows_read"], said["late"]) == (
        2,
        70,
        4,
        {"rounds": 1, "reports": 25},
    )
    assert contributors(config, 0) == 70


def test_a_grace_that_is_shorter_than_the_plans_delay_is_said(
    store: CollectorStore, config: JobConfig, caplog: pytest.LogCaptureFixture
) -> None:
    release(store, "r", 0, closes(0))
    run_job(replace(config, grace_s=make_plan().max_delay_s - 1, outputs=("json",)), closes(0))
    assert "what comes later is counted, not added" in caplog.text
    caplog.clear()
    other = replace(config, grace_s=make_plan().max_delay_s, outputs=("json",), out=config.out.with_name("o"))
    run_job(other, closes(0))
    assert caplog.text == ""


# --- clock changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_days_around_a_clock_change(store: CollectorStore, config: JobConfig, day: str, hours: int) -> None:
    zurich = replace(config, zone=zone_of("Europe/Zurich"), outputs=("json",))
    midnight = int(datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=zurich.zone.rules).timestamp())
    plan = make_plan(period="1h")
    store.put_plan(plan, midnight)
    for hour in range(-1, hours + 1):
        start = midnight + hour * 3600
        store.store_release(make_release(plan, f"r{hour}", range(3), period_start=start, now=start + 3600))
    run_job(zurich, midnight + hours * 3600 - 1)
    assert not (config.out / f"day={day}").exists()
    run_job(zurich, midnight + hours * 3600)
    found = json.loads((config.out / f"day={day}" / "manifest.json").read_text())
    assert (found["rounds"], found["zone"]) == (hours, "Europe/Zurich")
    document = json.loads((config.out / f"day={day}" / "report.json").read_text())
    assert document["metrics"][0]["contributors"] == 3 * hours
    assert (document["since"], document["until"]) == (found["since"], found["until"])


def test_weeks_and_months_stand_beside_days(store: CollectorStore, config: JobConfig) -> None:
    release(store, "r", 0, closes(0))
    for by in ("day", "week", "month"):
        run_job(replace(config, by=by, outputs=("json",)), closes(40))
    names = {path.name.partition("=")[0] for path in config.out.glob("*=*")}
    assert names == {"day", "week", "month"}


def test_another_zone_needs_another_folder(store: CollectorStore, config: JobConfig) -> None:
    release(store, "r", 0, closes(0))
    run_job(config, closes(0))
    before = tree(config.out)
    with pytest.raises(ConfigurationError, match=r"holds windows of zone 'UTC', and zone is 'Asia/Tokyo'"):
        run_job(replace(config, zone=zone_of("Asia/Tokyo")), closes(0))
    assert tree(config.out) == before


# --- engines and exports ----------------------------------------------------------------------------


@pytest.fixture
def filled(store: CollectorStore) -> CollectorStore:
    """Late cohorts too, so that engines have rounds to leave out."""
    for day in range(2):
        release(store, f"r{day}", day, closes(day) - 60)
        release(store, f"late{day}", day, closes(day) + GRACE_S + day, range(40, 60), version=2)
    return store


def without_source(config: JobConfig) -> dict[str, Any]:
    found = {}
    for folder in files.folders_of(config.out, config.by):
        for path in folder.iterdir():
            text = path.read_bytes()
            if path.name == "manifest.json":
                said = json.loads(text)
                said.pop("source")
                text = json.dumps(said).encode()
            found[f"{folder.name}/{path.name}"] = text
    return found


def test_every_source_and_engine_writes_the_same(filled: CollectorStore, config: JobConfig, tmp_path: Path) -> None:
    now = closes(9)
    run_job(config, now)
    wanted = without_source(config)
    assert json.loads(wanted[f"day={label(0)}/manifest.json"])["late"] == {"rounds": 1, "reports": 20}
    filled.look(lambda conn: export(conn, tmp_path / "exported", now, Asked()))
    engines = ["python", "duckdb"]
    asked = [replace(config, engine=engine) for engine in engines]
    asked.append(replace(config, db=None, parquet=tmp_path / "exported"))
    for place, one in enumerate(asked):
        other = replace(one, out=tmp_path / f"out{place}")
        run_job(other, now)
        assert without_source(other) == wanted, one.engine


def test_an_export_knows_no_more_than_its_moment(filled: CollectorStore, config: JobConfig, tmp_path: Path) -> None:
    filled.look(lambda conn: export(conn, tmp_path / "exported", closes(0), Asked()))
    exported = replace(config, db=None, parquet=tmp_path / "exported")
    outcome = run_job(exported, closes(9))
    assert (outcome.windows, manifest(exported, 0)["final"]) == (1, False)
    assert manifest(exported, 0)["source"]["exported_at"] == f"{label(1)}T00:00:00Z"


def test_of_an_export_of_some_periods_the_windows_that_are_whole(
    filled: CollectorStore, config: JobConfig, tmp_path: Path
) -> None:
    asked = Asked(PERIOD, PERIOD + 2 * DAY_S)
    filled.look(lambda conn: export(conn, tmp_path / "exported", closes(9), asked))
    exported = replace(config, db=None, parquet=tmp_path / "exported", outputs=("json", "html"))
    outcome = run_job(exported, closes(9))
    assert (outcome.windows, outcome.not_covered) == (2, 8)
    with pytest.raises(ExportError, match="says nothing of devices, or not of all periods"):
        run_job(replace(exported, outputs=("privacy",)), closes(9))


# --- what goes wrong --------------------------------------------------------------------------------


def test_an_output_that_cannot_be_written_keeps_its_window_due(store: CollectorStore, config: JobConfig) -> None:
    for day in range(2):
        release(store, f"r{day}", day, closes(day) - 60)
    in_the_way = config.out / f"day={label(0)}" / "report.csv"
    in_the_way.mkdir(parents=True)
    outcome = run_job(config, closes(1))
    assert len(outcome.failed) == 1
    assert f"day={label(0)}" in outcome.failed[0]
    assert not (in_the_way.parent / "manifest.json").exists()
    assert manifest(config, 1)["rounds"] == 1, "the others have theirs"
    in_the_way.rmdir()
    assert run_job(config, closes(1)).failed == []
    other = replace(config, out=config.out.with_name("other"))
    run_job(other, closes(1))
    assert tree(config.out) == tree(other.out)


def test_outputs_that_are_gone_or_new_in_the_configuration_are_written_alone(
    store: CollectorStore, config: JobConfig
) -> None:
    release(store, "r", 0, closes(0))
    run_job(replace(config, outputs=("json", "csv")), closes(9))
    folder = config.out / f"day={label(0)}"
    written = (folder / "report.json").stat().st_mtime_ns
    (folder / "report.csv").unlink()
    run_job(config, closes(9))
    assert (folder / "report.json").stat().st_mtime_ns == written
    assert {path.name for path in folder.iterdir()} == {
        "report.json", "report.csv", "report.html", "report.parquet", "privacy.json", "gauges.prom", "manifest.json",
    }  # fmt: skip
    other = replace(config, out=config.out.with_name("other"))
    run_job(other, closes(9))
    assert tree(config.out) == tree(other.out)


def test_a_final_report_is_not_made_of_another_store(store: CollectorStore, config: JobConfig, tmp_path: Path) -> None:
    release(store, "r", 0, closes(0))
    release(store, "s", 0, closes(0), range(40, 60))
    run_job(config, closes(9))
    before = tree(config.out)
    another = CollectorStore.open(str(tmp_path / "another.db"))
    release(another, "r", 0, closes(0))
    another.close()
    outcome = run_job(replace(config, db=str(tmp_path / "another.db")), closes(9))
    assert any("does not hold what it was made of any more" in line for line in outcome.failed)
    assert {name: digest for name, digest in tree(config.out).items() if name != "latest.prom"} == {
        name: digest for name, digest in before.items() if name != "latest.prom"
    }


def test_a_final_report_whose_source_changes_while_it_is_read_stays(
    store: CollectorStore, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(store, "r", 0, closes(0))
    run_job(replace(config, outputs=("json",)), closes(9))
    before = tree(config.out / f"day={label(0)}")
    read = source._OfStore.read

    def late(snapshot: source._OfStore, window: Window, late_from: int) -> Any:
        if window.label == label(0):
            release(store, "s", 0, closes(0), range(40, 60))  # ended in time, committed now
        return read(snapshot, window, late_from)

    monkeypatch.setattr(source._OfStore, "read", late)
    (failed,) = run_job(replace(config, outputs=("json", "csv")), closes(9)).failed
    assert "a final report stays as it is" in failed
    assert tree(config.out / f"day={label(0)}") == before


def test_a_damaged_manifest_is_said(store: CollectorStore, config: JobConfig) -> None:
    release(store, "r", 0, closes(0))
    run_job(config, closes(0))
    path = config.out / f"day={label(0)}" / "manifest.json"
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=r"manifest\.json: is no JSON; move it away"):
        run_job(config, closes(0))
    path.unlink()
    run_job(config, closes(0))
    assert manifest(config, 0)["rounds"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["outputs"].update({"../../report.json": {"bytes": 1, "sha256": ""}}),
        lambda said: said["outputs"].update({"a\0b": {"bytes": 1, "sha256": ""}}),
        lambda said: said["outputs"].update({"..": {"bytes": 1, "sha256": ""}}),
        lambda said: said.update(rounds=float("inf")),
    ],
)
def test_a_manifest_that_says_what_cannot_be_is_damaged(
    store: CollectorStore, config: JobConfig, change: Callable[[Any], None]
) -> None:
    release(store, "r", 0, closes(0))
    run_job(config, closes(0))
    path = config.out / f"day={label(0)}" / "manifest.json"
    said = json.loads(path.read_text())
    change(said)
    for bad in (json.dumps(said), "[" * 100_000):
        path.write_text(bad)
        with pytest.raises(ConfigurationError, match="move it away"):
            run_job(config, closes(0))


def test_a_folder_that_is_another_windows_is_said(store: CollectorStore, config: JobConfig) -> None:
    """It would stand for a window that it is not, and be written over."""
    for day in range(2):
        release(store, f"r{day}", day, closes(day))
    run_job(config, closes(1))
    folders = [config.out / f"day={label(day)}" for day in range(2)]
    shutil.rmtree(folders[0])
    shutil.copytree(folders[1], folders[0])
    before = tree(config.out)
    with pytest.raises(ConfigurationError, match=rf"is of day={label(1)}; move it away"):
        run_job(config, closes(1))
    assert tree(config.out) == before


def test_gauges_that_somebody_removed_are_not_handed_out(store: CollectorStore, config: JobConfig) -> None:
    for day in range(2):
        release(store, f"r{day}", day, closes(day) - 60, range(30 + day))
    run_job(config, closes(1))
    (config.out / f"day={label(1)}" / "gauges.prom").unlink()
    run_job(replace(config, since=closes(5)), closes(1))  # which writes no window anew
    assert config.latest.read_bytes() == (config.out / f"day={label(0)}" / "gauges.prom").read_bytes()


def test_a_missing_extra_is_named_before_anything_is_read(config: JobConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_is_there", lambda module: module != "jinja2")
    with pytest.raises(MissingExtraError, match=r"\[reports\]"):
        run_job(config, closes(0))
    assert not config.out.exists()


# --- gauges and the command -------------------------------------------------------------------------


def test_the_newest_window_that_holds_a_sum_is_handed_out(store: CollectorStore, config: JobConfig) -> None:
    for day in range(2):
        release(store, f"r{day}", day, closes(day) - 60, range(30 + day))
    run_job(config, closes(4))
    text = config.latest.read_bytes()
    assert text == (config.out / f"day={label(1)}" / "gauges.prom").read_bytes()
    families = {family.name: family.samples for family in families_of(text)}
    shown = {sample.labels["label"]: sample.value for sample in families["ldp_report_estimate"]}
    rows = {row["label"]: row["estimate"] for metric in report(config, 1)["metrics"] for row in metric["estimates"]}
    assert shown == rows
    assert {sample.value for sample in families["ldp_report_contributors"]} == {31}
    assert {tuple(sample.labels) for sample in families["ldp_report_estimate"]} == {
        ("label", "metric", "plan", "window")
    }
    config.latest.unlink()
    run_job(config, closes(4))
    assert config.latest.read_bytes() == text


def write_config(tmp_path: Path, **more: object) -> list[str]:
    values = {"db": str(tmp_path / "c.db"), "out": str(tmp_path / "out"), **more}
    (tmp_path / "job.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return ["job", "--config", str(tmp_path / "job.toml")]


def test_the_command(
    store: CollectorStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.service.job.progress.logs.configure", lambda *_: None)
    monkeypatch.setattr("time.time", lambda: float(closes(1)))
    for day in range(2):
        release(store, f"r{day}", day, closes(day) - 60)
    command = write_config(tmp_path)
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "2 windows have closed: 2 written, 0 noted\n"
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "2 windows have closed: 0 written, 0 noted\n"
    with files.alone(tmp_path / "out", 0.0):
        assert cli.main(command) == 4
        said = capsys.readouterr().err
        assert said.startswith(f"ldp-collector job: {tmp_path}/out: another run is writing there (process ")
        assert said.count("\n") == 1
    (tmp_path / "out" / f"day={label(1)}" / "report.json").unlink()
    (tmp_path / "out" / f"day={label(1)}" / "report.json").mkdir()
    (tmp_path / "out" / f"day={label(1)}" / "report.json" / "x").mkdir()
    assert cli.main(command) == 1
    assert "1 FAILED" in capsys.readouterr().out
    assert cli.main(write_config(tmp_path, db=str(tmp_path / "none.db"))) == 2
    assert cli.main(write_config(tmp_path, out=str(tmp_path / "c.db" / "x"))) == 3


@pytest.mark.parametrize("status", ["0", "1", "2", "3", "4"])
def test_every_exit_status_is_in_the_help(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["job", "--help"])
    assert f"\n  {status}  " in capsys.readouterr().out
