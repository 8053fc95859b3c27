"""`ldp-collector backup`: one moment of a store that is being written to, on the disk, and never over another file."""
# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from collector.service import backup, cli
from collector.service.backup import back_up
from collector.service.registrar.store import RegistrarStore
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, counts, make_plan, make_release, query

PLAN = make_plan()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A collector's store with one round, in a folder of its own."""
    folder = tmp_path / "store"
    folder.mkdir()
    store = CollectorStore.open(str(folder / "collector.db"))
    store.put_plan(PLAN, NOW)
    store.store_release(make_release(PLAN))
    store.close()
    return folder / "collector.db"


def test_a_copy_is_the_store_and_one_file_for_its_owner(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.db"
    assert back_up(f"sqlite:///{path}", out) == out.stat().st_size
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert counts(out) == counts(path)
    assert query(out, "PRAGMA journal_mode") == [("delete",)]
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store"], "and nothing beside it"
    copy = CollectorStore.open(str(out))
    assert len(copy.contributions()) == 3
    copy.close()


def test_what_is_only_in_the_log_yet_is_in_the_copy(path: Path, tmp_path: Path) -> None:
    """A file copied by hand would have lost it: the writer still holds its write-ahead log open."""
    store = CollectorStore.open(str(path))
    store.store_release(make_release(PLAN, "round-2", period_start=PERIOD + DAY_S))
    assert path.with_name("collector.db-wal").stat().st_size > 0
    back_up(str(path), tmp_path / "copy.db")
    assert query(tmp_path / "copy.db", "SELECT count(*) FROM rounds") == [(2,)]
    store.close()


def test_a_copy_while_rounds_are_stored_is_one_moment(path: Path, tmp_path: Path) -> None:
    """Every copy holds whole rounds only, and each later one at least as many."""
    store = CollectorStore.open(str(path))
    done = threading.Event()
    stored = 0

    def write() -> None:
        nonlocal stored
        while not done.is_set() and stored < 300:
            stored += 1
            store.store_release(make_release(PLAN, f"r-{stored}", range(20), period_start=PERIOD + stored * DAY_S))

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    for number in range(5):
        out = tmp_path / f"copy-{number}.db"
        back_up(str(path), out)
        rounds, contributions, spends = (
            query(out, f"SELECT count(*) FROM {table}")[0][0] for table in ("rounds", "contributions", "spends")
        )
        assert (contributions, spends) == (3 + 20 * (rounds - 1), 2 * (3 + 20 * (rounds - 1)))
        found.append(rounds)
    done.set()
    writer.join(20)
    store.close()
    assert found == sorted(found)
    assert found[-1] > 1, "something was stored meanwhile"


def test_an_empty_file_is_a_store_that_serve_makes(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="holds no store yet; start `ldp-collector serve` on it once"):
        back_up(str(tmp_path / "empty.db"), tmp_path / "copy.db")
    assert os.listdir(tmp_path) == ["empty.db"]


def test_never_over_something_that_is_there(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("precious")
    for name in ("file", "store", "link", "store/collector.db"):
        with pytest.raises(ConfigurationError, match="is there already"):
            back_up(str(path), tmp_path / name)
    with pytest.raises(ConfigurationError, match="does not exist"):
        back_up(str(path), tmp_path / "no" / "copy.db")
    assert (tmp_path / "file").read_text() == "precious"
    assert len(query(path, "SELECT * FROM rounds")) == 1


@pytest.mark.parametrize("links", [True, False])
def test_nor_over_what_comes_meanwhile(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    copy, out = backup._copy, tmp_path / "copy.db"

    def slow(*arguments: Any) -> None:
        copy(*arguments)
        out.write_text("another one's")

    def no_links(*_arguments: Any) -> None:
        raise OSError("not on this file system")

    if not links:
        monkeypatch.setattr(backup.os, "link", no_links)
        back_up(str(path), tmp_path / "first.db")
        assert counts(tmp_path / "first.db") == counts(path)
    monkeypatch.setattr(backup, "_copy", slow)
    with pytest.raises(ConfigurationError, match="is there already"):
        back_up(str(path), out)
    assert out.read_text() == "another one's"
    assert not list(tmp_path.glob("*.partial*"))


def test_the_copy_is_synced_before_it_has_its_name(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, name = backup.sync, backup._name
    monkeypatch.setattr(backup, "sync", lambda it: (order.append(f"sync {it.name[:4]}"), sync(it)))
    monkeypatch.setattr(backup, "_name", lambda *them: (order.append("name"), name(*them)))
    back_up(str(path), tmp_path / "copy.db")
    assert order == ["sync copy", "name", f"sync {tmp_path.name[:4]}"]


def test_a_damaged_store_gives_no_copy(path: Path, tmp_path: Path) -> None:
    (size,), ((root,),) = (
        query(path, "PRAGMA page_size")[0],
        query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'contributions'"),
    )
    with path.open("r+b") as stream:
        stream.seek((root - 1) * size)
        stream.write(b"\xff" * size)
    with pytest.raises(StoreError, match="damaged") as refused:
        back_up(str(path), tmp_path / "copy.db")
    assert refused.value.problem is StoreProblem.DAMAGED
    assert os.listdir(tmp_path) == ["store"]


def test_a_registrars_store_too(tmp_path: Path) -> None:
    store = RegistrarStore.open(str(tmp_path / "registrar.db"))
    store.issue_tokens(3, NOW)
    back_up(str(tmp_path / "registrar.db"), tmp_path / "copy.db")
    store.close()
    with closing(sqlite3.connect(tmp_path / "copy.db")) as conn:
        assert conn.execute("SELECT count(*) FROM tokens").fetchone() == (3,)


def test_the_command_and_what_it_refuses(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], postgres_url: str
) -> None:
    out = tmp_path / "copy.db"
    assert cli.main(["backup", "--db", str(path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {out.stat().st_size} bytes, checked\n"
    (tmp_path / "text").write_text("nothing that we know " * 100)
    refused = {
        (str(path), str(out)): "is there already",
        (str(tmp_path / "none.db"), str(tmp_path / "x")): "no such store",
        (str(tmp_path / "text"), str(tmp_path / "x")): "no SQLite file",
        (postgres_url, str(tmp_path / "x")): "pg_dump --format=custom",
    }
    for (db, to), word in refused.items():
        assert cli.main(["backup", "--db", db, "--out", to]) == 2
        err = capsys.readouterr().err
        assert (word in err, err.count("\n")) == (True, 1), err
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store", "text"]


def test_a_place_that_cannot_be_written_is_named_itself(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> tuple[int, str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "copy.db.x7.partial"))

    monkeypatch.setattr("tempfile.mkstemp", refused)
    assert cli.main(["backup", "--db", str(path), "--out", str(tmp_path / "copy.db")]) == 3
    error = capsys.readouterr().err
    assert error.startswith(
        f"ldp-collector backup: --out {tmp_path / 'copy.db'}: cannot be written (Permission denied)"
    )
    assert ".partial" not in error
    assert error.count("\n") == 1


def test_a_full_disk_is_the_copys_not_the_sources(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own limit on a file's pages stands for a disk without room: it answers SQLITE_FULL."""
    connect = sqlite3.connect

    def narrow(database: Any, **more: Any) -> sqlite3.Connection:
        conn = connect(database, **more)
        if not more:
            conn.execute("PRAGMA max_page_count = 2")
        return conn

    monkeypatch.setattr(backup.sqlite3, "connect", narrow)
    with pytest.raises(StoreError, match=f"^--out {tmp_path / 'copy.db'}: the disk is full") as caught:
        back_up(str(path), tmp_path / "copy.db")
    assert caught.value.problem is StoreProblem.FULL
    assert sorted(os.listdir(tmp_path)) == ["store"]
