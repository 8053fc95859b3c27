"""One report and one store under every Python that the package supports and this machine has."""

from __future__ import annotations

import ast
import functools
import json
import os
import pickletools
import re
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.device.files import DATABASE_NAME
from collector.service.storage import CollectorStore
from tests.unit.client_sdk.device.helpers import NOW, make_client, make_plan, plan_text
from tests.unit.client_sdk.device.small_collector import SmallCollector
from tests.unit.client_sdk.device.test_process import ROOT
from tests.unit.client_sdk.device.test_rounds import Fleet
from tests.unit.collector.service import stores

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUPPORTED = sorted(
    (3, int(found[1])) for text in PROJECT["classifiers"] if (found := re.fullmatch(r".*Python :: 3\.(\d+)", text))
)
PLAN = make_plan()


@functools.cache
def found_interpreters() -> dict[tuple[int, int], str]:
    """Every CPython 3 of this machine, by version: this one, those on the path, those of pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    paths = [str(path) for path in sorted(root.glob("versions/3.*/bin/python"))]
    paths += [path for minor in range(6, 20) if (path := shutil.which(f"python3.{minor}"))] + [sys.executable]
    ask = "import sys; print(*sys.version_info[:2])"
    answers = [(subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False), path) for path in paths]
    return {tuple(map(int, done.stdout.split())): path for done, path in answers if done.returncode == 0}  # type: ignore[misc]


def supported_interpreters() -> list[str]:
    """Those in the package's range, lowest first."""
    found = found_interpreters()
    return [found[version] for version in sorted(found) if SUPPORTED[0] <= version <= SUPPORTED[-1]]


@pytest.fixture
def both_ends() -> tuple[str, str]:
    """The lowest and the highest supported interpreter."""
    lowest, *others = supported_interpreters()
    if not others:
        pytest.skip(f"only one supported Python here: {lowest}")
    return lowest, others[-1]


def run(python: str, code: str, *arguments: object) -> str:
    """The standard library alone (-S): not even this interpreter's packages are to be found."""
    command = [python, "-S", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def content(folder: Path) -> dict[str, list[list[str]]]:
    """Every cell that the store holds, and its type."""
    db = sqlite3.connect(folder / DATABASE_NAME)
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        rows = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608 - our own names
    finally:
        db.close()
    return {table: sorted([repr(cell) for cell in row] for row in found) for table, found in rows.items()}


SEAL = """
import hashlib, itertools, sys
from client_sdk.accounting.budget import Limits
from client_sdk.device.period import OpenPeriod
from client_sdk.device.storage import DeviceStore
from client_sdk.files import load_plan

count = itertools.count()
def entropy(size):
    return b"".join(hashlib.sha256(b"%d" % next(count)).digest() for _ in range(0, size, 32))[:size]

plan, now = load_plan(sys.argv[1]), float(sys.argv[3])
period = OpenPeriod(plan, now)
for value in (812, 0.1, 10**30, -1e-300):
    period.adders["cold_start_ms"](value, entropy)
period.adders["network"]("a category \\u00e4 that the plan does not know", entropy)
sealed = period.seal(now + 90_000, entropy, min_cohort=3, sealed_by=b"process1", life=None)
assert DeviceStore(sys.argv[2]).seal(sealed, Limits()) is None
"""

READ = """
import os, sys
from client_sdk import TelemetryClient
client = TelemetryClient("127.0.0.1:9", plan=sys.argv[1], data_dir=sys.argv[2], consent=True, insecure=True,
                         background=False, clock=lambda: float(sys.argv[3]) + 90_000,
                         registrar="127.0.0.1:9", registrar_key=b"\\x58" + 31 * b"\\x66")
view = client.spent()
print([(w.period_start, w.digest.hex()) for w in client.preview().waiting], view.lifetime, view.damaged)
client.record("cold_start_ms", 1)
assert client.counters() == {"sealed": 1}
sys.stdout.flush()
os._exit(0)  # without sealing anything
"""


def test_a_report_needs_the_standard_library_alone(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text())
    for number, python in enumerate(supported_interpreters()):
        run(python, SEAL, tmp_path / "plan.toml", tmp_path / str(number), NOW)
        assert len(content(tmp_path / str(number))["spool"]) == 1


def test_report_and_store_are_the_same_under_both_ends_of_the_range(tmp_path: Path, both_ends: tuple[str, str]) -> None:
    # case I02
    (tmp_path / "plan.toml").write_text(plan_text())
    made = []
    for number, python in enumerate(both_ends):
        run(python, SEAL, tmp_path / "plan.toml", tmp_path / str(number), NOW)
        made.append(content(tmp_path / str(number)))
    seeds = [store.pop("identity") for store in made]
    assert seeds[0] != seeds[1], "each device has its own"
    assert made[0] == made[1], "all the rest is the same, to the byte"
    assert made[0]["spool"]
    for number in (0, 1):
        before = content(tmp_path / str(number))
        answers = {run(python, READ, tmp_path / "plan.toml", tmp_path / str(number), NOW) for python in both_ends}
        (answer,) = answers
        assert answer.endswith("2 None\n"), "sound, and charged once"
        assert content(tmp_path / str(number)) == before


def test_the_operators_report_is_the_same_under_both_ends_of_the_range(
    tmp_path: Path, both_ends: tuple[str, str]
) -> None:
    # case I02: stored under one Python, reported under another, with the same (pure Python) packages
    store = CollectorStore.open(str(tmp_path / "collector.db"))
    store.put_plan(stores.make_plan(), stores.NOW)
    store.store_release(stores.make_release(stores.make_plan(), "r1", range(5)))
    store.close()
    code = (
        "import sys; sys.path += sys.argv.pop(1).split(':'); from collector.service.cli import main; sys.exit(main())"
    )
    packages = f"{sysconfig.get_path('purelib')}:{sysconfig.get_path('platlib')}"
    for command in ("report", "privacy"):
        answers = set()
        for python in both_ends:
            arguments = [packages, command, "--db", str(tmp_path / "collector.db"), "--format", "json"]
            done = subprocess.run(
                [python, "-S", "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
            )
            if "ModuleNotFoundError" in done.stderr or "[collector]" in done.stderr:
                pytest.skip(f"{python} cannot use this environment's packages: {done.stderr.splitlines()[-1]}")
            assert (done.returncode, done.stderr) == (0, "")
            answers.add(done.stdout)
        (answer,) = answers
        assert json.loads(answer)


# --- pickles -------------------------------------------------------------------------------------------


def is_pickle(data: bytes) -> bool:
    """Would `pickle` read it to its end?"""
    try:
        *_, (_, _, position) = pickletools.genops(data)
    except Exception:  # noqa: BLE001 - it raises whatever the bytes lead it into
        return False
    return position == len(data) - 1 and len(data) > 1


def cells(path: Path) -> Iterator[bytes]:
    db = sqlite3.connect(path)
    try:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own names
                yield from (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
    finally:
        db.close()


async def test_nothing_that_is_stored_or_sent_is_a_pickle(tmp_path: Path) -> None:
    # case I02
    assert is_pickle(b"\x80\x04K\x01.")
    with SmallCollector(PLAN, cohort_size=4) as collector:
        fleet = Fleet(tmp_path, collector, 4)
        await fleet.upload()
        sent = [data for _, data in collector.received]
    kept = make_client(tmp_path / "kept", seal_key=bytes(32), clock=time.time)
    kept.record("cold_start_ms", 1)
    kept.close()
    stored = [cell for folder in (*fleet.folders, tmp_path / "kept") for cell in cells(folder / DATABASE_NAME)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240 - all is over
    assert len(sent) > 20
    assert len(stored) > 100
    assert len(files) >= 10, "the stores and their mirrors"
    assert [data for data in (*sent, *stored, *files) if is_pickle(data)] == []


def test_no_module_of_ours_knows_a_format_of_one_python_version() -> None:
    # case I02
    seen = set()
    for room in ("client_sdk", "collector"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    seen |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    seen.add(node.module.split(".")[0])
    assert {"json", "sqlite3"} <= seen
    assert not seen & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg"}


# --- an interpreter out of range -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The package as an installer gets it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and re.search(r"connection|resolve|Network|timed out|No matching", done.stderr, re.I):
        pytest.skip("needs a package index for the build backend: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return str(path)


def refusal(*command: str) -> str:
    done = subprocess.run(
        [*command, "--no-index", "--disable-pip-version-check"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.slow
def test_the_installer_refuses_an_interpreter_below_the_range_and_names_it(wheel: str, tmp_path: Path) -> None:
    # case I02
    supported = PROJECT["requires-python"]
    assert supported == f">={SUPPORTED[0][0]}.{SUPPORTED[0][1]}"
    below = f"{SUPPORTED[0][0]}.{SUPPORTED[0][1] - 1}"
    options = ("--no-deps", "--only-binary=:all:", f"--python-version={below}", "-d", str(tmp_path), wheel)
    said = refusal(sys.executable, "-m", "pip", "download", *options)
    assert "different Python" in said
    assert supported in said
    found = found_interpreters()
    older = [found[version] for version in sorted(found) if (3, 8) <= version < SUPPORTED[0]]
    for python in older[-1:]:  # a real one, with its own installer
        said = refusal(python, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path / "t"), wheel)
        assert supported in said or "No module named pip" in said
    assert not (tmp_path / "t").exists()
