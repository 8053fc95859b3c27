"""Is a store whole? Every check that `ldp-collector doctor` makes, run one after the other.

Rules of this file:
- it reads only; each check is one transaction and sees one moment, so that a collector may be at work meanwhile;
- a check that cannot read its tables is a finding itself, and the others are made all the same: what can still be said
  of a damaged store is said;
- a finding says what is wrong with which rows; a check says what that means for devices and figures.
What it does not do: it repairs nothing and decides nothing. What a store has forgotten (an older backup) it cannot see
in there: it says how far the store reaches, and `missing_rounds` compares that with a collector's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, func, select

from collector.service import doctor_engine as engine
from collector.service import doctor_ledger as ledger
from collector.service import doctor_rounds as rounds
from collector.service import doctor_sums as sums
from collector.service import tables as t
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem

MOST_EXAMPLES: Final = 10

UNREADABLE: Final = frozenset({StoreProblem.DAMAGED, StoreProblem.INPUT_OUTPUT, StoreProblem.REFUSED})
"""What a check meets in a damaged store; anything else ends the examination."""

Look = Callable[[Connection, int], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Check:
    """means: what a finding has for a consequence. look: yields findings, over a connection and the time."""

    name: str
    means: str
    look: Look


@dataclass(frozen=True, slots=True)
class Result:
    """Of one check. found: how many; examples: the first of them."""

    check: Check
    found: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True)
class Examination:
    """facts: how far the store reaches. missing: of a log's released rounds, those that it does not have."""

    where: str
    facts: dict[str, Any]
    results: Sequence[Result]
    missing: Sequence[str] = field(default=())

    @property
    def whole(self) -> bool:
        """Nothing was found."""
        return not self.missing and not any(result.found for result in self.results)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "integrity",
        "the file or an index is damaged: stop the collector, keep a copy, and restore a backup",
        engine.integrity,
    ),
    Check(
        "schema",
        "tables, columns or keys are not those of this version: a key that is missing lets a report count twice",
        engine.schema,
    ),
    Check("durability", "what was acknowledged may be lost when the machine loses its power", engine.durability),
    Check("references", "rows are missing that others stand for: a part of the store is lost", engine.references),
    Check("clock", "rows are dated after now: this machine's clock is, or was, wrong", engine.clock),
    Check("plans", "sums and spends under these plans cannot be read", sums.plans),
    Check("sums complete", "estimates of these rounds are wrong or cannot be made", sums.sums_complete),
    Check(
        "sums agree with their rounds",
        "estimates are decoded with a wrong number of contributors, or privacy is stated wrongly",
        sums.sums_agree,
    ),
    Check("sums plausible", "no reports can have such a sum: a number has been changed", sums.sums_plausible),
    Check("no sum under min_size", "a sum hides fewer devices than its plan promises", sums.min_size),
    Check("aborted rounds", "a round without a sum has left rows behind", rounds.aborted),
    Check(
        "contributors",
        "devices whose row is missing can be counted a second time; a row too many keeps a report out",
        rounds.contributors,
    ),
    Check(
        "contributions agree with their rounds",
        "the rows that keep reports from counting twice are wrong",
        rounds.agree,
    ),
    Check("lifetime totals", "devices are shown, and told when they join, a wrong epsilon", ledger.totals),
    Check("folded spends", "lifetime figures of these devices are wrong", ledger.folded),
    Check("spends of each contribution", "a counted report is not booked as it should be", ledger.unbooked),
    Check(
        "contribution of each spend",
        "a report is booked that is not counted, or could be counted again",
        ledger.uncounted,
    ),
    Check("who opted out", "something is booked for a device that has opted out", ledger.opted_out),
)


def examine(store: CollectorStore, now: float, log_rounds: Sequence[str] = ()) -> Examination:
    """All checks. Raises StoreError where the store cannot be asked at all.

    log_rounds: rounds that a collector's log says were released.
    """
    facts: dict[str, Any] = {}
    results = [_made(store, check, int(now)) for check in CHECKS]
    missing: Sequence[str] = ()
    try:
        facts = store.look(_facts)
        missing = store.look(lambda conn: _missing(conn, log_rounds))
    except StoreError as error:
        if error.problem not in UNREADABLE:
            raise
    return Examination(store.where, facts, results, missing)


def _made(store: CollectorStore, check: Check, now: int) -> Result:
    examples: list[str] = []

    def look(conn: Connection) -> int:
        found = check.look(conn, now)
        examples.extend(islice(found, MOST_EXAMPLES))
        return len(examples) + sum(1 for _ in found)

    try:
        return Result(check, store.look(look), tuple(examples))
    except StoreError as error:
        if error.problem not in UNREADABLE:
            raise
        why = error.code if error.problem is StoreProblem.REFUSED and error.code else error.problem.value
        return Result(check, len(examples) + 1, (*examples, f"cannot be read to the end ({why})"))


def _facts(conn: Connection) -> dict[str, Any]:
    held = t.rounds.c
    released = held.outcome == "released"
    oldest, newest = sums.released_range(conn)
    number = select(func.count())
    return {
        "released_rounds": conn.execute(number.select_from(t.rounds).where(released)).scalar_one(),
        "aborted_rounds": conn.execute(number.select_from(t.rounds).where(~released)).scalar_one(),
        "plans": conn.execute(number.select_from(t.plans)).scalar_one(),
        "devices": conn.execute(number.select_from(t.device_totals)).scalar_one(),
        "contributions": conn.execute(number.select_from(t.contributions)).scalar_one(),
        "opted_out": conn.execute(number.select_from(t.opt_outs)).scalar_one(),
        "first_release_at": oldest,
        "last_release_at": newest,
    }


def _missing(conn: Connection, log_rounds: Sequence[str]) -> list[str]:
    """Those of the rounds that are not released here, in their order."""
    if not log_rounds:
        return []
    held = t.rounds.c
    found = set(conn.execute(select(held.round).where(held.outcome == "released")).scalars())
    return [round_id for round_id in dict.fromkeys(log_rounds) if round_id not in found]
