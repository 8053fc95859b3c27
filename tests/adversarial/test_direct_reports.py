"""Dishonest devices, and what they are told, against a whole collector that takes unmasked reports over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk.certificate import Role
from client_sdk.identity import IdentityKey
from client_sdk.report import pack_vector
from client_sdk.wire.messages import DeliverRequest, DirectOffer, DirectPiece, DirectSeal
from client_sdk.wire.methods import DELIVER_METHOD
from collector.service import direct, direct_desk
from collector.service.storage_rows import Blamed, RoundRecord
from tests.adversarial.weakening import Line, switch_off
from tests.fleet import certified
from tests.integration.callers import bearer, token
from tests.integration.direct_devices import Ended, Puppet, direct_plan, today
from tests.integration.participants import Device, Running, collector, two_number_plan, until

PLAN = direct_plan()
STRANGER = IdentityKey(b"x" * 32)
PIECE = DirectPiece(0, 0, b"any")
UNAUTHENTICATED, INVALID = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT


def puppet(*vectors: Any, **more: Any) -> Puppet:
    return Puppet([(PLAN, today(PLAN, back), vector) for back, vector in enumerate(vectors)], **more)


def nothing_stored(running: Running) -> bool:
    store = running.service.store
    return (store.rounds(), store.contributions(), store.released_sums()) == ([], [], [])


def changed(kind: type[DeliverRequest], change: Callable[[Any], Any]) -> Callable[[DeliverRequest], Any]:
    return lambda message: change(message) if isinstance(message, kind) else message


# --- who it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "certificate",
    [
        lambda key: bytes(114),
        lambda key: certified(STRANGER.public_key),
        lambda key: certified(key, role=Role.ANALYST),
        lambda key: certified(key, registrar=STRANGER),
        lambda key: certified(key, issued_at=0, expires_at=int(time.time()) - 1),
    ],
    ids=["of nothing", "another identity's", "an analyst's", "another registrar's", "expired"],
)
async def test_without_a_good_certificate_nobody_is_told_anything(
    tmp_path: Path, certificate: Callable[[bytes], bytes]
) -> None:
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2])
        device.certificate = certificate(device.identity.public_key)
        ended = await device.deliver(running.address)
        assert (ended.code, ended.received) == (UNAUTHENTICATED, [])
        assert nothing_stored(running)
        assert running.service.monitor.counted("rejections.bad_certificate") == 1


@pytest.mark.parametrize("kind", [DirectOffer, DirectSeal])
async def test_a_foreign_signature_ends_the_call(tmp_path: Path, kind: type[DeliverRequest]) -> None:
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2], hook=changed(kind, lambda m: replace(m, signature=STRANGER.sign(b"what I like"))))
        ended = await device.deliver(running.address)
        assert ended.code is UNAUTHENTICATED
        assert (ended.standing is None) == (kind is DirectOffer), "nothing is said about an identity that is not proven"
        assert nothing_stored(running)


# case D05
async def test_a_recorded_call_counts_nothing_when_it_is_replayed(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        honest = puppet([1, 2])
        assert (await honest.deliver(running.address)).words == ("counted",)
        recorded = {type(message): message for message in honest.sent}
        # an offer is signed for one nonce; of the same identity the seal is not even asked for
        again = Puppet(honest.reports, honest.identity, hook=changed(DirectOffer, lambda m: recorded[type(m)]))
        assert (await again.deliver(running.address)).code is UNAUTHENTICATED
        other = Puppet(honest.reports, hook=lambda m: recorded[type(m)] if type(m) is not DirectOffer else m)
        assert (await other.deliver(running.address)).code is UNAUTHENTICATED
        assert len(running.service.store.contributions()) == 1


async def test_a_seal_of_another_call_does_not_fit_this_one(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        early = puppet([1, 2], leave_after=DirectSeal)
        early.hook = changed(DirectSeal, lambda m: replace(m, signature=b"s" * 64))
        await early.deliver(running.address)
        assert nothing_stored(running)
        honest = Puppet(early.reports, early.identity)
        ended = await honest.deliver(running.address)
        assert ended.words == ("counted",)
        seal = next(message for message in honest.sent if isinstance(message, DirectSeal))
        later = Puppet([(PLAN, today(PLAN, 1), [1, 2])], early.identity, hook=changed(DirectSeal, lambda m: seal))
        assert (await later.deliver(running.address)).code is UNAUTHENTICATED
        assert len(running.service.store.contributions()) == 1


# --- what it sends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (pack_vector([PLAN.bound, -45_000], PLAN.bound), "counted"),
        (pack_vector([PLAN.bound + 1, 0], 10**6), "implausible_report"),
        (pack_vector([-45_001, 0], PLAN.bound), "implausible_report"),
        (pack_vector([2**31 - 1, 0], 2**31 - 1), "implausible_report"),
        (b"\x08" + pack_vector([1, 2], PLAN.bound)[1:], "malformed"),
    ],
    ids=["at the limits", "beyond the bound", "below the least", "the largest number", "a wrong width"],
)
async def test_a_report_is_judged_alone(tmp_path: Path, data: bytes, word: str) -> None:
    """And costs nobody else anything: an honest report of the same moment is counted without it."""
    async with collector(tmp_path, PLAN) as running:
        ended, honest = await asyncio.gather(
            puppet(data).deliver(running.address), puppet([5, 6]).deliver(running.address)
        )
        assert (ended.words, honest.words) == ((word,), ("counted",))
        counted = 1 + (word == "counted")
        assert len(running.service.store.contributions()) == counted
        if word != "counted":
            assert running.sums() == [([5, 6], 1)]
            assert running.service.monitor.counted(f"rejections.{word}") == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: replace(m, data=m.data[:-1]), INVALID),
        (lambda m: replace(m, data=m.data + b"\0"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (lambda m: replace(m, offset=1), INVALID),
        (lambda m: replace(m, place=1), INVALID),
        (lambda m: [m, m], INVALID),
        (lambda m: None, INVALID),
        (lambda m: [m, DirectOffer((), (), (), (), b"s" * 64)], INVALID),
    ],
    ids=["a byte short", "a byte long", "a gap", "nobody's place", "twice", "no piece", "an offer again"],
)
async def test_pieces_that_do_not_fit_end_the_call(
    tmp_path: Path, change: Callable[[Any], Any], code: grpc.StatusCode
) -> None:
    def hook(message: DeliverRequest) -> Any:
        if isinstance(message, DirectPiece):
            return change(message)
        # nothing more is written into a call that ends, so that its own status is what is seen
        return None if isinstance(message, DirectSeal) and change(PIECE) is not None else message

    async with collector(tmp_path, PLAN) as running:
        ended = await puppet([1, 2], hook=hook).deliver(running.address)
        assert ended.code is code
        assert nothing_stored(running)


async def test_bytes_that_are_no_message_and_messages_too_long_are_refused(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running, aio.insecure_channel(running.address) as channel:
        for data, code in (
            (b"\xff" * 10, INVALID),
            (b"", INVALID),
            (b"\x0a\x00" * 2000, INVALID),
            (bytes(270_000), INVALID),
            (bytes(2 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            call = channel.stream_stream(DELIVER_METHOD.path)()
            await call.write(data)
            assert await call.code() is code
        assert running.service.monitor.counted("rejections.malformed") == 4


async def test_a_silent_device_costs_its_own_call_only(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN, step_timeout_s=0.3) as running:
        silent = puppet([1, 2], hook=changed(DirectSeal, lambda m: None))
        ended, honest = await asyncio.gather(silent.deliver(running.address), puppet([3, 4]).deliver(running.address))
        assert ended.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert honest.words == ("counted",)
        assert running.sums() == [([3, 4], 1)]
        # its seat is free again
        assert (await Puppet(silent.reports, silent.identity).deliver(running.address)).words == ("counted",)


# --- which report it is -----------------------------------------------------------------------------


async def test_plans_periods_and_ways_that_are_not_open(tmp_path: Path) -> None:
    masked, second = two_number_plan(3, 5, name="masked"), direct_plan(version=2)
    async with collector(tmp_path, PLAN, masked) as running:
        start = today(PLAN)
        device = Puppet(
            [
                (second, start, [1, 2]),
                (masked, start, [1, 2]),
                (PLAN, start + 1, [1, 2]),
                (PLAN, start + 2 * PLAN.period_s, [1, 2]),
                (PLAN, start - 3 * PLAN.period_s, [1, 2]),
                (PLAN, start, [1, 2]),
                (PLAN, start, [3, 4]),
            ]
        )
        ended = await device.deliver(running.address)
        assert ended.words == (
            "unknown_plan", "wrong_delivery", "malformed", "period_not_started", "period_too_old", "counted",
            "duplicate_identity",
        )  # fmt: skip
        assert running.sums() == [([1, 2], 1)]
        counted = running.service.monitor.snapshot()
        for reason in ("unknown_plan", "wrong_delivery", "period_not_started", "period_too_old", "duplicate_identity"):
            assert counted[f"rejections.{reason}"] == 1


async def test_a_round_takes_no_report_of_a_direct_plan(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        ended = await Device([1, 2], PLAN).upload(running.address)
        assert ended.code is grpc.StatusCode.FAILED_PRECONDITION
        assert running.service.monitor.counted("rejections.wrong_delivery") == 1


async def test_two_calls_with_one_report_at_once(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        one = puppet([1, 2])
        twin = Puppet([(PLAN, today(PLAN), [1000, 2000])], one.identity)
        ended = await asyncio.gather(one.deliver(running.address), twin.deliver(running.address))
        assert sorted(end.words for end in ended) == [("counted",), ("duplicate_identity",)]
        assert sum(contributors for _, contributors in running.sums()) == 1


@pytest.mark.parametrize("weakened", [True, False])
async def test_a_report_that_waits_for_a_round_cannot_come_unmasked_meanwhile(
    tmp_path: Path, weakened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without seats both would be on their way, and the round would end without a sum for all its members."""
    fallback = direct_plan('fallback = "direct"')
    if weakened:
        switch_off(monkeypatch, Line("lobby.Lobby.take_seat", "if key in self._seats:", "if False:"))
    async with collector(tmp_path, fallback) as running:
        device = Device([1, 2], fallback)
        waiting = asyncio.create_task(device.upload(running.address))
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 1)
        again = Puppet([(fallback, today(fallback), [1, 2])], device.identity)
        assert (await again.deliver(running.address)).words == (("counted",) if weakened else ("duplicate_identity",))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if not weakened:
            await until(lambda: not running.service._lobby._seats)
            assert (await again.deliver(running.address)).words == ("counted",)


# --- whose reports are not taken --------------------------------------------------------------------


async def test_a_blamed_device_is_not_taken_this_way_either(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2], [3, 4])
        blamed = (Blamed(device.identity.device_id, "wrong_share"),)
        record = RoundRecord(
            "spoilt", PLAN.hash, today(PLAN), 5, 0, {}, "aborted", "wrong_shares", 1.0, int(time.time()), blamed
        )
        running.service.store.record_aborted(record)
        ended = await device.deliver(running.address)
        assert ended.words == ("blamed", "counted"), "for the period of that round only"
        assert running.sums() == [([3, 4], 1)]


async def test_an_opted_out_device_is_refused_for_good(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2])
        running.service.store.forget(device.identity.device_id, time.time(), certified=True)
        ended = await device.deliver(running.address)
        assert (ended.code, ended.standing) == (grpc.StatusCode.PERMISSION_DENIED, None)
        assert running.service.monitor.counted("rejections.opted_out") == 1
        assert nothing_stored(running)
        # no seat is left behind
        assert running.service._lobby._seats == set()


async def test_joins_are_limited_over_both_ways(tmp_path: Path) -> None:
    fallback = direct_plan('fallback = "direct"')
    async with collector(tmp_path, fallback, max_joins=3) as running:
        device = Device([1, 2], fallback)
        for _ in range(2):
            await device.upload(running.address, leave_before="shares")
            await until(lambda: not running.service._lobby._seats)
        unsealed = Puppet([(fallback, today(fallback), [1, 2])], device.identity, leave_after=DirectPiece)
        await unsealed.deliver(running.address)
        await until(lambda: not running.service._lobby._seats)
        again = Puppet(unsealed.reports, device.identity)
        assert (await again.deliver(running.address)).words == ("too_many_joins",)
        assert nothing_stored(running)


async def test_what_all_calls_hold_at_once_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 + 4 * PLAN.length + 8 * PLAN.length
    monkeypatch.setattr(direct_desk, "MOST_HELD_BYTES", 2 * size)
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2], [3, 4])
        device.reports = [*device.reports, (PLAN, today(PLAN), [0, 0])]
        ended = await device.deliver(running.address)
        assert ended.words[:2] == ("counted", "counted")
        crowd = [puppet([1, 2]) for _ in range(5)]
        told = [end.words for end in await asyncio.gather(*(one.deliver(running.address) for one in crowd))]
        assert set(told) == {("counted",), ("busy",)}
        # what was held is let go of: later all of them are taken, one after the other
        for one in crowd:
            again = Puppet(one.reports, one.identity)
            assert (await again.deliver(running.address)).words in {("counted",), ("already_counted",)}
        assert len(running.service.store.contributions()) == 2 + 5


SIZE = 1 + 4 * PLAN.length + 8 * PLAN.length
"""Held for one report of PLAN: packed, and read."""


OTHER = direct_plan(name="other")


def three_reports() -> list[Any]:
    """As many as are open at once, and one of another plan."""
    return [(PLAN, today(PLAN), [1, 2]), (PLAN, today(PLAN, 1), [1, 2]), (OTHER, today(OTHER), [1, 2])]


def desk_of(running: Running) -> direct_desk.DirectDesk:
    servicer = running.service._direct
    assert servicer is not None
    return servicer._desk


def quiet(message: DeliverRequest) -> DeliverRequest | None:
    return None if isinstance(message, DirectPiece | DirectSeal) else message


async def test_devices_that_offer_much_and_send_nothing_leave_room_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert direct_desk.MOST_OF_ONE_BYTES * 16 <= direct_desk.MOST_HELD_BYTES
    monkeypatch.setattr(direct_desk, "MOST_HELD_BYTES", 6 * SIZE)
    monkeypatch.setattr(direct_desk, "MOST_OF_ONE_BYTES", 2 * SIZE)
    async with collector(tmp_path, PLAN, OTHER, step_timeout_s=1.0) as running:
        greedy = [Puppet(three_reports(), hook=quiet) for _ in range(2)]
        calls = [asyncio.create_task(one.deliver(running.address)) for one in greedy]
        await until(lambda: desk_of(running)._held >= 4 * SIZE)
        # nor by another call beside the first
        for one in greedy:
            again = Puppet([one.reports[0], (OTHER, today(OTHER, 1), [1, 2])], one.identity, hook=quiet)
            assert (await again.deliver(running.address)).words == ("duplicate_identity", "busy")
        assert (await puppet([3, 4]).deliver(running.address)).words == ("counted",)
        assert [(await call).words for call in calls] == [("wanted", "wanted", "busy")] * 2
        counted = running.service.monitor.snapshot()
        assert (counted["rejections.busy"], counted["direct.identity_full"]) == (4, 4)
        # nothing stays held
        assert (desk_of(running)._held, desk_of(running)._held_by) == (0, {})
        honest = Puppet(greedy[0].reports, greedy[0].identity)
        assert (await honest.deliver(running.address)).words == ("counted", "counted", "busy")
        assert (await honest.deliver(running.address)).words == ("already_counted", "already_counted", "counted")


async def test_one_report_is_taken_however_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_desk, "MOST_OF_ONE_BYTES", SIZE - 1)
    async with collector(tmp_path, PLAN) as running:
        assert (await puppet([1, 2], [3, 4]).deliver(running.address)).words == ("counted", "busy")


class Trickle(Puppet):
    """Never silent for as long as a step may last."""

    async def _send(self, call: Any, message: DeliverRequest) -> None:
        await asyncio.sleep(0.3 * isinstance(message, DirectPiece | DirectSeal))
        with contextlib.suppress(asyncio.InvalidStateError):  # the collector has ended it
            await super()._send(call, message)


@pytest.mark.parametrize(("slowest", "words"), [(10**6, ("wanted",) * 3), (10, ("counted",) * 3)])
async def test_a_call_has_a_time_that_follows_from_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slowest: int, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(direct, "SLOWEST_BYTES_S", slowest)
    async with collector(tmp_path, PLAN, OTHER, step_timeout_s=0.5) as running:
        slow = Trickle(three_reports())
        ended = await slow.deliver(running.address)
        assert ended.words == words
        late = words[0] == "wanted"
        assert ended.code is (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.OK)
        assert running.service.monitor.counted("rejections.late") == late
        assert desk_of(running)._held == 0


async def test_one_call_cannot_ask_for_more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_desk, "MAX_CALL_BYTES", 1 + 4 * PLAN.length)
    async with collector(tmp_path, PLAN) as running:
        device = puppet([1, 2], [3, 4])
        assert (await device.deliver(running.address)).words == ("counted", "busy")
        again = Puppet(device.reports, device.identity)
        assert (await again.deliver(running.address)).words == ("already_counted", "counted")


async def test_a_token_of_another_role_has_no_business_here(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        shown = bearer(token(running.service, Role.OPERATOR))
        ended = await puppet([1, 2]).deliver(running.address, shown)
        assert (ended.code, ended.received) == (grpc.StatusCode.PERMISSION_DENIED, [])


async def test_nothing_of_a_device_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "collector"):
        async with collector(tmp_path, PLAN) as running:
            good, bad = puppet([123_4, 2]), puppet([PLAN.bound, 2], certificate=bytes(114))
            ended: list[Ended] = [await one.deliver(running.address) for one in (good, bad)]
            assert [one.words for one in ended] == [("counted",), ()]
    names = [name for one in (good, bad) for name in (one.identity.device_id, one.identity.public_key.hex())]
    for secret in (*names, "1234", "127.0.0.1:"):
        assert secret not in caplog.text.replace(running.address, "")
