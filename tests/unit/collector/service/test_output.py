"""An answer's file is there whole or not at all, and takes the place of no store, export or key."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.service.job.config import JobConfigError, read_job
from collector.service.on_disk import kept_there
from collector.service.storage import CollectorStore
from tests.commands import Run


def kept_files(folder: Path) -> list[Path]:
    """A store in use with its log, a Parquet file, an export's manifest and a key."""
    store = CollectorStore.open(str(folder / "c.db"))
    log = folder / "c.db-wal"
    found = [folder / "c.db", folder / "a.parquet", folder / "_manifest.json", folder / "key"]
    for path, data in zip(found[1:], [b"PAR1data", b"{}", b"-----BEGIN PRIVATE KEY-----\n"], strict=True):
        path.write_bytes(data)
    (folder / "log").write_bytes(log.read_bytes())
    store.close()
    return [*found, folder / "log"]


def test_no_answer_takes_the_place_of_what_is_kept(run: Run, tmp_path: Path) -> None:
    for path in kept_files(tmp_path):
        before = path.read_bytes()
        store = f"sqlite:///{tmp_path / 'c.db'}"
        status, out, error = run("report", "--db", store, "--format", "json", "--out", path)
        assert (status, out) == (2, ""), path
        assert f"{path} is " in error
        assert "name another file" in error
        assert path.read_bytes() == before
        config = tmp_path / "job.toml"
        config.write_text(f'db = "x.db"\nout = "o"\nprometheus_file = "{path}"\n')
        with pytest.raises(JobConfigError, match=r"prometheus_file: .* which no output replaces"):
            read_job(config)


def test_an_earlier_answer_is_replaced(run: Run, tmp_path: Path) -> None:
    kept_files(tmp_path)
    answer = tmp_path / "answer.json"
    answer.write_text("an earlier one")
    assert kept_there(answer) is None
    assert kept_there(tmp_path / "not there") is None
    command = ("report", "--db", f"sqlite:///{tmp_path / 'c.db'}", "--format", "json", "--out", answer)
    assert run(*command)[0] == 0
    first = answer.read_bytes()
    assert first.startswith(b"{")
    assert run(*command)[0] == 0
    assert answer.read_bytes() == first


def test_an_export_that_is_a_file_is_wrong_input(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("a,b\n")
    status, out, error = run("report", "--from-parquet", path)
    assert (status, out) == (2, "")
    assert "is no folder" in error
