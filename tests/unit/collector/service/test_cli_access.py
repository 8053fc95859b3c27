"""`access`, and `--server` on the commands that can ask a collector: what is printed, and one line for each fault."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from collector.service.storage import CollectorStore
from tests.commands import Run


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "collector.db"
    CollectorStore.open(str(path)).close()
    return path


def listed(run: Run, db: Path) -> list[dict[str, str]]:
    status, out, err = run("access", "list", "--db", db, "--format", "json")
    assert (status, err) == (0, "")
    found: list[dict[str, str]] = json.loads(out)["tokens"]
    return found


def test_issue_list_revoke(run: Run, db: Path) -> None:
    status, token, err = run("access", "issue", "--role", "analyst", "--db", db, "--name", "anna", "--ttl", "12h")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}\n", token)
    run("access", "issue", "--role", "operator", "--db", db)
    anna, other = sorted(listed(run, db), key=lambda row: row["role"])
    assert (anna["role"], anna["name"], anna["state"]) == ("analyst", "anna", "live")
    assert (other["role"], other["name"]) == ("operator", "")
    assert token.strip() not in run("access", "list", "--db", db)[1]
    assert run("access", "revoke", anna["id"], "--db", db) == (0, "", "")
    assert [row["state"] for row in sorted(listed(run, db), key=lambda row: row["role"])] == ["revoked", "live"]
    assert run("access", "revoke", anna["id"], "--db", db)[0] == 0, "twice is no fault"


def test_the_store_has_no_token(run: Run, db: Path) -> None:
    _, token, _ = run("access", "issue", "--role", "health", "--db", db)
    with sqlite3.connect(db) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (row,) = conn.execute("SELECT token_hash, expires_at - issued_at FROM access_tokens").fetchall()
    assert len(row[0]) == 32
    assert row[1] == 90 * 86_400
    assert all(token.strip().encode() not in path.read_bytes() for path in db.parent.iterdir())


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("command", [["issue", "--role", "analyst"], ["revoke", "abcd"], ["list"]])
def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path, command: list[str], *, empty: bool) -> None:
    path = tmp_path / "nonexistent.db"
    if empty:
        path.touch()
    status, out, err = run("access", *command, "--db", f"sqlite:///{path}")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert str(path) in err
    assert "ldp-collector serve" in err
    assert [(p, p.stat().st_size) for p in tmp_path.iterdir()] == ([(path, 0)] if empty else [])


# case H03: the name of a token, its id, the files of --server
@pytest.mark.parametrize("name", ["../escape", "..\\escape", "a/b", "a\0b", ".", "..", "-rf", "x" * 300, "%2e%2e%2f"])
def test_names_open_nothing(run: Run, db: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = db.parent / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (db.parent / "escape").write_text("precious")
    before = {path: path.read_bytes() for path in db.parent.rglob("*") if path.is_file()}
    for command in (
        ("access", "issue", "--role", "analyst", "--db", db, f"--name={name}"),
        ("access", "issue", "--db", db, f"--role={name}"),
        ("access", "revoke", "--db", db, "--", name),
        ("report", "--server", "127.0.0.1:1", f"--access-token-file={name}.no"),
        ("report", f"--server={name}", f"--access-token-file={inside.parent / 'escape'}"),
        ("health", f"--server={name}"),
    ):
        status, out, err = run(*command)
        assert (status, out) == (2, ""), command
        assert err.count("\n") == 1
        assert "precious" not in err
    assert {path: path.read_bytes() for path in db.parent.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["access"], "ACTION"),
        (["access", "issue", "--db", "DB"], "--role"),
        (["access", "issue", "--role", "device", "--db", "DB"], "--role"),
        (["access", "issue", "--role", "analyst", "--ttl", "0d", "--db", "DB"], "--ttl"),
        (["access", "issue", "--role", "analyst", "--ttl", "11000d", "--db", "DB"], "--ttl"),
        (["access", "revoke", "abcd", "--db", "DB"], "no token"),
        (["report"], "--db"),
        (["report", "--db", "DB", "--server", "h:1"], "--server"),
        (["report", "--server", "h:1"], "--access-token-file"),
        (["report", "--db", "DB", "--ca", "x.pem"], "--ca"),
        (["report", "--db", "DB", "--insecure"], "--insecure"),
        (["report", "--server", "host.example:1", "--insecure", "--access-token-file", "TOKEN"], "this machine only"),
        (["report", "--server", "nonsense", "--access-token-file", "TOKEN"], "HOST:PORT"),
        (["report", "--server", "h:1", "--access-token-file", "DB"], "holds no token"),
        (["report", "--server", "h:1", "--access-token-file", "TOKEN", "--client-cert", "TOKEN"], "--client-key"),
        (["privacy", "--server", "h:1", "--access-token-file", "TOKEN", "--device", "../escape"], "device"),
        (["report", "--server", "h:1", "--access-token-file", "TOKEN", "--metric", "../escape"], "metric"),
        (["privacy", "--server", "h:1", "--access-token-file", "TOKEN", "--device", ""], "--device"),
    ],
)
def test_wrong_input_is_one_line(run: Run, db: Path, arguments: list[str], word: str) -> None:
    token = db.parent / "token"
    token.write_text("SENTINEL-TOKEN\n")
    places = {"DB": str(db), "TOKEN": str(token)}
    status, out, err = run(*[places.get(argument, argument) for argument in arguments])
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert word in err
    assert "SENTINEL" not in err


def test_nobody_there_is_the_environment(run: Run, db: Path) -> None:
    token = db.parent / "token"
    token.write_text("SENTINEL-TOKEN\n")
    for command in (
        ["report", "--access-token-file", token],
        ["privacy", "--access-token-file", token],
        ["health"],
        ["health", "--access-token-file", token],
    ):
        status, out, err = run(*command, "--server", "127.0.0.1:9", "--insecure")
        assert (status, out, err.count("\n")) == (3, "", 1)
        assert "127.0.0.1:9" in err
        assert "TLS on one side only" in err
        assert "SENTINEL" not in err
