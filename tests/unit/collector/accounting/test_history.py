"""Histories of a fleet: rounding up never understates, rows come back in their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting.composition import Composer
from collector.accounting.history import distinct_histories, fleet, lifetime
from collector.accounting.local import discrete_laplace, pure, randomized_response

PAIRS = [discrete_laplace(200, 0.5), randomized_response(8, 1.0), pure(0.2)]


def test_a_lifetime_is_the_composition_of_its_counts() -> None:
    assert lifetime(PAIRS, [30, 7, 0], 1e-6) == Composer(PAIRS).epsilon([30, 7, 0], 1e-6)
    assert lifetime([pure(0.2)] * 5, [365] * 5, 1e-6) == pytest.approx(75.80, abs=0.01)


@settings(deadline=None)
@given(
    st.integers(1, 14).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 5000), min_size=width, max_size=width), min_size=1, max_size=20)
    ),
    st.sampled_from([0.0, 0.05, 0.1, 1.0]),
)
def test_counts_are_rounded_up_and_not_far(rows: list[list[int]], ratio: float) -> None:
    """Fourteen columns of some seventy ranks are more keys than 64 bits hold."""
    counts = np.array(rows)
    histories, of_user = distinct_histories(counts, ratio)
    rounded = histories[of_user]
    assert np.all(rounded >= counts)
    assert np.all(rounded <= np.maximum(counts * (1.0 + ratio), counts + (ratio > 0)))
    assert len(np.unique(histories, axis=0)) == len(histories)
    if ratio == 0.0:
        assert np.array_equal(rounded, counts)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.integers(0, 300), min_size=3, max_size=3), min_size=1, max_size=6))
def test_nobody_in_a_fleet_is_understated(rows: list[list[int]]) -> None:
    counts = np.array(rows, dtype=np.uint16)
    epsilons = fleet(PAIRS, counts, 1e-6)
    for row, epsilon in zip(rows, epsilons.tolist(), strict=True):
        exact = lifetime(PAIRS, row, 1e-6)
        assert exact * (1.0 - 2e-5) <= epsilon <= 1.11 * exact + 1.7  # one report more of each, at the most


def test_progress_is_told_after_each_history() -> None:
    told: list[tuple[int, int]] = []
    counts = np.array([[1, 0, 0], [0, 2, 0], [1, 0, 0], [0, 0, 0]])
    epsilons = fleet(PAIRS, counts, 1e-6, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert epsilons[0] == epsilons[2] == PAIRS[0].epsilon(1e-6)
    assert epsilons[3] == 0.0


def test_nobody_is_a_fleet_too() -> None:
    nobody = np.zeros((0, 3), dtype=np.int64)
    assert fleet(PAIRS, nobody, 1e-6).shape == (0,)


def test_reading_changes_nothing() -> None:
    counts = np.array([[3, 5, 7], [300, 2, 1]])
    before = counts.copy()
    assert np.array_equal(fleet(PAIRS, counts, 1e-6), fleet(PAIRS, counts, 1e-6))
    assert np.array_equal(counts, before)


@pytest.mark.parametrize(
    "counts", [np.array([[1, 2]]), np.array([1, 2, 3]), np.array([[1.0, 2.0, 3.0]]), np.array([[1, -1, 0]])]
)
def test_counts_that_are_none_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(ValueError, match="count"):
        fleet(PAIRS, counts, 1e-6)


def test_a_grid_must_grow() -> None:
    with pytest.raises(ValueError, match="ratio"):
        distinct_histories(np.array([[1]]), -0.1)
