"""Runs the demo: a registrar and a collector process on loopback, N devices of the real SDK in one asyncio loop.

Each device is a `TelemetryClient` with its own data directory, channel and identity; the ones chosen to drop
out break their stream right before one step of the protocol and do not come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from client_sdk import TelemetryClient
from client_sdk.errors import ConfigurationError
from client_sdk.mechanisms import Value
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, clipped_values
from collector.service.demo.fleet import Fleet, Readings
from collector.service.demo.processes import PLAIN, raise_file_limit, service, stop
from collector.service.registrar.folder import RegistrarFolder

DROP_STEPS = ("shares", "masked_input", "confirm", "unmask")
"""The steps a device may leave before; spread evenly over the devices that drop out."""

STEPS = ("seal", "hello", "join", *DROP_STEPS)
TOKEN_TTL_S = 3600
STEP_TIMEOUT_S = 120
"""Nobody is silent here (who drops out breaks the stream), so this only bounds a very slow machine."""

SEALING_THREADS = 8


class DroppedOutError(Exception):
    """Raised by the demo's hook to break a device's stream before a step."""


@dataclass(slots=True)
class DeviceRun:
    """One device after the run: who it was, what its values became, what it was charged."""

    number: int
    device_id: str
    truth: dict[str, Value] = field(repr=False)  # simulated values; the demo shows their totals only
    drops_before: str | None
    spent_micro_epsilon: int
    uploads: dict[str, int]


@dataclass(slots=True)
class FleetRun:
    """Everything the verdict needs besides the collector's store."""

    devices: list[DeviceRun]
    seconds: float
    device_cpu_s: float
    collector_cpu_s: float
    period_start: int


Progress = Callable[[str], None]
Truth = dict[str, Value]


def drop_schedule(devices: int, dropout: float) -> dict[int, str]:
    """Device number -> step it leaves before: round(dropout x devices) of them, evenly over fleet and steps."""
    dropping = round(devices * dropout)
    return {(i * devices) // dropping: DROP_STEPS[i % len(DROP_STEPS)] for i in range(dropping)}


def cohort_batches(devices: int, target_size: int) -> list[range]:
    """Device numbers cohort by cohort; a remainder below `target_size` joins the last one."""
    cohorts = max(1, devices // target_size)
    ends = [target_size * (i + 1) for i in range(cohorts - 1)] + [devices]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def with_registrar(plan: Plan, key: bytes) -> Plan:
    """The plan with the demo's registrar in place of the one that it names, whose key is not here to certify anybody.

    Only the key is another one: the devices are told the address by themselves. Raises ConfigurationError.
    """
    if plan.registrar is None:
        return plan
    changed = parse_plan(re.sub(plan.registrar.key.hex(), key.hex(), plan.text, flags=re.IGNORECASE))
    if changed.registrar is None or changed.registrar.key != key:  # written with escapes
        raise ConfigurationError("--plan: write the key of [registrar] as 64 hex digits, or leave the table out here")
    return changed


def run_fleet(plan: Plan, plan_path: Path, fleet: Fleet, dropout: float, folder: Path, progress: Progress) -> FleetRun:
    """Start registrar and collector, let every device enrol and upload once, stop both. Raises ConfigurationError.

    folder: holds the registrar's own, made already.
    """
    raise_file_limit()
    started = time.monotonic()
    url = f"sqlite:///{folder / 'collector.db'}"
    devices = len(fleet.readings)
    registrar = registrar_in(folder)
    registrar_key = registrar.key().public_key
    tokens = enrolment_tokens(registrar, devices)
    now = time.time()
    schedule = drop_schedule(devices, dropout)
    with contextlib.ExitStack() as stack:
        # the whole fleet comes from one address here
        at_once = ["--max-calls-per-address", "1000"]
        serve_registrar = ["registrar", "serve", "--dir", str(registrar.path), *at_once, *PLAIN]
        _, certifier = stack.enter_context(service("registrar", serve_registrar, folder))
        serve = ["serve", "--plan", str(plan_path), "--db", url, "--registrar-key", registrar_key.hex(), *PLAIN]
        serve += ["--expected-devices", str(devices), "--step-timeout", f"{STEP_TIMEOUT_S}s"]
        serve += ["--max-streams-per-address", str(2 * devices + 100)]  # the whole fleet is on this machine
        process, endpoint = stack.enter_context(service("collector", serve, folder))
        cpu_before = time.process_time()
        addresses = Addresses(endpoint, certifier, registrar_key)
        runner = _FleetRunner(plan, plan_path, addresses, folder / "devices", now, progress)
        runs = asyncio.run(runner.run(fleet, tokens, schedule))
        device_cpu_s = time.process_time() - cpu_before
        stop(process)
        collector_cpu = resource.getrusage(resource.RUSAGE_CHILDREN)  # before the registrar ends, which counts apart
    return FleetRun(
        devices=runs,
        seconds=time.monotonic() - started,
        device_cpu_s=device_cpu_s,
        collector_cpu_s=collector_cpu.ru_utime + collector_cpu.ru_stime,
        period_start=plan.period_start(now),
    )


def registrar_in(folder: Path) -> RegistrarFolder:
    """Where the demo's registrar lives."""
    return RegistrarFolder(folder / "registrar")


def enrolment_tokens(registrar: RegistrarFolder, count: int) -> list[str]:
    """As many single-use tokens, for an hour."""
    store = registrar.open_store()
    try:
        return store.issue_tokens(count, time.time(), TOKEN_TTL_S)
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the devices find the two services, and whose certificates they believe."""

    collector: str
    registrar: str
    registrar_key: bytes


class _FleetRunner:
    """The devices' half: one coroutine a device, all on one loop."""

    def __init__(
        self, plan: Plan, plan_path: Path, addresses: Addresses, folder: Path, now: float, progress: Progress
    ) -> None:
        self._plan = plan
        self._plan_path = plan_path
        self._addresses = addresses
        self._folder = folder
        self._now = now
        self._progress = progress

    async def run(self, fleet: Fleet, tokens: list[str], schedule: dict[int, str]) -> list[DeviceRun]:
        loop = asyncio.get_running_loop()
        # recording and sealing wait for the disk, so they leave the loop that carries everybody's rounds
        with ThreadPoolExecutor(SEALING_THREADS, "demo-seal") as threads:
            sealing = [
                loop.run_in_executor(threads, self._sealed_client, number, readings, token)
                for number, (readings, token) in enumerate(zip(fleet.readings, tokens, strict=True))
            ]
            sealed = await asyncio.gather(*sealing)
        runs: list[DeviceRun] = []
        # one loop does the work of a whole cohort's phones: cohort after cohort, or their deadlines would pass
        for batch in cohort_batches(len(sealed), self._plan.cohort.target_size):
            uploads = (self._upload(n, *sealed[n], schedule.get(n)) for n in batch)
            runs += await asyncio.gather(*uploads)
        return runs

    def _sealed_client(self, number: int, readings: Readings, token: str) -> tuple[TelemetryClient, Truth]:
        """What an app does: record, and seal the period at its end. With the truth about its values."""
        client = TelemetryClient(
            self._addresses.collector,
            plan=self._plan_path,
            data_dir=self._folder / str(number),
            enrolment_token=token,
            registrar=self._addresses.registrar,
            registrar_key=self._addresses.registrar_key,
            consent=True,
            insecure=True,
            background=False,
            clock=lambda: self._now,
        )
        for name, value in readings:
            client.record(name, value)
        truth = true_values(self._plan, readings) | self._drawn_values(client)
        client.flush(seal=True)
        self._progress("seal")
        return client, truth

    def _drawn_values(self, client: TelemetryClient) -> Truth:
        """What `on_device = "sample"` drew: the only values that nobody can work out apart from the client."""
        names = [name for name, metric in self._plan.metrics.items() if metric.on_device == "sample"]
        period = client._engine.recorder._period if names else None  # noqa: SLF001 - the one witness
        if period is None:
            return {}
        values = clipped_values(self._plan, period.state.values())
        return {name: values[name] for name in names}

    async def _upload(self, number: int, client: TelemetryClient, truth: Truth, drops_before: str | None) -> DeviceRun:
        uploads: dict[str, int] = {}
        with contextlib.suppress(DroppedOutError):
            summary = await client.upload(before_send=lambda step: self._before(step, drops_before))
            uploads = summary.as_dict()
        client.close()
        return DeviceRun(
            number=number,
            device_id=client.device_id or "",  # nobody opts out here
            truth=truth,
            drops_before=drops_before,
            spent_micro_epsilon=client.spent().lifetime_micro,
            uploads=uploads,
        )

    def _before(self, step: str, drops_before: str | None) -> None:
        if step == drops_before:
            raise DroppedOutError(step)
        self._progress(step)


def true_values(plan: Plan, readings: Readings) -> Truth:
    """What a device's readings became before any noise, worked out apart from the client."""
    state = PeriodState(plan)
    for name, value in readings:
        with contextlib.suppress(ValueError):  # refused by the device too, and counted there
            state.add(name, value, os.urandom)
    return clipped_values(plan, state.values())
