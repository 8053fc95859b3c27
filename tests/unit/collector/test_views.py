"""Norm-Sub: the nearest counts that could be true, by definition and by the loop that its paper gives."""

from __future__ import annotations

import math

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from collector.views import norm_sub


def by_the_papers_loop(counts: list[float], total: float) -> list[float]:
    """Add one constant to all that are positive so that they sum to `total`; what falls below 0 is 0 from then on."""
    kept = set(range(len(counts)))
    while True:
        constant = (total - math.fsum(counts[i] for i in kept)) / len(kept)
        below = {i for i in kept if counts[i] + constant <= 0}
        if not below or below == kept:
            return [counts[i] + constant if i in kept else 0.0 for i in range(len(counts))]
        kept -= below


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=40), st.floats(1, 1e6))
def test_it_is_the_papers_loop(counts: list[float], total: float) -> None:
    ours, theirs = norm_sub(counts, total), by_the_papers_loop(counts, total)
    event("something is cut" if 0.0 in theirs else "a shift alone")
    assert ours == pytest.approx(theirs, abs=1e-6 * max(1.0, total))
    assert all(count is not None and count >= 0 for count in ours)
    assert math.fsum(count or 0.0 for count in ours) == pytest.approx(total)


# case A09
def test_a_negative_count_becomes_none_beside_the_raw_one() -> None:
    assert norm_sub([-149.186, 1149.186], 1000) == pytest.approx((0.0, 1000.0))
    assert norm_sub([300.0, 300.0, 500.0], 1000) == pytest.approx((300 - 100 / 3, 300 - 100 / 3, 500 - 100 / 3))


def test_nothing_is_made_of_nothing() -> None:
    assert norm_sub([], 10) == ()
    assert norm_sub([None, None], 0) == (None, None)
    assert norm_sub([1.0, None], 10) == (None, None)
    assert norm_sub([1.0, 2.0], 0) == (None, None)


def test_counts_that_dwarf_the_contributors_are_normalised_too() -> None:
    """Sums over many rounds may be of any size; a float's digits do not show 2,000 beside 10^21."""
    assert norm_sub((-2.5e21, 2.5e21), 2000) == (0.0, pytest.approx(0.0, abs=2.5e21 * 2**-52))
