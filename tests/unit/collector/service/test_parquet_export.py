"""The export of a store: whole or not at all, found again after a crash, and a mirror of what the store holds."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from collector.service import parquet_export, parquet_rows
from collector.service import tables as t
from collector.service.cli import main
from collector.service.engines.base import Files
from collector.service.parquet_export import Asked, Written, export
from collector.service.parquet_tables import (
    BY_NAME,
    MANIFEST_FILE,
    SCHEMA_FILE,
    DamagedExportError,
    ExportError,
    read_manifest,
)
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, make_plan, make_release

DAYS = 3
PLAN = make_plan()


@pytest.fixture
def store(tmp_path: Path) -> CollectorStore:
    made = CollectorStore.open(str(tmp_path / "a.db"))
    made.put_plan(PLAN, NOW)
    for day in range(DAYS):
        release(made, day, 0)
    return made


def release(store: CollectorStore, day: int, number: int) -> None:
    """Three devices of their own."""
    devices = range(100 * number, 100 * number + 3)
    period = PERIOD - day * DAY_S
    store.store_release(make_release(PLAN, f"r{day}-{number}", devices, period_start=period, now=period + 9))


def run(store: CollectorStore, folder: Path, asked: Asked | None = None) -> Written:
    return store.look(lambda conn: export(conn, folder, NOW, asked or Asked()))


def files_of(folder: Path) -> dict[str, bytes]:
    """All Parquet files and what a crash may have left, by path."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix in {".parquet", ".tmp"}]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def named(folder: Path) -> set[str]:
    return {part.path for parts in read_manifest(folder).tables.values() for part in parts}


def rows(folder: Path, table: str) -> list[dict[str, object]]:
    return [row for path in Files.of(folder).of_table(table) for row in pq.ParquetFile(path).read().to_pylist()]


def test_the_folder_holds_every_table_by_day_and_the_manifest_names_each_file(
    store: CollectorStore, tmp_path: Path
) -> None:
    written = run(store, tmp_path / "out")
    assert set(files_of(tmp_path / "out")) == named(tmp_path / "out")
    by_day = [name for name, table in BY_NAME.items() if table.by_day]
    assert (written.kept, written.written) == (0, DAYS * len(by_day))
    for name in by_day:
        days = {part.day for part in written.manifest.tables[name]}
        assert days == {"2026-05-26", "2026-05-27", "2026-05-28"}, name
        assert len(list((tmp_path / "out" / name).glob("day=*"))) == DAYS
    assert len(rows(tmp_path / "out", "released_sums")) == DAYS * PLAN.length
    assert len(rows(tmp_path / "out", "spends")) == DAYS * 3 * len(PLAN.metrics)
    (plan,) = rows(tmp_path / "out", "plans")
    assert (plan["hash"], plan["text"]) == (PLAN.hash.hex(), PLAN.text)


def test_columns_are_those_of_the_schema_file(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    described = json.loads((tmp_path / "out" / SCHEMA_FILE).read_text())
    assert {table["name"] for table in described["tables"]} == set(BY_NAME)
    for table in described["tables"]:
        for path in Files.of(tmp_path / "out").of_table(table["name"]):
            assert pq.ParquetFile(path).schema_arrow.names == [column["name"] for column in table["columns"]]


def test_nobody_else_may_read_it(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_run_again_it_keeps_every_day_and_changes_no_file(store: CollectorStore, tmp_path: Path) -> None:
    first = run(store, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("day=*/*")}
    again = run(store, tmp_path / "out")
    assert (again.kept, again.written) == (first.written, 0)
    assert again.manifest == first.manifest
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("day=*/*")}


def test_a_late_cohort_changes_its_day_alone(store: CollectorStore, tmp_path: Path) -> None:
    first = run(store, tmp_path / "out")
    release(store, 1, 7)
    again = run(store, tmp_path / "out")
    assert (again.kept, again.written) == (first.written - 4, 4), "one day of four tables"
    assert set(files_of(tmp_path / "out")) == named(tmp_path / "out"), "the day's old files are gone"
    assert len(rows(tmp_path / "out", "released_sums")) == (DAYS + 1) * PLAN.length


def test_a_device_that_opted_out_is_gone_from_the_export_too(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    store.forget(device(0), NOW, certified=True)
    run(store, tmp_path / "out")
    assert device(0) not in {row["device"] for row in rows(tmp_path / "out", "spends")}
    assert device(0) not in {row["device"] for row in rows(tmp_path / "out", "device_totals")}
    assert not [path for path in files_of(tmp_path / "out") if path not in named(tmp_path / "out")]


def test_folded_spends_are_exported_as_they_are_kept(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    assert rows(tmp_path / "out", "folded_spends") == []
    assert store.fold_spends(NOW + 800 * DAY_S)
    run(store, tmp_path / "out")
    assert rows(tmp_path / "out", "spends") == []
    assert sum(int(str(row["reports"])) for row in rows(tmp_path / "out", "folded_spends")) == DAYS * 3


def test_a_window_of_days_and_sums_only(store: CollectorStore, tmp_path: Path) -> None:
    asked = Asked(PERIOD - DAY_S, PERIOD, devices=False)
    written = run(store, tmp_path / "out", asked)
    assert set(written.manifest.tables) == {"released_sums", "rounds", "plans"}
    assert {part.day for part in written.manifest.tables["rounds"]} == {"2026-05-27"}
    assert not (tmp_path / "out" / "spends").exists()
    with pytest.raises(ExportError, match="--sums-only"):
        Files.of(tmp_path / "out").of_table("spends")


def test_an_empty_store_has_tables_without_files(tmp_path: Path) -> None:
    written = run(CollectorStore.open(str(tmp_path / "a.db")), tmp_path / "out")
    assert written.rows == 0
    assert Files.of(tmp_path / "out").of_table("released_sums") == []


def test_a_long_vector_is_a_row_for_each_cell(tmp_path: Path) -> None:
    plan = make_plan(categories=[f"c{i}" for i in range(t.MAX_CELL_ROWS + 10)])
    store = CollectorStore.open(str(tmp_path / "a.db"))
    store.put_plan(plan, NOW)
    totals = [(-1) ** i * i for i in range(plan.length)]
    store.store_release(make_release(plan, totals=totals))
    run(store, tmp_path / "out")
    cells = {row["cell"]: row["total"] for row in rows(tmp_path / "out", "released_sums") if row["metric"] == "network"}
    assert [cells[i] for i in range(len(cells))] == totals[plan.slices["network"]]


# --- crashes ----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, place: object, name: str, number: int) -> None:
    """In front of the call of that number."""
    real: Callable[..., object] = getattr(place, name)
    calls = iter(range(1000))

    def call(*args: object, **kwargs: object) -> object:
        if next(calls) == number:
            raise Crash
        return real(*args, **kwargs)

    monkeypatch.setattr(place, name, call)


@pytest.mark.parametrize("name", ["_digest", "sync", "_write_batches", "replace_text", "_sweep"])
@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_crash_anywhere_leaves_the_export_before_as_it_was_and_the_next_run_finds_what_was_done(
    store: CollectorStore, tmp_path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, tmp_path / "whole")
    before = named(tmp_path / "whole")
    run(store, tmp_path / "out")
    release(store, 1, 7)
    crashed = False
    with monkeypatch.context() as patched:
        crash_at(patched, parquet_export, name, number)
        try:
            run(store, tmp_path / "out")
        except Crash:
            crashed = True
    if crashed and name != "_sweep":
        assert named(tmp_path / "out") in (before, named_now(store, tmp_path)), "one export or the other, whole"
    Files.of(tmp_path / "out")
    again = run(store, tmp_path / "out")
    assert set(files_of(tmp_path / "out")) == named(tmp_path / "out") == named_now(store, tmp_path)
    assert again.written <= 4


def named_now(store: CollectorStore, tmp_path: Path) -> set[str]:
    run(store, tmp_path / "now")
    return named(tmp_path / "now")


def test_the_first_export_goes_on_where_it_crashed(
    store: CollectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        crash_at(patched, parquet_export, "_write_batches", 5)
        with pytest.raises(Crash):
            run(store, tmp_path / "out")
    with pytest.raises(ExportError, match="no finished export"):
        Files.of(tmp_path / "out")
    again = run(store, tmp_path / "out")
    assert (again.kept, again.written) == (5, 4 * DAYS - 5)


def test_what_a_crash_left_is_not_believed_where_it_was_changed(
    store: CollectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        crash_at(patched, parquet_export, "_write_batches", 5)
        with pytest.raises(Crash):
            run(store, tmp_path / "out")
    path = next((tmp_path / "out").rglob("part-*.parquet"))
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))
    assert run(store, tmp_path / "out").kept == 4


def test_a_file_that_changed_on_the_disk_is_written_anew(store: CollectorStore, tmp_path: Path) -> None:
    """Not a byte longer or shorter; "export again" is what its reader was told."""
    run(store, tmp_path / "out")
    path = next((tmp_path / "out" / "spends").rglob("part-*.parquet"))
    good = path.read_bytes()
    path.write_bytes(bytes([*good[:-20], good[-20] ^ 1, *good[-19:]]))
    assert run(store, tmp_path / "out").written == 1
    assert path.read_bytes() == good


def test_a_full_disk_is_an_error_and_leaves_no_half_file(
    store: CollectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, os.strerror(28))

    run(store, tmp_path / "out")
    before = files_of(tmp_path / "out")
    release(store, 1, 7)
    monkeypatch.setattr(parquet_export.os, "fsync", full)
    with pytest.raises(DamagedExportError, match="space"):
        run(store, tmp_path / "out")
    assert files_of(tmp_path / "out") == before


def test_two_at_once_do_not_meet(store: CollectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def step(_: str) -> None:
        if not seen:
            with pytest.raises(DamagedExportError, match="another export"):
                run(store, tmp_path / "out")
            seen.append("refused")

    store.look(lambda conn: export(conn, tmp_path / "out", NOW, Asked(), step))
    assert seen == ["refused"]
    assert run(store, tmp_path / "out").written == 0


# --- folders that are something else ------------------------------------------------------------------


def test_a_folder_with_something_else_is_left_alone(store: CollectorStore, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ExportError, match="something else"):
        run(store, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(ExportError, match="no folder"):
        run(store, tmp_path / "a.db")


def test_an_export_of_another_version_is_refused(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    for name in (SCHEMA_FILE, MANIFEST_FILE):
        path = tmp_path / "out" / name
        path.write_text(path.read_text().replace('"version": 1', '"version": 2', 1))
    with pytest.raises(ExportError, match="version 2"):
        read_manifest(tmp_path / "out")
    with pytest.raises(ExportError, match="version 2"):
        run(store, tmp_path / "out")


def test_a_manifest_leads_nowhere_else(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    path, (part, *_) = tmp_path / "out" / MANIFEST_FILE, sorted(named(tmp_path / "out"))
    good = path.read_text()
    for bad in ("../a.db", "/etc/passwd", "plans/../../a.db", "plans/part-*.parquet", "plans/part-zz.parquet"):
        path.write_text(good.replace(part, bad))
        with pytest.raises(DamagedExportError, match="damaged"):
            read_manifest(tmp_path / "out")
    for bad in (good[: len(good) // 2], "[" * 100_000):
        path.write_text(bad)
        with pytest.raises(DamagedExportError, match="cannot be read"):
            read_manifest(tmp_path / "out")


def swapped(found: Any) -> None:
    found["tables"]["released_sums"] = found["tables"]["rounds"]


def twice(found: Any) -> None:
    found["tables"]["released_sums"] *= 2


def test_a_manifest_that_says_what_cannot_be_is_damaged(store: CollectorStore, tmp_path: Path) -> None:
    """A file that is named twice would count twice."""
    run(store, tmp_path / "out")
    path = tmp_path / "out" / MANIFEST_FILE
    good = path.read_text()
    changes: list[Callable[[Any], Any]] = [
        swapped, twice,
        lambda found: found.update(since="2026-01-01"),
        lambda found: found.update(until=1.5),
        lambda found: found.update(exported_at=10**20),
        lambda found: found["tables"]["rounds"][0].update(day=5),
        lambda found: found["tables"]["rounds"][0].update(day="yesterday"),
    ]  # fmt: skip
    for change in changes:
        found = json.loads(good)
        change(found)
        path.write_text(json.dumps(found))
        with pytest.raises(DamagedExportError, match="is damaged"):
            read_manifest(tmp_path / "out")


def test_a_file_that_is_missing_or_cut_is_named(store: CollectorStore, tmp_path: Path) -> None:
    run(store, tmp_path / "out")
    path = tmp_path / "out" / sorted(named(tmp_path / "out"))[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedExportError, match=path.name):
        Files.of(tmp_path / "out")
    path.unlink()
    with pytest.raises(DamagedExportError, match=path.name):
        Files.of(tmp_path / "out")


def test_pieces_and_days_meet_anywhere(store: CollectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read some at a time; whether a day ends with a piece or within one, no row is lost or moved."""
    run(store, tmp_path / "out")
    monkeypatch.setattr(parquet_rows, "PIECE", 4)
    monkeypatch.setattr(parquet_export, "ROW_GROUP", 2)
    run(store, tmp_path / "small")
    for name in BY_NAME:
        assert rows(tmp_path / "out", name) == rows(tmp_path / "small", name), name


# --- the command ------------------------------------------------------------------------------------


def test_the_command(store: CollectorStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, db = str(tmp_path / "out"), str(tmp_path / "a.db")
    assert main(["export", "--db", db, "--out", out, "--since", "2026-05-27"]) == 0
    assert "8 days of tables written, 0 unchanged ones kept" in capsys.readouterr().out
    assert main(["export", "--db", db, "--out", out, "--since", "2026-05-27T06:00:00Z"]) == 2
    assert "whole UTC days" in capsys.readouterr().err
    assert main(["export", "--db", db, "--out", out, "--since", "2026-05-27", "--until", "2026-05-26"]) == 2
    assert "swap them" in capsys.readouterr().err
    assert main(["privacy", "--from-parquet", out]) == 2
    assert "export without --since and --until" in capsys.readouterr().err
    assert main(["report", "--from-parquet", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err
