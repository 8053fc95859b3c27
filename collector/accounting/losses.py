"""From what one report loses to the pair that bounds it: against whoever sees the report, or only the sum it is in.

Rules of this file: the mechanism's word decides, the integers that ship fill the formula in, and a word that is not
known here gets the bound of every pure mechanism (binary randomised response; clones). One honest contributor is
nobody's cover: n_h = 1 is the local pair, whatever the mechanism.
A lattice finer than FINE_SCALE cells per noise scale is taken at a coarser one that divides it: a geometric variable is
a coarser one and an independent rest, so the coarser sum dominates; epsilon rises by less than 1e-5 of itself.
What it does not do: it composes nothing, and no sum that mixes mechanisms has a pair here.
Source: accounting reference, which central bound for which mechanism; the modules named here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from client_sdk.mechanisms.gaussian import ROUNDING_VARIANCE
from client_sdk.mechanisms.parameters import ONE
from client_sdk.plan.build import number
from collector.accounting import blanket, clones, local, noise_sum, structured, unary
from collector.accounting.pairs import LossPair
from collector.accounting.table import from_table

if TYPE_CHECKING:
    from client_sdk.accounting.loss import PrivacyLoss

FINE_SCALE: Final = 100
"""Cells that a noise scale spans at least, once a lattice was made coarser."""

MOST_LEVELS: Final = 4096
"""The longest lattice whose table of outputs is added up; beyond it a number's bound is that of clones."""

PAIRS_KEPT: Final = 128
"""Pairs remembered: about 100 MB at most."""

PURE: Final = "pure"
"""The word of a loss of which nothing but its epsilon is known."""


@lru_cache(maxsize=PAIRS_KEPT)
def local_pair(loss: PrivacyLoss) -> LossPair:
    """Against somebody who sees the report itself. Raises ValueError for parameters that are no mechanism's."""
    epsilon = float(loss.epsilon)
    if loss.mechanism == "laplace":
        return local.discrete_laplace(_cells(loss.parameter("levels"), epsilon), epsilon)
    if loss.mechanism == "randomized_response":
        return local.randomized_response(loss.parameter("k"), epsilon)
    if loss.mechanism in _IN_A_SUM:
        return _IN_A_SUM[loss.mechanism](loss, epsilon, 1)
    return local.pure(epsilon)


@lru_cache(maxsize=PAIRS_KEPT)
def central_pair(loss: PrivacyLoss, n_h: int) -> LossPair:
    """Against somebody who sees only the sum over n_h honest contributors, the victim counted. Raises ValueError."""
    if n_h <= 1:
        return local_pair(loss)
    return _IN_A_SUM.get(loss.mechanism, _any_pure)(loss, float(loss.epsilon), n_h)


def method(loss: PrivacyLoss) -> str:
    """How `central_pair` bounds it, in words."""
    if _IN_A_SUM.get(loss.mechanism) is _table and loss.parameter("levels") > MOST_LEVELS:
        return _CLONES
    return _METHODS.get(loss.mechanism, _CLONES)


def _cells(levels: int, epsilon: float) -> int:
    """The fewest cells, of a divisor of the lattice, that are still fine."""
    widest = min(levels, int(levels / (FINE_SCALE * epsilon)))
    return levels // next((m for m in range(widest, 1, -1) if levels % m == 0), 1)


def _laplace(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return noise_sum.laplace_sum(_cells(loss.parameter("levels"), epsilon), epsilon, n_h)


def _randomized_response(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return blanket.randomized_response(loss.parameter("k"), epsilon, n_h)


def _one_bit(_: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return blanket.one_bit(epsilon, n_h)


def _unary(loss: PrivacyLoss, _: float, n_h: int) -> LossPair:
    return unary.unary(loss.parameter("own") / ONE, loss.parameter("others") / ONE, n_h)


def _gaussian(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    """That of the continuous Gaussian which the discrete ones' sum is a rounding of (`mechanisms.gaussian`).

    A sum of discrete Gaussians is one, but for 5 n_h e^-(pi sigma)^2 of every mass (Kairouz et al. 2021), and these are
    as wide as a lattice. Clamping a coordinate of any report is counted as a failure; of the victim's own it is none.
    """
    variance = n_h * loss.parameter("variance") - ROUNDING_VARIANCE
    pair = local.gaussian(math.sqrt(variance), math.sqrt(loss.parameter("sensitivity_squared")))
    if n_h == 1:
        return pair
    strays = 2.0 * math.exp(-0.5 * loss.parameter("tail") ** 2 / loss.parameter("variance"))
    clamped = n_h * loss.parameter("dimension") * strays * (1.0 + math.exp(epsilon))
    return replace(pair, slack=pair.slack + clamped)


def _subset_selection(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return structured.subset_selection(loss.parameter("k"), loss.parameter("size"), epsilon, n_h)


def _hadamard(_: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return structured.hadamard(epsilon, n_h)


def _square_wave(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    """k + window - 1 cells, `window` of them likely. The windows of the line's two ends are the farthest apart, and
    dominate all others: two windows that overlap more differ by draws of lesser spread (convex order).
    """
    k, window = loss.parameter("k"), loss.parameter("window")
    cells, apart = k + window - 1, min(window, k - 1)
    gamma = cells / (cells + window * math.expm1(epsilon))
    return structured.structured(gamma, apart / cells, (window - apart) / cells, epsilon, n_h)


def _table(loss: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    """On the integers that ship, for the two ends of the range: what pairs are worst, `table.py` says.

    Raises ValueError where this version would draw with others.
    """
    if loss.parameter("levels") > MOST_LEVELS:
        return _any_pure(loss, epsilon, n_h)
    mechanism = number(loss.mechanism, Decimal(0), Decimal(1), loss.epsilon, loss.parameter("levels"))
    if mechanism.losses != (loss,):
        raise ValueError(f"{loss.mechanism} at epsilon {loss.epsilon} does not draw with {dict(loss.parameters)} here")
    return from_table(mechanism.table(), n_h)  # type: ignore[attr-defined]


def _any_pure(_: PrivacyLoss, epsilon: float, n_h: int) -> LossPair:
    return local.pure(epsilon) if n_h <= 1 else clones.clones(epsilon, n_h)


_IN_A_SUM: Final[dict[str, Callable[[PrivacyLoss, float, int], LossPair]]] = {
    "laplace": _laplace,
    "randomized_response": _randomized_response,
    "one_bit": _one_bit,
    "symmetric_unary": _unary,
    "optimized_unary": _unary,
    "subset_selection": _subset_selection,
    "hadamard": _hadamard,
    "square_wave": _square_wave,
    "piecewise": _table,
    "hybrid": _table,
    "gaussian": _gaussian,
}

_CLONES: Final = "hiding among clones"

_METHODS: Final = {
    "laplace": "exact sum of noises",
    "randomized_response": "privacy blanket",
    "one_bit": "privacy blanket",
    "symmetric_unary": "privacy blankets of two bits",
    "optimized_unary": "privacy blankets of two bits",
    "subset_selection": "structured privacy blanket",
    "hadamard": "structured privacy blanket",
    "square_wave": "structured privacy blanket",
    "piecewise": "privacy blanket on the shipped table",
    "hybrid": "privacy blanket on the shipped table",
    "gaussian": "sum of Gaussian noises",
}
