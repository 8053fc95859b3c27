"""An export: what is in its folder, under which names, and the two small files that say so.

    DIR/_schema.json                                  columns of every table, and the version of all this
    DIR/_manifest.json                                the files that are the export, and of when it is
    DIR/released_sums/day=2026-01-02/part-3f0c....parquet
    DIR/plans/part-8d7f....parquet

Rules of this file: the manifest alone says which files count, and it is replaced whole, so that a reader sees one
moment of the store, never half of the next; a column keeps its name and its meaning for as long as VERSION stands.
What it does not do: it opens no Parquet file (`parquet_export` writes them, `engines` read them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from client_sdk.errors import ConfigurationError, StorageError

FORMAT: Final = "ldp-telemetry export"
VERSION: Final = 1
SCHEMA_FILE: Final = "_schema.json"
MANIFEST_FILE: Final = "_manifest.json"
DAY_S: Final = 86_400
_PATH: Final = re.compile(r"[a-z_]+/(day=\d{4}-\d\d-\d\d/)?part-[0-9a-f]+\.parquet")


class ExportError(ConfigurationError):
    """A folder that is no export, or one that does not hold what was asked for; one line that says what to do."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder}: {what}")


class DamagedExportError(StorageError):
    """An export that is not whole, or that another process is writing; one line that says what to do."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder}: {what}")


@dataclass(frozen=True, slots=True)
class Column:
    """type: string, int64, float64 or bool. Times are seconds since the epoch, UTC; hashes are lower hex digits."""

    name: str
    type: str
    what: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class TableOf:
    """by_day: a folder for each UTC day in which periods start. of_devices: its rows say who takes part."""

    name: str
    columns: tuple[Column, ...]
    by_day: bool = True
    of_devices: bool = False


_ROUND: Final = Column("round", "string", "the round's id")
_PLAN_HASH: Final = Column("plan_hash", "string", "which version of which plan: `hash` in `plans`")
_PERIOD: Final = Column("period_start", "int64", "start of the period")
_DEVICE: Final = Column("device", "string", "the device's id")
_PLAN_NAME: Final = Column("plan_name", "string", "over all versions")

TABLES: Final = (
    TableOf(
        "released_sums",
        (
            _ROUND,
            Column("metric", "string", "its name in the plan"),
            _PLAN_HASH,
            _PERIOD,
            Column("delivery", "string", "interactive, or direct: its reports came unmasked"),
            Column("contributors", "int64", "reports that hold the metric: what the total is decoded with"),
            Column("roster", "int64", "members of the round"),
            Column("resent", "int64", "reports that may also stand in an earlier masked input"),
            Column("reports", "int64", "that the round added up; more than contributors where they hold a sample"),
            Column("cell", "int64", "place in the metric's vector, from 0; all are there"),
            Column("total", "int64", "sum over the reports, before any decoding; signed"),
        ),
    ),
    TableOf(
        "rounds",
        (
            _ROUND, _PLAN_HASH, _PERIOD,
            Column("joined", "int64", "members of the roster"),
            Column("contributors", "int64", "reports in the sum"),
            Column("dropped_shares", "int64", "left without sending that step's message"),
            Column("dropped_masked_input", "int64", "the same"),
            Column("dropped_confirm", "int64", "the same"),
            Column("dropped_unmask", "int64", "the same"),
            Column("outcome", "string", "released or aborted"),
            Column("reason", "string", "why it was aborted", nullable=True),
            Column("seconds", "float64", "how long it took"),
            Column("finished_at", "int64", "when it ended"),
        ),
    ),
    TableOf(
        "contributions",
        (
            _DEVICE, _PLAN_NAME, _PERIOD, _ROUND,
            Column("resent", "bool", "the report may also stand in an earlier masked input"),
        ),
        of_devices=True,
    ),
    TableOf(
        "spends",
        (
            _DEVICE, _PLAN_NAME, _PLAN_HASH, _PERIOD,
            Column("metric", "string", "what was paid for; `*`: a sample of the plan's metrics"),
            Column("micro_epsilon", "int64", "what it cost, in millionths of epsilon"),
            _ROUND,
            Column("charged_at", "int64", "when it was booked"),
            Column("central_falls_back", "bool", "it costs its local epsilon against who sees the sums too"),
        ),
        of_devices=True,
    ),
    TableOf(
        "plans",
        (
            Column("hash", "string", "SHA-256 of the plan's canonical form"),
            Column("name", "string", "the plan's name"),
            Column("version", "int64", "its version"),
            Column("period_s", "int64", "length of its periods, seconds"),
            Column("text", "string", "the plan: TOML"),
            Column("added_at", "int64", "when it was first served"),
        ),
        by_day=False,
    ),
    TableOf(
        "device_totals",
        (
            _DEVICE,
            Column("reports", "int64", "counted over its life"),
            Column("resent_reports", "int64", "those of them that may also stand in an earlier masked input"),
            Column("micro_epsilon", "int64", "spent over its life"),
            Column("folded_reports", "int64", "those of reports that have no row in spends any more"),
            Column("folded_micro_epsilon", "int64", "what these cost"),
        ),
        by_day=False, of_devices=True,
    ),
    TableOf(
        "folded_cohorts",
        (
            Column("cohort", "string", "digest of the other columns"),
            _PLAN_HASH,
            Column("delivery", "string", "interactive or direct"),
            Column("contributors", "int64", "at most what each of the sums had, without resent ones"),
            Column("least_contributors", "int64", "the same of the metric that the fewest hold"),
            Column("roster", "int64", "at least what each of the rounds had"),
            Column("metric_contributors", "string", "JSON: contributors by metric, {} where all reports hold all"),
        ),
        by_day=False, of_devices=True,
    ),
    TableOf(
        "folded_spends",
        (
            _DEVICE,
            Column("cohort", "string", "in `folded_cohorts`"),
            Column("central_falls_back", "bool", "as in spends"),
            Column("reports", "int64", "how many"),
            Column("micro_epsilon", "int64", "what they cost together"),
            Column("first_charged_at", "int64", "the first of them"),
            Column("last_charged_at", "int64", "the last of them"),
        ),
        by_day=False, of_devices=True,
    ),
)  # fmt: skip

BY_NAME: Final = {table.name: table for table in TABLES}


@dataclass(frozen=True, slots=True)
class Part:
    """A file. path: from the export's folder. source: digest of what it was made from, "" where it is made each time.

    day: 2026-01-02, None where the table is not kept by day.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    source: str = ""
    day: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """exported_at: the moment that the export shows. since, until: its periods, None: all. tables: parts by table; one
    that was left out is not among them.
    """

    exported_at: int
    since: int | None
    until: int | None
    tables: Mapping[str, Sequence[Part]]

    def to_json(self) -> str:
        """Readable, and the same for equal manifests."""
        parts = {name: [asdict(part) for part in found] for name, found in self.tables.items()}
        head = {"format": FORMAT, "version": VERSION, "exported_at": self.exported_at}
        return json.dumps({**head, "since": self.since, "until": self.until, "tables": parts}, indent=1) + "\n"


def schema_json() -> str:
    """For people and other programs."""
    tables = [
        {"name": one.name, "by_day": one.by_day, "columns": [asdict(column) for column in one.columns]}
        for one in TABLES
    ]
    return json.dumps({"format": FORMAT, "version": VERSION, "tables": tables}, indent=1) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Raises ExportError where there is none, or one of another version; DamagedExportError."""
    path = folder / MANIFEST_FILE
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        what = "holds no finished export; make one with `ldp-collector export`" if folder.is_dir() else "no such folder"
        raise ExportError(folder, what) from None
    except NotADirectoryError:
        raise ExportError(folder, "is no folder; name the one that `ldp-collector export` wrote") from None
    except OSError as error:
        raise DamagedExportError(folder, f"{MANIFEST_FILE} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DamagedExportError(folder, f"{MANIFEST_FILE} cannot be read ({error}); export again") from None
    check_version(folder, found)
    try:
        return _manifest(found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise DamagedExportError(folder, f"{MANIFEST_FILE} is damaged; export again") from None


def _manifest(found: Mapping[str, Any]) -> Manifest:
    tables = {name: [Part(**part) for part in parts] for name, parts in found["tables"].items() if name in BY_NAME}
    for name, parts in tables.items():
        _check_parts(name, parts)
    since, until = (None if found[end] is None else _instant(found[end]) for end in ("since", "until"))
    return Manifest(_instant(found["exported_at"]), since, until, tables)


def _check_parts(name: str, parts: Sequence[Part]) -> None:
    """Files of this table, each of them once. Raises TypeError, ValueError."""
    if not all(_PATH.fullmatch(part.path) and part.path.startswith(f"{name}/") for part in parts):
        raise ValueError("a path that leads elsewhere")
    if len({part.path for part in parts}) != len(parts):
        raise ValueError("a file that would count twice")
    for part in parts:
        if part.day is not None:
            date.fromisoformat(part.day)


def _instant(seconds: object) -> int:
    """Raises TypeError, ValueError, OverflowError for what is no moment."""
    if not isinstance(seconds, int):
        raise TypeError("no whole seconds")
    datetime.fromtimestamp(seconds, UTC)
    return seconds


def check_version(folder: Path, found: object) -> None:
    """Of what a schema or a manifest says at its head. Raises ExportError."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ExportError(folder, "is no export of a collector's store; name another folder")
    if found.get("version") != VERSION:
        raise ExportError(
            folder, f"is an export of version {found.get('version')!r}, this program knows {VERSION}; export again"
        )


def day_name(day: int) -> str:
    """Of a UTC day, counted from 1970-01-01."""
    return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
