"""`ldp-collector serve`: run a collector."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from client_sdk.errors import ConfigurationError
from collector.service.cli_common import Subparsers, new_parser
from collector.service.settings import DEFAULT_LISTEN, ServeSettings, parse_duration

DESCRIPTION = (
    "run a collector: it enrols devices, brings them together in rounds and stores sums, never a single report; "
    "prints `listening on HOST:PORT` when it is ready, and ends on SIGTERM or SIGINT after the running rounds "
    "(a second signal ends at once)"
)
EXAMPLE = """example:
  ldp-collector serve --plan plan.toml --db sqlite:////var/lib/ldp/collector.db \\
      --listen 0.0.0.0:7443 --tls-cert cert.pem --tls-key key.pem
  ldp-collector serve --plan plan.toml --db sqlite:///collector.db --listen 127.0.0.1:7443 --insecure
"""

WANTED_DESCRIPTORS = 65_536


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `serve` and its options."""
    parser = new_parser(subparsers, "serve", DESCRIPTION, EXAMPLE)
    parser.add_argument(
        "--plan", type=Path, action="append", required=True, metavar="FILE", help="a plan to serve; may be repeated"
    )
    parser.add_argument("--db", required=True, metavar="URL", help="the store, e.g. sqlite:///collector.db")
    parser.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=f"default {DEFAULT_LISTEN}; port 0: any"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM, not encrypted")
    parser.add_argument("--insecure", action="store_true", help="plain text, on loopback only")
    parser.add_argument(
        "--step-timeout", type=_duration, default=30.0, metavar="T", help="how long a step of a round waits (30s)"
    )
    parser.add_argument(
        "--grace", type=_duration, default=10.0, metavar="T", help="what running rounds get at the end (10s)"
    )
    parser.add_argument(
        "--expected-devices", type=int, metavar="N", help="joins to expect per plan and period: the last cohort "
        "then forms without waiting (tests and demonstrations)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Exit 0 after a signal. Raises what the command line turns into one line and an exit status."""
    from collector.service.app import serve

    settings = ServeSettings(
        plan_paths=tuple(args.plan),
        db_url=args.db,
        listen=args.listen,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        insecure=args.insecure,
        step_timeout_s=args.step_timeout,
        grace_s=args.grace,
        expected_devices=args.expected_devices,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    _raise_descriptor_limit()
    if not asyncio.run(serve(settings)):
        # The store's thread is stuck in the disk or a lock; waiting for it would break the promised end.
        logging.shutdown()
        os._exit(0)
    return 0


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _raise_descriptor_limit() -> None:
    """A device costs a descriptor; a shell's usual soft limit of 1,024 is too low, the hard one is the limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
