"""What the commands of demos share: a folder that is gone afterwards or kept, an end by signals, and the answer."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from client_sdk.errors import ConfigurationError
from collector.service.settings import MachineError

if TYPE_CHECKING:
    from rich.console import Console


class Result(Protocol):
    """A demo's document and its verdict; `ok` decides the exit status."""

    @property
    def document(self) -> Mapping[str, Any]:
        """What is kept, and printed as JSON."""

    @property
    def ok(self) -> bool:
        """Did it hold?"""

    @property
    def verdict(self) -> str:
        """One line."""


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """`--out`, `--format` and `--json`. what: that is kept."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"keep {what} here")
    parser.add_argument("--format", choices=["table", "json"], default="table", help="json: one object on stdout")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")


def kept(result: Result, folder: Path) -> str:
    """The document as JSON, which now stands in the folder too."""
    from collector.reports import to_json

    encoded = to_json(result.document)
    (folder / "result.json").write_text(encoded, encoding="utf-8")
    return encoded


def told(result: Result, encoded: str, form: str, print_tables: Callable[[Mapping[str, Any], Console], None]) -> int:
    """The answer goes to stdout, as `--format` says; the exit status."""
    from rich.console import Console

    if form == "json":
        sys.stdout.write(encoded)
    else:
        print_tables(result.document, Console())
        sys.stdout.write(result.verdict + "\n")
    return 0 if result.ok else 1


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo like Ctrl-C: its collector and its temporary folder go with it."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def demo_folder(out: Path | None) -> Iterator[Path]:
    """An empty folder: the one that was named, or one that is gone afterwards. ConfigurationError, MachineError."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="ldp-demo-") as folder:
            yield Path(folder)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) or str(out) == ".":
            raise ConfigurationError(f"--out {out}: the folder is not empty; name a new one")
    except (FileExistsError, NotADirectoryError, ValueError) as error:  # a NUL in the name is a ValueError
        raise ConfigurationError(f"--out {out}: cannot be used ({getattr(error, 'strerror', error)})") from None
    except OSError as error:
        raise MachineError(f"--out {out}: cannot be used ({error.strerror})") from None
    yield out.resolve()
