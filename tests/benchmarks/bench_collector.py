"""What a device costs the collector, beside a bare grpc.aio echo of the same messages. Prints, asserts no time.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_collector.py

Both servers run as processes of their own and take turns. The devices are played from messages made ahead as far as
the protocol lets them: nonce, roster and root come from the collector. Nobody drops out, so pairwise masks cancel
and are left away, and mask-key shares are only hashes of something; self masks and their shares are real, and so are
the signatures and the sums. Every device has its own channel. The collector has seen the devices' certificates in the
round that warms it up.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from grpc import aio

from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg import keys, masking, shamir
from client_sdk.secagg.messages import Advert, Confirm, Hello, ParticipantMessage, UnmaskShares
from client_sdk.secagg.transcript import (
    ShareKind,
    advert_message,
    confirm_message,
    share_hash,
    share_hashes_message,
)
from client_sdk.wire import secagg_pb2
from client_sdk.wire.convert import participant_message_to_wire
from client_sdk.wire.methods import PARTICIPATE
from collector.service.storage import CollectorStore
from tests.integration.processes import ROOT, child_pids, serving
from tests.registrar import KEY_HEX, certificate_of

pytestmark = pytest.mark.bench

COHORT = 100
AT_ONCE = 2
"""Cohorts under way at the same time, so that one works while the other waits."""

COHORTS = 6
REPEATS = 3
SPACING_S = 0.05
"""Between one device and the next where they trickle in: about 40 a second, a small part of what is possible."""

CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]

NUMBER = '[metrics.n{}]\nkind = "numeric"\nlower = 0\nupper = 100\nepsilon = 1.0\n'
HISTOGRAM = '[metrics.h]\nkind = "categorical"\ncategories = [{}]\nepsilon = 1.0\n'


def bench_plan() -> Plan:
    """100 elements: nine numbers and a histogram of 91 labels."""
    head = f"""
[plan]
name = "bench"
version = 1
period = "1d"
max_delay = "300d"
[cohort]
min_size = 50
target_size = {COHORT}
corrupt_fraction = 0.1
dropout_fraction = 0.1
[budget]
lifetime = 10000
"""
    labels = ", ".join(f'"label {n}"' for n in range(91))
    plan = parse_plan(head + "".join(map(NUMBER.format, range(9))) + HISTOGRAM.format(labels))
    assert plan.length == 100
    return plan


# --- the devices ------------------------------------------------------------------------------------


@dataclass
class Played:
    """One device: everything of its messages that does not depend on the round."""

    identity: IdentityKey
    advert: Advert
    self_mask_seed: bytes
    shares: list[bytes]
    vector: list[int]

    @classmethod
    def new(cls, number: int, plan: Plan) -> Played:
        identity, secrets = IdentityKey(os.urandom(32)), keys.RoundSecrets.draw(os.urandom)
        vector = [0] * plan.length
        vector[plan.slices["h"].start + number % 91] = 1
        advert = Advert(
            identity_key=identity.public_key,
            certificate=certificate_of(identity),
            plan_hash=plan.hash,
            period_start=0,
            report_id=bytes(16),
            nonce=bytes(32),
            mask_key=keys.public_bytes(keys.load_private(secrets.mask_seed)),
            channel_key=keys.public_bytes(keys.load_private(secrets.channel_seed)),
            self_mask_commitment=keys.self_mask_commitment(secrets.self_mask_seed),
            resent=False,
            min_cohort=0,
        )
        threshold = plan.round_rules().threshold(COHORT)
        shares = shamir.split(secrets.self_mask_seed, threshold, COHORT, os.urandom)
        return cls(identity, advert, secrets.self_mask_seed, shares, vector)

    def hello(self, plan: Plan, period_start: int) -> bytes:
        report_id = self.identity.report_id(plan.name, period_start)
        return wire(Hello(self.identity.public_key, self.advert.certificate, plan.hash, period_start, report_id))

    def join(self, plan: Plan, period_start: int, nonce: bytes) -> bytes:
        report_id = self.identity.report_id(plan.name, period_start)
        unsigned = replace(self.advert, period_start=period_start, report_id=report_id, nonce=nonce)
        return wire(replace(unsigned, signature=self.identity.sign(advert_message(unsigned))))

    def hashes(self, digest: bytes, index: int) -> bytes:
        """The part of SealedShares that names the roster: hashes of all shares dealt, and the signature."""
        pairs = (
            bytes(32) + share_hash(digest, index, holder, ShareKind.SELF_MASK, share)
            for holder, share in enumerate(self.shares)
        )
        hashes = b"".join(pairs)
        signature = self.identity.sign(share_hashes_message(digest, index, hashes))
        part = secagg_pb2.SealedShares(share_hashes=hashes, signature=signature)
        return secagg_pb2.ParticipantMessage(sealed_shares=part).SerializeToString()

    def confirm(self, digest: bytes, root: bytes) -> bytes:
        return wire(Confirm(root, self.identity.sign(confirm_message(digest, root))))

    def masked_input(self, bits: int, digest: bytes, index: int) -> bytes:
        ring = masking.to_ring(self.vector, bits)
        masking.add_masks(ring, [(keys.self_mask(self.self_mask_seed, digest, index), 1)])
        (piece,) = masking.to_pieces(ring)
        return wire(piece)


def wire(message: ParticipantMessage) -> bytes:
    return participant_message_to_wire(message)


def sealed_shares() -> list[bytes]:
    """By index: one sealed pair for everybody else. Nobody opens them. `Played.hashes` is to follow: protobuf takes
    two parts of one inner message for one.
    """
    junk = [os.urandom(keys.SEALED_BYTES) for _ in range(COHORT - 1)]
    parts = [
        secagg_pb2.SealedShares(recipients=[other for other in range(COHORT) if other != me], sealed=junk)
        for me in range(COHORT)
    ]
    return [secagg_pb2.ParticipantMessage(sealed_shares=part).SerializeToString() for part in parts]


@dataclass
class Crowd:
    """A cohort's worth of devices, and the sizes of what they and the collector said."""

    plan: Plan
    devices: list[Played]
    sealed: list[bytes]

    @classmethod
    def new(cls, plan: Plan) -> Crowd:
        return cls(plan, [Played.new(number, plan) for number in range(COHORT)], sealed_shares())

    @property
    def by_identity(self) -> dict[bytes, int]:
        return {device.identity.public_key: number for number, device in enumerate(self.devices)}

    async def cohort(self, address: str, period_start: int, spacing_s: float = 0.0) -> list[list[tuple[str, bytes]]]:
        """One round, its devices coming so far from each other. Per device what went up and down, in order."""
        by_identity = self.by_identity

        async def one(number: int, device: Played) -> list[tuple[str, bytes]]:
            await asyncio.sleep(number * spacing_s)
            return await self._take_part(address, period_start, device, by_identity)

        return await asyncio.gather(*(one(number, device) for number, device in enumerate(self.devices)))

    async def _take_part(
        self, address: str, period_start: int, me: Played, by_identity: dict[bytes, int]
    ) -> list[tuple[str, bytes]]:
        said: list[tuple[str, bytes]] = []
        async with aio.insecure_channel(address, options=CHANNEL) as channel:
            call: Any = channel.stream_stream(PARTICIPATE)()

            async def up(data: bytes) -> None:
                said.append(("up", data))
                await call.write(data)

            async def down() -> Any:
                data = await call.read()
                assert data is not aio.EOF
                said.append(("down", data))
                return secagg_pb2.CollectorMessage.FromString(data)

            await up(me.hello(self.plan, period_start))
            await up(me.join(self.plan, period_start, (await down()).challenge.nonce))
            assert (await down()).WhichOneof("message") == "joined"
            roster = (await down()).roster
            index = roster.index
            order = [by_identity[advert.identity_key] for advert in roster.adverts]
            order.insert(index, by_identity[me.identity.public_key])
            await up(self.sealed[index] + me.hashes(roster.digest, index))
            await down()
            await up(me.masked_input(roster.bits, roster.digest, index))
            await up(me.confirm(roster.digest, (await down()).survivor_status.root))
            await down()
            mine = tuple(self.devices[number].shares[index] for number in order)
            await up(wire(UnmaskShares(tuple(range(COHORT)), mine)))
            assert (await down()).receipt.contributors == COHORT
            await call.done_writing()
            assert await call.read() is aio.EOF
        return said


# --- the echo ---------------------------------------------------------------------------------------

ECHO = """
import asyncio, pickle, sys
import grpc
from grpc import aio

turns = pickle.load(open(sys.argv[1], "rb"))

async def talk(_, context):
    for answers in turns:
        await context.read()
        for answer in answers:
            await context.write(answer)

async def main():
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    handler = grpc.stream_stream_rpc_method_handler(talk)
    service, method = sys.argv[2].strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


def turns_of(said: list[tuple[str, bytes]]) -> list[tuple[bytes, list[bytes]]]:
    """What a device said, each time with what was answered before it spoke again."""
    turns: list[tuple[bytes, list[bytes]]] = []
    for direction, data in said:
        if direction == "up":
            turns.append((data, []))
        else:
            turns[-1][1].append(data)
    return turns


@asynccontextmanager
async def echoing(folder: Path, turns: list[tuple[bytes, list[bytes]]]) -> AsyncIterator[tuple[int, str]]:
    """A server that answers the same sizes and does nothing else: (pid, address)."""
    import pickle

    (folder / "turns").write_bytes(pickle.dumps([answers for _, answers in turns]))
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(
            [sys.executable, "-c", ECHO, str(folder / "turns"), PARTICIPATE],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.pid, (await asyncio.to_thread(process.stdout.readline)).strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def echo_cohort(address: str, turns: list[tuple[bytes, list[bytes]]]) -> None:
    async def one() -> None:
        async with aio.insecure_channel(address, options=CHANNEL) as channel:
            call: Any = channel.stream_stream(PARTICIPATE)()
            for data, answers in turns:
                await call.write(data)
                for _ in answers:
                    assert await call.read() is not aio.EOF
            assert await call.read() is aio.EOF

    await asyncio.gather(*(one() for _ in range(COHORT)))


# --- measuring --------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Per device: CPU milliseconds in the server's own process and in its children; and devices a second."""

    own_ms: float
    children_ms: float
    rate: float

    @property
    def ms(self) -> float:
        return self.own_ms + self.children_ms


async def measured(pid: int, cohorts: int, one: Callable[[int], Awaitable[object]]) -> Cost:
    """`cohorts` of them, AT_ONCE at a time."""
    children = child_pids(pid)
    own, others, began = cpu_s(pid), sum(map(cpu_s, children)), time.monotonic()
    numbers = iter(range(cohorts))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    seconds, devices = time.monotonic() - began, cohorts * COHORT
    own, others = cpu_s(pid) - own, sum(map(cpu_s, children)) - others
    return Cost(own * 1000 / devices, others * 1000 / devices, devices / seconds)


async def test_collector_beside_an_echo(tmp_path: Path) -> None:
    plan = bench_plan()
    crowd = Crowd.new(plan)
    today = plan.period_start(time.time())
    periods = iter(range(today, 0, -plan.period_s))
    options = ("--listen", "127.0.0.1:0", "--insecure", "--registrar-key", KEY_HEX)
    async with serving(tmp_path, plan, *options) as running:
        pid = running.process.pid
        warm = await crowd.cohort(running.address, next(periods))
        turns = turns_of(warm[0])
        async with echoing(tmp_path, turns) as (echo_pid, echo_address):
            await echo_cohort(echo_address, turns)
            collector, echo = [], []
            for _ in range(REPEATS):
                collector.append(await measured(pid, COHORTS, lambda _: crowd.cohort(running.address, next(periods))))
                echo.append(await measured(echo_pid, COHORTS, lambda _: echo_cohort(echo_address, turns)))
            trickled = await measured(pid, COHORTS, lambda _: crowd.cohort(running.address, next(periods), SPACING_S))
    store = CollectorStore.open(str(tmp_path / "collector.db"), read_only=True)
    sums = store.released_sums("h")
    assert len(sums) == 1 + (REPEATS + 1) * COHORTS
    assert all(list(row.totals) == [2] * 9 + [1] * 82 for row in sums), "the sums are right"
    store.close()
    report(collector, echo, turns)
    print(f"  {trickled.ms:.2f} ms CPU a device that trickles in, {trickled.rate:.0f} a second (reach: <= 5 ms)")


def report(collector: list[Cost], echo: list[Cost], turns: list[tuple[bytes, list[bytes]]]) -> None:
    up, down = sum(len(data) for data, _ in turns), sum(len(a) for _, answers in turns for a in answers)
    own, children = (median(getattr(cost, name) for cost in collector) for name in ("own_ms", "children_ms"))
    total, floor = median(cost.ms for cost in collector), median(cost.ms for cost in echo)
    rates = [median(cost.rate for cost in costs) for costs in (collector, echo)]
    print(f"\ncollector, cohorts of {COHORT}, {bench_plan().length} elements, {up} bytes up and {down} down a device:")
    print(f"  {total:.2f} ms CPU a device ({own:.2f} itself, {children:.2f} opening sums; reach: <= 2.5 ms)")
    print(f"  {floor:.2f} ms CPU for the echo alone")
    print(f"  {floor / total:.2f} of the echo's devices a CPU second (reach: >= 0.45)")
    print(f"  {rates[0]:.0f} and {rates[1]:.0f} devices a second seen: {rates[0] / rates[1]:.2f}")
    print(
        "  each: " + ", ".join(f"{cost.ms:.2f}" for cost in collector) + " | " + ", ".join(f"{c.ms:.2f}" for c in echo)
    )
