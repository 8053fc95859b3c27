"""Files that are there whole or not at all, and the lock."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from collector.service.job import files
from collector.service.settings import MachineError


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write(path, b"one")
    first = path.stat()
    files.write(path, b"one")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    files.write(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    files.write(path, b"one")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.write(path, b"two, which is longer")
    assert path.read_bytes() == b"one"
    files.write(path, b"three")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a", b"three")], "takes its name over"


def test_one_at_a_time_and_the_holder_is_named(tmp_path: Path) -> None:
    named = f"process {os.getpid()} on "
    with files.alone(tmp_path / "out", 0.0), pytest.raises(files.HeldLockError, match=named):
        files.alone(tmp_path / "out", 0.0).__enter__()
    with files.alone(tmp_path / "out", 0.0):
        pass
    assert (tmp_path / "out" / files.LOCK).read_bytes() == b""


def test_the_second_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    inside, seen = threading.Event(), []

    def hold() -> None:
        with files.alone(tmp_path, 0.0):
            inside.set()
            release.wait(20)
            seen.append("first")

    release = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(20)
        with pytest.raises(files.HeldLockError), files.alone(tmp_path, 0.25):
            pytest.fail("both are in")
        threading.Timer(0.3, release.set).start()
        with files.alone(tmp_path, 30.0):
            seen.append("second")
    finally:
        release.set()
        thread.join()
    assert seen == ["first", "second"]


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot be written"), files.alone(tmp_path / "file" / "out", 0.0):
        pytest.fail("no folder")
