"""Apache Spark: on this machine (`local[*]`) or on a cluster that can read the export's folder.

Rules of this file: arithmetic that leaves its type is an error (ANSI mode), never a wrapped or an empty number; the
session is this job's own and ends with it; its pages are not served, its log is kept to errors.
What it does not do: it moves no files. On a cluster every worker must find the export under the same path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import ibis
import pyspark.errors
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

from collector.service.engines.base import EngineError, Files, types_of

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

LOCAL: Final = "local[*]"

SETTINGS: Final = {
    "spark.app.name": "ldp-telemetry",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.driver.maxResultSize": "0",  # grouped sums; the driver's memory is the limit
}
_TYPES: Final = {"string": "STRING", "int64": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN"}
_ON_THIS_MACHINE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class OnSpark:
    """See `Engine`. master: as Spark writes it; settings: beside SETTINGS, and before them."""

    def __init__(self, files: Files, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> None:
        self._files = files
        if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
            raise EngineError("Spark needs Java 17 or later: install one, or set JAVA_HOME; or take --engine duckdb")
        wanted = SETTINGS | (_ON_THIS_MACHINE if _is_here(master) else {}) | dict(settings or {})
        with _named():
            builder = SparkSession.builder.master(master)
            for name, value in wanted.items():
                builder = builder.config(name, value)
            self._spark = builder.getOrCreate()
            self._ibis = ibis.pyspark.connect(self._spark)
        self._tables: dict[str, ir.Table] = {}

    def table(self, name: str) -> ir.Table:
        """A view of its files."""
        if name not in self._tables:
            paths = self._files.of_table(name)
            with _named():
                if paths:
                    frame = self._spark.read.parquet(*paths)
                else:
                    frame = self._spark.createDataFrame([], _columns(types_of(name)))
                frame.createOrReplaceTempView(name)
                self._tables[name] = self._ibis.table(name)
        return self._tables[name]

    def lookup(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> ir.Table:
        """Sent along with the question, to every worker."""
        with _named():
            frame = self._spark.createDataFrame([*map(tuple, rows)], _columns(columns))
            broadcast(frame).createOrReplaceTempView(name)
            return self._ibis.table(name)

    def batches(self, expression: ir.Table) -> Iterator[pa.RecordBatch]:
        """All of them come to this process first."""
        with _named():
            found = self._spark.sql(self._ibis.compile(expression)).toArrow()
        yield from found.to_batches()

    def close(self) -> None:
        """End the session."""
        self._spark.stop()


def _columns(types: Mapping[str, str]) -> str:
    """As Spark writes them."""
    return ", ".join(f"`{column}` {_TYPES[of]}" for column, of in types.items())


def _is_here(master: str) -> bool:
    return master.startswith("local") or "//127." in master or "//localhost" in master


@contextmanager
def _named() -> Iterator[None]:
    """Spark's faults in one line; of a failed job the first cause that it names."""
    try:
        yield
    except pyspark.errors.PySparkException as error:
        raise EngineError(f"Spark: {_line(error)}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "py4j":
            raise
        raise EngineError(f"Spark: {_line(error)}") from error


def _line(error: Any) -> str:
    return " ".join(str(error).split("\n\tat ")[0].split())[:300]
