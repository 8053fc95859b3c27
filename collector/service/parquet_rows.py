"""The store's rows on their way into an export: read in pieces, in order, within the transaction that the caller owns.

Rules of this file: reads only, plain SQL of every engine; memory holds some thousand rows and one vector, however long
the tables are. A day's `source` is a digest of what its rows come from and changes whenever they do: what a released
round stored is never changed, only dropped device by device, so the rounds of the day say it, with how many rows each
of them still has.
What it does not do: it writes no file (`parquet_export` does).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select

from client_sdk.errors import StorageError
from collector.service import tables as t
from collector.service.parquet_tables import BY_NAME, DAY_S, VERSION, TableOf

PIECE: Final = 10_000
"""Rows that are read at a time."""

_TYPES: Final = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}


def arrow_schema(table: TableOf) -> pa.Schema:
    """Its columns, in their order."""
    return pa.schema([pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in table.columns])


SCHEMAS: Final = {name: arrow_schema(table) for name, table in BY_NAME.items()}


# --- which days there are, and what each is made from -------------------------------------------------


def day_sources(conn: Connection, name: str, since: int | None, until: int | None) -> dict[int, str]:
    """By day (from 1970-01-01), for a table that is kept by day."""
    digests: dict[int, Any] = {}
    for row in conn.execute(_rounds_of(name, since, until), execution_options={"yield_per": PIECE}):
        digest = digests.setdefault(row.period_start // DAY_S, hashlib.sha256(f"{VERSION} {name}".encode()))
        digest.update(("\0" + "\0".join(str(value) for value in row)).encode())
    return {day: digest.hexdigest() for day, digest in digests.items()}


def _rounds_of(name: str, since: int | None, until: int | None) -> Select[Any]:
    """period_start, round and what else tells that nothing of it went or came, in order."""
    if name in {"rounds", "released_sums"}:
        r = t.rounds.c
        rounds = select(r.period_start, r.round, r.outcome, r.finished_at).where(
            *_between(r.period_start, since, until)
        )
        if name == "released_sums":
            rounds = rounds.where(r.outcome == "released")
        return rounds.order_by(r.period_start, r.round)
    c = t.metadata.tables[name].c
    counted = select(c.period_start, c.round, func.count()).where(*_between(c.period_start, since, until))
    return counted.group_by(c.period_start, c.round).order_by(c.period_start, c.round)


def _between(column: ColumnElement[int], since: int | None, until: int | None) -> list[ColumnElement[bool]]:
    conditions = [] if since is None else [column >= since]
    return conditions if until is None else [*conditions, column < until]


# --- rows -------------------------------------------------------------------------------------------


def batches_by_day(conn: Connection, name: str, first: int, end: int) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """(day, its rows) for days first <= day < end, those that have any; each is to be used up before the next."""
    if name == "released_sums":
        for day in range(first, end):
            yield day, _released(conn, day * DAY_S, (day + 1) * DAY_S)
        return
    tagged = _tagged(conn, name, first * DAY_S, end * DAY_S)
    for day, pieces in groupby(tagged, key=lambda piece: piece[0]):
        yield day, (batch for _, batch in pieces)


def _tagged(conn: Connection, name: str, since: int, until: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Pieces of one day each, day after day."""
    c = t.metadata.tables[name].c
    keys = [c.period_start, *(c[column] for column in ("plan_name", "device", "round", "metric") if column in c)]
    place = BY_NAME[name].columns.index(next(one for one in BY_NAME[name].columns if one.name == "period_start"))
    query = _columns(t.metadata.tables[name], name).where(*_between(c.period_start, since, until)).order_by(*keys)
    for piece in _pieces(conn, query):
        for day, rows in groupby(piece, key=lambda row: row[place] // DAY_S):
            yield day, _batch(name, list(rows))


def batches_of(conn: Connection, name: str) -> Iterator[pa.RecordBatch]:
    """All rows of a table that is not kept by day, by its key."""
    table = t.metadata.tables[name]
    for piece in _pieces(conn, _columns(table, name).order_by(*table.primary_key.columns)):
        yield _batch(name, piece)


def _columns(table: Table, name: str) -> Select[Any]:
    return select(*(table.c[column.name] for column in BY_NAME[name].columns))


def _pieces(conn: Connection, query: Select[Any]) -> Iterator[Sequence[Row[Any]]]:
    with conn.execute(query, execution_options={"yield_per": PIECE}) as result:
        yield from result.partitions()


def _batch(name: str, rows: Sequence[Row[Any]]) -> pa.RecordBatch:
    schema = SCHEMAS[name]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(_plain(column), field.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    return [value.hex() for value in values] if isinstance(values[0], bytes) else values


# --- released sums ----------------------------------------------------------------------------------

_HEAD: Final = ("round", "metric", "plan_hash", "period_start", "delivery", "contributors", "roster", "resent")


def _released(conn: Connection, since: int, until: int) -> Iterator[pa.RecordBatch]:
    """A row for each cell, by period, round, metric and cell; the cells of long vectors after those."""
    c = t.released_sums.c
    for piece in _pieces(conn, _with_reports(t.released_sums, [c.cell, c.total], since, until)):
        yield _batch("released_sums", piece)
    vector = t.released_vectors.c
    query = _with_reports(t.released_vectors, [vector.length, vector.totals], since, until)
    with conn.execute(query, execution_options={"yield_per": 1}) as rows:  # one is as long as thousands of rows
        for row in rows:
            yield _vector(row)


def _with_reports(table: Table, cells: Sequence[ColumnElement[Any]], since: int, until: int) -> Select[Any]:
    c, held = table.c, t.rounds.c
    columns = [c[name] for name in _HEAD]
    query = select(*columns, held.contributors.label("reports"), *cells).join(t.rounds, held.round == c.round)
    order = [c.period_start, c.round, c.metric, *([c.cell] if "cell" in c else [])]
    return query.where(*_between(c.period_start, since, until)).order_by(*order)


def _vector(row: Row[Any]) -> pa.RecordBatch:
    totals = np.frombuffer(row.totals, "<i8").astype(np.int64)
    if len(totals) != row.length:
        raise StorageError(f"round {row.round!r}: a vector of {row.length} cells has {len(totals)}; run the doctor")
    schema = SCHEMAS["released_sums"]
    values: Mapping[str, Any] = {**row._mapping, "plan_hash": row.plan_hash.hex()}  # noqa: SLF001 - its public name
    same = [pa.repeat(pa.scalar(values[field.name], field.type), row.length) for field in list(schema)[:-2]]
    return pa.RecordBatch.from_arrays([*same, pa.array(np.arange(row.length)), pa.array(totals)], schema=schema)
