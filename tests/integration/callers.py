"""Callers of a collector's reading services: each role's metadata, and what they hear."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from client_sdk import TelemetryClient
from client_sdk.assertion import METADATA_KEY, make_assertion
from client_sdk.certificate import Certificate, Role, issue
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan
from client_sdk.wire.methods import Method
from collector.service.app import CollectorService
from collector.service.settings import ServeSettings
from tests.fleet import REGISTRAR
from tests.stopping import stopped

Metadata = list[tuple[str, str | bytes]]


def certificate_of(identity: IdentityKey, *, registrar: IdentityKey = REGISTRAR, role: Role = Role.DEVICE) -> bytes:
    now = int(time.time())
    return issue(registrar, Certificate(role, identity.public_key, now - 60, now + 3600))


def assertion_metadata(
    identity: IdentityKey,
    method: str,
    name: str,
    *,
    at: float | None = None,
    certificate: bytes | None = None,
) -> Metadata:
    shown = certificate_of(identity) if certificate is None else certificate
    return [(METADATA_KEY, make_assertion(identity, shown, method, name, int(time.time() if at is None else at)))]


def bearer(token: str) -> Metadata:
    return [("authorization", f"Bearer {token}")]


@dataclass(frozen=True)
class Refused:
    """A status and its text."""

    code: grpc.StatusCode
    text: str = field(compare=True)


@asynccontextmanager
async def reading_collector(tmp_path: Path, plan: Plan, **options: Any) -> AsyncIterator[CollectorService]:
    path = tmp_path / "plan.toml"
    path.write_text(plan.text, encoding="utf-8")
    given: dict[str, Any] = {"listen": "127.0.0.1:0", "insecure": True} | options
    settings = ServeSettings(
        plan_paths=(path,),
        db_url=f"sqlite:///{tmp_path / 'collector.db'}",
        registrar_key=REGISTRAR.public_key.hex(),
        **given,
    )
    service = await CollectorService.start(settings)
    try:
        yield service
    finally:
        assert await stopped(service)


def token(service: CollectorService, role: Role, ttl_s: int = 3600) -> str:
    return service.store.issue_access(role, role.name.lower(), time.time(), ttl_s)


async def read(channel: aio.Channel, path: str, data: bytes, metadata: Metadata) -> bytes | Refused:
    """All messages of the answer, joined; works for unary answers too."""
    answer = bytearray()
    try:
        async for piece in channel.unary_stream(path)(data, metadata=metadata, timeout=20):
            answer += piece
    except aio.AioRpcError as error:
        return Refused(error.code(), error.details() or "")
    return bytes(answer)


async def document(channel: aio.Channel, method: Method[Any, Any], request: Any, metadata: Metadata) -> Any:
    """The JSON document, or how it was refused."""
    data = bytearray()
    call = channel.unary_stream(method.path)(method.request_to_wire(request), metadata=metadata, timeout=20)
    try:
        async for piece in call:
            data += method.response_from_wire(piece).data
    except aio.AioRpcError as error:
        return Refused(error.code(), error.details() or "")
    return json.loads(data)


def device_client(folder: Path, endpoint: str, plan: Plan, **more: Any) -> TelemetryClient:
    """A device that has its certificate already, and a registrar that is never there."""
    made = TelemetryClient(
        endpoint,
        consent=True,
        plan=plan,
        data_dir=folder,
        registrar="localhost:9",
        registrar_key=REGISTRAR.public_key,
        background=False,
        **more,
    )
    store = made._engine.access.store()
    store.keep_certificate(certificate_of(IdentityKey(store.identity())), "enrolled", time.time())
    return made
