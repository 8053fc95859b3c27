"""Central bounds against the truth: every data set of the other users, both directions, the exact law of the sum.

What an observer of a sum sees is at most the histogram of the reports, or what is stated. Data sets are told apart only
up to the order of the users, which no sum shows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, permutations
from operator import ge

import numpy as np
import pytest

from collector.accounting.blanket import randomized_response
from collector.accounting.clones import clones
from collector.accounting.pairs import LossPair
from collector.accounting.structured import hadamard, structured, subset_selection
from collector.accounting.table import from_table
from collector.accounting.unary import unary

Law = Mapping[tuple[int, ...], float]
ROUNDING = 1e-12


def laws_of_others(rows: np.ndarray, users: int, least: int = 0, law: Law | None = None) -> Iterator[Law]:
    """The law of the histogram of so many users' reports, for every data set of theirs; rows: (values, outputs)."""
    law = {(0,) * rows.shape[1]: 1.0} if law is None else law
    if users == 0:
        yield law
        return
    for value in range(least, len(rows)):
        yield from laws_of_others(rows, users - 1, value, with_report(law, rows[value]))


def with_report(law: Law, row: np.ndarray) -> dict[tuple[int, ...], float]:
    grown: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for counts, mass in law.items():
        for y, chance in enumerate(row):
            if chance:
                grown[(*counts[:y], counts[y] + 1, *counts[y + 1 :])] += mass * float(chance)
    return dict(grown)


def hockey_stick(upper: Law, lower: Law, at: float) -> float:
    factor = math.exp(at)
    return sum(max(0.0, mass - factor * lower.get(counts, 0.0)) for counts, mass in upper.items())


def worst(rows: np.ndarray, n_h: int, points: Sequence[float], victims: Sequence[tuple[int, int]]) -> np.ndarray:
    """The largest exact delta over the others' data sets and over the victim's pairs of values, at each point."""
    largest = np.zeros(len(points))
    values = {x for both in victims for x in both}
    for law in laws_of_others(rows, n_h - 1):
        laws = {x: with_report(law, rows[x]) for x in values}
        for x, other in victims:
            largest = np.maximum(largest, [hockey_stick(laws[x], laws[other], at) for at in points])
    return largest


def dominates(pair: LossPair, exact: np.ndarray, points: Sequence[float]) -> Iterator[bool]:
    return (pair.delta(at) >= delta - ROUNDING for at, delta in zip(points, exact, strict=True))


def two_level(inside: Sequence[Sequence[int]], outputs: int, epsilon: float) -> np.ndarray:
    """Each value's outputs in its set are e^epsilon times as likely as the others."""
    rows = np.ones((len(inside), outputs))
    for row, members in zip(rows, inside, strict=True):
        row[list(members)] = math.exp(epsilon)
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("k", "n_h"), [(2, 9), (3, 9), (4, 7), (2, 4), (3, 3), (4, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_randomised_response(k: int, n_h: int, epsilon: float) -> None:
    points = [share * epsilon for share in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)]
    rows = two_level([[x] for x in range(k)], k, epsilon)
    exact = worst(rows, n_h, points, [(0, 1), (1, 0)])  # the categories are alike
    assert all(dominates(randomized_response(k, epsilon, n_h), exact, points))
    assert all(dominates(clones(epsilon, n_h), exact, points))
    assert exact[0] > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_with_four_categories_and_nine_users(epsilon: float) -> None:
    points = [share * epsilon for share in (0.0, 0.3, 0.6, 0.9)]
    rows = two_level([[x] for x in range(4)], 4, epsilon)
    assert all(dominates(randomized_response(4, epsilon, 9), worst(rows, 9, points, [(0, 1), (1, 0)]), points))


def test_the_references_exact_worst_cases() -> None:
    """Rows 27b and 27c; and a setting in which the variation-ratio figure, 0.003093, is below the truth."""
    for k, n_h, epsilon, at, expected in [
        (3, 7, 1.0, 0.4, 0.046389478),
        (3, 9, 0.5, 0.2, 0.008435338),
        (3, 6, 1.0, 0.8, 0.006628),
    ]:
        rows = two_level([[x] for x in range(k)], k, epsilon)
        exact = float(worst(rows, n_h, [at], [(0, 1), (1, 0)])[0])
        assert exact == pytest.approx(expected, abs=1e-8 if expected > 0.007 else 5e-7)
        assert exact <= randomized_response(k, epsilon, n_h).delta(at)


@pytest.mark.parametrize(("k", "w", "n_h"), [(3, 2, 6), (4, 2, 5), (4, 3, 6), (5, 2, 3)])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_subset_selection(k: int, w: int, n_h: int, epsilon: float) -> None:
    subsets = list(combinations(range(k), w))
    rows = two_level([[i for i, s in enumerate(subsets) if x in s] for x in range(k)], len(subsets), epsilon)
    points = [share * epsilon for share in (0.0, 0.2, 0.5, 0.8)]
    exact = worst(rows, n_h, points, [(0, 1), (1, 0)])
    assert all(dominates(subset_selection(k, w, epsilon, n_h), exact, points))
    assert exact[0] > 0.0


@pytest.mark.parametrize("n_h", [2, 5, 8])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_hadamard(n_h: int, epsilon: float) -> None:
    """Four cells; values are the rows of the Hadamard matrix but the constant one."""
    cells = [[y for y in range(4) if (x & y).bit_count() % 2 == 0] for x in (1, 2, 3)]
    points = [share * epsilon for share in (0.0, 0.2, 0.5, 0.8)]
    exact = worst(two_level(cells, 4, epsilon), n_h, points, list(permutations(range(3), 2)))
    assert all(dominates(hadamard(epsilon, n_h), exact, points))
    assert exact[0] > 0.0


@pytest.mark.parametrize(("inputs", "width", "n_h"), [(4, 2, 5), (5, 2, 4), (3, 1, 6)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_windows_that_overlap_or_not(inputs: int, width: int, n_h: int, epsilon: float) -> None:
    """Square Wave on cells: the bound of disjoint windows holds for neighbouring values too."""
    outputs = inputs + width - 1
    rows = two_level([range(x, x + width) for x in range(inputs)], outputs, epsilon)
    points = [share * epsilon for share in (0.0, 0.3, 0.7)]
    exact = worst(rows, n_h, points, list(permutations(range(inputs), 2)))
    gamma = outputs / (outputs + width * math.expm1(epsilon))
    assert all(dominates(structured(gamma, width / outputs, 0.0, epsilon, n_h), exact, points))


def bit_law(trues: int, falses: int, p: float, q: float, victim: float) -> np.ndarray:
    law = np.ones(1)
    for chance in [p] * trues + [q] * falses + [victim]:
        law = np.convolve(law, (1 - chance, chance))
    return law


@pytest.mark.parametrize("n_h", [2, 8, 15])
@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("symmetric", lambda e: (1 / (1 + math.exp(-e / 2)), 1 / (1 + math.exp(e / 2)))),
        ("optimised", lambda e: (0.5, 1 / (1 + math.exp(e)))),
        ("lopsided", lambda e: (0.9, 0.9 / (0.9 + 0.1 * math.exp(e)))),
    ],
)
def test_unary_encodings(name: str, law: Callable[[float], tuple[float, float]], n_h: int) -> None:
    """Of the others, i hold the first category, j the second, the rest another. Both bits' sums are seen."""
    settings = 0
    for epsilon in (0.5, 2.0, 6.0):
        p, q = law(epsilon)
        pair, points = unary(p, q, n_h), [share * epsilon for share in (0.0, 0.2, 0.4, 0.8)]
        bounds = [pair.delta(at) + ROUNDING for at in points]
        for i in range(n_h):
            for j in range(n_h - i):
                first = [bit_law(i, n_h - 1 - i, p, q, chance) for chance in (p, q)]
                second = [bit_law(j, n_h - 1 - j, p, q, chance) for chance in (q, p)]
                laws = [np.multiply.outer(a, b) for a, b in zip(first, second, strict=True)]
                for upper, lower in (laws, laws[::-1]):
                    exact = [float(np.maximum(upper - math.exp(at) * lower, 0.0).sum()) for at in points]
                    assert all(map(ge, bounds, exact)), (name, epsilon, i, j)
                    settings += 1
    assert settings == 3 * n_h * (n_h + 1)


def test_the_optimised_encodings_exact_worst_case() -> None:
    """n = 15, epsilon 6, at 2.4: exactly 0.3041. Two bits of one direction would have said 0.2616."""
    p, q = 0.5, 1 / (1 + math.exp(6.0))
    largest = 0.0
    for i in range(15):
        for j in range(15 - i):
            upper = np.multiply.outer(bit_law(i, 14 - i, p, q, p), bit_law(j, 14 - j, p, q, q))
            lower = np.multiply.outer(bit_law(i, 14 - i, p, q, q), bit_law(j, 14 - j, p, q, p))
            for one, other in ((upper, lower), (lower, upper)):
                largest = max(largest, float(np.maximum(one - math.exp(2.4) * other, 0.0).sum()))
    assert largest == pytest.approx(0.3041, abs=1e-4)
    assert unary(p, q, 15).delta(2.4) >= largest


@pytest.mark.parametrize("n_h", [2, 4, 7])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("hybrid", [False, True])
def test_sums_of_integers_from_a_table(n_h: int, epsilon: float, hybrid: bool) -> None:
    """Piecewise, and mixed with a two-point report: only the sum of the outputs is seen."""
    levels, width = 4, max(1, round(4 / math.exp(epsilon / 2)))
    rows = two_level([range(j, j + width) for j in range(levels + 1)], levels + width, epsilon)
    if hybrid:
        ends = np.zeros_like(rows)
        ends[:, 0] = 0.5 - math.tanh(epsilon / 2) * np.linspace(-0.5, 0.5, levels + 1)
        ends[:, -1] = 1 - ends[:, 0]
        rows = 0.4 * rows + 0.6 * ends
    pair, points = from_table(rows, n_h), [share * epsilon for share in (0.0, 0.2, 0.5, 0.8)]
    bounds = [pair.delta(at) + ROUNDING for at in points]
    for others in combinations_with_replacement(range(levels + 1), n_h - 1):
        law = np.ones(1)
        for value in others:
            law = np.convolve(law, rows[value])
        sums = [np.convolve(law, row) for row in rows]
        for x, other in permutations(range(levels + 1), 2):
            exact = [float(np.maximum(sums[x] - math.exp(at) * sums[other], 0.0).sum()) for at in points]
            assert all(map(ge, bounds, exact)), (others, x, other)
