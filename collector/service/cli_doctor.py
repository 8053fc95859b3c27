"""`ldp-collector doctor`: look whether a store is whole, and say what is missing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from client_sdk.errors import ConfigurationError
from collector.reports.text import printable
from collector.service.cli_common import Subparsers, add_db, add_format, new_parser, print_json

if TYPE_CHECKING:
    from collector.service.doctor import Examination

DESCRIPTION = (
    "look whether a store is whole: integrity, schema, and whether sums, contributions, spends and lifetimes agree; "
    "reads only, while a collector is at work too"
)
EXAMPLE = """examples:
  ldp-collector doctor --db sqlite:////var/lib/ldp/collector.db
  ldp-collector doctor --log collector.log --format json

--log takes what a collector wrote with `--log-format json` and names the released rounds that the store does not have:
what an older backup has forgotten.
exit status: 0 whole, 1 something was found, 2 wrong input, 3 the store cannot be asked"""

MOST_NAMED = 10
"""Missing rounds that are named in text; JSON has them all."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `doctor`."""
    parser = new_parser(subparsers, "doctor", DESCRIPTION, EXAMPLE)
    add_db(parser)
    parser.add_argument(
        "--log", type=Path, action="append", metavar="FILE", help="a collector's log, JSON; may be repeated"
    )
    add_format(parser, "text", "json")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    """Exit 0 for a whole store, 1 for findings. Raises what becomes one line and an exit status."""
    from collector.service.doctor import examine
    from collector.service.storage import CollectorStore

    log_rounds = [round_id for path in args.log or () for round_id in _rounds_of_log(path)]
    store = CollectorStore.open(args.db, read_only=True)
    try:
        found = examine(store, time.time(), log_rounds)
    finally:
        store.close()
    if args.format == "json":
        print_json(_document(found))
    else:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in _lines(found)))
    return 0 if found.whole else 1


def _rounds_of_log(path: Path) -> list[str]:
    try:
        return _released_rounds(path)
    except OSError as error:
        raise ConfigurationError(
            f"--log {path}: cannot be read ({error.strerror}); name a file that `serve --log-format json` wrote"
        ) from None


def _released_rounds(path: Path) -> list[str]:
    """The rounds that a log says were released. Other lines are passed over. Raises ConfigurationError, OSError."""
    found: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as stream:
        lines = 0
        for line in stream:
            event = _event(line)
            lines += event is not None
            if event is not None and event.get("event") == "round_released" and isinstance(event.get("round"), str):
                found.append(event["round"])
    if not lines:
        raise ConfigurationError(f"--log {path}: no line of JSON in there; `serve --log-format json` writes them")
    return found


def _event(line: str) -> Mapping[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _document(found: Examination) -> dict[str, Any]:
    return {
        "store": found.where,
        "whole": found.whole,
        **found.facts,
        "checks": [
            {"name": r.check.name, "found": r.found, "examples": list(r.examples), "means": r.check.means}
            for r in found.results
        ],
        "missing_rounds": list(found.missing),
    }


def _lines(found: Examination) -> Iterator[str]:
    yield found.where
    yield from _facts(found.facts)
    for result in found.results:
        if not result.found:
            yield f"ok       {result.check.name}"
            continue
        yield f"PROBLEM  {result.check.name}: {result.found}"
        yield from (f"         {example}" for example in result.examples)
        if result.found > len(result.examples):
            yield f"         ... and {result.found - len(result.examples)} more"
        yield f"         this means: {result.check.means}"
    if found.missing:
        yield f"PROBLEM  released rounds that the log names and this store does not have: {len(found.missing)}"
        yield from (f"         round {round_id}" for round_id in found.missing[:MOST_NAMED])
        yield "         this means: their sums are lost; devices that heard that they were counted do not send again"
    yield "whole" if found.whole else "not whole"


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    if not facts:
        return
    yield (
        f"{facts['released_rounds']} released rounds, {facts['aborted_rounds']} aborted, "
        f"{facts['plans']} plan versions, {facts['devices']} devices, "
        f"{facts['contributions']} contributions, {facts['opted_out']} opted out"
    )
    if facts["last_release_at"] is not None:
        first, last = (_utc(facts[name]) for name in ("first_release_at", "last_release_at"))
        yield f"sums from {first} to {last}; what was released later is not in here"


def _utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
