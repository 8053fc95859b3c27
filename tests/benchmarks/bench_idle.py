"""What devices cost that only wait for their cohort: memory and CPU of the collector's process. Asserts no figure.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_idle.py

The collector is a process of its own, started by the command line. Each device has its own connection, has proven who
it is and has joined; its cohort never fills. LDP_BENCH_FULL=1: 5,000 devices and a window of 130 s, in which the
collector asks each of them twice for a sign of life; else 1,000 and 65 s. Both processes need a descriptor for each
device.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import Challenge, Joined
from client_sdk.secagg.participant import Participant
from client_sdk.wire.methods import PARTICIPATE_METHOD
from tests.benchmarks.bench_collector import cpu_s
from tests.integration.processes import PLAIN, serving
from tests.registrar import KEY, certificate_of

pytestmark = pytest.mark.bench

FULL = bool(os.environ.get("LDP_BENCH_FULL"))
DEVICES = 5000 if FULL else 1000
WINDOW_S = 130.0 if FULL else 65.0
AT_ONCE = 50
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]

PLAN = """
[plan]
name = "idle"
version = 1
period = "1d"
[cohort]
min_size = 8000
target_size = 9000
max_wait = "30m"
corrupt_fraction = 0
dropout_fraction = 0.01
[budget]
lifetime = 10000
[metrics.a]
kind = "numeric"
lower = 0
upper = 1000
epsilon = 1.0
"""


async def wait_in_line(address: str, plan: Plan) -> tuple[aio.Channel, Any]:
    """A device that has joined: its channel and its stream, which have to be kept."""
    identity = IdentityKey(os.urandom(32))
    period_start = plan.period_start(time.time())
    device = Participant(
        identity=identity,
        certificate=certificate_of(identity),
        registrar_key=KEY,
        plan_hash=plan.hash,
        period_start=period_start,
        report_id=identity.report_id(plan.name, period_start),
        vector=[0] * plan.length,
        rules=plan.round_rules(),
        resent=False,
        min_cohort=0,
        entropy=os.urandom,
    )
    channel = aio.insecure_channel(address, options=CHANNEL)
    call = channel.stream_stream(PARTICIPATE_METHOD.path, **PARTICIPATE_METHOD.client_converters)()
    await call.write(device.hello())
    challenge = await call.read()
    assert isinstance(challenge, Challenge)
    (advert,) = device.receive(challenge, time.monotonic())
    await call.write(advert)
    assert isinstance(await call.read(), Joined)
    return channel, call


def resident_kb(pid: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0])


async def crowd(address: str, plan: Plan, count: int) -> list[tuple[aio.Channel, Any]]:
    """`count` devices that wait."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one() -> tuple[aio.Channel, Any]:
        async with free:
            return await wait_in_line(address, plan)

    return await asyncio.gather(*(one() for _ in range(count)))


@pytest.mark.timeout(900)
async def test_devices_that_wait(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    plan = parse_plan(PLAN)
    limits = ("--max-streams-per-address", "20000", "--max-waiting", "20000", "--max-round-memory", "1TB")
    async with serving(tmp_path, plan, *PLAIN, *limits) as running:
        pid = running.process.pid
        waiting = await crowd(running.address, plan, 50)  # what is imported and allocated once
        await asyncio.sleep(3)
        before_kb, before_s, began = resident_kb(pid), cpu_s(pid), time.monotonic()
        waiting += await crowd(running.address, plan, DEVICES)
        joined_s, took_s = cpu_s(pid) - before_s, time.monotonic() - began
        await asyncio.sleep(3)
        each_kb = (resident_kb(pid) - before_kb) / DEVICES
        idle_from, began = cpu_s(pid), time.monotonic()
        await asyncio.sleep(WINDOW_S)
        share = (cpu_s(pid) - idle_from) / (time.monotonic() - began)
        assert not any(call.done() for _, call in waiting), "all of them still wait"
        peak_kb = resident_kb(pid)
        print(f"\n{DEVICES} devices that wait, a connection each:")
        print(f"  {each_kb:.1f} KB each in the collector (reach: <= 60); {peak_kb / 1000:.0f} MB resident in all")
        print(f"  {100 * share:.1f} % of a core over {WINDOW_S:.0f} s (reach: <= 5)")
        print(f"  joining: {1000 * joined_s / DEVICES:.2f} ms CPU each, {DEVICES / took_s:.0f} a second seen")
        for channel, call in waiting:
            call.cancel()
            await channel.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
