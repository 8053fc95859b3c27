"""Direct delivery on the device: who allows it, when it happens, and what holds when it breaks off."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.accounting.ledger import Ledger
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.device import booking, direct_calls, store_base
from client_sdk.device import direct as direct_module
from client_sdk.device.interfaces import CallFailedError
from client_sdk.device.views import UploadSummary
from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan, parse_plan
from client_sdk.testing import FakeClock, InMemoryCollector
from client_sdk.testing_direct import MemoryDirectStream
from client_sdk.wire.messages import (
    DeliverRequest,
    DeliverResponse,
    DirectHello,
    DirectOffer,
    DirectPiece,
    DirectReceipts,
    DirectSeal,
    DirectStanding,
)
from client_sdk.wire.methods import DELIVER_METHOD
from tests.unit.client_sdk.device.helpers import DAY_S, plan_text

RESEND = 'resend = "same_bytes"'


def plan_of(delivery: str, **changes: Any) -> Plan:
    return parse_plan(plan_text(**changes).replace(RESEND, delivery))


DIRECT = plan_of('delivery = "direct"')
ONE = 2
"""What one report of these plans costs: a lifetime that holds so many."""

FALLBACK = plan_of('fallback = "direct"\nfallback_after = "2d"')


class Calls(InMemoryCollector):
    """Says what arrived, and may break a call off or change an answer.

    cut: called with each message that arrives; True loses the call there, before (`arrive` False) or after it was
    taken. told: what to say in place of an answer. piece_s: how long the network takes over each piece.
    """

    def __init__(self, plan: Plan, **settings: Any) -> None:
        super().__init__(plan, **settings)
        self.streams: list[list[DeliverRequest]] = []
        self.rounds = 0
        self.cut: Callable[[DeliverRequest], bool] = lambda message: False
        self.cut_answer: Callable[[DeliverResponse], bool] = lambda message: False
        self.told: Callable[[DeliverResponse], DeliverResponse | None] = lambda message: message
        self.piece_s = 0.0

    @property
    def steps(self) -> list[str]:
        """Of the last call."""
        return [type(message).__name__ for message in self.streams[-1]]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        async with super().connect() as connection:
            home, participate = self, connection.participate

            def deliver() -> Any:
                home.streams.append([])
                return Stream(home, connection._check_reachable)

            def join() -> Any:
                home.rounds += 1
                return participate()

            connection.deliver, connection.participate = deliver, join
            yield connection


class Stream(MemoryDirectStream):
    async def send(self, message: DeliverRequest) -> None:
        home: Any = self._collector
        home.streams[-1].append(message)
        if isinstance(message, DirectPiece):
            await asyncio.sleep(home.piece_s)
        if home.cut(message):
            raise CallFailedError("unavailable")
        await super().send(message)

    async def receive(self) -> DeliverResponse | None:
        home: Any = self._collector
        message = await super().receive()
        if message is not None and home.cut_answer(message):
            raise CallFailedError("unavailable")
        return None if message is None else home.told(message)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def made(collector: InMemoryCollector, folder: Path, **settings: Any) -> TelemetryClient:
    return collector.client(folder, **({"allow_direct": True} | settings))


def seal(client: TelemetryClient, clock: FakeClock, periods: int = 1) -> None:
    """So many reports of ended periods wait; their upload window is over."""
    for _ in range(periods):
        client.record("cold_start_ms", 812)
        client.flush(seal=True)
        clock.advance(DAY_S)


def waiting(
    folder: Path, clock: FakeClock, periods: int = 1, *, plan: Plan = DIRECT, **settings: Any
) -> tuple[Calls, TelemetryClient]:
    """A collector, and a client of it with so many reports that wait."""
    collector = Calls(plan, clock=clock)
    client = made(collector, folder, **settings)
    seal(client, clock, periods)
    return collector, client


def upload(client: TelemetryClient, **more: Any) -> UploadSummary:
    return asyncio.run(client.upload(**more))


def exported(client: TelemetryClient) -> Ledger:
    return read_ledger(client.export_ledger())


# --- permission -------------------------------------------------------------------------------------


def test_without_permission_a_direct_plan_is_refused_at_the_start(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Calls(DIRECT, clock=clock)
    with caplog.at_level("WARNING", "ldp_telemetry"):
        client = made(collector, tmp_path / "d", allow_direct=False)
    refused = "plan: refused (direct_not_allowed); nothing is recorded: where its reports may leave unmasked, pass "
    assert f"{refused}allow_direct=True" in caplog.text
    client.record("cold_start_ms", 812)
    clock.advance(2 * DAY_S)
    assert not client.flush(seal=True), "nothing was sealed, and nothing will be"
    assert upload(client).as_dict() == {"counted": 0, "already_counted": 0, "waiting": 0}
    # the plan, and the reading
    assert client.counters() == {"direct_not_allowed": 2}
    assert client.history() == []
    assert collector.streams == []
    assert client.spent().lifetime_micro == 0


def test_permission_is_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="allow_direct: must be True or False, not str"):
        made(Calls(DIRECT), tmp_path, allow_direct="yes")


def test_a_fetched_direct_plan_needs_permission_too(tmp_path: Path, clock: FakeClock) -> None:
    collector = Calls(DIRECT, clock=clock)
    client = made(collector, tmp_path / "no", plan=None, allow_direct=False)
    upload(client)
    assert client.counters()["direct_not_allowed"] == 1
    client.record("cold_start_ms", 1)
    assert client.counters()["no_plan"] == 1
    assert not client.flush(seal=True), "as for a plan that was given"
    allowed = made(collector, tmp_path / "yes", plan=None)
    upload(allowed)
    assert allowed.flush()
    seal(allowed, clock)
    assert upload(allowed).counted == 1, "min_cohort, 50 for a fetched plan, is about cohorts"
    allowed.close()
    # the next release of the app takes the permission back: what was fetched is not held any more
    again = made(collector, tmp_path / "yes", plan=None, allow_direct=False)
    again.record("cold_start_ms", 1)
    assert again.counters()["direct_not_allowed"] == again.counters()["no_plan"] == 1


def test_a_held_plan_that_turns_direct_is_taken_only_with_permission(tmp_path: Path, clock: FakeClock) -> None:
    cohorts = {"min_size": 50, "target_size": 200}
    interactive, direct = plan_of("", **cohorts), plan_of('delivery = "direct"', version=2, **cohorts)
    for folder, allowed, name in (("no", False, 1), ("yes", True, 2)):
        collector = Calls(interactive, clock=clock)
        client = made(collector, tmp_path / folder, plan=None, allow_direct=allowed)
        upload(client)
        seal(client, clock)
        collector.plan = direct
        clock.advance(3600)
        upload(client)  # the report's plan is not served any more: asked again for a newer one
        clock.advance(DAY_S)
        client.flush()
        assert client._engine.recorder.plan is not None
        assert client._engine.recorder.plan.version == name
        assert client.counters().get("direct_not_allowed", 0) == (not allowed)


def test_a_report_that_waits_since_it_was_allowed_stays_here_until_it_is_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    collector = Calls(DIRECT, clock=clock)
    first = made(collector, tmp_path / "d", max_epsilon_lifetime=ONE)
    seal(first, clock)
    first.close()
    # another plan, no permission: the old report neither leaves unmasked nor by a round, which could not take it
    second = made(
        collector, tmp_path / "d", plan=plan_of("", name="other"), allow_direct=False, max_epsilon_lifetime=ONE
    )
    summary = upload(second)
    assert (summary.waiting, summary.failed) == (1, {"direct_not_allowed": 1})
    assert (collector.streams, collector.rounds) == ([], 0)
    assert summary.next_attempt_at is not None
    assert clock() < summary.next_attempt_at, "not tried in a loop"
    second.close()
    third = made(collector, tmp_path / "d", max_epsilon_lifetime=ONE)
    assert upload(third).counted == 1


# --- fallback ---------------------------------------------------------------------------------------


def test_a_report_falls_back_when_its_time_has_come(tmp_path: Path, clock: FakeClock) -> None:
    """By then a round is tried; the collector here counts at once, so the round's end is a lost connection."""
    collector = Calls(FALLBACK, clock=clock)
    client = made(collector, tmp_path / "d", max_epsilon_lifetime=ONE)
    client.record("cold_start_ms", 812)
    client.flush(seal=True)
    end = FALLBACK.period_start(clock()) + DAY_S

    def lost(step: str) -> None:
        raise CallFailedError("unavailable")

    for at, direct in ((end, 0), (end + 2 * DAY_S - 1, 0), (end + 2 * DAY_S, 1)):
        clock.now = at
        tried = collector.rounds
        assert upload(client, before_send=lost).counted == 0
        assert (len(collector.streams), collector.rounds - tried) == (direct, 1 - direct)
    assert upload(client).counted == 1
    assert collector.reports[0].delivery == "direct"
    (entry,) = exported(client).entries
    assert (entry.delivery, entry.falls_back, entry.left_device) == ("direct", "direct", True)


def test_without_permission_nothing_falls_back(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, plan=FALLBACK, allow_direct=False)
    clock.advance(4 * DAY_S)
    assert upload(client).counted == 1
    assert (collector.streams, collector.rounds) == ([], 1)
    assert exported(client).entries[0].delivery == "interactive"


def test_a_report_that_may_be_in_a_round_says_so_when_it_falls_back(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, plan=FALLBACK, max_epsilon_lifetime=ONE)

    def after_the_masked_input(step: str) -> None:
        if step == "confirm":
            raise CallFailedError("unavailable")

    upload(client, before_send=after_the_masked_input)
    clock.advance(3 * DAY_S)
    assert upload(client).counted == 1
    (report,) = collector.reports
    assert (report.delivery, report.resent) == ("direct", True)
    assert (client.history()[0].resent, client.history()[0].delivery) == (True, "direct")


# --- one call ---------------------------------------------------------------------------------------


def test_all_due_reports_leave_in_one_call_and_are_the_spools_bytes(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 3)
    spooled = client.preview().waiting
    assert upload(client).as_dict() == {"counted": 3, "already_counted": 0, "waiting": 0}
    assert len(collector.streams) == 1
    assert collector.steps == ["DirectHello", "DirectOffer", *["DirectPiece"] * 3, "DirectSeal"]
    sent = [message.data for message in collector.streams[0] if isinstance(message, DirectPiece)]
    assert sent == [report.report for report in spooled]
    counted = [[n for values in report.elements.values() for n in values] for report in collector.reports]
    assert counted == [list(report.elements) for report in spooled]
    assert {entry.outcome for entry in client.history()} == {"counted"}
    assert {k: v for k, v in client.counters().items() if "counted" in k} == {"counted": 3, "counted_direct": 3}


def test_more_than_a_call_takes_leaves_in_several(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 3)
    monkeypatch.setattr("client_sdk.device.direct_calls.MAX_DIRECT_REPORTS", 2)
    assert upload(client).counted == 3
    offers = [m for stream in collector.streams for m in stream if isinstance(m, DirectOffer)]
    assert [len(offer.plan_hashes) for offer in offers] == [2, 1]


def test_each_call_asks_first_whether_the_lease_is_still_young(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 3)
    monkeypatch.setattr(direct_calls, "MAX_DIRECT_REPORTS", 1)

    def late(message: DeliverRequest) -> bool:
        if isinstance(message, DirectSeal):
            monkeypatch.setattr(direct_calls, "LEASE_S", -1.0)
        return False

    collector.cut = late
    assert upload(client).as_dict() == {"counted": 1, "already_counted": 0, "waiting": 2}
    assert len(collector.streams) == 1, "the rest is for the next pass"
    assert hand_overs(client) == (0, 0)
    monkeypatch.setattr(direct_calls, "LEASE_S", 1800.0)
    collector.cut = lambda message: False
    assert upload(client).counted == 2


def test_no_round_begins_in_a_pass_that_is_late(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2, plan=FALLBACK)
    monkeypatch.setattr(direct_calls, "LEASE_S", -1.0)
    assert upload(client).waiting == 2
    assert (collector.streams, collector.rounds) == ([], 0)


def test_direct_reports_and_rounds_share_a_pass(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 4, plan=FALLBACK)
    assert upload(client).counted == 4
    assert sorted(report.delivery for report in collector.reports) == ["direct"] * 2 + ["interactive"] * 2
    assert (len(collector.streams), collector.rounds) == (1, 2)


def test_nothing_of_a_report_leaves_before_the_collectors_total_is_known(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)
    packed = [report.report for report in client.preview().waiting]
    seen: list[tuple[int, ...]] = []

    def standing(message: DeliverResponse) -> bool:
        if isinstance(message, DirectStanding):
            seen.append(hand_overs(client))
            assert collector.steps == ["DirectHello", "DirectOffer"]
            offered = b"".join(map(DELIVER_METHOD.request_to_wire, collector.streams[-1]))
            for report in packed:
                assert report[1:17] not in offered
                assert sha256(report).digest()[:16] not in offered, "which a short report could be guessed from"
        return False

    collector.cut_answer = standing
    assert upload(client).counted == 2
    assert seen == [(0, 0)]


def hand_overs(client: TelemetryClient, column: str = "direct_hand_overs") -> tuple[int, ...]:
    with sqlite3.connect(client._engine.access.store().path) as db:
        db.row_factory = sqlite3.Row
        rows = db.execute("SELECT * FROM spool ORDER BY period_start").fetchall()
    db.close()
    return tuple(row[column] for row in rows)


def test_handed_over_is_on_the_disk_before_the_first_byte(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)
    seen: list[tuple[int, ...]] = []
    collector.cut = lambda message: bool(isinstance(message, DirectPiece) and seen.append(hand_overs(client)))
    assert upload(client).counted == 2
    assert seen == [(1, 1), (1, 1)]


# --- what breaks off --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [DirectHello, DirectOffer, DirectPiece, DirectSeal])
def test_a_call_that_breaks_is_made_again_with_the_same_bytes(
    tmp_path: Path, clock: FakeClock, step: type[DeliverRequest]
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)
    before = [report.report for report in client.preview().waiting]
    collector.cut = lambda message: isinstance(message, step)
    summary = upload(client)
    assert (summary.waiting, summary.failed) == (2, {"rpc_unavailable": 2})
    left = step in (DirectPiece, DirectSeal)
    assert hand_overs(client) == (int(left),) * 2
    assert {entry.delivery for entry in exported(client).entries} == {"direct" if left else "interactive"}
    assert {entry.failed_but_spent for entry in exported(client).entries} == {left}
    collector.cut = lambda message: False
    clock.advance(3600)
    assert upload(client).counted == 2
    assert {report.resent for report in collector.reports} == {left}
    assert [m.data for m in collector.streams[-1] if isinstance(m, DirectPiece)] == before
    assert {entry.resent for entry in exported(client).entries} == {left}


def test_a_lost_receipt_is_found_again_and_nothing_is_counted_twice(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2, max_epsilon_lifetime=2 * ONE)
    collector.cut_answer = lambda message: isinstance(message, DirectReceipts)
    assert upload(client).waiting == 2
    assert len(collector.reports) == 2
    client.close()
    again = made(
        collector, tmp_path / "d", max_epsilon_lifetime=2 * ONE
    )  # the process ended between hand-over and receipt
    collector.cut_answer = lambda message: False
    clock.advance(3600)
    assert upload(again).as_dict() == {"counted": 0, "already_counted": 2, "waiting": 0}
    assert len(collector.reports) == 2
    assert collector.steps == ["DirectHello", "DirectOffer"], "nobody wanted them"
    assert {(e.outcome, e.delivery, e.falls_back) for e in exported(again).entries} == {
        ("already_counted", "direct", "direct")
    }


def test_resend_never_gives_up_what_may_have_left(tmp_path: Path, clock: FakeClock) -> None:
    plan = plan_of('delivery = "direct"\nresend = "never"')
    collector, client = waiting(tmp_path / "d", clock, plan=plan)
    collector.cut = lambda message: isinstance(message, DirectSeal)
    upload(client)
    collector.cut = lambda message: False
    clock.advance(3600)
    assert upload(client).failed == {"resend_never": 1}
    assert (client.history()[0].outcome, client.history()[0].delivery) == ("resend_never", "direct")
    assert exported(client).entries[0].failed_but_spent


def test_a_failure_backs_off_and_expires_like_any_other(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock)
    collector.reachable = False
    for attempt in range(3):
        assert upload(client).failed == {"rpc_unavailable": 1}
        assert hand_overs(client, "attempts") == (attempt + 1,)
    clock.advance(8 * DAY_S)
    assert upload(client).waiting == 0
    assert client.history()[0].outcome == "expired"


@pytest.mark.parametrize(
    ("word", "reason", "lasts"),
    [
        ("busy", "direct_busy", False),
        ("duplicate_identity", "direct_duplicate_identity", False),
        ("implausible_report", "direct_implausible_report", True),
        ("blamed", "direct_blamed", True),
        ("invented_by_somebody", "direct_other", True),
    ],
)
def test_a_refusal_of_one_report_is_counted_by_its_reason_and_backs_off(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, word: str, reason: str, lasts: bool
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)

    def refused(message: DeliverResponse) -> DeliverResponse:
        if not isinstance(message, DirectReceipts):
            return message
        return DirectReceipts(("counted", word), ("memory", ""), (1, 0))

    collector.told = refused
    drawn: list[float] = []
    monkeypatch.setattr(booking, "uniform", lambda below, entropy: drawn.append(below) or below)
    summary = upload(client)
    assert (summary.counted, summary.failed) == (1, {reason: 1})
    assert drawn == [512.0 if lasts else 2.0]
    assert summary.next_attempt_at == clock() + drawn[0]


def test_an_unknown_plan_has_a_fetched_one_asked_for_again(tmp_path: Path, clock: FakeClock) -> None:
    collector = Calls(DIRECT, clock=clock)
    client = made(collector, tmp_path / "d", plan=None)
    upload(client)
    seal(client, clock)
    collector.plan = plan_of('delivery = "direct"', version=2)
    clock.advance(3600)
    assert upload(client).failed == {"direct_unknown_plan": 1}
    clock.advance(DAY_S)
    client.flush()
    assert client._engine.recorder.plan == collector.plan


def test_a_call_that_crawls_ends_as_one_although_each_piece_is_quick_enough(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 6)
    monkeypatch.setattr(direct_module, "STEP_ALLOWANCE_S", 0.5)
    collector.piece_s = 0.2
    assert upload(client).failed == {"timeout": 6}
    assert "DirectSeal" not in collector.steps
    assert hand_overs(client) == (1,) * 6
    assert collector.reports == []


def test_the_reports_of_a_call_have_the_time_that_a_collector_gives_their_bytes(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = waiting(tmp_path / "d", clock, 3)
    total = sum(len(report.report) for report in client.preview().waiting)
    given: list[float | None] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: given.append(seconds) or timeout(seconds))
    assert upload(client).counted == 3
    assert total > 0
    assert given[-3:] == [15.0, 60.0 + total / 32768, 60.0]


def test_a_failed_call_is_one_transaction_however_many_reports_it_had(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = store_base.transaction, list[Any]()

    def counted(*arguments: Any) -> Any:
        begun.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(store_base, "transaction", counted)
    taken: list[int] = []
    for periods in (1, 4):
        collector, client = waiting(tmp_path / str(periods), clock, periods)
        collector.cut = lambda message: True
        begun.clear()
        assert upload(client).failed == {"rpc_unavailable": periods}
        taken.append(len(begun))
        assert client.counters()["rpc_unavailable"] == periods
        assert hand_overs(client, "attempts") == (1,) * periods
    assert taken[0] == taken[1]


def test_a_collector_out_of_reach_holds_everything_back_until_one_draw_whatever_the_others_are(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 3)
    collector.cut = lambda message: True
    draws = iter([3.0, 1.0, 9.0])
    monkeypatch.setattr(booking, "uniform", lambda below, entropy: next(draws))
    assert upload(client).next_attempt_at == clock() + 3.0
    assert hand_overs(client, "not_before") == (clock() + 3.0, clock() + 3.0, clock() + 9.0)


# --- a collector that lies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers",
    [
        DirectStanding(0, 0, ("wanted",), ("",), (0,)),
        DirectStanding(0, 0, ("wanted",) * 3, ("",) * 3, (0,) * 3),
        DirectStanding(0, 0, ("already_counted", "wanted"), ("", ""), (0, 0)),
        DirectStanding(0, 0, ("already_counted", "wanted"), ("r", ""), (0, 0)),
        DirectReceipts(("counted", "counted"), ("r", "r"), (2, 2)),
    ],
    ids=["too few answers", "too many", "counted in no sum", "in a sum of nobody", "the receipts at once"],
)
def test_a_standing_that_cannot_be_ends_the_call_before_anything_leaves(
    tmp_path: Path, clock: FakeClock, answers: DeliverResponse
) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)
    collector.told = lambda message: answers if isinstance(message, DirectStanding) else message
    summary = upload(client)
    assert (summary.counted, summary.waiting) == (0, 2)
    assert set(summary.failed) <= {"left_malformed", "left_out_of_order"}
    assert hand_overs(client) == (0, 0)
    assert "DirectPiece" not in collector.steps


def test_what_was_not_sent_cannot_be_counted_and_what_was_sent_is_not_wanted(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)

    def lie(message: DeliverResponse) -> DeliverResponse:
        if isinstance(message, DirectStanding):
            return DirectStanding(0, 0, ("counted", "wanted"), ("r", ""), (9, 0))
        return (
            DirectReceipts(("counted", "wanted"), ("r", ""), (9, 0)) if isinstance(message, DirectReceipts) else message
        )

    collector.told = lie
    summary = upload(client)
    assert (summary.counted, summary.failed) == (0, {"direct_withheld": 1, "direct_other": 1})
    assert hand_overs(client) == (0, 1)


def test_silence_ends_the_call(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock)
    collector.told = lambda message: None
    assert upload(client).failed == {"left_out_of_order": 1}
    assert hand_overs(client) == (0,)


# --- restored backups, consent, caps ----------------------------------------------------------------


def test_a_restored_backup_is_caught_before_a_report_leaves(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    collector, client = waiting(tmp_path / "d", clock)
    shutil.copytree(tmp_path / "d", tmp_path / "backup")
    seal(client, clock)
    assert upload(client).counted == 2
    client.close()
    shutil.rmtree(tmp_path / "d")
    (tmp_path / "backup").rename(tmp_path / "d")
    restored = made(collector, tmp_path / "d")
    seal(restored, clock)
    pieces = sum(isinstance(message, DirectPiece) for stream in collector.streams for message in stream)
    summary = upload(restored)
    assert summary.failed == {"ledger_damaged": 1}
    after = sum(isinstance(message, DirectPiece) for stream in collector.streams for message in stream)
    assert (after, len(collector.reports)) == (pieces, 2)
    assert restored.spent().damaged == "the collector has booked more than the ledger holds"
    assert restored.spent().left_lifetime == 0
    # the two that the collector has, and the two that this folder knows to have stayed here; and these may have left
    # in the life that it does not remember
    with caplog.at_level("INFO", "ldp_telemetry"):
        assert restored.reset_ledger() == 4 * ONE
    assert caplog.messages[-2:] == [
        "ledger: the collector has booked more for this identity than the ledger holds; the budget counts as used up "
        "until reset_ledger()",
        "ledger: works again",
    ]
    clock.advance(DAY_S)
    upload(restored)
    assert {report.period_start: report.resent for report in collector.reports}[
        DIRECT.period_start(clock() - 2 * DAY_S)
    ]


@pytest.mark.parametrize("delivery", ["", 'delivery = "direct"'], ids=["by a round", "direct"])
def test_the_total_of_an_identity_that_is_left_meanwhile_damages_nothing(
    tmp_path: Path, clock: FakeClock, delivery: str
) -> None:
    collector, client = waiting(tmp_path / "d", clock, plan=plan_of(delivery))
    assert upload(client).counted == 1
    seal(client, clock)

    def leave(step: str) -> None:
        if step.endswith("hello"):
            another = made(collector, tmp_path / "d")  # another process of the same app
            another.opt_out()
            another.opt_in(enrolment_token="any")
            another.close()

    upload(client, before_send=leave)
    assert client.spent().damaged is None
    assert len(collector.reports) == 1
    client.close()


def test_withdrawn_consent_stops_a_call_on_its_way(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)

    def withdraw(message: DeliverRequest) -> bool:
        if isinstance(message, DirectPiece):
            client.consent(False)
        return False

    collector.cut = withdraw
    assert upload(client).counted == 0
    assert collector.steps == ["DirectHello", "DirectOffer", "DirectPiece"]
    assert collector.reports == []
    assert {entry.outcome for entry in client.history()} == {"no_consent"}


def test_what_left_the_spool_meanwhile_is_not_sent(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock, 2)

    def given_up(message: DeliverResponse) -> bool:
        if isinstance(message, DirectStanding):
            with sqlite3.connect(client._engine.access.store().path) as db:
                db.execute("DELETE FROM spool WHERE period_start = (SELECT min(period_start) FROM spool)")
            db.close()
        return False

    collector.cut_answer = given_up
    summary = upload(client)
    assert (summary.counted, summary.failed, summary.waiting) == (1, {"direct_withheld": 1}, 0)
    assert [message.place for message in collector.streams[-1] if isinstance(message, DirectPiece)] == [1]


def test_an_opted_out_identity_is_refused_for_good(tmp_path: Path, clock: FakeClock) -> None:
    collector, client = waiting(tmp_path / "d", clock)
    device_id = client.device_id
    assert device_id is not None
    collector.forgotten.add(device_id)
    assert upload(client).failed == {"rpc_permission_denied": 1}
    assert hand_overs(client) == (0,)


def test_the_budget_and_the_spools_caps_hold(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Calls(DIRECT, clock=clock)
    client = made(collector, tmp_path / "d", max_epsilon_lifetime=6)
    monkeypatch.setattr("client_sdk.device.spool.MAX_REPORTS", 2)
    seal(client, clock, 5)
    assert upload(client).counted == 2
    counted = {k: v for k, v in client.counters().items() if k in ("sealed", "spool_full", "budget_lifetime")}
    assert counted == {"sealed": 3, "spool_full": 1, "budget_lifetime": 2}


# --- what the host is shown -------------------------------------------------------------------------


def test_a_preview_says_that_the_collector_sees_the_report(tmp_path: Path, clock: FakeClock) -> None:
    for plan, bare, masked in ((DIRECT, True, False), (FALLBACK, True, True), (plan_of(""), False, True)):
        shown = made(Calls(plan, clock=clock), tmp_path / plan.hash.hex()).preview().as_text()
        assert ("the collector sees this very report" in shown, "is masked modulo" in shown) == (bare, masked)


def test_limits_on_cohorts_do_not_warn_about_a_plan_without_any(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "ldp_telemetry"):
        made(Calls(DIRECT, clock=clock), tmp_path / "d", min_cohort=1000)
    assert caplog.text == ""
