"""One device's rows of an export, in a small store of their own: its ledger is what a store says of it, whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, LargeBinary, insert

from collector.service import tables as t
from collector.service.engines.arrow import rows
from collector.service.engines.base import Engine
from collector.service.storage import CollectorStore

if TYPE_CHECKING:
    import ibis.expr.types as ir

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_NO_ID = bytes(16)
"""Reports' ids are in no export, and nobody asks for them."""


class _Store(CollectorStore):
    def fill(self, found: Rows) -> None:
        self._write(_insert, found)


@contextmanager
def one_device(engine: Engine, device: str) -> Iterator[CollectorStore]:
    """A store that holds this device's rows, all plans, and of the sums that it is in whom they hid it among."""
    found = {name: _rows(engine, table) for name, table in _tables(engine, device).items()}
    with tempfile.TemporaryDirectory(prefix="ldp-device-") as folder:
        store = _Store.open(str(Path(folder) / "device.db"))
        try:
            store.fill(found)
            yield store
        finally:
            store.close()


def _tables(engine: Engine, device: str) -> dict[str, ir.Table]:
    """In an order in which each row's companions come before it."""
    own = {
        name: (table := engine.table(name)).filter(table.device == device)
        for name in ("contributions", "spends", "device_totals", "folded_spends")
    }
    rounds = own["contributions"].select("round").union(own["spends"].select("round")).distinct()
    sums = engine.table("released_sums")
    heads = sums.filter(sums.cell == 0).semi_join(rounds, "round").drop("reports")
    return {
        "plans": engine.table("plans"),
        "rounds": engine.table("rounds").semi_join(rounds, "round"),
        "released_sums": heads,
        "folded_cohorts": engine.table("folded_cohorts").semi_join(own["folded_spends"].select("cohort"), "cohort"),
        **own,
    }


def _rows(engine: Engine, table: ir.Table) -> list[Mapping[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in rows(engine.batches(table))]


def _insert(conn: Connection, found: Rows) -> None:
    for name, some in found.items():
        table = t.metadata.tables[name]
        if some:
            more = {"report_id": _NO_ID} if name == "contributions" else {}
            conn.execute(insert(table), [{**_stored(table, row), **more} for row in some])


def _stored(table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Hashes as bytes again."""
    return {
        name: bytes.fromhex(value) if isinstance(table.c[name].type, LargeBinary) else value
        for name, value in row.items()
    }
