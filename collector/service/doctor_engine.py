"""What the doctor asks the engine itself: integrity, keys, durability, references. The only part that knows engines.

Rules of this file: each check yields one line per finding over a connection that only reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlalchemy import Column, Connection, ForeignKey, Table, func, inspect, select, text

from collector.service import tables as t

CLOCK_SLACK_S: Final = 86_400
SQLITE: Final = "sqlite"

_PG_BROKEN: Final = """
SELECT 'index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE NOT (i.indisvalid AND i.indisready) AND n.nspname = ANY (current_schemas(false))
UNION ALL
SELECT 'constraint ' || conname || ' has never been validated' FROM pg_constraint c
  JOIN pg_namespace n ON n.oid = c.connamespace WHERE NOT convalidated AND n.nspname = ANY (current_schemas(false))
"""

_PG_DURABLE: Final[Mapping[str, str]] = {
    "fsync": "off: a crash of the server's machine can damage everything",
    "full_page_writes": "off: a crash of the server's machine can damage pages",
}


def integrity(conn: Connection, _now: int) -> Iterator[str]:
    """SQLite's own check of every page and index; PostgreSQL's marks of indexes and constraints that do not hold.

    (PostgreSQL has no cheap check of its pages over a connection: `pg_amcheck` and `pg_checksums` are its tools.)
    """
    if conn.dialect.name == SQLITE:
        for (line,) in conn.execute(text("PRAGMA integrity_check")):
            yield from (part for part in str(line).splitlines() if part != "ok")
        return
    yield from conn.execute(text(_PG_BROKEN)).scalars()


def schema(conn: Connection, _now: int) -> Iterator[str]:
    """Tables, columns and primary keys are this version's."""
    there = inspect(conn)
    for table in t.metadata.sorted_tables:
        if not there.has_table(table.name):
            yield f"table {table.name} is missing"
            continue
        columns = {str(column["name"]) for column in there.get_columns(table.name)}
        if columns != set(table.columns.keys()):
            yield f"table {table.name} has other columns: {', '.join(sorted(columns ^ set(table.columns.keys())))}"
        key = set(there.get_pk_constraint(table.name)["constrained_columns"])
        if key != {column.name for column in table.primary_key}:
            yield f"table {table.name} has another primary key, or none"


def durability(conn: Connection, _now: int) -> Iterator[str]:
    """What a commit is worth."""
    if conn.dialect.name == SQLITE:
        mode = conn.execute(text("PRAGMA journal_mode")).scalar()
        if mode in {"off", "memory"}:
            yield f"journal_mode is {mode}"
        return
    for setting, means in _PG_DURABLE.items():
        if conn.execute(text(f"SHOW {setting}")).scalar() == "off":
            yield f"{setting} is {means}"


def references(conn: Connection, _now: int) -> Iterator[str]:
    """Every foreign key, table by table, also where the engine was told to look away."""
    for table in t.metadata.sorted_tables:
        for column in table.columns:
            for key in column.foreign_keys:
                yield from _orphans(conn, table, column, key)


def _orphans(conn: Connection, table: Table, column: Column[object], key: ForeignKey) -> Iterator[str]:
    target = key.column
    lost = column.is_not(None) & ~select(target).where(target == column).exists()
    grouped = select(column, func.count()).where(lost).group_by(column).order_by(column)
    for value, count in conn.execute(grouped):
        shown = value.hex()[:12] if isinstance(value, bytes) else value
        yield f"{count} rows of {table.name} name {target.table.name}.{target.name} {shown!r}, which is not there"


def clock(conn: Connection, now: int) -> Iterator[str]:
    """Nothing is dated more than a day after now."""
    for column in (t.rounds.c.finished_at, t.spends.c.charged_at, t.opt_outs.c.acknowledged_at, t.plans.c.added_at):
        count = conn.execute(select(func.count()).where(column > now + CLOCK_SLACK_S)).scalar_one()
        if count:
            yield f"{count} rows of {column.table.name} have a {column.name} that lies ahead"
