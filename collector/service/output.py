"""Where a command's answer goes: standard output, or a file that is there whole or not at all.

An earlier answer is replaced. What it was made from is not: a store, an export, a key (`on_disk.kept_there`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from collector.service.on_disk import kept_there
from collector.service.settings import MachineError


def add_out(parser: ArgumentParser, what: str) -> None:
    """`--out`. what: that it may be."""
    parser.add_argument("--out", type=_free, metavar="FILE", help=f"{what}: into this file, whole or not at all")


def _free(text: str) -> Path:
    kept = kept_there(Path(text))
    if kept is not None:
        raise ArgumentTypeError(f"{text} is {kept}, which no answer replaces; name another file")
    return Path(text)


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """UTF-8, line ends as they are. A file gets its name when all of it is on disk. Raises MachineError."""
    if path is None:
        out = sys.stdout
        if isinstance(out, TextIOWrapper):
            out.reconfigure(encoding="utf-8", newline="")
        yield out
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _named(path), unfinished.open("x", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with _named(path):
            unfinished.replace(path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(f"--out {path}: cannot be written ({error.strerror})") from None
