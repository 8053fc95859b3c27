"""The typed public API as a host's type checker sees it: an installed package, its marker, right and wrong uses."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("client_sdk", "collector")
DISTRIBUTION = "ldp-telemetry"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """mypy's lines about the files beside this one, with the packages installed and out of sight of the sources."""
    folder = tmp_path_factory.mktemp("host")
    venv.create(folder / "venv", with_pip=False)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    names = ["host_app.py", "host_tests.py", "wrong_use.py"]
    for name in names:
        shutil.copy(HERE / name, folder / name)
    (folder / "mypy.ini").write_text("[mypy]\n")  # the host's, not ours
    options = ("--strict", "--no-incremental", "--no-error-summary")
    interpreter = folder / "venv" / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--python-executable={interpreter}", *names],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.stderr == ""
    yield done.stdout.splitlines()
    shutil.rmtree(folder)


def test_right_uses_are_accepted(checked: list[str]) -> None:
    assert [line for line in checked if not line.startswith("wrong_use.py:")] == []


def test_each_wrong_use_is_refused_where_and_as_expected(checked: list[str]) -> None:
    expected: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate((HERE / "wrong_use.py").read_text().splitlines(), 1):
        expected.update((number, code) for code in re.findall(r"# E: ([a-z-]+)", line))
    found: Counter[tuple[int, str]] = Counter()
    for line in checked:
        match = re.fullmatch(r"wrong_use\.py:(\d+): error: .*\[([a-z-]+)\]", line)
        if match is not None:
            found[int(match[1]), match[2]] += 1
    assert found == expected, "\n".join(checked)
    assert len({number for number, _ in expected}) >= 15


def shipped() -> list[str]:
    """What a wheel of this project holds: of the installed distribution, or of one built now."""
    if importlib.util.find_spec("hatchling") is not None:
        return built()
    try:
        files = importlib.metadata.files(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"neither is {DISTRIBUTION} installed nor hatchling there to build it")
    names = [str(file) for file in files or ()]
    if not any(name.startswith("client_sdk/") for name in names):
        pytest.skip(f"{DISTRIBUTION} is installed in editable form: it lists no files")
    return names


def built() -> list[str]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        code = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
        done = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT, check=True
        )
        with zipfile.ZipFile(Path(folder) / done.stdout.split()[-1]) as wheel:
            return wheel.namelist()


def test_the_wheel_ships_the_markers_and_nothing_of_the_tests() -> None:
    names = shipped()
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    assert "client_sdk/testing.py" in names
    assert "client_sdk/wire/secagg_pb2.pyi" in names
    assert not [name for name in names if name.startswith(("tests/", "deploy/"))]
