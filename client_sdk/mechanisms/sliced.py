"""A number and the slice that its device is in, told together: one metric over the product of slices and points.

Rules of this file: a reading is a pair (category, number). The number is placed on one of `levels` + 1 points by
randomised rounding (unbiased), and the pair (slice, point) is one label of a mechanism for categories, at the whole of
epsilon: nothing is split between number and slice, and nothing is told of either by itself. Every device sends a report
of the same form, whichever slice it is in. Without a number (None, where the metric is optional) it is one more label.
The sum of the readings of a slice and its number of devices are weighted sums of the labels' unbiased counts; the
slice's mean is their *ratio*, and is given where the number of devices stands clear of its own noise.
What it does not do: slice a sum that was not asked for in slices. A sum over devices holds no trace of who added what.

Privacy: two pairs are two labels at worst; rounding mixes labels, and no mixtures are told apart better than the worst
two of them. So epsilon, its exact ratio and its bounds in a sum are the mechanism's for so many labels.

Errors. A report supports its own label with probability p, any other with q; how the supports vary together is a
property of the mechanism (`Spread`). Of this cohort only noise and rounding are random, the latter taken as large as
readings with this mean can make it; of a population, who is in which slice with which reading is random too.
Source: the product domain, with `levels` 1, is what key-value protocols come to at their optimum: Gu, Li, Cheng, Xiong,
Cao, "PCKV: Locally Differentially Private Correlated Key-Value Data Collection" (USENIX Security 2020), section 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Answer, Entropy, Value, Vector, check_total
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.choice import categorical
from client_sdk.mechanisms.coded import Coded
from client_sdk.mechanisms.lattice import Lattice, exact_number, range_problems
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.mechanisms.sliced_choice import LABELS_MAX, LEVELS_MAX, WORDS, Spread
from client_sdk.mechanisms.slices import SlicePart, SlicesEstimate, clipped_moments, slice_rows, slices_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class SlicedNumber(Coded[CategoricalMechanism]):
    """(category, number in [lower, upper]) -> one report about both. PlanError for parameters that cannot work.

    by: the mechanism of the metric that says the slice; its labels are the slices, its law plays no part.
    epsilon: of one report, in [1e-6, 40]. mechanism: a word of `sliced_choice.WORDS`. levels: steps of the lattice,
    1 .. 64; slices times points are at most 65,536. optional: the number may be missing (None).
    """

    by: CategoricalMechanism
    lower: Decimal
    upper: Decimal
    epsilon: Decimal
    mechanism: str
    levels: int = 1
    optional: bool = False
    inner: CategoricalMechanism = field(init=False, repr=False, compare=False)
    lattice: Lattice = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exact = {name: as_decimal(name, getattr(self, name)) for name in ("lower", "upper", "epsilon")}
        problems = [*epsilon_problems(exact["epsilon"]), *range_problems(exact["lower"], exact["upper"])]
        problems += sliced_problems(self.by.k, self.levels, optional=self.optional)
        if self.mechanism not in WORDS:
            problems.append(f"mechanism: must be one of {', '.join(WORDS)}, not {self.mechanism!r}")
        if problems:
            raise PlanError(problems)
        points = self.levels + 1
        labels = tuple(f"{place}.{point}" for place in range(self.by.k) for point in range(points))
        inner = categorical(self.mechanism, labels, exact["epsilon"], None, self.optional)
        self._set(**exact, inner=inner, lattice=Lattice(exact["lower"], exact["upper"], self.levels))

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def slices(self) -> tuple[str, ...]:
        """The labels of the metric that it is sliced by, in their order."""
        return self.by.labels

    @property
    def points(self) -> int:
        """Of the lattice, in each slice."""
        return self.levels + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Two rows a slice: the mean of its devices' numbers, and how many devices (with a reading) are in it."""
        return slice_rows(self.slices)

    @property
    def answer(self) -> Answer:
        """A ratio and a count for each slice."""
        return "slices"

    @property
    def middle(self) -> Fraction:
        """Of the range: what sums are counted from."""
        return self.lattice.low + self.lattice.width / 2

    # --- device ---------------------------------------------------------------------------------------

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One (category, number) -> `length` bits. ValueRefusedError (either is none) before any entropy is drawn."""
        place, number = self._read(value)
        # rounded in any case: a report's work is the same
        point = self.lattice.encode(self.middle if number is None else number, entropy)
        return self.inner.perturb_code(self._code(place, number, point), entropy)

    def _read(self, value: Value) -> tuple[int, Value | Fraction]:
        """(place of the slice, the number or None), each of them checked."""
        if not isinstance(value, tuple) or len(value) != 2:
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        category, number = cast("tuple[Value, Value]", value)
        place = self.by.code(category)
        if number is None and self.optional:
            return place, None
        if type(number) is not float or not math.isfinite(number):
            exact_number(number)
        return place, number

    def _code(self, place: int, number: object, point: int) -> int:
        return self.inner.k - 1 if number is None else place * self.points + point

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n pairs -> shape (n, length). ValueRefusedError where any is refused, before any entropy is drawn."""
        import numpy as np

        read = [self._read(cast("Value", value)) for value in values]
        middle: Any = float(self.middle) if float(self.middle) == self.middle else self.middle
        numbers: Any = [middle if number is None else number for _, number in read]
        points, stream = self.lattice.encode_many(numbers, entropy)
        drawn = zip(read, points.tolist(), strict=True)
        codes = np.array([self._code(place, number, point) for (place, number), point in drawn], np.int64)
        return self.inner.rows(self.inner.perturb_codes(codes, stream)).astype(np.int64)

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> SlicesEstimate:
        """The summed cells of n reports -> for each slice the mean of its devices' numbers, and their number."""
        return slices_of([[part] for part in self.parts(total, contributors)], contributors)

    def parts(self, total: Sequence[int], contributors: int) -> list[SlicePart]:
        """What the total says of each slice, to be combined with other plan versions'; see `slices_of`."""
        check_total(self.length, total, contributors)
        cells, spread = [int(cell) for cell in total], Spread.of(self.inner)
        weights = [2 * point - self.levels for point in range(self.points)]
        return [
            self._part(cells[start : start + self.points], weights, spread, contributors)
            for start in range(0, self.by.k * self.points, self.points)
        ]

    def _part(self, cells: Sequence[int], weights: Sequence[int], spread: Spread, n: int) -> SlicePart:
        """Of one slice's cells. weights: twice the steps from the middle of the range."""
        p, q = self.inner.p, self.inner.q
        zeroth, first, second = (
            (
                sum(w**power * cell for w, cell in zip(weights, cells, strict=True))
                - n * q * sum(w**power for w in weights)
            )
            / (p - q)
            for power in (0, 1, 2)
        )
        half_step = Fraction(1, 2 * self.levels)  # in widths of the range
        noise, population = (
            spread.of_slice(clipped_moments(zeroth, first, second, n, self.levels), self.points, n, sampled=sampled)
            if n
            else (0.0, 0.0, 0.0)
            for sampled in (False, True)
        )
        unit = float(half_step)
        return SlicePart(
            total=first * half_step,
            count=zeroth,
            noise=(noise[0] * unit**2, noise[1] * unit, noise[2]),
            population=(population[0] * unit**2, population[1] * unit, population[2]),
            middle=self.middle,
            width=self.lattice.width,
        )


def sliced_problems(slices: int, levels: int, *, optional: bool) -> list[str]:
    """Why numbers cannot be told in so many slices and steps (no line: they can)."""
    if type(levels) is not int or not 1 <= levels <= LEVELS_MAX:
        return [f"levels: of a sliced number must be an integer between 1 and {LEVELS_MAX}, not {levels}"]
    labels = slices * (levels + 1) + optional
    if labels > LABELS_MAX:
        return [
            f"levels: {slices} slices of {levels + 1} points are {labels} cells; at most {LABELS_MAX}: lower levels, "
            "or slice by a metric of fewer categories"
        ]
    return []
