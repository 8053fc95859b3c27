"""What the subcommands share: a parser whose errors are one line, and output as table, JSON or CSV."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from client_sdk.errors import ConfigurationError
from collector.reports.text import Cell, printable, to_csv, to_json
from collector.service.settings import parse_duration, parse_keep, parse_size

if TYPE_CHECKING:
    from rich.console import Console

Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it

T = TypeVar("T")

DB_VARIABLE = "LDP_COLLECTOR_DB"
DB_HELP = (
    "the collector's store: sqlite:///PATH or a path, or postgresql+psycopg://USER@HOST/NAME; "
    f"default: what ${DB_VARIABLE} says, where a password belongs"
)

PIPE_WIDTH = 160
"""Columns of a table that goes into a file or a pipe, where nothing says how wide the reader is."""


class OneLineParser(argparse.ArgumentParser):
    """Wrong input ends in one line on stderr and exit 2; the usage is a `--help` away."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave."""
        self.exit(2, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")


def new_parser(
    subparsers: Subparsers[argparse.ArgumentParser], name: str, text: str, example: str
) -> argparse.ArgumentParser:
    """A subcommand whose help ends with an example that can be copied."""
    return subparsers.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def default_db() -> str | None:
    """The store that the environment names: a password in there is in no list of processes."""
    return os.environ.get(DB_VARIABLE) or None


def add_db(parser: argparse.ArgumentParser) -> None:
    """`--db`, the same everywhere."""
    default = default_db()
    parser.add_argument("--db", required=default is None, default=default, metavar="URL", help=DB_HELP)


def add_logging(parser: argparse.ArgumentParser) -> None:
    """`--log-format`, `--log-level`, and the page for Prometheus: the same for every service."""
    parser.add_argument("--log-format", metavar="F", help="console, or json: one object a line (console)")
    parser.add_argument("--log-level", metavar="L", help="debug, info, warning or error (info)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz there (nowhere)")
    parser.add_argument(
        "--metrics-public", action=argparse.BooleanOptionalAction, help="also beyond this machine (default: no)"
    )


def add_retention(parser: argparse.ArgumentParser) -> None:
    """What housekeeping keeps."""
    parser.add_argument(
        "--keep-spends", type=keep, metavar="T", help="fold spends that are older into lifetime totals (365d)"
    )
    parser.add_argument(
        "--keep-contributions", type=keep, metavar="T", help="drop who contributed to older periods; never while "
        "their reports could still come (400d; forever)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-rounds", type=keep, metavar="T", help="drop older rounds that released no sum, and whom old rounds "
        "blame (forever)",
    )  # fmt: skip


def duration(text: str) -> float:
    """For argparse: seconds."""
    return _parsed(parse_duration, text)


def keep(text: str) -> float:
    """For argparse: seconds, or infinitely many."""
    return _parsed(parse_keep, text)


def size(text: str) -> int:
    """For argparse: bytes."""
    return _parsed(parse_size, text)


def _parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """`--format`, the first one by default; with csv also `--raw-text`."""
    parser.add_argument("--format", choices=formats, default=formats[0], help=f"output format (default {formats[0]})")
    if "csv" in formats:
        parser.add_argument(
            "--raw-text",
            action="store_true",
            help="csv: leave texts that a spreadsheet would take for a formula as they are, without an apostrophe",
        )


def print_json(document: object) -> None:
    """One JSON value on stdout, UTF-8."""
    _utf8_stdout().write(to_json(document) + "\n")


def print_csv(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, raw_text: bool) -> None:
    """A CSV table on stdout, UTF-8, lines ended by CRLF."""
    _utf8_stdout().write(to_csv(header, rows, raw_text=raw_text))


def _utf8_stdout() -> io.TextIOBase:
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8", newline="")
    return out  # type: ignore[return-value]  # typeshed says TextIO, which is the same thing


def console() -> Console:
    """A console on stdout that neither reads markup in names nor guesses a narrow pipe."""
    from rich.console import Console

    out = Console(markup=False, highlight=False, emoji=False)
    return out if out.is_terminal else Console(markup=False, highlight=False, emoji=False, width=PIPE_WIDTH)


def print_table(out: Console, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """First column text, the others to the right. Cells are printed as they are, control characters escaped."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left")
    for position, column in enumerate(header):
        table.add_column(Text(column), justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    out.print(table)
