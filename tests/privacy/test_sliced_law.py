"""Sliced numbers: the complete law of a report over all pairs, what it decodes to, and what sums of a few lose.

Everything is enumerated from the shipped integers: no pair, also none between two points, is told from another one
better than epsilon allows; sums and counts are unbiased; their variances are exactly those that error bars are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from client_sdk.mechanisms import lattice, randomized_response, subset_selection, unary
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.mechanisms.sliced import SlicedNumber
from client_sdk.mechanisms.sliced_choice import WORDS, Spread, exact_cost
from collector.accounting.losses import central_pair, local_pair
from tests.entropy import seeded
from tests.exact_law import Law, e_to, exact_law, worst_ratio

D = Decimal
MODULES = lattice, randomized_response, subset_selection, unary
NUMBERS = (-7.0, -2.0, -0.5, 1.0, 2.25, 6.0, 60.0)
"""Of the range -2 .. 6: ends, between points, on one, beyond."""


def sliced(word: str, slices: int = 2, levels: int = 1, epsilon: str = "1", *, optional: bool = False) -> SlicedNumber:
    by = RandomizedResponse(tuple("abcdef"[:slices]), D(3))
    return SlicedNumber(by, D(-2), D(6), D(epsilon), word, levels, optional)


def law_of(mech: SlicedNumber, category: str, number: float | None) -> Law:
    return exact_law(lambda: tuple(mech.perturb((category, number), None)), *MODULES)  # type: ignore[arg-type]


def inputs(mech: SlicedNumber) -> list[tuple[str, float | None]]:
    found: list[tuple[str, float | None]] = list(itertools.product(mech.slices, NUMBERS))
    return [*found, *((name, None) for name in mech.slices if mech.optional)]


SMALL = [
    *(sliced(word, epsilon=epsilon) for word in WORDS for epsilon in ("0.5", "3")),
    *(sliced(word, 2, 2) for word in WORDS),
    sliced("randomized_response", 3, 3, "2"),
    sliced("subset_selection", 3, 1, "0.25", optional=True),
    sliced("optimized_unary", 2, 1, "2", optional=True),
]


@pytest.mark.parametrize("mech", SMALL, ids=lambda m: f"{m.name} {m.by.k}x{m.points} {m.epsilon}")
def test_the_largest_ratio_over_all_pairs_and_reports(mech: SlicedNumber) -> None:
    laws = [law_of(mech, *pair) for pair in inputs(mech)]
    assert worst_ratio(laws) == mech.worst_ratio <= e_to(mech.epsilon)
    assert float(mech.worst_ratio) > 0.99 * float(e_to(mech.epsilon)), "and epsilon is used up"


@pytest.mark.parametrize("mech", SMALL, ids=lambda m: f"{m.name} {m.by.k}x{m.points} {m.epsilon}")
def test_sums_and_counts_are_unbiased_in_exact_expectation(mech: SlicedNumber) -> None:
    for category, number in inputs(mech):
        mean = [[Fraction(0), Fraction(0)] for _ in mech.slices]
        for report, mass in law_of(mech, category, number).items():
            for of, part in zip(mean, mech.parts(report, 1), strict=True):
                of[0] += mass * (part.total * part.width + part.middle * part.count)
                of[1] += mass * part.count
        clipped = None if number is None else Fraction(min(max(number, -2.0), 6.0))
        for name, (total, count) in zip(mech.slices, mean, strict=True):
            inside = name == category and clipped is not None
            assert (total, count) == ((clipped, 1) if inside else (0, 0))


def moments_of(mech: SlicedNumber, pair: int) -> list[list[Fraction]]:
    """Of one report whose own label is `pair`, by slice: variance of the sum (in half steps), covariance, variance of
    the count; exact.
    """
    law = exact_law(lambda: tuple(mech.inner.perturb_code(pair, None)), *MODULES)  # type: ignore[arg-type]
    scale = 2 * mech.levels
    found = []
    for place in range(mech.by.k):
        drawn = [(mech.parts(report, 1)[place], mass) for report, mass in law.items()]
        sums, counts = [part.total * scale for part, _ in drawn], [part.count for part, _ in drawn]
        masses = [mass for _, mass in drawn]

        def mean(values: Sequence[Fraction], masses: list[Fraction] = masses) -> Fraction:
            return sum((value * mass for value, mass in zip(values, masses, strict=True)), Fraction(0))

        both = [a * b for a, b in zip(sums, counts, strict=True)]
        found.append([
            mean([a * a for a in sums]) - mean(sums) ** 2,
            mean(both) - mean(sums) * mean(counts),
            mean([b * b for b in counts]) - mean(counts) ** 2,
        ])  # fmt: skip
    return found


@pytest.mark.parametrize("mech", SMALL, ids=lambda m: f"{m.name} {m.by.k}x{m.points} {m.epsilon}")
def test_supports_vary_together_as_the_error_bars_say(mech: SlicedNumber) -> None:
    spread = Spread.of(mech.inner)
    weights = [2 * point - mech.levels for point in range(mech.points)]
    own_mean = Fraction(mech.points, mech.inner.k) if spread.centred else Fraction(0)
    squares = sum(w * w for w in weights)
    for pair in range(mech.inner.k):
        for place, exact in enumerate(moments_of(mech, pair)):
            inside = pair // mech.points == place
            w = weights[pair % mech.points] if inside else 0
            ones = mech.points - mech.points * own_mean
            mine = (1 - own_mean) if inside else -own_mean
            assert exact == [
                (spread.base * squares + spread.extra * w * w) / spread.gap**2,
                spread.extra * w * mine / spread.gap**2,
                (spread.base * ones + spread.extra * mine**2) / spread.gap**2,
            ]
            if mech.inner.k > 8:
                continue
            shares = (float(inside), float(w), float(w * w))
            stated = spread.of_slice(shares, mech.points, 1, sampled=True)
            assert stated[1] == pytest.approx(float(exact[1]), abs=1e-9)
            assert stated[2] == pytest.approx(float(exact[2]), abs=1e-9)
            assert stated[0] >= float(exact[0]) - 1e-9, "and the rounding beside it"


@pytest.mark.parametrize("mech", SMALL[:12], ids=lambda m: f"{m.name} {m.by.k}x{m.points} {m.epsilon}")
def test_the_cost_that_is_chosen_by_is_the_exact_variance(mech: SlicedNumber) -> None:
    """All pairs alike: the mean of the exact variances over them, in [-1, 1], a third of the count's, and rounding."""
    exact = [moments_of(mech, pair)[0] for pair in range(mech.inner.k)]
    total, _, count = (sum(column, Fraction(0)) / mech.inner.k for column in zip(*exact, strict=True))
    rounding = Fraction(mech.points, mech.inner.k) * Fraction(2, 3 * mech.levels**2)
    cost = exact_cost(mech.by.k, mech.epsilon, mech.name, mech.levels, optional=mech.optional)
    assert cost == total / mech.levels**2 + count / 3 + rounding


# --- sums: what the accountant's pairs say of them ---------------------------------------------------------


def delta(law: Law, other: Law, epsilon: float) -> float:
    return sum(max(float(law.get(y, 0)) - np.exp(epsilon) * float(other.get(y, 0)), 0.0) for y in {*law, *other})


def convolved(laws: Sequence[Law]) -> Law:
    total: Law = {(0,) * len(next(iter(laws[0]))): Fraction(1)}
    for law in laws:
        found: Law = {}
        for (a, p), (b, q) in itertools.product(total.items(), law.items()):
            key = tuple(x + y for x, y in zip(a, b, strict=True))
            found[key] = found.get(key, Fraction(0)) + p * q
        total = found
    return total


@pytest.mark.parametrize("word", ["randomized_response", "subset_selection", "optimized_unary"])
@pytest.mark.parametrize("n_h", [1, 2, 3])
def test_no_two_pairs_in_a_sum_lose_more_than_the_accountants_pair(word: str, n_h: int) -> None:
    mech = sliced(word, epsilon="2" if word != "subset_selection" else "0.5")
    (loss,) = mech.losses
    assert loss.parameter("k") == 4
    pair = local_pair(loss) if n_h == 1 else central_pair(loss, n_h)
    victims = [law_of(mech, *value) for value in (("a", -2.0), ("a", 6.0), ("b", 1.0), ("b", 6.0))]
    others = [law_of(mech, *value) for value in (("a", 0.5), ("b", 6.0))][: n_h - 1]
    sums = [convolved([victim, *others]) for victim in victims]
    for epsilon in (0.0, 0.3, 1.0, 1.7):
        worst = max(delta(one, other, epsilon) for one, other in itertools.permutations(sums, 2))
        assert worst <= pair.delta(epsilon) * (1 + 1e-9) + 1e-12


# --- the bulk half -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_bulk_reports_have_the_law_of_single_ones(word: str) -> None:
    mech, n = sliced(word, optional=True), 20_000
    values: list[Any] = [("a", 0.5), ("b", 6.0), ("b", None)]
    reports = mech.perturb_many(values * n, seeded(f"bulk {word}")).reshape(n, 3, mech.length)
    for place, value in enumerate(values):
        seen, counts = np.unique(reports[:, place], axis=0, return_counts=True)
        law = law_of(mech, *value)
        found = dict(zip(map(tuple, seen.tolist()), counts.tolist(), strict=True))
        assert set(found) <= set(law)
        for report, mass in law.items():
            expected = n * float(mass)
            assert abs(found.get(report, 0) - expected) < 5.5 * expected**0.5 + 1
