"""What the simulated devices hold: examples of one logistic regression, each device's from a corner of its own.

Nothing here is noise or a secret: data are made input, so they may be made with a seeded generator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

DIMENSION: Final = 10
EXAMPLES: Final = 40
"""Of each device."""

TEST_EXAMPLES: Final = 4000
LOCAL_STEPS: Final = 5
"""Of gradient descent over all of a device's examples: one round's local training."""

LOCAL_RATE: Final = 1.0
_SLOPE: Final = 4.0
_SPREAD: Final = 0.5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Examples:
    """inputs: shape (n, DIMENSION); labels: shape (n,), 0 or 1."""

    inputs: Floats = field(repr=False)
    labels: Floats = field(repr=False)

    def accuracy(self, model: Floats) -> float:
        """Share of labels that `model`, shape (DIMENSION,), gets right."""
        return float(np.mean((self.inputs @ model > 0.0) == (self.labels > 0.5)))

    @property
    def guessing(self) -> float:
        """Accuracy of whoever always says the more frequent label."""
        share = float(self.labels.mean())
        return max(share, 1.0 - share)


@dataclass(frozen=True, slots=True)
class World:
    """What each device holds, and examples that none of them has, to measure accuracy by."""

    devices: tuple[Examples, ...] = field(repr=False)
    test: Examples


def generated_world(devices: int, seed: int) -> World:
    """One true model for all; a device's inputs lie around a point of its own, so updates differ in more than noise."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=DIMENSION)
    truth *= _SLOPE / np.linalg.norm(truth)
    held = tuple(_examples(rng, truth, rng.normal(size=DIMENSION) * _SPREAD, EXAMPLES) for _ in range(devices))
    test = _examples(rng, truth, rng.normal(size=(TEST_EXAMPLES, DIMENSION)) * _SPREAD, TEST_EXAMPLES)
    return World(held, test)


def _examples(rng: np.random.Generator, truth: Floats, around: Floats, count: int) -> Examples:
    inputs = rng.normal(size=(count, DIMENSION)) + around
    labels = (rng.random(count) < _logistic(inputs @ truth)).astype(np.float64)
    return Examples(inputs, labels)


def _logistic(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(x / 2.0))  # which overflows nowhere


def trained_update(examples: Examples, model: Floats) -> Floats:
    """What a device's training would change in `model`: it never leaves the device as it is."""
    weights = model.copy()
    for _ in range(LOCAL_STEPS):
        errors = _logistic(examples.inputs @ weights) - examples.labels
        weights -= LOCAL_RATE * (errors @ examples.inputs) / len(errors)
    return np.asarray(weights - model)


def plain_accuracies(world: World, rounds: int) -> list[float]:
    """Federated averaging as it is without privacy: updates neither clipped nor noised, summed in the clear."""
    model, found = np.zeros(DIMENSION), []
    for _ in range(rounds):
        model = model + np.mean([trained_update(one, model) for one in world.devices], axis=0)
        found.append(world.test.accuracy(model))
    return found
