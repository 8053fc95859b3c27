"""Devices that hold different plans never share a round, and a fetched plan follows its operator, not its collector."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk import ConfigurationError, TelemetryClient
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.signature import sign_plan
from client_sdk.secagg.messages import Receipt
from collector.service.app import CollectorService
from collector.service.settings import ServeSettings
from tests.integration.participants import Device, Running, collector, two_number_plan
from tests.registrar import KEY_HEX, running
from tests.stopping import stopped

NOW = 1_767_268_800.0  # 2026-01-01T12:00Z
OPERATOR = IdentityKey(bytes(range(32)))

CATEGORIES = """
[plan]
name = "{name}"
version = {version}
period = "1d"
[cohort]
min_size = 2
target_size = 5
max_wait = "1s"
corrupt_fraction = 0
dropout_fraction = 0
[budget]
lifetime = 100
[metrics.answer]
kind = "categorical"
categories = [{categories}]
epsilon = 1.0
"""


def plan_of(categories: str, version: int = 1, name: str = "test") -> Plan:
    quoted = ", ".join(f'"{one}"' for one in categories)
    return parse_plan(CATEGORIES.format(categories=quoted, version=version, name=name))


def one_hot(place: int, length: int) -> list[int]:
    return [int(cell == place) for cell in range(length)]


# case D11
async def test_two_lists_of_categories_are_two_rounds(tmp_path: Path) -> None:
    """Devices 1 to 3 know x, y, z; 4 and 5 know w too. All come at once: two rounds, each with its own minimum."""
    three, four = plan_of("xyz"), plan_of("xyzw", version=2)
    async with collector(tmp_path, three, four) as at:
        old = [Device(one_hot(i, 3), three) for i in range(3)]
        new = [Device(one_hot(3, 4), four) for _ in range(2)]
        ended = await at.upload(*old, *new)
        assert [one.outcome.contributors for one in ended if isinstance(one.outcome, Receipt)] == [3, 3, 3, 2, 2]
        store = at.service.store
        sums = {row.plan_hash: list(row.totals) for row in store.released_sums()}
        assert sums == {three.hash: [1, 1, 1], four.hash: [0, 0, 0, 2]}, "no sum mixes the two lists"
        assert len({row.round_id for row in store.released_sums()}) == 2


# case D11
async def test_a_list_in_another_order_is_another_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Equal length, the order changed for device 5: nobody knows its plan, and the others' sum is theirs alone."""
    known, swapped = plan_of("xyzw"), plan_of("xywz")
    assert known.length == swapped.length
    assert known.hash != swapped.hash
    async with collector(tmp_path, known) as at:
        devices = [Device(one_hot(i, 4), known) for i in range(4)]
        ended = await at.upload(*devices, Device(one_hot(3, 4), swapped))
        assert ended[-1].code is grpc.StatusCode.FAILED_PRECONDITION
        assert at.sums() == [([1, 1, 1, 1], 4)]
        assert at.service.monitor.snapshot()["rejections.unknown_plan"] == 1
    (said,) = [line for record in caplog.records if (line := record.getMessage()).startswith("refused")]
    assert said.startswith(f"refused: unknown_plan 1 (one asked for {swapped.hash.hex()[:8]}...: serve the very file")


@asynccontextmanager
async def serving(
    folder: Path, *plans: tuple[Plan, bool], now: Sequence[float] = (NOW,), listen: str = "127.0.0.1:0"
) -> AsyncIterator[Running]:
    """A collector of these plans; True: signed by the operator. Each start has a store of its own."""
    paths = []
    for number, (plan, is_signed) in enumerate(plans):
        path = folder / f"{number}.toml"
        path.write_text(plan.text, encoding="utf-8")
        sig = folder / f"{number}.toml.sig"
        sig.unlink(missing_ok=True)
        if is_signed:
            sig.write_text(sign_plan(OPERATOR, plan).as_text())
        paths.append(path)
    database = f"sqlite:///{folder / f'collector-{time.monotonic_ns()}.db'}"
    settings = ServeSettings(tuple(paths), database, registrar_key=KEY_HEX, listen=listen, insecure=True)
    service = await CollectorService.start(settings, lambda: now[0])
    try:
        yield Running(service)
    finally:
        assert await stopped(service)


async def test_a_device_follows_its_operator_to_the_next_version(tmp_path: Path) -> None:
    """The collector stops knowing the plan that a device fetched: it says so, and the device fetches the newest."""
    one, two, forged = plan_of("xyz"), plan_of("xyzw", version=2), plan_of("xyzwv", version=3)
    now = [NOW]
    with running(tmp_path / "registrar", lambda: now[0]) as registrar:
        settings: dict[str, Any] = {
            "data_dir": tmp_path / "device", "consent": True, "insecure": True, "background": False,
            "plan_key": OPERATOR.public_key, "clock": lambda: now[0], **registrar.settings,
        }  # fmt: skip
        async with serving(tmp_path, (one, True), now=now) as at:
            address = at.address
            client = TelemetryClient(address, enrolment_token=registrar.token(), **settings)
            await client.upload()
            client.record("answer", "x")
            client.flush(seal=True)
            assert client._engine.recorder.plan == one
        now[0] += 3_601
        async with serving(tmp_path, (forged, False), now=now, listen=address):  # without the operator's word
            summary = await client.upload()
            assert summary.failed == {"rpc_failed_precondition": 1}
            assert client.counters()["plan_signature"] == 1
            await client.upload()
            assert client.counters()["plan_signature"] == 1, "asked again only after an hour"
        now[0] += 3_601
        async with serving(tmp_path, (two, True), now=now, listen=address):
            assert (await client.upload()).failed == {"rpc_failed_precondition": 1}
            assert client._engine.recorder.plan == one, "the period goes on under its plan"
        client.close()
        now[0] += 86_400
        client = TelemetryClient(address, **settings)
        assert client._engine.recorder.plan == two, "held from now on, no call needed"
        client.record("answer", "w")
        client.flush(seal=True)
        assert {waiting.plan_hash for waiting in client.preview().waiting} == {one.hash, two.hash}
        client.close()


async def test_a_signature_that_does_not_hold_is_found_before_devices_find_it(tmp_path: Path) -> None:
    plan = two_number_plan(2, 2)
    async with serving(tmp_path, (plan, True)):
        pass
    (tmp_path / "0.toml").write_text(plan.text.replace("version = 1", "version = 2"), encoding="utf-8")
    database = f"sqlite:///{tmp_path / 'x.db'}"
    settings = ServeSettings((tmp_path / "0.toml",), database, registrar_key=KEY_HEX, insecure=True)
    with pytest.raises(ConfigurationError, match="sign that again"):
        await CollectorService.start(settings)
