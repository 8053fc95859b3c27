"""`ldp-collector`: finds the subcommand, runs it, and turns every fault into one line and an exit status.

0 done; 1 a verdict (what was checked does not hold); 2 wrong input; 3 the environment (a missing extra, a full
or locked disk); 130 ended by Ctrl-C, without a traceback also while modules are imported. A subcommand is a module
`cli_NAME`, its hyphens underscores, with `add_parser(subparsers)` and `run(args) -> int`; only the one that is called
is imported, so a missing extra stops no other one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from client_sdk.errors import ConfigurationError, MissingExtraError, PlanError, TelemetryError

if TYPE_CHECKING:  # what takes long to import is imported in `main`, where Ctrl-C is expected
    import argparse
    from types import ModuleType

PROG: Final = "ldp-collector"
WRONG_INPUT: Final = 2
ENVIRONMENT: Final = 3
INTERRUPTED: Final = 130

COMMANDS: Final = {
    "serve": "collect reports: the gRPC service",
    "report": "print estimates from the sums that were released",
    "privacy": "print what the devices have spent",
    "export": "write a store as Parquet files, by day",
    "job": "write the reports of all windows that have closed: nightly, by one file",
    "price": "print what a setting costs before it is deployed",
    "recompute": "compute every figure of an exported ledger again",
    "plan": "check a plan before it is published, or sign it",
    "audit": "check that the installed mechanisms keep a plan's epsilon",
    "registrar": "certify devices' identities: run by another party than the collector",
    "access": "issue, list and revoke tokens for reading over the network",
    "health": "ask a running collector whether it serves",
    "doctor": "look whether a store is whole, and say what is missing",
    "backup": "copy a store while it is in use",
    "housekeeping": "fold and drop what is older than it has to be kept",
    "demo": "simulate a fleet of real devices and check the estimates",
    "federated-demo": "learn a model from simulated devices in real rounds, privately in two ways",
}

EXAMPLES = """examples:
  ldp-collector demo
  ldp-collector plan check plan.toml
  ldp-collector audit --plan plan.toml
  ldp-collector serve --plan plan.toml --db sqlite:///collector.db --registrar-key registrar.pub \\
      --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  ldp-collector report --db sqlite:///collector.db --since 2026-01-01 --format csv
  ldp-collector report --server collector.example:443 --access-token-file anna.token

exit status: 0 done, 1 a verdict, 2 wrong input, 3 the environment;
130, 143: ended by Ctrl-C, by SIGTERM"""

EXTRA_OF: Final = {
    **dict.fromkeys(("sqlalchemy", "alembic", "rich", "structlog", "prometheus_client"), "collector"),
    **dict.fromkeys(("pyarrow", "duckdb", "ibis", "jinja2"), "reports"),
    "pyspark": "spark",
    "opentelemetry": "otel",
}
"""The extra that brings a module."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never a traceback for what a user or an operator can cause."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller's shell: still do the work
        sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    # gRPC's core writes a line of its own for each failed handshake: ours say it once, and what to do
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((a for a in arguments if not a.startswith("-")), "")
    prog = f"{PROG} {name}" if name in COMMANDS else PROG
    try:
        with _interrupts_end_quietly():  # nothing is open yet
            module, args = _parsed(arguments, name)
        status = int(module.run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left: nothing to say, and nothing more may be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENVIRONMENT
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return _fail(prog, MissingExtraError(f"`{prog}`", extra), ENVIRONMENT)
    except TelemetryError as error:
        return _fail(prog, error, _status_of(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(prog, f"{where}{error.strerror or type(error).__name__}", ENVIRONMENT)
    return status


@contextmanager
def _interrupts_end_quietly() -> Iterator[None]:
    """Ctrl-C ends the process at once: as an exception among imports it may come out of a C module as another error,
    or be printed and forgotten by a callback. Left alone: an interrupt that is ignored, or handled by somebody else.
    """
    try:
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED)) if ours else None
    except ValueError:  # not in the main thread, which gets no interrupts either
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _parsed(arguments: list[str], name: str) -> tuple[ModuleType, argparse.Namespace]:
    import argparse

    from collector.service.cli_common import OneLineParser
    from collector.service.versions import installed_version

    parser = OneLineParser(
        prog=PROG,
        description="Local-differential-privacy telemetry: a collector that only ever sees sums.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {installed_version()}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=OneLineParser)
    module: ModuleType | None = None
    for command, text in COMMANDS.items():
        if command == name:
            module = import_module(f"collector.service.cli_{command.replace('-', '_')}")
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(command, help=text)
    args = parser.parse_args(arguments)
    if module is None:  # `required` leaves no other way here
        raise ConfigurationError("no command given")
    return module, args


def _status_of(error: TelemetryError) -> int:
    from collector.service.storage_errors import StoreError, StoreProblem

    if isinstance(error, StoreError):
        named_wrong = {StoreProblem.MISSING, StoreProblem.NOT_A_STORE}
        return WRONG_INPUT if error.problem in named_wrong else ENVIRONMENT
    return WRONG_INPUT if isinstance(error, (PlanError, ConfigurationError)) else ENVIRONMENT


def _fail(prog: str, error: TelemetryError | str, status: int) -> int:
    """One line; a plan's faults one line each, as each names its own field."""
    from collector.reports.text import printable

    problems = error.problems if isinstance(error, PlanError) else (str(error),)
    for problem in problems:
        sys.stderr.write(f"{prog}: {printable(problem)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
