"""How the demo's private lines end by chance: the loop as it is, with noise of the same law and no protocol.

LDP_RUNS=12000 python -m pytest -n0 -s -m bench tests/benchmarks/bench_federated.py
"""

from __future__ import annotations

import math
import os
import time

import numpy as np
import numpy.typing as npt
import pytest

from client_sdk.mechanisms.gaussian import VectorGaussian
from collector.service.cli_federated_demo import DEVICES, ROUNDS
from collector.service.federated.data import (
    DIMENSION,
    EXAMPLES,
    LOCAL_RATE,
    LOCAL_STEPS,
    World,
    generated_world,
    plain_accuracies,
    trained_update,
)
from collector.service.federated.lines import Line, both_lines, demo_plan

pytestmark = pytest.mark.bench
RUNS = int(os.environ.get("LDP_RUNS", "400"))
AT_ONCE = 50
"""Runs on one world, of which there are as many as that takes."""

Floats = npt.NDArray[np.float32]


def updates(inputs: Floats, labels: Floats, models: Floats) -> Floats:
    """`trained_update` of all devices in all runs at once: models of shape (runs, d) -> (devices, d, runs)."""
    began = np.broadcast_to(models.T, (len(inputs), DIMENSION, len(models)))
    weights = began.copy()
    for _ in range(LOCAL_STEPS):
        errors = np.tanh((inputs @ weights) * np.float32(0.5)) * np.float32(0.5) + (
            np.float32(0.5) - labels[:, :, None]
        )
        weights -= np.float32(LOCAL_RATE / EXAMPLES) * (inputs.transpose(0, 2, 1) @ errors)
    return weights - began


def noise(mechanism: object, runs: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Of a sum over all devices in the metric's unit, as if it were continuous, shape (runs, coordinates)."""
    if isinstance(mechanism, VectorGaussian):
        return rng.normal(scale=mechanism.deviation * math.sqrt(DEVICES), size=(runs, mechanism.length))
    scale = float(mechanism.scale * mechanism.unit)  # type: ignore[attr-defined]
    # n Laplaces are the difference of two gammas
    gammas = rng.gamma(DEVICES, scale, size=(2, runs, mechanism.length))  # type: ignore[attr-defined]
    return np.asarray(gammas[0] - gammas[1])


def final_accuracies(line: Line, mechanisms: dict[str, object], world: World, rng: np.random.Generator) -> list[float]:
    inputs, labels = (
        np.stack([getattr(one, x) for one in world.devices]).astype(np.float32) for x in ("inputs", "labels")
    )
    models, clips = np.zeros((AT_ONCE, DIMENSION)), np.full(AT_ONCE, line.first_clip)
    for _ in range(ROUNDS):
        moved = updates(inputs, labels, models.astype(np.float32))
        norms = np.linalg.norm(moved, ord=line.order, axis=1)
        total = (moved / np.maximum(norms, clips)[:, None, :]).sum(axis=0).T
        total = total + noise(mechanisms[line.task.update], AT_ONCE, rng)
        bits = np.where(norms <= clips, 0.5, -0.5).sum(axis=0) + noise(mechanisms[line.task.fitted], AT_ONCE, rng)[:, 0]
        models = models + total * clips[:, None] / DEVICES
        rule = line.task.clip
        clips = np.array([rule.following(c, b / DEVICES + 0.5) for c, b in zip(clips, bits, strict=True)])
    return [world.test.accuracy(model) for model in models]


def test_what_the_demo_comes_to_by_chance() -> None:
    plan, lines, rng = demo_plan(DEVICES, ROUNDS), both_lines(DEVICES), np.random.default_rng()
    mechanisms: dict[str, object] = {name: metric.mechanism for name, metric in plan.metrics.items()}
    gains: dict[str, list[float]] = {line.title: [] for line in lines}
    begun = time.process_time()
    for seed in range(max(1, RUNS // AT_ONCE)):
        world = generated_world(DEVICES, seed)
        best, guessing = plain_accuracies(world, ROUNDS)[-1], world.test.guessing
        for line in lines:
            found = final_accuracies(line, mechanisms, world, rng)
            gains[line.title] += [(accuracy - guessing) / (best - guessing) for accuracy in found]
    print(f"\n{DEVICES} devices, {ROUNDS} rounds, {time.process_time() - begun:.0f} s CPU")
    for title, gained in gains.items():
        spread = f"on average {np.mean(gained):.3f}, deviation {np.std(gained):.4f}"
        lowest = ", ".join(
            f"{gain:.3f}" for gain in np.sort(gained)[[0, 1, 2, len(gained) // 1000, len(gained) // 100]]
        )
        print(f"{title}: {len(gained)} runs gained {spread}; the lowest three, a thousandth, a hundredth: {lowest}")


def test_the_simulated_devices_train_as_the_demos_do() -> None:
    world = generated_world(4, 1)
    inputs, labels = (
        np.stack([getattr(one, x) for one in world.devices]).astype(np.float32) for x in ("inputs", "labels")
    )
    models = np.random.default_rng(2).normal(size=(3, DIMENSION))
    found = updates(inputs, labels, models.astype(np.float32))
    for run, model in enumerate(models):
        for device, examples in enumerate(world.devices):
            assert found[device, :, run] == pytest.approx(trained_update(examples, model), abs=1e-4)
