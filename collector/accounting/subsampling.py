"""Amplification by sampling: what a release loses to somebody who does not know whether a user was in it.

Two ways to sample. *Poisson*: each user is in with probability `rate`, on its own; relation *add or remove one user*.
*Fixed size*: so many users, all sets of that size alike; relation *replace one user's value*, which is ours.

Rules of this file: who was in must be secret. The collector sees the roster, and so does every member its neighbours,
so against them, and against whoever colludes with them, nothing here holds; it holds against OUTSIDERS alone, and never
on top of a local epsilon, which is against somebody who has the report in hand. Each draw must be fresh, and chosen by
no data. A pair mixes the atoms of its release, which dominate it, so the mixture dominates the sampled release.
What it does not do: sampling with replacement, or samples of which parts are announced.
Sources: Balle, Barthe & Gaboardi 2018 (Theorems 8, 9); Zhu, Dong & Wang 2022 (Theorem 11, Proposition 30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.composition import Composer
from collector.accounting.condense import of_profile, profile, symmetric_pair
from collector.accounting.pairs import LossPair

OUTSIDERS: Final = (
    "against outsiders who see the sums and never learn who was in a round; not against the collector, which sees the "
    "roster, nor against other members, and never on top of the local figure"
)
"""What an amplified epsilon holds under; it is never shown without."""


@dataclass(frozen=True, eq=False)
class Directed:
    """A sampled release with the user against one without (`remove`), and the other way round (`add`).

    Two neighbours differ in one direction in all rounds, so each direction is composed by itself.
    """

    remove: LossPair
    add: LossPair


def poisson(pair: LossPair, rate: float) -> Directed:
    """pair: the release with the user (P) against the one without (Q). Raises ValueError for a rate outside (0, 1]."""
    _check_rate(rate)
    mixed = _mixed(pair, rate)
    return Directed(LossPair(mixed, pair.lower, pair.slack), LossPair(pair.lower, mixed, pair.slack))


def poisson_epsilon(releases: Sequence[Directed], counts: Sequence[int], delta: float) -> float:
    """Of `counts[i]` releases i together: the larger of the two directions. Raises ValueError as `Composer` does."""
    directions = [[one.remove for one in releases], [one.add for one in releases]]
    return max(Composer(pairs).epsilon(counts, delta) for pairs in directions)


def fixed_size(pair: LossPair, size: int, users: int) -> LossPair:
    """`size` of `users` users. pair: of the release over a sample, for replacing a value; it holds in both directions.

    The smallest symmetric pair whose delta(eps'), eps' = ln(1 + rate (e^eps - 1)), is rate delta(eps), read off at
    16,384 eps. Raises ValueError unless 1 <= size <= users.
    """
    if not 1 <= size <= users:
        raise ValueError(f"a sample of {size} out of {users} users is none")
    if size == users:
        return pair
    rate = size / users
    certain = float(pair.upper[pair.lower == 0.0].sum())  # seen for sure: nothing that an envelope could hold
    finite = pair.lower > 0.0
    base = LossPair(pair.upper[finite], pair.lower[finite], min(1.0, pair.slack + certain))
    losses, deltas = profile(base)
    if losses[-1] == 0.0:  # nothing is to be seen but what is certain
        return symmetric_pair(np.zeros(1), np.full(1, 0.5), rate * base.slack)
    return of_profile(losses + np.log(rate + (1.0 - rate) * np.exp(-losses)), rate * deltas, rate * base.slack)


def _mixed(pair: LossPair, rate: float) -> NDArray[np.float64]:
    return (1.0 - rate) * pair.lower + rate * pair.upper


def _check_rate(rate: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"a sampling rate lies above 0 and not above 1, got {rate!r}")
