"""Blankets of reports that are integers, from their table: the figures, direct sums, the laws of a central bound."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest

from collector.accounting import local, table
from collector.accounting.blanket import one_bit
from collector.accounting.clones import clones
from collector.accounting.pairs import LossPair
from collector.accounting.structured import structured
from collector.accounting.table import from_table

DELTA = 1e-6


def piecewise(levels: int, epsilon: float) -> np.ndarray:
    """Input j has a window of `size` cells from j on, e^epsilon likelier than the `levels` other cells."""
    size = max(1, round(levels / math.exp(epsilon / 2)))
    rows = np.ones((levels + 1, levels + size))
    for j in range(levels + 1):
        rows[j, j : j + size] = math.exp(epsilon)
    return rows / rows.sum(axis=1, keepdims=True)


def hybrid(levels: int, epsilon: float) -> np.ndarray:
    """With probability 1 - e^(-epsilon/2) piecewise, else one of two cells, placed so that the mean is the input's."""
    rows, outputs = piecewise(levels, epsilon), levels + max(1, round(levels / math.exp(epsilon / 2)))
    middle = (outputs - 1) / 2
    reach = math.tanh(epsilon / 2)
    end = round(middle + (float(rows[-1] @ np.arange(outputs)) - middle) / reach)
    two = np.zeros_like(rows)
    two[:, end] = 0.5 + reach * np.linspace(-0.5, 0.5, levels + 1)
    two[:, outputs - 1 - end] = 1.0 - two[:, end]
    share = -math.expm1(-epsilon / 2)
    return share * rows + (1 - share) * two


def direct_delta(rows: np.ndarray, x: int, other: int, n_h: int, at: float) -> float:
    """The mixture over M, term by term."""
    omega = rows.min(axis=0)
    gamma, blanket, total = omega.sum(), np.ones(1), 0.0
    for draws in range(n_h):
        upper, lower = np.convolve(blanket, rows[x]), np.convolve(blanket, rows[other])
        chance = math.comb(n_h - 1, draws) * gamma**draws * (1 - gamma) ** (n_h - 1 - draws)
        total += chance * float(np.maximum(upper - math.exp(at) * lower, 0.0).sum())
        blanket = np.convolve(blanket, omega / gamma)
    return total


def test_reference_figures() -> None:
    assert from_table(piecewise(64, 1.0), 1000).epsilon(DELTA) == pytest.approx(0.1272, abs=2e-4)
    assert from_table(hybrid(64, 1.0), 1000).epsilon(DELTA) == pytest.approx(0.1391, abs=2e-4)
    assert hybrid(64, 1.0).min(axis=0).sum() == pytest.approx(0.56489, abs=3e-3)


@pytest.mark.slow
def test_reference_figures_at_the_shipped_number_of_levels() -> None:
    assert from_table(piecewise(1000, 1.0), 1000).epsilon(DELTA) == pytest.approx(0.1272, abs=1e-4)
    assert from_table(hybrid(1000, 1.0), 1000).epsilon(DELTA) == pytest.approx(0.1391, abs=2e-4)


@pytest.mark.parametrize("n_h", [1, 2, 6, 14])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_worst_of_all_pairs_of_inputs(epsilon: float, n_h: int) -> None:
    for rows in (piecewise(6, epsilon), hybrid(6, epsilon)):
        pair = from_table(rows, n_h)
        for at in np.linspace(0.0, epsilon, 5)[:-1]:
            worst = max(direct_delta(rows, x, y, n_h, at) for x, y in permutations(range(len(rows)), 2))
            assert worst * (1 - 1e-9) - 1e-12 <= pair.delta(at) <= worst * (1 + 1e-3) + 1e-9


def test_the_ends_are_the_worst_pair() -> None:
    """All pairs of inputs of a larger table, compared with few and with many draws from the blanket."""
    for make in (piecewise, hybrid):
        for epsilon in (0.5, 1.0, 3.0):
            compared = table._Table.of(make(16, epsilon))
            pairs = list(permutations(range(17), 2))
            for draws in (2, 24, 150):
                curves = compared.curves(pairs, draws)
                assert (curves[pairs.index((0, 16))] >= curves.max(axis=0) * (1 - 1e-9) - 1e-11).all()


def test_inputs_none_of_which_is_the_worst_everywhere() -> None:
    """Three rows, no mirror image: one pair leads at small epsilons, another at large ones; both are dominated."""
    rows = np.array([[0.01, 0.49, 0.50], [0.03, 0.48, 0.49], [0.01, 0.30, 0.69]])
    assert len(table._worst_pairs(table._Table.of(rows), 3)) > 1
    for n_h in (1, 3, 9):
        pair = from_table(rows, n_h)
        for at in np.linspace(0.0, 1.3, 14):
            worst = max(direct_delta(rows, x, y, n_h, at) for x, y in permutations(range(3), 2))
            assert pair.delta(at) >= worst * (1 - 1e-7) - 1e-9
            assert pair.reversed().delta(at) == pytest.approx(pair.delta(at), rel=1e-9, abs=1e-12)
        assert pair.upper.sum() == pytest.approx(1.0, abs=1e-6)


def test_transforms_meet_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = piecewise(12, 1.0)
    directly = from_table(rows, 60)
    monkeypatch.setattr(table, "_DIRECT_CELLS", 0)
    transformed = from_table(rows, 60)
    assert directly.slack < 1e-17 < transformed.slack < 1e-11
    for at in np.linspace(0.0, 0.8, 9):
        assert transformed.delta(at) == pytest.approx(directly.delta(at), rel=1e-6, abs=1e-11)


def test_transformed_laws_are_the_convolved_ones() -> None:
    """Cell by cell, folded to the transform's cells, with the cell of the sum kept where it belongs."""
    compared = table._Table.of(piecewise(6, 0.7))
    window = table.Window(17, np.ones(1), 0.0)
    inputs, size = [6, 0, 2], 1 << 9
    ((_, direct),) = compared._direct_sums(window, inputs)
    ((_, transformed),) = compared._fft_sums(window, inputs, size)
    ((_, mirrored),) = compared._fft_sums(window, inputs[:2], size)
    assert all(np.allclose(a, b, rtol=0.0, atol=1e-15) for a, b in zip(mirrored.laws, transformed.laws, strict=False))
    for exact, ours in zip(direct.laws, transformed.laws, strict=True):
        shift = math.floor(17 * compared.mean)
        assert np.roll(ours, shift)[: len(exact)] == pytest.approx(exact, abs=1e-15)


def test_fewer_blankets_dominate_and_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = piecewise(20, 1.0)
    exact = from_table(rows, 800)
    monkeypatch.setattr(table, "_DIRECT_CELLS", 0)
    monkeypatch.setattr(table, "_ALL_CELLS", 0)
    fewer = from_table(rows, 800)
    for at in np.linspace(0.0, 0.3, 7):
        assert fewer.delta(at) >= exact.delta(at) * (1 - 1e-6) - 1e-12
    assert fewer.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.1


def test_one_bit_is_binary_randomised_response() -> None:
    keep = 1 / (1 + math.exp(-1.0))
    rows = np.array([[keep, 1 - keep], [1 - keep, keep]])
    for n_h in (1, 30, 400):
        ours, theirs = from_table(rows, n_h), one_bit(1.0, n_h)
        assert all(
            ours.delta(at) == pytest.approx(theirs.delta(at), rel=1e-5, abs=1e-12) for at in (0.0, 0.1, 0.5, 0.9)
        )


def test_between_what_sums_and_what_histograms_show() -> None:
    """The sum of a piecewise report hides better than its histogram would, whose blanket has a closed form."""
    histogram = structured(math.exp(-0.5), 1 / (1 + math.exp(0.5)), 0.0, 1.0, 500)
    ours, fallback = from_table(piecewise(61, 1.0), 500), clones(1.0, 500)
    for at in (0.0, 0.05, 0.1, 0.2):
        assert ours.delta(at) < histogram.delta(at) < fallback.delta(at)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 2.0, 40.0])
def test_one_contributor_has_the_local_epsilon(epsilon: float) -> None:
    for rows in (piecewise(10, epsilon), hybrid(10, epsilon)):
        pair = from_table(rows, 1)
        assert LossPair(pair.upper, pair.lower).epsilon(0.0) == pytest.approx(epsilon, rel=1e-3)
        for at in np.linspace(0.0, epsilon, 4)[:-1]:
            assert pair.delta(at) <= local.pure(epsilon).delta(at) * (1 + 1e-9) + 1e-15


def test_monotone_and_never_above_local() -> None:
    epsilons = (0.05, 0.5, 1.0, 4.0)
    for make in (piecewise, hybrid):
        grid = np.array([[from_table(make(12, e), n).epsilon(DELTA) for n in (1, 3, 40, 600)] for e in epsilons])
        assert (np.diff(grid, axis=1) < 0.0).all()
        assert (np.diff(grid, axis=0) > 0.0).all()
        assert (grid[:, 0] <= np.array(epsilons) * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("epsilon", "n_h"), [*product((1e-6, 40.0), (1, 2, 50, 3000)), *product((1e-3, 1.0, 12.0), (2, 50))]
)
def test_no_setting_overflows(epsilon: float, n_h: int) -> None:
    pair = from_table(piecewise(40, epsilon), n_h)
    assert 0.0 <= pair.epsilon(DELTA) <= epsilon
    assert pair.slack <= 1e-9
    assert pair.upper.sum() + pair.slack == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 40.0])
def test_a_million_contributors(epsilon: float) -> None:
    assert 0.0 <= from_table(piecewise(1000, epsilon), 1_000_000).epsilon(DELTA) <= epsilon


@pytest.mark.parametrize(
    ("rows", "n_h"),
    [
        (np.full((2, 2), 0.6), 3),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), 3),
        (np.array([[1.0, 0.0], [0.5, 0.5]]), 3),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), 3),
        (np.full(4, 0.25), 3),
        (np.full((2, 2), 0.5), 0),
    ],
)
def test_refused(rows: np.ndarray, n_h: int) -> None:
    with pytest.raises(ValueError, match=r"every row|no pure mechanism|at least 1"):
        from_table(rows, n_h)
