"""What the service refuses, with which status, and that it costs nobody else anything."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk.errors import RejectionReason
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from client_sdk.secagg.messages import Advert, Confirm, MaskedInputPiece, ParticipantMessage, Receipt
from client_sdk.secagg.parameters import PIECE_BYTES
from client_sdk.wire.messages import GetPlanRequest
from client_sdk.wire.methods import GET_PLAN_METHOD, PARTICIPATE_METHOD
from collector.service.statuses import STATUS
from collector.service.storage import CollectorStore, Question, Standing
from tests.fleet import certified
from tests.integration.participants import Device, Running, collector, two_number_plan, until

PLAN = two_number_plan(min_size=2, target_size=3)


def trio() -> list[Device]:
    return [Device([i, 10 * i], PLAN) for i in (1, 2, 3)]


async def raw_stream(address: str, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """Send bytes as they are, then wait for the end."""
    async with aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(PARTICIPATE_METHOD.path)()
        for message in messages:
            await call.write(message)
        return await call.code(), await call.details()


async def read_to_the_end(call: Any) -> None:
    while await call.read() is not aio.EOF:
        pass


def test_every_reason_has_a_status() -> None:
    assert set(STATUS) == set(RejectionReason)
    assert all(status.code is not grpc.StatusCode.OK and "\n" not in status.text for status in STATUS.values())


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff\xff", b"\x0a\x02\x0a\x00", bytes(1000)], ids=["empty", "junk", "short", "zeros"]
)
async def test_malformed_bytes_are_an_invalid_argument(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with collector(tmp_path, PLAN) as running:
        code, details = await raw_stream(running.address, data)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "\n" not in details
        assert running.service.monitor.snapshot()["rejections.malformed"] == 1
        async with aio.insecure_channel(running.address) as channel:
            if data not in {b"", b"\x0a\x02\x0a\x00"}:  # valid requests for a plan
                with pytest.raises(aio.AioRpcError) as refused:
                    await channel.unary_unary(GET_PLAN_METHOD.path)(data)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_message_over_the_limit_ends_its_stream_only(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        code, _ = await raw_stream(running.address, bytes(5 << 20))
        assert code in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
        devices = trio()
        assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*devices))


def uncertified() -> Device:
    """A device with somebody else's word for it, good in all but its signature."""
    identity, somebody = IdentityKey(bytes(32)), IdentityKey(bytes(range(32)))
    made_up = certified(identity.public_key, issued_at=0, expires_at=2**32, registrar=somebody)
    return Device([1, 10], PLAN, identity, certificate=made_up)


async def test_strangers_old_periods_and_false_names_are_refused(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        known, stranger = Device([1, 10], PLAN), uncertified()
        today = known.period_start
        old = Device([1, 10], PLAN, known.identity, period_start=today - 10 * PLAN.period_s)
        future = Device([1, 10], PLAN, known.identity, period_start=today + 2 * PLAN.period_s)
        odd = Device([1, 10], PLAN, known.identity, period_start=today + 1)
        refused = await stranger.upload(running.address)
        assert (refused.code, refused.received) == (grpc.StatusCode.UNAUTHENTICATED, []), "not even a nonce"
        assert (await old.upload(running.address)).code is grpc.StatusCode.FAILED_PRECONDITION
        assert (await future.upload(running.address)).code is grpc.StatusCode.FAILED_PRECONDITION
        assert (await odd.upload(running.address)).code is grpc.StatusCode.INVALID_ARGUMENT
        counts = running.service.monitor.snapshot()
        for reason in ("bad_certificate", "period_too_old", "period_not_started", "malformed"):
            assert counts[f"rejections.{reason}"] == 1
        assert "joins" not in counts


async def test_a_foreign_signature_says_nothing_about_the_identity(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        known = Device([1, 10], PLAN)

        def forge(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if isinstance(message, Advert):
                flipped = bytes([message.signature[0] ^ 1]) + message.signature[1:]
                return Advert(**{name: getattr(message, name) for name in Advert.__slots__} | {"signature": flipped})
            return message

        refused = await known.upload(running.address, on_message=forge)
        assert refused.code is grpc.StatusCode.UNAUTHENTICATED
        assert refused.joined is None


async def test_nobody_can_ask_about_another_identity(tmp_path: Path) -> None:
    """The same answer for one that is counted and one that never came, unless the asker proves to be it; no look-up."""
    async with collector(tmp_path, PLAN) as running:
        counted, stranger = trio(), Device([1, 10], PLAN)
        assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*counted))

        def forge(step: str, message: ParticipantMessage) -> ParticipantMessage:
            return replace(message, signature=bytes(64)) if isinstance(message, Advert) else message

        answers = [await device.upload(running.address, on_message=forge) for device in (counted[0], stranger)]
        assert {(one.code, one.details, len(one.received)) for one in answers} == {
            (grpc.StatusCode.UNAUTHENTICATED, STATUS[RejectionReason.BAD_SIGNATURE].text, 1)
        }


async def test_a_second_stream_is_refused_before_anything_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could be told "not counted" from before the first one's sum was stored."""
    asked: list[Question] = []
    real = CollectorStore.standings

    def note(store: CollectorStore, questions: list[Question]) -> dict[Question, Standing]:
        asked.extend(questions)
        return real(store, questions)

    monkeypatch.setattr(CollectorStore, "standings", note)
    async with collector(tmp_path, PLAN) as running:
        (device,) = trio()[:1]
        first = asyncio.create_task(device.upload(running.address))
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 1)
        assert (await device.upload(running.address)).code is grpc.StatusCode.ALREADY_EXISTS
        assert len(asked) == 1
        await first


async def test_a_full_cohort_does_not_wait(tmp_path: Path) -> None:
    patient = parse_plan(PLAN.text.replace('max_wait = "1s"', 'max_wait = "60s"'))
    async with collector(tmp_path, patient) as running:
        devices = [Device([i, 10 * i], patient) for i in (1, 2, 3)]
        ended = await asyncio.wait_for(running.upload(*devices), 20)
        assert all(isinstance(one.outcome, Receipt) for one in ended)


async def test_out_of_order_and_too_long_cost_only_their_sender(tmp_path: Path) -> None:
    """Extra pieces, a confirmation too early: the member is dropped at once, the others finish."""
    cases = {
        "confirm": Confirm(bytes(32), bytes(64)),
        "piece": MaskedInputPiece(0, bytes(PIECE_BYTES)),
    }
    for name, wrong in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        async with collector(folder, PLAN, step_timeout_s=10.0) as running:
            devices = trio()

            def misbehave(
                step: str, message: ParticipantMessage, wrong: ParticipantMessage = wrong
            ) -> ParticipantMessage:
                return wrong if step == "masked_input" else message

            started = time.monotonic()
            ended = await asyncio.gather(
                devices[0].upload(running.address, on_message=misbehave),
                *(device.upload(running.address) for device in devices[1:]),
            )
            assert time.monotonic() - started < 5, "nobody waits for a deadline"
            assert ended[0].code is grpc.StatusCode.INVALID_ARGUMENT
            assert [one.outcome.contributors for one in ended[1:]] == [2, 2]
            assert running.sums() == [([5, 50], 2)]


async def test_talking_while_waiting_for_a_cohort_is_out_of_order(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        (device,) = trio()[:1]
        async with aio.insecure_channel(running.address) as channel:
            call: Any = channel.stream_stream(PARTICIPATE_METHOD.path, **PARTICIPATE_METHOD.client_converters)()
            participant = device.participant()
            await call.write(participant.hello())
            (advert,) = participant.receive(await call.read(), 0.0)
            await call.write(advert)
            await call.write(advert)
            with pytest.raises(aio.AioRpcError) as refused:
                await read_to_the_end(call)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert running.service.monitor.snapshot()["rejections.out_of_order"] == 1


async def test_a_silent_handshake_is_closed(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=0.3) as running:
        device = trio()[0]
        for step in ("hello", "join"):
            ended = await device.upload(running.address, silent_before=step)
            assert ended.code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: running.service.monitor.snapshot()["streams.open"] == 0)


async def test_more_waiting_than_the_limit_are_told_to_come_back(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN, max_waiting=1) as running:
        first, second = trio()[:2]
        waiting = asyncio.create_task(first.upload(running.address))
        await until(lambda: running.service._lobby.waiting == 1)
        refused = await second.upload(running.address)
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await waiting


async def test_two_members_with_one_key_never_meet(tmp_path: Path) -> None:
    """A copied round key would make every honest member of that roster leave."""
    async with collector(tmp_path, PLAN) as running:
        devices = trio()
        copied: list[Advert] = []

        def give(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if isinstance(message, Advert):
                copied.append(message)
            return message

        def take(step: str, message: ParticipantMessage) -> ParticipantMessage:
            if isinstance(message, Advert):
                from client_sdk.secagg.transcript import advert_message

                fields = {name: getattr(message, name) for name in Advert.__slots__}
                fields |= {"mask_key": copied[0].mask_key, "signature": b""}
                unsigned = Advert(**fields)
                return Advert(**fields | {"signature": devices[1].identity.sign(advert_message(unsigned))})
            return message

        first = asyncio.create_task(devices[0].upload(running.address, on_message=give))
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 1)
        await asyncio.sleep(0.05)
        thief = await devices[1].upload(running.address, on_message=take)
        assert thief.code is grpc.StatusCode.INVALID_ARGUMENT
        await first


async def fetch_plan(running: Running, name: str) -> Any:
    async with aio.insecure_channel(running.address) as channel:
        return await channel.unary_unary(GET_PLAN_METHOD.path, **GET_PLAN_METHOD.client_converters)(
            GetPlanRequest(name)
        )


async def test_the_newest_plan_is_served_by_name(tmp_path: Path) -> None:
    newer = two_number_plan(min_size=2, target_size=3, version=2)
    async with collector(tmp_path, newer, PLAN) as running:
        for name in ("", PLAN.name):
            answer = await fetch_plan(running, name)
            assert (answer.toml, answer.plan_hash) == (newer.text, newer.hash)
        with pytest.raises(aio.AioRpcError) as refused:
            await fetch_plan(running, "another")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_older_versions_stay_welcome_after_an_upgrade(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN):
        pass
    newer = two_number_plan(min_size=2, target_size=3, version=2)
    async with collector(tmp_path, newer) as running:
        devices = trio()
        assert all(isinstance(one.outcome, Receipt) for one in await running.upload(*devices))
