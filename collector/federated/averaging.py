"""One round of federated averaging: sums of scaled, clipped and noised updates -> the next model and clipping norm.

Rules of this file: a sum is divided by the number of devices that were *expected*, fixed before the first round, never
by how many came (McMahan et al. 2018, section 2, the estimator with a fixed denominator). A realised count would be one
more release: under *add or remove a device* the average of n would move by more than C / n when somebody leaves, since
its denominator moves too. Under our relation, *replace a value*, the contributors of a sum are public and dividing by
them would leak nothing; but then a round of few would take a step as long as one of many, with all the more noise in
it. With the fixed count its step is shorter, the noise in a step is never more than planned, and the figures hold under
both relations. So both sums are divided so: the update's, and that of the bits.
Totals are added up over a round's cohorts as integers, and decoded by the mechanism that perturbed them.
What it does not do: look at one device's update. There is nothing here that could hold one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from client_sdk.plan import Metric, Plan
from collector.federated.checks import whole_number
from collector.federated.clipping import BIT_CLIP, ClipRule, fit_fraction
from collector.release import ReleasedSum

UNIT_CLIP: Final = 1
"""Of the metric that carries the update: what comes to it was divided by C."""

STATE_BYTES: Final = 64 * 1024 * 1024
"""Longest text of a state that is read."""


@dataclass(frozen=True, slots=True)
class Task:
    """What stays the same over all rounds. ValueError for what cannot work.

    update, fitted: names of the plan's two metrics. expected: devices that a round is planned for, the denominator.
    step: of the server; 1 adds the average as it is. clip: how C moves.
    """

    update: str
    fitted: str
    expected: int
    step: float = 1.0
    clip: ClipRule = field(default_factory=ClipRule)

    def __post_init__(self) -> None:
        whole_number("expected", self.expected, 1)
        if not 0.0 < self.step < math.inf:
            raise ValueError(f"step: must be above 0 and finite, got {self.step!r}")

    def check_plan(self, plan: Plan) -> None:
        """ValueError unless the plan has both metrics, as vectors of clip 1 and of dimension 1 and clip 1/2."""
        for name, clip, most in ((self.update, float(UNIT_CLIP), None), (self.fitted, BIT_CLIP, 1)):
            rules = plan.metrics[name].vector if name in plan.metrics else None
            if rules is None or float(rules.clip) != clip or (most is not None and rules.dimension != most):
                shape = "of dimension 1 " if most else ""
                raise ValueError(f'[metrics.{name}] must be of kind "vector" {shape}with clip = {clip:g}')


@dataclass(frozen=True, slots=True)
class State:
    """What a round begins with, and all that a device must know: public. ValueError for numbers that are not finite.

    number: rounds that led here, 0 for the first model. clip: C, in the model's own unit.
    """

    number: int
    model: tuple[float, ...]
    clip: float

    def __post_init__(self) -> None:
        if self.number < 0 or not self.model or not all(map(math.isfinite, self.model)):
            raise ValueError("a model is a row of finite numbers, after 0 or more rounds")
        if not 0.0 < self.clip < math.inf:
            raise ValueError(f"a clipping norm is above 0 and finite, got {self.clip!r}")

    def to_json(self) -> str:
        """What the host app fetches; every float comes back as it was."""
        return json.dumps({"round": self.number, "clip": self.clip, "model": list(self.model)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Raises ValueError for anything but a state: a device must not train on half of one."""
        if len(text) > STATE_BYTES:
            raise ValueError("this is too long to be a model")
        try:
            data = json.loads(text)
            number, clip, model = data["round"], data["clip"], data["model"]
            if type(number) is not int or not isinstance(model, list):
                raise TypeError
            return cls(number, tuple(map(_number, model)), _number(clip))
        except (KeyError, TypeError, OverflowError, RecursionError):
            raise ValueError('a model is {"round": whole number, "clip": number, "model": [numbers]}') from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)


@dataclass(frozen=True, slots=True)
class RoundSum:
    """One metric over all cohorts of a round, decoded: noisy sums in the metric's unit, and who is in them.

    smallest: contributors of the smallest cohort that was opened: the fewest that hide each other. A report that came
    unmasked is hidden by nobody.
    """

    values: tuple[float, ...]
    contributors: int
    smallest: int

    @classmethod
    def of(cls, metric: Metric, released: Iterable[ReleasedSum]) -> RoundSum:
        """released: of any metric and one period. Zeros where nothing was."""
        mine = [one for one in released if one.metric == metric.name and one.contributors > 0]
        contributors = sum(one.contributors for one in mine)
        if not mine:
            return cls((0.0,) * metric.mechanism.length, 0, 0)
        totals = [sum(cells) for cells in zip(*(one.totals for one in mine), strict=True)]
        means = metric.mechanism.estimate(totals, contributors).values
        return cls(
            tuple(0.0 if mean is None else mean * contributors for mean in means),
            contributors,
            min(hidden_among(one) for one in mine),
        )


def hidden_among(released: ReleasedSum) -> int:
    """How many reports of this sum hide each other; 1 where each of them came by itself."""
    return min(released.contributors, 1) if released.delivery == "direct" else released.contributors


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round's: `average` in the model's unit, `fraction` (b) as it was released, and the state that follows."""

    average: tuple[float, ...]
    fraction: float
    contributors: int
    state: State


def average(update: RoundSum, clip: float, expected: int) -> tuple[float, ...]:
    """The sum of scaled updates, times C, over the expected count."""
    return tuple(value * clip / expected for value in update.values)


def advance(task: Task, plan: Plan, state: State, released: Iterable[ReleasedSum]) -> Outcome:
    """The state after a round. released: what its period released, all cohorts, once each. ValueError for a plan that
    is not the task's (`Task.check_plan`) and for another model's sums, another plan version's (its lattice steps are of
    another length), those of several periods, or a sum that is there twice.

    A round that released nothing moves neither the model nor C: without a sum there is no noise to add up either.
    """
    task.check_plan(plan)
    mine = tuple(one for one in released if one.metric in (task.update, task.fitted))
    _check_round(plan, mine)
    update, fitted = (RoundSum.of(plan.metrics[name], mine) for name in (task.update, task.fitted))
    if len(update.values) != len(state.model):
        raise ValueError(f"the plan's updates have {len(update.values)} numbers, the model has {len(state.model)}")
    mean = average(update, state.clip, task.expected)
    fraction = fit_fraction(fitted.values[0], task.expected)
    model = tuple(weight + task.step * move for weight, move in zip(state.model, mean, strict=True))
    clip = task.clip.following(state.clip, fraction) if fitted.contributors else state.clip
    return Outcome(mean, fraction, update.contributors, State(state.number + 1, model, clip))


def _check_round(plan: Plan, mine: Sequence[ReleasedSum]) -> None:
    if any(one.plan_hash != plan.hash for one in mine):
        raise ValueError(
            f"released: has sums of another plan than {plan.name} version {plan.version}; hand over its own"
        )
    if len(periods := {one.period_start for one in mine}) > 1:
        raise ValueError(f"released: has sums of {len(periods)} periods; a round is one period")
    if len({(one.round_id, one.metric) for one in mine}) < len(mine):
        raise ValueError(
            "released: has a cohort's sum more than once, and it would count as often; hand over each once"
        )
