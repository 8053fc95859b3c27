"""Neighbours, threshold, ring width and smallest roster, against their definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil, comb, floor, log, log2

import pytest

from client_sdk.errors import PlanError
from client_sdk.secagg import parameters
from client_sdk.secagg.parameters import (
    COMPLETE_UP_TO,
    MAX_NEIGHBOURS,
    MAX_ROSTER,
    RoundRules,
    min_roster,
    ring_bits,
    round_parameters,
    threshold,
)
from tests.hypergeometric import Oracle, subsets_by_hits

FRACTIONS = [Fraction(text) for text in ("0", "0.05", "0.1", "0.2", "1/3", "0.5", "0.9")]


@pytest.mark.parametrize("corrupt", FRACTIONS, ids=str)
def test_threshold_is_the_smallest_that_beats_a_split(corrupt: Fraction) -> None:
    """Two disjoint honest groups, each with all corrupt holders, must not both reach it."""
    for size in range(1, 400):
        t = threshold(size, corrupt)
        bad = floor(corrupt * size)
        assert 2 * t > size + bad
        assert 2 * (t - 1) <= size + bad
        assert 1 <= t <= size


def test_threshold_of_known_cohorts() -> None:
    assert threshold(5, Fraction(1, 10)) == 3  # case D01: 5 members, threshold 3
    assert threshold(100, Fraction(1, 10)) == 56
    assert threshold(10, Fraction(1, 5)) == 7


@pytest.mark.parametrize(
    ("size", "corrupt"), [(0, Fraction(0)), (-1, Fraction(0)), (5, Fraction(1)), (5, Fraction(-1, 10))]
)
def test_threshold_refuses_what_cannot_be(size: int, corrupt: Fraction) -> None:
    with pytest.raises(ValueError, match="threshold needs"):
        threshold(size, corrupt)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_ring_is_the_smallest_that_holds_every_sum(bits: int) -> None:
    half = 1 << (bits - 1)
    for contributors in (1, 3, 10, 101, 1000):
        largest = (half - 1) // contributors
        assert ring_bits(contributors, largest) == bits
        if bits < 64:
            assert ring_bits(contributors, largest + 1) == 2 * bits


def test_a_sum_that_would_wrap_is_never_planned() -> None:
    # case D07: 10 x 536870912 in 32 bits would come out as 1073741824
    assert ring_bits(10, 536_870_912) == 64
    assert ring_bits(3, 536_870_912) == 32
    with pytest.raises(PlanError, match="64 bits"):
        ring_bits(2, 1 << 62)


@pytest.mark.parametrize(("contributors", "bound"), [(0, 5), (5, 0), (5, -1)])
def test_ring_refuses_what_cannot_be(contributors: int, bound: int) -> None:
    with pytest.raises(PlanError):
        ring_bits(contributors, bound)


@pytest.mark.parametrize("dropout", FRACTIONS, ids=str)
def test_min_roster_is_the_ceiling(dropout: Fraction) -> None:
    for size in range(1, 300):
        assert min_roster(size, dropout) == ceil(size / (1 - dropout))


@pytest.mark.parametrize(("size", "dropout"), [(0, Fraction(0)), (5, Fraction(1)), (5, Fraction(-1, 2))])
def test_min_roster_refuses_what_cannot_be(size: int, dropout: Fraction) -> None:
    with pytest.raises(ValueError, match="min_roster needs"):
        min_roster(size, dropout)


def test_rules_put_the_numbers_together() -> None:
    rules = RoundRules(50, Fraction(1, 10), Fraction(1, 10), 30, length=4, bound=2**24)
    assert rules.min_roster == 56
    assert rules.threshold(56) == 31
    assert rules.floor(56) == 50
    assert rules.floor(200) == 111 == rules.threshold(200)
    assert (rules.bits(56), rules.bits(128)) == (32, 64)


SIZES = (257, 300, 511, 1000, 1024, 1025, 3000, 10_000, MAX_ROSTER)
CORRUPT = ("0", "0.05", "0.1", "0.2", "1/3")
DROPOUT = ("0", "0.05", "0.1", "0.3")
MARGIN_BITS = 1e-6
"""No decision of the grid may lie so near its bound that the rounding of another log-gamma could turn it."""


def agrees(size: int, corrupt: Fraction, dropout: Fraction) -> float:
    """Code and exact counting take the same decision; returns how near its bound the nearest one was, in bits."""
    oracle = Oracle(size, corrupt, dropout)
    expected = oracle.parameters()
    left, complete = size - floor(dropout * size), (size - 1, threshold(size, corrupt))
    if expected is None and size <= MAX_NEIGHBOURS + 1 and left >= complete[1]:
        expected = complete
    if expected is None:
        with pytest.raises(PlanError, match=rf"a roster of {size} has no graph of at most 1023 neighbours"):
            round_parameters(size, corrupt, dropout)
    else:
        assert round_parameters(size, corrupt, dropout) == expected
    return oracle.nearest


@pytest.mark.parametrize("size", SIZES)
def test_neighbours_and_threshold_are_those_of_exact_counting(size: int) -> None:
    """The hardest corner, 0.3 dropouts of many, takes the oracle seconds: see the slow test."""
    grid = [(c, d) for c, d in product(CORRUPT, DROPOUT) if d != "0.3" or size <= 511]
    nearest = min(agrees(size, Fraction(corrupt), Fraction(dropout)) for corrupt, dropout in grid)
    assert nearest > MARGIN_BITS


@pytest.mark.slow
def test_neighbours_and_threshold_on_the_whole_grid() -> None:
    nearest = min(agrees(n, Fraction(c), Fraction(d)) for n, c, d in product(SIZES, CORRUPT, DROPOUT))
    print(f"nearest decision: {nearest:.2e} bits from its bound")
    assert nearest > MARGIN_BITS


@pytest.mark.parametrize(
    ("size", "degree", "t"), [(256, 255, 141), (257, 70, 48), (1000, 138, 98), (10_000, 182, 129), (16_384, 188, 133)]
)
def test_known_sizes_at_a_tenth_corrupt_and_a_tenth_lost(size: int, degree: int, t: int) -> None:
    tenth = Fraction(1, 10)
    assert round_parameters(size, tenth, tenth) == (degree, t)
    rules = RoundRules(50, tenth, tenth, 30, length=4, bound=1)
    assert (rules.degree(size), rules.threshold(size), rules.floor(size)) == (degree, t, max(50, t))


@pytest.mark.parametrize("dropout", FRACTIONS, ids=str)
@pytest.mark.parametrize("corrupt", FRACTIONS, ids=str)
def test_the_complete_graph_does_not_ask_for_the_dropouts(corrupt: Fraction, dropout: Fraction) -> None:
    for size in (1, 2, 3, 50, 255, COMPLETE_UP_TO):
        assert round_parameters(size, corrupt, dropout) == (size - 1, threshold(size, corrupt))


def test_where_no_sparse_graph_holds_the_complete_one_may() -> None:
    corrupt, dropout = Fraction(1, 10), Fraction(447, 1000)
    assert Oracle(300, corrupt, dropout).parameters() is None
    assert round_parameters(300, corrupt, dropout) == (299, 166)  # just as many are expected to stay
    with pytest.raises(PlanError, match=r"corrupt_fraction 0\.1 and dropout_fraction 0\.45; lower one"):
        round_parameters(300, corrupt, Fraction(45, 100))
    # The largest roster that may still be complete, and the first that may not.
    corrupt, dropout = Fraction(1, 5), Fraction(2, 5)
    assert round_parameters(MAX_NEIGHBOURS + 1, corrupt, dropout) == (MAX_NEIGHBOURS, 615)
    with pytest.raises(PlanError) as failed:
        round_parameters(MAX_NEIGHBOURS + 2, corrupt, dropout)
    assert len(failed.value.problems) == len(str(failed.value).splitlines()) == 1


@pytest.mark.parametrize("dropout", [Fraction(-1, 10), Fraction(1)])
def test_parameters_refuse_a_dropout_that_cannot_be(dropout: Fraction) -> None:
    for size in (5, 300):
        with pytest.raises(ValueError, match="dropout fraction"):
            round_parameters(size, Fraction(1, 10), dropout)


@pytest.mark.parametrize(("population", "marked", "draws"), [(299, 30, 80), (999, 100, 138), (9999, 1000, 182)])
def test_tails_are_those_of_exact_counting(population: int, marked: int, draws: int) -> None:
    """To 1e-9 of a logarithm where the tail is below a half, never below it elsewhere; to the last term."""
    ways, everything, compared = subsets_by_hits(population, marked, draws), comb(population, draws), 0
    for most in range(-1, draws + 2):
        above = sum(ways[most + 1 :])
        computed = parameters._log_more_than(population, marked, draws, most)
        if above == 0:
            assert computed == float("-inf")
            continue
        exact = (log2(above) - log2(everything)) * log(2)
        if (most + 1) * population <= marked * draws:
            assert computed == 0.0
            assert 2 * above > everything
        else:
            assert computed == pytest.approx(exact, abs=1e-9)
            compared += 1
    assert compared > 20


def test_connectivity_is_that_of_exact_counting() -> None:
    """(a) never decides at real sizes, so its bound is met here on purpose: few bits, many bad members."""
    both = {True: 0, False: 0}
    for size, bad in ((30, 15), (60, 24), (300, 200), (1000, 400)):
        for degree in range(2, min(bad + 3, size - 1), 2):
            pairs = size * (size - degree - 1)
            ways = perm_ratio(bad, degree, size)
            holds = pairs * ways * 2**81 <= 2
            assert parameters._is_connected(size, bad, degree) is holds
            both[holds] += 1
    assert min(both.values()) > 50


def perm_ratio(bad: int, degree: int, size: int) -> Fraction:
    """The probability that `degree` given places are all held by bad members."""
    ratio = Fraction(1)
    for step in range(degree):
        ratio *= Fraction(max(0, bad - step), size - step)
    return ratio


@pytest.mark.parametrize("size", [1000, 10_000])
def test_cuts_that_the_collector_chooses_stay_rare(size: int) -> None:
    """More than t1 corrupt members on the k places of any two runs: at most (n - k - 1) / 2 times the bound of (b)."""
    tenth = Fraction(1, 10)
    degree, _ = round_parameters(size, tenth, tenth)
    oracle = Oracle(size, tenth, tenth)
    t1, pairs = oracle.most_corrupt(degree), size * (size - degree - 1) // 2
    over = sum(subsets_by_hits(size, oracle.corrupt, degree)[t1 + 1 :])
    exact_bits = log2(comb(size, degree)) - log2(over * pairs)
    print(f"n = {size}: a chosen cut exists with a probability of at most 2^-{exact_bits:.1f}")
    assert exact_bits >= 81 - log2((size - degree - 1) / 2) > 68


def test_parameters_are_quick() -> None:
    """Work, not time: the worst plan looks at each degree once and at each count of corrupt members once."""
    calls = 0
    real = parameters._log_more_than

    def counted(*numbers: int) -> float:
        nonlocal calls
        calls += 1
        return real(*numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "_log_more_than", counted)
        assert parameters._sparse_parameters(MAX_ROSTER, MAX_ROSTER // 3, MAX_ROSTER // 3) is None
    assert 511 < calls <= 3 * 511
