"""`ldp-collector recompute`: every figure of an exported ledger again, from the ledger and the public plans alone.

Rules of this file: what the ledger states is only compared, never used; amounts are whole micro-epsilon and must agree
to the last digit; with a store, the device must have booked at least what the collector has. A disagreement is said,
line by line, and is exit status 1. Nothing is written, to the store neither.
What it does not do: know whether the ledger is whole. Whoever exported it could have left reports out, which is what
the comparison with the collector's own books is for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from client_sdk.accounting.budget import MICRO, format_micro
from client_sdk.accounting.ledger import WINDOWS, FoldedReports, Ledger, LedgerEntry
from client_sdk.accounting.ledger_reader import parse_ledger
from client_sdk.accounting.words import in_words
from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.files import load_plan
from client_sdk.plan import Plan
from collector.accounting.figures import ACCOUNTANT, CONDITIONS, Figures, figures
from collector.reports.privacy import figures_row
from collector.reports.text import printable
from collector.service.cli_common import Subparsers, add_format, console, new_parser, print_json, print_table
from collector.service.cli_numbers import add_corrupt, add_delta

EXAMPLE = """examples:
  ldp-collector recompute --ledger ledger.json --plans plans/
  ldp-collector recompute --ledger ledger.json --plans plans/ --window 30d --corrupt 0.5
  ldp-collector recompute --ledger ledger.json --plans plans/ --db sqlite:///collector.db

A device writes its ledger with client.export_ledger(). --plans is a folder of the plans as they were published.
Exit status 1: the ledger does not add up to what it states, charges other than its plans' costs, or holds less than
the collector has booked for the device."""

MAX_LEDGER_BYTES: Final = 1 << 27
ALL: Final = "all"
COLUMNS: Final = (
    "window", "reports", "failed_but_spent", "eps_local_pure", "eps_local", "method", "eps_central", "n_h", "n_min",
    "cap", "left", "stops_on",
)  # fmt: skip


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `recompute`."""
    parser = new_parser(subparsers, "recompute", "compute every figure of an exported ledger again", EXAMPLE)
    parser.add_argument("--ledger", type=Path, required=True, metavar="FILE", help="the ledger, JSON")
    parser.add_argument("--plans", type=Path, required=True, metavar="DIR", help="folder of the plans, *.toml")
    text = "a window beside the lifetime (default: all of them)"
    parser.add_argument("--window", choices=(*WINDOWS, "lifetime", ALL), default=ALL, help=text)
    add_delta(parser)
    add_corrupt(parser, "as each plan says")
    parser.add_argument("--db", metavar="URL", help="also compare with what this store has booked: sqlite:///PATH")
    add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    """Exit 0 where everything agrees, 1 where something does not."""
    ledger = _ledger(args.ledger)
    plans = _plans(args.plans, ledger)
    windows = [*WINDOWS, "lifetime"] if args.window == ALL else list(dict.fromkeys((args.window, "lifetime")))
    found = [figures(ledger, plans, delta=args.delta, corrupt=args.corrupt, window=window) for window in windows]
    faults = [*_contradictions(ledger, plans), *([] if args.db is None else _alarms(ledger, args.db))]
    if args.format == "json":
        print_json(_document(ledger, found, faults, booked=args.db is not None))
    else:
        _print(ledger, found)
    for fault in faults:
        sys.stderr.write(f"ldp-collector recompute: {printable(fault)}\n")
    return 1 if faults else 0


# --- reading ----------------------------------------------------------------------------------------


def _ledger(path: Path) -> Ledger:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_LEDGER_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise ConfigurationError(f"--ledger {str(path)!r}: cannot be read ({reason})") from None
    if len(data) > MAX_LEDGER_BYTES:
        raise ConfigurationError(f"--ledger {path}: larger than the limit of {MAX_LEDGER_BYTES} bytes")
    try:
        return parse_ledger(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--ledger {path}: not UTF-8 text (byte {error.start})") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"--ledger {path}: {error}") from None


def _plans(folder: Path, ledger: Ledger) -> Mapping[str, Plan]:
    """Those that the ledger was charged under, by hash; other files of the folder may hold anything."""
    if not folder.is_dir():
        raise ConfigurationError(f"--plans {str(folder)!r}: is no folder; give one that holds the plans, *.toml")
    found: dict[str, Plan] = {}
    unread: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            plan = load_plan(path)
        except (PlanError, ConfigurationError):
            unread.append(path.name)
        else:
            found[plan.hash.hex()] = plan
    for used in ledger.plans:
        if used.hash not in found:
            version = "of a version nobody remembers" if used.version is None else f"version {used.version}"
            others = f"; no plan: {', '.join(unread[:3])}" if unread else ""
            raise ConfigurationError(
                f"--plans {folder}: holds no {used.name} {version} with the hash {used.hash}; put it there as it was "
                f"published ({len(found)} plans found{others})"
            )
    return found


# --- comparing --------------------------------------------------------------------------------------


def _contradictions(ledger: Ledger, plans: Mapping[str, Plan]) -> Iterator[str]:
    """Where the ledger states something else than its rows, or its rows something else than the plans."""
    counted, stated = ledger.counted(), ledger.stated
    for name in ("reports", "failed_but_spent", "lifetime_micro_epsilon"):
        if getattr(stated, name) != getattr(counted, name):
            yield f"stated.{name}: {getattr(stated, name)}, but the rows add up to {getattr(counted, name)}"
    for window, micro in counted.windows.items():
        if stated.windows.get(window) != micro:
            yield f"stated.windows.{window}: {stated.windows.get(window)}, but the rows add up to {micro}"
    for place, entry in enumerate(ledger.entries):
        if not plans[entry.plan].memos and entry.micro_epsilon != plans[entry.plan].report_micro_epsilon:
            cost = plans[entry.plan].report_micro_epsilon
            yield f"entries[{place}].micro_epsilon: {entry.micro_epsilon}, but a report of its plan costs {cost}"
    for place, row in enumerate(ledger.folded):
        cost = row.reports * plans[row.plan].report_micro_epsilon
        if not plans[row.plan].memos and row.micro_epsilon != cost:
            yield f"folded[{place}].micro_epsilon: {row.micro_epsilon}, but such reports cost {cost}"

    yield from _memoised(ledger, plans)


def _memoised(ledger: Ledger, plans: Mapping[str, Plan]) -> Iterator[str]:
    """Of plans with memoised metrics, whose reports have a price together: by name, for versions share it."""
    from collector.accounting.memoised import spent_micro

    reports: dict[str, Counter[str]] = defaultdict(Counter)
    spent: Counter[str] = Counter()
    rows: tuple[LedgerEntry | FoldedReports, ...] = (*ledger.entries, *ledger.folded)
    for row in rows:
        name = plans[row.plan].name
        reports[name][row.plan] += getattr(row, "reports", 1)
        spent[name] += row.micro_epsilon
    for name, by_plan in reports.items():
        least = spent_micro(by_plan, plans)
        # a device that opted out and in again, or lost its ledger, has paid some of it twice
        too_much = ledger.source == "collector" and spent[name] > least
        if any(plans[plan].memos for plan in by_plan) and (spent[name] < least or too_much):
            yield f"{name}: micro_epsilon of all its reports: {spent[name]}, but together they cost {least}"


def _alarms(ledger: Ledger, db: str) -> Iterator[str]:
    """The device's total is never below the collector's: it charges before it sends."""
    from collector.service.storage import CollectorStore

    if ledger.device is None:
        raise ConfigurationError("--db: this ledger names no device (it was exported while opted out)")
    store = CollectorStore.open(db, read_only=True)
    try:
        booked = store.spending(time.time(), ledger.device)
    finally:
        store.close()
    collected = booked[0].lifetime.micro_epsilon if booked else 0
    own = ledger.counted().lifetime_micro_epsilon
    if own < collected:
        yield (
            f"ALARM: the ledger of {ledger.device} holds {format_micro(own)}, less than the {format_micro(collected)} "
            "that the collector has booked for it: a restored backup, a lost ledger, or reports that are not its own"
        )


# --- printing ---------------------------------------------------------------------------------------


def _row(one: Figures) -> dict[str, Any]:
    """COLUMNS; the sum of what was charged to the last digit."""
    shown = {"window": one.window, "reports": one.reports, **figures_row(one), "eps_local_pure": one.eps_local_pure}
    return {name: shown[name] for name in COLUMNS}


def _document(ledger: Ledger, found: list[Figures], faults: list[str], *, booked: bool) -> dict[str, Any]:
    return {
        "device": ledger.device,
        "source": ledger.source,
        "as_of": ledger.as_of,
        "relation": found[0].relation,
        "delta": found[0].delta,
        "accountant": ACCOUNTANT,
        "agrees": not faults,
        "faults": faults,
        "compared_with_collector": booked,
        "windows": [
            _row(one)
            | {
                "eps_local_pure": float(one.eps_local_pure),
                "micro_epsilon": int(one.eps_local_pure * MICRO),
                "central_method": one.central_method,
                "fallbacks": dict(one.fallbacks),
            }
            for one in found
        ],
        "fallback_rounds": [
            {
                "plan": one.plan,
                "round": one.round,
                "period_start": one.period_start,
                "reason": one.reason,
                "reports": one.reports,
            }
            for one in found[-1].fallback_rounds
        ],
        "conditions": CONDITIONS,
    }


def _print(ledger: Ledger, found: list[Figures]) -> None:
    out = console()
    rows = [[_cell(value) for value in _row(one).values()] for one in found]
    title = f"Ledger of {ledger.device or 'nobody (opted out)'}, kept by the {ledger.source}"
    print_table(out, title, [name.replace("_", " ") for name in COLUMNS], rows)
    life = found[-1]
    out.print(f"Relation: {life.relation}, delta {life.delta:g}, accountant {life.accountant}.")
    out.print(f"Against whoever sees every report: {in_words(life.eps_local, life.delta).sentence}.")
    out.print(f"Against whoever sees only the sums: {in_words(life.eps_central, life.delta).sentence}.")
    out.print(f"Central ({life.central_method}) holds {CONDITIONS}.")
    if life.fallbacks:
        reasons = ", ".join(f"{reason.replace('_', ' ')}: {count}" for reason, count in life.fallbacks.items())
        out.print(f"Reports that no sum hides, counted with their local epsilon: {reasons}.")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
