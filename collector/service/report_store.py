"""What a report reads of a store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from client_sdk.plan import Plan
from collector.plan_texts import read_plan
from collector.reduced import Reduced, reduce_sums
from collector.reports.cohorts import RoundsOfPeriod
from collector.reports.privacy import LIFETIME
from collector.service.report_windows import Question
from collector.service.storage import CollectorStore
from collector.service.storage_cohorts import rounds_of_periods


class StoreReading:
    """Of a store as it is; a `Reading`."""

    def __init__(self, store: CollectorStore) -> None:
        self._store = store

    def sums(self, question: Question) -> tuple[Sequence[Plan], Reduced]:
        reduced = reduce_sums(self._store.released_sums(question.metric, question.since, question.until))
        # after the sums: a plan that comes between is one too many, never one too few
        return [read_plan(plan.text, plan.hash) for plan in self._store.plans()], reduced

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        return self._store.look(lambda conn: rounds_of_periods(conn, question.since, question.until))

    def fleet(self) -> Mapping[str, Any]:
        from collector.service.documents import DEFAULT, exact_fleet_document

        return exact_fleet_document(self._store, time.time(), (LIFETIME,), DEFAULT)
