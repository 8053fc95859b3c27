"""Unary encodings (symmetric, optimised, RAPPOR-like): two per-bit privacy blankets, oppositely directed, composed.

The bits of such a report are independent, and a sum does not link them: replacing one value lets one bit fall from
chance p to q and another rise from q to p. Per bit, another user's bit is, with probability g = 1 - |p - q|, a coin of
chance theta = min(p, q) / g whatever that user's value; with m ~ Bin(n_h - 1, g) of those the pair is
    Bin(m, theta) + Bern(p)  against  Bin(m, theta) + Bern(q).
Rules of this file: the second bit enters *reversed*. The same direction twice is unsound where p + q is not 1.
What it does not do: a report with more than one true bit (h hashes) composes up to h bits of each direction.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.accounting.binomial import OUTSIDE, binomial, lower_ends
from collector.accounting.condense import condensed, pair
from collector.accounting.pairs import LossPair
from collector.accounting.pld import Atoms

_FEW: Final = 1 << 20
"""Up to so many outcomes of two bits are enumerated as they are."""

_ATOMS: Final = 400_000
_STEPS: Final = 8192
_TRIM: Final = 1e-19
_LARGEST: Final = 600.0

_Floats = NDArray[np.float64]


def unary(p: float, q: float, n_h: int) -> LossPair:
    """p, q: the chance that the true bit, and that another bit, is reported as 1. n_h counts the victim.

    Raises ValueError unless 0 < q < p < 1 and n_h >= 1.
    """
    falling = bit(p, q, n_h)
    rising = falling.reversed()
    if len(falling.upper) ** 2 <= _FEW:
        return _product(falling, rising)
    return _convolved(falling, rising)


def bit(p: float, q: float, n_h: int) -> LossPair:
    """The pair of the one bit whose chance falls from p to q; as (P, Q) only, so not a bound in both directions."""
    if not (0.0 < q < p < 1.0) or n_h < 1:
        raise ValueError(f"a bit needs 0 < q < p < 1 and n_h >= 1, got p {p!r}, q {q!r}, n_h {n_h}")
    blanket = 1.0 - (p - q)
    others = binomial(n_h - 1, blanket)
    widest = len(binomial(n_h - 1, q / blanket).masses)
    upper, lower = [], []
    for count, mass in zip(others.values, lower_ends(others, max(48, _ATOMS // widest)).masses, strict=True):
        if mass:
            ones = binomial(int(count), q / blanket)
            without, with_one = np.append(ones.masses, 0.0) * mass, np.insert(ones.masses, 0, 0.0) * mass
            upper.append(without * (1.0 - p) + with_one * p)
            lower.append(without * (1.0 - q) + with_one * q)
    return LossPair(np.concatenate(upper), np.concatenate(lower), others.outside + OUTSIDE)


def _product(falling: LossPair, rising: LossPair) -> LossPair:
    """Every outcome of both bits."""
    masses = np.multiply.outer(falling.upper, rising.upper).ravel()
    losses = np.add.outer(_finite(falling), _finite(rising)).ravel()
    return pair(losses, masses, falling.slack + rising.slack)


def _convolved(falling: LossPair, rising: LossPair) -> LossPair:
    """Both bits on one grid. The convolution is a direct sum: it rounds relatively, however small a mass is."""
    atoms = [_trimmed(one) for one in (falling, rising)]
    step = max(float(one.losses[-1] - one.losses[0]) for one in atoms) / _STEPS
    first, second = (one.on_grid(step) for one in atoms)
    masses = np.convolve(first.masses, second.masses)
    losses = np.asarray((first.first + second.first + np.arange(len(masses))) * step, dtype=np.float64)
    return pair(losses, masses, first.infinite + second.infinite)


def _trimmed(one: LossPair) -> Atoms:
    """The atoms that matter: the rarest losses are rounded up."""
    losses, masses = condensed(_finite(one), one.upper)
    return Atoms.of(LossPair(masses, masses * np.exp(-losses), one.slack)).trimmed(_TRIM)


def _finite(one: LossPair) -> _Floats:
    """The losses. None is infinite, however small a mass is that no float holds: ln(p / q) bounds them all."""
    return np.clip(one.losses, -_LARGEST, _LARGEST)
