"""The privacy blanket of any mechanism whose report is one integer, from its shipped table (piecewise, hybrid).

A report is, with probability gamma = sum over y of min_x R_x(y), a draw from omega / gamma, omega(y) = min_x R_x(y),
whatever the value (Balle et al. 2019). Which of the others' reports those are, and what the rest of them are, is
revealed; the victim's hides in a sum with M - 1 ~ Bin(n_h - 1, gamma) draws. Only the sum is seen, not the histogram:
the pair is R_x * omega^(M-1) against R_x' * omega^(M-1), mixed over M, which is known.

The pair given dominates those of all (x, x') that were compared: all of a table of MOST_INPUTS rows or fewer, else
those of so many evenly spread ones, both ends among them. For a window that slides over an even background (piecewise)
the two ends are the worst of the pairs with one end, by monotone likelihood ratios. That no pair of inner inputs is
worse is not derived; where inner rows are given they are compared too, at a few epsilons and numbers of draws;
the tests compare all pairs of small tables: none was worse.

Rules of this file: fewer blankets are assumed, never more; an FFT's rounding enters as (1 + e^eps) times it.
What it does not do: it takes the rows for the law of what is sent; it does not check any sampler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.binomial import OUTSIDE, Window, binomial, lower_ends
from collector.accounting.condense import condensed, envelope, guarded
from collector.accounting.noise_sum import MOST_SLACK, fast_size, largest_count, power
from collector.accounting.pairs import LossPair

MOST_INPUTS: Final = 9

_FFT_CELLS: Final = 3 << 20
_DIRECT_CELLS: Final = 1 << 15
_ALL_CELLS: Final = 1 << 21
_FEWEST_BLANKETS: Final = 3
_LOG_WRAPPED: Final = 32.0
_DIRECT_PRODUCTS: Final = 1 << 28
_MOST_ATOMS: Final = 1 << 20
_COMPARED_DRAWS: Final = 24
"""At most so many blankets hide the victim while the pairs of inputs are compared, at _COMPARED epsilons."""

_COMPARED: Final = 12
_EQUAL: Final = 1e-11
_VANISHED: Final = 1e6
"""Stands for minus the logarithm of 0, so that no draws at all keep their transform of 1."""

_Floats = NDArray[np.float64]


def from_table(rows: _Floats, n_h: int) -> LossPair:
    """rows, shape (inputs, outputs): the probability of each output, an integer that is added up, for each input.

    n_h counts the victim. Raises ValueError for rows that are no distributions, outputs that only some inputs have
    (no pure epsilon), or n_h < 1.
    """
    _check(rows, n_h)
    table = _Table.of(rows)
    count = largest_count(lambda n: table.cells(table.most_draws(n)) <= _FFT_CELLS, n_h)
    bound = _bound(table, count)
    # At large epsilons an FFT's rounding may hide all there is to see; one report alone is convolved directly.
    return bound if bound.slack <= MOST_SLACK else _bound(table, 1)


def _bound(table: _Table, count: int) -> LossPair:
    kept = _worst_pairs(table, count)
    pairs = [table.pair(x, other, count) for x, other in kept]
    if table.mirrored and [sum(both) for both in kept] == [len(table.rows) - 1]:
        return pairs[0]  # its own mirror image, so it holds in both directions
    return envelope(pairs)


def _check(rows: _Floats, n_h: int) -> None:
    if rows.ndim != 2 or not np.all(rows >= 0.0) or not np.allclose(rows.sum(axis=1), 1.0, rtol=0.0, atol=1e-9):
        raise ValueError("every row of a table must be a distribution: non-negative, adding up to 1")
    if np.any((rows > 0.0).any(axis=0) != (rows > 0.0).all(axis=0)):
        raise ValueError("an output that only some inputs have makes the loss infinite: this is no pure mechanism")
    if n_h < 1:
        raise ValueError(f"n_h counts the victim, so it is at least 1, got {n_h}")


def _worst_pairs(table: _Table, n_h: int) -> list[tuple[int, int]]:
    """Ordered pairs of inputs that together are nowhere below any pair compared. Of mirror images one is compared."""
    last = len(table.rows) - 1
    inputs = [int(x) for x in np.unique(np.linspace(0, last, min(last + 1, MOST_INPUTS)).round())]
    pairs = [(x, y) for x, y in permutations(inputs, 2) if not (table.mirrored and (last - x, last - y) > (x, y))]
    pairs = sorted(pairs, key=lambda both: -abs(both[0] - both[1])) or [(0, 0)]
    curves = table.curves(pairs, min(_COMPARED_DRAWS, round((n_h - 1) * table.gamma)))
    totals = curves.sum(axis=1)
    kept = [int((totals >= totals.max() - _EQUAL).argmax())]
    while ((missing := curves.max(axis=0) - curves[kept].max(axis=0)) > _EQUAL).any():
        kept.append(int(curves[:, int(missing.argmax())].argmax()))
    return [pairs[i] for i in kept]


@dataclass(frozen=True, eq=False)
class _Table:
    """`draw`, shape (outputs,): the blanket's law, of mean `mean`; `largest`: the pure epsilon.

    log_moments, shape (2, tilts): of the draw's distance from its mean, for each of `tilts` upwards and downwards.
    """

    rows: _Floats
    gamma: float
    draw: _Floats
    mean: float
    largest: float
    tilts: _Floats
    log_moments: _Floats

    @classmethod
    def of(cls, rows: _Floats) -> _Table:
        occurs = np.flatnonzero(rows.any(axis=0))
        rows = rows[:, occurs[0] : occurs[-1] + 1]
        omega = rows.min(axis=0)
        draw = omega / omega.sum()
        y = np.arange(len(draw))
        even = np.allclose(draw, draw[::-1], rtol=1e-12, atol=0.0)
        mean = y[-1] / 2.0 if even else float(y @ draw)
        tilts = np.geomspace(1e-6, 30.0, 300) / len(draw)
        moments = np.array([[float(np.exp(sign * tilt * (y - mean)) @ draw) for tilt in tilts] for sign in (1, -1)])
        used = omega > 0.0
        largest = float(np.log(rows.max(axis=0)[used] / omega[used]).max())
        return cls(rows, min(1.0, float(omega.sum())), draw, mean, largest, tilts, np.log(moments))

    @cached_property
    def mirrored(self) -> bool:
        """Whether turning inputs and outputs round changes nothing."""
        return bool(np.allclose(self.rows, self.rows[::-1, ::-1], rtol=1e-12, atol=0.0))

    def most_draws(self, n_h: int) -> int:
        """The most blankets there are with n_h contributors, but for what the windows leave out."""
        others = binomial(n_h - 1, self.gamma)
        return others.last

    def cells(self, draws: int) -> int:
        """How many cells hold the sum of a report and so many draws, but for e^-32 at either end (Chernoff)."""
        everything = (draws + 1) * (len(self.draw) - 1) + 1
        reach = float(((draws * self.log_moments + _LOG_WRAPPED) / self.tilts).min(axis=1).sum())
        return fast_size(min(everything, math.ceil(reach) + 2 * len(self.draw)))

    def pair(self, x: int, other: int, n_h: int) -> LossPair:
        """Inputs x against `other`, in this direction."""
        others = binomial(n_h - 1, self.gamma)
        slack, rounding, atoms = others.outside + 4.0 * OUTSIDE, 0.0, _Atoms()
        half = False
        for mass, sums in self._sums(others, (x, other)):
            upper, lower = mass * sums.laws[0], mass * sums.laws[1]
            if (
                half := sums.mirrored
            ):  # the losses below 0 are those above it, mirrored; what lies at 0 is its own image
                share = np.where(upper == lower, 0.5, 1.0)[above := upper >= lower]
                upper, lower = upper[above] * share, lower[above] * share
            atoms.add(*self._losses(upper, lower))
            rounding += mass * sums.rounding
        losses, masses = atoms.condensed()
        if half:
            losses, masses = np.append(losses, -losses), np.append(masses, masses * np.exp(-losses))
        return guarded(losses, masses, rounding, slack)

    def curves(self, pairs: list[tuple[int, int]], draws: int) -> _Floats:
        """delta of each pair at a few epsilons, with so many blankets, shape (pairs, epsilons)."""
        inputs = sorted({x for both in pairs for x in both})
        ((_, sums),) = self._sums(Window(draws, np.ones(1), 0.0), inputs)
        laws = dict(zip(inputs, sums.laws, strict=True))
        factors = np.exp(np.linspace(0.0, self.largest, _COMPARED + 1)[:-1])
        return np.array([[float(np.maximum(laws[x] - e * laws[y], 0.0).sum()) for e in factors] for x, y in pairs])

    def _losses(self, upper: _Floats, lower: _Floats) -> tuple[_Floats, _Floats]:
        occurs = upper > 0.0
        with np.errstate(divide="ignore"):
            losses = np.log(upper[occurs]) - np.log(lower[occurs])
        return np.clip(losses, -self.largest, self.largest), upper[occurs]

    def _sums(self, others: Window, inputs: Sequence[int]) -> Iterator[tuple[float, _SumLaws]]:
        """For each number of blankets its probability and the laws of the sums, for each of the inputs."""
        draws = others.last
        cells = draws * (len(self.draw) - 1) + 1
        if cells <= _DIRECT_CELLS and cells * len(self.draw) * len(others.masses) <= _DIRECT_PRODUCTS:
            return self._direct_sums(others, inputs)
        return self._fft_sums(others, inputs, self.cells(draws))

    def _direct_sums(self, others: Window, inputs: Sequence[int]) -> Iterator[tuple[float, _SumLaws]]:
        """By convolution, whose rounding is relative."""
        law = power(self.draw, others.first, _DIRECT_CELLS) if others.first else np.ones(1)
        for mass in others.masses:
            yield float(mass), _SumLaws([np.convolve(law, self.rows[x]) for x in inputs], 0.0)
            law = np.convolve(law, self.draw)

    def _fft_sums(self, others: Window, inputs: Sequence[int], size: int) -> Iterator[tuple[float, _SumLaws]]:
        """Around the mean, folded to `size` cells: what wraps around is counted as rounding."""
        angles = np.linspace(0.0, math.pi, size // 2 + 1)
        log_transform = self._log_transform(angles, size)
        ends = self.mirrored and len(inputs) == 2 and sum(inputs) == len(self.rows) - 1
        reports = [np.fft.rfft(self.rows[x], size) for x in inputs[: 1 if ends else None]]
        blankets = lower_ends(others, max(_FEWEST_BLANKETS, min(64, _ALL_CELLS // size)))
        for draws, mass in zip(blankets.values, blankets.masses, strict=True):
            if mass:
                transform = np.exp(int(draws) * log_transform - 1j * angles * (int(draws) * self.mean % 1.0))
                laws = [np.maximum(np.fft.irfft(transform * report, size), 0.0) for report in reports]
                if ends:  # one law is the other's mirror image, about half of the largest sum
                    middle = (int(draws) + 1) * (len(self.draw) - 1) - 2 * math.floor(int(draws) * self.mean)
                    laws.append(np.roll(laws[0][::-1], middle + 1))
                norm = math.sqrt(max(float(law @ law) for law in laws) * size)
                units = math.log2(size) + 8.0 + 4.0 * math.sqrt(float(draws))
                yield (
                    float(mass),
                    _SumLaws(
                        laws, float(np.finfo(np.float64).eps) * units * norm + 2.0 * math.exp(-_LOG_WRAPPED), ends
                    ),
                )

    def _log_transform(self, angles: _Floats, size: int) -> NDArray[np.complex128]:
        """ln E[e^(-i t (y - mean))]. 1 - E[z^y] = (1 - z) sum over y of P(Y > y) z^y keeps small t exact."""
        above = np.append(np.cumsum(self.draw[::-1])[::-1][1:], 0.0)
        lacking = (2.0 * np.sin(angles / 2.0) ** 2 + 1j * np.sin(angles)) * np.fft.rfft(above, size)
        with np.errstate(divide="ignore"):
            squared = lacking.real**2 + lacking.imag**2 - 2.0 * lacking.real
            modulus = np.maximum(0.5 * np.log1p(np.maximum(squared, -1.0)), -_VANISHED)
        turn = np.arctan2(-lacking.imag, 1.0 - lacking.real) + angles * self.mean
        return np.asarray(modulus + 1j * turn, dtype=np.complex128)


@dataclass(frozen=True, eq=False)
class _SumLaws:
    """Laws of the sum on common cells, one per input, and by how much each may be wrong (L1 norm).

    mirrored: there are two, and either is the other's mirror image to the last bit.
    """

    laws: list[_Floats]
    rounding: float
    mirrored: bool = False


class _Atoms:
    """Atoms that are condensed as they become many."""

    def __init__(self) -> None:
        self._losses: list[_Floats] = []
        self._masses: list[_Floats] = []
        self._count = 0

    def add(self, losses: _Floats, masses: _Floats) -> None:
        losses, masses = condensed(losses, masses)
        self._losses.append(losses)
        self._masses.append(masses)
        self._count += len(masses)
        if self._count > _MOST_ATOMS:
            losses, masses = self.condensed()
            self._losses, self._masses, self._count = [losses], [masses], len(masses)

    def condensed(self) -> tuple[_Floats, _Floats]:
        return condensed(np.concatenate(self._losses), np.concatenate(self._masses))
