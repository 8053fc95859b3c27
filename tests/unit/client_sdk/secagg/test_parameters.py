"""Threshold, ring width and smallest roster, against their definitions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest

from client_sdk.errors import PlanError
from client_sdk.secagg.parameters import RoundRules, min_roster, ring_bits, threshold

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
