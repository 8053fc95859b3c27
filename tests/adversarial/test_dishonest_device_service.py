"""Dishonest devices against a whole collector over gRPC: two identities, replays, floods, and who is let in again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc import aio

from client_sdk.plan import parse_plan
from client_sdk.secagg.messages import MaskedInputPiece, ParticipantMessage, Receipt, SealedShares, UnmaskShares
from client_sdk.wire.methods import PARTICIPATE_METHOD
from collector.service import rounds
from tests.adversarial.weakening import Line, switch_off
from tests.integration.participants import Device, collector, two_number_plan, until

FIVE = two_number_plan(min_size=3, target_size=5)
ONE_MAY_LIE = parse_plan(FIVE.text.replace("corrupt_fraction = 0", "corrupt_fraction = 0.2"))
"""Five members, threshold 4."""
WAIT_S = 4.0


def fleet(plan=FIVE) -> list[Device]:
    return [Device([i, 10 * i], plan) for i in range(1, 6)]


# case D04
@pytest.mark.parametrize("weakened", [True, False])
async def test_one_identity_twice(weakened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one takes the first one's place where seats are not held: whoever comes last is counted."""
    if weakened:
        switch_off(monkeypatch, Line("lobby.Lobby.take_seat", "if key in self._seats:", "if False:"))
    async with collector(tmp_path, FIVE) as running:
        devices = fleet()
        twin = Device([300, 3000], FIVE, identity=devices[2].identity)
        early = [asyncio.create_task(device.upload(running.address)) for device in devices[:4]]
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 4)
        late = asyncio.create_task(twin.upload(running.address))
        if weakened:
            await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 5)
        else:
            assert (await late).code is grpc.StatusCode.ALREADY_EXISTS
        await asyncio.wait_for(devices[4].upload(running.address), WAIT_S)
        if weakened:
            assert running.sums() == [([312, 3120], 5)]
            assert not early[2].done(), "and the first one waits for an answer that never comes"
        else:
            assert all(isinstance(one.outcome, Receipt) for one in await asyncio.gather(*early))
            assert running.sums() == [([15, 150], 5)]
        for task in (*early, late):
            task.cancel()
        await asyncio.gather(*early, late, return_exceptions=True)


@pytest.mark.parametrize("weakened", [True, False])
async def test_who_was_blamed_cannot_end_the_next_round_too(
    weakened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that deals nothing usable costs one round, and its own report of that period."""
    if weakened:
        switch_off(
            monkeypatch,
            Line("servicers.SecAggServicer._welcome", "if standing.blamed and standing.counted is None:", "if False:"),
        )
    async with collector(tmp_path, ONE_MAY_LIE) as running:
        devices = fleet(ONE_MAY_LIE)

        def rubbish(step: str, message: ParticipantMessage) -> ParticipantMessage:
            return replace(message, sealed=(bytes(82),) * 4) if isinstance(message, SealedShares) else message

        for _ in range(2):
            ended = await asyncio.gather(
                devices[0].upload(running.address, on_message=rubbish),
                *(device.upload(running.address) for device in devices[1:]),
            )
            await until(lambda: bool(running.service.store.rounds()))
            for device in devices:
                device.resent = True
        if weakened:
            assert running.sums() == []
        else:
            assert ended[0].code is grpc.StatusCode.PERMISSION_DENIED
            assert ended[0].joined is None, "and it hears nothing about itself"
            assert all(isinstance(one.outcome, Receipt) for one in ended[1:])
            assert running.sums() == [([14, 140], 4)]
            assert running.service.monitor.snapshot()["blamed.unusable_shares"] == 1


@pytest.mark.parametrize("weakened", [True, False])
async def test_a_flood_of_repeats_ends_its_own_stream(
    weakened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weakened:
        monkeypatch.setattr(rounds, "MAX_REPEATS", 10**9)
    async with collector(tmp_path, FIVE) as running:
        devices = fleet()

        def flood(step: str, message: ParticipantMessage) -> object:
            return [message] * 300 if isinstance(message, MaskedInputPiece) else message

        ended = await asyncio.gather(
            devices[0].upload(running.address, on_message=flood),
            *(device.upload(running.address) for device in devices[1:]),
        )
        assert all(isinstance(one.outcome, Receipt) for one in ended[1:])
        assert running.sums() == [([15, 150], 5)], "it had sent its masked input by then"
        taken = running.service.monitor.snapshot()["rejections.already_received"]
        assert taken == (299 if weakened else rounds.MAX_REPEATS + 1)


async def test_a_share_that_was_changed_is_booked_against_its_holder(tmp_path: Path) -> None:
    async with collector(tmp_path, ONE_MAY_LIE) as running:
        devices = fleet(ONE_MAY_LIE)

        def wrong(step: str, message: ParticipantMessage) -> ParticipantMessage:
            return replace(message, shares=(bytes(33),) * 5) if isinstance(message, UnmaskShares) else message

        ended = await asyncio.gather(
            devices[0].upload(running.address, on_message=wrong),
            *(device.upload(running.address) for device in devices[1:]),
        )
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert running.sums() == [([15, 150], 5)]
        assert running.service.monitor.snapshot()["blamed.wrong_share"] == 1


JUNK = {
    "nothing": b"",
    "noise": b"\xff" * 40,
    "a field that nobody knows": b"\xfa\x3f\x03abc",
    "a length that is not there": b"\x0a\xff\xff\xff\xff\x07",
    "a megabyte of zeros": bytes(1 << 20),
}


@pytest.mark.parametrize("name", JUNK)
async def test_junk_on_the_wire_is_refused_and_others_stay_served(name: str, tmp_path: Path) -> None:
    async with collector(tmp_path, FIVE) as running:
        early = [asyncio.create_task(device.upload(running.address)) for device in fleet()]
        async with aio.insecure_channel(running.address) as channel:
            call = channel.stream_stream(PARTICIPATE_METHOD.path)()
            await call.write(JUNK[name])
            with pytest.raises(aio.AioRpcError):
                assert await call.read() is aio.EOF
            assert await call.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert all(isinstance(one.outcome, Receipt) for one in await asyncio.gather(*early))
        assert running.sums() == [([15, 150], 5)]
