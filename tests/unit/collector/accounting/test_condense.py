"""Merging atoms never understates a delta; the guard against rounding holds for every epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.accounting import condense
from collector.accounting.condense import condensed, envelope, guarded, on_edges, pair, symmetric_pair
from collector.accounting.pairs import LossPair


def delta(losses: np.ndarray, masses: np.ndarray, at: float) -> float:
    return float(np.maximum(masses - np.exp(at - losses) * masses, 0.0).sum())


def many(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses over [-8, 8], heavy in the middle, with a far outlier at either end."""
    losses = np.concatenate(([-30.0], np.linspace(-8.0, 8.0, count), [30.0]))
    masses = np.exp(-0.5 * (losses - 0.5) ** 2)
    return losses, masses / masses.sum()


def test_condensed_atoms_dominate_and_keep_both_masses() -> None:
    losses, masses = many(100_000)
    fewer, heavier = condensed(losses, masses, bins=1000)
    assert len(fewer) <= 1003
    assert heavier.sum() == pytest.approx(masses.sum(), rel=1e-12)
    assert (heavier * np.exp(-fewer)).sum() == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-9)
    for at in (0.0, 0.0071, 0.5, 2.0, 5.0, 7.9):
        exact = delta(losses, masses, at)
        assert exact * (1 - 1e-10) - 1e-17 <= delta(fewer, heavier, at) <= exact * (1 + 1e-3) + 1e-15


def test_few_atoms_stay_what_they_are() -> None:
    losses, masses = condensed(np.array([1.0, -1.0, 3.0]), np.array([0.5, 0.5, 0.0]))
    assert losses.tolist() == [1.0, -1.0]
    assert masses.tolist() == [0.5, 0.5]


def test_one_heavy_atom_among_many_light_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condense, "EXACT", 16)
    losses, masses = np.linspace(-1.0, 1.0, 101), np.full(101, 1e-25)
    masses[50] = 1.0
    fewer, heavier = condensed(losses, masses)
    assert len(fewer) <= 17
    assert heavier.sum() == pytest.approx(masses.sum(), rel=1e-12)
    assert all(delta(fewer, heavier, at) >= delta(losses, masses, at) * (1 - 1e-9) for at in (0.0, 0.11, 0.5, 0.97))


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(1e-6, 1)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.floats(-3, 3),
)
@settings(max_examples=200, deadline=None)
def test_splitting_to_any_edges_dominates(atoms: list[tuple[float, float]], bins: int, at: float) -> None:
    losses, masses = (np.array(column) for column in zip(*atoms, strict=True))
    edges = np.linspace(losses.min() - 0.1, losses.max() + 0.1, bins + 1)
    below = np.searchsorted(edges, losses, side="right") - 1
    split = on_edges(losses, masses, edges, below)
    assert split.sum() == pytest.approx(masses.sum(), rel=1e-9)
    assert (split * np.exp(-edges)).sum() == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-9)
    assert delta(edges, split, at) >= delta(losses, masses, at) - 1e-9


def test_symmetric_pairs_are_their_own_mirror_image() -> None:
    losses, masses = np.array([0.0, 0.4, 1.1]), np.array([0.1, 0.3, 0.2])
    ours = symmetric_pair(losses, masses, 1e-9)
    assert ours.slack == 1e-9
    assert ours.upper.sum() == pytest.approx(0.6 + (masses * np.exp(-losses)).sum())
    assert all(ours.delta(at) == pytest.approx(ours.reversed().delta(at), rel=1e-12) for at in (0.0, 0.2, 0.7, 2.0))


def test_guard_bounds_every_wrong_law_of_that_size() -> None:
    """True masses that differ by the stated rounding, put where it hurts: taken from Q at the largest losses."""
    losses = np.linspace(-6.0, 12.0, 400)
    masses = np.exp(-0.5 * (losses - 1.0) ** 2)
    masses /= masses.sum()
    lower = masses * np.exp(-losses)
    for rounding in (1e-12, 1e-9, 1e-6):
        guard = guarded(losses, masses, rounding, 1e-15)
        worse = lower.copy()
        worse[-200:] = np.maximum(lower[-200:] - rounding / 200, 0.0)
        for at in (0.0, 1.0, 3.0, 5.0, 8.0, 11.0, 20.0):
            true = float(np.maximum(masses - math.exp(at) * worse, 0.0).sum())
            assert true <= guard.delta(at)
            bound = min(delta(losses, masses, e) + (1 + math.exp(e)) * rounding for e in np.linspace(0.0, 12.0, 200))
            assert guard.delta(at) <= max(delta(losses, masses, at), bound) + 2 * bound + 1e-14


def test_guard_without_rounding_keeps_the_atoms_and_infinite_losses_as_slack() -> None:
    guard = guarded(np.array([math.inf, 0.5, -0.5]), np.array([1e-7, 0.5, 0.4]), 0.0, 1e-8)
    assert guard.slack == pytest.approx(1.1e-7)
    assert guard.upper.tolist() == [0.5, 0.4]
    assert guarded(np.array([900.0]), np.array([1.0]), 1e-9, 0.0).epsilon(1e-6) == math.inf


def test_envelope_is_above_every_pair_in_both_directions() -> None:
    one = pair(np.array([2.0, 0.0]), np.array([0.04, 0.96]), 1e-12)
    two = pair(np.array([0.5, -0.3]), np.array([0.5, 0.5]), 3e-12)
    above = envelope([one, two])
    assert above.slack == 3e-12
    assert above.upper.sum() == pytest.approx(1.0, abs=1e-9)
    for at in np.linspace(0.0, 2.1, 50):
        largest = max(one.delta(at), two.delta(at))
        assert largest - 1e-11 <= above.delta(at) <= largest + 1e-4 * max(1e-4, largest)
        assert above.reversed().delta(at) == pytest.approx(above.delta(at), abs=1e-12)
    assert envelope([LossPair(np.ones(1), np.ones(1))]).epsilon(0.0) == 0.0
