"""Many atoms made few, without an understated delta, and the guard against the rounding of a transform.

An atom is split between two losses around its own, its mass under both hypotheses preserved (connect the dots:
Doroshenko et al., PETS 2022): undoing the split is post-processing, so the result dominates, and its error falls
with the square of the step. Losses and masses under P describe an atom here: its mass under Q is P e^-loss.

What it does not do: it does not decide which pair is the worst one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.pairs import LossPair

BINS: Final = 1 << 14
"""Steps between the lowest and the highest loss that matter."""

EXACT: Final = 1 << 15
"""So many atoms are kept as they are."""

_MATTERS: Final = 1e-19
"""Atoms lighter than this share of the heaviest one do not stretch the grid; they are split over its ends."""

_LARGEST_LEVEL: Final = 600.0
"""e to this is still a float."""

_Floats = NDArray[np.float64]


def condensed(losses: _Floats, masses: _Floats, bins: int = BINS) -> tuple[_Floats, _Floats]:
    """(losses, masses under P) of at most bins + 3 atoms that dominate the given ones, shapes (m,) all.

    All losses must be finite. Atoms without mass are dropped; EXACT or fewer of them stay what they are.
    """
    occurs = masses > 0.0
    losses, masses = losses[occurs], masses[occurs]
    if len(masses) <= EXACT:
        return losses, masses
    core = losses[masses >= _MATTERS * masses.max()]
    low, high = float(core.min()), float(core.max())
    if not high > low:
        return _condensed_to(losses, masses, np.unique(losses))
    edges = np.concatenate(([losses.min()], np.linspace(low, high, bins + 1), [losses.max()]))
    below = np.clip(np.floor((losses - low) * (bins / (high - low))), -1, bins).astype(np.int64) + 1
    return edges, on_edges(losses, masses, edges, below)


def _condensed_to(losses: _Floats, masses: _Floats, edges: _Floats) -> tuple[_Floats, _Floats]:
    """The atoms on some of their own losses; where only one is heavy, that many are enough."""
    if len(edges) > EXACT:
        edges = edges[np.unique(np.linspace(0, len(edges) - 1, EXACT).astype(np.int64))]
    edges = np.append(edges, edges[-1])
    below = np.searchsorted(edges[:-1], losses, side="right") - 1
    return edges, on_edges(losses, masses, edges, below)


def on_edges(losses: _Floats, masses: _Floats, edges: _Floats, below: NDArray[np.int64]) -> _Floats:
    """Masses on `edges` of the atoms, each split between edges[below] and edges[below + 1], shape (len(edges),)."""
    gaps = np.diff(edges)
    scale = np.divide(1.0, np.expm1(-gaps), out=np.zeros_like(gaps), where=gaps > 0.0)
    upper = masses * np.clip(np.expm1(edges[below] - losses) * scale[below], 0.0, 1.0)
    lower = np.bincount(below, masses - upper, len(edges))
    return np.asarray(lower + np.bincount(below + 1, upper, len(edges)), dtype=np.float64)


def share_above(losses: _Floats, low: _Floats, high: _Floats) -> _Floats:
    """The share of an atom's mass under P that goes to `high`, so that its mass under Q stays: 1 where low = high."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.expm1(low - losses) / np.expm1(low - high)
    return np.where(high > low, np.clip(share, 0.0, 1.0), 1.0)


def pair(losses: _Floats, masses: _Floats, slack: float) -> LossPair:
    """The pair of these atoms, condensed."""
    losses, masses = condensed(losses, masses)
    return LossPair(masses, masses * np.exp(-losses), min(1.0, slack))


def symmetric_pair(losses: _Floats, masses: _Floats, slack: float) -> LossPair:
    """The pair of these atoms, whose losses are >= 0, and of their mirror images. Atoms of loss 0 come in halves."""
    losses, masses = condensed(losses, masses)
    mirrored = masses * np.exp(-losses)
    return LossPair(np.concatenate((masses, mirrored)), np.concatenate((mirrored, masses)), min(1.0, slack))


def guarded(losses: _Floats, masses: _Floats, rounding: float, slack: float) -> LossPair:
    """The pair of atoms whose masses, under P and under Q, may be wrong by `rounding` in all (L1 norm).

    Then delta(eps) <= computed delta(eps) + (1 + e^eps) rounding. So that a constant slack holds for every epsilon,
    losses above the level at which this is least are made infinite: above it, delta is what it is there.
    """
    finite = np.isfinite(losses)
    slack += float(masses[~finite].sum())
    losses, masses = condensed(losses[finite], masses[finite])
    if rounding > 0.0:
        levels = np.linspace(0.0, min(_LARGEST_LEVEL, max(0.0, float(losses.max(initial=0.0)))), 257)
        costs = [_delta(losses, masses, level) + (1.0 + math.exp(level)) * rounding for level in levels]
        level = float(levels[int(np.argmin(costs))])
        kept = masses * np.exp(np.minimum(level - losses, 0.0))
        slack += float((masses - kept).sum()) + (1.0 + math.exp(level)) * rounding
        losses, masses = np.minimum(losses, level), kept
    return LossPair(masses, masses * np.exp(-losses), min(1.0, slack))


def envelope(pairs: Sequence[LossPair], bins: int = BINS) -> LossPair:
    """A symmetric pair whose delta(eps), eps >= 0, is nowhere below any of the pairs', which must have finite losses.

    The largest delta is read off on a grid of e^eps and joined by chords, which lie above it: it is convex.
    """
    atoms = [(one.losses[one.upper > 0.0], one.upper[one.upper > 0.0]) for one in pairs]
    edges = np.linspace(0.0, max(float(losses.max(initial=0.0)) for losses, _ in atoms), bins + 1)
    slack = max(one.slack for one in pairs)
    if edges[-1] == 0.0:
        return symmetric_pair(np.zeros(1), np.full(1, 0.5), slack)
    return of_profile(edges, np.max([_deltas(losses, masses, edges) for losses, masses in atoms], axis=0), slack)


def profile(one: LossPair, bins: int = BINS) -> tuple[_Floats, _Floats]:
    """(losses from 0 to the largest, delta without the slack at each), of a pair of finite losses."""
    occurs = one.upper > 0.0
    edges = np.linspace(0.0, max(0.0, float(one.losses[occurs].max(initial=0.0))), bins + 1)
    return edges, _deltas(one.losses[occurs], one.upper[occurs], edges)


def of_profile(edges: _Floats, deltas: _Floats, slack: float) -> LossPair:
    """The symmetric pair whose delta runs straight, in e^eps, between these. edges: ascending from 0, at least two."""
    run = np.exp(edges[:-1]) * np.expm1(np.diff(edges))
    slopes = np.maximum(np.divide(-np.diff(deltas), run, out=np.zeros_like(run), where=run > 0.0), 0.0)
    slopes = np.append(np.maximum.accumulate(slopes[::-1])[::-1], 0.0)
    masses = np.concatenate(([0.0], (slopes[:-1] - slopes[1:]) * np.exp(edges[1:])))
    masses[0] = max(0.0, 1.0 - float((masses * (1.0 + np.exp(-edges))).sum())) / 2.0
    return symmetric_pair(edges, masses, slack)


def _deltas(losses: _Floats, masses: _Floats, edges: _Floats) -> _Floats:
    """delta at each of the edges, ascending."""
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    first = np.searchsorted(losses, edges, side="right")
    under_p, under_q = (np.append(np.cumsum(m[::-1])[::-1], 0.0)[first] for m in (masses, masses * np.exp(-losses)))
    return np.asarray(np.maximum(under_p - np.exp(edges) * under_q, 0.0))


def _delta(losses: _Floats, masses: _Floats, epsilon: float) -> float:
    return float(-(masses * np.expm1(np.minimum(epsilon - losses, 0.0))).sum())
