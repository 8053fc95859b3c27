"""Callers who open a call, or a connection, and then say nothing, too much, or take no answer: each holds places of its
own address only, for the time of one request, and everybody else is served beside it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk.identity import IdentityKey, enrolment_message
from client_sdk.wire.messages import EnrolRequest
from client_sdk.wire.methods import (
    DELETE_METHOD,
    ENROL_METHOD,
    GET_PLAN_METHOD,
    GET_PRIVACY_METHOD,
    PARTICIPATE_METHOD,
    RENEW_METHOD,
)
from collector.service import app, cli, entrance
from collector.service.health import CHECK
from collector.service.registrar import service as registrar_service
from tests.integration.callers import reading_collector
from tests.integration.participants import until
from tests.integration.test_limits import PLAN, delivered, from_elsewhere, honest_cohort
from tests.registrar import running

HALF_OPEN, PER_ADDRESS, TOTAL = 60, 5, 20
REFUSED = {grpc.StatusCode.RESOURCE_EXHAUSTED: HALF_OPEN - PER_ADDRESS, grpc.StatusCode.DEADLINE_EXCEEDED: PER_ADDRESS}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a request, and a last resort that the half-open calls would reach if they were not refused."""
    monkeypatch.setattr(entrance, "REQUEST_TIMEOUT_S", 2.0)
    monkeypatch.setattr(app, "CALLS_BESIDE", 10)
    monkeypatch.setattr(registrar_service, "CALLS_BESIDE", 10)


async def never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


@asynccontextmanager
async def half_open(address: str, path: str, metadata: Any = None) -> AsyncIterator[list[Any]]:
    """Calls of one address, over three connections, that send their headers and no request."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [aio.insecure_channel(address, options=options) for _ in range(3)]
    calls = [channels[n % 3].stream_unary(path)(never(), metadata=metadata) for n in range(HALF_OPEN)]
    try:
        yield calls
    finally:
        for call in calls:
            call.cancel()
        for channel in channels:
            await channel.close()


async def codes(calls: list[Any]) -> dict[grpc.StatusCode, int]:
    return Counter(await asyncio.wait_for(asyncio.gather(*(call.code() for call in calls)), 10))


# --- calls without a request -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DELETE_METHOD.path, GET_PLAN_METHOD.path, CHECK, PARTICIPATE_METHOD.path])
async def test_half_open_calls_at_a_collector(tmp_path: Path, path: str) -> None:
    limits = {"max_streams": TOTAL, "max_streams_per_address": PER_ADDRESS, "step_timeout_s": 2.0}
    async with reading_collector(tmp_path, PLAN, **limits) as service, from_elsewhere(service.address) as elsewhere:
        devices = await honest_cohort(tmp_path, service.address)
        async with half_open(elsewhere, path) as calls:
            await until(lambda: sum(call.done() for call in calls) == HALF_OPEN - PER_ADDRESS)
            assert await delivered(devices) == [1, 1, 1]
            assert not all(call.done() for call in calls), "they were open all the while"
            assert await codes(calls) == REFUSED
        counts = service.monitor.snapshot()
        assert (counts["rejections.too_many"], counts["rejections.late"]) == (HALF_OPEN - PER_ADDRESS, PER_ADDRESS)


async def test_nothing_is_awaited_from_who_may_not_ask(tmp_path: Path) -> None:
    async with reading_collector(tmp_path, PLAN) as service:
        started = time.monotonic()
        for path in (GET_PRIVACY_METHOD.path, "/no.such/Method"):
            async with half_open(service.address, path) as calls:
                assert await codes(calls) == {grpc.StatusCode.UNAUTHENTICATED: HALF_OPEN}
        assert time.monotonic() - started < entrance.REQUEST_TIMEOUT_S


@pytest.mark.parametrize("path", [ENROL_METHOD.path, RENEW_METHOD.path])
async def test_half_open_calls_at_a_registrar(tmp_path: Path, path: str) -> None:
    limits = {"max_calls": TOTAL, "max_calls_per_address": PER_ADDRESS}
    with running(tmp_path / "registrar", **limits) as registrar:
        identity, token = IdentityKey(bytes(32)), registrar.token()
        request = EnrolRequest(token, identity.public_key, identity.sign(enrolment_message(token)))
        async with from_elsewhere(registrar.address) as elsewhere, half_open(elsewhere, path) as calls:
            await until(lambda: sum(call.done() for call in calls) == HALF_OPEN - PER_ADDRESS)
            async with aio.insecure_channel(registrar.address) as channel:
                ask = channel.unary_unary(ENROL_METHOD.path, **ENROL_METHOD.client_converters)
                assert (await ask(request, timeout=5)).certificate
            assert not all(call.done() for call in calls), "they were open all the while"
            assert await codes(calls) == REFUSED
        assert registrar.counts["rejections.too_many"] == HALF_OPEN - PER_ADDRESS
        assert registrar.counts["rejections.late"] == PER_ADDRESS


async def test_the_registrars_total(tmp_path: Path) -> None:
    with running(tmp_path / "registrar", max_calls=PER_ADDRESS, max_calls_per_address=1000) as registrar:
        async with half_open(registrar.address, ENROL_METHOD.path) as calls:
            assert await codes(calls) == REFUSED


@pytest.mark.parametrize("requests", [[], [b"", b""]])
async def test_no_request_and_one_too_many(tmp_path: Path, requests: list[bytes]) -> None:
    async with reading_collector(tmp_path, PLAN, max_streams_per_address=1) as service:
        async with aio.insecure_channel(service.address) as channel:
            for _ in range(3):
                call = channel.stream_unary(GET_PLAN_METHOD.path)(iter(requests))
                assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
                await asyncio.sleep(0.05)
            assert await channel.unary_unary(GET_PLAN_METHOD.path)(b""), "its place was given back"
        assert service.monitor.snapshot()["rejections.malformed"] == 3


# --- below the calls: frames by hand ---------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def whole_call(stream: int, path: str) -> bytes:
    """A unary call with an empty request: POST and http from the static table, the rest literal."""
    fields = {":path": path, ":authority": "a", "content-type": "application/grpc", "te": "trailers"}
    block = b"\x83\x86" + b"".join(literal(name, value) for name, value in fields.items())
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, bytes(5))


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def test_answers_that_are_not_taken_hold_their_places(tmp_path: Path) -> None:
    """A peer that asks for the plan and lets no byte of it through is counted until it leaves."""
    async with reading_collector(tmp_path, PLAN, max_streams=TOTAL, max_streams_per_address=PER_ADDRESS) as service:
        async with from_elsewhere(service.address) as elsewhere:
            _, writer = await connect(elsewhere)
            writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0)))
            writer.write(frame(SETTINGS, ACK, 0))
            for number in range(HALF_OPEN):
                writer.write(whole_call(1 + 2 * number, GET_PLAN_METHOD.path))
            refused = HALF_OPEN - PER_ADDRESS
            await until(lambda: service.monitor.snapshot().get("rejections.too_many", 0) >= refused)
            assert await delivered(await honest_cohort(tmp_path, service.address)) == [1, 1, 1]
            assert service.monitor.snapshot()["rejections.too_many"] == refused
            writer.close()
        async with aio.insecure_channel(service.address) as channel:
            assert await channel.unary_unary(GET_PLAN_METHOD.path)(b"", timeout=5)


@pytest.mark.parametrize("said", [b"", PREFACE, PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0)])
async def test_connections_without_a_call_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Silent; in the middle of the handshake; after it: the two options that end these are set, here to less."""
    quick = {"grpc.server_handshake_timeout_ms": 300, "grpc.max_connection_idle_ms": 300}
    assert quick.keys() <= dict(app.CONNECTION_OPTIONS).keys()
    options = [(name, quick.get(name, value)) for name, value in app.CONNECTION_OPTIONS]
    monkeypatch.setattr(app, "CONNECTION_OPTIONS", options)
    async with reading_collector(tmp_path, PLAN) as service:
        reader, writer = await connect(service.address)
        writer.write(said)
        await asyncio.wait_for(reader.read(), 5)
        writer.close()


# --- the registrar's two limits on the command line ------------------------------------------------------------


@pytest.mark.parametrize("option", ["--max-calls", "--max-calls-per-address"])
def test_a_limit_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    command = ["registrar", "serve", "--dir", str(tmp_path), "--insecure", option, "0"]
    assert cli.main(command) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), option in err) == ("", 1, True)
