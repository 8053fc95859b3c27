"""Few enough different sums: n_h rounded down to a grid, which only raises an epsilon, and groups in a fixed order.

Rules of this file: a fixed order, so that the order of a ledger changes no digit; never up; and more releases never
make a grid finer, so that more releases never cost less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

from collector.accounting.exposure import Exposed

MOST_PAIRS: Final = 24
"""So many different (loss, n_h) are composed as they are; beyond, n_h is rounded down to a grid."""

GRIDS: Final = (16, 8, 4, 2, 1)
"""Steps per octave of n_h, finest first. Each grid holds the next, so rounding further never raises n_h."""


def merged(counts: Mapping[Exposed, int]) -> dict[Exposed, int]:
    """The same releases in a fixed order, n_h rounded down by as much as leaves MOST_PAIRS different ones at most."""
    grid = grid_for(counts)
    found: Counter[Exposed] = Counter()
    for (loss, n_h), count in counts.items():
        found[loss, rounded_down(n_h, grid)] += count
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def grid_for(ones: Collection[Exposed]) -> int | None:
    """The finest grid on which few enough differ, or the coarsest. More releases never make it finer."""
    for grid in (None, *GRIDS):
        if len({(loss, rounded_down(n_h, grid)) for loss, n_h in ones}) <= MOST_PAIRS:
            return grid
    return GRIDS[-1]


def rounded_down(n_h: int, grid: int | None) -> int:
    """The largest number on the grid, floor(2^(j / grid)) for whole j, that is not above n_h >= 1. None: n_h."""
    if grid is None:
        return n_h
    steps = math.floor(math.log2(n_h) * grid) + 1
    while (floor := _on_grid(steps, grid)) > n_h:
        steps -= 1
    return floor


def _on_grid(steps: int, grid: int) -> int:
    """floor(2^(steps / grid)), exact: the finer grids hold the coarser ones."""
    power = 1 << (16 * steps // grid)
    return math.isqrt(math.isqrt(math.isqrt(math.isqrt(power))))


def order(one: Exposed) -> tuple[str, Decimal, tuple[tuple[str, int], ...], int]:
    loss, n_h = one
    return loss.mechanism, loss.epsilon, loss.parameters, n_h
