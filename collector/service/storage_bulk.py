"""Many rows in one statement: the only place, beside the backends, where two engines are told apart.

Rules of this file: the caller owns the transaction; rows go in in the order in which they are given, so that writers
who give them in the same order never wait for each other in a circle. PostgreSQL takes columns as arrays (one round
trip, no text made for each row), SQLite is near and takes rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Table,
    TextClause,
    any_,
    insert,
    literal,
    text,
)

Columns = Mapping[str, Sequence[Any]]
"""By column, the values of all rows."""

MOST_ROWS: Final = 20_000
"""Of one statement: a fraction of a second, where a writer's statement may take ten."""

_POSTGRES_TYPES: Final = ((BigInteger, "BIGINT"), (Integer, "INTEGER"), (Boolean, "BOOLEAN"), (LargeBinary, "BYTEA"))
"""The first that fits. TEXT where a column has a length: a cast would cut what is too long, the column refuses it."""


def insert_rows(
    conn: Connection, table: Table, common: Mapping[str, Any], columns: Columns, each: Columns | None = None
) -> None:
    """Rows that agree in `common`; each of `columns` with each of `each`, if that is given.

    In statements of about MOST_ROWS. Raises IntegrityError where one of them is there already.
    """
    for some in _slices(columns, MOST_ROWS):
        for ones in _slices(each, max(1, MOST_ROWS // max(1, _length(some)))) if each else (None,):
            _insert_some(conn, table, common, some, ones)


def _insert_some(
    conn: Connection, table: Table, common: Mapping[str, Any], columns: Columns, each: Columns | None
) -> None:
    if conn.dialect.name == "postgresql":
        statement = _from_arrays(table, tuple(common), tuple(columns), tuple(each or ()), "")
        conn.execute(statement, {**common, **_lists(columns), **_lists(each or {})})
        return
    conn.execute(insert(table), [{**common, **row, **one} for row in _rows(columns) for one in _rows(each or {})])


def one_of(conn: Connection, column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """`column IN (values)`, as one value where the engine has arrays: such a statement is prepared once."""
    if conn.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(values)


def insert_new(conn: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """One row, unless one with its key is there already: also one that another writer has just begun. Is it new?"""
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    statement = f"INSERT INTO {table.name} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608 - our names
    return bool(conn.execute(text(statement), dict(row)).rowcount)


def add_to_rows(conn: Connection, table: Table, key: str | tuple[str, ...], columns: Columns) -> None:
    """Add to the counters of the rows with these keys, which are different ones; a row that is not there begins at 0.

    columns: the key, and the counters to begin or add to.
    """
    keys = (key,) if isinstance(key, str) else key
    counters = [name for name in columns if name not in keys]
    more = ", ".join(f"{name} = {table.name}.{name} + excluded.{name}" for name in counters)
    conflict = f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {more}"
    if conn.dialect.name == "postgresql":
        conn.execute(_from_arrays(table, (), tuple(columns), (), conflict), _lists(columns))
        return
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    statement = f"INSERT INTO {table.name} ({names}) VALUES ({values}){conflict}"  # noqa: S608 - our names
    conn.execute(text(statement), _rows(columns))


@lru_cache(maxsize=64)
def _from_arrays(
    table: Table, common: tuple[str, ...], columns: tuple[str, ...], each: tuple[str, ...], conflict: str
) -> TextClause:
    once = [f"CAST(:{name} AS {_type(table, name)})" for name in common]
    names = ", ".join([*common, *columns, *each])
    chosen = ", ".join([*once, *(f"u.{name}" for name in columns), *(f"v.{name}" for name in each)])
    rows = _unnested(table, "u", columns) + (f" CROSS JOIN {_unnested(table, 'v', each)}" if each else "")
    # all is made of names of tables and columns of ours
    return text(f"INSERT INTO {table.name} ({names}) SELECT {chosen} FROM {rows}{conflict}")  # noqa: S608


def _unnested(table: Table, alias: str, columns: Sequence[str]) -> str:
    arrays = ", ".join(f"CAST(:{name} AS {_type(table, name)}[])" for name in columns)
    return f"unnest({arrays}) AS {alias}({', '.join(columns)})"


def _type(table: Table, name: str) -> str:
    kind = table.c[name].type
    return next((word for known, word in _POSTGRES_TYPES if isinstance(kind, known)), "TEXT")


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))


def _slices(columns: Columns, most: int) -> Iterator[Columns]:
    """`columns` in pieces of at most `most` rows, in order; as they are, where they fit."""
    if _length(columns) <= most:
        yield columns
        return
    for start in range(0, _length(columns), most):
        yield {name: values[start : start + most] for name, values in columns.items()}


def _lists(columns: Columns) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in columns.items()}


def _rows(columns: Columns) -> list[dict[str, Any]]:
    if not columns:
        return [{}]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
