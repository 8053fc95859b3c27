"""`ldp-collector registrar ACTION`: make and run a registrar, issue its tokens, revoke devices."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_public_key
from collector.service import logs
from collector.service.cli_common import (
    Subparsers,
    add_format,
    add_logging,
    console,
    duration,
    new_parser,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from collector.service.registrar.folder import RegistrarFolder

DESCRIPTION = (
    "certify devices' identities; to be run by another party than the collector, on another machine: whoever has the "
    "registrar's key can make up devices"
)
EXAMPLE = """examples:
  ldp-collector registrar init --dir /var/lib/ldp-registrar --address registrar.example:7444
  ldp-collector registrar serve --dir /var/lib/ldp-registrar --listen 0.0.0.0:7444 \\
      --tls-cert cert.pem --tls-key key.pem
  ldp-collector registrar issue-token --dir /var/lib/ldp-registrar --count 100 --ttl 7d > tokens.txt
  ldp-collector registrar revoke --dir /var/lib/ldp-registrar 139e3940e64b5491722088d9a0d74162
"""

DB_VARIABLE = "LDP_REGISTRAR_DB"
MAX_COUNT = 100_000
MAX_TTL_S = 10 * 366 * 86_400
DEFAULT_ADDRESS = "registrar.example:7444"
DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Action = Callable[[argparse.Namespace], int]


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `registrar` and its actions."""
    group = new_parser(subparsers, "registrar", DESCRIPTION, EXAMPLE)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_init(_action(actions, "init", "make a registrar's key and store, and print what devices and collectors pin"))
    _add_serve(_action(actions, "serve", "run a registrar; prints `listening on HOST:PORT` when it is ready"))
    _add_issue_token(_action(actions, "issue-token", "print new single-use enrolment tokens, one a line"))
    revoke = _action(actions, "revoke", "no certificate for a device any more; its last one runs out")
    revoke.add_argument("device", metavar="DEVICE", help="the device's id, 32 hex digits")
    revoke.add_argument(
        "--force", action="store_true", help="also one that has never been certified here, e.g. after a lost store"
    )
    add_format(
        _action(actions, "show", "print the public key, and how many devices and tokens there are"), "table", "json"
    )


def _action(actions: Subparsers[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    parser = new_parser(actions, name, text, EXAMPLE)
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the registrar's folder")
    parser.add_argument(
        "--db", default=os.environ.get(DB_VARIABLE) or None, metavar="URL",
        help=f"its store, where that is not in the folder: postgresql+psycopg://..., a database of its own; or in "
        f"${DB_VARIABLE}",
    )  # fmt: skip
    return parser


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address", default=DEFAULT_ADDRESS, metavar="HOST:PORT",
        help=f"where devices will reach it, for the table that is printed (default {DEFAULT_ADDRESS})",
    )  # fmt: skip
    parser.add_argument(
        "--keep-key", action="store_true", help="the key is there, only its store is lost: tokens and revocations too"
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="HOST:PORT", help="default 127.0.0.1:7444; port 0: any")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM, not encrypted")
    parser.add_argument("--insecure", action="store_true", help="plain text, on loopback only")
    parser.add_argument("--lifetime", default="30d", metavar="T", help="how long a certificate holds (default 30d)")
    parser.add_argument(
        "--renew-for", default="90d", metavar="T", help="how long after its end it is still renewed (default 90d)"
    )
    parser.add_argument("--max-calls", type=int, default=1000, metavar="N", help="calls open at once (default 1000)")
    parser.add_argument(
        "--max-calls-per-address", type=int, default=100, metavar="N", help="of them from one address (default 100)"
    )
    parser.add_argument(
        "--drain",
        type=duration,
        default="0",
        metavar="T",
        help="after the first signal: say NOT_SERVING, and go on that long (0)",
    )
    add_logging(parser)


def _add_issue_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", default="1", metavar="N", help="how many (default 1)")
    parser.add_argument("--ttl", default="30d", metavar="T", help="valid for this long: 12h, 30d (default 30d)")


def run(args: argparse.Namespace) -> int:
    """One action; exit 1 for a device nobody knows. Raises what becomes one line and an exit status."""
    return ACTIONS[args.action](args)


def _init(args: argparse.Namespace) -> int:
    from collector.service.settings import split_address

    split_address(args.address, "--address")
    folder = _folder(args)
    key = folder.create(keep_key=args.keep_key).public_key.hex()
    _say(
        f"Public key: {key}",
        f"It stands in {folder.public_path} too: collectors start with `--registrar-key` and that file.",
        f"Keep a copy of {folder.key_path} in a safe place, and show it to nobody.",
        "",
        "For the plan that ships with the app:",
        "",
        "[registrar]",
        f'address = "{args.address}"',
        f'key = "{key}"',
    )
    return 0


def _serve(args: argparse.Namespace) -> int:
    from collector.service.registrar.issuing import Terms
    from collector.service.registrar.service import DEFAULT_LISTEN, RegistrarSettings, serve
    from collector.service.settings import check_log

    terms = Terms(_seconds("--lifetime", args.lifetime), _seconds("--renew-for", args.renew_for))
    settings = RegistrarSettings(
        args.dir, args.listen or DEFAULT_LISTEN, args.tls_cert, args.tls_key, insecure=args.insecure, terms=terms,
        max_calls=args.max_calls, max_calls_per_address=args.max_calls_per_address,
        metrics=args.metrics, metrics_public=bool(args.metrics_public), drain_s=args.drain,
        db=args.db,
    )  # fmt: skip
    log_format, log_level = args.log_format or "console", args.log_level or "info"
    check_log(log_format, log_level)
    logs.configure(log_format, log_level)
    if not asyncio.run(serve(settings)):
        # The store's thread is stuck in the disk or a lock; waiting for it would break the promised end.
        logging.shutdown()
        os._exit(0)
    return 0


def _issue_token(args: argparse.Namespace) -> int:
    """stdout has nothing but tokens."""
    count, ttl_s = _count(args.count), _seconds("--ttl", args.ttl)
    store = _folder(args).open_store()
    try:
        tokens = store.issue_tokens(count, time.time(), ttl_s)
    finally:
        store.close()
    _say(*tokens)
    return 0


def _revoke(args: argparse.Namespace) -> int:
    device = args.device.lower()
    if not re.fullmatch(r"[0-9a-f]{32}", device):
        raise ConfigurationError("DEVICE: give the device's id, 32 hex digits, as `client.device_id` shows it")
    store = _folder(args).open_store()
    try:
        news, until = store.revoke(device, time.time(), unseen=args.force)
    finally:
        store.close()
    if until is None and news and not args.force:
        sys.stderr.write(
            f"ldp-collector registrar: {device}: not revoked, for this registrar has never issued it a certificate; "
            "check the id, or --force to list it all the same\n"
        )
        return 1
    said = "revoked" if news else "was revoked already"
    if until is None:
        _say(f"{device} {said}; it has no certificate of this registrar")
    else:
        _say(f"{device} {said}; its last certificate ends at {_utc(until)}")
    return 0


def _show(args: argparse.Namespace) -> int:
    folder = _folder(args)
    key = load_public_key(folder.public_path, str(folder.public_path)).hex()
    store = folder.open_store()
    try:
        counts = store.overview(time.time()).as_dict()
    finally:
        store.close()
    if args.format == "json":
        print_json({"public_key": key, **counts})
        return 0
    rows = [("public key", key), *((name.replace("_", " "), str(count)) for name, count in counts.items())]
    print_table(console(), f"Registrar {args.dir}", ("", ""), rows)
    return 0


ACTIONS: Final[dict[str, Action]] = {
    "init": _init,
    "serve": _serve,
    "issue-token": _issue_token,
    "revoke": _revoke,
    "show": _show,
}


def _folder(args: argparse.Namespace) -> RegistrarFolder:
    from collector.service.registrar.folder import RegistrarFolder

    return RegistrarFolder(args.dir, args.db)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(seconds))


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= MAX_COUNT:
        raise ConfigurationError(f"--count must be a whole number from 1 to {MAX_COUNT}, not {text[:20]!r}")
    return int(text)


def _seconds(option: str, text: str) -> int:
    match = DURATION.fullmatch(text)
    seconds = int(match[1]) * UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= MAX_TTL_S:
        raise ConfigurationError(f'{option} must be a duration up to ten years like "12h" or "30d", not {text[:20]!r}')
    return seconds
