"""`ldp-collector registrar issue-token`: enrolment tokens, each for one device. stdout has nothing but tokens."""

from __future__ import annotations

import argparse
import re
import sys
import time

from client_sdk.errors import ConfigurationError
from collector.service.cli_common import Subparsers, add_db, new_parser

EXAMPLE = """examples:
  ldp-collector registrar issue-token --db sqlite:///collector.db
  ldp-collector registrar issue-token --db sqlite:///collector.db --count 100 --expires 7d > tokens.txt

A token is shown once; the store keeps its hash only. It enrols one device and is then used up."""

MAX_COUNT = 100_000
MAX_TTL_S = 10 * 366 * 86_400
DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `registrar issue-token`."""
    group = new_parser(subparsers, "registrar", "issue enrolment tokens", EXAMPLE)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = new_parser(actions, "issue-token", "print new single-use enrolment tokens, one a line", EXAMPLE)
    add_db(parser)
    parser.add_argument("--count", default="1", metavar="N", help="how many (default 1)")
    parser.add_argument("--expires", default="30d", metavar="T", help="valid for this long: 12h, 30d (default 30d)")


def run(args: argparse.Namespace) -> int:
    """Make the store if there is none yet, so that tokens can be issued before the first `serve`."""
    from collector.service.storage import CollectorStore

    count, ttl_s = _count(args.count), _ttl_s(args.expires)
    store = CollectorStore.open(args.db)
    try:
        tokens = store.issue_tokens(count, time.time(), ttl_s)
    finally:
        store.close()
    sys.stdout.write("".join(f"{token}\n" for token in tokens))
    return 0


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= MAX_COUNT:
        raise ConfigurationError(f"--count must be a whole number from 1 to {MAX_COUNT}, not {text[:20]!r}")
    return int(text)


def _ttl_s(text: str) -> int:
    match = DURATION.fullmatch(text)
    seconds = int(match[1]) * UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= MAX_TTL_S:
        raise ConfigurationError(f'--expires must be a duration up to ten years like "12h" or "30d", not {text[:20]!r}')
    return seconds
