"""Plain Python over an export: what the other engines have to agree with. It holds every released sum in memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.reduced import Reduced, is_between, reduce_sums
from collector.release import ReleasedSum
from collector.service.engines.arrow import SumsError, odd
from collector.service.engines.base import Files

_COLUMNS = (
    "round", "metric", "plan_hash", "period_start", "delivery", "contributors", "roster", "resent", "reports", "cell",
    "total",
)  # fmt: skip


def reduced(files: Files, metric: str | None, since: int | None, until: int | None) -> Reduced:
    """See `arrow.reduced`. Raises ExportError, SumsError."""
    rows = released_sums(files, metric, since, until)
    try:
        return reduce_sums(rows)
    except ValueError as error:
        raise SumsError(f"{error}: some are missing or double; export again") from None


def released_sums(
    files: Files, metric: str | None = None, since: int | None = None, until: int | None = None
) -> list[ReleasedSum]:
    """One per round and metric, for since <= period_start < until; in no order. Raises SumsError."""
    heads: dict[tuple[str, str], tuple[Any, ...]] = {}
    cells: dict[tuple[str, str], list[tuple[int, int | None]]] = defaultdict(list)
    for path in files.of_table("released_sums"):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(_COLUMNS)):
                if metric is not None:
                    batch = batch.filter(pc.equal(batch.column("metric"), pa.scalar(metric)))  # noqa: PLW2901
                for round_id, name, *head, cell, total in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    if is_between(head[1], since, until):
                        heads[round_id, name] = tuple(head)
                        cells[round_id, name].append((cell, total))
    return [_sum(key, head, cells[key]) for key, head in heads.items()]


def _sum(key: tuple[str, str], head: tuple[Any, ...], cells: list[tuple[int, int | None]]) -> ReleasedSum:
    plan_hash, period_start, delivery, contributors, roster, resent, reports = head
    by_cell = dict(cells)
    totals = tuple(total for cell in range(len(cells)) if (total := by_cell.get(cell)) is not None)
    if len(totals) != len(cells):
        raise SumsError(odd((bytes.fromhex(plan_hash), key[1], period_start)))
    return ReleasedSum(
        key[0], bytes.fromhex(plan_hash), period_start, key[1], totals, contributors, roster, resent, delivery, reports
    )
