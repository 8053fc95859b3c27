"""What an engine is asked for, and which files are the tables that it is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from client_sdk.errors import TelemetryError
from collector.service.parquet_tables import BY_NAME, DamagedExportError, ExportError, Manifest, read_manifest

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


class EngineError(TelemetryError):
    """An engine could not be started, or failed at its work; one line that says what to do."""


class Engine(Protocol):
    """Tables of one export, and what is computed from them. Every method raises EngineError."""

    def table(self, name: str) -> ir.Table:
        """Of `parquet_tables.TABLES`."""

    def lookup(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> ir.Table:
        """A small table of our own, in place of one of that name. columns: types as of `parquet_tables.Column`."""

    def batches(self, expression: ir.Table) -> Iterator[pa.RecordBatch]:
        """Its rows, some at a time; none of them twice, in the expression's order where it has one."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True, slots=True)
class Files:
    """An export's files, by table."""

    folder: Path
    manifest: Manifest
    paths: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, folder: Path) -> Files:
        """Raises ExportError; DamagedExportError where a file is missing or is not as long as it was."""
        manifest = read_manifest(folder)
        paths: dict[str, list[str]] = {}
        for name, parts in manifest.tables.items():
            for part in parts:
                path = folder / part.path
                if not path.is_file() or path.stat().st_size != part.bytes:
                    what = f"{part.path} is missing or changed; export again, or wait for the end of one that runs"
                    raise DamagedExportError(folder, what)
            paths[name] = [str((folder / part.path).absolute()) for part in parts]
        return cls(folder, manifest, paths)

    def of_table(self, name: str) -> Sequence[str]:
        """Raises ExportError for a table that was left out."""
        if name not in self.paths:
            raise ExportError(self.folder, f"holds no {name}: it was made with --sums-only; export without that")
        return self.paths[name]


def types_of(name: str) -> dict[str, str]:
    """The columns of a table and their types, as `parquet_tables.Column` has them: for a table that has no file."""
    return {column.name: column.type for column in BY_NAME[name].columns}
