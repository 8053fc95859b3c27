"""What has to outlast a power cut: a name is in its folder for good once the folder itself is on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from collector.service.parquet_tables import MANIFEST_FILE, SCHEMA_FILE

_KEPT: Final = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\x37\x7f\x06", "a SQLite database's log"),
    (b"PAR1", "a Parquet file"),
    (b"-----BEGIN ", "a key or a certificate"),
)


def kept_there(path: Path) -> str | None:
    """What stands there and no answer may take the place of; None: nothing, or a file as any other."""
    if path.name in (MANIFEST_FILE, SCHEMA_FILE):
        return "a name of an export's own"
    try:
        with path.open("rb") as stream:
            begin = stream.read(max(len(mark) for mark, _ in _KEPT))
    except OSError:  # nothing there, or for whoever writes to say
        return None
    return next((what for mark, what in _KEPT if begin.startswith(mark)), None)


def sync(path: Path) -> None:
    """What was written into a file, or created, renamed or removed in a folder, is on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """And each on the way there that is not there yet, with these permissions. Raises OSError."""
    if not path.is_dir():
        make_folder(path.parent, mode)
        path.mkdir(mode=mode, exist_ok=True)
        sync(path.parent)
