"""Bad networks between real devices and a real collector: rounds still finish, or devices keep their reports; nothing
is counted twice, and every sum is its contributors', to the unit."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from client_sdk import TelemetryClient
from client_sdk.device import session
from collector.service import app
from collector.service.listening import CONNECTION_OPTIONS
from tests.integration.callers import reading_collector
from tests.integration.participants import until
from tests.integration.real_fleet import RealFleet
from tests.integration.test_limits import small_plan
from tests.registrar import running
from tests.tcp_proxy import TcpProxy

LATENCY_S = 0.3
SLOW_LINK = 64_000 / 8
STEPS = ("join", "shares", "masked_input", "confirm", "unmask")


COUNTED_WITHOUT_IT = ("confirm", "unmask")
"""Who has sent its masked input is in the sum, whether it is heard of again or not."""


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'collector.db'}"


def proxy_of(address: str, seed: int = 0) -> TcpProxy:
    host, _, port = address.rpartition(":")
    return TcpProxy(host, int(port), seed=seed)


def outcomes(fleet: RealFleet) -> Counter[str]:
    return Counter(entry.outcome for client in fleet.clients for entry in client.history())


# --- slow ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "length"),
    [(LATENCY_S, None, 3), (0.0, SLOW_LINK, 1500), (LATENCY_S, SLOW_LINK, 300)],
    ids=["300 ms each way", "64 kbit/s each way", "both"],
)
async def test_a_slow_network_takes_one_attempt(
    tmp_path: Path, latency_s: float, bytes_per_s: float | None, length: int
) -> None:
    plan = small_plan(4, length=length)
    async with reading_collector(tmp_path, plan) as service:
        with proxy_of(service.address) as proxy:
            proxy.latency_s, proxy.bytes_per_s = latency_s, bytes_per_s
            fleet = RealFleet(tmp_path, proxy.address, plan, 4)
            started = time.monotonic()
            ended = await fleet.upload()
            took_s = time.monotonic() - started
        assert [summary.counted for summary in ended] == [1] * 4
        assert took_s > 6 * latency_s, "each step is an exchange"
        if bytes_per_s is not None:
            assert proxy.bytes_passed / 4 > bytes_per_s / 4, "the bandwidth mattered"
        fleet.check_books(url(tmp_path))
        fleet.close()


async def test_a_stall_in_the_middle_of_a_round_is_waited_out(tmp_path: Path) -> None:
    plan = small_plan(3)
    async with reading_collector(tmp_path, plan, step_timeout_s=20.0) as service:
        with proxy_of(service.address) as proxy:
            fleet = RealFleet(tmp_path, proxy.address, plan, 3)

            def stall(step: str) -> None:
                if step == "masked_input" and not proxy.stall:
                    proxy.stall = True
                    asyncio.get_running_loop().call_later(2.0, setattr, proxy, "stall", False)

            ended = await asyncio.gather(*(client.upload(stall) for client in fleet.clients))
        assert [summary.counted for summary in ended] == [1] * 3
        fleet.check_books(url(tmp_path))
        fleet.close()


# --- connections that are cut ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
async def test_everybody_is_cut_off_at_a_step(tmp_path: Path, step: str) -> None:
    # cases C01, E04, at the level of TCP
    plan = small_plan(4)
    async with reading_collector(tmp_path, plan, step_timeout_s=2.0) as service:
        with proxy_of(service.address) as proxy:
            fleet = RealFleet(tmp_path, proxy.address, plan, 4)
            seen = Counter[str]()

            def cut(at: str) -> None:
                seen[at] += 1
                if at == step and seen[at] == 3:  # most have sent theirs, one not
                    proxy.cut_all()

            await asyncio.gather(*(client.upload(cut) for client in fleet.clients))
            assert proxy.cuts >= 3, "all connections there were"
            assert len(fleet.waiting()) >= 1, "somebody heard nothing"
            fleet.check_devices()
            await fleet.upload_until_counted(company=2)
        fleet.check_books(url(tmp_path))
        fleet.close()


async def test_connections_cut_at_random(tmp_path: Path) -> None:
    # cases C01, E04
    plan = small_plan(6)
    async with reading_collector(tmp_path, plan, step_timeout_s=2.0) as service:
        with proxy_of(service.address, seed=1) as proxy:
            proxy.cut_probability = 0.03
            fleet = RealFleet(tmp_path, proxy.address, plan, 12)
            for _ in range(8):
                await fleet.upload(fleet.waiting())
                fleet.check_devices()
            assert proxy.cuts >= 5
            assert fleet.failures, "attempts failed"
            proxy.cut_probability = 0.0
            await fleet.upload_until_counted(company=3)
        books = fleet.check_books(url(tmp_path))
        assert len(books.sums) >= 2
        fleet.close()


# --- half-open connections -------------------------------------------------------------------------------------


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device waits for a collector that says nothing: seconds in place of a minute."""
    monkeypatch.setattr(session, "FIRST_ANSWER_S", 1.5)
    monkeypatch.setattr(session, "STEP_ALLOWANCE_S", 1.5)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("step", STEPS)
async def test_one_devices_path_goes_nowhere(tmp_path: Path, step: str) -> None:
    """The others' round ends as with any dropout; the device notices by its own deadline and keeps its report."""
    plan = small_plan(5)
    async with reading_collector(tmp_path, plan, step_timeout_s=1.0) as service:
        with proxy_of(service.address) as proxy:
            fleet = RealFleet(tmp_path, service.address, plan, 4)
            fleet.endpoint = proxy.address
            fleet.add(1)
            victim = fleet.clients[-1]

            def swallow(at: str) -> None:
                proxy.swallow = proxy.swallow or at == step

            started = time.monotonic()
            lost, *others = await asyncio.gather(
                victim.upload(swallow), *(client.upload() for client in fleet.clients[:4])
            )
            assert time.monotonic() - started < 15
            assert (lost.counted, lost.waiting, lost.failed) == (0, 1, {"timeout": 1})
            assert [summary.counted for summary in others] == [1] * 4, "a round of those that are left"
            fleet.check_devices()
            proxy.swallow = False
            await fleet.upload_until_counted(company=2)
        fleet.check_books(url(tmp_path))
        assert outcomes(fleet)["already_counted"] == (step in COUNTED_WITHOUT_IT)
        fleet.close()


@pytest.mark.usefixtures("_impatient")
async def test_receipts_that_went_nowhere(tmp_path: Path) -> None:
    # case C01: everything was said, nothing was heard
    plan = small_plan(3)
    async with reading_collector(tmp_path, plan) as service:
        with proxy_of(service.address) as proxy:
            proxy.latency_s = 0.3
            fleet = RealFleet(tmp_path, proxy.address, plan, 3)
            uploads = asyncio.gather(*(client.upload() for client in fleet.clients))
            await until(lambda: service.monitor.snapshot().get("rounds.released", 0) == 1, 20)
            proxy.swallow = True
            assert [summary.failed for summary in await uploads] == [{"timeout": 1}] * 3
            fleet.check_devices()
            proxy.swallow, proxy.latency_s = False, 0.0
            assert await fleet.upload_until_counted() == 1
        assert outcomes(fleet) == {"already_counted": 3}
        fleet.check_books(url(tmp_path))
        fleet.close()


@pytest.mark.usefixtures("_impatient")
async def test_a_path_that_goes_nowhere_from_the_start(tmp_path: Path) -> None:
    # case E01
    plan = small_plan(3)
    async with reading_collector(tmp_path, plan) as service:
        with proxy_of(service.address) as proxy:
            proxy.swallow = True
            fleet = RealFleet(tmp_path, proxy.address, plan, 3)
            started = time.monotonic()
            assert [summary.failed for summary in await fleet.upload()] == [{"timeout": 1}] * 3
            assert time.monotonic() - started < 10
            proxy.swallow = False
            await fleet.upload_until_counted()
        fleet.check_books(url(tmp_path))
        fleet.close()


async def test_the_collector_lets_go_of_half_open_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in silence is asked for a sign of life; who gives none frees its place."""
    quick = {"grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 500, "grpc.http2.ping_timeout_ms": 500}
    assert quick.keys() <= dict(CONNECTION_OPTIONS).keys()
    options = [(name, quick.get(name, value)) for name, value in CONNECTION_OPTIONS]
    monkeypatch.setattr(app, "CONNECTION_OPTIONS", options)
    plan = small_plan(3, max_wait="60s")
    async with reading_collector(tmp_path, plan, step_timeout_s=60.0) as service:
        with proxy_of(service.address) as proxy:
            fleet = RealFleet(tmp_path, proxy.address, plan, 2)
            uploads = [asyncio.ensure_future(client.upload()) for client in fleet.clients]
            assert service._gate is not None
            streams = service._gate._entrance._streams
            await until(lambda: streams._open == 2)
            await asyncio.sleep(0.5)
            proxy.swallow = True
            await until(lambda: streams._open == 0, 10)
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)
        fleet.close()


# --- the registrar ---------------------------------------------------------------------------------------------


async def test_a_certificate_that_was_lost_on_the_way(tmp_path: Path) -> None:
    """The token was used and nobody heard: the same token still answers the same device."""
    plan = small_plan(3)
    with running(tmp_path / "registrar") as registrar, proxy_of(registrar.address) as proxy:
        client = TelemetryClient(
            "127.0.0.1:9",
            plan=plan,
            data_dir=tmp_path / "device",
            consent=True,
            insecure=True,
            background=False,
            enrolment_token=registrar.token(),
            registrar=proxy.address,
            registrar_key=registrar.settings["registrar_key"],
        )
        client.flush(seal=True)
        proxy.latency_s = 0.5
        upload = asyncio.ensure_future(client.upload())
        await until(lambda: registrar.counts.get("enrolled", 0) == 1)
        proxy.cut_all()
        assert "rpc_unavailable" not in (await upload).failed, "no collector was asked"
        assert client.counters().get("enrolled", 0) == 0
        proxy.latency_s = 0.0
        await client.upload()
        assert client.counters()["enrolled"] == 1
        assert registrar.counts["enrolled"] == 2
        assert registrar.service.store.overview(time.time()).identities == 1
        client.close()
