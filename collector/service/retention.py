"""What housekeeping keeps and drops: the rules, and the statements over a connection whose transaction the caller owns.

Rules of this file:
- spends older than the longest window that is shown are folded into their devices' totals (`storage_folding`): no
  lifetime and no later figure changes by it;
- who contributed to which period is what keeps a report from being counted twice, so it is never dropped while any
  version of its plan takes reports of that period, and MARGIN_S beyond, whatever is asked for;
- rounds that released a sum stay as long as the sum, which is for good; of the others, and of whom a round blames,
  nothing is kept beyond `rounds_s`, and never less than their period's reports could still come;
- pieces are short, so that devices get their turn in between;
- a clock alone is not believed where it would drop much: it has to agree with the database server's to within MARGIN_S,
  and of the two the earlier one counts. A store in a file has no second clock, so the service goes by what it stored
  last: a clock that is more than MARGIN_S beyond that is not gone by until something is stored again (one that runs far
  ahead refuses every honest report, so nothing is). A store that nobody reports to any more is tidied up by hand only.
What it does not do: it drops no sum. A plan version that takes much older periods than all before it (its `max_delay`
grew by more than is kept here) meets periods whose contributions are gone: no honest device has a report for those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, delete, func, or_, select

from client_sdk.errors import TelemetryError
from client_sdk.plan import Plan
from collector.intake import expires_at
from collector.service import tables as t
from collector.service.stored_plans import stored_plan

DAY_S: Final = 86_400
MARGIN_S: Final = 7 * DAY_S
"""Beyond the last moment at which a report of the period is taken: for collectors whose clocks differ."""

FOREVER: Final = math.inf

SLICES: Final[Sequence[tuple[str, str | None]]] = tuple(
    zip("0123456789abcdef", (*"123456789abcdef", None), strict=True)
)
"""Devices' ids are hex digits of a hash: ranges of them are pieces of one size, which the primary key finds."""

MOST_ROUNDS: Final = 100
MOST_CONTRIBUTIONS: Final = 10_000
"""Looked at in one transaction."""


class ClockError(TelemetryError):
    """This machine's clock may be wrong, so nothing is tidied up by it."""


def agreed_time(now: float, database_now: float | None, newest: float | None) -> float:
    """What time housekeeping goes by: seconds since the epoch. Raises ClockError.

    database_now: None where there is no other clock; newest: then, when the last round was stored, None: never.
    """
    if database_now is not None:
        if abs(now - database_now) > MARGIN_S:
            what = f"the clocks of this machine and of the database server differ by {abs(now - database_now):.0f} s"
            raise ClockError(f"{what}, nothing is tidied up; set the one that is wrong")
        return min(now, database_now)
    if newest is not None and now - newest > MARGIN_S:
        what = f"this machine's clock is {now - newest:.0f} s beyond the newest round of the store"
        raise ClockError(
            f"{what}, nothing is tidied up before there is another; "
            "if the clock is right, run `ldp-collector housekeeping`"
        )
    return now


def newest_round(conn: Connection) -> int | None:
    """When it finished."""
    return conn.execute(select(func.max(t.rounds.c.finished_at))).scalar()


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds; FOREVER for what is kept for good."""

    spends_s: float = 365 * DAY_S
    contributions_s: float = 400 * DAY_S
    rounds_s: float = FOREVER


class Tidied(NamedTuple):
    """Rows that went."""

    spends: int = 0
    contributions: int = 0
    rounds: int = 0

    @classmethod
    def all_of(cls, pieces: Iterable[Tidied]) -> Tidied:
        """Together."""
        return cls(*map(sum, zip(cls(), *pieces, strict=True)))


def taken_for_s(plans: Iterable[Plan]) -> dict[str, int]:
    """Per plan name: how long after a period's start its reports are taken at most, over these versions."""
    longest: dict[str, int] = {}
    for plan in plans:
        longest[plan.name] = max(longest.get(plan.name, 0), expires_at(plan, 0))
    return longest


def every_plan(conn: Connection) -> list[Plan]:
    """All versions. Raises PlanError: where one cannot be read, nothing is known to be old."""
    return [stored_plan(text) for text in conn.execute(select(t.plans.c.text)).scalars()]


def _horizons(conn: Connection, now: int, keep_s: float) -> dict[str, int]:
    """Per plan name: periods that start at or before this may go."""
    taken = taken_for_s(every_plan(conn))
    return {name: now - int(max(keep_s, taken_s + MARGIN_S)) for name, taken_s in taken.items()}


def drop_contributions(
    conn: Connection, now: int, keep_s: float, piece: tuple[str, str | None]
) -> tuple[int, str | None]:
    """Of the first MOST_CONTRIBUTIONS rows of one of SLICES those whose periods are old enough: (how many, the last
    device that was looked at, after which the rest of the slice begins; None: that was all of it).

    piece: devices after the first and before the second; no id is as short as the ends of slices are.
    """
    if keep_s == FOREVER:
        return 0, None
    c, (after, end) = t.contributions.c, piece
    mine = [c.device > after, *([] if end is None else [c.device < end])]
    in_order = select(c.device).where(*mine).order_by(c.device)
    last = conn.execute(in_order.offset(MOST_CONTRIBUTIONS - 1).limit(1)).scalar()
    if last is not None:
        mine.append(c.device <= last)
    dropped = 0
    for name, horizon in _horizons(conn, now, keep_s).items():
        old = (c.plan_name == name, c.period_start <= horizon)
        dropped += int(conn.execute(delete(t.contributions).where(*mine, *old)).rowcount)
    return dropped, last


def drop_rounds(conn: Connection, now: int, keep_s: float) -> int:
    """Some rounds without a sum, and whom old rounds blame. How many rounds went; 0: there are none any more."""
    if keep_s == FOREVER:
        return 0
    held, horizons = t.rounds.c, _horizons(conn, now, keep_s)
    if not horizons:
        return 0
    plan = t.plans.c
    expired = or_(*(and_(plan.name == name, held.period_start <= until) for name, until in horizons.items()))
    old = select(held.round).join(t.plans, plan.hash == held.plan_hash).where(expired, held.finished_at < now - keep_s)
    conn.execute(delete(t.blames).where(t.blames.c.round.in_(old)))
    some = conn.execute(old.where(held.outcome == "aborted").order_by(held.round).limit(MOST_ROUNDS)).scalars().all()
    conn.execute(delete(t.rounds).where(held.round.in_(some)))
    return len(some)
