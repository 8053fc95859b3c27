"""What a report reads of an export; and of a store whose sums are so many that an engine adds them up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client_sdk.plan import Plan
from collector.plan_texts import read_plan
from collector.reduced import Reduced
from collector.reports.cohorts import RoundsOfPeriod
from collector.reports.privacy import LIFETIME
from collector.service.documents import DEFAULT, exact_fleet_document
from collector.service.engines.exported import Exported, open_export
from collector.service.parquet_export import Asked, export
from collector.service.parquet_tables import DAY_S
from collector.service.report_store import StoreReading
from collector.service.report_windows import Question
from collector.service.storage import CollectorStore


class ExportReading:
    """Of an export; a `Reading`."""

    def __init__(self, exported: Exported) -> None:
        self._exported = exported

    def sums(self, question: Question) -> tuple[Sequence[Plan], Reduced]:
        plans = [read_plan(plan.text, plan.hash) for plan in self._exported.plans()]
        return plans, self._exported.reduced(question.metric, question.since, question.until)

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        return self._exported.rounds_of_periods(question.since, question.until)

    def fleet(self) -> Mapping[str, Any] | None:
        if not self._exported.has_devices:
            return None
        return exact_fleet_document(self._exported.spending(), self._exported.as_of, (LIFETIME,), DEFAULT)


class LargeStoreReading(ExportReading):
    """Of a store's sums in an export of their own, and of the store itself."""

    def __init__(self, exported: Exported, store: CollectorStore) -> None:
        super().__init__(exported)
        self._store = store

    def fleet(self) -> Mapping[str, Any] | None:
        return StoreReading(self._store).fleet()


@contextmanager
def large_store(
    store: CollectorStore, question: Question, engine: str, master: str | None
) -> Iterator[LargeStoreReading]:
    """What is asked for, read once and in one transaction into a folder that is gone afterwards; no device is in it."""
    with tempfile.TemporaryDirectory(prefix="ldp-report-") as name:
        folder = Path(name) / "export"
        asked = Asked(_day(question.since), _day(question.until, up=True), devices=False)
        store.look(lambda conn: export(conn, folder, int(time.time()), asked))
        with open_export(folder, engine, master) as exported:
            yield LargeStoreReading(exported, store)


def _day(instant: int | None, *, up: bool = False) -> int | None:
    """The start of a day, this one's or the next's."""
    return None if instant is None else (-(-instant // DAY_S) if up else instant // DAY_S) * DAY_S
