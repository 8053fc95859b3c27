"""A device that a round blames: refused for that plan and period, over the wire, and for nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc

from client_sdk.secagg.messages import (
    AlreadyCounted,
    ParticipantMessage,
    Receipt,
    RoundAborted,
    SealedShares,
    UnmaskShares,
)
from tests.integration.participants import Device, Ended, collector, two_number_plan, until

PLAN = two_number_plan(3, 5)  # five members, threshold three


def rubbish(step: str, message: ParticipantMessage) -> ParticipantMessage:
    """What nobody can open, under hashes that are right."""
    if isinstance(message, SealedShares):
        return replace(message, sealed=(bytes(82),) * len(message.sealed))
    return message


def wrong_share(step: str, message: ParticipantMessage) -> ParticipantMessage:
    if isinstance(message, UnmaskShares):
        return replace(message, shares=(bytes(33), *message.shares[1:]))
    return message


async def round_with(address: str, bad: Device, hook: object, others: list[Device]) -> tuple[Ended, list[Ended]]:
    uploads = [bad.upload(address, on_message=hook), *(device.upload(address) for device in others)]  # type: ignore[arg-type]
    first, *rest = await asyncio.gather(*uploads)
    return first, rest


async def test_who_ruined_a_round_is_refused_for_its_period(tmp_path: Path) -> None:
    """The others' reports are still with them, and are counted in the next round."""
    bad, *others = [Device([i, 10 * i], PLAN) for i in range(5)]
    yesterday = Device(bad.vector, PLAN, bad.identity, bad.period_start - PLAN.period_s)
    async with collector(tmp_path, PLAN) as running:
        first, rest = await round_with(running.address, bad, rubbish, others)
        assert [ended.outcome for ended in (first, *rest)] == [RoundAborted("too_few_responses", 1, 3)] * 5
        await until(lambda: not running.service._lobby._seats)  # the round is on record
        again = await bad.upload(running.address)
        assert (again.code, again.joined) == (grpc.StatusCode.PERMISSION_DENIED, None)
        fresh = Device([7, 7], PLAN)
        assert all(isinstance(e.outcome, Receipt) for e in await running.upload(*others, fresh))
        assert running.sums() == [([1 + 2 + 3 + 4 + 7, 10 * (1 + 2 + 3 + 4) + 7], 5)]
        companions = [replace(d, period_start=yesterday.period_start) for d in (*others, fresh)][:4]
        assert all(isinstance(e.outcome, Receipt) for e in await running.upload(yesterday, *companions))
        counts = running.service.monitor.snapshot()
        assert (counts["blamed.unusable_shares"], counts["rejections.blamed"]) == (1, 1)


async def test_who_is_counted_and_blamed_hears_that_it_is_counted(tmp_path: Path) -> None:
    """Its report stands in a sum: asking for it again would only keep it on the device."""
    bad, *others = [Device([i, 10 * i], PLAN) for i in range(5)]
    async with collector(tmp_path, PLAN) as running:
        first, _ = await round_with(running.address, bad, wrong_share, others)
        assert isinstance(first.outcome, Receipt)
        assert running.sums() == [([10, 100], 5)]
        await until(lambda: not running.service._lobby._seats)
        again = await bad.upload(running.address)
        assert again.outcome == AlreadyCounted(first.outcome.round_id, 5)
        assert running.service.monitor.snapshot()["blamed.wrong_share"] == 1
