"""What the doctor asks of rounds, and of who is in them.

Rules of this file: each check yields one line per finding over a connection that only reads; what is in order never
leaves the database. Plain SQL of every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, case, func, literal, or_, select

from collector.service import tables as t
from collector.service.doctor_sums import readable_plans
from collector.service.retention import taken_for_s


def by_name(column: ColumnElement[str], values: Mapping[str, int]) -> ColumnElement[int]:
    """The value of each row's name; 0 for one that has none."""
    cases = [(column == name, literal(value, BigInteger)) for name, value in values.items()]
    none = literal(0, BigInteger)
    return case(*cases, else_=none) if cases else none


def aborted(conn: Connection, _now: int) -> Iterator[str]:
    """Rounds without a sum have neither sums nor contributions nor spends, and say why."""
    held = t.rounds.c
    for table in (t.released_sums, t.released_vectors, t.contributions, t.spends):
        joined = select(held.round, func.count()).join(table, table.c.round == held.round)
        found = joined.where(held.outcome != "released").group_by(held.round).order_by(held.round)
        for round_id, count in conn.execute(found):
            yield f"round {round_id}: has no sum, and {count} rows in {table.name}"
    odd = or_(and_(held.outcome == "aborted", held.reason.is_(None)), held.outcome.not_in(["aborted", "released"]))
    for round_id in conn.execute(select(held.round).where(odd).order_by(held.round)).scalars():
        yield f"round {round_id}: neither released, nor aborted for a reason"


def contributors(conn: Connection, now: int) -> Iterator[str]:
    """As many contributions as contributors: all of them while their period's reports are taken, later at most."""
    held, c, plan = t.rounds.c, t.contributions.c, t.plans.c
    there = select(c.round, func.count().label("there")).group_by(c.round).subquery()
    found = func.coalesce(there.c.there, 0)
    still_taken = held.period_start + by_name(plan.name, taken_for_s(readable_plans(conn).values())) > now
    wrong = or_(found > held.contributors, and_(found < held.contributors, still_taken))
    joined = t.rounds.join(t.plans, plan.hash == held.plan_hash).outerjoin(there, there.c.round == held.round)
    query = select(held.round, held.contributors, found.label("there")).select_from(joined)
    for row in conn.execute(query.where(held.outcome == "released", wrong).order_by(held.round)):
        yield f"round {row.round}: {row.contributors} contributors, and {row.there} rows of who they are"


def agree(conn: Connection, _now: int) -> Iterator[str]:
    """A contribution's plan and period are its round's."""
    c, held, plan = t.contributions.c, t.rounds.c, t.plans.c
    joined = t.contributions.join(t.rounds, held.round == c.round).join(t.plans, plan.hash == held.plan_hash)
    other = or_(c.plan_name != plan.name, c.period_start != held.period_start)
    query = select(c.round, func.count()).select_from(joined).where(other).group_by(c.round).order_by(c.round)
    for round_id, count in conn.execute(query):
        yield f"round {round_id}: {count} contributions to another plan or period"
