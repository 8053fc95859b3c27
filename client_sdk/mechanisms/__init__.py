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
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Entropy = Callable[[int], bytes]
"""`entropy(n)` returns n fresh random bytes. On a device it is `os.urandom`; elsewhere it is an argument."""

Vector = list[int]
"""A report's or a total's integers, `Mechanism.length` of them."""

Value = float | int | str
"""A reading as the host gives it: a number for `numeric` metrics, a category's name for `categorical`."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Unbiased estimates decoded from one total.

    values: one float per row (a mean, or one count per category), or None where nobody contributed.
    standard_errors: same shape; for this cohort's values (finite population): only the noise and the
        lattice rounding are random. None where nobody contributed.
    contributors: how many reports the total holds.
    """

    values: tuple[float | None, ...]
    standard_errors: tuple[float | None, ...]
    contributors: int

    def interval(self, level: float = 0.95) -> tuple[tuple[float, float] | None, ...]:
        """Two-sided normal interval per row at `level` in (0, 1); its ends are never cut."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        z = NormalDist().inv_cdf(0.5 + level / 2.0)
        return tuple(
            None if value is None or error is None else (value - z * error, value + z * error)
            for value, error in zip(self.values, self.standard_errors, strict=True)
        )

    @classmethod
    def empty(cls, rows: int) -> Estimate:
        """The explicit answer over nobody: `rows` empty values, never a NaN."""
        return cls((None,) * rows, (None,) * rows, 0)


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

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """Device half: one value -> `length` integers. Raises ValueRefusedError before drawing entropy."""

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """`perturb` over n values, vectorised: an array of shape (n, length). Needs numpy."""

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """Collector half: the element-wise sum of `contributors` reports -> unbiased estimates."""
