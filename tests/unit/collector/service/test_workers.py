"""Processes that open sums: what a collector that is killed leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

KILLED = """
import asyncio, os, signal
from collector.service.workers import OpeningWorkers

if __name__ == "__main__":
    asyncio.run(OpeningWorkers(1).warm())
    assert os.environ.get("PYTHONWARNINGS") == FILTERS
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no tracker there")
@pytest.mark.parametrize("filters", [None, "default"])
def test_a_killed_collector_leaves_no_line_in_the_log(tmp_path: Path, filters: str | None) -> None:
    """The resource tracker outlives it, and shares its stderr, where each line is JSON."""
    program = tmp_path / "killed.py"
    program.write_text(KILLED.replace("FILTERS", repr(filters)), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if filters is None else {"PYTHONWARNINGS": filters})
    # until the last process that holds the pipes has ended
    ended = subprocess.run([sys.executable, program], env=environment, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -9
    assert ended.stderr.decode() == ""
