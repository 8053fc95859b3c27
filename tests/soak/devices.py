"""Real devices that report on one minute after another, as long as they are told to.

    python -m tests.soak.devices ADDRESS PLAN FOLDER COUNT FIRST-MINUTE SECONDS PACE

Prints how many reports were counted, once a second. Minutes lie in the past, so that there is one for each round.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from client_sdk import TelemetryClient
from client_sdk.files import load_plan
from client_sdk.identity import IdentityKey
from client_sdk.testing import FakeClock
from tests.registrar import KEY, certificate_of

MINUTE_S = 60


def device(folder: Path, address: str, plan_path: str, clock: FakeClock) -> TelemetryClient:
    client = TelemetryClient(
        address,
        plan=load_plan(plan_path),
        data_dir=folder,
        consent=True,
        insecure=True,
        background=False,
        clock=clock,
        registrar="127.0.0.1:9",
        registrar_key=KEY,
    )
    store = client._engine.access.store()
    certificate = certificate_of(IdentityKey(store.identity()), time.time() - 10 * 86_400, days=30)
    store.keep_certificate(certificate, "enrolled", time.time())
    return client


async def report(devices: list[TelemetryClient], clock: FakeClock) -> int:
    """One minute's readings of all, and their upload: how many were counted."""
    for number, client in enumerate(devices):
        client.record("cold_start_ms", 100 * number)
        client.record("network", "c0")
    clock.advance(MINUTE_S)
    for client in devices:
        client.flush()
    return sum(summary.counted for summary in await asyncio.gather(*(client.upload() for client in devices)))


async def main(address: str, plan_path: str, folder: Path, count: int, first: int, seconds: float, pace: float) -> None:
    clock = FakeClock(float(first))
    devices = [device(folder / str(number), address, plan_path, clock) for number in range(count)]
    began = said = time.monotonic()
    counted, rounds = 0, 0
    while time.monotonic() - began < seconds:
        counted += await report(devices, clock)
        rounds += 1
        if time.monotonic() - said >= 1:
            said = time.monotonic()
            sys.stdout.write(f"{counted}\n")
            sys.stdout.flush()
        await asyncio.sleep(max(0.0, began + rounds * pace - time.monotonic()))
    for client in devices:
        client.close()


if __name__ == "__main__":
    address_, plan_, folder_, count_, first_, seconds_, pace_ = sys.argv[1:]
    asyncio.run(main(address_, plan_, Path(folder_), int(count_), int(first_), float(seconds_), float(pace_)))
