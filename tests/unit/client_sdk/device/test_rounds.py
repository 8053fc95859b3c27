"""Real devices through real rounds: gRPC on loopback, the real participant and the real collector round."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk import TelemetryClient
from client_sdk.device.files import DATABASE_NAME
from client_sdk.device.spool import Lease
from client_sdk.device.storage import DeviceStore
from client_sdk.device.views import UploadSummary
from client_sdk.plan import Plan
from client_sdk.report import unpack_vector
from client_sdk.secagg.messages import (
    AlreadyCounted,
    ComeBack,
    MaskedInputPiece,
    Receipt,
    SurvivorStatus,
    UnmaskRequest,
)
from tests.registrar import NOWHERE
from tests.unit.client_sdk.device.helpers import make_client, make_plan
from tests.unit.client_sdk.device.small_collector import SmallCollector

PLAN = make_plan()


def spooled(folder: Path) -> bytes:
    """The waiting report's bytes, read past the client."""
    db = sqlite3.connect(folder / DATABASE_NAME)
    try:
        return bytes(db.execute("SELECT report FROM spool").fetchone()[0])
    finally:
        db.close()


class Fleet:
    """Devices that have sealed one report each."""

    def __init__(self, folder: Path, collector: SmallCollector, size: int, plan: Plan = PLAN, first: int = 0) -> None:
        self.folders = [folder / f"device-{first + number}" for number in range(size)]
        self.clients = [make_client(path, plan, endpoint=collector.endpoint, clock=time.time) for path in self.folders]
        for number, client in enumerate(self.clients):
            client.record("cold_start_ms", 100 * number)
            client.record("network", "wifi")
            client.flush(seal=True)
        self.reports = [spooled(path) for path in self.folders]

    async def upload(
        self, *numbers: int, before_send: Callable[[str], object] | None = None
    ) -> list[UploadSummary | BaseException]:
        chosen = [self.clients[number] for number in numbers] or self.clients
        jobs = (client.upload(before_send=before_send) for client in chosen)
        return list(await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 60))


def expected_sum(*reports: bytes) -> list[int]:
    return [sum(column) for column in zip(*map(unpack_vector, reports), strict=True)]


async def test_five_devices_make_one_exact_sum_and_keep_a_receipt(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5, tokens={"a-token"}) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        for client in fleet.clients:
            client._engine.settings.enrolment_token = "a-token"
        summaries = await fleet.upload()
        assert [s.as_dict() for s in summaries if isinstance(s, UploadSummary)] == [
            {"counted": 1, "already_counted": 0, "waiting": 0}
        ] * 5
        (result,) = collector.sums
        assert result.total == expected_sum(*fleet.reports)
        assert (sorted(result.contributors), result.resent) == (sorted(c.device_id for c in fleet.clients), 0)
        for client in fleet.clients:
            (entry,) = client.history()
            assert (entry.outcome, entry.contributors, entry.roster_size) == ("counted", 5, 5)
            assert client.spent().lifetime_micro == PLAN.report_micro_epsilon
            assert DeviceStore(client._engine.settings.data_dir).certificate(), "enrolled once"
            assert "a-token" not in repr(client._engine.connections.delivery())


async def test_a_report_lost_after_it_was_handed_over_comes_back_resent_with_the_same_bytes(tmp_path: Path) -> None:
    # case C01
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        lost = fleet.clients[0]
        collector.cut = lambda device, message: device == lost.device_id and isinstance(message, MaskedInputPiece)
        first = await fleet.upload()
        assert isinstance(first[0], UploadSummary)
        assert first[0].as_dict() == {"counted": 0, "already_counted": 0, "waiting": 1, "rpc_unavailable": 1}
        assert collector.sums[0].total == expected_sum(*fleet.reports[1:])
        assert spooled(fleet.folders[0]) == fleet.reports[0], "identical bytes wait"
        collector.cut = lambda device, message: False
        fresh = Fleet(tmp_path, collector, 4, first=5)
        second = await asyncio.gather(fleet.upload(0), fresh.upload())
        assert all(isinstance(s, UploadSummary) and s.counted == 1 for s in second[0] + second[1])
        assert collector.sums[1].total == expected_sum(fleet.reports[0], *fresh.reports)
        assert collector.sums[1].resent == 1
        flags = [advert.resent for advert in collector.adverts]
        assert flags.count(True) == 1
        (entry,) = lost.history()
        assert entry.resent
        assert lost.spent().lifetime_micro == PLAN.report_micro_epsilon, "charged once"


async def test_a_receipt_lost_twice_is_counted_and_charged_once(tmp_path: Path) -> None:
    # case C01: the collector commits, then cuts the connection; three attempts in all
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        unlucky = fleet.clients[2]

        def cut(device: str, message: object) -> bool:
            return device == unlucky.device_id and isinstance(message, Receipt | AlreadyCounted)

        collector.cut_answer = cut
        payloads = []
        for _ in range(2):
            await fleet.upload(*([0, 1, 2, 3, 4] if not payloads else [2]))
            payloads.append(spooled(fleet.folders[2]))
        collector.cut_answer = lambda device, message: False
        (summary,) = await fleet.upload(2)
        assert isinstance(summary, UploadSummary)
        assert summary.as_dict() == {"counted": 0, "already_counted": 1, "waiting": 0}
        assert payloads == [fleet.reports[2]] * 2
        assert len(collector.sums) == 1
        assert collector.spent(unlucky.device_id) == (1, PLAN.report_micro_epsilon)
        assert unlucky.spent().lifetime_micro == PLAN.report_micro_epsilon
        assert [advert.resent for advert in collector.adverts if advert.resent] == [True, True]


@pytest.mark.parametrize("step", ["hello", "join", "shares", "masked_input", "confirm", "unmask"])
async def test_the_hosts_hook_breaks_the_stream_off_before_any_step(tmp_path: Path, step: str) -> None:
    class LeftError(Exception):
        pass

    def leave(now: str) -> None:
        if now == step:
            raise LeftError

    joins = step in {"hello", "join"}
    with SmallCollector(PLAN, cohort_size=4 if joins else 5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        leaver = asyncio.create_task(fleet.upload(0, before_send=leave))
        others = await fleet.upload(1, 2, 3, 4)
        (error,) = await leaver
        assert isinstance(error, LeftError)
        assert all(isinstance(s, UploadSummary) and s.counted == 1 for s in others)
        inside = step in {"confirm", "unmask"}
        assert collector.sums[0].total == expected_sum(*fleet.reports[0 if inside else 1 :])
        entries = DeviceStore(str(fleet.folders[0])).begin_run(
            _lease(), time.time(), everything=True, alive=lambda pid: True
        )
        assert entries is not None, "the lease was given back"
        assert [(e.resent, e.report) for e in entries] == [(inside, fleet.reports[0])]


def _lease() -> Lease:
    return Lease(b"t", os.getpid(), "here", time.time() + 60)


async def test_resend_never_gives_a_report_up_rather_than_send_it_twice(tmp_path: Path) -> None:
    plan = make_plan(resend="never")
    with SmallCollector(plan, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5, plan)
        lost = fleet.clients[0]
        collector.cut = lambda device, message: device == lost.device_id and isinstance(message, MaskedInputPiece)
        await fleet.upload()
        (summary,) = await fleet.upload(0)
        assert isinstance(summary, UploadSummary)
        assert summary.as_dict() == {"counted": 0, "already_counted": 0, "waiting": 0, "resend_never": 1}
        assert [e.outcome for e in lost.history()] == ["resend_never"]
        assert sum(device == lost.device_id for device, _ in collector.received) == 3, "advert, shares, one piece"


async def test_come_back_is_kept_on_disk_and_is_no_failure(tmp_path: Path) -> None:
    at = int(time.time()) + 1000
    with SmallCollector(PLAN, cohort_size=5, come_back=ComeBack(at, 30)) as collector:
        fleet = Fleet(tmp_path, collector, 1)
        (summary,) = await fleet.upload()
        assert isinstance(summary, UploadSummary)
        assert summary.failed == {"come_back": 1}
        assert summary.next_attempt_at is not None
        assert at <= summary.next_attempt_at <= at + 30


async def test_a_collector_that_has_booked_more_stops_the_device(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5, extra_micro=PLAN.report_micro_epsilon + 1) as collector:
        fleet = Fleet(tmp_path, collector, 1)
        (summary,) = await fleet.upload()
        assert isinstance(summary, UploadSummary)
        assert summary.failed == {"ledger_damaged": 1}
        view = fleet.clients[0].spent()
        assert (view.left_lifetime_micro, view.damaged is not None) == (0, True)
        # and the report that waits here: what has not left is not in the collector's total
        assert fleet.clients[0].reset_ledger() * 1_000_000 == 2 * PLAN.report_micro_epsilon + 1


async def test_an_aborted_round_is_counted_and_tried_again(tmp_path: Path) -> None:
    plan = make_plan(min_size=4)
    with SmallCollector(plan, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5, plan)
        two = {client.device_id for client in fleet.clients[:2]}
        collector.cut = lambda device, message: device in two and isinstance(message, MaskedInputPiece)
        summaries = await fleet.upload()
        assert collector.sums == []
        for summary in summaries[2:]:
            assert isinstance(summary, UploadSummary)
            assert (summary.waiting, summary.failed) == (1, {"aborted_too_few_survivors": 1})


@pytest.mark.parametrize("message", [SurvivorStatus, UnmaskRequest])
async def test_a_dishonest_answer_makes_the_device_leave(tmp_path: Path, message: type) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = Fleet(tmp_path, collector, 5)
        liar = fleet.clients[0].device_id
        real = collector._write

        async def lie(context, device_id, answer):  # type: ignore[no-untyped-def]
            if device_id == liar and isinstance(answer, message):
                answer = (
                    replace(answer, survivors=answer.survivors[:3])
                    if isinstance(answer, SurvivorStatus)
                    else replace(answer, dropped=(1, 2))
                )
            await real(context, device_id, answer)

        collector._write = lie  # type: ignore[method-assign]
        summaries = await fleet.upload()
        assert isinstance(summaries[0], UploadSummary)
        ((reason, count),) = summaries[0].failed.items()
        assert (reason.startswith("left_"), count, summaries[0].waiting) == (True, 1, 1)


async def test_a_fetched_plan_is_pinned(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        client = _planless(tmp_path, collector)
        client.record("cold_start_ms", 1)
        assert client.counters() == {"no_plan": 1}
        summary = await client.upload()
        assert summary.waiting == 0
        client.record("cold_start_ms", 1)
        client.close()
        assert client.counters() == {"no_plan": 1, "sealed": 1}
    again = _planless(tmp_path, collector)
    again.record("cold_start_ms", 1)
    assert again.counters() == {"no_plan": 1, "sealed": 1, "period_sealed": 1}, "no network needed; sealed already"


def _planless(folder: Path, collector: SmallCollector) -> TelemetryClient:
    return TelemetryClient(
        collector.endpoint,
        data_dir=folder / "d",
        consent=True,
        insecure=True,
        background=False,
        min_cohort=3,
        **NOWHERE,
    )
