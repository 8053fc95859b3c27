"""Plain Python over an export: what the other engines have to agree with. It holds every released sum in memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.reduced import Reduced, is_between, reduce_sums
from collector.release import ReleasedSum
from collector.service.engines.base import Files

_COLUMNS = (
    "round", "metric", "plan_hash", "period_start", "delivery", "contributors", "roster", "resent", "reports", "cell",
    "total",
)  # fmt: skip


def reduced(files: Files, metric: str | None, since: int | None, until: int | None) -> Reduced:
    """See `arrow.reduced`."""
    return reduce_sums(released_sums(files, metric, since, until))


def released_sums(
    files: Files, metric: str | None = None, since: int | None = None, until: int | None = None
) -> list[ReleasedSum]:
    """One per round and metric, for since <= period_start < until; in no order."""
    heads: dict[tuple[str, str], tuple[Any, ...]] = {}
    cells: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
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


def _sum(key: tuple[str, str], head: tuple[Any, ...], cells: list[tuple[int, int]]) -> ReleasedSum:
    plan_hash, period_start, delivery, contributors, roster, resent, reports = head
    totals = tuple(total for _, total in sorted(cells))
    return ReleasedSum(
        key[0], bytes.fromhex(plan_hash), period_start, key[1], totals, contributors, roster, resent, delivery, reports
    )
