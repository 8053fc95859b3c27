"""How long a device waits for "not allowed", asking about another device and about one that does not exist.

    python -m pytest -n0 -s -m bench tests/benchmarks/bench_access.py

Prints medians; asserts nothing about time. That neither answer costs a look-up is a test of its own
(`tests/integration/test_access.py`).
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest
from grpc import aio

from client_sdk.identity import IdentityKey
from client_sdk.wire.messages import GetPrivacyRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD
from tests.integration.callers import Refused, assertion_metadata, document, reading_collector
from tests.unit.collector.service.stores import device, make_plan, make_release

SAMPLES = 300


# case H01
@pytest.mark.bench
async def test_known_and_unknown_devices_take_the_same_time(tmp_path: Path) -> None:
    me, took = IdentityKey(b"m" * 32), {"another": list[float](), "unknown": list[float]()}
    names = {"another": device(1), "unknown": "f" * 32}
    async with (
        reading_collector(tmp_path, make_plan()) as service,
        aio.insecure_channel(service.address) as channel,
    ):
        service.store.store_release(make_release(make_plan(), "r", range(1000)))
        for _ in range(SAMPLES):
            for kind, name in names.items():
                metadata = assertion_metadata(me, GET_PRIVACY_METHOD.path, service.address)
                started = time.perf_counter()
                heard = await document(channel, GET_PRIVACY_METHOD, GetPrivacyRequest(name), metadata)
                took[kind].append(time.perf_counter() - started)
                assert isinstance(heard, Refused)
    another, unknown = (statistics.median(took[kind]) for kind in names)
    print(f"\nmedian of {SAMPLES}: another device {another * 1e6:.0f} us, unknown {unknown * 1e6:.0f} us")
    print(f"difference {abs(another - unknown) / max(another, unknown):.1%} (reach: < 20 %)")
