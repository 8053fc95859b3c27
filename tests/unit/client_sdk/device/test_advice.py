"""Two ends that do not fit together: the one warning names what is wrong and what to do, the counters name it too."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk import TelemetryClient
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from tests.fleet import certified
from tests.integration.participants import collector
from tests.registrar import KEY_HEX, running
from tests.unit.client_sdk.device.certificates import certificate
from tests.unit.client_sdk.device.helpers import DAY_S, certify, make_client, make_plan, plan_text
from tests.unit.client_sdk.device.small_collector import SmallCollector

PLAN = make_plan()
OTHER = IdentityKey(b"o" * 32)
OTHER_KEY = OTHER.public_key


async def tried(
    client: TelemetryClient, caplog: pytest.LogCaptureFixture, *, enrols: bool = False
) -> tuple[dict[str, int], str]:
    """What it counted after two attempts, and the one line that it said (and one of a registrar that is not there)."""
    if not enrols:
        certify(client)
    client.flush(seal=True)
    with caplog.at_level(logging.WARNING, "ldp_telemetry"):
        for _ in range(2):
            await client.upload()
    said, *more = [record.getMessage() for record in caplog.records if record.name == "ldp_telemetry"]
    assert [line[:10] for line in more] in ([], ["enrolment:"]), "one an outage"
    counters = client.counters()
    client.close()
    return {name: count for name, count in counters.items() if name not in {"sealed", "enrolled"}}, said


async def test_a_plan_that_only_the_app_has_completed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = f'[registrar]\naddress = "registrar.example:443"\nkey = "{KEY_HEX}"\n'
    shipped = parse_plan(plan_text() + table)
    async with collector(tmp_path, PLAN) as running_:
        client = make_client(tmp_path / "d", shipped, clock=time.time, endpoint=running_.address)
        counted, said = await tried(client, caplog)
    assert counted == {"rpc_failed_precondition": 2, "plan_not_served": 2}
    assert f"the collector serves no plan with this hash {shipped.hash.hex()[:8]}...: serve the very file" in said
    assert "[registrar] table included" in said


async def test_a_collector_with_another_registrars_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with collector(tmp_path, PLAN) as running_:
        client = make_client(tmp_path / "e", clock=time.time, endpoint=running_.address, registrar_key=OTHER_KEY)
        store, now = client._engine.access.store(), int(time.time())
        identity_key = IdentityKey(store.identity()).public_key
        theirs = certified(identity_key, issued_at=now, expires_at=now + DAY_S, registrar=OTHER)
        store.keep_certificate(theirs, "enrolled", now)
        counted, said = await tried(client, caplog, enrols=True)
    assert counted["rpc_unauthenticated"] == counted["certificate_not_taken"] == 2
    assert "does not take this device's certificate: it was started with another registrar's key" in said


async def test_a_registrar_with_another_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path / "registrar") as registrar:
        settings: dict[str, Any] = {"registrar": registrar.address, "enrolment_token": registrar.token()}
        client = make_client(tmp_path / "d", clock=time.time, registrar_key=OTHER_KEY, **settings)
        counted, said = await tried(client, caplog, enrols=True)
    assert counted == {"registrar_bad_answer": 2}
    assert "the answer is not signed by registrar_key" in said


async def test_addresses_that_were_exchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path / "registrar") as registrar:
        client = make_client(tmp_path / "d", clock=time.time, endpoint=registrar.address)
        counted, said = await tried(client, caplog)
    # gRPC may have seen the stream reset before it has read why
    assert counted.get("rpc_unimplemented") == counted.get("not_a_collector")
    assert set(counted) <= {"rpc_unimplemented", "not_a_collector", "rpc_internal"}
    assert "is it the registrar's address?" in said or "is the address right" in said
    caplog.clear()
    async with collector(tmp_path, PLAN) as running_:
        client = make_client(tmp_path / "e", clock=time.time, registrar=running_.address)
        counted, said = await tried(client, caplog, enrols=True)
    assert counted.pop("not_a_registrar") == 2
    assert set(counted) <= {"registrar_unimplemented", "registrar_unauthenticated"}
    assert "is no registrar, or an older one: is it the collector's address?" in said


async def test_a_plan_asked_of_a_registrar(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path / "registrar") as registrar:
        settings = {"endpoint": registrar.address, "insecure": True, "background": False, **registrar.settings}
        client = TelemetryClient(consent=True, data_dir=tmp_path / "d", **settings)
        counted, said = await tried(client, caplog, enrols=True)
    assert counted == {"plan_rpc_unimplemented": 2, "not_a_collector": 2}
    assert "plan not fetched" in said
    assert "is it the registrar's address?" in said


@pytest.mark.parametrize("tls_there", [False, True])
async def test_tls_on_one_side_only(tmp_path: Path, caplog: pytest.LogCaptureFixture, tls_there: bool) -> None:
    credentials = grpc.ssl_server_credentials([certificate("localhost")]) if tls_there else None
    with SmallCollector(PLAN, cohort_size=2, credentials=credentials) as theirs:
        endpoint = f"localhost:{theirs.port}"
        client = make_client(tmp_path / "d", clock=time.time, endpoint=endpoint, insecure=tls_there)
        counted, said = await tried(client, caplog)
    assert counted == {"rpc_unavailable": 2}
    assert "if it stays so: is the address right, and do both sides use TLS, or neither?" in said
    assert endpoint not in said
