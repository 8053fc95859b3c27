"""Which mechanism, on how fine a lattice, tells sliced numbers with the least error; and how its supports vary.

Rules of this file: a choice is a function of the plan alone (how many slices, which epsilon), in exact arithmetic, so
that every device and the collector come to the same. Equal errors go to the coarser lattice, then the simpler word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from client_sdk.mechanisms import randomized_response, subset_selection, unary
from client_sdk.mechanisms.categories import CategoricalMechanism

WORDS: Final = ("randomized_response", "symmetric_unary", "optimized_unary", "subset_selection")
"""The plan's words for mechanisms over pairs, simplest first. Hadamard response is never the best of them, and its
reports would be up to twice as long."""

LEVELS_MAX: Final = 64
LABELS_MAX: Final = 1 << 16
LEVELS_TRIED: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TRIED_LABELS_MAX: Final = 4096
"""Finer lattices are looked at as long as they stay below; a plan that names its `levels` may go further."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the supports of one report vary together, given its own label u.

    The covariance of two weighted sums of supports, with weights a and b, is base sum(a b) + extra a_u b_u, where the
    weights are counted from their own means over all `labels` if `centred`. That is exact: bits that are independent
    (unary encodings) need no centring; of a uniform subset of fixed size only the differences of weights matter
    (sampling without replacement). gap: p - q.
    """

    base: Fraction
    extra: Fraction
    centred: bool
    labels: int
    gap: Fraction

    @classmethod
    def of(cls, inner: CategoricalMechanism) -> Spread:
        """Of a mechanism of `WORDS`."""
        return cls.law(inner.k, inner.p, inner.q, inner.ones)

    @classmethod
    def law(cls, k: int, p: Fraction, q: Fraction, ones: int | None) -> Spread:
        """ones: how many labels each report supports; None: each independently of the others."""
        if ones is None:
            return cls(q * (1 - q), p * (1 - p) - q * (1 - q), centred=False, labels=k, gap=p - q)
        others = k - 1

        def drawn(count: int) -> Fraction:  # variance of a sum of `count` draws out of the others, over that of one
            return Fraction(count * (others - count), max(others - 1, 1))

        lies = p * drawn(ones - 1) + (1 - p) * drawn(ones)
        extra = p * (1 - p) * Fraction(k, others) ** 2 - lies * Fraction(k, others**2)
        return cls(lies / others, extra, centred=True, labels=k, gap=p - q)

    def of_slice(
        self, shares: tuple[float, float, float], points: int, n: int, *, sampled: bool
    ) -> tuple[float, float, float]:
        """Variances over n reports of a slice's decoded sum, its covariance with the count, and the count's variance.

        shares: of all devices in the slice, and those times their weight and squared weight; weights are twice the
        steps from the middle. sampled: the devices are a sample of a population, else this cohort with its rounding.
        """
        in_slice, first, second = shares
        mean = points / self.labels if self.centred else 0.0
        base, extra, gap = float(self.base), float(self.extra), float(self.gap)
        total = (base * _squares(points) + extra * second) / gap**2
        both = extra * (1.0 - mean) * first / gap**2
        ones = points - points * mean
        count = (base * ones + extra * ((1.0 - mean) ** 2 * in_slice + mean**2 * (1.0 - in_slice))) / gap**2
        centre = first**2 / in_slice if in_slice else 0.0
        # a reading between two points, which are 2 apart, varies by 1 at most; between the only two, no more than this
        within = in_slice if points > 2 else max(in_slice - centre, 0.0)
        if sampled:
            within = max(within, second - centre) + centre * (1.0 - in_slice)
            both += first * (1.0 - in_slice)
            count += in_slice * (1.0 - in_slice)
        return n * max(total + within, 0.0), n * both, n * max(count, 0.0)


def _squares(points: int) -> float:
    """The sum of the squared weights of a slice's points."""
    return (points**3 - points) / 3


def exact_cost(slices: int, epsilon: Decimal, word: str, levels: int, *, optional: bool) -> Fraction:
    """The variance of a slice's mean from one report of each of n devices, times n / slices^2, as if the range were
    [-1, 1]: all slices of one size, readings and means spread evenly over the range.
    """
    points = levels + 1
    k = slices * points + optional
    p, q, ones = _law(word, k, epsilon)
    spread, share = Spread.law(k, p, q, ones), Fraction(points, k)
    mean = share if spread.centred else Fraction(0)
    squares = Fraction(points**3 - points, 3)
    total = (spread.base + spread.extra / k) * squares / levels**2
    count = spread.base * (points - points * mean) + spread.extra * ((1 - mean) ** 2 * share + mean**2 * (1 - share))
    return (total + count / 3) / spread.gap**2 + share * Fraction(2, 3 * levels**2)


def _law(word: str, k: int, epsilon: Decimal) -> tuple[Fraction, Fraction, int | None]:
    """(p, q, ones) as drawn."""
    if word == "randomized_response":
        return *randomized_response.probabilities(k, epsilon), 1
    if word == "subset_selection":
        return *subset_selection.probabilities(k, epsilon), subset_selection.best_size(k, epsilon)
    symmetric = word == "symmetric_unary"
    return *(unary.symmetric_probabilities if symmetric else unary.optimized_probabilities)(k, epsilon), None


@lru_cache(maxsize=256)
def sliced_choice(
    slices: int, epsilon: Decimal, *, optional: bool, word: str | None = None, levels: int | None = None
) -> tuple[str, int]:
    """(word, levels) with the least error, where the plan leaves either open (None).

    Finer lattices are tried as long as the error falls: noise grows with the number of points, rounding shrinks.
    """
    words = WORDS if word is None else (word,)
    found: list[tuple[Fraction, str, int]] = []
    for steps in _tried(slices) if levels is None else (levels,):
        costs = {w: exact_cost(slices, epsilon, w, steps, optional=optional) for w in words}
        least = min(costs, key=costs.__getitem__)
        if found and costs[least] >= found[-1][0]:
            break
        found.append((costs[least], least, steps))
    return found[-1][1:]


def _tried(slices: int) -> Iterator[int]:
    return (steps for steps in LEVELS_TRIED if steps == 1 or slices * (steps + 1) <= TRIED_LABELS_MAX)
