"""A job's files: there whole or not at all, and the lock that lets one run at a time write them.

Rules of this file: a file is written under another name, put on the disk, and then takes its own; what is there already
is not written again, so that a second run changes no byte. Temporary names are always the same ones: the next run
takes them over, and nothing is left behind. The lock goes with its process, however that ends.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from client_sdk.errors import TelemetryError
from collector.reports.manifest import NAME, ManifestError, Output, WindowManifest, manifest_of
from collector.service.on_disk import make_folder
from collector.service.settings import MachineError

LOCK: Final = ".lock"
POLL_S: Final = 0.1


class HeldLockError(TelemetryError):
    """Another run is at work in the folder."""


def write(path: Path, data: bytes) -> None:
    """Whole and on the disk, all but its name: its folder is to be synced. Raises OSError."""
    with suppress(FileNotFoundError):
        if path.stat().st_size == len(data) and path.read_bytes() == data:
            return
    making = temporary(path)
    descriptor = os.open(making, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(making, path)


def temporary(path: Path) -> Path:
    """What a file is called until it is whole."""
    return path.with_name(f".{path.name}.tmp")


def sweep(folder: Path) -> None:
    """What an interrupted run was about to write, and this one is not."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def output_of(data: bytes) -> Output:
    """What the manifest says of a file."""
    return Output(len(data), hashlib.sha256(data).hexdigest())


def read_manifest(folder: Path) -> WindowManifest | None:
    """None where there is none, or what is there is none any more: then the window is written anew."""
    try:
        return manifest_of((folder / NAME).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ManifestError(f"{folder / NAME}: is no text ({error.reason}); move it away") from None
    except ManifestError as error:
        raise ManifestError(f"{folder / NAME}: {error}; move it away, and the window is written anew") from None


def present(folder: Path, manifest: WindowManifest) -> set[str]:
    """Its outputs that are there and as long as they were."""
    found = set()
    for name, one in manifest.outputs.items():
        with suppress(OSError):
            if (folder / name).stat().st_size == one.bytes:
                found.add(name)
    return found


# --- one at a time ----------------------------------------------------------------------------------


@contextmanager
def alone(folder: Path, wait_s: float) -> Iterator[None]:
    """The only run in this folder, at the latest `wait_s` from now. Raises HeldLockError, MachineError."""
    try:
        make_folder(folder)
        descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise MachineError(f"out {folder}: cannot be written ({error.strerror})") from None
    try:
        _lock(folder, descriptor, wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(folder: Path, descriptor: int, wait_s: float) -> None:
    try:
        import fcntl
    except ImportError:  # a system without them
        return
    ends = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends:
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
                raise HeldLockError(f"{folder}: another run is writing there ({holder}); --wait waits for it") from None
            time.sleep(POLL_S)
        else:
            return


def folders_of(out: Path, by: str) -> Iterable[Path]:
    """Those of windows, oldest first."""
    return sorted(path for path in out.glob(f"{by}=*") if path.is_dir())
