"""A user who leaves and comes back, over real gRPC: device, registrar, collector, and the stores of all three."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk import TelemetryClient
from client_sdk.device.files import DATABASE_NAME, MIRROR_NAME
from client_sdk.identity import IdentityKey, deletion_message
from client_sdk.plan import parse_plan
from client_sdk.secagg.messages import Receipt, RoundAborted
from client_sdk.wire.messages import DeleteRequest, DeleteResponse
from client_sdk.wire.methods import DELETE_METHOD
from collector.service.app import CollectorService
from collector.service.settings import ServeSettings
from tests.integration.participants import TWO_NUMBERS, Device, Running, until
from tests.registrar import KEY_HEX, certificate_of, running
from tests.registrar import Running as Registrar
from tests.stopping import stopped

DAY_S = 86_400
START = 1_767_268_800.0  # 2026-01-01T12:00Z
HEAD = 'period = "1d"'
PLAN = parse_plan(
    TWO_NUMBERS.format(min_size=3, target_size=3, name="test", version=1).replace(HEAD, f'{HEAD}\nmax_delay = "9d"')
)
NOBODY = "127.0.0.1:9"


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def collector_at(folder: Path, clock: Clock, listen: str = "127.0.0.1:0") -> AsyncIterator[Running]:
    """A collector whose time a test moves, over the same store each time."""
    path = folder / "plan.toml"
    path.write_text(PLAN.text, encoding="utf-8")
    settings = ServeSettings(
        plan_paths=(path,), db_url=f"sqlite:///{folder / 'collector.db'}", registrar_key=KEY_HEX, listen=listen,
        insecure=True, step_timeout_s=5.0,
    )  # fmt: skip
    service = await CollectorService.start(settings, clock)
    try:
        yield Running(service)
    finally:
        assert await stopped(service)


class User:
    """One person's device over its restarts."""

    def __init__(self, folder: Path, registrar: Registrar, clock: Clock) -> None:
        self.folder, self.registrar, self.clock = folder, registrar, clock
        self.endpoint = NOBODY

    def start(self, **changes: Any) -> TelemetryClient:
        settings: dict[str, Any] = {
            "endpoint": self.endpoint, "plan": PLAN, "data_dir": self.folder, "consent": True, "insecure": True,
            "background": False, "clock": self.clock, **self.registrar.settings,
        }  # fmt: skip
        return TelemetryClient(**(settings | changes))

    def secrets(self) -> tuple[bytes, str]:
        """The identity's seed as it is now, and its device id."""
        seed = bytes.fromhex(json.loads((self.folder / MIRROR_NAME).read_text())["seed"])
        return seed, IdentityKey(seed).device_id

    def holds(self, secret: bytes) -> bool:
        """Does it stand anywhere in the folder, as bytes or as hex?"""
        found = [path.read_bytes() for path in self.folder.iterdir()]
        return any(secret in data or secret.hex().encode() in data for data in found)


def companions(clock: Clock, count: int = 2) -> list[Device]:
    """Others of the same period, so that there is a sum."""
    devices = []
    for _ in range(count):
        identity = IdentityKey(os.urandom(32))
        certificate = certificate_of(identity, clock())
        devices.append(Device([1, 1], PLAN, identity, PLAN.period_start(clock()), certificate=certificate))
    return devices


async def upload_with_companions(client: TelemetryClient, at: Running, clock: Clock) -> dict[str, int]:
    summary, *ended = await asyncio.gather(
        client.upload(), *(device.upload(at.address) for device in companions(clock))
    )
    assert all(isinstance(one.outcome, Receipt) for one in ended), ended
    return summary.as_dict()  # type: ignore[union-attr]


# case H07
async def test_leaving_and_coming_back_step_by_step(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "registrar", clock) as registrar:
        user = User(tmp_path / "device", registrar, clock)
        async with collector_at(tmp_path, clock) as at:  # before: one report is in a sum, so there is what to forget
            user.endpoint, address = at.address, at.address
            client = user.start(enrolment_token=registrar.token())
            client.record("a", 7)
            client.flush(seal=True)
            assert (await upload_with_companions(client, at, clock))["counted"] == 1
        seed, old_id = user.secrets()
        first_day = PLAN.period_start(clock())

        for _ in range(5):  # record 5 with the collector down
            clock.now += DAY_S
            client.record("a", 1)
            client.flush(seal=True)
            assert (await client.upload()).counted == 0
        assert client.spent().lifetime == Decimal(12)
        assert len(client.preview().waiting) == 5

        clock.now += DAY_S
        client.record("b", 1)  # in memory only
        client.opt_out()
        client.record("a", 1)
        assert client.opted_out
        assert client.counters()["opted_out"] == 5 + 2, "five reports and two readings"
        assert client.preview().waiting == ()
        assert user.secrets()[1] != old_id
        assert not user.holds(seed), "the identity's key is gone with it"
        assert (await client.upload()).as_dict()["deletion_rpc_unavailable"] == 1, "nobody there to be told"
        client.close()

        for consent in (True, False):  # restart; consent=True is no way back
            client = user.start(consent=consent)
            assert client.opted_out
            client.record("a", 1)
            assert (await client.upload()).as_dict().get("deletion_rpc_unavailable", 0) == 1
            client.close()

        async with collector_at(tmp_path, clock, listen=address) as at:  # collector up
            client = user.start()
            client.opt_in(enrolment_token=registrar.token())  # opt in
            client.record("a", 3)  # record 1
            client.flush(seal=True)
            summary = await upload_with_companions(client, at, clock)
            store, new_id = at.service.store, client.device_id

            contributions = store.contributions()
            late = [row for row in contributions if first_day < row.period_start < PLAN.period_start(clock())]
            assert late == [], "reports delivered of the first five"
            counts = at.service.monitor.snapshot()
            assert (counts["deletions"], client.counters()["deletion_acknowledged"]) == (1, 1)
            assert summary["counted"] == 1, "reports delivered after opting in"
            assert new_id != old_id
            listed = {row.device_id for row in store.spending(clock())}
            assert new_id in listed
            assert old_id not in listed
            assert store.device_totals(old_id) == (0, 0)
            assert client.spent().lifetime == Decimal(14), "no refund"

            # the report that was counted stays in its sum, and can never be counted again
            assert [row.period_start for row in contributions if row.device_id == old_id] == [first_day]
            copy = Device([1, 1], PLAN, IdentityKey(seed), PLAN.period_start(clock()))
            copy.certificate = certificate_of(copy.identity, clock())
            async with asyncio.timeout(10):
                assert (await copy.upload(at.address)).code is grpc.StatusCode.PERMISSION_DENIED
            assert at.service.monitor.snapshot()["rejections.opted_out"] == 1
            store.keep_house(first_day + 10 * DAY_S - 1)
            assert [row for row in store.contributions() if row.device_id == old_id]
            store.keep_house(first_day + 10 * DAY_S)
            assert [row for row in store.contributions() if row.device_id == old_id] == []
            assert (await copy.upload(at.address)).code is grpc.StatusCode.PERMISSION_DENIED, "for good"
            client.close()


async def test_a_period_that_was_sealed_before_opting_out_is_not_sealed_again(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "registrar", clock) as registrar:
        user = User(tmp_path / "device", registrar, clock)
        client = user.start(enrolment_token=registrar.token())
        client.record("a", 1)
        client.flush(seal=True)
        client.opt_out()
        client.opt_in(enrolment_token=registrar.token())
        client.record("a", 2)
        client.flush(seal=True)
        assert client.counters()["period_sealed"] == 1
        assert client.spent().lifetime == Decimal(2)
        clock.now += DAY_S
        client.record("a", 2)
        client.flush(seal=True)
        assert client.spent().lifetime == Decimal(4)
        client.close()


async def test_the_background_thread_repeats_the_request_without_consent(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "registrar", clock) as registrar:
        user = User(tmp_path / "device", registrar, clock)
        async with collector_at(tmp_path, clock) as at:
            user.endpoint = address = at.address
            client = user.start(enrolment_token=registrar.token())
            client.flush(seal=True)
            await upload_with_companions(client, at, clock)
            client.close()
        client = user.start(background=True)
        client.opt_out()
        await until(lambda: client.counters().get("deletion_rpc_unavailable", 0) > 0)
        client.close()
        clock.now += 3600
        async with collector_at(tmp_path, clock, listen=address) as at:
            client = user.start(background=True, consent=False)
            await until(lambda: at.service.monitor.snapshot().get("deletions", 0) == 1)
            await until(lambda: client.counters().get("deletion_acknowledged", 0) == 1)
            client.close()
            again = user.start(background=True, consent=False)
            await asyncio.sleep(0.3)
            assert at.service.monitor.snapshot().get("deletions_repeated", 0) == 0, "acknowledged is done"
            again.close()


async def delete(address: str, request: DeleteRequest) -> DeleteResponse:
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(DELETE_METHOD.path, **DELETE_METHOD.client_converters)
        response: DeleteResponse = await call(request, timeout=10)
        return response


def request_of(identity: IdentityKey, clock: Clock, certificate: bytes | None = None) -> DeleteRequest:
    at = int(clock())
    signature = identity.sign(deletion_message(identity.public_key, at))
    return DeleteRequest(identity.public_key, certificate or b"", at, signature)


async def test_what_the_collector_asks_of_a_request(tmp_path: Path) -> None:
    clock = Clock()
    async with collector_at(tmp_path, clock) as at:
        devices = companions(clock, 3)
        await at.upload(*devices)
        ours, store = devices[0].identity, at.service.store
        good = request_of(ours, clock, devices[0].certificate)
        forged = [
            DeleteRequest(good.identity_key, good.certificate, good.requested_at + 1, good.signature),
            DeleteRequest(devices[1].identity.public_key, good.certificate, good.requested_at, good.signature),
        ]
        for request in forged:
            with pytest.raises(aio.AioRpcError) as refused:
                await delete(at.address, request)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert len(store.spending(clock())) == 3

        clock.now += 400 * DAY_S  # the certificate ended long ago; a device may have been offline as long
        for _ in range(3):
            assert await delete(at.address, good) == DeleteResponse()
        assert {row.device_id for row in store.spending(clock())} == {d.identity.device_id for d in devices[1:]}
        # known here by what is booked, although it shows no certificate (one of another registrar, a lost one)
        await delete(at.address, request_of(devices[1].identity, clock))
        assert [row.device_id for row in store.spending(clock())] == [devices[2].identity.device_id]

        stranger = IdentityKey(bytes(range(32)))  # whoever draws keys fills no list
        await delete(at.address, request_of(stranger, clock))
        certified = IdentityKey(bytes(range(1, 33)))
        await delete(at.address, request_of(certified, clock, certificate_of(certified, clock() - 60 * DAY_S)))
        now = PLAN.period_start(clock())
        questions = [(key.device_id, "test", now) for key in (stranger, certified, ours)]
        assert [standing.opted_out for standing in store.standings(questions).values()] == [False, True, True]
        counts = at.service.monitor.snapshot()
        assert (counts["deletions"], counts["deletions_repeated"]) == (3, 3)
        assert counts["rejections.bad_signature"] == 2


async def test_a_device_that_opts_out_in_the_middle_of_a_round_gets_no_ledger(tmp_path: Path) -> None:
    clock = Clock()
    async with collector_at(tmp_path, clock) as at:
        first, *others = companions(clock, 3)

        async def leave(step: str, message: Any) -> Any:
            if step == "confirm":  # its masked input is in
                await delete(at.address, request_of(first.identity, clock, first.certificate))
            return message

        await asyncio.gather(first.upload(at.address, on_message=leave), *(d.upload(at.address) for d in others))
        assert at.sums() == [([3, 3], 3)], "what has left cannot be taken out of the sum"
        store = at.service.store
        assert first.identity.device_id in {row.device_id for row in store.contributions()}
        assert {row.device_id for row in store.spending(clock())} == {d.identity.device_id for d in others}


async def test_opting_out_breaks_off_an_upload_before_anything_has_left(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "registrar", clock) as registrar:
        user = User(tmp_path / "device", registrar, clock)
        async with collector_at(tmp_path, clock) as at:
            user.endpoint = at.address
            client = user.start(enrolment_token=registrar.token())
            client.flush(seal=True)
            steps = []

            def watch(step: str) -> None:
                steps.append(step)
                if step == "join":
                    client.opt_out()

            _, *others = await asyncio.gather(
                client.upload(before_send=watch), *(device.upload(at.address) for device in companions(clock))
            )
            assert steps == ["hello", "join"], "the round began, without it"
            assert [type(one.outcome) for one in others] == [RoundAborted, RoundAborted]
            assert (await client.upload()).failed == {}
            assert at.service.monitor.snapshot()["deletions"] == 1
            assert at.service.store.contributions() == []
            client.close()


def test_a_device_that_was_never_certified_has_nothing_to_delete(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "registrar", clock) as registrar:
        user = User(tmp_path / "device", registrar, clock)
        client = user.start()
        client.opt_out()
        assert client._engine.access.store().next_deletion() is None
        client.close()
        assert (user.folder / DATABASE_NAME).exists(), "that the user has left is kept"
