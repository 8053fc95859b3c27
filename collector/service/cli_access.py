"""`ldp-collector access issue | list | revoke`: bearer tokens of those who read over the network."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import TYPE_CHECKING

from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError
from collector.reports.text import format_instant
from collector.service.cli_common import (
    Subparsers,
    add_db,
    add_format,
    console,
    new_parser,
    print_csv,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from collector.service.storage import AccessToken, CollectorStore

EXAMPLE = """examples:
  ldp-collector access issue --role analyst --db sqlite:///collector.db --name anna > anna.token
  ldp-collector access list --db sqlite:///collector.db
  ldp-collector access revoke 3f0c9f0e6c1b --db sqlite:///collector.db

analyst   reads estimates, and the distribution of epsilon over the fleet
operator  reads every device's epsilon and the collector's counters as well
health    reads the collector's counters

A token is shown once; the store keeps its hash only. Devices need none: their registrar's certificate is their word."""

ROLES = ("analyst", "operator", "health")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
TOKEN_ID = re.compile(r"[0-9a-f]{4,64}", re.ASCII)
DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MAX_TTL_S = 10 * 366 * 86_400
COLUMNS = ("id", "role", "name", "issued", "expires", "state")


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `access` and its actions."""
    group = new_parser(subparsers, "access", "issue, list and revoke tokens for reading over the network", EXAMPLE)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    issue = new_parser(actions, "issue", "print a new token", EXAMPLE)
    add_db(issue)
    issue.add_argument("--role", choices=ROLES, required=True, help="what it opens")
    issue.add_argument("--ttl", default="90d", metavar="T", help="valid for this long: 12h, 30d (default 90d)")
    issue.add_argument("--name", default="", metavar="NAME", help="whose it is, for `access list`")
    shown = new_parser(actions, "list", "print who may read, without the tokens", EXAMPLE)
    add_db(shown)
    add_format(shown, "table", "json", "csv")
    revoke = new_parser(actions, "revoke", "end a token before its time", EXAMPLE)
    revoke.add_argument("id", metavar="ID", help="as `access list` shows it")
    add_db(revoke)


def run(args: argparse.Namespace) -> int:
    """Exit 0; wrong input and a store that cannot be used raise."""
    from collector.service.storage import CollectorStore

    work = {"issue": _issue, "list": _list, "revoke": _revoke}[args.action]
    _check(args)
    reads = args.action == "list"
    store = CollectorStore.open(args.db, read_only=True) if reads else CollectorStore.open_existing(args.db)
    try:
        work(store, args)
    finally:
        store.close()
    return 0


def _check(args: argparse.Namespace) -> None:
    """Before the store is touched."""
    if args.action == "issue":
        _ttl_s(args.ttl)
        if args.name and not NAME.fullmatch(args.name):
            raise ConfigurationError("--name must be 1 to 64 of A-Z a-z 0-9 . _ @ -, beginning with a letter or digit")
    elif args.action == "revoke" and not TOKEN_ID.fullmatch(args.id):
        raise ConfigurationError("ID must be 4 to 64 hex digits, as `access list` shows them")


def _issue(store: CollectorStore, args: argparse.Namespace) -> None:
    token = store.issue_access(Role[args.role.upper()], args.name, time.time(), _ttl_s(args.ttl))
    sys.stdout.write(f"{token}\n")


def _list(store: CollectorStore, args: argparse.Namespace) -> None:
    now = time.time()
    rows = [
        [
            token.token_id, token.role.name.lower(), token.name,
            format_instant(token.issued_at) or "", format_instant(token.expires_at) or "", _state(token, now),
        ]
        for token in store.access_tokens()
    ]  # fmt: skip
    if args.format == "json":
        print_json({"tokens": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})
    elif args.format == "csv":
        print_csv(COLUMNS, rows, raw_text=args.raw_text)
    else:
        print_table(console(), "Who may read", COLUMNS, rows)


def _state(token: AccessToken, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "live" if token.is_live(now) else "expired"


def _revoke(store: CollectorStore, args: argparse.Namespace) -> None:
    found = [token for token in store.access_tokens() if token.token_hash.hex().startswith(args.id)]
    if len(found) != 1:
        what = "no token has this id" if not found else "several ids begin so; give more digits"
        raise ConfigurationError(f"{args.id}: {what}; `ldp-collector access list` shows them")
    store.revoke_access(found[0].token_hash, time.time())


def _ttl_s(text: str) -> int:
    match = DURATION.fullmatch(text)
    seconds = int(match[1]) * UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= MAX_TTL_S:
        raise ConfigurationError(f'--ttl must be a duration up to ten years like "12h" or "30d", not {text[:20]!r}')
    return seconds
