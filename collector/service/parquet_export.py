"""Writes a store's export: a folder of Parquet files that `report` and `privacy` read in place of the store.

Rules of this file: one read transaction for all tables, so an export is one moment of the store. A file gets its name,
which is a digest of its content, when it is whole and on the disk; the manifest is replaced last, whole, and only then
files that are none of the export any more go. So whatever ends an export midway leaves the one before as it was, and
days that were finished are found again by the next: a day is kept where its file says that it was made from what the
store still holds. One export at a time writes to a folder; the lock goes with its process. Folder and files are their
owner's alone: they say who takes part.
What it does not do: keep what the store has dropped. An export mirrors its store, so that who is forgotten there is
forgotten here.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection

from collector.service.on_disk import make_folder, sync
from collector.service.parquet_folder import OWNERS, alone, replace_text, told
from collector.service.parquet_rows import SCHEMAS, batches_by_day, batches_of, day_sources
from collector.service.parquet_tables import (
    BY_NAME,
    MANIFEST_FILE,
    SCHEMA_FILE,
    TABLES,
    VERSION,
    DamagedExportError,
    ExportError,
    Manifest,
    Part,
    TableOf,
    day_name,
    read_manifest,
    schema_json,
)

ROW_GROUP: Final = 200_000
"""Rows that are in memory before they are written."""

_SOURCE: Final = b"ldp_telemetry.source"
_VERSION: Final = b"ldp_telemetry.version"


@dataclass(frozen=True, slots=True)
class Asked:
    """since, until: starts of UTC days, None: no such end. devices: with the tables that say who takes part."""

    since: int | None = None
    until: int | None = None
    devices: bool = True

    @property
    def tables(self) -> list[TableOf]:
        """Those to write."""
        return [table for table in TABLES if self.devices or not table.of_devices]


@dataclass(frozen=True, slots=True)
class Written:
    """What an export came to. kept, written: days of a table."""

    manifest: Manifest
    kept: int
    written: int

    @property
    def rows(self) -> int:
        """In all files."""
        return sum(part.rows for parts in self.manifest.tables.values() for part in parts)


Step = Callable[[str], None]
"""Told the name of each table, and of each day of it that is written."""


def export(conn: Connection, folder: Path, now: int, asked: Asked, step: Step = lambda _: None) -> Written:
    """conn: within a transaction that sees one moment. Raises ExportError, DamagedExportError."""
    with told(folder), alone(folder):
        known = _begin(folder)
        kept = written = 0
        tables: dict[str, Sequence[Part]] = {}
        for table in asked.tables:
            step(table.name)
            if not table.by_day:
                tables[table.name] = [_write(folder, table, batches_of(conn, table.name))]
                continue
            days, fresh = _days(conn, folder, table, asked, known, step)
            tables[table.name] = days
            kept, written = kept + len(days) - fresh, written + fresh
        manifest = Manifest(now, asked.since, asked.until, tables)
        replace_text(folder / MANIFEST_FILE, manifest.to_json())
        _sweep(folder, manifest)
        return Written(manifest, kept, written)


# --- days -------------------------------------------------------------------------------------------


Known = dict[str, Part]
"""Parts of the export before, by path: what they were made of need not be looked up again."""


def _days(
    conn: Connection, folder: Path, table: TableOf, asked: Asked, known: Known, step: Step
) -> tuple[list[Part], int]:
    """The parts of all days, and how many of them were written anew."""
    sources = day_sources(conn, table.name, asked.since, asked.until)
    parts = {day: found for day, source in sources.items() if (found := _found(folder, table, day, source, known))}
    changed = sorted(set(sources) - set(parts))
    for first, end in _runs(changed):
        for day, batches in batches_by_day(conn, table.name, first, end):
            step(f"{table.name} {day_name(day)}")
            parts[day] = _write(folder, table, batches, day, sources[day])
    return [parts[day] for day in sorted(parts)], len(changed)


def _runs(days: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Days one after the other, as (first, the one after the last): one question to the store each."""
    start = 0
    for place in range(1, len(days) + 1):
        if place == len(days) or days[place] != days[place - 1] + 1:
            yield days[start], days[place - 1] + 1
            start = place


def _found(folder: Path, table: TableOf, day: int, source: str, known: Known) -> Part | None:
    """A whole file of that day that was made from the same; files get their names when they are whole."""
    for path in sorted(_folder_of(folder, table, day).glob("part-*.parquet")):
        before = known.get(path.relative_to(folder).as_posix())
        if before is None:
            before = _looked_at(folder, path, day)
        elif before.source == source and _digest(path) != before.sha256:
            continue  # what has changed on the disk is written anew
        if before is not None and before.source == source:
            return before
    return None


def _looked_at(folder: Path, path: Path, day: int) -> Part | None:
    """A file that no manifest names: what a crash left behind. None for one that is not what it was written as."""
    try:
        file = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):
        return None
    marks = file.metadata or {}
    digest = _digest(path)
    if marks.get(_VERSION) != str(VERSION).encode() or path.name != _part_name(digest):
        return None
    return _part(folder, path, file.num_rows, digest, marks.get(_SOURCE, b"").decode(), day)


# --- files ------------------------------------------------------------------------------------------


def _folder_of(folder: Path, table: TableOf, day: int | None) -> Path:
    return folder / table.name if day is None else folder / table.name / f"day={day_name(day)}"


def _part_name(digest: str) -> str:
    return f"part-{digest[:32]}.parquet"


def _part(folder: Path, path: Path, rows: int, digest: str, source: str, day: int | None) -> Part:
    name = None if day is None else day_name(day)
    return Part(path.relative_to(folder).as_posix(), rows, path.stat().st_size, digest, source, name)


def _write(
    folder: Path, table: TableOf, batches: Iterable[pa.RecordBatch], day: int | None = None, source: str = ""
) -> Part:
    """Under another name until it is whole and on the disk."""
    place = _folder_of(folder, table, day)
    make_folder(place, OWNERS)
    making = place / f".{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(making, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
            rows = _write_batches(stream, SCHEMAS[table.name], batches, source)
            stream.flush()
            os.fsync(stream.fileno())
        digest = _digest(making)
        path = place / _part_name(digest)
        making.replace(path)
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    sync(place)
    return _part(folder, path, rows, digest, source, day)


def _write_batches(stream: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch], source: str) -> int:
    marked = schema.with_metadata({_SOURCE: source.encode(), _VERSION: str(VERSION).encode()})
    held: list[pa.RecordBatch] = []
    rows = waiting = 0
    with pq.ParquetWriter(stream, marked, compression="zstd") as writer:
        for batch in batches:
            held.append(batch)
            rows, waiting = rows + batch.num_rows, waiting + batch.num_rows
            if waiting >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(held, schema), ROW_GROUP)
                held, waiting = [], 0
        if held:
            writer.write_table(pa.Table.from_batches(held, schema), ROW_GROUP)
    return rows


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- the folder -------------------------------------------------------------------------------------


def _begin(folder: Path) -> Known:
    """Mark the folder as an export's. What the one before has; nothing where it is damaged."""
    if not (folder / SCHEMA_FILE).exists():
        replace_text(folder / SCHEMA_FILE, schema_json())
    try:
        manifest = read_manifest(folder)
    except (ExportError, DamagedExportError):
        return {}
    return {part.path: part for parts in manifest.tables.values() for part in parts}


def _sweep(folder: Path, manifest: Manifest) -> None:
    """What is none of the export any more, and what a crash left behind."""
    current = {part.path for parts in manifest.tables.values() for part in parts}
    for name in BY_NAME:
        for path in [*(folder / name).rglob("part-*.parquet"), *(folder / name).rglob(".*.tmp")]:
            if path.relative_to(folder).as_posix() not in current:
                path.unlink(missing_ok=True)
        for place in (folder / name).glob("day=*"):
            if not any(place.iterdir()):
                place.rmdir()
