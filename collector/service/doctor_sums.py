"""What the doctor asks of plans and released sums.

Rules of this file: each check yields one line per finding over a connection that only reads, some hundred rounds at a
time; plain SQL of every engine. A plan that cannot be read is its own finding, and keeps no other check from the rest.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select, union_all

from client_sdk.errors import PlanError
from client_sdk.plan import Plan
from collector.release import implausible_metrics
from collector.service import tables as t
from collector.service.storage_reads import CHUNK
from collector.service.storage_rows import DIRECT
from collector.service.stored_plans import stored_plan


def readable_plans(conn: Connection) -> dict[bytes, Plan]:
    """By the hash under which they are stored."""
    found: dict[bytes, Plan] = {}
    for row in conn.execute(select(t.plans.c.hash, t.plans.c.text)):
        with suppress(PlanError):
            found[row.hash] = stored_plan(row.text)
    return found


def plans(conn: Connection, _now: int) -> Iterator[str]:
    """Each text is a plan, and the one that its row says."""
    for row in conn.execute(select(t.plans).order_by(t.plans.c.name, t.plans.c.version)):
        try:
            plan = stored_plan(row.text)
        except PlanError as error:
            yield f"plan {row.name!r} version {row.version}: this version cannot read it ({error.problems[0]})"
            continue
        if (plan.hash, plan.name, plan.version, plan.period_s) != (row.hash, row.name, row.version, row.period_s):
            yield f"plan {row.name!r} version {row.version}: its text is another plan's"


# --- what is stored of a round ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stored:
    """A released round. cells: of its sum, by metric, in order. faults: why that is no sum."""

    round_id: str
    plan_hash: bytes
    contributors: int
    cells: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)


def _released(conn: Connection) -> Iterator[Sequence[Any]]:
    """All released rounds, by id, CHUNK at a time."""
    held, last = t.rounds.c, ""
    query = select(t.rounds).where(held.outcome == "released").order_by(held.round).limit(CHUNK)
    while some := conn.execute(query.where(held.round > last)).all():
        yield some
        last = some[-1].round


def _stored(conn: Connection) -> Iterator[_Stored]:
    """Each released round with what is there of its sum."""
    c, v = t.released_sums.c, t.released_vectors.c
    for some in _released(conn):
        found = {row.round: _Stored(row.round, row.plan_hash, row.contributors) for row in some}
        cells = select(c.round, c.metric, c.cell, c.total).where(c.round.in_(list(found)))
        for row in conn.execute(cells.order_by(c.round, c.metric, c.cell)):
            _add_cell(found[row.round], row)
        for row in conn.execute(select(v.round, v.metric, v.length, v.totals).where(v.round.in_(list(found)))):
            _add_vector(found[row.round], row)
        yield from found.values()


def _add_cell(stored: _Stored, row: Any) -> None:
    cells = stored.cells[row.metric]
    if row.cell != len(cells):
        stored.faults.append(f"cell {len(cells)} of {row.metric!r} is missing")
        cells.extend([0] * min(row.cell - len(cells), t.MAX_CELL_ROWS))
    cells.append(row.total)


def _add_vector(stored: _Stored, row: Any) -> None:
    if len(row.totals) != 8 * row.length:
        stored.faults.append(f"the vector of {row.metric!r} has {len(row.totals)} bytes for {row.length} elements")
        return
    stored.cells[row.metric] = list(struct.unpack(f"<{row.length}q", row.totals))


def _faults(stored: _Stored, plan: Plan) -> list[str]:
    wanted = {name: part.stop - part.start for name, part in plan.slices.items()}
    lengths = {name: (len(stored.cells.get(name, ())), wanted.get(name, 0)) for name in wanted.keys() | stored.cells}
    wrong = [f"{have} cells of {name!r}, its plan has {want}" for name, (have, want) in lengths.items() if have != want]
    return [*stored.faults, *sorted(wrong)]


def sums_complete(conn: Connection, _now: int) -> Iterator[str]:
    """Each released round has every cell of every metric of its plan, and no other."""
    known = readable_plans(conn)
    for stored in _stored(conn):
        if (plan := known.get(stored.plan_hash)) is not None:
            yield from (f"round {stored.round_id}: {fault}" for fault in _faults(stored, plan))


def sums_plausible(conn: Connection, _now: int) -> Iterator[str]:
    """No total is beyond what so many reports can add."""
    known = readable_plans(conn)
    for stored in _stored(conn):
        plan = known.get(stored.plan_hash)
        if plan is None or _faults(stored, plan):
            continue
        totals = [0] * plan.length
        for name, part in plan.slices.items():
            totals[part] = stored.cells[name]
        for metric in implausible_metrics(plan, totals, stored.contributors):
            yield f"round {stored.round_id}: no {stored.contributors} reports add up to its {metric!r}"


# --- what a sum says of its round -------------------------------------------------------------------------------------


def _heads(conn: Connection) -> Iterator[tuple[Any, Any]]:
    """(what the sum says, the round) for every metric of every released round."""
    for some in _released(conn):
        rounds = {row.round: row for row in some}
        of_metrics = [
            select(c.round, c.metric, c.plan_hash, c.period_start, c.contributors, c.roster, c.resent, c.delivery)
            .where(c.round.in_(list(rounds)))
            .distinct()
            for c in (t.released_sums.c, t.released_vectors.c)
        ]
        head = union_all(*of_metrics).subquery()
        for row in conn.execute(select(head).order_by(head.c.round, head.c.metric)):
            yield row, rounds[row.round]


def sums_agree(conn: Connection, _now: int) -> Iterator[str]:
    """Every metric of a sum says the same of its round as the round itself."""
    known = readable_plans(conn)
    for said, held in _heads(conn):
        plan = known.get(held.plan_hash)
        sampled = plan is not None and plan.sample_metrics is not None
        fewer, more = said.contributors < held.contributors, said.contributors > held.contributors
        checks = {
            "plan": said.plan_hash != held.plan_hash,
            "period": said.period_start != held.period_start,
            "roster": said.roster != held.joined or held.contributors > held.joined,
            "contributors": more or (fewer and not sampled),
            "resent": not 0 <= said.resent <= held.contributors,
        }
        if wrong := ", ".join(name for name, is_wrong in checks.items() if is_wrong):
            yield f"round {said.round}, metric {said.metric!r}: {wrong}"


def min_size(conn: Connection, _now: int) -> Iterator[str]:
    """Only reports that came `direct` are in sums of fewer than the plan's `min_size`."""
    known = readable_plans(conn)
    seen = ""
    for said, held in _heads(conn):
        plan = known.get(held.plan_hash)
        if plan is None or said.round == seen or said.delivery == DIRECT:
            continue
        if held.contributors < plan.cohort.min_size:
            seen = said.round
            yield f"round {said.round}: a sum over {held.contributors} contributors, min_size is {plan.cohort.min_size}"


def released_range(conn: Connection) -> tuple[int | None, int | None]:
    """When the first and the last sum was released."""
    held = t.rounds.c
    found = select(func.min(held.finished_at), func.max(held.finished_at)).where(held.outcome == "released")
    first, last = conn.execute(found).one()
    return first, last
