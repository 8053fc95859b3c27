"""`ldp-collector serve`: run a collector."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
from pathlib import Path

from client_sdk.errors import ConfigurationError
from collector.service import logs
from collector.service.cli_common import (
    DB_HELP,
    DB_VARIABLE,
    Subparsers,
    add_logging,
    add_retention,
    default_db,
    duration,
    new_parser,
    size,
)
from collector.service.config_file import KEYS, read_config
from collector.service.settings import DEFAULT_LISTEN, ServeSettings

DESCRIPTION = (
    "run a collector: it brings devices together in rounds and stores sums, never a single report; "
    "prints `listening on HOST:PORT` when it is ready, and ends on SIGTERM or SIGINT after the running rounds "
    "(a second signal ends at once)"
)
EXAMPLE = """examples:
  ldp-collector serve --config collector.toml
  ldp-collector serve --plan plan.toml --db sqlite:////var/lib/ldp/collector.db --registrar-key registrar.pub \\
      --listen 0.0.0.0:7443 --tls-cert cert.pem --tls-key key.pem
  ldp-collector serve --plan plan.toml --db sqlite:///collector.db --registrar-key registrar.pub \\
      --listen 127.0.0.1:7443 --insecure
"""

log = logging.getLogger(__name__)

WANTED_DESCRIPTORS = 65_536

GC_THRESHOLD = 50_000
"""A round's shares are tens of thousands of small objects that all live for a step: looking for cycles among them
every 700 allocations finds none, and costs a twentieth of the processor.
"""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `serve` and its options."""
    parser = new_parser(subparsers, "serve", DESCRIPTION, EXAMPLE)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file with these options as keys; an option given here wins"
    )
    parser.add_argument(
        "--plan", type=Path, action="append", metavar="FILE", help="a plan to serve, required; may be repeated"
    )
    parser.add_argument("--db", metavar="URL", help=f"{DB_HELP}; required, here, there or in the file of --config")
    parser.add_argument(
        "--registrar-key", metavar="KEY", help="whose certificates count, required: 64 hex digits, or the file of them"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"default {DEFAULT_LISTEN}; port 0: any")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM, not encrypted")
    parser.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="PEM; clients must present a certificate of this authority"
    )
    parser.add_argument(
        "--name", action="append", metavar="HOST[:PORT]", help="how devices dial this collector, where that is not the "
        "name in its certificate; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--insecure", action=argparse.BooleanOptionalAction, help="plain text, on loopback only (default: no)"
    )
    parser.add_argument("--step-timeout", type=duration, metavar="T", help="how long a step of a round waits (30s)")
    parser.add_argument("--grace", type=duration, metavar="T", help="what running rounds get at the end (10s)")
    parser.add_argument(
        "--expected-devices", type=int, metavar="N", help="joins to expect per plan and period: the last cohort "
        "then forms without waiting (tests and demonstrations)",
    )  # fmt: skip
    parser.add_argument("--max-waiting", type=int, metavar="N", help="participants that may wait for a cohort (10000)")
    parser.add_argument("--max-streams", type=int, metavar="N", help="streams that may be open at once (20000)")
    parser.add_argument("--max-streams-per-address", type=int, metavar="N", help="of them from one address (2000)")
    parser.add_argument("--max-joins", type=int, metavar="N", help="joins of a device for a period in an hour (60)")
    parser.add_argument("--max-round-memory", type=size, metavar="SIZE", help="what a plan's round may need (2GB)")
    parser.add_argument("--opening-workers", type=int, metavar="N", help="processes that open sums (1)")
    _add_operations(parser)


def _add_operations(parser: argparse.ArgumentParser) -> None:
    """What watches, stops and tidies up a collector."""
    add_logging(parser)
    parser.add_argument(
        "--drain", type=duration, metavar="T", help="after the first signal: say NOT_SERVING, and go on that long, "
        "until nobody is sent here any more (0)",
    )  # fmt: skip
    parser.add_argument(
        "--reflection", action=argparse.BooleanOptionalAction, help="answer gRPC's server reflection (default: no)"
    )
    add_retention(parser)


def settings_of(args: argparse.Namespace) -> ServeSettings:
    """The file's values under the options that were given. Raises ConfigurationError."""
    values = {} if args.config is None else read_config(args.config)
    given = {setting: getattr(args, key) for key, (setting, _) in KEYS.items()}
    values.update((setting, value) for setting, value in given.items() if value is not None)
    if "db_url" not in values and (db := default_db()) is not None:
        values["db_url"] = db
    needed = {"plan_paths": "--plan", "db_url": "--db", "registrar_key": "--registrar-key"}
    if missing := [option for setting, option in needed.items() if setting not in values]:
        raise ConfigurationError(f"needed, here or in the file of --config: {', '.join(missing)}")
    values["plan_paths"] = tuple(values["plan_paths"])
    values["names"] = tuple(values.get("names", ()))
    return ServeSettings(**values)


def run(args: argparse.Namespace) -> int:
    """Exit 0 after a signal. Raises what the command line turns into one line and an exit status."""
    from collector.service.app import serve

    settings = settings_of(args)
    logs.configure(settings.log_format, settings.log_level)
    _warn_of_passwords(args)
    _raise_descriptor_limit()
    gc.set_threshold(GC_THRESHOLD)
    if not asyncio.run(serve(settings)):
        # The store's thread is stuck in the disk or a lock; waiting for it would break the promised end.
        logging.shutdown()
        os._exit(0)
    return 0


def _warn_of_passwords(args: argparse.Namespace) -> None:
    """Where another user of this machine can read the one in the store's URL."""
    if args.db is not None and logs.PASSWORD.search(args.db):
        log.warning(
            "--db: whoever lists this machine's processes can read the password in it; put the URL into $%s, or "
            "into the file of --config",
            DB_VARIABLE,
            extra=logs.fields("password_visible"),
        )
    if args.config is None:
        return
    shared = args.config.stat().st_mode & 0o077
    if shared and logs.PASSWORD.search(str(read_config(args.config).get("db_url", ""))):
        log.warning(
            "--config %s: others than its owner can read the password in it; chmod 600",
            args.config,
            extra=logs.fields("password_visible"),
        )


def _raise_descriptor_limit() -> None:
    """A device costs a descriptor; a shell's usual soft limit of 1,024 is too low, the hard one is the limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
