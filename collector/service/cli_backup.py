"""`ldp-collector backup`: copy a store in an SQLite file while it is in use."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collector.service.cli_common import Subparsers, add_db, new_parser

DESCRIPTION = (
    "copy a collector's or a registrar's store while it is in use: one moment of it, checked, on the disk; never over "
    "a file that is there. A PostgreSQL database is copied by pg_dump"
)
EXAMPLE = """examples:
  ldp-collector backup --db sqlite:////var/lib/ldp/collector.db --out /var/backups/collector-2026-11-30.db
  ldp-collector backup --db /var/lib/ldp-registrar/registrar.db --out /var/backups/registrar-2026-11-30.db

To restore: stop the service, move the store, its -wal and its -shm away, copy the backup to the store's place for the
same user, look at it with `ldp-collector doctor`, start the service. No report is counted twice after that; sums that
were released since are lost."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `backup`."""
    parser = new_parser(subparsers, "backup", DESCRIPTION, EXAMPLE)
    add_db(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the copy; must not be there yet")


def run(args: argparse.Namespace) -> int:
    """Exit 0. Raises what becomes one line and an exit status."""
    from collector.service.backup import back_up

    size = back_up(args.db, args.out)
    sys.stdout.write(f"{args.out}: {size} bytes, checked\n")
    return 0
