"""Runs the demo: registrar and collector as processes of their own, and the loop round -> average -> next model.

A round is a day of the plan. After it the loop reads what the collector released for that day, as `report` would, works
out the next model and clipping norm of each line, and writes them where the devices fetch them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from client_sdk.plan import Plan
from collector.federated import averaging
from collector.federated.averaging import Outcome, State
from collector.release import ReleasedSum
from collector.service.demo.processes import PLAIN, raise_file_limit, service, stop
from collector.service.demo.run import STEP_TIMEOUT_S, STEPS, Addresses, enrolment_tokens, registrar_in
from collector.service.federated.data import DIMENSION, World
from collector.service.federated.fleet import DAY_S, Clock, Fleet, Progress, Sent, model_path
from collector.service.federated.lines import Line
from collector.service.registrar.folder import RegistrarFolder
from collector.service.storage import CollectorStore

STEPS_A_ROUND: Final = len(STEPS)

RoundEnded = Callable[[int, Mapping[str, Outcome]], None]


@dataclass(frozen=True, slots=True)
class LineRound:
    """One line's round: where it began, what came out, and what its contributors had told, before any noise.

    true_average: of the clipped updates, over the expected count; true_fraction: of updates that fitted, of b's form.
    totals: as released, by metric a row for each cohort.
    """

    before: State
    outcome: Outcome
    true_average: tuple[float, ...] = field(repr=False)
    true_fraction: float = field(repr=False)
    totals: Mapping[str, tuple[tuple[int, ...], ...]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RoundRun:
    """One round. smallest: contributors of the smallest cohort that was opened; roster, resent: the most of any."""

    number: int
    contributors: int
    cohorts: int
    smallest: int
    roster: int
    resent: int
    lines: Mapping[str, LineRound]


@dataclass(slots=True)
class FederatedRun:
    """Everything the verdict needs. spent_*: micro-epsilon by device, as itself and as the collector say."""

    rounds: list[RoundRun] = field(default_factory=list)
    seconds: float = 0.0
    device_cpu_s: float = 0.0
    collector_cpu_s: float = 0.0
    spent_on_devices: Mapping[str, int] = field(default_factory=dict)
    spent_at_collector: Mapping[str, int] = field(default_factory=dict)


def run_rounds(
    plan: Plan,
    lines: Sequence[Line],
    world: World,
    rounds: int,
    folder: Path,
    progress: Progress,
    ended: RoundEnded,
) -> FederatedRun:
    """Start both services, let every device report `rounds` times, stop both. Raises ConfigurationError.

    folder: empty; what the services and devices keep goes there. progress: told each device's steps; ended: each round.
    """
    raise_file_limit()
    started, cpu_before = time.monotonic(), time.process_time()
    plan_path, url = folder / "plan.toml", f"sqlite:///{folder / 'collector.db'}"
    plan_path.write_text(plan.text, encoding="utf-8")
    registrar = registrar_in(folder)
    registrar.create()
    run, tokens = FederatedRun(), enrolment_tokens(registrar, len(world.devices))
    with contextlib.ExitStack() as stack:
        process, addresses = stack.enter_context(_services(registrar, plan_path, url, len(world.devices), folder))
        for line in lines:
            _publish(folder, line, State(0, (0.0,) * DIMENSION, line.first_clip))
        fleet, clock = Fleet(plan, progress), Clock(time.time() - (rounds - 1) * DAY_S)
        stack.callback(fleet.close)
        for held, token in zip(world.devices, tokens, strict=True):
            fleet.add(held, token, addresses, plan_path, folder, clock)
        store = CollectorStore.open_existing(url)
        stack.callback(store.close)
        asyncio.run(_all_rounds(run, plan, lines, fleet, store, folder, clock, rounds, ended))
        run.spent_on_devices = fleet.spent_micro()
        run.spent_at_collector = {device: store.device_totals(device)[1] for device in fleet.device_ids()}
        fleet.close()
        run.device_cpu_s = time.process_time() - cpu_before
        stop(process)
        collector_cpu = resource.getrusage(resource.RUSAGE_CHILDREN)  # before the registrar ends, which counts apart
    run.seconds = time.monotonic() - started
    run.collector_cpu_s = collector_cpu.ru_utime + collector_cpu.ru_stime
    return run


@contextlib.contextmanager
def _services(
    registrar: RegistrarFolder, plan_path: Path, url: str, devices: int, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], Addresses]]:
    """Both processes, and where they listen; the process is the collector's."""
    key = registrar.key().public_key
    at_once = ["--max-calls-per-address", "1000"]  # the whole fleet comes from one address here
    serve = ["serve", "--plan", str(plan_path), "--db", url, "--registrar-key", key.hex(), *PLAIN]
    serve += ["--expected-devices", str(devices), "--step-timeout", f"{STEP_TIMEOUT_S}s"]
    serve += ["--max-streams-per-address", str(2 * devices + 100)]
    certify = ["registrar", "serve", "--dir", str(registrar.path), *at_once, *PLAIN]
    with (
        service("registrar", certify, folder) as (_, certifier),
        service("collector", serve, folder) as (process, endpoint),
    ):
        yield process, Addresses(endpoint, certifier, key)


async def _all_rounds(
    run: FederatedRun,
    plan: Plan,
    lines: Sequence[Line],
    fleet: Fleet,
    store: CollectorStore,
    folder: Path,
    clock: Clock,
    rounds: int,
    ended: RoundEnded,
) -> None:
    for number in range(1, rounds + 1):
        begun = {line.name: _published(folder, line) for line in lines}
        sent = await fleet.round(lines)
        period = plan.period_start(clock.now)
        released = store.released_sums(since=period, until=period + plan.period_s)
        counted = {one.device_id for one in store.contributions(since=period, until=period + plan.period_s)}
        told = [one for device, one in zip(fleet.device_ids(), sent, strict=True) if device in counted]
        found = {line.name: line_round(line, plan, begun[line.name], released, told) for line in lines}
        run.rounds.append(_round_run(number, released, found))
        for line in lines:
            _publish(folder, line, found[line.name].outcome.state)
        ended(number, {name: one.outcome for name, one in found.items()})
        clock.now += DAY_S


def line_round(
    line: Line, plan: Plan, before: State, released: Sequence[ReleasedSum], told: Sequence[Mapping[str, Sent]]
) -> LineRound:
    """What the collector makes of its sums, beside what the contributors had told, which only the demo knows."""
    outcome = averaging.advance(line.task, plan, before, released)
    held = [one[line.name] for one in told]
    sums = [sum(column) for column in zip(*(one.scaled.tolist() for one in held), strict=True)]
    true_average = tuple(value * before.clip / line.task.expected for value in sums or [0.0] * DIMENSION)
    true_fraction = sum(one.bit for one in held) / line.task.expected + 0.5
    totals = {name: tuple(one.totals for one in released if one.metric == name) for name in line.metrics}
    return LineRound(before, outcome, true_average, true_fraction, totals)


def _round_run(number: int, released: Sequence[ReleasedSum], lines: Mapping[str, LineRound]) -> RoundRun:
    cohorts = {one.round_id: one for one in released}.values()
    sizes = [averaging.hidden_among(one) for one in cohorts]
    return RoundRun(
        number=number,
        contributors=sum(one.contributors for one in cohorts),
        cohorts=len(sizes),
        smallest=min(sizes, default=0),
        roster=max((one.roster for one in cohorts), default=0),
        resent=max((one.resent for one in cohorts), default=0),
        lines=lines,
    )


def _published(folder: Path, line: Line) -> State:
    return State.from_json(model_path(folder, line).read_text(encoding="utf-8"))


def _publish(folder: Path, line: Line, state: State) -> None:
    """Whole or not at all: a device must not read half a model."""
    path = model_path(folder, line)
    fresh = path.with_suffix(".new")
    fresh.write_text(state.to_json(), encoding="utf-8")
    os.replace(fresh, path)
