"""Who may ask a running collector what: every caller against every call, and what a refusal costs and tells."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk.certificate import Role
from client_sdk.identity import IdentityKey
from client_sdk.wire.limits import DOCUMENT_PIECE_BYTES
from client_sdk.wire.messages import GetCountersRequest, GetPlanRequest, GetPrivacyRequest, GetReportRequest
from client_sdk.wire.methods import (
    GET_COUNTERS_METHOD,
    GET_PLAN_METHOD,
    GET_PRIVACY_METHOD,
    GET_REPORT_METHOD,
    PARTICIPATE_METHOD,
)
from collector.service import reporting
from collector.service.health import CHECK, NOT_SERVING, SERVING
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from tests.integration.callers import (
    Metadata,
    Refused,
    assertion_metadata,
    bearer,
    certificate_of,
    document,
    read,
    reading_collector,
    token,
)
from tests.integration.participants import until
from tests.unit.collector.service.stores import PERIOD, device, make_plan, make_release

UNAUTHENTICATED = Refused(grpc.StatusCode.UNAUTHENTICATED, "who is calling was not proven")
DENIED = Refused(grpc.StatusCode.PERMISSION_DENIED, "not allowed for this caller")
KNOWN, UNKNOWN = device(1), "f" * 32
CALLS: dict[str, tuple[str, bytes]] = {
    "upload": (PARTICIPATE_METHOD.path, b""),
    "report": (GET_REPORT_METHOD.path, b""),
    "own": (GET_PRIVACY_METHOD.path, b""),
    "another": (GET_PRIVACY_METHOD.path, GET_PRIVACY_METHOD.request_to_wire(GetPrivacyRequest(KNOWN))),
    "unknown": (GET_PRIVACY_METHOD.path, GET_PRIVACY_METHOD.request_to_wire(GetPrivacyRequest(UNKNOWN))),
    "list users": (GET_PRIVACY_METHOD.path, GET_PRIVACY_METHOD.request_to_wire(GetPrivacyRequest(all=True))),
    "counters": (GET_COUNTERS_METHOD.path, b""),
    "jobs": ("/ldp.telemetry.v1.JobService/ListJobs", b""),
    "unknown method": ("/ldp.telemetry.v1.ReportingService/Frobnicate", b""),
    "reflection": ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"\x3a\x00"),
    "health": (CHECK, b""),
}
ME = IdentityKey(b"m" * 32)


def callers(address: str, tokens: dict[Role, str]) -> dict[str, Callable[[str], Metadata]]:
    shown: dict[str, Callable[[str], Metadata]] = {
        "none": lambda _: [],
        "wrong": lambda _: bearer("SENTINEL-TOKEN"),
        "device": lambda path: assertion_metadata(ME, path, address),
    }
    for role, text in tokens.items():
        shown[role.name.lower()] = lambda _, text=text: bearer(text)  # type: ignore[misc]
    return shown


# case H01
async def test_every_caller_and_every_call(tmp_path: Path) -> None:
    async with reading_collector(tmp_path, make_plan()) as service:
        service.store.store_release(make_release(make_plan()))
        tokens = {role: token(service, role) for role in (Role.ANALYST, Role.OPERATOR, Role.HEALTH)}
        heard: dict[tuple[str, str], bytes | Refused] = {}
        async with aio.insecure_channel(service.address) as channel:
            for who, metadata in callers(service.address, tokens).items():
                for call, (path, data) in CALLS.items():
                    if call != "upload":  # a stream of its own kind, below
                        heard[who, call] = await read(channel, path, data, metadata(path))
        assert all(heard[who, "health"] == SERVING for who in ("none", "wrong", "device", "operator"))
        without = [call for call in CALLS if call not in {"health", "upload"}]
        assert {heard[who, call] for who in ("none", "wrong") for call in without} == {UNAUTHENTICATED}
        denied = [call for call in without if call != "own"]
        assert {heard["device", call] for call in denied} == {DENIED}
        allowed = {who: {call for call in without if isinstance(heard[who, call], bytes)} for who, _ in heard}
        assert allowed == {
            "none": set(),
            "wrong": set(),
            "device": {"own"},
            "analyst": {"report", "own"},
            "operator": {"report", "own", "another", "list users", "counters"},
            "health": {"counters"},
        }
        assert heard["operator", "unknown"] == Refused(grpc.StatusCode.NOT_FOUND, "no counted report of such a device")
        assert all(
            heard["operator", call].code is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[union-attr]
            for call in ("jobs", "unknown method", "reflection")
        )
        assert all(
            heard[who, call] == DENIED for who in ("analyst", "health") for call in ("jobs", "reflection", "another")
        )
        counts = service.monitor.snapshot()
        refused = Counter(answer.code for answer in heard.values() if isinstance(answer, Refused))
        assert counts["rejections.bad_credentials"] == refused[grpc.StatusCode.UNAUTHENTICATED]
        assert counts["rejections.not_allowed"] == refused[grpc.StatusCode.PERMISSION_DENIED]


# case H01: an upload is signed itself; a token that is shown all the same must hold, and be a device's
async def test_uploads_need_a_certified_identity(tmp_path: Path) -> None:
    async with reading_collector(tmp_path, make_plan()) as service:
        analyst = bearer(token(service, Role.ANALYST))
        stranger = make_hello(make_plan(), certificate_of(ME, registrar=IdentityKey(b"x" * 32)))
        cases: list[tuple[Metadata, grpc.StatusCode]] = [
            ([], grpc.StatusCode.UNAUTHENTICATED),
            (bearer("wrong"), grpc.StatusCode.UNAUTHENTICATED),
            (analyst, grpc.StatusCode.PERMISSION_DENIED),
        ]
        async with aio.insecure_channel(service.address) as channel:
            for metadata, code in cases:
                call: Any = channel.stream_stream(PARTICIPATE_METHOD.path)(metadata=metadata)
                await call.write(stranger)
                assert await call.code() is code
        assert "joins" not in service.monitor.snapshot()


def make_hello(plan: Any, certificate: bytes) -> bytes:
    from client_sdk.secagg.messages import Hello

    start = plan.period_start(time.time())
    return PARTICIPATE_METHOD.request_to_wire(
        Hello(ME.public_key, certificate, plan.hash, start, ME.report_id(plan.name, start))
    )


# case H01: another device and an unknown one are told apart neither by text nor by work
async def test_no_work_is_done_for_a_device_that_asks_about_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    async with reading_collector(tmp_path, make_plan()) as service:
        service.store.store_release(make_release(make_plan()))

        def note(name: str) -> None:
            real = getattr(CollectorStore, name)
            monkeypatch.setattr(CollectorStore, name, lambda *a, **k: (asked.append(name), real(*a, **k))[1])

        fleets = "lifetimes_micro_epsilon", "fleet_sums", "fleet_histories"
        for name in ("spending", "period_range", "ledger", *fleets, "access_tokens", "plans", "released_sums"):
            note(name)
        heard = []
        async with aio.insecure_channel(service.address) as channel:
            for other in (KNOWN, UNKNOWN):
                metadata = assertion_metadata(ME, GET_PRIVACY_METHOD.path, service.address)
                heard.append(await document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(other), metadata))
            assert heard == [DENIED, DENIED]
            assert asked == [], "nothing was looked up for either"
            mine = assertion_metadata(ME, GET_PRIVACY_METHOD.path, service.address)
            await document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(), mine)
            assert asked == ["spending", "period_range", "ledger", "plans"], "this is what a look-up is"


async def test_a_device_reads_its_own_ledger(tmp_path: Path) -> None:
    """With and without its id; whoever has reported nothing yet has spent nothing."""
    async with (
        reading_collector(tmp_path, make_plan()) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        for name in ("", ME.device_id):
            metadata = assertion_metadata(ME, GET_PRIVACY_METHOD.path, service.address)
            ledger = await document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(name), metadata)
            assert (ledger["device"], ledger["reports"]) == (ME.device_id, 0)
            assert ledger["windows"][-1] == {
                "window": "lifetime", "reports": 0, "epsilon_local": 0.0, "micro_epsilon": 0,
            }  # fmt: skip


async def test_an_assertion_holds_for_its_method_collector_and_time_only(tmp_path: Path) -> None:
    path, now = GET_PRIVACY_METHOD.path, time.time()
    async with reading_collector(tmp_path, make_plan()) as service:
        here, other = service.address, IdentityKey(b"o" * 32)
        expired = certificate_of(ME)
        wrong: dict[str, Metadata] = {
            "another method": assertion_metadata(ME, GET_REPORT_METHOD.path, here),
            "another collector": assertion_metadata(ME, path, "collector.example:443"),
            "six minutes old": assertion_metadata(ME, path, here, at=now - 360),
            "six minutes ahead": assertion_metadata(ME, path, here, at=now + 360),
            "another registrar": assertion_metadata(ME, path, here, certificate=certificate_of(ME, registrar=other)),
            "another's certificate": assertion_metadata(other, path, here, certificate=certificate_of(ME)),
            "another role": assertion_metadata(ME, path, here, certificate=certificate_of(ME, role=Role.OPERATOR)),
            "short": [("ldp-assertion-bin", expired)],
            "empty": [("ldp-assertion-bin", b"")],
            "twice": assertion_metadata(ME, path, here) * 2,
            "beside a token": [*assertion_metadata(ME, path, here), *bearer(token(service, Role.OPERATOR))],
        }
        async with aio.insecure_channel(here) as channel:
            for name, metadata in wrong.items():
                assert await read(channel, path, b"", metadata) == UNAUTHENTICATED, name
            for age_s in (-290, 290):
                held = await read(channel, path, b"", assertion_metadata(ME, path, here, at=now + age_s))
                assert isinstance(held, bytes)


async def test_tokens_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collector.service import access

    monkeypatch.setattr(access, "READ_AGAIN_S", 0.0)
    async with reading_collector(tmp_path, make_plan()) as service:
        lasting, short = token(service, Role.ANALYST), token(service, Role.ANALYST, ttl_s=2)
        async with aio.insecure_channel(service.address) as channel:
            ask = GET_REPORT_METHOD.path
            assert isinstance(await read(channel, ask, b"", bearer(lasting)), bytes)
            assert isinstance(await read(channel, ask, b"", bearer(short)), bytes)
            monkeypatch.setattr(access, "READ_AGAIN_S", 1000.0)  # what is known here must end by itself
            await asyncio.sleep(2.1)
            assert await read(channel, ask, b"", bearer(short)) == UNAUTHENTICATED
            monkeypatch.setattr(access, "READ_AGAIN_S", 0.0)
            for shown in (lasting[:-1], lasting + "x", lasting.swapcase(), "", "x" * 1000, "é"):
                metadata: Metadata = [("authorization", f"Bearer {shown}".encode().decode("ascii", "ignore"))]
                assert await read(channel, ask, b"", metadata) == UNAUTHENTICATED
            assert await read(channel, ask, b"", [("authorization", f"Basic {lasting}")]) == UNAUTHENTICATED
            (row,) = [row for row in service.store.access_tokens() if row.expires_at > time.time() + 60]
            service.store.revoke_access(row.token_hash, time.time())
            assert await read(channel, ask, b"", bearer(lasting)) == UNAUTHENTICATED


async def test_guesses_never_reach_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    real = CollectorStore.access_tokens

    def counted(store: CollectorStore) -> Any:
        nonlocal reads
        reads += 1
        return real(store)

    monkeypatch.setattr(CollectorStore, "access_tokens", counted)
    async with reading_collector(tmp_path, make_plan()) as service:
        started = time.monotonic()
        async with aio.insecure_channel(service.address) as channel:
            guesses = [read(channel, GET_REPORT_METHOD.path, b"", bearer(os.urandom(16).hex())) for _ in range(200)]
            assert set(await asyncio.gather(*guesses)) == {UNAUTHENTICATED}
        assert 1 <= reads <= 2 + time.monotonic() - started


async def test_the_plan_is_public_and_a_wrong_word_is_refused(tmp_path: Path) -> None:
    async with (
        reading_collector(tmp_path, make_plan()) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        data = GET_PLAN_METHOD.request_to_wire(GetPlanRequest())
        found = await read(channel, GET_PLAN_METHOD.path, data, [])
        assert isinstance(found, bytes)
        assert GET_PLAN_METHOD.response_from_wire(found).plan_hash == make_plan().hash
        assert await read(channel, GET_PLAN_METHOD.path, data, bearer("wrong")) == UNAUTHENTICATED


# --- the documents ---------------------------------------------------------------------------------------------


async def test_documents_are_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One builder behind both edges: the same JSON, byte for byte, also where it takes many pieces."""
    from collector.service import cli

    monkeypatch.setattr(reporting, "DOCUMENT_PIECE_BYTES", 100)
    plan = make_plan()
    async with reading_collector(tmp_path, plan) as service:
        service.store.store_release(make_release(plan))
        operator, secret = tmp_path / "operator.token", token(service, Role.OPERATOR)
        operator.write_text(secret + "\n")
        over_network = ["--server", service.address, "--insecure", "--access-token-file", str(operator)]
        from_store = ["--db", str(tmp_path / "collector.db")]
        for form in ("json", "csv", "table"):
            for command in (
                ["report", "--false-devices", "2.5%"],
                ["privacy"],
                ["privacy", "--all"],
                ["privacy", "--device", KNOWN],
            ):
                said = []
                for source in (from_store, over_network):
                    status = await asyncio.to_thread(cli.main, [*command, *source, "--format", form])
                    out, err = capsys.readouterr()
                    assert (status, err) == (0, "")
                    said.append(out)
                if command == ["privacy"]:  # over the network no more than the closed form
                    assert said[1] != said[0] != ""
                    continue
                assert said[0] == said[1]
                assert len(said[0]) > 50
        assert service.monitor.snapshot()["documents"] == 12


async def test_a_fleets_figures_over_the_network_cost_one_query_and_bound_the_exact_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from collector.service import cli

    plan = make_plan()
    async with reading_collector(tmp_path, plan) as service:
        for day in range(4):
            service.store.store_release(make_release(plan, f"r{day}", period_start=PERIOD - day * 86_400))
        analyst = tmp_path / "analyst.token"
        analyst.write_text(token(service, Role.ANALYST) + "\n")
        over_network = ["--server", service.address, "--insecure", "--access-token-file", str(analyst)]
        from_store = ["privacy", "--db", str(tmp_path / "collector.db"), "--format", "json"]
        assert await asyncio.to_thread(cli.main, from_store) == 0
        (exact,) = json.loads(capsys.readouterr().out)["windows"]
        real = CollectorStore.fleet_histories
        monkeypatch.delattr(CollectorStore, "fleet_histories")
        assert await asyncio.to_thread(cli.main, ["privacy", *over_network, "--format", "json"]) == 0
        (heard,) = json.loads(capsys.readouterr().out)["windows"]
        assert (heard["method"], heard["eps_central"], heard["n_h"]) == ("closed form", None, None)
        assert exact["eps_local"]["max"] <= heard["eps_local"]["max"] <= heard["eps_local_pure"]["max"] == 8.0
        assert heard["eps_local_pure"] == exact["eps_local_pure"]
        assert heard["central_method"] == "not computed here; ask with --window"
        monkeypatch.setattr(CollectorStore, "fleet_histories", real, raising=False)
        for more in (["--window", "7d"], ["--delta", "0.1"], ["--corrupt", "0"]):
            said = []
            for source in (over_network, ["--db", str(tmp_path / "collector.db")]):
                assert await asyncio.to_thread(cli.main, ["privacy", *source, *more, "--format", "json"]) == 0
                said.append(capsys.readouterr().out)
            assert said[0] == said[1], "asked for, they are the exact ones"


async def test_figures_over_the_network_are_what_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all devices too; what cannot be meant is refused before anything is computed."""
    from collector.service import cli

    plan = make_plan()
    async with reading_collector(tmp_path, plan) as service:
        for day in range(4):
            service.store.store_release(make_release(plan, f"r{day}", period_start=PERIOD - day * 86_400))
        secret, analyst = token(service, Role.OPERATOR), bearer(token(service, Role.ANALYST))
        (tmp_path / "operator.token").write_text(secret + "\n")
        over_network = ["--server", service.address, "--insecure", "--access-token-file"]
        over_network.append(str(tmp_path / "operator.token"))
        from_store = ["--db", str(tmp_path / "collector.db")]
        for more in ([], ["--window", "30d"], ["--delta", "1e-9", "--corrupt", "0.123456789"]):
            said = []
            for source in (over_network, from_store):
                command = ["privacy", "--all", *source, *more, "--format", "csv"]
                assert await asyncio.to_thread(cli.main, command) == 0
                said.append(capsys.readouterr().out)
            assert said[0] == said[1]
        wrong = [
            GetPrivacyRequest(KNOWN, window="7d"),
            GetPrivacyRequest(KNOWN, all=True),
            GetPrivacyRequest(all=True, window="8d"),
            GetPrivacyRequest(delta="0"),
            GetPrivacyRequest(delta="1"),
            GetPrivacyRequest(corrupt="1.5"),
            GetPrivacyRequest(corrupt="e"),
        ]
        async with aio.insecure_channel(service.address) as channel:
            for request in wrong:
                heard = await document(channel, GET_PRIVACY_METHOD, request, bearer(secret))
                assert heard.code is grpc.StatusCode.INVALID_ARGUMENT, request
            request = GetPrivacyRequest(all=True, delta="0")
            assert await document(channel, GET_PRIVACY_METHOD, request, analyst) == DENIED
            mine = assertion_metadata(ME, GET_PRIVACY_METHOD.path, service.address)
            assert await document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(window="7d"), mine) == DENIED


async def test_a_fleet_of_many_histories_is_rounded_over_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one question costs seconds, however large the fleet; the figures are above the exact ones, not below."""
    plan = make_plan()
    async with reading_collector(tmp_path, plan) as service:
        for day in range(12):
            release = make_release(plan, f"r{day}", range(day, 15), period_start=PERIOD - day * 86_400)
            service.store.store_release(release)
        metadata = bearer(token(service, Role.OPERATOR))
        request = GetPrivacyRequest(all=True, window="lifetime")
        async with aio.insecure_channel(service.address) as channel:
            exact = await document(channel, GET_PRIVACY_METHOD, request, metadata)
            monkeypatch.setattr(reporting, "MOST_HISTORIES", 8)
            rounded = await document(channel, GET_PRIVACY_METHOD, request, metadata)
        pairs = [
            (one["windows"][0], other["windows"][0])
            for one, other in zip(exact["devices"], rounded["devices"], strict=True)
        ]
        assert len({one["eps_central"] for one, _ in pairs}) > 8 >= len({other["eps_central"] for _, other in pairs})
        for one, other in pairs:
            assert one["eps_central"] <= other["eps_central"] <= other["eps_local"] <= other["eps_local_pure"]
            assert other["eps_local_pure"] == one["eps_local_pure"]


async def test_long_documents_travel_in_pieces(tmp_path: Path) -> None:
    plan = make_plan()
    async with reading_collector(tmp_path, plan) as service:
        service.store.store_release(make_release(plan, "r", range(20_000)))
        metadata, sizes = bearer(token(service, Role.OPERATOR)), []
        data = bytearray()
        async with aio.insecure_channel(service.address) as channel:
            request = GET_PRIVACY_METHOD.request_to_wire(GetPrivacyRequest(all=True))
            async for piece in channel.unary_stream(GET_PRIVACY_METHOD.path)(request, metadata=metadata):
                sizes.append(len(piece))
                data += GET_PRIVACY_METHOD.response_from_wire(piece).data
        assert len(json.loads(data)["devices"]) == 20_000
        assert len(data) > 4 << 20, "more than one message may hold"
        assert max(sizes) <= DOCUMENT_PIECE_BYTES + 100
        assert len(sizes) == -(-len(data) // DOCUMENT_PIECE_BYTES)


# case H03: metric and user id on the wire
async def test_names_on_the_wire_open_nothing(tmp_path: Path) -> None:
    from tests.integration.test_handed_cases import NAMES, everything_in

    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "escape").write_text("precious")
    async with reading_collector(folder, make_plan()) as service:
        metadata = bearer(token(service, Role.OPERATOR))
        await asyncio.sleep(0)
        async with aio.insecure_channel(service.address) as channel:
            before = everything_in(tmp_path)
            for name in NAMES:
                field = b"\x0a" + varint(len(name.encode())) + name.encode()
                for method in (GET_REPORT_METHOD, GET_PRIVACY_METHOD):
                    heard = await read(channel, method.path, field, metadata)
                    assert isinstance(heard, Refused)
                    assert heard.code is grpc.StatusCode.INVALID_ARGUMENT
                    assert name not in heard.text or len(name) < 3
            assert everything_in(tmp_path) == before


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


async def test_malformed_questions_are_an_invalid_argument(tmp_path: Path) -> None:
    async with reading_collector(tmp_path, make_plan()) as service:
        metadata = bearer(token(service, Role.OPERATOR))
        report, privacy = GET_REPORT_METHOD, GET_PRIVACY_METHOD
        wrong = [
            (report, b"\xff\xff"),
            (report, bytes(5000)),
            (report, report.request_to_wire(GetReportRequest("no_such_metric"))),
            (report, report.request_to_wire(GetReportRequest(since=20, until=10))),
            (report, b"\x10" + b"\xff" * 9 + b"\x01"),  # since: -1
            (privacy, privacy.request_to_wire(GetPrivacyRequest(KNOWN, all=True))),
            (privacy, b"\x0a\x02zz"),
            (GET_COUNTERS_METHOD, b"\xff\xff"),
        ]
        async with aio.insecure_channel(service.address) as channel:
            for method, data in wrong:
                heard = await read(channel, method.path, data, metadata)
                assert isinstance(heard, Refused), data[:20]
                assert heard.code is grpc.StatusCode.INVALID_ARGUMENT
        assert service.monitor.snapshot()["rejections.malformed"] == len(wrong)


async def test_more_questions_than_may_queue_are_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "MOST_QUEUED", 2)
    async with reading_collector(tmp_path, make_plan()) as service:
        metadata = bearer(token(service, Role.ANALYST))
        async with aio.insecure_channel(service.address) as channel:
            asked = [document(channel, GET_REPORT_METHOD, GetReportRequest(), metadata) for _ in range(12)]
            heard = await asyncio.gather(*asked)
        refused = [one for one in heard if isinstance(one, Refused)]
        assert {one.code for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert 1 <= len(refused) <= 10


async def test_devices_leave_room_for_who_reads_the_reports(tmp_path: Path) -> None:
    """One open question a device, a small share of the queue for all of them, and every refusal is counted."""
    async with reading_collector(tmp_path, make_plan()) as service, aio.insecure_channel(service.address) as channel:

        def asked_by(identity: IdentityKey) -> asyncio.Task[Any]:
            shown = assertion_metadata(identity, GET_PRIVACY_METHOD.path, service.address)
            return asyncio.create_task(document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(), shown))

        free = threading.Event()
        service._reader._executor.submit(free.wait, 10)
        one = [asked_by(IdentityKey(bytes(32))) for _ in range(40)]
        await until(lambda: sum(task.done() for task in one) == 39)
        others = [asked_by(IdentityKey(bytes([n]) * 32)) for n in range(1, 11)]
        await until(lambda: sum(task.done() for task in others) == 11 - reporting.MOST_QUEUED_OF_DEVICES)
        metadata = bearer(token(service, Role.OPERATOR))
        room = reporting.MOST_QUEUED - reporting.MOST_QUEUED_OF_DEVICES
        reports = [document(channel, GET_REPORT_METHOD, GetReportRequest(), metadata) for _ in range(room)]
        asyncio.get_running_loop().call_later(0.5, free.set)
        assert not [heard for heard in await asyncio.gather(*reports) if isinstance(heard, Refused)]
        heard = await asyncio.gather(*one, *others)
        refused = [answer for answer in heard if isinstance(answer, Refused)]
        assert {answer.code for answer in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert service.monitor.snapshot()["rejections.busy"] == len(refused) == 48
        again = await asked_by(IdentityKey(bytes(32)))
        assert not isinstance(again, Refused), "its place is given back"


# --- health ----------------------------------------------------------------------------------------------------


async def test_health_follows_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collector.service import health

    monkeypatch.setattr(health, "FRESH_S", 0.0)
    async with (
        reading_collector(tmp_path, make_plan()) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        assert await read(channel, CHECK, b"", []) == SERVING
        for ours in (b"\x0a\x00", b"\x0a\x21ldp.telemetry.v1.ReportingService"):
            assert await read(channel, CHECK, ours, []) == SERVING
        for foreign in (b"\x0a\x05other", b"\xff", b"\x0a\x7f"):
            heard = await read(channel, CHECK, foreign, [])
            assert isinstance(heard, Refused)
            assert heard.code is grpc.StatusCode.NOT_FOUND

        def broken(store: CollectorStore) -> None:
            raise StoreError(store.where, StoreProblem.FULL)

        real = CollectorStore.probe
        monkeypatch.setattr(CollectorStore, "probe", broken)
        assert await read(channel, CHECK, b"", []) == NOT_SERVING
        monkeypatch.setattr(CollectorStore, "probe", real)
        for _ in range(40):
            if await read(channel, CHECK, b"", []) == SERVING:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the outage never ended")


async def test_many_health_checks_cost_one_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = 0
    real = CollectorStore.probe

    def counted(store: CollectorStore) -> None:
        nonlocal probes
        probes += 1
        real(store)

    monkeypatch.setattr(CollectorStore, "probe", counted)
    async with reading_collector(tmp_path, make_plan()) as service:
        started = time.monotonic()
        async with aio.insecure_channel(service.address) as channel:
            assert set(await asyncio.gather(*(read(channel, CHECK, b"", []) for _ in range(100)))) == {SERVING}
        assert 1 <= probes <= 2 + time.monotonic() - started


async def test_a_stopping_collector_says_so_to_its_supervisor(tmp_path: Path) -> None:
    """While a round gets its grace, a new call hears NOT_SERVING or UNAVAILABLE."""
    async with reading_collector(tmp_path, make_plan()) as service:
        held = asyncio.Event()

        async def slow(_grace_s: float) -> None:
            await held.wait()

        service._lobby.stop = slow  # type: ignore[method-assign]
        stopping = asyncio.create_task(service.stop(5.0))
        await asyncio.sleep(0.05)
        async with aio.insecure_channel(service.address) as channel:
            assert await read(channel, CHECK, b"", []) == NOT_SERVING
            heard = await read(channel, GET_PLAN_METHOD.path, b"", [])
            assert isinstance(heard, Refused)
            assert heard.code is grpc.StatusCode.UNAVAILABLE
        held.set()
        assert await stopping


async def test_counters_are_for_health_and_operators(tmp_path: Path) -> None:
    async with (
        reading_collector(tmp_path, make_plan()) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        assert await read(channel, GET_COUNTERS_METHOD.path, b"", []) == UNAUTHENTICATED
        for role in (Role.HEALTH, Role.OPERATOR):
            shown = bearer(token(service, role))
            await asyncio.sleep(1.1 if role is Role.OPERATOR else 0)  # tokens are read once a second
            found = await document(channel, GET_COUNTERS_METHOD, GetCountersRequest(), shown)
            assert found["serving"] is True
            assert found["counters"]["rejections.bad_credentials"] >= 1
