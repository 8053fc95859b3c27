"""Engines' rows back to values, what is refused on the way, and which engine is chosen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import MissingExtraError
from collector.reduced import reduce_sums
from collector.release import ReleasedSum
from collector.service import report_export, sources, storage_cells
from collector.service.cli import main
from collector.service.engines import arrow, choice, in_python
from collector.service.engines.arrow import SumsError
from collector.service.engines.base import Files
from collector.service.engines.exported import Exported, open_export
from collector.service.engines.on_duckdb import OnDuckdb
from collector.service.parquet_rows import SCHEMAS
from collector.service.parquet_tables import MANIFEST_FILE, DamagedExportError, Manifest, Part
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import NOW, make_plan, make_release

HASH = bytes(range(32))


def cells(totals: Sequence[int | None], round_id: str = "r", metric: str = "m", n: int = 5) -> list[dict[str, Any]]:
    """The rows of one sum."""
    head = {"round": round_id, "metric": metric, "plan_hash": HASH.hex(), "period_start": 0, "delivery": "interactive"}
    head |= {"contributors": n, "roster": n, "resent": 0, "reports": n}
    return [{**head, "cell": cell, "total": total} for cell, total in enumerate(totals)]


def released(totals: Sequence[int], round_id: str = "r") -> ReleasedSum:
    return ReleasedSum(round_id, HASH, 0, "m", tuple(totals), 5, 5, 0, "interactive", 5)


def part_of(folder: Path, path: Path, rows: int) -> Part:
    """As a manifest names it."""
    content = path.read_bytes()
    return Part(path.relative_to(folder).as_posix(), rows, len(content), hashlib.sha256(content).hexdigest())


@contextmanager
def engine_over(folder: Path, *files: list[dict[str, Any]]) -> Iterator[OnDuckdb]:
    """Of an export that holds these released sums and nothing else."""
    parts = []
    (folder / "released_sums").mkdir(parents=True, exist_ok=True)
    schema = pa.schema([field.with_nullable(True) for field in SCHEMAS["released_sums"]])
    for number, rows in enumerate(files):
        path = folder / "released_sums" / f"part-{number:032x}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        parts.append(part_of(folder, path, len(rows)))
    (folder / MANIFEST_FILE).write_text(Manifest(NOW, None, None, {"released_sums": parts}).to_json())
    engine = OnDuckdb(Files.of(folder))
    try:
        yield engine
    finally:
        engine.close()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0, 1, -1, 7, 2**63 - 1, -(2**63)]), min_size=3, max_size=3), max_size=5))
def test_what_duckdb_adds_up_is_what_python_does(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[int]]
) -> None:
    rows = [row for i, totals in enumerate(rounds) for row in cells(totals, f"r{i}")]
    with engine_over(tmp_path_factory.mktemp("x"), rows[::-1]) as engine:
        found = arrow.reduced(engine, None, None, None)
    expected = reduce_sums(released(totals, f"r{i}") for i, totals in enumerate(rounds))
    assert {key: list(one) for key, one in found.totals.items()} == expected.totals
    assert (sorted(map(repr, found.heads)), found.cohorts) == (sorted(map(repr, expected.heads)), expected.cohorts)


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=20), st.integers(0, 3))
def test_wide_decimals_come_back_exactly(numbers: list[int], skipped: int) -> None:
    column = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0)).slice(skipped)
    gathered = arrow._Gathered(())
    gathered.add(pa.RecordBatch.from_arrays([column], ["total"]))
    assert gathered.integers("total") == numbers[skipped:]


BAD = {
    "a cell is missing": cells([1, 2, 3])[::2],
    "the first cell is missing": cells([1, 2, 3])[1:],
    "the last cell of one round is missing": [*cells([1, 2, 3]), *cells([1, 2, 3], "s")[:-1]],
    "a cell is double": [*cells([1, 2, 3]), cells([1, 2, 3])[1]],
    "a cell has no number": cells([1, None, 3]),
}


@pytest.mark.parametrize("rows", BAD.values(), ids=list(BAD))
def test_sums_that_are_not_whole_are_refused(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with engine_over(tmp_path, rows) as engine, pytest.raises(SumsError, match="missing or double"):
        arrow.reduced(engine, None, None, None)
    with open_export(tmp_path, "python") as exported, pytest.raises(SumsError, match="missing or double"):
        exported.reduced()


def test_files_of_any_number_are_one_table(tmp_path: Path) -> None:
    with engine_over(tmp_path, *([row] for row in cells([1, 2, 3]))) as engine:
        assert arrow.reduced(engine, None, None, None).totals == {(HASH, "m", 0): [1, 2, 3]}
    with engine_over(tmp_path) as engine:
        assert arrow.reduced(engine, None, None, None) == reduce_sums([])


def test_names_with_quotes_ask_for_that_metric_alone(tmp_path: Path) -> None:
    name = """it's "x"; --"""
    with engine_over(tmp_path, [*cells([1], metric=name), *cells([2], metric="other")]) as engine:
        assert list(arrow.reduced(engine, name, None, None).totals) == [(HASH, name, 0)]


def test_a_folder_with_a_quote_in_its_name(tmp_path: Path) -> None:
    with engine_over(tmp_path / "it's", cells([1])) as engine:
        assert arrow.reduced(engine, None, None, None).totals == {(HASH, "m", 0): [1]}


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    with engine_over(tmp_path, cells([1])):
        pass
    path = next(tmp_path.rglob("part-*.parquet"))
    path.write_bytes(bytes(path.stat().st_size))
    engine = OnDuckdb(files := Files.of(tmp_path))
    with pytest.raises(DamagedExportError, match="changed; export again"):
        arrow.reduced(engine, None, None, None)
    engine.close()
    with pytest.raises(DamagedExportError, match="changed; export again"):
        in_python.reduced(files, None, None, None)


def as_text(table: pa.Table) -> pa.Table:
    return table.set_column(10, "total", table["total"].cast(pa.string()))


def as_double(table: pa.Table) -> pa.Table:
    return table.set_column(10, "total", table["total"].cast(pa.float64()))


@pytest.mark.parametrize("change", [as_text, as_double, lambda table: table.drop_columns(["resent"])])
@pytest.mark.parametrize("engine", ["python", "duckdb"])
def test_a_file_with_other_columns_is_refused_though_the_manifest_names_it(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], engine: str
) -> None:
    """As a program writes it that keeps numbers as doubles; a half of one would be rounded away."""
    with engine_over(tmp_path, cells([1, 2])):
        pass
    path = next(tmp_path.rglob("part-*.parquet"))
    pq.write_table(change(pq.read_table(path)), path)
    parts = {"released_sums": [part_of(tmp_path, path, 2)]}
    (tmp_path / MANIFEST_FILE).write_text(Manifest(NOW, None, None, parts).to_json())
    with open_export(tmp_path, engine) as exported, pytest.raises(DamagedExportError, match="has other columns"):
        exported.reduced()


def test_a_day_in_another_ones_place_is_refused(tmp_path: Path) -> None:
    """Both are as long as the manifest says, and good files."""
    with engine_over(tmp_path, cells([1, 2]), cells([3, 4], "s")):
        pass
    first, second = sorted(tmp_path.rglob("part-*.parquet"))
    assert first.stat().st_size == second.stat().st_size
    first.write_bytes(second.read_bytes())
    with open_export(tmp_path, "duckdb") as exported, pytest.raises(DamagedExportError, match=first.name):
        exported.reduced()


def _machine() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_memory_is_limited_and_the_folder_for_what_spills_goes(tmp_path: Path) -> None:
    with engine_over(tmp_path, cells([1])) as engine:
        spill = Path(engine._spill.name)
        ((limit, place),) = engine._ibis.con.sql(
            "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
        ).fetchall()
        assert place == str(spill)
        assert 0 < float(limit.removesuffix(" GiB")) * 2**30 <= min(6e9, _machine() / 2)
        assert spill.is_dir()
    assert not spill.exists()


# --- choosing ---------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> str:
    made = CollectorStore.open(str(tmp_path / "a.db"))
    made.put_plan(make_plan(), NOW)
    made.store_release(make_release(make_plan()))
    made.close()
    return str(tmp_path / "a.db")


def test_a_missing_extra_is_named(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"duckdb", "pyspark"}
    real = choice.find_spec
    monkeypatch.setattr(choice, "find_spec", lambda name: None if name in missing else real(name))
    for arguments, extra in (
        (["report", "--db", store, "--engine", "duckdb"], "reports"),
        (["report", "--db", store, "--engine", "spark"], "spark"),
        (["report", "--from-parquet", "x"], "reports"),
        (["privacy", "--from-parquet", "x"], "reports"),
    ):
        assert main(arguments) == 3
        assert f"ldp-telemetry[{extra}]" in capsys.readouterr().err
    assert main(["report", "--db", store, "--format", "json"]) == 0, "and the store itself needs neither"


@pytest.mark.parametrize("module", ["pandas", "pyarrow_hotfix"])
def test_what_ibis_itself_needs_for_spark_is_of_the_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None if name == module else object())
    with pytest.raises(MissingExtraError, match=r"ldp-telemetry\[spark\]"):
        choice.require(choice.SPARK)
    choice.require(choice.DUCKDB)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "--db", "x", "--master", "local"], "--master goes with --engine spark"),
        (["report", "--from-parquet", "x", "--engine", "duckdb", "--master", "local"], "--master goes with"),
        (["report", "--server", "h:1", "--engine", "duckdb"], "--engine goes with --db or --from-parquet"),
        (["privacy", "--db", "x", "--engine", "duckdb"], "--engine goes with --from-parquet"),
        (["report", "--db", "x", "--from-parquet", "y"], "not allowed with"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    assert words in capsys.readouterr().err


def test_a_large_store_is_added_up_by_duckdb_and_the_report_is_the_same(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    real = report_export.open_export

    def spied(folder: Path, engine: str, master: str | None) -> Any:
        asked.append(engine)
        assert not (folder / "spends").exists(), "no device is in it"
        return real(folder, engine, master)

    monkeypatch.setattr(report_export, "open_export", spied)
    command = [
        "report",
        "--db",
        store,
        "--format",
        "json",
        "--since",
        "2026-05-28T00:00:00Z",
        "--until",
        "2026-05-28T12:00",
    ]
    assert main(command) == 0
    small = capsys.readouterr().out
    assert asked == []
    monkeypatch.setattr(sources, "MOST_PYTHON_CELLS", 4)
    assert main(command) == 0
    assert capsys.readouterr().out == small
    assert asked == ["duckdb"]


def test_cells_are_counted_as_they_are_asked_for(tmp_path: Path) -> None:
    plan = make_plan(categories=[f"c{i}" for i in range(5000)])
    made = CollectorStore.open(str(tmp_path / "a.db"))
    made.put_plan(plan, NOW)
    release = make_release(plan)
    made.store_release(release)
    start = release.period_start
    for metric, since, until, cells_of in (
        (None, None, None, 5002), ("network", None, None, 5001), ("cold_start_ms", start, start + 1, 1),
        (None, start + 1, None, 0), (None, None, start, 0),
    ):  # fmt: skip
        found = made.look(lambda conn, asked=(metric, since, until): storage_cells.released_cells(conn, *asked))
        assert found == cells_of


def test_plain_python_adds_up_sums_alone(tmp_path: Path) -> None:
    with engine_over(tmp_path, cells([1])):
        exported = Exported(Files.of(tmp_path), None)
    assert exported.reduced().totals == {(HASH, "m", 0): [1]}
    with pytest.raises(Exception, match="--engine duckdb"):
        exported.rounds_of_periods(None, None)
