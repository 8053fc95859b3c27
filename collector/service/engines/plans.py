"""The plans of an export."""

from __future__ import annotations

import pyarrow.parquet as pq

from collector.service.engines.base import Files
from collector.service.storage_rows import StoredPlan


def stored_plans(files: Files) -> list[StoredPlan]:
    """Every plan version, by name and version."""
    found: list[StoredPlan] = []
    for path in files.of_table("plans"):
        columns = pq.read_table(path, columns=["hash", "name", "version", "text"]).to_pydict()
        for plan_hash, *rest in zip(*columns.values(), strict=True):
            found.append(StoredPlan(bytes.fromhex(plan_hash), *rest))
    return sorted(found, key=lambda plan: (plan.name, plan.version))
