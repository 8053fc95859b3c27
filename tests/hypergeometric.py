"""Neighbours and threshold of the sparse graph by exact counting: slow, in whole numbers, not by the code's formulas.

A member's k neighbours are a uniform k-subset of the others, so every probability is a number of subsets over
comb(n - 1, k). Counted here from the survivors' side where the code counts dropouts, and from the top down.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb, floor, log2, perm

SIGMA, ETA, MOST_NEIGHBOURS = 80, 30, 1023


def subsets_by_hits(population: int, marked: int, draws: int) -> list[int]:
    """How many `draws`-subsets hold 0, 1, ... `draws` marked ones."""
    return [comb(marked, hits) * comb(population - marked, draws - hits) for hits in range(draws + 1)]


def bits_to_spare(bad: int, all_of_them: int, times: int, bits: int) -> float:
    """log2 of what is allowed over what there is: >= 0 where times x bad / all <= 2^-bits. Exact up to the last log."""
    return float("inf") if bad == 0 else log2(all_of_them) - log2(bad * times << bits)


@dataclass
class Oracle:
    """The sizes of one roster. `nearest` is the smallest distance (in bits) of any decision from its bound so far."""

    size: int
    corrupt_fraction: Fraction
    dropout_fraction: Fraction
    sigma: int = SIGMA
    eta: int = ETA
    nearest: float = float("inf")

    def __post_init__(self) -> None:
        self.corrupt = floor(self.corrupt_fraction * self.size)
        self.dropped = floor(self.dropout_fraction * self.size)
        others = self.size - 1
        # comb() of each row once: the rest is multiplication.
        self._corrupt, self._honest = _row(self.corrupt), _row(others - self.corrupt)
        self._gone, self._alive = _row(self.dropped), _row(others - self.dropped)

    def most_corrupt(self, degree: int) -> int:
        """(b): the smallest t1 that is exceeded among nobody's neighbours but for 2^-(sigma + 1)."""
        everything, above = comb(self.size - 1, degree), 0
        for t1 in range(degree, -1, -1):
            more = above + self._corrupt[t1] * self._honest[degree - t1]  # with t1 - 1 as the limit
            spare = bits_to_spare(more, everything, self.size, self.sigma + 1)
            self._note(spare)
            if spare < 0:
                return t1
            above = more
        return 0

    def threshold(self, degree: int) -> int | None:
        """(b), (c), (d) and (a) for one degree: the smallest threshold, or None where one of them fails."""
        t1 = self.most_corrupt(degree)
        fitting = [t for t in range(1, degree + 1) if t > t1 and 2 * t - degree > t1]
        if not fitting:
            return None
        t = fitting[0]
        everything = comb(self.size - 1, degree)
        too_few = sum(self._alive[hits] * self._gone[degree - hits] for hits in range(t))
        pairs_of_runs = self.size * (self.size - degree - 1)  # twice their number
        bad = self.corrupt + self.dropped
        spare = (
            bits_to_spare(too_few, everything, self.size, self.eta),
            bits_to_spare(perm(bad, degree), 2 * perm(self.size, degree), pairs_of_runs, self.sigma + 1),
        )
        for one in spare:
            self._note(one)
        return t if min(spare) >= 0 else None

    def parameters(self) -> tuple[int, int] | None:
        """(degree, threshold) of the sparse graph with the fewest neighbours."""
        for degree in range(2, min(MOST_NEIGHBOURS, self.size - 2) + 1, 2):
            t = self.threshold(degree)
            if t is not None:
                return degree, t
        return None

    def _note(self, spare: float) -> None:
        self.nearest = min(self.nearest, abs(spare))


def _row(items: int) -> list[int]:
    """comb(items, 0), comb(items, 1), ... as far as neighbours go."""
    row = [1]
    for taken in range(MOST_NEIGHBOURS + 1):
        row.append(row[-1] * (items - taken) // (taken + 1))
    return row
