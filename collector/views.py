"""Views of estimates that a reader may want beside them. They are biased, so they stand in columns with their name.

What this does not do: it replaces no estimate. Only the unbiased ones may be added up any further.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def norm_sub(counts: Sequence[float | None], total: float) -> tuple[float | None, ...]:
    """The nearest counts that are none below 0 and add up to `total`: one constant is added to all, negatives become 0.

    Biased: rare labels come out too low, or 0. Nones throughout where any count is None, or `total` is not above 0.
    Source: Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, "Locally Differentially Private Frequency Estimation with
    Consistency" (NDSS 2020), section 4, Norm-Sub; its loop ends where this sort does, on the simplex's nearest point.
    """
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts) or total <= 0:
        return (None,) * len(counts)
    falling = -np.sort(-np.array(known, np.float64))
    constants = (total - np.cumsum(falling)) / np.arange(1, falling.size + 1)
    above = np.flatnonzero(falling + constants > 0)
    kept = int(above[-1]) if above.size else 0  # the largest is kept; a float's digits may not show it
    return tuple(float(count) for count in np.maximum(np.array(known) + constants[kept], 0.0))
