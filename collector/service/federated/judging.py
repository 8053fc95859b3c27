"""Is what came out what went in? Every released figure worked out again, and held against the truth.

Rules of this file: `decoded` is exact and sees no noise: the released integers, multiplied by hand in fractions, are
the averages and shares that the loop went on with, and C moved as they say. `truth` knows what the devices had told
before any noise; its bounds are Chernoff's, on the very noise that the mechanism draws (discrete Laplace by its own
moments, discrete Gaussian by its parameter, Canonne et al. 2020) and what rounding adds, each chosen before the noise
was drawn. `noise` asks that there is no less of it than the plan says (`least_noise.py`). All of a run together break
by chance once in 1 / ALARM runs. Accuracy is another matter, see `learned`.
What it does not do: see noise that is a little too small, or of another law (`ldp-collector audit` does).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorMechanism
from client_sdk.plan import Metric, Plan
from collector.service.federated.least_noise import Noised, least_squares
from collector.service.federated.lines import Line
from collector.service.federated.run import FederatedRun, LineRound

ALARM: Final = 1e-9
"""The probability that any test of a run whose parts all work fails, together."""

JUDGED_DEVICES: Final = 200
JUDGED_ROUNDS: Final = 5
"""From so many on accuracy is judged: what it comes to by chance was measured at these."""

GAIN: Final = 0.25
"""Of what there is to gain over guessing, what each line's last model must have."""

ACCURACY_RUNS: Final = 40_000
"""Simulated runs (`tests/benchmarks/bench_federated.py`), none of which gained less: at most 3 in so many (95 %)."""

EXACT: Final = 1e-9
"""What the rounding of floats may come to, as a share."""

FEWEST_SHARE: Final = 0.75
"""Of the devices in a round: on a very busy machine a cohort may end without a sum."""


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of test: how it went. worst: in parts of what is allowed, above 1 where it failed."""

    name: str
    worst: float
    text: str

    @property
    def ok(self) -> bool:
        """Did all tests of the kind hold?"""
        return self.worst <= 1.0


def checks(plan: Plan, lines: Sequence[Line], run: FederatedRun, rounds: int, devices: int) -> list[Check]:
    """All but accuracy: were the rounds held, are averages and shares what went in, was it charged as it says?"""
    pairs = [(line, r.lines[line.name]) for line in lines for r in run.rounds]
    return [
        _held(run, rounds, devices),
        _decoded(plan, pairs),
        _truth(plan, pairs),
        _noise(plan, pairs),
        _charged(plan, run, rounds, devices),
    ]


def _held(run: FederatedRun, rounds: int, devices: int) -> Check:
    fewest = min((r.contributors for r in run.rounds), default=0)
    enough = len(run.rounds) == rounds and fewest >= FEWEST_SHARE * devices
    text = f"{len(run.rounds)} of {rounds} rounds of {fewest} devices or more"
    return Check("rounds", 0.0 if enough else math.inf, text)


# --- exactly ------------------------------------------------------------------------------------------


def _decoded(plan: Plan, pairs: Sequence[tuple[Line, LineRound]]) -> Check:
    worst = max((_off(plan, line, one) for line, one in pairs), default=math.inf)
    text = "every average, share and C is what the released integers say"
    return Check("decoding", worst, text if worst <= 1.0 else "an average, share or C is not what the integers say")


def _off(plan: Plan, line: Line, one: LineRound) -> float:
    """The farthest of the line's figures from the integers' own, in parts of EXACT."""
    update, fitted = (_by_hand(plan.metrics[name], one, line.task.expected) for name in line.metrics)
    average = [float(value * Fraction(one.before.clip)) for value in update]
    share = float(fitted[0]) + 0.5
    clip = one.before.clip * math.exp(-line.task.clip.rate * (share - line.task.clip.quantile))
    model = [weight + line.task.step * move for weight, move in zip(one.before.model, average, strict=True)]
    found, state = one.outcome, one.outcome.state
    told = [*found.average, found.fraction, state.clip, *state.model]
    wanted = [*average, share, clip, *model]
    if len(told) != len(wanted) or not all(map(math.isfinite, told)):
        return math.inf
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(told, wanted, strict=True)) / EXACT


def _by_hand(metric: Metric, one: LineRound, expected: int) -> list[Fraction]:
    """A metric's sums over the expected count, by the plan alone: total x clip / levels / expected."""
    if metric.vector is None or metric.levels is None:
        raise TypeError(f"{metric.name} is no metric of vectors")
    totals = [sum(cells) for cells in zip(*one.totals[metric.name], strict=True)]
    unit = Fraction(metric.vector.clip) / metric.levels / expected
    return [unit * total for total in totals or [0] * metric.vector.dimension]


# --- against the truth --------------------------------------------------------------------------------


def _truth(plan: Plan, pairs: Sequence[tuple[Line, LineRound]]) -> Check:
    chance = ALARM / 2.0 / max(1, sum(len(one.true_average) + 1 for _, one in pairs))
    ratios = [ratio for line, one in pairs for ratio in _ratios(plan, line, one, chance)]
    worst = max(ratios, default=math.inf)
    how_far = f"the farthest at {worst:.0%} of what noise explains" if math.isfinite(worst) else "one is no number"
    return Check("truth", worst, f"{len(ratios)} of them against the truth, {how_far}")


def _ratios(plan: Plan, line: Line, one: LineRound, chance: float) -> Iterator[float]:
    """Each released number's distance from the truth, over what is allowed."""
    update, fitted = (_mechanism(plan, name) for name in line.metrics)
    count, expected = one.outcome.contributors, line.task.expected
    allowed = allowed_noise(update, count, chance) * float(update.unit) * one.before.clip / expected
    for value, truth in zip(one.outcome.average, one.true_average, strict=True):
        yield _over(abs(value - truth), allowed)
    yield _over(
        abs(one.outcome.fraction - one.true_fraction),
        allowed_noise(fitted, count, chance) * float(fitted.unit) / expected,
    )


def _over(distance: float, allowed: float) -> float:
    if not math.isfinite(distance):
        return math.inf
    if allowed == 0.0:
        return 0.0 if distance < EXACT else math.inf
    return distance / allowed


def _mechanism(plan: Plan, name: str) -> VectorMechanism:
    mechanism = plan.metrics[name].mechanism
    if not isinstance(mechanism, VectorMechanism):
        raise TypeError(f"{name} is no metric of vectors")
    return mechanism


def allowed_noise(mechanism: VectorMechanism, devices: int, chance: float) -> float:
    """How far the noise and rounding of so many reports' sum of one coordinate stray, but for `chance`, either way.

    In lattice steps. Chernoff's bound at one tilt, by nothing that was drawn.
    """
    if devices == 0:
        return 0.0
    nats = math.log(2.0 / chance)
    tilt = math.sqrt(2.0 * nats / (devices * mechanism.noise_variance))
    if not isinstance(mechanism, VectorGaussian):  # half of the way at most to where the moments end
        tilt = min(tilt, 0.5 / float(mechanism.scale))  # type: ignore[attr-defined]
    # A coordinate is rounded to the next step up or down (Hoeffding's lemma), and was cut to 2^-20 of one before.
    exponent = devices * (log_moment(mechanism, tilt) + tilt**2 / 8.0)
    return (exponent + nats) / tilt + devices * 2.0**-20


def log_moment(mechanism: VectorMechanism, tilt: float) -> float:
    """ln E e^(tilt x noise) of one coordinate in one report, in lattice steps: exact for Laplace, a bound for Gaussian.

    Infinity where it has none.
    """
    if isinstance(mechanism, VectorGaussian):
        return tilt * tilt * mechanism.variance / 2.0
    rate = 1.0 / float(mechanism.scale)  # type: ignore[attr-defined]  # the other one is VectorLaplace
    if abs(tilt) >= rate:
        return math.inf
    return -math.log1p(-((math.sinh(tilt / 2.0) / math.sinh(rate / 2.0)) ** 2))


# --- enough of it ---------------------------------------------------------------------------------------


def _noise(plan: Plan, pairs: Sequence[tuple[Line, LineRound]]) -> Check:
    """Of each line, and of all together: the squares of the distances from the truth against the least of them."""
    by_line: dict[str, list[Noised]] = {}
    for line, one in pairs:
        by_line.setdefault(line.name, []).extend(_noised(plan, line, one))
    parts = [*by_line.values(), [one for sums in by_line.values() for one in sums]]
    worst, shares = 0.0, [math.inf]
    for sums in parts:
        found = math.fsum(square for one in sums for square in one.squares)
        least = least_squares(sums, ALARM / 2.0 / len(parts)) if sums else 0.0
        worst = max(worst, _over(least, found) if math.isfinite(found) else 0.0)
        shares.append(found / max(1, sum(len(one.squares) for one in sums)))
    least_share = f"{min(shares):.0%}" if math.isfinite(min(shares)) else "nothing"
    return Check("noise", worst, f"each line's noise has {least_share} of the plan's variance or more")


def _noised(plan: Plan, line: Line, one: LineRound) -> Iterator[Noised]:
    outcome, count = one.outcome, one.outcome.contributors
    told = (outcome.average, one.true_average, one.before.clip), ((outcome.fraction,), (one.true_fraction,), 1.0)
    for name, (values, truths, clip) in zip(line.metrics, told, strict=True):
        mechanism = _mechanism(plan, name)
        deviation = mechanism.deviation * math.sqrt(count) * clip / line.task.expected
        if count:
            apart = zip(values, truths, strict=True)
            yield Noised(mechanism, count, tuple(_square((value - truth) / deviation) for value, truth in apart))


def _square(number: float) -> float:
    return number * number  # of what is too large infinity, where ** raises


# --- charges and accuracy -----------------------------------------------------------------------------


def _charged(plan: Plan, run: FederatedRun, rounds: int, devices: int) -> Check:
    """Both ledgers: every device has spent all rounds' reports, and the collector knows of no more than that, nor of
    less than the reports that its sums hold.
    """
    owed = rounds * plan.report_micro_epsilon
    wrong = sum(micro != owed for micro in run.spent_on_devices.values())
    wrong += sum(micro > owed for micro in run.spent_at_collector.values())
    wrong += abs(len(run.spent_on_devices) - devices)
    counted = sum(r.contributors for r in run.rounds) * plan.report_micro_epsilon
    wrong += sum(run.spent_at_collector.values()) < counted
    if wrong or not run.spent_on_devices:
        return Check("charges", math.inf, f"{wrong} ledgers do not hold what the rounds cost")
    return Check("charges", 0.0, f"all {len(run.spent_on_devices)} ledgers hold epsilon {owed / 1e6:g} (both lines)")


def is_judged(devices: int, rounds: int) -> bool:
    """Is accuracy judged? Below the sizes that it was measured at it may be anything."""
    return devices >= JUDGED_DEVICES and rounds >= JUDGED_ROUNDS


def learned(title: str, accuracy: float, guessing: float, plain: float) -> Check:
    """Has the last model GAIN of what there is to gain over guessing? plain: without privacy."""
    gained = (accuracy - guessing) / (plain - guessing) if plain > guessing else math.inf
    return Check(
        f"accuracy, {title}", GAIN / gained if gained > 0.0 else math.inf, f"{title} learned to {accuracy:.1%}"
    )
