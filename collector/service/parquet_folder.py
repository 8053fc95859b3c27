"""The folder that an export is written to: whose it is, how its files come to be, and one writer at a time.

Rules of this file: nothing in it but an export, or it is left alone; what is written is on the disk before it gets its
name; folders and files are their owner's alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collector.service.on_disk import make_folder, sync
from collector.service.parquet_tables import SCHEMA_FILE, DamagedExportError, ExportError, check_version

LOCK_FILE: Final = ".lock"
OWNERS: Final = 0o700
"""Permissions of every folder."""


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """What the system refuses (a full disk, a folder of somebody else's), in one line."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror or type(error).__name__}); the export before is as it was"
        raise DamagedExportError(folder, what) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The only export to this folder; the system lets go of the lock however the process ends."""
    try:
        make_folder(folder, OWNERS)
    except (FileExistsError, NotADirectoryError):
        raise ExportError(folder, "is no folder; name another") from None
    _check_ours(folder)
    descriptor = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        _lock(folder, descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # a system without them
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        what = "another export is writing to it; wait for its end, or name another folder"
        raise DamagedExportError(folder, what) from None


def _check_ours(folder: Path) -> None:
    """Nothing but an export, or the beginning of one."""
    try:
        check_version(folder, json.loads((folder / SCHEMA_FILE).read_text("utf-8")))
    except FileNotFoundError:
        if any(one.name != LOCK_FILE and not one.name.startswith(f".{SCHEMA_FILE}") for one in folder.iterdir()):
            raise ExportError(folder, "holds something else than an export; name an empty folder") from None
    except (OSError, ValueError) as error:
        raise ExportError(folder, f"{SCHEMA_FILE} cannot be read ({error}); name an empty folder") from None


def replace_text(path: Path, text: str) -> None:
    """Whole, or not at all."""
    making = path.with_name(f".{path.name}.tmp")
    with os.fdopen(os.open(making, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    making.replace(path)
    sync(path.parent)
