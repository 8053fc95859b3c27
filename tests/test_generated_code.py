"""The generated code is what the protos say, and loads under every protobuf that the package allows."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROTOS = sorted(path.name for path in (ROOT / "protos").glob("*.proto"))
GENERATED = ROOT / "client_sdk" / "wire"

# Old on purpose: code from a newer generator refuses older runtimes when it is imported.
TOOLS = "1.68.1"
TOOLS_REQUIREMENTS = (f"grpcio-tools=={TOOLS}", "setuptools<80")

# case I01: of each major version that pyproject.toml allows; the first is the lowest (5.29.0 was withdrawn)
RUNTIMES = ("5.29.1", "6.33.5", "7.36.2")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHON", "PROTOCOL_BUFFERS"))}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=ROOT, env=inherited | environment, check=False
    )


def pip_install(python: str, *arguments: str) -> None:
    done = run(python, "-m", "pip", "install", "-q", *arguments)
    if done.returncode == 0:
        return
    if "CI" not in os.environ and re.search(r"connection|resolve|Network|timed out|No matching", done.stderr, re.I):
        pytest.skip("needs a package index: " + done.stderr.strip().splitlines()[-1])
    raise AssertionError(done.stderr)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which this Python finds the pinned generator: as it is, or from a folder of its own."""
    try:
        if importlib.metadata.version("grpcio-tools") == TOOLS:
            return {}
    except importlib.metadata.PackageNotFoundError:
        pass
    folder = str(tmp_path_factory.mktemp("generator"))
    pip_install(sys.executable, "--no-compile", "--no-deps", "--target", folder, *TOOLS_REQUIREMENTS)
    return {"PYTHONPATH": folder}


def test_generated_code_is_current(tools: dict[str, str], tmp_path: Path) -> None:
    arguments = ["-Iclient_sdk/wire=protos", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    protos = [f"client_sdk/wire/{name}" for name in PROTOS]
    done = run(sys.executable, "-m", "grpc_tools.protoc", *arguments, *protos, **tools)
    assert done.returncode == 0, done.stderr
    fresh = {path.name: path.read_bytes() for path in (tmp_path / "client_sdk" / "wire").iterdir()}
    committed = {path.name: path.read_bytes() for path in GENERATED.iterdir() if "_pb2" in path.name}
    assert len(fresh) == 2 * len(PROTOS) == 12
    assert set(committed) == set(fresh)
    stale = [name for name, data in fresh.items() if committed[name] != data]
    assert not stale, f"generate again (protos/README.md): {stale}"


def test_every_allowed_runtime_is_in_the_matrix() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'"protobuf>=(\d+\.\d+),<(\d+)"', project)
    assert found is not None
    assert RUNTIMES[0].startswith(found[1] + ".")
    majors = [int(version.split(".")[0]) for version in RUNTIMES]
    assert majors == list(range(int(found[1].split(".")[0]), int(found[2])))


OFTEN = {(RUNTIMES[0], "upb"), (RUNTIMES[2], "upb")}
MATRIX = [
    pytest.param(version, implementation, marks=[] if (version, implementation) in OFTEN else [pytest.mark.slow])
    for version in RUNTIMES
    for implementation in ("upb", "python")
]
"""The oldest and the newest version in each run; the others, and the implementation in Python, with `-m slow`."""


@pytest.mark.parametrize(("version", "implementation"), MATRIX)
def test_messages_survive_every_allowed_runtime(
    version: str, implementation: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # case I01: import, a round trip of every message, and the same refusals
    target = tmp_path_factory.getbasetemp() / f"protobuf-{version}"
    if not target.exists():
        pip_install(sys.executable, "--no-compile", "--no-deps", "--target", str(target), f"protobuf=={version}")
    environment = {
        "PYTHONPATH": f"{target}{os.pathsep}{ROOT}",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation,
    }
    loaded = run(
        sys.executable,
        "-c",
        "import google.protobuf as p; from google.protobuf.internal import api_implementation as a;"
        "print(p.__version__, a.Type())",
        **environment,
    )
    assert loaded.stdout.split() == [version, implementation], loaded.stderr
    tests = ["tests/unit/client_sdk/wire/test_convert.py", "tests/property/test_wire.py"]
    done = run(sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *tests, **environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
