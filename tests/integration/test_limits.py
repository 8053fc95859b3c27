"""What a collector takes at most: excess is refused fast, with the right status and a count, and costs nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk import TelemetryClient
from client_sdk.device.transport import GrpcTransport
from client_sdk.errors import ConfigurationError, WireError
from client_sdk.plan import Plan, parse_plan
from client_sdk.wire.convert import get_plan_response_to_wire
from client_sdk.wire.messages import GetPlanRequest, GetPlanResponse
from client_sdk.wire.methods import GET_PLAN_METHOD, GET_REPORT_METHOD, PARTICIPATE_METHOD
from collector.service.app import CollectorService
from collector.service.catalogue import BYTES_PER_EDGE, Catalogue, round_bytes
from collector.service.health import CHECK, SERVING
from tests.fleet import REGISTRAR
from tests.integration.callers import Refused, bearer, device_client, read, reading_collector
from tests.integration.participants import until
from tests.integration.processes import ROOT
from tests.unit.collector.service.stores import plan_text

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
FULL = Refused(EXHAUSTED, "more than this collector takes at once; come back later")


def small_plan(members: int, *, max_wait: str = "1s", length: int = 3) -> Plan:
    categories = tuple(f"c{n}" for n in range(length - 1))
    text = plan_text(categories=categories).replace('max_wait = "30s"', f'max_wait = "{max_wait}"')
    rules = f"target_size = {members}\ncorrupt_fraction = 0\ndropout_fraction = 0"
    return parse_plan(text.replace("target_size = 10", rules))


PLAN = small_plan(3)


def places(service: CollectorService) -> int:
    """That calls hold now."""
    return service._gate._entrance._streams._open


@asynccontextmanager
async def opened(channel: aio.Channel, count: int, service: CollectorService) -> AsyncIterator[list[Any]]:
    """Streams on which nothing is said, and that have their places; nobody else has one."""
    calls = [channel.stream_stream(PARTICIPATE_METHOD.path)() for _ in range(count)]
    for call in calls:
        await call.wait_for_connection()
    await until(lambda: places(service) == count)
    try:
        yield calls
    finally:
        for call in calls:
            call.cancel()


@asynccontextmanager
async def from_elsewhere(address: str, *, source: str = "127.0.0.2") -> AsyncIterator[str]:
    """Another address of this machine's on the way to the collector: HOST:PORT to dial."""
    host, _, port = address.rpartition(":")

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        target.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def honest_cohort(folder: Path, address: str, count: int = 3) -> list[TelemetryClient]:
    """Devices with a report each."""
    devices = [device_client(folder / f"honest{n}", address, PLAN, insecure=True) for n in range(count)]
    for number, device in enumerate(devices):
        device.record("cold_start_ms", 100.0 * number)
        device.flush(seal=True)
    return devices


async def delivered(devices: Sequence[TelemetryClient]) -> list[int]:
    ended = await asyncio.gather(*(device.upload() for device in devices))
    for device in devices:
        device.close()
    return [summary.counted for summary in ended]


# --- streams ---------------------------------------------------------------------------------------------------


async def test_streams_of_one_address(tmp_path: Path) -> None:
    """The sixth of an address is refused at once; another address, and the supervisor's question, are answered."""
    async with (
        reading_collector(tmp_path, PLAN, max_streams_per_address=5) as service,
        from_elsewhere(service.address) as elsewhere,
        aio.insecure_channel(elsewhere) as flooding,
    ):
        async with opened(flooding, 5, service):
            started = time.monotonic()
            assert await read(flooding, GET_PLAN_METHOD.path, b"", []) == FULL
            assert await read(flooding, CHECK, b"", []) == FULL
            assert time.monotonic() - started < 1
            assert service.monitor.snapshot()["rejections.too_many"] == 2
            assert await delivered(await honest_cohort(tmp_path, service.address)) == [1, 1, 1]
        await until(lambda: places(service) == 0)
        assert isinstance(await read(flooding, GET_PLAN_METHOD.path, b"", []), bytes), "places are given back"


async def test_streams_in_total(tmp_path: Path) -> None:
    """All places taken: the next is refused whoever it is, but whether the collector serves is still answered."""
    async with (
        reading_collector(tmp_path, PLAN, max_streams=5, max_streams_per_address=1000) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        async with opened(channel, 5, service):
            assert await read(channel, GET_PLAN_METHOD.path, b"", []) == FULL
            assert await read(channel, CHECK, b"", []) == SERVING
        await until(lambda: places(service) == 0)
        assert isinstance(await read(channel, GET_PLAN_METHOD.path, b"", []), bytes)


async def test_joins_of_one_device_for_one_period(tmp_path: Path) -> None:
    async with reading_collector(tmp_path, PLAN, max_joins=2) as service:
        devices = await honest_cohort(tmp_path, service.address, 1)
        reasons = [(await devices[0].upload()).failed for _ in range(4)]
        assert reasons == [{"come_back": 1}] * 2 + [{"rpc_resource_exhausted": 1}] * 2
        counts = service.monitor.snapshot()
        assert (counts["joins"], counts["rejections.too_many_joins"]) == (2, 2)
        assert await delivered(await honest_cohort(tmp_path / "others", service.address)) == [1, 1, 1]
        devices[0].close()


# --- sizes -----------------------------------------------------------------------------------------------------


def peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


async def test_a_small_message_that_unpacks_to_a_large_one(tmp_path: Path) -> None:
    """64 MB of zeros in 64 KB: never unpacked here, whatever the method; the collector's memory does not move."""
    (tmp_path / "plan.toml").write_text(PLAN.text)
    command = [sys.executable, "-m", "collector.service", "serve", "--plan", str(tmp_path / "plan.toml")]
    command += ["--db", str(tmp_path / "c.db"), "--registrar-key", REGISTRAR.public_key.hex()]
    command += ["--listen", "127.0.0.1:0", "--insecure"]
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = (await asyncio.to_thread(process.stdout.readline)).removeprefix("listening on ").strip()
        options = [("grpc.max_send_message_length", -1)]
        async with aio.insecure_channel(address, options=options, compression=grpc.Compression.Gzip) as channel:
            assert isinstance(await read(channel, CHECK, b"", []), bytes)
            before = peak_kb(process.pid)
            for _ in range(4):
                with pytest.raises(aio.AioRpcError) as refused:
                    await channel.unary_unary(GET_PLAN_METHOD.path)(bytes(64 << 20), timeout=20)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                call: Any = channel.stream_stream(PARTICIPATE_METHOD.path)()
                await call.write(bytes(64 << 20))
                assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert peak_kb(process.pid) - before < 16_000
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


async def test_a_device_unpacks_nothing_either() -> None:
    """A collector that answers compressed, even with what would be a good answer unpacked: refused as malformed."""
    good = get_plan_response_to_wire(GetPlanResponse("x" * (1 << 20), bytes(32)))

    async def bomb(_request: bytes, _context: Any) -> bytes:
        return good

    server = aio.server(compression=grpc.Compression.Gzip)
    handler = grpc.unary_unary_rpc_method_handler(bomb)
    service = grpc.method_handlers_generic_handler(GET_PLAN_METHOD.service, {GET_PLAN_METHOD.name: handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with GrpcTransport(f"127.0.0.1:{port}", None).connect() as connection:
            with pytest.raises(WireError):
                await connection.get_plan(GetPlanRequest())
    finally:
        await server.stop(0)


async def test_a_message_above_the_plans_largest_ends_its_own_stream(tmp_path: Path) -> None:
    async with (
        reading_collector(tmp_path, PLAN) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        assert Catalogue([PLAN]).max_receive_bytes < 1 << 20
        call: Any = channel.stream_stream(PARTICIPATE_METHOD.path)()
        await call.write(bytes(900 << 10))
        assert await call.code() is EXHAUSTED
        assert await delivered(await honest_cohort(tmp_path, service.address)) == [1, 1, 1]


# --- memory ----------------------------------------------------------------------------------------------------


def test_what_a_round_may_need_is_bounded_by_roster_and_vector() -> None:
    few, many, long = small_plan(100), small_plan(1000), small_plan(100, length=2000)
    assert round_bytes(few) == 200 * (few.length * 8 + 199 * BYTES_PER_EDGE)
    assert round_bytes(long) - round_bytes(few) == 200 * (long.length - few.length) * 8
    degree = many.round_rules().degree(2000)
    assert round_bytes(many) == 2000 * (many.length * 8 + degree * BYTES_PER_EDGE)


def test_a_plan_above_the_bound_is_refused_in_one_line(tmp_path: Path) -> None:
    plan = small_plan(100)
    needed = round_bytes(plan)
    Catalogue([plan]).check_memory(needed)
    with pytest.raises(ConfigurationError, match="--max-round-memory") as refused:
        Catalogue([plan]).check_memory(needed - 1)
    assert "\n" not in str(refused.value)
    assert plan.name in str(refused.value)
    (tmp_path / "plan.toml").write_text(plan.text)
    command = [sys.executable, "-m", "collector.service", "serve", "--plan", str(tmp_path / "plan.toml")]
    command += ["--db", str(tmp_path / "c.db"), "--registrar-key", REGISTRAR.public_key.hex()]
    command += ["--listen", "127.0.0.1:0", "--insecure", "--max-round-memory", "1MB"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--max-round-memory" in done.stderr


# --- a flood ---------------------------------------------------------------------------------------------------

FLOOD_S = 4.0


async def test_a_flood_and_an_honest_cohort_beside_it(tmp_path: Path) -> None:
    """Silent streams, junk, bombs, guessed tokens, questions and bare connections from one address, as fast as they
    go, for seconds: the cohort of another address is counted meanwhile, and everything that was refused is counted.
    """
    async with (
        reading_collector(tmp_path, PLAN, max_streams_per_address=40, step_timeout_s=20.0) as service,
        from_elsewhere(service.address) as elsewhere,
    ):
        until = time.monotonic() + FLOOD_S
        heard: list[grpc.StatusCode | None] = []

        async def stream(channel: aio.Channel, data: bytes) -> None:
            call: Any = channel.stream_stream(PARTICIPATE_METHOD.path)()
            with contextlib.suppress(asyncio.InvalidStateError, aio.AioRpcError):
                await call.write(data)
                heard.append(await asyncio.wait_for(call.code(), 1.0))

        async def ask(channel: aio.Channel, path: str, data: bytes, metadata: Any) -> None:
            answer = await read(channel, path, data, metadata)
            heard.append(answer.code if isinstance(answer, Refused) else None)

        async def touch() -> None:
            host, _, port = elsewhere.rpartition(":")
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                writer.close()

        async def flood(number: int) -> None:
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with aio.insecure_channel(elsewhere, options=options, compression=grpc.Compression.Gzip) as channel:
                while time.monotonic() < until:
                    kinds = [stream(channel, b"\xff" * 100), stream(channel, bytes(200_000)), touch()]
                    kinds += [ask(channel, GET_REPORT_METHOD.path, b"", bearer(f"guess{number}")) for _ in range(5)]
                    kinds += [ask(channel, "/a/b", b"", []), ask(channel, CHECK, b"", [])]
                    await asyncio.gather(*kinds, return_exceptions=True)

        async with aio.insecure_channel(elsewhere) as holding, opened(holding, 39, service):
            flooding = [asyncio.create_task(flood(number)) for number in range(8)]
            await asyncio.sleep(0.5)
            started = time.monotonic()
            assert await delivered(await honest_cohort(tmp_path, service.address)) == [1, 1, 1]
            took = time.monotonic() - started
            assert time.monotonic() < until, "the flood was on all the while"
            await asyncio.gather(*flooding)
        counts = service.monitor.snapshot()
        assert counts["rejections.too_many"] > 50
        assert counts["rejections.bad_credentials"] > 10
        assert counts["rejections.malformed"] > 10
        assert counts["rounds.released"] == 1
        refusals = sum(count for name, count in counts.items() if name.startswith("rejections."))
        assert refusals >= sum(code is not None for code in heard), "every refusal that was heard was counted"
        print(f"cohort counted after {took:.2f} s beside {len(heard)} refused or answered calls")
