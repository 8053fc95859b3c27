"""What a collector has booked for this device, asked of the collector itself: to compare with `spent()`.

Rules of this file: the device says who it is by an assertion for this one question, made with its own identity; what
comes back is the collector's word and changes nothing here: neither ledger nor limits ever read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from client_sdk.assertion import METADATA_KEY, make_assertion
from client_sdk.device.offload import run_job
from client_sdk.device.settings import Settings
from client_sdk.device.storage import DeviceStore
from client_sdk.device.transport import GrpcTransport
from client_sdk.errors import ConfigurationError, WireError
from client_sdk.identity import IdentityKey
from client_sdk.wire.messages import GetPrivacyRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD


async def ask(store: DeviceStore, settings: Settings, clock: Callable[[], float]) -> dict[str, Any]:
    """The ledger, as `privacy --device --format json` prints it.

    Raises ConfigurationError (no certificate yet), CallFailedError, WireError, StorageError.
    """
    if settings.in_memory:
        raise ConfigurationError("collector_view(): the in-memory collector of the test helpers keeps no such view")
    seed, certificate = await run_job(lambda: (store.identity(), store.certificate()), off_loop=True)
    if certificate is None:
        raise ConfigurationError("collector_view(): no certificate yet; the first upload asks the registrar for one")
    identity = IdentityKey(seed)
    shown = make_assertion(identity, certificate, GET_PRIVACY_METHOD.path, settings.endpoint, int(clock()))
    async with GrpcTransport(settings.endpoint, settings.tls(off_loop=True)).connect() as connection:
        data = await connection.document(GET_PRIVACY_METHOD, GetPrivacyRequest(), [(METADATA_KEY, shown)])
    try:
        ledger = json.loads(data)
    except (ValueError, RecursionError):
        ledger = None
    if not isinstance(ledger, dict) or ledger.get("device") != identity.device_id:
        raise WireError("the collector answered with something else than this device's ledger")
    return ledger
