"""What a job's folder says of a window: of what its report was made, when it is final, and the files that it is.

Rules of this file: a manifest says nothing of when it was written, so that whoever writes it again writes the same; it
is read by its keys, all of which must be there. What it does not do: it opens no file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from client_sdk.errors import ConfigurationError
from collector.reports.text import format_instant, parse_instant

FORMAT: Final = "ldp-telemetry job"
VERSION: Final = 1
NAME: Final = "manifest.json"


class ManifestError(ConfigurationError):
    """A text that is no manifest of ours, or one of another version."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file beside the manifest."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WindowManifest:
    """since, until, late_from: seconds since the epoch. digest, rounds, reports: what the report was made of.

    rows_read: released sums, one per round and metric. plans: name, version and hash of those that the rounds are of.
    late: rounds and reports that came too late to be in it.
    """

    by: str
    zone: str
    window: str
    since: int
    until: int
    is_final: bool
    late_from: int
    digest: str
    rounds: int
    reports: int
    rows_read: int
    late: Mapping[str, int]
    plans: Sequence[Mapping[str, Any]]
    source: Mapping[str, Any]
    software: str
    outputs: Mapping[str, Output]

    def to_json(self) -> str:
        """Readable, and the same for equal manifests."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "by": self.by,
            "zone": self.zone,
            "window": self.window,
            "since": format_instant(self.since),
            "until": format_instant(self.until),
            "final": self.is_final,
            "late_from": format_instant(self.late_from),
            "rounds_digest": self.digest,
            "rounds": self.rounds,
            "reports": self.reports,
            "rows_read": self.rows_read,
            "late": dict(self.late),
            "plans": [dict(plan) for plan in self.plans],
            "source": dict(self.source),
            "software": self.software,
            "outputs": {name: {"bytes": one.bytes, "sha256": one.sha256} for name, one in sorted(self.outputs.items())},
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def manifest_of(text: str) -> WindowManifest:
    """Raises ManifestError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ManifestError("is no JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ManifestError("is no manifest of a report job")
    if found.get("version") != VERSION:
        raise ManifestError(f"is of version {found.get('version')!r}, this program knows {VERSION}")
    try:
        return _manifest(found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ConfigurationError):
        raise ManifestError("is damaged") from None


def _manifest(found: Mapping[str, Any]) -> WindowManifest:
    if not all(_is_file_name(name) for name in found["outputs"]):
        raise ValueError("an output that is no file beside the manifest")
    since, until, late_from = (parse_instant(found[name]) for name in ("since", "until", "late_from"))
    return WindowManifest(
        by=str(found["by"]),
        zone=str(found["zone"]),
        window=str(found["window"]),
        since=since,
        until=until,
        is_final=found["final"] is True,
        late_from=late_from,
        digest=str(found["rounds_digest"]),
        rounds=int(found["rounds"]),
        reports=int(found["reports"]),
        rows_read=int(found["rows_read"]),
        late={name: int(found["late"][name]) for name in ("rounds", "reports")},
        plans=[dict(plan) for plan in found["plans"]],
        source=dict(found["source"]),
        software=str(found["software"]),
        outputs={str(name): Output(int(one["bytes"]), str(one["sha256"])) for name, one in found["outputs"].items()},
    )


def _is_file_name(name: str) -> bool:
    """Of a file beside the manifest, and nowhere else."""
    return name not in {"", ".", ".."} and not {"/", "\\", "\0"} & set(name)
