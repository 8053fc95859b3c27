"""Black-box audit of a mechanism's shipped samplers: what two inputs' reports tell apart, with certainty.

Rules of this room: a sampler is convicted only on evidence. For each ordered pair of inputs an event is chosen on one
half of the reports and counted once on the other; Clopper and Pearson's bounds of the two probabilities give a
certified lower bound on epsilon, and a bound above the claim convicts. `alpha` is split evenly over all pairs, events
and both bounds (Bonferroni): a sampler that keeps its claim is convicted with probability at most `alpha` in total,
whatever the events are. A memoised metric has two claims: of one report, and of all reports of one value, which tell at
most what its permanent answer tells (`audit_permanent`). Entropy is an argument.
What it does not do: acquit. No conviction means that no event among the views (`events`) gave a leak away at this many
samples. Beside it stands the exact check of the shipped integers, `ratio_holds`: that proves the law, and the audit
that the code draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import permutations
from statistics import NormalDist

from client_sdk.mechanisms import Entropy, Mechanism, Value
from client_sdk.mechanisms.memoized import Memoized
from client_sdk.plan.model import Metric
from collector.audit.binomial import lower_bound, upper_bound
from collector.audit.draws import Draw, in_bulk, inputs_of, one_by_one, permanent_answer
from collector.audit.events import Event, Ints, Parts, View, best_events, score_of, views_of

ALPHA = 1e-6
"""Default chance that a whole audit convicts samplers that all keep their claims."""

KINDS = 5
"""Kinds of views: so many events are certified per ordered pair at most."""

SAMPLES_MIN = 16
CELLS_HELD = 1 << 27
"""Elements of reports that are held at once, over all inputs: a wide report is sampled fewer times."""

SINGLE_SHARE = 10
SINGLE_COST = 60
SINGLE_WORK = 1 << 21
"""A tenth of the samples is made singly too. One such report costs about as much as this many elements, and so much
work is done that way per metric at most."""

SINGLE_COORDINATE = 64
"""The same of one coordinate of a vector: noise of its own, drawn alone where the vector is short."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one sampler's reports tell.

    lower_bound: epsilon is at least this, up to alpha; 0 where nothing was told apart. event: what tells, of the two
    inputs named. samples: reports of each input. fault: what no report may do at all, or None.
    """

    lower_bound: float
    samples: int
    event: str = ""
    likely: Value = None
    unlikely: Value = None
    fault: str | None = None

    def convicts(self, epsilon: Decimal) -> bool:
        """Is the claimed epsilon refuted?"""
        return self.fault is not None or self.lower_bound > float(epsilon)


@dataclass(frozen=True, slots=True)
class SamplerAudit:
    """`perturb`, `perturb_many` or `permanent` of one metric."""

    sampler: str
    evidence: Evidence
    passed: bool


@dataclass(frozen=True, slots=True)
class MetricAudit:
    """One metric of a plan: its claim, the exact law of its integers, and its samplers.

    claimed: epsilon of one report, up to delta (0 but for Gaussian noise). all_reports: of a memoised metric, and then
    epsilon_inf, of any number of reports of one value. exact: ln of the largest ratio of the
    integers that ship, or of Gaussian noise the epsilon that its integers have at delta; exact_holds: it is at most the
    claim, in exact arithmetic.
    """

    name: str
    mechanism: str
    claimed: Decimal
    exact: float
    exact_holds: bool
    samplers: tuple[SamplerAudit, ...]
    delta: Decimal = Decimal(0)
    all_reports: bool = False

    @property
    def title(self) -> str:
        """What the claim is about, for a reader."""
        return f"{self.name}, all reports" if self.all_reports else self.name

    @property
    def passed(self) -> bool:
        """Nothing refutes the claim."""
        return self.exact_holds and all(sampler.passed for sampler in self.samplers)


def audit_metrics(
    metrics: Sequence[Metric], entropy: Entropy, *, samples: int, alpha: float = ALPHA
) -> Iterator[MetricAudit]:
    """Every metric's both samplers, `samples` reports of each input (fewer where reports are wide or made singly);
    after a memoised metric's one report, its permanent answers.

    alpha: for all of them together.
    """
    memoised = sum(isinstance(metric.mechanism, Memoized) for metric in metrics)
    share = alpha / (len(metrics) + memoised) if metrics else alpha
    for metric in metrics:
        mechanism, inputs = metric.mechanism, inputs_of(metric)
        yield audit_mechanism(
            mechanism, inputs, entropy, name=metric.name, epsilon=metric.epsilon, samples=samples, alpha=share
        )
        if isinstance(mechanism, Memoized):
            yield audit_permanent(mechanism, inputs, entropy, name=metric.name, samples=samples, alpha=share)


def audit_mechanism(
    mechanism: Mechanism,
    inputs: Sequence[Value],
    entropy: Entropy,
    *,
    samples: int,
    epsilon: Decimal | None = None,
    name: str = "",
    alpha: float = ALPHA,
) -> MetricAudit:
    """The exact check and both samplers. epsilon: the claim, the mechanism's own unless given."""
    claimed = mechanism.epsilon if epsilon is None else epsilon
    width = mechanism.length * len(inputs)
    single = max(SAMPLES_MIN, min(samples // SINGLE_SHARE, _affordable(mechanism, inputs)))
    draws: dict[str, tuple[Draw, int]] = {
        "perturb_many": (in_bulk(mechanism, entropy), max(SAMPLES_MIN, min(samples, CELLS_HELD // width))),
        "perturb": (one_by_one(lambda value: mechanism.perturb(value, entropy)), single),
    }
    audits, delta = [], sum((loss.delta for loss in mechanism.losses), Decimal(0))
    for sampler, (draw, n) in draws.items():
        share = alpha / len(draws)
        evidence = audit_sampler(draw, inputs, samples=n, alpha=share, shape=mechanism, delta=float(delta))
        audits.append(SamplerAudit(sampler, evidence, not evidence.convicts(claimed)))
    ratio = mechanism.worst_ratio
    holds = ratio_holds(ratio, claimed)
    return MetricAudit(name, mechanism.name, claimed, exact_epsilon(ratio), holds, tuple(audits), delta)


def audit_permanent(
    mechanism: Memoized,
    inputs: Sequence[Value],
    entropy: Entropy,
    *,
    samples: int,
    name: str = "",
    alpha: float = ALPHA,
) -> MetricAudit:
    """The claim epsilon_inf: whatever reports are made of a permanent answer, they tell no more than it does.

    The exact ratio of permanent answers, and their sampler (made singly, so at most as many as are affordable).
    """
    draw = one_by_one(lambda value: permanent_answer(mechanism, value, entropy))
    n = max(SAMPLES_MIN, min(samples, _affordable(mechanism, inputs)))
    evidence = audit_sampler(draw, inputs, samples=n, alpha=alpha)
    claimed, ratio = mechanism.epsilon_inf, mechanism.permanent_ratio
    sampler = SamplerAudit("permanent", evidence, not evidence.convicts(claimed))
    holds, exact = ratio_holds(ratio, claimed), exact_epsilon(ratio)
    return MetricAudit(name, mechanism.name, claimed, exact, holds, (sampler,), all_reports=True)


def _affordable(mechanism: Mechanism, inputs: Sequence[Value]) -> int:
    """Reports of each input that may be made singly."""
    cost = SINGLE_COST + mechanism.length * (SINGLE_COORDINATE if mechanism.answer == "vector" else 1)
    return SINGLE_WORK // (len(inputs) * cost)


def audit_sampler(
    draw: Draw,
    inputs: Sequence[Value],
    *,
    samples: int,
    alpha: float = ALPHA,
    shape: Mechanism | None = None,
    delta: float = 0.0,
) -> Evidence:
    """The best evidence over all ordered pairs of inputs. ValueError for fewer than two inputs or 16 samples.

    shape: reports must have its length, and elements within its bound. delta: up to which the claim holds.
    """
    if len(inputs) < 2 or samples < SAMPLES_MIN:
        raise ValueError(f"an audit needs at least 2 inputs and {SAMPLES_MIN} samples, got {len(inputs)}, {samples}")
    rows = draw(inputs, samples)
    fault = None if shape is None else _fault(rows, shape)
    rows = [_coarse(r, shape) for r in rows]
    parts = Parts(samples)
    views = views_of(rows, parts)
    share = alpha / (len(inputs) * (len(inputs) - 1) * KINDS * 2)
    best = Evidence(0.0, samples, fault=fault)
    for likely, unlikely in permutations(range(len(inputs)), 2):
        for event, often, seldom in _counted(views, likely, unlikely, parts, share):
            if often <= seldom * math.exp(best.lower_bound):  # no bound passes the ratio that was seen
                continue
            bound = _certified(often, seldom, parts.certifying, share, delta)
            if bound > best.lower_bound:
                best = Evidence(bound, samples, str(event), inputs[likely], inputs[unlikely], fault)
    return best


def _counted(
    views: Sequence[View], likely: int, unlikely: int, parts: Parts, share: float
) -> Iterator[tuple[Event, int, int]]:
    """The event chosen from each kind of view, and how often the two inputs' certifying reports have it."""
    z = -NormalDist().inv_cdf(share)
    for event in best_events(views, likely, unlikely, parts.choosing, z):
        yield event, *event.counts(likely, unlikely)
    for event in best_events(score_of(views, likely, unlikely, parts), 0, 1, parts.choosing, z):
        yield event, *event.counts(0, 1)


def _certified(often: int, seldom: int, n: int, share: float, delta: float = 0.0) -> float:
    """ln of a ratio that (P(event | likely) - delta) / P(event | unlikely) reaches, up to `share` for either one."""
    low = lower_bound(often, n, share) - delta
    return math.log(low / upper_bound(seldom, n, share)) if low > 0.0 else 0.0


def _fault(rows: Sequence[Ints], shape: Mechanism) -> str | None:
    if any(r.shape[1] != shape.length for r in rows):
        return f"reports are not all {shape.length} elements long"
    if any(int(r.max()) > shape.bound or int(r.min()) < -shape.bound for r in rows):
        return f"an element lies beyond the bound {shape.bound}"
    return None


def _coarse(rows: Ints, shape: Mechanism | None) -> Ints:
    """Vectors' elements by sixteenths of their noise: finer values tell nothing more, and few are seen twice."""
    if shape is None or shape.answer != "vector":
        return rows
    sixteenth = int(math.sqrt(getattr(shape, "noise_variance", 0.0)) / 16.0)
    return rows >> max(0, sixteenth.bit_length() - 1)


# --- the exact check ----------------------------------------------------------------------------------


def ratio_holds(ratio: Fraction | float, epsilon: Decimal) -> bool:
    """Is the largest ratio of the shipped integers at most e^epsilon?

    A fraction is compared in exact arithmetic, with e^epsilon to 100 digits and cut. A float stands for lattice noise,
    whose law is exact by construction: it may be the next above.
    """
    with localcontext(Context(prec=110)):
        limit = epsilon.exp() * (1 - Decimal("1e-100"))
        if isinstance(ratio, Fraction):
            return Decimal(ratio.numerator) <= limit * ratio.denominator
        return Decimal(ratio) <= limit * (1 + Decimal(2) ** -48)


def exact_epsilon(ratio: Fraction | float) -> float:
    """ln of a ratio, rounded up."""
    with localcontext(Context(prec=60)):
        exact = Fraction(ratio)
        logarithm = (Decimal(exact.numerator) / Decimal(exact.denominator)).ln()
        nearest = float(logarithm)
        return nearest if Decimal(nearest) >= logarithm else math.nextafter(nearest, math.inf)
