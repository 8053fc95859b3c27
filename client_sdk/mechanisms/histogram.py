"""Numbers into bins: a reading becomes its bin's place, and a mechanism for places does the rest.

Rules of this file: a reading is compared with the edges as the exact fraction it is, never as a rounded float; one
below the first or above the last edge counts in the first or last bin; a bin holds its lower edge, the last one both.
Nothing is drawn before the reading has its bin. What is sent, and how private it is, is the inner mechanism's.
What it does not do: know where in its bin a reading lay.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Answer, Entropy, Estimate, Value, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.coded import Coded
from client_sdk.mechanisms.lattice import exact_number, float_array
from client_sdk.mechanisms.parameters import as_decimal
from client_sdk.mechanisms.square_wave import BINS_MAX, SquareWave

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from client_sdk.mechanisms.distribution import Distribution


@dataclass(frozen=True)
class Histogram(Coded[CategoricalMechanism | SquareWave]):
    """A number -> one report about its bin. PlanError for parameters that cannot work.

    edges: ends of the bins in the metric's unit, ascending, one more than there are bins (2 .. 4096).
    epsilon: of one report, in [1e-6, 40].
    mechanism: the plan's word for what sends the bin: `square_wave` or one for categories; not `auto`, which
        `histogram_choice` turns into a word.
    optional: one more label for devices without a reading (None); not with `square_wave`.
    """

    edges: tuple[Decimal, ...]
    epsilon: Decimal
    mechanism: str
    optional: bool = False
    inner: CategoricalMechanism | SquareWave = field(init=False, repr=False, compare=False)
    _edges: tuple[Fraction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        edges = tuple(as_decimal("edges", edge) for edge in self.edges)
        problems = _edge_problems(edges)
        if self.optional and self.mechanism == "square_wave":
            problems.append("optional: square_wave has no place for devices without a reading; take another mechanism")
        if problems:
            raise PlanError(problems)
        inner = _inner(self.mechanism, bin_labels(edges), self.epsilon, optional=self.optional)
        fractions = tuple(Fraction(edge) for edge in edges)
        for name, value in {"edges": edges, "epsilon": inner.epsilon, "inner": inner, "_edges": fractions}.items():
            object.__setattr__(self, name, value)

    @property
    def bins(self) -> int:
        """How many."""
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins as "[a, b)", the last as "[a, b]", then `ABSENT` where the metric is optional."""
        return self.inner.labels

    @property
    def answer(self) -> Answer:
        """Counts per bin."""
        return "counts"

    @property
    def smoothed(self) -> bool:
        """Are the estimates smoothed (and so biased) instead of unbiased?"""
        return isinstance(self.inner, SquareWave)

    # --- device ---------------------------------------------------------------------------------------

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One reading -> one report. ValueRefusedError (wrong type, not finite) before any entropy is drawn."""
        return self.inner.perturb_code(self.code(value), entropy)

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n readings -> shape (n, length). ValueRefusedError where any is refused, before any entropy is drawn."""
        import numpy as np

        return self.inner.rows(self.inner.perturb_codes(self.codes(values), entropy)).astype(np.int64)

    def code(self, value: Value) -> int:
        """The place of a reading's bin, 0 .. bins-1 (`bins` without a reading). Raises ValueRefusedError."""
        if value is None and self.optional:
            return self.bins
        above = bisect_right(self._edges, exact_number(value)) - 1
        return min(max(above, 0), self.bins - 1)

    def codes(self, values: Sequence[Value] | npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        """`code` for n readings, shape (n,). Float and integer arrays in bulk, anything else one by one."""
        import numpy as np

        array = float_array(values)
        if array is None:
            listed: Any = values.tolist() if isinstance(values, np.ndarray) else values
            return np.array([self.code(value) for value in listed], np.int64)
        if not np.isfinite(array).all():
            raise ValueRefusedError("", RefusalReason.NOT_FINITE)
        inner_edges = [next_float(edge) for edge in self._edges[1:-1]]
        return np.searchsorted(np.array(inner_edges), array, side="right").astype(np.int64)

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """Summed cells of n reports -> counts per bin: unbiased, or smoothed ones where `smoothed`."""
        return self.inner.estimate(total, contributors)

    def distribution(self, total: Sequence[int], contributors: int) -> Distribution:
        """Summed cells of n reports -> the share of readings below each edge, with errors."""
        from client_sdk.mechanisms.cumulative import distribution_of

        return distribution_of(self.inner, [float(edge) for edge in self._edges], total, contributors)


def bin_labels(edges: Sequence[Decimal]) -> tuple[str, ...]:
    """ "[a, b)" per bin and "[a, b]" for the last, with as few digits as the edges have."""
    texts = [_shortest(edge) for edge in edges]
    last = len(texts) - 2
    return tuple(f"[{a}, {b}{']' if place == last else ')'}" for place, (a, b) in enumerate(pairwise(texts)))


def _shortest(number: Decimal) -> str:
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


def next_float(exact: Fraction) -> float:
    """The smallest float that is not below `exact`: a float reading reaches both or neither."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def histogram_choice(k: int, epsilon: Decimal) -> str:
    """What `auto` comes to for a histogram of k labels: the unbiased mechanism with the least mean squared error."""
    from client_sdk.mechanisms.choice import cheapest

    return cheapest(k, epsilon)


def _inner(
    word: str, labels: tuple[str, ...], epsilon: Decimal, *, optional: bool
) -> CategoricalMechanism | SquareWave:
    if word == "square_wave":
        return SquareWave(labels, epsilon)
    from client_sdk.mechanisms.choice import categorical

    return categorical(word, labels, epsilon, None, optional)


def _edge_problems(edges: tuple[Decimal, ...]) -> list[str]:
    if not 2 <= len(edges) - 1 <= BINS_MAX:
        return [f"edges: 3 to {BINS_MAX + 1} are needed, for 2 to {BINS_MAX} bins, not {len(edges)}"]
    if not all(edge.is_finite() and (not edge or abs(edge.adjusted()) <= 290) for edge in edges):
        return ["edges: each must be a finite number that a double can hold"]
    if any(low >= high for low, high in pairwise(edges)):
        return ["edges: must ascend, each greater than the one before"]
    return []
