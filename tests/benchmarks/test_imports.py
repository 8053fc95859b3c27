"""Benchmarks run by hand only, so nothing else would notice when what they import has moved."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))


def test_there_are_benchmarks() -> None:
    assert len(MODULES) > 10


@pytest.mark.parametrize("module", MODULES)
def test_a_benchmark_can_be_imported(module: str) -> None:
    """Those of peers skip themselves where the extra `bench` is not installed."""
    importlib.import_module(f"tests.benchmarks.{module}")
