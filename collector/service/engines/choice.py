"""Which engine, and how it is started; what is missing for it is said in one line."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from client_sdk.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from collector.service.engines.base import Engine, Files

PYTHON: Final = "python"
DUCKDB: Final = "duckdb"
SPARK: Final = "spark"
ENGINES: Final = (PYTHON, DUCKDB, SPARK)

MOST_PYTHON_CELLS: Final = 1_000_000
"""Of released sums in a store that plain Python adds up; more, DuckDB does where it is installed."""

_NEEDS: Final = {
    DUCKDB: ("ibis", "duckdb", "pyarrow"),
    SPARK: ("ibis", "pyspark", "pyarrow", "pandas", "pyarrow_hotfix"),  # the last two: Ibis' own, for Spark
    PYTHON: (),
}
_EXTRAS: Final = {DUCKDB: "reports", SPARK: "spark"}


def is_installed(name: str) -> bool:
    """Everything that it needs?"""
    return all(find_spec(module) is not None for module in _NEEDS[name])


def require(name: str) -> None:
    """Raises MissingExtraError."""
    if not is_installed(name):
        raise MissingExtraError(f"--engine {name}", _EXTRAS[name])


def start(name: str, files: Files, master: str | None = None) -> Engine | None:
    """None for plain Python. master: Spark's. Raises MissingExtraError, EngineError."""
    if master is not None and name != SPARK:
        raise ConfigurationError("--master goes with --engine spark")
    require(name)
    if name == DUCKDB:
        from collector.service.engines.on_duckdb import OnDuckdb

        return OnDuckdb(files)
    if name == SPARK:
        from collector.service.engines.on_spark import LOCAL, OnSpark

        return OnSpark(files, master or LOCAL)
    return None
