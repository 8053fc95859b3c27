"""Rounds over real gRPC and real SQLite: exact sums with dropouts at each step, or a clean abort."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from pathlib import Path

import grpc
import pytest

from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import (
    AlreadyCounted,
    ComeBack,
    MaskedInputPiece,
    ParticipantMessage,
    Receipt,
    RoundAborted,
)
from collector.service.storage_rows import Contributor, Release
from tests.integration.participants import Device, collector, two_number_plan, until

SIX = two_number_plan(min_size=3, target_size=6, max_wait="30s")  # all six, on a slow machine too
FIVE = two_number_plan(min_size=3, target_size=5)  # threshold 3


def fleet(count: int, plan: Plan = FIVE) -> list[Device]:
    """Device i reports [i, 10 * i], counted from 1."""
    return [Device([i, 10 * i], plan) for i in range(1, count + 1)]


async def test_everybody_stays(tmp_path: Path) -> None:
    async with collector(tmp_path, SIX) as running:
        devices = fleet(6, SIX)
        ended = await running.upload(*devices)
        assert running.sums() == [([21, 210], 6)]
        (record,) = running.service.store.rounds()
        assert [one.outcome for one in ended] == [Receipt(record.round_id, 6, 6)] * 6
        assert (record.joined, record.contributors, record.outcome, record.reason) == (6, 6, "released", None)
        assert sum(record.dropouts.values()) == 0
        assert 0 < record.seconds < 5
        assert {row.device_id for row in running.service.store.contributions()} == {
            d.identity.device_id for d in devices
        }
        counts = running.service.monitor.snapshot()
        assert counts["rounds.released"] == 1
        assert counts["joins"] == counts["contributors"] == 6
        assert not any(name.startswith(("rejections", "aborts")) for name in counts)


STEPS = ("shares", "masked_input", "confirm", "unmask")


@pytest.mark.parametrize("silent", [False, True], ids=["leaves", "silent"])
@pytest.mark.parametrize("lost_before", list(itertools.combinations_with_replacement(STEPS, 2)), ids="-".join)
async def test_two_of_six_drop_out(tmp_path: Path, lost_before: tuple[str, str], silent: bool) -> None:
    """The sum is exact over those whose masked input is in; whoever can be answered is."""
    async with collector(tmp_path, SIX, step_timeout_s=0.4 if silent else 5.0) as running:
        devices = fleet(6, SIX)
        how = "silent_before" if silent else "leave_before"
        jobs = [d.upload(running.address, **{how: step}) for d, step in zip(devices, lost_before, strict=False)]
        jobs += [device.upload(running.address) for device in devices[2:]]
        ended = await asyncio.gather(*jobs)
        counted = [
            d for d, step in itertools.zip_longest(devices, lost_before) if step not in {"shares", "masked_input"}
        ]
        assert running.sums() == [
            ([sum(d.vector[0] for d in counted), sum(d.vector[1] for d in counted)], len(counted))
        ]
        (record,) = running.service.store.rounds()
        assert record.dropouts == {step: lost_before.count(step) for step in STEPS}
        assert all(one.outcome == Receipt(record.round_id, len(counted), 6) for one in ended[2:])
        if silent:
            assert {one.code for one in ended[:2]} == {grpc.StatusCode.DEADLINE_EXCEEDED}


# case D02
async def test_below_the_threshold_everybody_waiting_is_told_and_nothing_is_stored(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE, step_timeout_s=2.0) as running:
        devices = fleet(5)
        started = time.monotonic()
        ended = await asyncio.gather(
            *(device.upload(running.address) for device in devices[:2]),
            *(device.upload(running.address, silent_before="masked_input") for device in devices[2:]),
        )
        assert time.monotonic() - started < 5
        assert [one.outcome for one in ended[:2]] == [RoundAborted("too_few_survivors", have=2, need=3)] * 2
        assert [one.code for one in ended[2:]] == [grpc.StatusCode.DEADLINE_EXCEEDED] * 3
        assert running.sums() == []
        assert running.service.store.contributions() == []
        await until(lambda: running.service.store.rounds() != [])
        (record,) = running.service.store.rounds()
        assert (record.outcome, record.reason) == ("aborted", "too_few_survivors")
        assert running.service.monitor.snapshot()["aborts.too_few_survivors"] == 1
        # nothing is lost: the same devices come again, and are counted once
        again = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in again)
        assert running.sums() == [([15, 150], 5)]


async def test_when_everybody_leaves_the_round_ends_at_once(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE, step_timeout_s=30.0) as running:
        devices = fleet(5)
        await asyncio.gather(*(device.upload(running.address, leave_before="shares") for device in devices))
        await until(lambda: running.service.store.rounds() != [])
        assert running.service.store.rounds()[0].outcome == "aborted"


async def test_a_round_that_cannot_succeed_any_more_ends_at_once(tmp_path: Path) -> None:
    """Three of five left, one is silent: nobody waits for its deadline."""
    async with collector(tmp_path, FIVE, step_timeout_s=30.0) as running:
        devices = fleet(5)
        started = time.monotonic()
        ended = await asyncio.gather(
            devices[0].upload(running.address),
            devices[1].upload(running.address, silent_before="masked_input"),
            *(device.upload(running.address, leave_before="masked_input") for device in devices[2:]),
        )
        assert time.monotonic() - started < 10
        assert [one.outcome.reason for one in ended[:2]] == ["too_few_survivors"] * 2


async def test_a_sum_with_a_device_that_another_replica_counted_is_not_stored(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(5)
        first = devices[0]
        elsewhere = Release(
            round_id="elsewhere",
            plan=FIVE,
            period_start=first.period_start,
            totals=[3, 30],
            contributors=[
                Contributor(identity.device_id, identity.report_id(FIVE.name, first.period_start), resent=False)
                for identity in (first.identity, IdentityKey(bytes(32)), IdentityKey(bytes([1] * 32)))
            ],
            roster_size=3,
            resent=0,
            dropouts=dict.fromkeys(STEPS, 0),
            seconds=1.0,
            now=time.time(),
        )

        def count_elsewhere(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "unmask":
                running.service.store.store_release(elsewhere)
            return message

        jobs = [first.upload(running.address, on_message=count_elsewhere)]
        jobs += [device.upload(running.address) for device in devices[1:]]
        ended = await asyncio.gather(*jobs)
        assert [one.outcome.reason for one in ended] == ["not_stored"] * 5
        await until(lambda: len(running.service.store.rounds()) == 2)
        assert {(record.outcome, record.reason) for record in running.service.store.rounds()} == {
            ("released", None),
            ("aborted", "not_stored"),
        }
        assert running.sums() == [([3, 30], 3)]
        again = await running.upload(*devices)
        assert again[0].outcome == AlreadyCounted("elsewhere", 3)
        assert all(isinstance(one.outcome, Receipt) for one in again[1:])
        assert sorted(running.sums()) == [([3, 30], 3), ([14, 140], 4)]


async def test_a_worker_that_died_is_replaced(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(5)
        killed: set[int | None] = set()

        def kill(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "unmask":
                for worker in multiprocessing.active_children():
                    worker.kill()
                    killed.add(worker.pid)
            return message

        ended = await asyncio.gather(
            devices[0].upload(running.address, on_message=kill),
            *(device.upload(running.address) for device in devices[1:]),
        )
        assert killed
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert running.sums() == [([15, 150], 5)]


# case D04
async def test_second_stream_of_an_identity_is_refused_and_the_first_is_counted(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(5)
        twin = Device([300, 3000], FIVE, identity=devices[2].identity)
        early = [asyncio.create_task(device.upload(running.address)) for device in devices[:4]]
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 4)
        refused = await twin.upload(running.address)
        assert refused.code is grpc.StatusCode.ALREADY_EXISTS
        assert refused.joined is None, "a second stream hears nothing about the identity"
        await devices[4].upload(running.address)
        assert all(isinstance(one.outcome, Receipt) for one in await asyncio.gather(*early))
        assert running.sums() == [([15, 150], 5)]
        assert running.service.monitor.snapshot()["rejections.duplicate_identity"] == 1


async def test_a_stream_that_broke_gives_its_place_back(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(5)
        first = asyncio.create_task(devices[0].upload(running.address))
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: running.service.monitor.snapshot()["streams.open"] == 0)
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)


async def test_a_report_that_may_be_in_a_sum_cannot_enter_a_second_round(tmp_path: Path) -> None:
    """A device that left after its masked input keeps its seat until that sum is stored, then hears of it."""
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(5)
        gate, left = asyncio.Event(), asyncio.Event()

        async def hold(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "confirm":
                await gate.wait()
            return message

        def leave(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "confirm":
                left.set()
            return message

        others = [asyncio.create_task(device.upload(running.address, on_message=hold)) for device in devices[1:]]
        await devices[0].upload(running.address, leave_before="confirm", on_message=leave)
        await until(lambda: running.service.monitor.snapshot()["streams.open"] == 4)
        early = await devices[0].upload(running.address)
        assert early.code is grpc.StatusCode.ALREADY_EXISTS
        gate.set()
        await asyncio.gather(*others)
        late = await devices[0].upload(running.address)
        assert isinstance(late.outcome, AlreadyCounted)
        assert running.sums() == [([15, 150], 5)]


# case D05
async def test_a_masked_input_sent_twice_or_in_another_round_changes_nothing(tmp_path: Path) -> None:
    plans = FIVE, two_number_plan(min_size=3, target_size=5, name="second")
    async with collector(tmp_path, *plans) as running:
        kept: list[ParticipantMessage] = []

        def keep(step: str, message: ParticipantMessage) -> list[ParticipantMessage]:
            """The masked vector twice in its own step, and once more in each of the next two."""
            if step == "masked_input":
                kept.append(message)
            return [message, *kept]

        identities = [device.identity for device in fleet(5)]
        first = [Device([i + 1, 10 * (i + 1)], plans[0], identity=identity) for i, identity in enumerate(identities)]
        await asyncio.gather(
            *(device.upload(running.address, on_message=keep if i == 1 else None) for i, device in enumerate(first))
        )
        assert running.sums() == [([15, 150], 5)]
        assert running.service.monitor.snapshot()["rejections.already_received"] == 3
        # Round 2: a masked vector goes with keys, and keys with an advert that is bound to its stream's nonce.
        adverts: list[ParticipantMessage] = []

        def keep_advert(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if step == "join":
                adverts.append(message)
            return message

        second = [Device([i + 1, 10 * (i + 1)], plans[1], identity=identity) for i, identity in enumerate(identities)]
        victim = asyncio.create_task(second[1].upload(running.address, on_message=keep_advert))
        await until(lambda: bool(adverts))
        thief = await second[1].upload(
            running.address, on_message=lambda step, message: adverts[0] if step == "join" else message
        )
        assert thief.code is grpc.StatusCode.UNAUTHENTICATED
        await running.upload(*(device for i, device in enumerate(second) if i != 1))
        assert isinstance((await victim).outcome, Receipt)
        assert running.sums() == [([15, 150], 5)] * 2


# case D11
async def test_different_plans_never_share_a_round(tmp_path: Path) -> None:
    plans = [
        two_number_plan(min_size=2, target_size=3, version=1),
        two_number_plan(min_size=2, target_size=2, version=2),
    ]
    async with collector(tmp_path, *plans) as running:
        devices = [Device([i, 10 * i], plans[0] if i <= 3 else plans[1]) for i in range(1, 6)]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert sorted(running.sums()) == [([6, 60], 3), ([9, 90], 2)]
        by_plan = {record.plan_hash: record.contributors for record in running.service.store.rounds()}
        assert by_plan == {plans[0].hash: 3, plans[1].hash: 2}
        stranger = Device([1, 10], two_number_plan(min_size=2, target_size=2, version=3))
        refused = await stranger.upload(running.address)
        assert refused.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_repeat_is_answered_already_counted_over_all_versions(tmp_path: Path) -> None:
    newer = two_number_plan(min_size=3, target_size=5, version=2)
    async with collector(tmp_path, FIVE, newer) as running:
        devices = fleet(5)
        first = await running.upload(*devices)
        assert all(one.joined is not None and one.joined.reports == 0 for one in first)
        (record,) = running.service.store.rounds()
        upgraded = Device([7, 70], newer, identity=devices[1].identity)
        for device in (devices[0], upgraded):
            again = await device.upload(running.address)
            assert again.outcome == AlreadyCounted(record.round_id, 5)
            assert again.joined is not None
            assert (again.joined.reports, again.joined.spent_micro_epsilon) == (1, FIVE.report_micro_epsilon)
        assert running.sums() == [([15, 150], 5)]


async def test_too_few_are_sent_away_to_the_same_time(tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet(2)
        now = time.time()
        ended = await running.upload(*devices)
        answers = {one.outcome for one in ended}
        assert len(answers) == 1
        (answer,) = answers
        assert isinstance(answer, ComeBack)
        assert now < answer.at <= now + FIVE.upload_window_s / 12 + 1
        assert running.service.store.rounds() == []
        assert running.service.monitor.snapshot()["come_back"] == 2


async def test_a_known_fleet_does_not_wait_for_more(tmp_path: Path) -> None:
    """With expected devices a remainder joins the last cohort and nobody waits out `max_wait`."""
    plan = two_number_plan(min_size=3, target_size=4)
    async with collector(tmp_path, plan, expected_devices=10) as running:
        devices = fleet(10, plan)
        started = time.monotonic()
        ended = await running.upload(*devices)
        assert time.monotonic() - started < 2
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert sorted(record.joined for record in running.service.store.rounds()) == [4, 6]


# case D10
async def test_vectors_of_more_than_100_000_elements_travel_in_pieces(tmp_path: Path) -> None:
    labels = ", ".join(f'"c{i}"' for i in range(99_999))
    text = two_number_plan(min_size=3, target_size=3, name="long").text.partition("[metrics.a]")[0]
    text += f'[metrics.c]\nkind = "categorical"\ncategories = [{labels}]\nother = "o"\nepsilon = 1.0\n'
    text += '[metrics.n]\nkind = "numeric"\nlower = 0\nupper = 1\nlevels = 1048576\nepsilon = 1.0\n'  # 32 bits
    plan = parse_plan(text)
    assert plan.length == 100_001
    async with collector(tmp_path, plan) as running:
        rows = [(0, 5), (0, 6), (99_999, 1_000_000)]
        devices = [Device([*(int(i == cell) for i in range(100_000)), number], plan) for cell, number in rows]
        pieces: list[int] = []

        def note(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if isinstance(message, MaskedInputPiece):
                pieces.append(message.offset)
            return message

        jobs = [device.upload(running.address, on_message=note if i == 0 else None) for i, device in enumerate(devices)]
        ended = await asyncio.gather(*jobs)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert len(pieces) == 2
        ((totals, contributors),) = running.sums()
        assert contributors == 3
        assert (totals[0], totals[99_999], totals[100_000], sum(totals[:100_000])) == (2, 1, 1_000_011, 3)
