"""Mechanisms: one value in, one fixed-length integer vector out; one summed vector in, an estimate out.

Both halves of a mechanism stand in one file, so that whoever checks that `estimate` undoes `perturb`
needs one screen. `perturb` runs on the device, `estimate` at the collector; nothing else is shared.

What this room promises: integer arithmetic only between the lattice and the decoded total, randomness
only through the `entropy` argument, a report whose length, order and type never depend on the value.
What it does not do: it never spends budget, never masks, never clips an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from client_sdk.accounting.loss import PrivacyLoss

Entropy = Callable[[int], bytes]
"""`entropy(n)` returns n fresh random bytes. On a device it is `os.urandom`; elsewhere it is an argument."""

Vector = list[int]
"""A report's or a total's integers, `Mechanism.length` of them."""

Value = float | int | str | Sequence[float] | tuple["str | None", "float | int | None"] | None
"""A reading as the host gives it: a number, a category's name, a vector; None only where the metric is optional: no
reading. Of a sliced number: (the category, the number)."""


Answer = Literal["counts", "mean", "optional_mean", "slices", "quantiles", "vector"]
"""counts: one per label, add up over versions. mean: one row. optional_mean: the mean over the devices that had a
reading, and how many had. slices: both for each slice. quantiles: one row per asked quantile. vector: a mean per
coordinate."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Unbiased estimates decoded from one total.

    values: one float per row (a mean, or one count per category), or None where nobody contributed.
    standard_errors: same shape; for this cohort's values (finite population): only the noise and the
        lattice rounding are random. None where nobody contributed.
    contributors: how many reports the total holds.
    population_errors: same shape; the contributors taken as a random sample of a larger population, so that who
        is among them is random too. Empty where the mechanism gives none.
    """

    values: tuple[float | None, ...]
    standard_errors: tuple[float | None, ...]
    contributors: int
    population_errors: tuple[float | None, ...] = ()

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, population: bool = False
    ) -> tuple[tuple[float, float] | None, ...]:
        """Two-sided interval per row at `level` in (0, 1); its ends are never cut.

        simultaneous: all rows hold together with probability `level` (Bonferroni). population: for the population
        that the contributors are a sample of, not for these contributors.
        """
        z = normal_quantile(level, rows=len(self.values) if simultaneous else 1)
        return self.interval_at(z, population=population)

    def interval_at(self, z: float, *, population: bool = False) -> tuple[tuple[float, float] | None, ...]:
        """The interval per row of `z` standard errors to either side."""
        errors = self.population_errors if population else self.standard_errors
        return tuple(
            None if value is None or error is None else (value - z * error, value + z * error)
            for value, error in zip(self.values, errors or (None,) * len(self.values), strict=True)
        )

    @classmethod
    def empty(cls, rows: int) -> Estimate:
        """The explicit answer over nobody: `rows` empty values, never a NaN."""
        return cls((None,) * rows, (None,) * rows, 0, (None,) * rows)


def normal_quantile(level: float, rows: int = 1) -> float:
    """Standard errors to either side of a two-sided interval at `level`, for `rows` of them at once (Bonferroni)."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    return -NormalDist().inv_cdf((1.0 - level) / (2.0 * max(rows, 1)))


def check_total(length: int, total: Sequence[int], contributors: int) -> None:
    """ValueError unless this can be the sum of so many reports of `length` elements."""
    if len(total) != length or contributors < 0:
        raise ValueError(f"expected {length} totals and a count of contributors, got {len(total)}, {contributors}")


@runtime_checkable
class Mechanism(Protocol):
    """What the rest of the product knows of a mechanism."""

    @property
    def name(self) -> str:
        """The plan's word for it, e.g. `laplace`."""

    @property
    def epsilon(self) -> Decimal:
        """What one report of this metric costs; neighbours replace one value."""

    @property
    def length(self) -> int:
        """Elements in the vector."""

    @property
    def bound(self) -> int:
        """Largest absolute element one report can add."""

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per estimate row: `("mean",)`, or the categories in plan order, `other` last."""

    @property
    def answer(self) -> Answer:
        """What the rows are, and so how the answers of several plan versions combine."""

    @property
    def worst_ratio(self) -> Fraction | float:
        """Largest P(y|x) / P(y|x') over all inputs and outputs, of the integers that ship; at most e^epsilon.

        Exact (a Fraction) for finite choices; a float just above it for lattice noise.
        """

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """What one report loses, for whoever adds losses up: one, or one of each part that is drawn independently."""

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """Device half: one value -> `length` integers. Raises ValueRefusedError before drawing entropy."""

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """`perturb` over n values, vectorised: an array of shape (n, length). Needs numpy."""

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """Collector half: the element-wise sum of `contributors` reports -> unbiased estimates."""

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """Can `contributors` well-formed reports add up to this?"""
