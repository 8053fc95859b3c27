"""The registrar over gRPC, and devices that enrol with it, renew, and are revoked, before a real collector."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from client_sdk import TelemetryClient
from client_sdk import certificate as certificates
from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey, enrolment_message, renewal_message
from client_sdk.plan import parse_plan
from client_sdk.secagg.messages import Receipt
from client_sdk.wire.messages import EnrolRequest, RenewRequest
from client_sdk.wire.methods import ENROL_METHOD, RENEW_METHOD, Method
from tests.fleet import certified
from tests.integration.participants import Device, collector, two_number_plan
from tests.integration.processes import ROOT
from tests.registrar import DAY_S, KEY, Running, certificate_of, folder_with_key, running
from tests.unit.client_sdk.device.certificates import certificate

PLAN = two_number_plan(min_size=2, target_size=3)
OWNER, OTHER = IdentityKey(bytes(range(32))), IdentityKey(bytes(32))


@pytest.fixture
def registrar(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "registrar") as started:
        yield started


async def ask(address: str, method: Method[Any, Any], request: Any) -> Any:
    async with aio.insecure_channel(address) as channel:
        return await channel.unary_unary(method.path, **method.client_converters)(request, timeout=10)


async def refusal(address: str, method: Method[Any, Any], request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as refused:
        await ask(address, method, request)
    return refused.value.code(), refused.value.details() or ""


def enrolment(token: str, identity: IdentityKey, signer: IdentityKey | None = None) -> EnrolRequest:
    return EnrolRequest(token, identity.public_key, (signer or identity).sign(enrolment_message(token)))


def renewal(shown: bytes, signer: IdentityKey) -> RenewRequest:
    return RenewRequest(shown, signer.sign(renewal_message(shown)))


# --- the service ------------------------------------------------------------------------------------


async def test_a_token_buys_a_certificate_once(registrar: Running) -> None:
    token = registrar.token()
    first = await ask(registrar.address, ENROL_METHOD, enrolment(token, OWNER))
    again = await ask(registrar.address, ENROL_METHOD, enrolment(token, OWNER))
    for answer in (first, again):
        said = certificates.check(answer.certificate, KEY, OWNER.public_key, Role.DEVICE, time.time())
        assert said.expires_at == answer.expires_at
        assert 29 * DAY_S < said.expires_at - time.time() <= 30 * DAY_S
    assert registrar.counts["enrolled"] == 2
    assert registrar.service.store.overview(time.time()).identities == 1


async def test_all_refused_tokens_look_alike(registrar: Running, caplog: pytest.LogCaptureFixture) -> None:
    used, revoked, expired = registrar.tokens(3)
    await ask(registrar.address, ENROL_METHOD, enrolment(used, OWNER))
    third = IdentityKey(b"r" * 32)
    registrar.service.store.revoke(third.device_id, time.time())
    (expired,) = registrar.service.store.issue_tokens(1, time.time() - 100, 50)
    answers = {
        await refusal(registrar.address, ENROL_METHOD, enrolment(used, OTHER)),
        await refusal(registrar.address, ENROL_METHOD, enrolment("no such token", OTHER)),
        await refusal(registrar.address, ENROL_METHOD, enrolment(expired, OTHER)),
        await refusal(registrar.address, ENROL_METHOD, enrolment(revoked, third)),
    }
    ((code, details),) = answers
    assert code is grpc.StatusCode.PERMISSION_DENIED
    for secret in (used, expired, OTHER.public_key.hex(), OTHER.device_id):
        assert secret not in details + caplog.text
    assert registrar.counts["rejections.bad_token"] == 4
    assert len([r for r in caplog.records if r.getMessage().startswith("refused: ")]) == 1


async def test_a_foreign_signature_and_malformed_bytes(registrar: Running) -> None:
    token = registrar.token()
    code, _ = await refusal(registrar.address, ENROL_METHOD, enrolment(token, OWNER, signer=OTHER))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    async with aio.insecure_channel(registrar.address) as channel:
        for data in (b"", b"\xff\xff", bytes(1000)):
            for method in (ENROL_METHOD, RENEW_METHOD):
                with pytest.raises(aio.AioRpcError) as refused:
                    await channel.unary_unary(method.path)(data)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(aio.AioRpcError) as refused:
            await channel.unary_unary(ENROL_METHOD.path)(bytes(5000))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "not even read"
    assert registrar.service.store.overview(time.time()).tokens_used == 0
    assert (await ask(registrar.address, ENROL_METHOD, enrolment(token, OWNER))).certificate


async def test_renewal_and_revocation(registrar: Running) -> None:
    now = time.time()
    expired = certificate_of(OWNER, now - 100 * DAY_S)  # 70 days ago
    answer = await ask(registrar.address, RENEW_METHOD, renewal(expired, OWNER))
    assert certificates.check(answer.certificate, KEY, OWNER.public_key, Role.DEVICE, now).expires_at > now + 29 * DAY_S
    too_old = certificate_of(OWNER, now - 121 * DAY_S)
    forged = certified(OWNER.public_key, issued_at=int(now), expires_at=int(now) + DAY_S, registrar=OTHER)
    answers = [
        await refusal(registrar.address, RENEW_METHOD, request)
        for request in (renewal(too_old, OWNER), renewal(forged, OWNER), renewal(expired, OTHER))
    ]
    registrar.service.store.revoke(OWNER.device_id, now)
    answers.append(await refusal(registrar.address, RENEW_METHOD, renewal(answer.certificate, OWNER)))
    answers.append(await refusal(registrar.address, ENROL_METHOD, enrolment(registrar.token(), OWNER)))
    assert len(set(answers)) == 1, "which of them it was stays here"
    assert answers[0][0] is grpc.StatusCode.PERMISSION_DENIED
    counts = registrar.counts
    assert {name: counts[name] for name in counts if name.startswith("certificates.")} == {
        "certificates.expired": 1,
        "certificates.bad_signature": 2,
        "certificates.revoked": 1,
    }


async def test_tls_as_the_collectors(tmp_path: Path) -> None:
    private, public = certificate("localhost")
    (tmp_path / "key.pem").write_bytes(private)
    (tmp_path / "cert.pem").write_bytes(public)
    options = {"listen": "localhost:0", "insecure": False}
    options |= {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    with running(tmp_path / "r", **options) as registrar:
        client = TelemetryClient(
            "localhost:9",
            plan=PLAN,
            data_dir=tmp_path / "d",
            consent=True,
            background=False,
            root_certificates=public,
            enrolment_token=registrar.token(),
            **registrar.settings,
        )
        client.flush(seal=True)
        assert (await client.upload()).failed == {"rpc_unavailable": 1}, "enrolled, and then no collector"
        assert client.counters()["enrolled"] == 1
        code, _ = await refusal(registrar.address, ENROL_METHOD, enrolment(registrar.token(), OTHER))
        assert code is grpc.StatusCode.UNAVAILABLE, "no plain text"


# --- as a process -----------------------------------------------------------------------------------


def test_a_process_that_starts_serves_and_stops(tmp_path: Path) -> None:
    folder = folder_with_key(tmp_path / "r")
    command = [sys.executable, "-m", "collector.service", "registrar", "serve", "--dir", str(folder.path)]
    command += ["--listen", "127.0.0.1:0", "--insecure", "--lifetime", "2h"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        store = folder.open_store()  # tokens are issued while it runs
        (token,) = store.issue_tokens(1, time.time())
        store.close()
        answer = asyncio.run(ask(address, ENROL_METHOD, enrolment(token, OWNER)))
        assert 7100 < answer.expires_at - time.time() <= 7200
        second = [*command[:7], "--listen", address, "--insecure"]
        taken = subprocess.run(second, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert (taken.returncode, taken.stderr.count("\n")) == (3, 1)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - started < 7
        log = process.stderr.read()
        assert token not in log
        assert "'enrolled': 1" in log
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()


# --- the collector ----------------------------------------------------------------------------------


async def test_the_collector_takes_certified_devices_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong, the same answer; which it was stays in the counters."""
    now = time.time()
    wrong = {
        "bad_signature": certified(OWNER.public_key, issued_at=int(now), expires_at=int(now) + 99, registrar=OTHER),
        "expired": certificate_of(OWNER, now - 40 * DAY_S),
        "wrong_role": certified(OWNER.public_key, role=Role.HEALTH, issued_at=0, expires_at=2**33),
    }
    async with collector(tmp_path, PLAN) as serving:
        answers = set()
        for shown in wrong.values():
            ended = await Device([1, 10], PLAN, OWNER, certificate=shown).upload(serving.address)
            answers.add((ended.code, ended.details, len(ended.received)))
        assert len(answers) == 1
        assert answers.pop()[0] is grpc.StatusCode.UNAUTHENTICATED
        counts = serving.service.monitor.snapshot()
        assert {f"certificates.{reason}" for reason in wrong} <= set(counts)
        assert counts["rejections.bad_certificate"] == 3
        assert "joins" not in counts
        devices = [Device([i, 10 * i], PLAN) for i in (1, 2, 3)]
        assert all(isinstance(one.outcome, Receipt) for one in await serving.upload(*devices))
    said = [record.getMessage() for record in caplog.records if record.name.startswith("collector")]
    hint = "signed by another registrar than --registrar-key"
    assert [line for line in said if "refused" in line] == [
        f"refused: bad_certificate/bad_signature 1 ({hint})",
        "refused: bad_certificate/expired 1 (by this machine's clock), bad_certificate/wrong_role 1",
    ]
    assert OWNER.device_id not in caplog.text


async def test_a_plan_that_names_another_registrar_is_not_served(tmp_path: Path) -> None:
    table = '[registrar]\naddress = "registrar.example:443"\nkey = "{}"\n'
    own, another = (parse_plan(PLAN.text + table.format(key.hex())) for key in (KEY, OTHER.public_key))
    with pytest.raises(ConfigurationError, match="another key than --registrar-key"):
        async with collector(tmp_path, another):
            pass
    assert not (tmp_path / "collector.db").exists()
    async with collector(tmp_path, own):
        pass


# --- devices, registrar and collector together --------------------------------------------------------


async def test_devices_enrol_and_are_counted(tmp_path: Path, registrar: Running) -> None:
    async with collector(tmp_path, PLAN) as serving:
        clients = [
            TelemetryClient(
                serving.address,
                plan=PLAN,
                data_dir=tmp_path / f"device-{number}",
                consent=True,
                insecure=True,
                background=False,
                enrolment_token=token,
                **registrar.settings,
            )
            for number, token in enumerate(registrar.tokens(3))
        ]
        for client in clients:
            client.flush(seal=True)
        summaries = await asyncio.gather(*(client.upload() for client in clients))
        assert [summary.counted for summary in summaries] == [1, 1, 1]
        assert [client.counters() for client in clients] == [{"counted": 1, "enrolled": 1, "sealed": 1}] * 3
        assert registrar.counts["enrolled"] == 3
        assert "renewed" not in registrar.counts
        for client in clients:
            client.close()
