"""A fault at every write point of the device: killed before it, or its disk full, failing or read-only from it on.

`faulty_lives` says what must hold after each; here are the folders and the faults. `pytest -m slow` kills before each
point, and lets the disk fail from both ends of each run of like calls on; without it each scenario tries one point of
some kinds, and all of them together of each kind.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import ROOT
from tests.unit.client_sdk.device.faulty_lives import (
    ALL,
    COMMITTED,
    ENDS,
    MIRROR_WRITTEN,
    SAMPLE,
    SCENARIOS,
    SHARES,
    chosen,
)
from tests.write_points import Fault, can_fail, can_kill, run

pytestmark = pytest.mark.skipif(not can_kill(), reason="needs Linux, and this machine's system calls in a table")
FAILING = pytest.mark.skipif(not can_fail(), reason="makes system calls fail on x86-64 only")


def tried(name: str, folder: Path, code: str, which: str) -> list[str]:
    """The points that were; what failed is on stderr, after the point that it failed at."""
    module = "tests.unit.client_sdk.device.faulty_lives"
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(folder), code, which],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


# case F04
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_write_points_of_some_kinds(tmp_path: Path, name: str) -> None:
    points = tried(name, tmp_path, "0", SAMPLE)
    assert {MIRROR_WRITTEN, COMMITTED} <= set(points)
    assert len(set(points)) == len(points) >= 4


# cases F01, F04
@FAILING
@pytest.mark.parametrize(("code", "name"), [("ENOSPC", "later"), ("EIO", "first start"), ("EROFS", "reset")])
@pytest.mark.slow
def test_a_disk_that_fails_from_write_points_of_some_kinds_on(tmp_path: Path, code: str, name: str) -> None:
    points = tried(name, tmp_path, code, SAMPLE)
    assert {MIRROR_WRITTEN, COMMITTED} <= set(points)
    assert len(set(points)) == len(points) >= 4


# case F04
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_write_point(tmp_path: Path, name: str) -> None:
    assert len(tried(name, tmp_path, "0", ALL)) >= 50


# cases F01, F04
@pytest.mark.slow
@pytest.mark.timeout(1800)
@FAILING
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EROFS"])
def test_a_disk_that_fails_from_either_end_of_a_run_of_write_points_on(tmp_path: Path, code: str, name: str) -> None:
    assert len(tried(name, tmp_path, code, ENDS)) >= 30


# --- the tool itself -----------------------------------------------------------------------------------


def write_twice(folder: Path) -> None:
    for name in ("a", "b"):
        descriptor = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b"x")
        os.fsync(descriptor)
        os.close(descriptor)
    os.replace(folder / "b", folder / "c")
    os.unlink(folder / "a")


POINTS = ["open a", "write a", "fsync a", "open b", "write b", "fsync b", "rename c", "unlink a"]


def test_every_change_of_the_folder_is_a_point(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "elsewhere").mkdir()

    def job() -> None:
        write_twice(tmp_path / "d")
        write_twice(tmp_path / "elsewhere")

    assert run(job, tmp_path / "d").points == POINTS


@pytest.mark.parametrize("at", range(len(POINTS)))
def test_killed_before_a_point(tmp_path: Path, at: int) -> None:
    traced = run(lambda: write_twice(tmp_path), tmp_path, Fault(at))
    assert (traced.status, traced.killed, traced.points) == (-9, True, POINTS[: at + 1])
    assert {path.name for path in tmp_path.iterdir()} == (
        [set(), {"a"}, {"a"}, {"a"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "c"}][at]
    )


@FAILING
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_calls_that_fail(tmp_path: Path, code: int) -> None:
    def job() -> None:
        with pytest.raises(OSError, match=r".") as failed:
            write_twice(tmp_path)
        assert failed.value.errno == code
        (tmp_path / "a").unlink(missing_ok=True)

    if code == errno.EIO:
        assert run(job, tmp_path, Fault(2, code)).status == 1, "nor can a failing disk remove a file"
        (tmp_path / "a").unlink()
    traced = run(job, tmp_path, Fault(4, errno.ENOSPC))
    assert traced.status == (0 if code == errno.ENOSPC else 1)
    assert traced.points[4] == "write b"


def test_what_a_thread_writes_is_seen_too(tmp_path: Path) -> None:
    def job() -> None:
        import threading

        thread = threading.Thread(target=write_twice, args=(tmp_path,))
        thread.start()
        thread.join()

    assert run(job, tmp_path).points == POINTS
    for path in tmp_path.iterdir():
        path.unlink()
    assert run(job, tmp_path, Fault(4)).status == -9


def test_the_samples_together_hold_every_kind_of_point() -> None:
    points = ["w"] * 5 + ["s"] + ["w"] * 3 + ["u", "f", "d", MIRROR_WRITTEN, COMMITTED, COMMITTED]
    samples = [chosen(points, SAMPLE, share) for share in range(SHARES)]
    assert samples == [[4, 11, 12, 14], [5, 12, 14], [9, 12, 14], [10, 12, 14]]
    assert chosen(points, SAMPLE, SHARES + 1) == samples[1]


def test_what_every_point_is_chosen_of() -> None:
    points = ["w"] * 5 + ["s"] + ["w"] * 3 + ["u"]
    assert chosen(points, ENDS) == [0, 4, 5, 6, 8, 9]
    assert chosen(points, ALL) == list(range(10))
