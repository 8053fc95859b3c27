"""Quantiles of numbers: a histogram that is asked where a given share of the readings lies below.

Rules of this file: what is sent is the histogram's report, nothing else; quantiles are read off the estimated
distribution at the collector. Interval ends are where the distribution's band reaches the asked share (Woodruff).
Within a bin readings are taken to be spread evenly: no answer is finer than the bins allow.
Source: Woodruff, "Confidence Intervals for Medians and Other Position Measures" (JASA 1952).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from client_sdk.errors import PlanError
from client_sdk.mechanisms import Answer, Entropy, Value, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.coded import Coded
from client_sdk.mechanisms.distribution import Distribution, QuantileEstimate, quantile_label, quantiles_of
from client_sdk.mechanisms.histogram import Histogram, histogram_choice
from client_sdk.mechanisms.parameters import as_decimal
from client_sdk.mechanisms.square_wave import PLANNED_BINS_MAX, SquareWave, best_reach

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Quantiles(Coded[CategoricalMechanism | SquareWave]):
    """A number -> one report about its bin; a total -> quantiles. PlanError for parameters that cannot work.

    edges, epsilon, mechanism, optional: as for `Histogram`; `auto` is turned into a word by `quantiles_choice`.
    quantiles: shares in (0, 1), ascending, e.g. 0.5 for the median.
    """

    edges: tuple[Decimal, ...]
    epsilon: Decimal
    mechanism: str
    quantiles: tuple[Decimal, ...] = (Decimal("0.5"), Decimal("0.9"), Decimal("0.99"))
    optional: bool = False
    histogram: Histogram = field(init=False, repr=False, compare=False)
    inner: CategoricalMechanism | SquareWave = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        quantiles = tuple(as_decimal("quantiles", share) for share in self.quantiles)
        problems = _quantile_problems(quantiles)
        try:
            histogram = Histogram(self.edges, self.epsilon, self.mechanism, self.optional)
        except PlanError as error:
            raise PlanError([*error.problems, *problems]) from None
        if problems:
            raise PlanError(problems)
        derived = {
            "edges": histogram.edges, "epsilon": histogram.epsilon, "quantiles": quantiles, "histogram": histogram,
            "inner": histogram.inner,
        }  # fmt: skip
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def labels(self) -> tuple[str, ...]:
        """ "p50", "p99.9" and so on, in the plan's order."""
        return tuple(quantile_label(share) for share in self.quantiles)

    @property
    def answer(self) -> Answer:
        """Quantiles."""
        return "quantiles"

    @property
    def smoothed(self) -> bool:
        """Are the estimates read off a smoothed (and so biased) distribution?"""
        return self.histogram.smoothed

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One reading -> one report. ValueRefusedError (wrong type, not finite) before any entropy is drawn."""
        return self.histogram.perturb(value, entropy)

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n readings -> shape (n, length). ValueRefusedError where any is refused, before any entropy is drawn."""
        return self.histogram.perturb_many(values, entropy)

    def estimate(self, total: Sequence[int], contributors: int) -> QuantileEstimate:
        """Summed cells of n reports -> one value per quantile, in the metric's unit."""
        return quantiles_of(self.distribution(total, contributors), self.quantiles)

    def distribution(self, total: Sequence[int], contributors: int) -> Distribution:
        """Summed cells of n reports -> the share of readings below each edge: what several versions mix."""
        return self.histogram.distribution(total, contributors)


CENTRAL: Final = Decimal("0.2"), Decimal("0.8")
FEWEST_BINS: Final = 6
BINS_PER_EPSILON_CENTRAL, BINS_PER_EPSILON = 7, 2


def quantiles_choice(edges: Sequence[Decimal], epsilon: Decimal, quantiles: Sequence[Decimal]) -> str:
    """What `auto` comes to: of the square wave and the best mechanism per bin, by rule, the one with less error.

    The square wave (where its window has 3 cells or more, so that it differs from randomised response) from 6 + 7
    epsilon bins on where nothing outside of p20 .. p80 is asked, and from 6 + 2 epsilon bins on else; below, the
    unbiased mechanism with the least error per bin. Worked out beforehand, for 10,000 readings of `reference_shares`:
    over 4 .. 200 bins, epsilon 0.25 .. 6, and p50, p20 to p80, p50/p90/p99 or p99 asked, the sum of the root mean
    squared errors (noise, and what smoothing and bins bias) is within 15 % of the best mechanism's (the central ones,
    at most) and 8 % (the others). A quantile on a steep end of the distribution is another matter: at that shape's
    p10 it can be 1.8 times the best. Rational numbers, so alike on every machine.
    """
    bins = len(edges) - 1
    central = all(CENTRAL[0] <= share <= CENTRAL[1] for share in quantiles)
    slope = BINS_PER_EPSILON_CENTRAL if central else BINS_PER_EPSILON
    enough = FEWEST_BINS + slope * Fraction(epsilon) <= bins <= PLANNED_BINS_MAX
    if enough and best_reach(bins, epsilon) > 0:
        return "square_wave"
    return histogram_choice(bins, epsilon)


def reference_shares(bins: int) -> tuple[float, ...]:
    """Of readings spread over the bins like Beta(2, 5), a hump with a long tail: what quantiles are judged on."""
    below = [1.0 - (1.0 - x) ** 5 * (1.0 + 5.0 * x) for x in (place / bins for place in range(bins + 1))]
    return tuple(upper - lower for lower, upper in pairwise(below))


def _quantile_problems(quantiles: tuple[Decimal, ...]) -> list[str]:
    if not quantiles or not all(share.is_finite() and 0 < share < 1 for share in quantiles):
        return ["quantiles: must be one or more numbers between 0 and 1, such as 0.5"]
    if any(low >= high for low, high in pairwise(quantiles)):
        return ["quantiles: must ascend, each greater than the one before"]
    return []
