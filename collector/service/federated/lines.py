"""The two private lines, side by side: L1 clipping with Laplace noise, and L2 clipping with Gaussian noise.

Both ride in one report, each as two metrics of the plan, so that they see the same devices in the same rounds. A device
of the demo therefore pays for both; a deployment has one. Each line is made for the same EPSILON a report: Laplace's by
the plain sum of its two metrics', Gaussian's at DELTA by the analytic calibration, parted with `update_multiplier`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from client_sdk.plan import Plan, parse_plan
from collector.accounting.local import gaussian_epsilon, gaussian_sigma
from collector.federated.averaging import Task
from collector.federated.clipping import ClipRule, update_multiplier
from collector.service.federated.data import DIMENSION

EPSILON: Final = 4.0
"""Of one report of one line, update and bit together, to whoever sees that report."""

DELTA: Final = 1e-6
"""At which every epsilon is printed, and what one Gaussian report has."""

BIT_EPSILON: Final = 0.5
"""Laplace's share for the bit."""

BIT_MULTIPLIER: Final = 5.0
"""Gaussian noise of a bit, over its sensitivity."""

COHORT_TARGET: Final = 40
CORRUPT: Final = 0.1
CLIP_RULE: Final = ClipRule(quantile=0.5, rate=0.3)
"""In a demo of a few rounds C has to move faster than at the 0.2 of the paper, which has hundreds of them."""

_PARTS: Final = 10_000
"""Epsilons of the plan are rounded down to whole parts of this."""


@dataclass(frozen=True, slots=True)
class Line:
    """One private line. first_clip: C of the first round, chosen without looking at any update."""

    name: str
    title: str
    order: int
    first_clip: float
    task: Task

    @property
    def metrics(self) -> tuple[str, str]:
        """Of the plan: the update, and whether it fitted."""
        return self.task.update, self.task.fitted


def both_lines(expected: int) -> tuple[Line, Line]:
    """expected: devices a round is planned for."""

    def line(name: str, title: str, order: int, first_clip: float) -> Line:
        task = Task(f"update_{name}", f"fits_{name}", expected, clip=CLIP_RULE)
        return Line(name, title, order, first_clip, task)

    return line("l1", "L1/Laplace", 1, 3.0), line("l2", "L2/Gaussian", 2, 1.0)


def demo_plan(devices: int, rounds: int) -> Plan:
    """A round is a day; the cohort is scaled to `devices`."""
    target = min(COHORT_TARGET, devices)
    min_size = max(2, int(target * 0.6))
    total = gaussian_sigma(EPSILON, DELTA, 1.0)  # multipliers under *replace*: of the sensitivities 2C and 1
    update = update_multiplier(total, BIT_MULTIPLIER / 2.0)
    l2 = [_rounded_down(gaussian_epsilon(DELTA / 2.0, z, 1.0)) for z in (update, BIT_MULTIPLIER)]
    l1 = [EPSILON - BIT_EPSILON, BIT_EPSILON]
    lifetime = math.ceil(rounds * (sum(l1) + sum(l2))) + 1
    head = f"""# Two lines of federated averaging in one report: updates, and whether they fitted.
[plan]
name = "federated-demo"
version = 1
period = "1d"                # a round a day
max_delay = "{rounds + 1}d"

[cohort]
min_size = {min_size}
target_size = {target}
max_wait = "10s"
corrupt_fraction = {CORRUPT}
dropout_fraction = 0.1

[budget]
lifetime = {lifetime}
"""
    gaussian = f'norm = "l2"\ndelta = {DELTA / 2.0:.1e}\n'
    tables = [
        _metric("update_l1", DIMENSION, 1, 'norm = "l1"\n', l1[0]),
        _metric("fits_l1", 1, 0.5, 'norm = "l1"\n', l1[1]),
        _metric("update_l2", DIMENSION, 1, gaussian, l2[0]),
        _metric("fits_l2", 1, 0.5, gaussian, l2[1]),
    ]
    return parse_plan(head + "".join(tables))


def _rounded_down(epsilon: float) -> float:
    return math.floor(epsilon * _PARTS) / _PARTS


def _metric(name: str, dimension: int, clip: float, noise: str, epsilon: float) -> str:
    return (
        f'\n[metrics.{name}]\nkind = "vector"\ndimension = {dimension}\nclip = {clip:g}\n{noise}'
        f'epsilon = {epsilon:g}\non_device = "last"\n'
    )
