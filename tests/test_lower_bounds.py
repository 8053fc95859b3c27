"""The oldest dependencies that the package allows carry a whole demo. By hand: it makes an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WITHDRAWN = {"protobuf==5.29": "protobuf==5.29.1"}
"""5.29.0 was withdrawn from the package index."""


def lower_bounds() -> list[str]:
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = [re.sub(r">=([0-9.]+).*", r"==\1", requirement) for requirement in core]
    return [WITHDRAWN.get(requirement, requirement) for requirement in pinned]


@pytest.mark.slow
def test_a_demo_runs_on_the_lowest_allowed_versions(tmp_path: Path) -> None:
    # case I01: reports delivered and decoded with the lowest of each, and a clean check of the dependencies
    python = tmp_path / "venv" / "bin" / "python"
    wanted = lower_bounds()
    assert len(wanted) == 4
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path / "venv")],
        [python, "-m", "pip", "install", "-q", *wanted, f"{ROOT}[collector]"],
        [python, "-m", "pip", "check"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    found = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    for requirement in wanted:
        assert re.search(rf"^{re.escape(requirement)}(\.0)*$", found, re.M), found
    demo = [tmp_path / "venv" / "bin" / "ldp-collector", "demo", "--devices", "40", "--json"]
    done = subprocess.run(demo, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)
