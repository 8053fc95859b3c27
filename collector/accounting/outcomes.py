"""The atoms of a structured privacy blanket: every outcome where they are few, else like ones merged.

Notation as in `structured.py`: M reports, c of them in exactly one of H_x and H_x', b in both, D = h0 - h1 = 2 a - c
with a ~ Bin(c, 1/2). Given D, an outcome's loss ln((W + (E - 1) D / 2) / (W - (E - 1) D / 2)) depends on its weight
W = M + (E - 1)(c / 2 + b) alone, and falls with it.

Rules of this file: atoms are merged only by splitting them to losses around their own, fewer blankets are assumed,
never more, and no mass is added. No difference of large numbers forms a mass: E may be e^40.
What it does not do: the slack for what its windows leave out is the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.binomial import LOG_OUTSIDE, OUTSIDE, Window, binomial, binomials, lower_ends
from collector.accounting.condense import share_above

_FEW: Final = 3_000_000
_FEW_LAWS: Final = 3_000
"""Up to so many outcomes, of so many laws, are enumerated as they are."""

_MOST_BLANKET_COUNTS: Final = 512
_OVERLAPPING_COUNTS: Final = 300_000
_READINGS: Final = 14_000_000
_MERGED_ATOMS: Final = 1 << 17
_FEWEST_CHUNKS: Final = 48
_MOST_CHUNKS: Final = 512
_ROWS: Final = 256

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blanket:
    """`either`: a draw lies in exactly one of H_x, H_x'; `both`: in both, given that it is not in exactly one."""

    gamma: float
    either: float
    both: float
    epsilon: float
    others: Window

    @property
    def gain(self) -> float:
        """E - 1."""
        return math.expm1(self.epsilon)

    def few(self) -> bool:
        """Whether the outcomes (M, c, b, D >= 0) are few enough to be enumerated."""
        ones = self._ones(self._most())
        laws = len(self.others.masses) * (len(ones.masses) if self.both > 0.0 else 1)
        rest = len(binomial(self._most() - ones.first, self.both).masses)
        each = (1 if self.both > 0.0 else len(ones.masses)) * (_largest_difference(ones.last) + 1) * rest
        return laws <= _FEW_LAWS and laws * each <= _FEW

    def enumerated(self) -> tuple[_Floats, _Floats]:
        """(losses, masses under P) of every outcome with D >= 0, those of D = 0 in halves."""
        parts = list(self._overlapping_outcomes() if self.both > 0.0 else self._disjoint_outcomes())
        return np.concatenate([losses.ravel() for losses, _ in parts]), np.concatenate([m.ravel() for _, m in parts])

    def _disjoint_outcomes(self) -> Iterator[tuple[_Floats, _Floats]]:
        """For each M, over (c, D)."""
        first, last = self._ones(self._least()).first, self._ones(self._most()).last
        laws = _difference_laws(first, last)
        d = np.arange(laws.shape[1])
        for blankets, mass in self._blankets(self.others):
            ones = self._ones(blankets)
            chances = self.gamma * mass / blankets * ones.masses[:, None] * laws[ones.values - first]
            under_q = blankets + self.gain * np.maximum(ones.values[:, None] - d, 0) / 2.0
            yield np.log1p(self.gain * d / under_q), chances * (under_q + self.gain * d)

    def _overlapping_outcomes(self) -> Iterator[tuple[_Floats, _Floats]]:
        """For each M and c, over (b, D)."""
        for blankets, mass in self._blankets(self.others):
            ones = self._ones(blankets)
            for c, chance in zip(ones.values.tolist(), ones.masses, strict=True):
                b, (law,) = binomial(blankets - c, self.both), _difference_laws(c, c)
                d = np.flatnonzero(law)
                under_q = blankets + self.gain * (b.values[:, None] + (c - d) / 2.0)
                chances = self.gamma * mass * chance / blankets * b.masses[:, None] * law[d]
                yield np.log1p(self.gain * d / under_q), chances * (under_q + self.gain * d)

    def merged(self) -> tuple[_Floats, _Floats]:
        """As `enumerated`, outcomes of the same D and of like weights W = M + (E - 1)(c / 2 + b) merged.

        Given D the loss falls with W, so what W's chunk holds is split between the losses at its two ends.
        """
        first, last = self._ones(self._least()).first, self._ones(self._most()).last
        differences = _largest_difference(last)
        edges = self._weight_edges(self._chunk_count(differences, last - first + 1), first, last)
        plain, weighed = self._chunks(edges, first, last)
        return self._split(edges, *_over_differences(plain, weighed, first, differences))

    def _split(self, edges: _Floats, plain: _Floats, ones: _Floats, weighed: _Floats) -> tuple[_Floats, _Floats]:
        """plain, ones, weighed, shape (chunks, D): sums of U / M, of h1 - b times that, of M + (E - 1) b times that."""
        d = np.arange(plain.shape[1])
        under_q = weighed + self.gain * ones
        under_p = under_q + self.gain * d * plain
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.where(under_q > 0.0, np.log1p(self.gain * d * plain / under_q), 0.0)
        high, low = self._loss(edges[:-1, None], d), self._loss(edges[1:, None], d)
        above = self.gamma * under_p * share_above(losses, low, high)
        return np.concatenate((high.ravel(), low.ravel())), np.concatenate(
            (above.ravel(), (self.gamma * under_p - above).ravel())
        )

    def _loss(self, weight: _Floats, d: NDArray[np.int64]) -> _Floats:
        """ln((W + (E - 1) D / 2) / (W - (E - 1) D / 2)), never above epsilon, which bounds every outcome's loss."""
        under_q = weight - self.gain * d / 2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log1p(self.gain * d / under_q)
        return np.where(under_q > 0.0, np.minimum(losses, self.epsilon), self.epsilon)

    def _chunk_count(self, differences: int, ones: int) -> int:
        """As many chunks of W as are quickly computed."""
        wanted = _MERGED_ATOMS // (differences + 1)
        if self.both > 0.0:
            counts = len(self.others.masses)
            wanted = min(wanted, _READINGS // ((ones + counts) * min(counts, self._count_limit(ones))))
        return max(_FEWEST_CHUNKS, min(_MOST_CHUNKS, wanted))

    def _count_limit(self, ones: int) -> int:
        """How many numbers of blankets are told apart where the two sets overlap."""
        return max(16, _OVERLAPPING_COUNTS // (ones + len(self.others.masses)))

    def _weight_edges(self, chunks: int, first: int, last: int) -> _Floats:
        """Chunks of W, finest within 7 deviations of its mean; the outermost edges hold every W of the windows."""
        highest = binomial(max(0, self._most() - first), self.both)
        lowest = binomial(max(0, self._least() - last), self.both)
        least = (self._least() + self.gain * (first / 2.0 + lowest.first)) * (1.0 - 1e-12)
        most = (self._most() + self.gain * (last / 2.0 + highest.last + 1)) * (1.0 + 1e-12)
        mean, deviation = self._weight_moments()
        low, high = max(mean - 7.0 * deviation, least), min(mean + 7.0 * deviation, most)
        return np.unique(np.concatenate(([least], np.geomspace(low, high, chunks - 1), [most])))

    def _weight_moments(self) -> tuple[float, float]:
        """Mean and deviation of W: a sum, over M reports, of 1 + (E - 1) (half if in one set, whole if in both)."""
        both = (1.0 - self.either) * self.both
        mean = 1.0 + self.gain * (self.either / 2.0 + both)
        variance = self.gain**2 * (self.either / 4.0 + both - (self.either / 2.0 + both) ** 2)
        counts = self.others.values + 1.0
        blankets = float(counts @ self.others.masses)
        spread = float((counts - blankets) ** 2 @ self.others.masses)
        return blankets * mean, math.sqrt(max(0.0, blankets * variance + spread * mean**2))

    def _chunks(self, edges: _Floats, first: int, last: int) -> tuple[_Floats, _Floats]:
        """Sums of mass / M and of (M + (E - 1) b) mass / M by chunk of W and by c, shape (chunks, c), of the draws."""
        plain = np.zeros((len(edges) - 1, last - first + 1))
        weighed = np.zeros_like(plain)
        if self.both == 0.0:
            self._add_without_overlap(plain, weighed, edges, first)
        else:
            self._add_with_overlap(plain, weighed, edges, first)
        return plain, weighed

    def _add_without_overlap(self, plain: _Floats, weighed: _Floats, edges: _Floats, first: int) -> None:
        for blankets, mass in self._blankets(lower_ends(self.others, _MOST_BLANKET_COUNTS)):
            ones = self._ones(blankets)
            chunk = np.searchsorted(edges, blankets + self.gain * ones.values / 2.0, side="right") - 1
            plain[chunk, ones.values - first] += mass / blankets * ones.masses
            weighed[chunk, ones.values - first] += mass * ones.masses

    def _add_with_overlap(self, plain: _Floats, weighed: _Floats, edges: _Floats, first: int) -> None:
        """Grouped by N = M - c, so that each law of b ~ Bin(N, both) is made once and read off at all chunks' edges."""
        pairs = list(self._blankets(lower_ends(self.others, self._count_limit(plain.shape[1]))))
        blankets = np.array([count for count, _ in pairs])
        masses = np.zeros((len(pairs), plain.shape[1]))
        for i, (count, mass) in enumerate(pairs):
            ones = self._ones(count)
            kept = np.where(mass * ones.masses * masses.size > OUTSIDE, mass * ones.masses, 0.0)
            masses[i, ones.first - first : ones.first - first + len(kept)] = kept / count
        least, most = max(0, int(blankets[0]) - first - plain.shape[1] + 1), int(blankets[-1]) - first
        thresholds = edges / self.gain
        both = np.zeros((plain.shape[1], plain.shape[0]), dtype=np.complex128)
        for rest, b in enumerate(binomials(least, most, self.both), start=least):
            cells = blankets - rest - first
            used = np.flatnonzero((cells >= 0) & (cells < plain.shape[1]))
            used = used[masses[used, cells[used]] > 0.0]
            if len(used):
                m, cells = blankets[used], cells[used]
                weights = thresholds - ((m - rest) / 2.0 + m / self.gain)[:, None]
                found = _read_off(weights, b, self.gain) * masses[used, cells][:, None]
                found.imag += m[:, None] * found.real
                both[cells] += found
        plain += both.real.T
        weighed += both.imag.T

    def _blankets(self, others: Window) -> Iterator[tuple[int, float]]:
        """(M, its probability): the victim's report counts as one of the M."""
        return ((int(count) + 1, float(mass)) for count, mass in zip(others.values, others.masses, strict=True) if mass)

    def _ones(self, blankets: int) -> Window:
        """c: how many of the M reports lie in exactly one of H_x and H_x'."""
        return binomial(blankets, self.either)

    def _least(self) -> int:
        return self.others.first + 1

    def _most(self) -> int:
        return self.others.last + 1


def _largest_difference(c: int) -> int:
    """The largest D that matters given c (Hoeffding)."""
    return min(c, math.ceil(math.sqrt(2.0 * c * LOG_OUTSIDE)))


def _difference_laws(first: int, last: int) -> _Floats:
    """The laws of D >= 0 given c = first ... last, shape (c, D), the masses at D = 0 halved.

    D is a symmetric random walk: row c + 1 is the mean of row c moved up and moved down.
    """
    laws = np.empty((last - first + 1, _largest_difference(last) + 1))
    for law, row in zip(laws, _walk(first, laws.shape[1]), strict=False):
        law[:] = row
    return laws


def _walk(first: int, length: int) -> Iterator[_Floats]:
    """The rows c = first, first + 1, ... of `_difference_laws`, without end."""
    h = binomial(first, 0.5)
    d = 2 * h.values - first
    inside = (d >= 0) & (d < length)
    row = np.zeros(length + 1)
    row[d[inside]] = h.masses[inside]
    while True:
        law = row[:-1].copy()
        row[1:-1] = (row[:-2] + row[2:]) / 2.0
        row[0] = law[1] if length > 1 else 0.0
        law[0] /= 2.0
        yield law


def _over_differences(plain: _Floats, weighed: _Floats, first: int, largest: int) -> tuple[_Floats, _Floats, _Floats]:
    """(sum over c of plain, of plain (c - D) / 2, of weighed), each times the law of D given c: shape (chunks, D)."""
    c = np.arange(first, first + plain.shape[1])
    rows = np.concatenate((plain, plain * c, weighed))
    sums = np.zeros((len(rows), largest + 1))
    walk = _walk(first, largest + 1)
    for block in range(0, len(c), _ROWS):
        laws = np.array(list(islice(walk, min(_ROWS, len(c) - block))))
        for start in (0, 1):  # D has the parity of c: the other half of each law is zeros
            parity = (first + block + start) % 2
            part = rows[:, block + start : block + len(laws) : 2]
            sums[:, parity::2] += part @ np.ascontiguousarray(laws[start::2, parity::2])
    counted, ones, summed = np.split(sums, 3)
    return counted, np.maximum(ones - np.arange(largest + 1) * counted, 0.0) / 2.0, summed


def _read_off(edges: _Floats, b: Window, gain: float) -> NDArray[np.complex128]:
    """The mass of b between neighbouring edges, shape (M, chunks), and (E - 1) b times it as the imaginary part.

    edges: shape (M, chunks + 1). Both in one complex number, so that they are looked up once.
    """
    below = np.zeros(len(b.masses) + 1, dtype=np.complex128)
    np.cumsum(b.masses + 1j * gain * (b.masses * b.values), out=below[1:])
    starts = np.minimum(np.maximum(np.ceil(edges) - b.first, 0.0), float(len(b.masses))).astype(np.intp)
    read = below[starts]
    return np.asarray(read[:, 1:] - read[:, :-1])
