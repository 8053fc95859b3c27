"""How exact a metric's answer will be, before anybody reports: errors by contributors, and what other mechanisms cost.

Rules of this file: an error is what the mechanism's own `estimate` would print over so many contributors whose readings
are a stated reference, for these contributors (not for a population): numbers in the middle of the range; categories
and bins of equal shares; for quantiles, a hump with a long tail over the bins (`quantiles.reference_shares`); of an
optional number or an optional metric's quantiles, every second device with a reading; of a sliced number, slices of one
size. Both tables of `plan check` have
the same reference. A row is usable by the rule of `mechanisms.verdict`, the one that reports use.
What it does not do: know the readings. Where they are not like the reference, errors are not quite these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from client_sdk.mechanisms import normal_quantile
from client_sdk.mechanisms.verdict import FEWEST, count_tolerance, is_within, range_tolerance
from client_sdk.plan.build import LABELS, NUMBERS, number, value_epsilon
from client_sdk.plan.memoize import LAWS
from client_sdk.plan.model import Metric

if TYPE_CHECKING:
    from client_sdk.mechanisms.distribution import Distribution

REFERENCE: Final = 10_000
"""Contributors that mechanisms are compared at, and that errors are scaled from: all fall with their root."""

PRICED_BINS: Final = 512
"""Smoothing over more bins takes minutes: it is priced over as many that each hold some of them."""


MOST: Final = 10**12
"""Contributors beyond which only bins make an interval wide."""

RATIOS: Final = ("optional_mean", "slices")
"""Answers of a mean and a count in turn; errors are the means'."""

STEP: Final = 1.25
"""Between numbers of contributors that are tried: how wide whole bins are can change on the way."""


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """Standard error of one metric over `contributors` reports.

    A mean (a coordinate's or slice's too) or a quantile (the worst one asked): in the metric's unit, percent of the
    range. Categories and bins: of one count, in devices, percent of the contributors. None where so few contributors
    give no answer.
    """

    contributors: int
    standard_error: float | None
    percent: float | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A mechanism that the metric could have.

    standard_error: as in ExpectedError, over `REFERENCE` contributors; of a mean that is not optional for the reading
    where it is largest; of a quantile its noise alone, before it is widened to bins, which are the same for all.
    chosen: the plan has it.
    """

    mechanism: str
    standard_error: float | None
    chosen: bool


def expected_error(metric: Metric, contributors: int) -> ExpectedError:
    """Over `contributors` >= 1 reports."""
    error = _error(metric, contributors)
    return ExpectedError(contributors, error, None if error is None else 100.0 * error / _scale(metric, contributors))


def usable_from(metric: Metric) -> int | None:
    """The fewest contributors whose answer is worth reading: of a count, one of an equal share of them.

    None: however many there are, its bins are too coarse for the asked quantiles.
    """
    if metric.mechanism.answer == "quantiles":
        asked: Any = metric.mechanism
        return _usable_quantiles(asked, _tolerance(metric, REFERENCE))
    at = REFERENCE if metric.mechanism.answer not in RATIOS else REFERENCE**2  # where it surely has a mean
    return max(_usable_by(metric, _error(metric, at), at), _answered_from(metric))


@lru_cache(maxsize=256)
def _usable_quantiles(asked: Any, tolerance: float) -> int | None:
    """By the widened 95 % intervals of the reference, from where on they stay within the tolerance for ever."""
    from client_sdk.mechanisms.cumulative import CLEAR

    mechanism: Any = _priced(asked)
    at = REFERENCE if _smoothed(mechanism) else REFERENCE**2
    found = mechanism.distribution(_typical_total(mechanism, at), at)
    if not found.cdf:
        return None

    def is_usable(contributors: float) -> bool:
        clear = contributors / at * found.weight > CLEAR * math.sqrt(contributors / at) * found.weight_error
        return clear and is_within(_widest(mechanism, found, math.sqrt(at / contributors)), tolerance)

    if not is_usable(MOST):
        return None
    low, high = float(FEWEST), float(MOST)
    while high / STEP >= low and is_usable(high / STEP):
        high /= STEP
    low = max(low, high / STEP)
    if is_usable(low):
        return math.ceil(low)
    while high - low > 1:
        middle = math.floor((low + high) / 2)
        low, high = (low, middle) if is_usable(middle) else (middle, high)
    return math.ceil(high)


def _widest(mechanism: Any, distribution: Distribution, scale: float) -> float:
    """Of the asked quantiles' 95 % intervals, where errors are `scale` times these."""
    from client_sdk.mechanisms.distribution import quantiles_of

    scaled = tuple(scale * error for error in distribution.errors)
    estimate = quantiles_of(replace(distribution, errors=scaled), mechanism.quantiles)
    return max(row[1] - row[0] for row in estimate.interval(0.95) if row is not None)


def _usable_by(metric: Metric, error: float | None, contributors: int) -> int:
    """Scaled from a standard error over `contributors`."""
    width = 2.0 * normal_quantile(0.95) * (error or 0.0)
    return max(FEWEST, math.ceil(contributors * (width / _tolerance(metric, contributors)) ** 2))


def _tolerance(metric: Metric, contributors: int) -> float:
    if metric.mechanism.answer == "counts":
        return count_tolerance(contributors / len(metric.mechanism.labels), contributors)
    return range_tolerance(metric.width or 0.0)


def _scale(metric: Metric, contributors: int) -> float:
    if metric.mechanism.answer == "counts":
        return float(contributors)
    return metric.width or 0.0


def _error(metric: Metric, contributors: int) -> float | None:
    mechanism: Any = metric.mechanism
    if mechanism.answer == "vector":  # of any coordinate, whatever it is
        return float(mechanism.unit) * math.sqrt((mechanism.noise_variance + 0.25) / contributors)
    return _mechanism_error(mechanism, contributors)


@lru_cache(maxsize=256)
def _mechanism_error(mechanism: Any, contributors: int) -> float | None:
    inner = getattr(mechanism, "inner", mechanism)
    if mechanism.answer == "counts" and not _smoothed(inner):
        return math.sqrt(contributors * _count_cost(inner))
    priced = _priced(mechanism)
    estimate = priced.estimate(_typical_total(priced, contributors), contributors)
    error = _worst(estimate.standard_errors[:: 2 if mechanism.answer in RATIOS else 1])
    spread: float = priced.inner.k / inner.k if mechanism.answer == "counts" else 1.0  # a smoothed count's is even
    return None if error is None else error * spread


def _priced(mechanism: Any) -> Any:
    """The mechanism, or the same over some bins at a time: a quantile's error is nearly that."""
    inner = getattr(mechanism, "inner", mechanism)
    if not _smoothed(inner) or inner.k <= PRICED_BINS:
        return mechanism
    step = -(-inner.k // PRICED_BINS)
    return replace(mechanism, edges=(*mechanism.edges[:-1:step], mechanism.edges[-1]))


@lru_cache(maxsize=256)
def _noise_error(mechanism: Any) -> float | None:
    """Of the worst asked quantile, before it is widened to bins."""
    priced = _priced(mechanism)
    return _worst(priced.estimate(_typical_total(priced, REFERENCE), REFERENCE).noise_errors())


def _worst(errors: Iterable[float | None]) -> float | None:
    return max((error for error in errors if error is not None), default=None)


def _smoothed(mechanism: Any) -> bool:
    return bool(getattr(mechanism, "smoothed", False))


def _count_cost(mechanism: Any) -> float:
    from client_sdk.mechanisms.pure import mean_squared_error

    return mean_squared_error(mechanism.k, mechanism.p, mechanism.q)


# --- the reference ----------------------------------------------------------------------------------


SHARE_UNIT: Final = 10**15


def _typical_total(mechanism: Any, contributors: int) -> list[int]:
    """The expected total of the reference's readings, in whole numbers."""
    if mechanism.answer == "mean":
        return [round(contributors * mechanism.law.centre)]
    if mechanism.answer == "optional_mean":
        return [round(contributors * mechanism.inner.law.centre), (contributors + 1) // 2]
    inner = mechanism.inner
    shares = _middle_pairs(mechanism) if mechanism.answer == "slices" else [1.0 / inner.k] * inner.k
    if mechanism.answer == "quantiles":
        from client_sdk.mechanisms.quantiles import reference_shares

        bins = len(mechanism.edges) - 1
        present = 0.5 if inner.k > bins else 1.0
        shares = [*(present * share for share in reference_shares(bins)), *[1.0 - present] * (inner.k - bins)]
    return _whole(_expected_cells(inner, shares), contributors)


def _middle_pairs(mechanism: Any) -> list[float]:
    """Of a sliced number in the middle of its range: on the point there, or half of them on either side; of an optional
    one, every second device with a reading.
    """
    present, points = 0.5 if mechanism.optional else 1.0, mechanism.points
    middle = [float(abs(2 * point - mechanism.levels) <= 1) for point in range(points)]
    pairs = [present * one / sum(middle) / len(mechanism.slices) for one in middle] * len(mechanism.slices)
    return [*pairs, *[1.0 - present] * (mechanism.inner.k - len(pairs))]


def _expected_cells(inner: Any, shares: Sequence[float]) -> list[float]:
    """The chance of each cell's 1, where these shares of the readings have each label (or place on the line)."""
    import numpy as np

    if _smoothed(inner):
        return [float(cell) for cell in np.asarray(shares) @ inner.table()]
    p, q, k = float(inner.p), float(inner.q), inner.k
    if inner.length == k:
        return [q + (p - q) * share for share in shares]
    from client_sdk.mechanisms.hadamard import walsh_hadamard

    # the transform is one of integers
    labels = [round(share * SHARE_UNIT) for share in shares]
    signs = walsh_hadamard([0, *labels, *[0] * (inner.length - k - 1)])
    return [(1.0 + (2.0 * p - 1.0) * sign / SHARE_UNIT) / inner.length for sign in signs]


def _whole(chances: list[float], contributors: int) -> list[int]:
    """Whole numbers near contributors * chances, whose running sums are rounded, so that they keep their sum."""
    cells, exact, so_far = [], 0.0, 0
    for chance in chances:
        exact += contributors * chance
        cells.append(round(exact) - so_far)
        so_far += cells[-1]
    return cells


def _answered_from(metric: Metric) -> int:
    """How many contributors an optional or a sliced number needs before it has a mean; 1 for all others."""
    if metric.mechanism.answer not in RATIOS:
        return 1
    from client_sdk.mechanisms.optional import CLEAR_ERRORS

    mechanism: Any = metric.mechanism
    parts = mechanism.parts(_typical_total(mechanism, REFERENCE), REFERENCE)
    if metric.slice_by is None:
        count, variance = float(parts.count), float(parts.count_variance)
    else:  # the worst of slices that are alike but for the rounding of the total
        count, variance = min(float(one.count) for one in parts), max(one.noise[2] for one in parts)
    return math.ceil(REFERENCE * CLEAR_ERRORS**2 * variance / count**2)


# --- what else there is -----------------------------------------------------------------------------


def choices(metric: Metric) -> tuple[Choice, ...]:
    """What every mechanism of the metric's kind would cost, simplest first; of a memoised one those it may have."""
    candidates = ((word, error) for word, error in _candidates(metric) if metric.memo is None or word in LAWS)
    return tuple(Choice(word, error, word == metric.mechanism.name) for word, error in candidates)


def _candidates(metric: Metric) -> Iterator[tuple[str, float | None]]:
    if metric.kind == "vector":  # another mechanism would clip to another norm
        yield metric.mechanism.name, _error(metric, REFERENCE)
    elif metric.slice_by is not None:
        yield from _sliced(metric)
    elif metric.kind == "numeric":
        yield from _numbers(metric)
    elif metric.kind == "categorical":
        yield from _labels(len(metric.mechanism.labels), metric)
    elif metric.kind == "histogram":
        yield from _labels(len(metric.mechanism.labels), metric)
        if _may_be_smoothed(metric):
            yield "square_wave", _binned(metric, "square_wave")
    else:
        yield from ((word, _binned(metric, word)) for word in _quantile_words(metric))


def _numbers(metric: Metric) -> Iterator[tuple[str, float | None]]:
    from client_sdk.mechanisms.optional import OptionalNumber

    half_range = (metric.width or 0.0) / 2
    share = metric.presence_share
    epsilon = metric.epsilon if share is None else value_epsilon(metric.epsilon, share)
    for word in NUMBERS:
        built: Any = number(word, metric.lower, metric.upper, epsilon, metric.levels)  # type: ignore[arg-type]
        if share is None:
            yield word, half_range * math.sqrt(built.worst_case_variance / REFERENCE)
        else:
            yield word, _mechanism_error(OptionalNumber(built, metric.epsilon, share), REFERENCE)


def _sliced(metric: Metric) -> Iterator[tuple[str, float | None]]:
    """On each one's best lattice; the plan's own on the plan's."""
    from client_sdk.mechanisms.sliced_choice import WORDS, sliced_choice

    mechanism: Any = metric.mechanism
    for word in WORDS:
        _, levels = sliced_choice(len(mechanism.slices), metric.epsilon, optional=metric.optional, word=word)
        if word == mechanism.name:
            levels = mechanism.levels
        yield word, _mechanism_error(replace(mechanism, mechanism=word, levels=levels), REFERENCE)


def _labels(k: int, metric: Metric) -> Iterator[tuple[str, float]]:
    from client_sdk.mechanisms.choice import costs

    yield from ((word, math.sqrt(REFERENCE * cost)) for word, cost in costs(k, metric.epsilon).items())


def _quantile_words(metric: Metric) -> tuple[str, ...]:
    return (*LABELS, "square_wave") if _may_be_smoothed(metric) else LABELS


def _may_be_smoothed(metric: Metric) -> bool:
    from client_sdk.mechanisms.square_wave import PLANNED_BINS_MAX

    return not metric.optional and len(metric.edges) - 1 <= PLANNED_BINS_MAX


def _binned(metric: Metric, word: str) -> float | None:
    from client_sdk.mechanisms.histogram import Histogram
    from client_sdk.mechanisms.quantiles import Quantiles

    if metric.kind == "quantiles":
        return _noise_error(Quantiles(metric.edges, metric.epsilon, word, metric.quantiles, metric.optional))
    return _mechanism_error(Histogram(metric.edges, metric.epsilon, word, metric.optional), REFERENCE)
