"""A copy of an SQLite store while its service is at work: whole, consistent, on the disk, and looked at.

Rules of this file:
- the copy is one moment of the store: everything that was acknowledged before it, nothing in part;
- it is checked page by page before it gets its name, and is on the disk when it has it; a file that is there is never
  overwritten, and a copy that fails leaves none behind;
- it is for its owner only: it says who takes part.
What it does not do: it copies no PostgreSQL database (`pg_dump` does), and puts nothing back: with the service stopped,
the copy is put where the store was, whose `-wal` and `-shm` go.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from client_sdk.errors import ConfigurationError
from collector.service.on_disk import sync
from collector.service.registrar.store import RegistrarStore
from collector.service.settings import MachineError
from collector.service.storage import CollectorStore
from collector.service.storage_base import Store
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_sqlite import translated

KINDS: Final[tuple[type[Store], ...]] = (CollectorStore, RegistrarStore)

OF_WRITING: Final = (
    "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC",
    "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_DELETE",
)  # fmt: skip

NOT_HERE: Final = (
    "a database server makes its own backups: pg_dump --format=custom --file=FILE DATABASE, and pg_restore "
    "--clean --if-exists --exit-on-error --single-transaction --dbname=DATABASE FILE"
)


def back_up(url: str, out: Path) -> int:
    """Copy the store of a collector or a registrar to `out`; the copy's bytes.

    Raises StoreError, and ConfigurationError for a place that is taken and a store that is no file.
    """
    source = _file_of(url)
    if out.exists() or out.is_symlink():
        raise ConfigurationError(f"--out {out}: is there already; name a new file")
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out {out}: folder {out.parent} does not exist; create it first")
    with _writing(out):
        number, name = tempfile.mkstemp(prefix=f"{out.name}.", suffix=".partial", dir=out.parent)  # for its owner only
        os.close(number)
        _fill(source, Path(name), out)
        return out.stat().st_size


def _fill(source: Path, partial: Path, out: Path) -> None:
    """The copy under its temporary name, then under its own; what is left of the former goes."""
    try:
        _copy(source, partial, out)
        sync(partial)
        _name(partial, out)
    finally:
        for left in (partial, *(partial.with_name(partial.name + end) for end in ("-journal", "-wal", "-shm"))):
            left.unlink(missing_ok=True)
    sync(out.parent)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """What the system refuses while the copy is made is about the copy's place. Raises MachineError."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"--out {out}: cannot be written ({error.strerror}); free some space, or name a folder where this user "
            "may write"
        ) from None


def _file_of(url: str) -> Path:
    """The store's file, once it is seen that it is one of ours."""
    neither: StoreError | None = None
    for kind in KINDS:
        try:
            store = kind.open(url, read_only=True)
        except StoreError as error:
            if error.problem is not StoreProblem.NOT_A_STORE:
                raise
            neither = neither or error  # what the first, a collector's, says of it
            continue
        with closing(store):
            if store.file is None:
                raise ConfigurationError(f"{store.where}: {NOT_HERE}")
            return store.file
    raise neither or AssertionError("there is a kind")


def _copy(source: Path, copy: Path, out: Path) -> None:
    uri = f"{source.absolute().as_uri()}?mode=ro"
    with translated(source), closing(sqlite3.connect(uri, uri=True)) as conn, closing(sqlite3.connect(copy)) as made:
        with _told_of(out):
            conn.backup(made)  # all pages in one step: one snapshot, which holds up no writer
            made.execute("PRAGMA journal_mode = DELETE")  # one file, whoever opens it
        if made.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise StoreError(source, StoreProblem.DAMAGED, "is damaged, no copy was kept; see `ldp-collector doctor`")


@contextmanager
def _told_of(out: Path) -> Iterator[None]:
    """Faults that only who writes can have: the source is open for reading. Raises StoreError about `out`."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if not name.startswith(OF_WRITING):
            raise
        problem = StoreProblem.FULL if name.startswith("SQLITE_FULL") else StoreProblem.INPUT_OUTPUT
        raise StoreError(f"--out {out}", problem, code=name) from error


def _name(partial: Path, out: Path) -> None:
    """Atomically, and never over a file that has come meanwhile."""
    try:
        os.link(partial, out)
    except FileExistsError:
        raise ConfigurationError(f"--out {out}: is there already; name a new file") from None
    except OSError:  # a file system without links
        with contextlib.suppress(FileExistsError):
            os.close(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            partial.replace(out)
            return
        raise ConfigurationError(f"--out {out}: is there already; name a new file") from None
