"""What has to outlast a power cut: a name is in its folder for good once the folder itself is on the disk."""

from __future__ import annotations

import os
from pathlib import Path


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
