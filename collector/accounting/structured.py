"""The privacy blanket of mechanisms whose laws are R_x(y) = gamma w(y) (1 + (E - 1) [y in H_x]), E = e^epsilon.

Such a report is, with probability gamma, a draw from w whatever the value (Balle et al. 2019). Whose reports those are
is revealed for all others but not which they are: M - 1 of them, M - 1 ~ Bin(n_h - 1, gamma), hide the victim's.
With h0, h1 the numbers of the M reports in H_x and in H_x', D = h0 - h1, and U the law of M draws from w,
    P / U = gamma / M (M + (E - 1) h0),    Q / U = gamma / M (M + (E - 1) h1).
The bits of one report depend on each other, and this bound does not need them not to. It is symmetric, and holds
whatever the other users' values are.

Rules of this file: what the windows leave out is in the slack. Under P the counts are those of M - 1 draws and of one
report more, so within 1 of where the window of M draws looks: a bound of e^-46 becomes one of e^-44.5 or less. Where
outcomes are left out one by one, P / U <= gamma E bounds them.
What it does not do: no sum over reports whose mechanism differs from the victim's.
"""

from __future__ import annotations

import math
from typing import Final

from collector.accounting.binomial import OUTSIDE, binomial
from collector.accounting.condense import symmetric_pair
from collector.accounting.outcomes import Blanket
from collector.accounting.pairs import LossPair

MIN_EPSILON: Final = 1e-6
MAX_EPSILON: Final = 40.0


def subset_selection(k: int, w: int, epsilon: float, n_h: int) -> LossPair:
    """Subsets of `w` out of `k` categories, the true one in it with odds E w : k - w. Raises ValueError."""
    check_sum(epsilon, n_h)
    if not 1 <= w < k:
        raise ValueError(f"a subset holds at least 1 and fewer than all {k} categories, got {w}")
    gamma = k / (k + w * math.expm1(epsilon))
    chance = w * (k - w) / (k * (k - 1))
    return structured(gamma, chance, w * (w - 1) / (k * (k - 1)), epsilon, n_h)


def hadamard(epsilon: float, n_h: int) -> LossPair:
    """Hadamard response: half of the cells are likelier, and two values share half of theirs."""
    check_sum(epsilon, n_h)
    return structured(2.0 / (2.0 + math.expm1(epsilon)), 0.25, 0.25, epsilon, n_h)


def structured(gamma: float, pi: float, pi2: float, epsilon: float, n_h: int, hiding: float | None = None) -> LossPair:
    """gamma: the blanket's probability; pi = w(H_x - H_x') = w(H_x' - H_x); pi2 = w(H_x and H_x').

    hiding: the probability that another user's report hides, where it is not gamma (clones). n_h counts the victim.
    Raises ValueError for what is no such law, an epsilon outside [1e-6, 40], or n_h < 1.
    """
    check_sum(epsilon, n_h)
    if not (0.0 < gamma <= 1.0 and pi > 0.0 and pi2 >= 0.0 and 2.0 * pi + pi2 <= 1.0 + 1e-12):
        raise ValueError(f"no blanket has gamma {gamma!r}, pi {pi!r}, pi2 {pi2!r}")
    others = binomial(n_h - 1, gamma if hiding is None else hiding)
    blanket = Blanket(
        gamma, min(1.0, 2.0 * pi), 0.0 if pi2 == 0.0 else min(1.0, pi2 / (1.0 - 2.0 * pi)), epsilon, others
    )
    losses, masses = blanket.enumerated() if blanket.few() else blanket.merged()
    single = gamma * math.exp(epsilon) if pi2 > 0.0 else 0.0
    return symmetric_pair(losses, masses, others.outside + (40.0 + single) * OUTSIDE)


def check_sum(epsilon: float, n_h: int) -> None:
    """ValueError unless epsilon lies in [1e-6, 40] and n_h, the victim counted, is at least 1."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon must lie in [{MIN_EPSILON}, {MAX_EPSILON}], got {epsilon!r}")
    if n_h < 1:
        raise ValueError(f"n_h counts the victim, so it is at least 1, got {n_h}")
