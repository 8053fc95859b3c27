"""`ldp-collector job`: the nightly report job as one command."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.reports.text import printable
from collector.service.cli_common import DB_VARIABLE, Subparsers, default_db, duration, new_parser

if TYPE_CHECKING:
    from collector.service.job.running import Outcome

SOME_FAILED: Final = 1
WRONG_INPUT: Final = 2
HELD: Final = 4

TEXT = "write the reports of all windows that have closed: nightly, by one file"
EXAMPLE = f"""example:
  ldp-collector job --config job.toml

job.toml:
  db = "sqlite:////var/lib/ldp-telemetry/collector.db"    # or parquet = "DIR"; default: ${DB_VARIABLE}
  out = "/var/lib/ldp-telemetry/reports"                  # day=2026-01-31/report.json, ..., manifest.json
  by = "day"                                              # day, week or month, of `zone`
  zone = "Europe/Zurich"                                  # UTC
  grace = "2d"                                            # late cohorts are added for so long after a window's end
  outputs = ["json", "csv", "html", "parquet", "privacy", "prometheus", "otlp"]

Run it as often as you like, at once, too: what is written stays to the byte, what was interrupted is done, and a window
that was made final never changes. The other keys: since, engine, master, prometheus_file, otlp_endpoint, false_devices,
log_format, log_level; deploy/job.toml says what they are.

exit status:
  0  done, or nothing was due
  1  some output could not be written, or sent; the others are there, and the next run tries again
  2  wrong input: the file, or a source that is not what it says
  3  the environment: a missing extra, a store or a folder that cannot be used now
  4  another run is writing there, and did not end within --wait"""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `job`."""
    parser = new_parser(subparsers, "job", TEXT, EXAMPLE)
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="what, from where and where to (TOML)"
    )
    parser.add_argument(
        "--wait",
        type=duration,
        default=0.0,
        metavar="T",
        help="for another run's end, such as 10m (default: not at all)",
    )


def run(args: argparse.Namespace) -> int:
    """Exit status as in EXAMPLE. Raises what becomes 2 or 3."""
    from collector.service.job.config import JobConfigError, read_job
    from collector.service.job.files import HeldLockError
    from collector.service.job.progress import shown
    from collector.service.job.running import run_job

    try:
        config = read_job(args.config, default_db())
        with shown(config.log_format, config.log_level) as progress:
            outcome = run_job(config, int(time.time()), args.wait, progress)
    except JobConfigError as error:
        return _said(error.problems, WRONG_INPUT)
    except HeldLockError as error:
        return _said((str(error),), HELD)
    sys.stdout.write(printable(words(outcome)) + "\n")
    return SOME_FAILED if outcome.failed else 0


def _said(problems: tuple[str, ...], status: int) -> int:
    for problem in problems:
        sys.stderr.write(f"ldp-collector job: {printable(problem)}\n")
    return status


def words(outcome: Outcome) -> str:
    """What a run came to, in one line."""
    said = f"{outcome.windows} windows have closed: {outcome.written} written, {outcome.noted} noted"
    if outcome.late:
        said += f"; {outcome.late} reports came too late to be in one"
    if outcome.not_covered:
        said += f"; {outcome.not_covered} not wholly in the export"
    return said + (f"; {len(outcome.failed)} FAILED" if outcome.failed else "")
