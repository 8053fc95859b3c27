"""The device's folder: fixed names, private modes, no link followed, replaced whole or not at all.

Rules of this file: every name inside the folder is a constant of ours, so no plan, metric or endpoint can
choose where a byte goes; a file that is a symbolic link is refused, never followed; what is written here is
synced before the caller goes on. What it does not do: it cannot protect the folder from its own user or root.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass, field

from client_sdk.errors import StorageError

DATABASE_NAME = "device.db"
DAMAGED_NAME = "device.db.damaged"
MIRROR_NAME = "identity.json"
MIRROR_NEW_NAME = "identity.json.new"

SEED_BYTES = 32
MIRROR_MAX_BYTES = 4096

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ADVICE = "give a data_dir that this app's user may write to"
_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


class StoreUnavailableError(StorageError):
    """The store cannot be used now (disk full, locked, read-only); the next attempt may succeed."""


class StoreDamagedError(StorageError):
    """The store's bytes make no sense; `DeviceStore` replaces it and counts its budget as used up."""


def prepare_folder(data_dir: str) -> str:
    """Make `data_dir` (mode 0700) where it is missing; return its real path.

    A link to a folder is resolved once, here, so that turning the link later moves no ledger. StorageError
    for what is no folder, cannot be made, or that everybody may write to.
    """
    folder = os.path.realpath(data_dir)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except (FileExistsError, NotADirectoryError):
        raise StorageError(f"data_dir {folder}: it, or a part of its path, is a file; give a folder") from None
    except OSError as error:
        raise storage_error(error, folder) from None
    if os.name == "posix" and status.st_mode & stat.S_IWOTH:
        raise StorageError(f"data_dir {folder}: everybody may write to it; use a folder of mode 0700")
    return folder


def refuse_link(path: str) -> bool:
    """Is there a regular file at `path`? StorageError where it is a link or anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error(error, path) from None
    if not stat.S_ISREG(mode):
        raise StorageError(f"{path}: not a regular file (a link?); it is not followed, remove it")
    return True


def create_private(path: str) -> None:
    """An empty file of mode 0600 at `path`, unless one is there already."""
    if refuse_link(path):
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | _NO_FOLLOW, 0o600))
    except OSError as error:
        raise storage_error(error, path) from None


def storage_error(error: OSError, path: str) -> StorageError:
    """The operating system's refusal as one line that names the file and what to do."""
    if error.errno in _FULL_ERRNOS:
        return StoreUnavailableError(f"{path}: the disk is full; free some space, nothing was sent or lost")
    if error.errno == errno.EROFS:
        return StoreUnavailableError(f"{path}: the file system is read-only; {_ADVICE}")
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageError(f"{path}: permission denied; {_ADVICE}")
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        return StoreUnavailableError(f"{path}: {reason}")
    return StorageError(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Mirror:
    """What outlives a lost or rolled-back ledger: the identity's seed and what has been spent, ever.

    total_micro: the ledger held at least this. pending_micro: a charge up to here was about to commit. opted_out: the
    user did, so a lost ledger must not begin to record again. earlier_micro: what of the total was
    charged to identities before this one (`ledger`, *Lives*); files before this field say 0.
    """

    seed: bytes = field(repr=False)
    total_micro: int
    pending_micro: int | None = None
    opted_out: bool = False
    earlier_micro: int = 0

    @property
    def highest_micro(self) -> int:
        """The most that may have been spent."""
        return max(self.total_micro, self.pending_micro or 0)


def read_mirror(folder: str) -> Mirror | None:
    """The mirror, or None where there is none. StoreDamagedError where it is not readable as one."""
    path = os.path.join(folder, MIRROR_NAME)
    if not refuse_link(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
        with open(descriptor, "rb") as file:
            raw = file.read(MIRROR_MAX_BYTES)
    except OSError as error:
        raise storage_error(error, path) from None
    return _parse_mirror(raw, path)


def _parse_mirror(raw: bytes, path: str) -> Mirror:
    try:
        document = json.loads(raw)
        mirror = Mirror(
            bytes.fromhex(document["seed"]),
            document["total_micro_epsilon"],
            document["pending_micro_epsilon"],
            document.get("opted_out", False) is True,
            document.get("earlier_micro", 0),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreDamagedError(f"{path}: not readable") from None
    amounts = (mirror.total_micro, mirror.pending_micro or 0, mirror.earlier_micro)
    if len(mirror.seed) != SEED_BYTES or not all(map(_is_amount, amounts)):
        raise StoreDamagedError(f"{path}: not readable")
    return mirror


def _is_amount(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def write_mirror(folder: str, mirror: Mirror, *, sync: bool = True) -> None:
    """Replace the mirror whole. With `sync` it is on the disk, folder entry included, when this returns."""
    text = json.dumps(
        {
            "seed": mirror.seed.hex(),
            "total_micro_epsilon": mirror.total_micro,
            "pending_micro_epsilon": mirror.pending_micro,
            **({"opted_out": True} if mirror.opted_out else {}),
            **({"earlier_micro": mirror.earlier_micro} if mirror.earlier_micro else {}),
        }
    )
    path, new_path = os.path.join(folder, MIRROR_NAME), os.path.join(folder, MIRROR_NEW_NAME)
    try:
        _remove_leftover(new_path)
        # O_EXCL follows no link, whatever was planted there meanwhile.
        descriptor = os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NO_FOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(new_path, path)
        if sync:
            sync_folder(folder)
    except OSError as error:
        raise storage_error(error, path) from None


def remove_damaged(folder: str) -> None:
    """Delete a damaged store that was put aside, if there is one."""
    path = os.path.join(folder, DAMAGED_NAME)
    try:
        _remove_leftover(path)
    except OSError as error:
        raise storage_error(error, path) from None


def _remove_leftover(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def sync_folder(folder: str) -> None:
    """Make the folder's own entries durable; Windows has no such call and needs none."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
