"""The privacy blanket of k-ary randomised response and of one bit, from a histogram of n_h reports.

Balle et al. 2019, with the size of the blanket revealed; the optimal one of its kind (Su, Cheng, Wang 2025). k-ary
randomised response is the structured law with H_x = {x}. Checked against every data set of the others for small n.
What it does not do: one blanket serves one sum; metrics of one report are bounded separately and composed.
"""

from __future__ import annotations

import math

from collector.accounting.pairs import LossPair
from collector.accounting.structured import check_sum, structured


def randomized_response(k: int, epsilon: float, n_h: int) -> LossPair:
    """k categories, the true one with odds E : 1 against each other. n_h counts the victim. Raises ValueError."""
    check_sum(epsilon, n_h)
    if k < 2:
        raise ValueError(f"randomised response needs at least 2 categories, got {k}")
    return structured(k / (k + math.expm1(epsilon)), 1.0 / k, 0.0, epsilon, n_h)


def one_bit(epsilon: float, n_h: int) -> LossPair:
    """A number rounded at random to one of two ends, then binary randomised response: that of 2 categories."""
    return randomized_response(2, epsilon, n_h)
