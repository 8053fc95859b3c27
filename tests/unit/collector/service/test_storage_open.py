"""Opening a store: what is created, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, event, inspect

from client_sdk.errors import ConfigurationError, PlanError, RefusalReason
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.successor import why_no_successor
from collector.service import migrations, storage_schema, storage_sqlite
from collector.service.storage import CollectorStore, StoreError, StoreProblem
from tests.commands import Run
from tests.unit.collector.service.stores import NOW, connection, counts, differences, make_plan, make_release, plan_text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "collector.db"


def a_store(path: Path) -> None:
    """A closed store with one release in it."""
    store = CollectorStore.open(str(path))
    store.put_plan(make_plan(), NOW)
    store.store_release(make_release(make_plan()))
    store.close()


def execute(path: Path, statement: str) -> None:
    conn = sqlite3.connect(path)
    with conn:
        conn.execute(statement)
    conn.close()


def problem_of(url: str | Path, **options: bool) -> StoreError:
    with pytest.raises(StoreError) as caught:
        CollectorStore.open(str(url), **options).close()
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
def test_creates_and_finds_again(path: Path, form: str) -> None:
    store = CollectorStore.open(form.format(path))
    store.put_plan(make_plan(), NOW)
    store.close()
    reader = CollectorStore.open(str(path), read_only=True)
    assert [plan.version for plan in reader.plans()] == [1]
    reader.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it says who takes part"
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".db"] == ["collector.db"]


@pytest.mark.parametrize("name", ["a?b.db", "a#b.db", "a%41.db", "ü ' \".db", "-rf"])
def test_a_path_means_itself(tmp_path: Path, name: str) -> None:
    CollectorStore.open(str(tmp_path / name)).close()
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CollectorStore.open("sqlite:///relative.db").close()
    assert (tmp_path / "relative.db").exists()


@pytest.mark.parametrize(
    "url",
    ["", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///x.db?mode=ro", "sqlite:x.db",
     "sqlite:/x.db", "a\0b", "mysql+pymysql://user:SENTINEL@host/db"],
)  # fmt: skip
def test_other_urls_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        CollectorStore.open(url)
    assert "SENTINEL" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_survives_power_loss_by_its_settings(path: Path) -> None:
    store = CollectorStore.open(str(path))
    with store._engine.connect() as conn:
        settings = {
            name: conn.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


def test_a_missing_folder_and_a_folder(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "no" / "c.db").problem is StoreProblem.MISSING
    assert str(tmp_path / "no") in str(problem_of(tmp_path / "no" / "c.db"))
    assert problem_of(tmp_path).problem is StoreProblem.MISSING
    assert problem_of(tmp_path, read_only=True).problem is StoreProblem.MISSING


def test_reading_creates_nothing(path: Path) -> None:
    assert problem_of(path, read_only=True).problem is StoreProblem.MISSING
    path.touch()
    assert problem_of(path, read_only=True).problem is StoreProblem.NOT_A_STORE
    assert path.stat().st_size == 0
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    a_store(path)
    assert counts(path)["contributions"] == 3


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("log_left_over", [True, False])
def test_a_newer_version_is_refused_before_anything_is_written(
    path: Path, tmp_path: Path, *, read_only: bool, log_left_over: bool
) -> None:
    a_store(path)
    execute(path, "UPDATE alembic_version SET version_num = '9999_from_the_future'")
    if log_left_over:  # as after a crash: the last commit is only in the write-ahead log
        conn = sqlite3.connect(path)
        conn.execute("UPDATE rounds SET joined = joined + 1")
        conn.commit()
        for name in ("collector.db", "collector.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"copy-{name}")
        conn.close()
        path = tmp_path / "copy-collector.db"
        assert path.with_name("copy-collector.db-wal").stat().st_size > 0
    before = {p.name: p.read_bytes() for p in tmp_path.glob(f"{path.name}*")}
    error = problem_of(path, read_only=read_only)
    assert error.problem is StoreProblem.NEWER
    assert "newer version" in str(error)
    assert str(path) in str(error)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_reader_migrates_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_store(path)
    execute(path, "UPDATE alembic_version SET version_num = '0000'")
    schema = dataclasses.replace(CollectorStore.schema, revisions=("0000", *migrations.REVISIONS))
    monkeypatch.setattr(CollectorStore, "schema", schema)
    before = path.read_bytes()
    assert problem_of(path, read_only=True).problem is StoreProblem.OLDER
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ("housekeeping",), ("access", "issue", "--role", "analyst"), ("access", "revoke", "abcd"), ("access", "list"),
        ("report",), ("privacy",), ("doctor",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_only_who_serves_migrates(path: Path, run: Run, command: tuple[str, ...]) -> None:
    older = dataclasses.replace(CollectorStore.schema, revisions=migrations.REVISIONS[:-1])
    path.touch()
    engine = storage_sqlite.make_engine(path, "rw", 5.0)
    with engine.begin() as conn:
        storage_schema.upgrade(conn, older, migrations.REVISIONS[-2])
    engine.dispose()
    before = path.read_bytes()
    status, out, err = run(*command, "--db", path)
    assert (status, out) == (3, "")
    assert "was written by an older version; start `ldp-collector serve` on it once" in err
    assert path.read_bytes() == before
    CollectorStore.open(str(path)).close()
    assert run("housekeeping", "--db", path)[0] == 0


def test_a_store_of_the_first_version_comes_along(path: Path) -> None:
    """Its list of identities goes, whoever stood on it; what was counted and spent stays."""
    first = dataclasses.replace(CollectorStore.schema, revisions=("0001",))
    path.touch()
    engine = storage_sqlite.make_engine(path, "rw", 5.0)
    with engine.begin() as conn:
        storage_schema.upgrade(conn, first, "0001")
    engine.dispose()
    assert {"devices", "tokens"} <= set(counts(path))
    execute(path, "INSERT INTO devices VALUES ('aa', x'01', 1)")
    execute(path, "INSERT INTO tokens VALUES (x'02', 1, 2, 3, 'aa')")
    execute(path, "INSERT INTO device_totals VALUES ('aa', 1, 0, 2000000, 0, 0)")
    assert problem_of(path, read_only=True).problem is StoreProblem.OLDER
    store = CollectorStore.open(str(path))
    assert store.device_totals("aa") == (1, 2_000_000)
    store.close()
    assert not {"devices", "tokens"} & set(counts(path))


@pytest.mark.parametrize("read_only", [True, False])
def test_another_programs_database(path: Path, *, read_only: bool) -> None:
    execute(path, "CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    assert problem_of(path, read_only=read_only).problem is StoreProblem.NOT_A_STORE
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("damage", ["text", "cut", "overwritten"])
def test_a_damaged_file(path: Path, damage: str, *, read_only: bool) -> None:
    a_store(path)
    content = bytearray(path.read_bytes())
    if damage == "text":
        content = bytearray(b"these are my notes, not a database\n" * 100)
    elif damage == "cut":
        del content[len(content) // 3 :]
    else:
        content[100:8192] = b"\xa5" * 8092
    path.write_bytes(content)
    before = path.read_bytes()
    error = problem_of(path, read_only=read_only)
    assert error.problem is (StoreProblem.NOT_A_STORE if damage == "text" else StoreProblem.DAMAGED)
    assert "damaged" in str(error)
    assert path.read_bytes() == before


def test_migrations_make_the_tables(store_url: str) -> None:
    CollectorStore.open(store_url).close()
    on_postgres = store_url.startswith("postgres")
    engine = create_engine(store_url)
    with engine.connect() as conn:
        assert differences(conn) == []
        keys = {key["name"] for table in ("contributions", "spends") for key in inspect(conn).get_foreign_keys(table)}
    engine.dispose()
    assert keys == (set() if on_postgres else {"fk_contributions_round", "fk_spends_plan_hash", "fk_spends_round"})


def test_a_database_of_an_older_version_keeps_its_rows_and_loses_three_checks(empty_database: str) -> None:
    older = dataclasses.replace(CollectorStore.schema, revisions=migrations.REVISIONS[:7])
    engine = create_engine(empty_database)
    with engine.begin() as conn:
        storage_schema.upgrade(conn, older, "0007")
        assert len(inspect(conn).get_foreign_keys("spends")) == 2
    engine.dispose()
    with connection(empty_database) as conn:
        conn.execute("INSERT INTO device_totals VALUES ('aa', 1, 0, 2000000, 0, 0)")
    store = CollectorStore.open(empty_database)
    assert store.device_totals("aa") == (1, 2_000_000)
    store.put_plan(make_plan(), NOW)
    store.store_release(make_release(make_plan()))
    store.close()
    with pytest.raises(Exception, match="foreign key"), connection(empty_database) as conn:
        conn.execute("DELETE FROM plans")


def test_the_list_of_revisions_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert tuple(script.revision for script in reversed(scripts)) == migrations.REVISIONS


def test_a_migration_that_dies_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerCutError(Exception):
        pass

    made: list[str] = []
    real_engine = storage_sqlite.make_engine

    def engine_that_dies(*args: object) -> object:
        engine = real_engine(*args)  # type: ignore[arg-type]

        @event.listens_for(engine, "before_cursor_execute")
        def _before(_conn: object, _cursor: object, statement: str, *_: object) -> None:
            made.append(statement)
            if "CREATE TABLE spends" in statement:
                raise PowerCutError

        return engine

    with monkeypatch.context() as patch:
        patch.setattr(storage_sqlite, "make_engine", engine_that_dies)
        with pytest.raises(StoreError, match="failed with PowerCutError"):
            CollectorStore.open(str(path))
    assert any("CREATE TABLE plans" in statement for statement in made), "some tables had been made"
    assert counts(path) == {}
    a_store(path)


def _open_and_put(path: str, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    store = CollectorStore.open(path)
    store.put_plan(make_plan(), NOW)
    store.close()


def test_several_processes_create_one_store(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    processes = [context.Process(target=_open_and_put, args=(str(path), barrier)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert counts(path)["plans"] == 1


def _as_nobody(path: str, queue: object) -> None:
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    found: list[object] = []
    if not os.access(Path(path).parent, os.R_OK | os.X_OK):
        queue.put(None)  # type: ignore[attr-defined]
        return
    store = CollectorStore.open(path, read_only=True)
    found.append(len(store.contributions()))
    store.close()
    try:
        CollectorStore.open(path).close()
    except StoreError as error:
        found.append(error.problem)
    queue.put(found)  # type: ignore[attr-defined]


def test_a_read_only_store_can_be_read_and_says_so_to_a_writer(path: Path) -> None:
    a_store(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    for parent in path.parent.parents:  # the folders above belong to the test runner
        if parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_as_nobody, args=(str(path), queue))
    process.start()
    try:
        found = queue.get(timeout=30)
    finally:
        process.join(30)
        path.parent.chmod(0o755)
    if found is None:
        pytest.skip("the test runner's folder cannot be reached without its rights")
    assert found == [3, StoreProblem.READ_ONLY]


def _version(version: int, lifetime: int, rolling: str = "") -> Plan:
    return parse_plan(plan_text(version).replace("lifetime = 365", f"lifetime = {lifetime}\n{rolling}"))


def test_a_later_version_may_lower_a_devices_limits_and_never_raise_them(tmp_path: Path) -> None:
    with closing(CollectorStore.open(str(tmp_path / "c.db"))) as store:
        store.put_plan(_version(1, 100), NOW)
        with pytest.raises(PlanError, match=r"budget\.lifetime: 101 is above the 100 of version 1"):
            store.put_plan(_version(2, 101), NOW)
        with pytest.raises(PlanError, match=r"budget\.rolling_24h: 5 is above the 4 of version 1"):
            store.put_plan(_version(2, 100, "rolling_24h = 5"), NOW)
        store.put_plan(_version(3, 90, "rolling_24h = 3"), NOW)
        with pytest.raises(PlanError, match="above the 90 of version 3"):
            store.put_plan(_version(4, 95), NOW)
        store.put_plan(_version(2, 95), NOW)
        assert [plan.version for plan in store.plans()] == [1, 2, 3]


def test_a_later_version_may_hide_its_devices_less_well(tmp_path: Path) -> None:
    """For apps that ship it: a device that fetched the one before does not follow."""
    strong = parse_plan(plan_text(1, min_size=3))
    weak = plan_text(2).replace("target_size = 10", "target_size = 10\ncorrupt_fraction = 0\ndropout_fraction = 0.2")
    with closing(CollectorStore.open(str(tmp_path / "c.db"))) as store:
        store.put_plan(strong, NOW)
        store.put_plan(parse_plan(weak), NOW)
        assert [plan.version for plan in store.plans()] == [1, 2]
    assert why_no_successor(strong, parse_plan(weak)) is RefusalReason.PLAN_WEAKER
