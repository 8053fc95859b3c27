"""Hiding among the clones (Feldman, McMillan, Talwar, FOCS 2021): any pure mechanism, shuffled or summed.

Each other report is, with probability e^-epsilon, a clone of one of the victim's two possible reports; the pair is
(A + B, C - A + 1 - B) against (A + 1 - B, C - A + B), C ~ Bin(n_h - 1, e^-epsilon), A ~ Bin(C, 1/2), B a coin of
odds E : 1. That is binary randomised response with another number of blankets.
What it does not do: neither the stronger theorem of 2023, whose proof has an erratum, nor variation ratios, which are
no upper bound (brute force beats them for 3 categories).
"""

from __future__ import annotations

import math

from collector.accounting.pairs import LossPair
from collector.accounting.structured import check_sum, structured


def clones(epsilon: float, n_h: int) -> LossPair:
    """The fallback for every pure epsilon-LDP report of one kind. n_h counts the victim. Raises ValueError."""
    check_sum(epsilon, n_h)
    return structured(2.0 / (2.0 + math.expm1(epsilon)), 0.5, 0.0, epsilon, n_h, hiding=math.exp(-epsilon))
