"""Epsilons of whole histories: one user's lifetime, exactly, and those of a fleet of millions.

A history is one count of reports per configuration (a metric under a plan version). Epsilon only grows with counts,
so counts rounded up to a geometric grid bound it, and a fleet has far fewer such histories than users.
What it does not do: it knows no users, windows or ledgers; rows come in and epsilons go out in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.composition import Composer
from collector.accounting.pairs import LossPair

RATIO: Final = 0.1
"""Counts of a fleet are rounded up by at most this share."""

FLEET_TOLERANCE: Final = 1e-4

_KEY_LIMIT: Final = 1 << 62

_TABLE_LIMIT: Final = 1 << 25
"""Up to so many possible histories a table finds the distinct ones; it is some ten times as fast as sorting users."""

Counts = NDArray[np.integer[Any]]
"""Shape (users, configurations): reports of each user under each configuration."""


def lifetime(pairs: Sequence[LossPair], counts: Sequence[int], delta: float) -> float:
    """The exact epsilon of one history: `counts[i]` reports whose pair is `pairs[i]`; at most 1e-5 (relative) high."""
    return Composer(pairs).epsilon(counts, delta)


def fleet(
    pairs: Sequence[LossPair],
    counts: Counts,
    delta: float,
    *,
    ratio: float = RATIO,
    tolerance: float = FLEET_TOLERANCE,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """An epsilon of every user, shape (users,), valid and as near as rounding counts up by `ratio` allows.

    progress: called with (histories done, histories in all) after each one.
    """
    _check_counts(counts, len(pairs))
    histories, of_user = distinct_histories(counts, ratio)
    composer = Composer(pairs, tolerance)
    epsilons = np.empty(len(histories))
    # In order of size, so that neighbours share their grids and the composer's memory of them suffices.
    for done, i in enumerate(np.argsort(histories.sum(axis=1), kind="stable").tolist(), start=1):
        epsilons[i] = composer.epsilon(histories[i].tolist(), delta)
        if progress is not None:
            progress(done, len(histories))
    return epsilons[of_user]


def distinct_histories(counts: Counts, ratio: float = RATIO) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(histories with counts rounded up, shape (h, configurations); the row of each user's among them, (users,))."""
    _check_counts(counts, counts.shape[1])
    grid = _geometric(int(counts.max(initial=0)), ratio)
    rank = np.searchsorted(grid, np.arange(int(grid[-1]) + 1))
    key, keys = np.zeros(len(counts), dtype=np.int64), 1
    for column in counts.T:
        if keys > _KEY_LIMIT // len(grid):
            values, key = np.unique(key, return_inverse=True)
            keys = len(values)
        key, keys = key * len(grid) + rank[column], keys * len(grid)
    of_user, first = _numbered(key, keys)
    return grid[rank[counts[first]]], of_user


def _numbered(key: NDArray[np.int64], keys: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(the number of each key among the distinct ones, a place of each distinct one); keys are below `keys`."""
    if keys > _TABLE_LIMIT:
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        return number.astype(np.int64), first.astype(np.int64)
    occurs = np.zeros(keys, dtype=np.bool_)
    occurs[key] = True
    number = (np.cumsum(occurs, dtype=np.int64) - 1)[key]
    first = np.empty(np.count_nonzero(occurs), dtype=np.int64)
    first[number] = np.arange(len(key))
    return number, first


def _geometric(highest: int, ratio: float) -> NDArray[np.int64]:
    """0, 1, and then each the last times 1 + ratio, rounded down but at least one more; up to `highest` or above."""
    if not 0.0 <= ratio < math.inf:
        raise ValueError(f"the ratio of the grid of counts must be finite and not negative, got {ratio!r}")
    grid = [0]
    while grid[-1] < highest:
        grid.append(max(grid[-1] + 1, math.floor(grid[-1] * (1.0 + ratio))))
    return np.array(grid, dtype=np.int64)


def _check_counts(counts: Counts, configurations: int) -> None:
    if counts.ndim != 2 or counts.shape[1] != configurations or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(
            f"counts must be whole numbers of shape (users, {configurations}), got {counts.dtype} {counts.shape}"
        )
    if counts.size and int(counts.min()) < 0:
        raise ValueError(f"a count of reports cannot be negative, got {counts.min()}")
