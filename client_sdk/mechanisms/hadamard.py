"""Categories: Hadamard response. A report is one place of K = 2^b > k; half of the places support each label.

Rules of this file: label v is supported by the places y where row v+1 of the Hadamard matrix of order K is +1, that
is, where y and v+1 have an even number of common 1 bits. The report's place supports the device's own label with a
probability that is an integer over 2^64, rounded *down*, and is uniform among the K/2 places that do, or that do
not. Every report is K integers, one of them 1. The estimator undoes the rounded integer.
What it does not do: clip or rescale estimates; and a total of K cells is up to twice as long as the list of labels.

Privacy: largest ratio = keep / (2^64 - keep) <= e^epsilon. Any two rows agree in half of their places: q = 1/2.
Source: Acharya, Sun, Zhang, "Hadamard Response: Estimating Distributions Privately, Efficiently, and with Little
Communication" (AISTATS 2019), with one block (B = 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism, checked_codes
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many, in_blocks, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK = 1 << 15
"""Reports per pass: above, each of the pass's arrays would leave a processor's caches."""


def probabilities(k: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:  # noqa: ARG001 - as its peers
    """(p, q) as drawn, over k labels."""
    return Fraction(share_numerator(epsilon, 1, 1), ONE), Fraction(1, 2)


@dataclass(frozen=True)
class Hadamard(CategoricalMechanism):
    """A category -> a one-hot vector over K places; a compact answer is the place of its 1."""

    keep: int = field(init=False, repr=False, compare=False)
    """The report supports the device's own label with probability keep / 2^64."""

    def _prepare(self) -> None:
        self._set(keep=share_numerator(self.epsilon, 1, 1))

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "hadamard"

    @property
    def length(self) -> int:
        """K: the least power of two above k."""
        return 1 << self.k.bit_length()

    @property
    def p(self) -> Fraction:
        """Chance that a report supports its device's own label."""
        return Fraction(self.keep, ONE)

    @property
    def q(self) -> Fraction:
        """Chance that it supports one given other label."""
        return Fraction(1, 2)

    def _integers(self) -> dict[str, int]:
        return {"cells": self.length, "keep": self.keep}

    @property
    def worst_ratio(self) -> Fraction:
        """p / (1-p)."""
        return self.p / (1 - self.p)

    # --- device ---------------------------------------------------------------------------------------

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One label's place -> K integers, one of them 1."""
        support = bernoulli_2_64(self.keep, entropy)
        row, answer = code + 1, uniform_below(self.length, entropy)
        if ((answer & row).bit_count() % 2 == 0) != support:
            answer ^= row & -row  # one of the row's bits: the places that support it <-> those that do not
        return [int(cell == answer) for cell in range(self.length)]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.int64]:
        """n labels' places -> n reported places in 0 .. K-1, shape (n,). ValueRefusedError before any entropy."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty(checked.size, np.int64)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, BLOCK)

    def _answers(self, codes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.int64]:
        rows = codes + 1
        against = 1 - bernoulli_2_64_many(self.keep, codes.size, stream)
        answers = uniform_below_many(self.length, codes.size, stream)
        answers ^= (rows & -rows) * (parity(answers & rows) ^ against)
        return answers

    # --- collector ------------------------------------------------------------------------------------

    def supports(self, total: Sequence[int], contributors: int) -> Sequence[int]:  # noqa: ARG002 - all of them stand in total
        """How many reports support each label: half of (all + the label's row of the matrix times the total)."""
        transformed = walsh_hadamard(total)
        return [(transformed[0] + cell) // 2 for cell in transformed[1 : self.k + 1]]


def parity(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Is the number of 1 bits odd? (1 or 0) For integers in 0 .. 2^32-1."""
    folded = numbers.copy()
    for shift in (16, 8, 4, 2, 1):
        folded ^= folded >> shift
    return folded & 1


def walsh_hadamard(total: Sequence[int]) -> list[int]:
    """The Hadamard matrix of order len(total), a power of two, times `total`; exact for integers of any size."""
    import numpy as np

    cells = [int(cell) for cell in total]
    dtype: Any = np.int64 if sum(map(abs, cells)) < 1 << 62 else object
    transformed = np.array(cells, dtype)
    half = 1
    while half < len(cells):
        pairs = transformed.reshape(-1, 2, half)
        transformed = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1)
        half *= 2
    result: list[int] = transformed.reshape(-1).tolist()
    return result
