"""What an engine is asked for, and which files are the tables that it is asked about.

Rules of this file: a file is read as it was exported or not at all. Its length is looked at when the export is opened;
its digest and its columns before the first question to its table, for numbers made of another file would look like any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from client_sdk.errors import TelemetryError
from collector.service.parquet_tables import BY_NAME, DamagedExportError, ExportError, Manifest, Part, read_manifest

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
    checked: set[str] = field(default_factory=set, repr=False, compare=False)

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
        """Raises ExportError for a table that was left out; DamagedExportError for a file that is not what it was."""
        if name not in self.paths:
            raise ExportError(self.folder, f"holds no {name}: it was made with --sums-only; export without that")
        if name not in self.checked:
            for part in self.manifest.tables[name]:
                self._check(name, part)
            self.checked.add(name)
        return self.paths[name]

    def _check(self, name: str, part: Part) -> None:
        """Content and columns. A file that goes meanwhile is one of an export that was replaced."""
        path = self.folder / part.path
        try:
            with path.open("rb") as stream:
                same = hashlib.file_digest(stream, "sha256").hexdigest() == part.sha256
        except OSError:
            same = False
        if not same:
            what = f"{part.path} is missing or changed; export again, or wait for the end of one that runs"
            raise DamagedExportError(self.folder, what)
        if [*_types_in(path).items()] != [*types_of(name).items()]:
            raise DamagedExportError(self.folder, f"{part.path} has other columns than {name}; export again")


def _types_in(path: Path) -> dict[str, str]:
    """The columns of a file, as `types_of`; none where it is no Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowInvalid):
        return {}
    return {column.name: _NAMES.get(str(column.type), str(column.type)) for column in schema}


_NAMES: Final = {"double": "float64"}
"""Of Arrow's types, where they are called otherwise than in `parquet_tables.Column`."""


def types_of(name: str) -> dict[str, str]:
    """The columns of a table and their types, as `parquet_tables.Column` has them: for a table that has no file."""
    return {column.name: column.type for column in BY_NAME[name].columns}
