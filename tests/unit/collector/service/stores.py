"""Plans, releases and stores for the tests of the collector's storage and command line."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from client_sdk.plan import Plan, parse_plan
from collector.service import tables
from collector.service.storage import Contributor, Release

DAY_S = 86_400
NOW = 1_780_000_000
PERIOD = NOW // DAY_S * DAY_S


def plan_text(
    version: int = 1,
    *,
    name: str = "app-health",
    period: str = "1d",
    epsilon: str = "1.0",
    categories: Iterable[str] = ("wifi", "cellular", "offline"),
    min_size: int = 2,
) -> str:
    quoted = ", ".join('"' + "".join(f"\\u{ord(ch):04x}" for ch in category) + '"' for category in categories)
    return f"""
[plan]
name = "{name}"
version = {version}
period = "{period}"
[cohort]
min_size = {min_size}
target_size = 10
max_wait = "30s"
[budget]
lifetime = 365
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = {epsilon}
[metrics.network]
kind = "categorical"
categories = [{quoted}]
other = "other"
epsilon = {epsilon}
"""


def make_plan(version: int = 1, **options: object) -> Plan:
    return parse_plan(plan_text(version, **options))  # type: ignore[arg-type]


def device(number: int) -> str:
    return f"{number:032x}"


def make_release(
    plan: Plan,
    round_id: str = "round-1",
    devices: Iterable[int] = range(3),
    *,
    period_start: int = PERIOD,
    totals: list[int] | None = None,
    resent: Iterable[int] = (),
    now: float = NOW,
) -> Release:
    again = set(resent)
    contributors = [Contributor(device(n), n.to_bytes(16, "big"), n in again) for n in devices]
    if totals is None:
        totals = [0] * plan.length
        totals[plan.slices["cold_start_ms"].start] = 500 * len(contributors)
        totals[plan.slices["network"].start] = len(contributors)
    return Release(
        round_id=round_id,
        plan=plan,
        period_start=period_start,
        totals=totals,
        contributors=contributors,
        roster_size=len(contributors) + 2,
        resent=len(again),
        dropouts={"shares": 1, "masked_input": 1, "confirm": 0, "unmask": 0},
        seconds=1.5,
        now=now,
    )


@contextmanager
def connection(store: str | Path) -> Iterator[Any]:
    """Past our own code, into a store by its URL or path: `execute`, and what is written is committed at the end."""
    if str(store).startswith("postgres"):
        import psycopg

        conn: Any = psycopg.connect(str(store).replace("+psycopg", ""))
    else:
        conn = sqlite3.connect(str(store).removeprefix("sqlite:///"))
    with closing(conn):
        yield conn
        conn.commit()


def query(store: str | Path, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a question, read past our own code."""
    with connection(store) as conn:
        return list(conn.execute(statement).fetchall())


def execute(store: str | Path, statement: str) -> None:
    """One statement, past our own code."""
    with connection(store) as conn:
        conn.execute(statement)


def counts(store: str | Path) -> dict[str, int]:
    """Rows per table, read past our own code."""
    listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if str(store).startswith("postgres"):
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with connection(store) as conn:
        tables = [row[0] for row in conn.execute(listed).fetchall()]
        return {table: conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}  # noqa: S608


def differences(conn: Connection) -> list[Any]:
    """Between the tables that migrations made and those of `tables.py`, where some references are only the doctor's."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def is_there(item: Any, _name: str | None, kind: str, reflected: bool, _other: object) -> bool:
        if conn.dialect.name != "postgresql" or reflected or kind != "foreign_key_constraint":
            return True
        return all(key.info.get(tables.ROW_BY_ROW, True) for key in item.elements)

    context = MigrationContext.configure(conn, opts={"compare_type": True, "include_object": is_there})
    return list(compare_metadata(context, tables.metadata))
