"""DuckDB: in this process, on all cores, and on disk where memory ends.

Rules of this file: memory is limited, what does not fit goes to a folder of its own that is gone afterwards; no
extension is ever loaded from the network; files are named one by one, never by a pattern.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import duckdb
import ibis

from collector.service.engines.base import EngineError, Files, types_of

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

SETTINGS: Final = {
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

MOST_MEMORY: Final = 6.0
"""GB that DuckDB may use, and half of the machine's at most; the process needs somewhat more."""

_TYPES: Final = {"string": "VARCHAR", "int64": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN"}

BATCH: Final = 200_000
"""Rows that come back at a time."""


class OnDuckdb:
    """See `Engine`. memory_gb: that DuckDB may use."""

    def __init__(self, files: Files, memory_gb: float | None = None) -> None:
        self._files = files
        self._tables: dict[str, ir.Table] = {}
        self._spill = tempfile.TemporaryDirectory(prefix="ldp-duckdb-", ignore_cleanup_errors=True)
        limits = {"memory_limit": f"{memory_gb or _memory_gb():.2f}GB", "temp_directory": self._spill.name}
        with _named():
            self._ibis = ibis.duckdb.connect(":memory:", **SETTINGS, **limits)

    def table(self, name: str) -> ir.Table:
        """A view of its files."""
        if name not in self._tables:
            paths = self._files.of_table(name)
            with _named():
                if paths:
                    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
                    read = f"read_parquet([{listed}], hive_partitioning = false)"
                    self._ibis.con.execute(f'CREATE VIEW "{name}" AS SELECT * FROM {read}')  # noqa: S608 - paths quoted
                else:
                    self._create(name, types_of(name))
                self._tables[name] = self._ibis.table(name)
        return self._tables[name]

    def lookup(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> ir.Table:
        """In memory."""
        with _named():
            self._create(name, columns)
            if rows:
                places = ", ".join("?" for _ in columns)
                self._ibis.con.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)  # noqa: S608 - our name
            return self._ibis.table(name)

    def _create(self, name: str, types: Mapping[str, str]) -> None:
        columns = ", ".join(f'"{column}" {_TYPES[of]}' for column, of in types.items())
        self._ibis.con.execute(f'CREATE OR REPLACE TABLE "{name}" ({columns})')

    def batches(self, expression: ir.Table) -> Iterator[pa.RecordBatch]:
        """Streamed: what is not read yet is not in memory."""
        with _named():
            relation = self._ibis.con.sql(self._ibis.compile(expression))
            # the name that DuckDB 2 has for it, and that of the versions before
            read: Any = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            yield from read(BATCH)

    def close(self) -> None:
        """And the folder."""
        self._ibis.disconnect()
        self._spill.cleanup()


def _memory_gb() -> float:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return MOST_MEMORY / 2
    return min(MOST_MEMORY, machine / 2)


@contextmanager
def _named() -> Iterator[None]:
    """DuckDB's faults in one line."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise EngineError(f"DuckDB: memory or room for temporary files is used up ({_line(error)})") from error
    except duckdb.Error as error:
        raise EngineError(f"DuckDB: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
