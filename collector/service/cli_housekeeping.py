"""`ldp-collector housekeeping`: tidy up a store now, as running collectors do once a day."""

from __future__ import annotations

import argparse
import sys
import time

from collector.service.cli_common import Subparsers, add_db, add_format, add_retention, new_parser, print_json
from collector.service.settings import KEEP_CONTRIBUTIONS_S, MIN_KEEP_SPENDS_S, check_retention

DESCRIPTION = (
    "fold old spends into lifetime totals and drop what is older than it has to be kept; running collectors do it once "
    "a day by themselves, and go on meanwhile"
)
EXAMPLE = """examples:
  ldp-collector housekeeping --db sqlite:////var/lib/ldp/collector.db
  ldp-collector housekeeping --keep-contributions 90d --keep-rounds 90d --format json

Never dropped: sums, lifetime totals, and who contributed to a period whose reports a plan in the store still takes."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `housekeeping`."""
    parser = new_parser(subparsers, "housekeeping", DESCRIPTION, EXAMPLE)
    add_db(parser)
    add_retention(parser)
    add_format(parser, "text", "json")


def run(args: argparse.Namespace) -> int:
    """Exit 0. Raises what becomes one line and an exit status."""
    from collector.service.retention import FOREVER, Retention
    from collector.service.storage import CollectorStore

    keep = Retention(
        MIN_KEEP_SPENDS_S if args.keep_spends is None else args.keep_spends,
        KEEP_CONTRIBUTIONS_S if args.keep_contributions is None else args.keep_contributions,
        FOREVER if args.keep_rounds is None else args.keep_rounds,
    )
    check_retention(keep.spends_s, keep.contributions_s, keep.rounds_s)
    store = CollectorStore.open_existing(args.db)
    try:
        tidied = store.keep_house(store.agreed_time(time.time(), by_hand=True), keep)
    finally:
        store.close()
    if args.format == "json":
        print_json(tidied._asdict())
    else:
        sys.stdout.write(
            f"{tidied.spends} old spends folded; dropped: {tidied.contributions} rows of who contributed to old "
            f"periods, {tidied.rounds} old rounds without a sum\n"
        )
    return 0
