"""A collector as its operator watches it: a real process, real scrapes and logs, and the end that a supervisor sees."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from prometheus_client.parser import text_string_to_metric_families

from client_sdk.identity import IdentityKey, device_id_of, enrolment_message
from client_sdk.secagg.messages import Receipt
from client_sdk.wire.messages import EnrolRequest
from client_sdk.wire.methods import ENROL_METHOD, ENROLMENT_SERVICE, PLAN_SERVICE, SECAGG_SERVICE
from collector.service.app import SERVICES
from collector.service.health import CHECK, MAX_WATCHERS, NOT_SERVING, SERVICE_UNKNOWN, SERVING, WATCH
from collector.service.storage_errors import StoreError, StoreProblem
from tests import postgres
from tests.integration.participants import Device, Running, collector, two_number_plan, until
from tests.integration.processes import PLAIN, ROOT, SERVE, Process, command, serving
from tests.registrar import folder_with_key
from tests.registrar import running as running_registrar

PLAN = two_number_plan(min_size=2, target_size=3)
WATCHED = (*PLAIN, "--metrics", "127.0.0.1:0", "--log-format", "json")

Page = dict[tuple[str, str], float]


def some(count: int) -> list[Device]:
    return [Device([i, 10 * i], PLAN) for i in range(1, count + 1)]


def log_lines(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log.read_text().splitlines()]


def metrics_address(process: Process) -> str:
    return next(str(line["address"]) for line in log_lines(process) if line.get("event") == "metrics")


async def http_get(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def scrape(address: str) -> Page:
    """Values by name and joined label values."""
    status, text = await http_get(address, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(s.name, "/".join(s.labels.values())): s.value for family in families for s in family.samples}


def asks_for(service: str) -> bytes:
    return b"\x0a" + bytes([len(service)]) + service.encode() if service else b""


@asynccontextmanager
async def watching(address: str, service: str = "") -> AsyncIterator[Callable[[], Any]]:
    """The next status that Watch tells, within half a minute."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_stream(WATCH)(asks_for(service))
        yield lambda: asyncio.wait_for(call.read(), 30)
        call.cancel()


async def check(address: str, service: str = "") -> bytes:
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return bytes(await channel.unary_unary(CHECK)(asks_for(service), timeout=10))


async def test_what_a_scrape_and_the_log_say_of_two_rounds(tmp_path: Path) -> None:
    """One released, one aborted, one stranger; and nothing of any device anywhere."""
    devices = some(6)
    async with serving(tmp_path, PLAN, *WATCHED, "--step-timeout", "1s") as running:
        page = metrics_address(running)
        before = await scrape(page)
        assert before["ldp_serving", ""] == before["ldp_database_up", ""] == 1
        assert before["ldp_rounds_total", "released/none"] == 0
        done = await asyncio.gather(*(device.upload(running.address) for device in devices[:3]))
        assert all(isinstance(one.outcome, Receipt) for one in done)
        await asyncio.gather(*(device.upload(running.address, leave_before="shares") for device in devices[3:]))
        async with aio.insecure_channel(running.address) as channel:
            with pytest.raises(aio.AioRpcError):
                await channel.unary_unary("/no.such.Service/Method")(b"x", timeout=5)
        after = await scrape(page)
        text = (await http_get(page, "/metrics"))[1]
        running.process.send_signal(signal.SIGTERM)
        assert await running.wait(10) == 0
        lines, log_text = log_lines(running), running.log.read_text()
    assert after["ldp_rounds_total", "released/none"] == 1
    assert (
        sum(value for (name, label), value in after.items() if (name, label[:7]) == ("ldp_rounds_total", "aborted"))
        == 1
    )
    assert after["ldp_contributions_total", "interactive"] == 3
    assert (after["ldp_cohort_size_count", ""], after["ldp_cohort_size_sum", ""]) == (1, 3)
    assert after["ldp_dropouts_total", "shares"] == 3
    assert after["ldp_rejections_total", "bad_credentials"] == 1
    assert after["ldp_step_seconds_count", "shares"] == 2
    for step in ("masked_input", "confirm", "unmask"):
        assert after["ldp_step_seconds_count", step] == 1
    assert after["ldp_opening_seconds_count", ""] == 1
    assert after["ldp_opening_seconds_sum", ""] > 0
    assert after["ldp_database_seconds_count", "store_releases"] == 1
    assert after["ldp_database_seconds_count", "record_aborted"] == 1
    assert after["ldp_joins_total", ""] == 6
    assert after["ldp_streams_open", ""] == after["ldp_waiting_devices", ""] == after["ldp_running_rounds", ""] == 0
    assert after["process_resident_memory_bytes", ""] > 10e6
    events = [line.get("event") for line in lines]
    assert [event for event in events if event is not None] == events, "every line of ours has its name"
    released = next(line for line in lines if line["event"] == "round_released")
    assert (released["joined"], released["contributors"], released["dropouts"]["shares"]) == (3, 3, 0)
    aborted = next(line for line in lines if line["event"] == "round_aborted")
    assert (aborted["level"], aborted["dropouts"]["shares"]) == ("warning", 3)
    assert {"listening", "metrics", "stopping", "stopped"} <= set(events)
    for device in devices:
        for secret in (
            device_id_of(device.identity.public_key),
            device.identity.public_key.hex(),
            device.identity.seed.hex(),
        ):
            assert secret not in text + log_text
    assert "127.0.0.1:" not in re.sub(r'"address": "127\.0\.0\.1:\d+"|listening on \S+|http://\S+', "", log_text), (
        "no peer"
    )


async def test_draining_tells_first_and_still_takes_who_comes(tmp_path: Path) -> None:
    """NOT_SERVING at once, to who watches and who asks; joins and rounds go on until the time is up; then the end."""
    async with serving(tmp_path, PLAN, *WATCHED, "--drain", "4s") as running:
        page = metrics_address(running)
        async with watching(running.address, SECAGG_SERVICE) as status:
            assert await status() == SERVING
            assert (await http_get(page, "/readyz"))[0] == 200
            started = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            assert await status() == NOT_SERVING
        for service in ("", *SERVICES):
            assert await check(running.address, service) == NOT_SERVING
        assert (await http_get(page, "/readyz"))[0] == 503
        assert (await http_get(page, "/healthz"))[0] == 200
        assert (await scrape(page))["ldp_serving", ""] == 0
        ended = await asyncio.gather(*(device.upload(running.address) for device in some(3)))
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert running.process.poll() is None
        assert await running.wait(10) == 0
        assert 4.0 <= time.monotonic() - started < 30.0
        events = [line["event"] for line in log_lines(running)]
    assert events[-4:] == ["draining", "round_released", "stopping", "stopped"]


async def test_a_second_signal_ends_the_draining(tmp_path: Path) -> None:
    async with serving(tmp_path, PLAN, *PLAIN, "--drain", "60s") as running:
        running.process.send_signal(signal.SIGTERM)
        await until(lambda: "draining" in running.log.read_text())
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGTERM)
        assert await running.wait(5) == 128 + signal.SIGTERM


def test_a_port_that_is_taken_is_one_line_and_nothing_listens(tmp_path: Path) -> None:
    (tmp_path / "serve").mkdir()
    folder_with_key(tmp_path / "registrar")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        metrics = ("--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
        registrar = [*SERVE, "registrar", "serve", "--dir", str(tmp_path / "registrar"), *PLAIN]
        for line in (command(tmp_path / "serve", PLAN, *PLAIN), registrar):
            done = subprocess.run([*line, *metrics], check=False, capture_output=True, text=True, cwd=ROOT, timeout=99)
            assert (done.returncode, done.stdout) == (3, "")
            assert (done.stderr.count("\n"), metrics[1] in done.stderr, "--metrics" in done.stderr) == (1, True, True)


# --- health ----------------------------------------------------------------------------------------------------


class Outage:
    """Makes a collector's probes fail, or hang, while it lasts."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = False
        store, probe = running.service.store, type(running.service.store).probe

        def probed(this: Any) -> None:
            if self.now:
                raise StoreError(getattr(store, "where", getattr(store, "path", "")), StoreProblem.FULL)
            probe(this)

        monkeypatch.setattr(type(store), "probe", probed)


async def test_watch_follows_the_store_service_by_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector(tmp_path, PLAN) as running:
        outage = Outage(running, monkeypatch)
        async with watching(running.address) as whole, watching(running.address, PLAN_SERVICE) as plans:
            assert (await whole(), await plans()) == (SERVING, SERVING)
            outage.now = True
            assert await whole() == NOT_SERVING
            assert await check(running.address, SECAGG_SERVICE) == NOT_SERVING
            assert await check(running.address, PLAN_SERVICE) == SERVING, "plans are in memory"
            outage.now = False
            assert await whole() == SERVING
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(plans(), 1.5)


async def test_a_database_that_goes_and_comes_back(tmp_path: Path) -> None:
    """A real server, stopped and started: who watches hears of both, and so does a scrape."""
    with postgres.durable_server() as server:
        url = server.new_database()
        async with serving(tmp_path, PLAN, *WATCHED, "--db", url) as running:
            page = metrics_address(running)
            async with watching(running.address) as status:
                assert await status() == SERVING
                await asyncio.to_thread(server.stop)
                assert await status() == NOT_SERVING
                away = await scrape(page)
                assert away["ldp_serving", ""] == away["ldp_database_up", ""] == 0
                assert away["ldp_outages_total", "unreachable"] == 1
                await asyncio.to_thread(server.start)
                assert await status() == SERVING
            ended = await asyncio.gather(*(device.upload(running.address) for device in some(3)))
            assert all(isinstance(one.outcome, Receipt) for one in ended)
            back = await scrape(page)
            assert back["ldp_database_up", ""] == back["ldp_serving", ""] == 1
            assert back["ldp_contributions_total", "interactive"] == 3
            events = [line["event"] for line in log_lines(running)]
    assert [event for event in events if event.startswith("outage")] == ["outage", "outage_over"]


async def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running:
        for name in ("ldp.telemetry.v1.Nothing", "ldp.telemetry.v1.", "x" * 100):
            async with watching(running.address, name) as status:
                assert await status() == SERVICE_UNKNOWN
            with pytest.raises(aio.AioRpcError) as heard:
                await check(running.address, name)
            assert heard.value.code() is grpc.StatusCode.NOT_FOUND


async def test_watchers_are_few_and_take_nobodys_place(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN, max_streams=2, max_streams_per_address=2000) as running:
        async with aio.insecure_channel(running.address) as channel:
            calls = [channel.unary_stream(WATCH)(b"") for _ in range(MAX_WATCHERS)]
            assert [await call.read() for call in calls] == [SERVING] * MAX_WATCHERS
            one_more = channel.unary_stream(WATCH)(b"")
            with pytest.raises(aio.AioRpcError) as heard:
                await one_more.read()
            assert heard.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await check(running.address) == SERVING
            ended = await asyncio.gather(*(device.upload(running.address) for device in some(2)))
            assert all(isinstance(one.outcome, Receipt) for one in ended)
            for call in calls:
                call.cancel()
        await asyncio.sleep(0.2)
        async with watching(running.address) as status:
            assert await status() == SERVING, "their places are free again"


async def test_the_standard_library_for_health_understands_us(tmp_path: Path) -> None:
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    stubs = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    async with collector(tmp_path, PLAN) as running, aio.insecure_channel(running.address) as channel:
        stub = stubs.HealthStub(channel)
        for service in ("", *SERVICES):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        call = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
        assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        call.cancel()


# --- the registrar ---------------------------------------------------------------------------------------------


async def test_a_registrar_is_watched_the_same_way(tmp_path: Path) -> None:
    """Its page counts what it did, its health and readiness say when it drains, and nothing tells who came."""
    with running_registrar(tmp_path / "registrar", metrics="127.0.0.1:0") as registrar:
        page = registrar.service.metrics_address
        assert (await http_get(page, "/readyz"))[0] == 200
        token, owner = registrar.token(), IdentityKey(bytes(range(32)))
        request = EnrolRequest(token, owner.public_key, owner.sign(enrolment_message(token)))
        async with aio.insecure_channel(registrar.address) as channel:
            enrol = channel.unary_unary(ENROL_METHOD.path, **ENROL_METHOD.client_converters)
            await enrol(request, timeout=10)
            with pytest.raises(aio.AioRpcError):
                await enrol(EnrolRequest(token, owner.public_key, bytes(64)), timeout=10)
        found = await scrape(page)
        assert found["ldp_certificates_issued_total", "enrolled"] == 1
        assert found["ldp_rejections_total", "bad_signature"] == 1
        assert found["ldp_database_seconds_count", "enrol"] == 1
        assert found["ldp_serving", ""] == 1
        text = (await http_get(page, "/metrics"))[1]
        assert token not in text
        assert device_id_of(owner.public_key) not in text
        async with watching(registrar.address, ENROLMENT_SERVICE) as status:
            assert await status() == SERVING
            draining = asyncio.run_coroutine_threadsafe(registrar.service.drain(0.0), registrar._loop)
            assert await status() == NOT_SERVING
            draining.result(5)
        assert await check(registrar.address) == NOT_SERVING
        assert (await http_get(page, "/readyz"))[0] == 503


# --- reflection ------------------------------------------------------------------------------------------------


async def reflected(address: str, *requests: Any, version: str) -> list[Any]:
    from grpc_reflection.v1alpha import reflection_pb2

    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda one: one if isinstance(one, bytes) else one.SerializeToString(),
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(iter(requests), timeout=10)
        return [answer async for answer in call]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_tells_the_services_and_their_descriptions(tmp_path: Path, version: str) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest as Request

    async with collector(tmp_path, PLAN, reflection=True) as running:
        asked = [Request(list_services=""), *(Request(file_containing_symbol=service) for service in SERVICES)]
        listed, *files = await reflected(running.address, *asked, version=version)
        names = {service.name for service in listed.list_services_response.service}
        assert {*SERVICES, "grpc.health.v1.Health"} < names
        for service, answer in zip(SERVICES, files, strict=True):
            found = [
                FileDescriptorProto.FromString(data) for data in answer.file_descriptor_response.file_descriptor_proto
            ]
            assert service in {f"{file.package}.{one.name}" for file in found for one in file.service}
        with pytest.raises(aio.AioRpcError) as heard:
            await reflected(running.address, b"\xff\xff", version=version)
        assert heard.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_reflection_is_off_unless_asked_for(tmp_path: Path) -> None:
    async with collector(tmp_path, PLAN) as running, aio.insecure_channel(running.address) as channel:
        for version in ("v1", "v1alpha"):
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            with pytest.raises(aio.AioRpcError) as heard:
                await channel.unary_unary(path)(b"\x3a\x00", timeout=10)
            assert heard.value.code() is grpc.StatusCode.UNAUTHENTICATED, "like every method that is not there"
