"""Rounding n_h down: never up, never far, and coarser grids within finer ones."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from client_sdk.accounting.loss import PrivacyLoss
from collector.accounting.grid import GRIDS, MOST_PAIRS, grid_for, merged, rounded_down

LOSS = PrivacyLoss.of("pure", Decimal(1))


@given(st.integers(1, 10**9), st.sampled_from(GRIDS))
def test_down_and_not_far(n_h: int, grid: int) -> None:
    rounded = rounded_down(n_h, grid)
    assert n_h / 2 ** (1 / grid) - 1 < rounded <= n_h
    assert rounded_down(rounded, grid) == rounded
    assert rounded_down(n_h, None) == n_h


@given(st.integers(1, 10**9), st.integers(0, len(GRIDS) - 2))
def test_a_coarser_grid_is_nowhere_higher(n_h: int, place: int) -> None:
    assert rounded_down(n_h, GRIDS[place + 1]) <= rounded_down(n_h, GRIDS[place])


def test_few_are_left_as_they_are_and_many_are_merged() -> None:
    few = {(LOSS, n_h): 1 for n_h in range(100, 100 + MOST_PAIRS)}
    assert (grid_for(few), merged(few)) == (None, few)
    many = {(LOSS, n_h): 2 for n_h in range(100, 400)}
    found = merged(many)
    assert len(found) <= MOST_PAIRS
    assert sum(found.values()) == 600
    finest = [grid_for({(LOSS, n_h) for n_h in range(100, most)}) for most in (120, 200, 2000, 20_000)]
    assert finest == sorted(finest, key=lambda grid: -(grid or 99)), "more releases never make it finer"
    assert finest[0] is None
    assert finest[-1] == 2
