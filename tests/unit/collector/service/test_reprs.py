"""What a log line or a traceback may show of the service's own values: no device, and nothing of a report."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from collector.direct import Offered
from collector.service.direct_desk import OfferedReport
from collector.service.direct_sums import _Entry, _Sum
from collector.service.storage_rows import Blamed, Contributor, RoundRecord
from tests.unit.collector.service.stores import NOW, PERIOD, device, make_plan, make_release

PLAN = make_plan()


def test_no_repr_names_a_device() -> None:
    blamed = [Blamed(device(1), "wrong_share")]
    release = replace(make_release(PLAN), blamed=blamed)
    record = RoundRecord("r", PLAN.hash, PERIOD, 5, 0, {}, "aborted", "too_few_sharers", 2.0, NOW, blamed)
    report = OfferedReport(Offered(PLAN.hash, PERIOD, bytes(16), resent=False), plan=PLAN)
    report.seat = (device(1), PLAN.name, PERIOD)
    loop = asyncio.new_event_loop()
    elements = np.array([424_242] * PLAN.length, dtype=np.int64)
    entry = _Entry(Contributor(device(1), bytes(16), resent=False), elements, loop.create_future())
    loop.close()
    for value in (release, record, report, entry, _Sum(PLAN, PERIOD, [entry])):
        assert device(1) not in repr(value)
        assert "424242" not in repr(value)
        assert repr(value).startswith(type(value).__name__)
