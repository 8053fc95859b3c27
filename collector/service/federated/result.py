"""The demo's JSON document: rounds and costs of both lines beside the one without privacy, the checks, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from client_sdk.accounting.ledger import Cohort
from client_sdk.accounting.loss import plain
from client_sdk.plan import Plan
from collector.accounting.exposure import honest
from collector.federated.cost import RELATION_TEXT, RELATIONS, SENSITIVITY, CostMeter
from collector.service.federated.data import World, plain_accuracies
from collector.service.federated.judging import (
    ACCURACY_RUNS,
    ALARM,
    JUDGED_DEVICES,
    JUDGED_ROUNDS,
    Check,
    checks,
    is_judged,
    learned,
)
from collector.service.federated.lines import DELTA, Line
from collector.service.federated.run import FederatedRun, RoundRun


@dataclass(frozen=True, slots=True)
class FederatedResult:
    """The document and its verdict; `ok` decides the exit status."""

    document: dict[str, Any]
    ok: bool
    verdict: str


def build_result(plan: Plan, lines: Sequence[Line], world: World, run: FederatedRun, rounds: int) -> FederatedResult:
    """Everything that is printed. rounds: as many as were asked for."""
    devices = len(world.devices)
    without = plain_accuracies(world, rounds)
    n_h = _fewest_honest(plan, run.rounds)
    costs = {line.name: CostMeter(_losses(plan, line), n_h, DELTA) for line in lines}
    done = [_round_row(r, lines, world, costs) for r in run.rounds]
    for row, accuracy in zip(done, without, strict=False):
        row["accuracy_without_privacy"] = accuracy
    judged = checks(plan, lines, run, rounds, devices)
    if is_judged(devices, rounds) and done:
        last = done[-1]["lines"]
        judged += [learned(x.title, last[x.name]["accuracy"], world.test.guessing, without[-1]) for x in lines]
    ok, verdict = verdict_of(judged, judged_accuracy=is_judged(devices, rounds))
    document = {
        "devices": devices,
        "seconds": round(run.seconds, 2),
        "cpu_seconds": {"devices": round(run.device_cpu_s, 2), "collector": round(run.collector_cpu_s, 2)},
        "plan": {"name": plan.name, "version": plan.version, "hash": plan.hash.hex()},
        "guessing": world.test.guessing,
        "rounds": done,
        "cost": {line.name: _cost(plan, line, costs[line.name], len(run.rounds)) for line in lines},
        "checks": [asdict(check) | {"worst": _finite(check.worst), "ok": check.ok} for check in judged],
        "alarm": {"checks": ALARM, "accuracy": 3.0 / ACCURACY_RUNS if is_judged(devices, rounds) else None},
        "verdict": verdict,
    }
    return FederatedResult(document, ok, verdict)


def _losses(plan: Plan, line: Line) -> list[Any]:
    return [loss for name in line.metrics for loss in plan.metrics[name].losses]


def _fewest_honest(plan: Plan, rounds: Sequence[RoundRun]) -> int:
    """n_h of the smallest cohort of any, less the corrupt share of the largest roster and the most resent; 1 where
    nothing was. What was resent hides nobody: it may stand in a masked input that was never opened.
    """
    smallest = min((r.smallest for r in rounds), default=0)
    roster = max((r.roster for r in rounds), default=0)
    resent = max((r.resent for r in rounds), default=0)
    return honest(smallest, Cohort(smallest, roster, resent), Fraction(plan.cohort.corrupt_fraction)) if smallest else 1


def _round_row(r: RoundRun, lines: Sequence[Line], world: World, costs: Mapping[str, CostMeter]) -> dict[str, Any]:
    rows = {}
    for line in lines:
        one, meter = r.lines[line.name], costs[line.name]
        rows[line.name] = {
            "accuracy": world.test.accuracy(np.array(one.outcome.state.model)),
            "clip": one.before.clip,
            "fitted": one.outcome.fraction,
            "fitted_truth": one.true_fraction,
            "next_clip": one.outcome.state.clip,
            "epsilon_local": asdict(meter.local(r.number)),
            "epsilon_central": {relation: asdict(meter.central(r.number, relation)) for relation in RELATIONS},
        }
    return {"round": r.number, "contributors": r.contributors, "cohorts": r.cohorts, "lines": rows}


def _cost(plan: Plan, line: Line, meter: CostMeter, rounds: int) -> dict[str, Any]:
    """One report and all of them, by what is seen and under which relation."""
    report, (epsilon, delta) = meter.report, meter.plain(rounds)
    return {
        "title": line.title,
        "metrics": {name: str(plan.metrics[name].losses[0]) for name in line.metrics},
        "delta": meter.delta,
        "n_h": meter.n_h,
        "relations": {
            relation: {"text": RELATION_TEXT[relation], "sensitivity": _sensitivity(*SENSITIVITY[relation])}
            for relation in RELATIONS
        },
        "report": {
            "epsilon_plain": float(report.epsilon),
            "delta_plain": plain(report.delta),
            "epsilon_local": asdict(meter.local(1)),
            "epsilon_central": {relation: asdict(meter.central(1, relation)) for relation in RELATIONS},
        },
        "lifetime": {
            "rounds": rounds,
            "epsilon_plain": float(epsilon),
            "delta_plain": plain(delta),
            "epsilon_local": asdict(meter.local(rounds)) if rounds else None,
            "epsilon_central": {r: asdict(meter.central(rounds, r)) for r in RELATIONS} if rounds else None,
        },
    }  # fmt: skip


def _sensitivity(update: str, bit: str) -> dict[str, str]:
    return {"update": update, "bit": bit}


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def verdict_of(judged: Sequence[Check], *, judged_accuracy: bool) -> tuple[bool, str]:
    """One line: what was checked, and what chance would do to it."""
    broken = [check for check in judged if not check.ok]
    if broken:
        return False, "FAIL: " + "; ".join(f"{check.name}: {check.text}" for check in broken)
    rate = f"false alarms: {ALARM:.0e}"
    if judged_accuracy:
        rate += f", for accuracy none in {ACCURACY_RUNS:,} simulated runs"
    else:
        rate += f"; accuracy is judged from {JUDGED_DEVICES} devices and {JUDGED_ROUNDS} rounds on"
    return True, "PASS: " + "; ".join(check.text for check in judged) + f" ({rate})"
