"""Categories over time by noisy bits: RAPPOR's two rounds, with the bits' best rates (L-OSUE).

Rules of this file: as in `memoized`; every bit of a permanent answer is drawn once, the label's own too, and every bit
of a report is drawn anew from it.
What it does not do: hide changes well. Two permanent answers differ in many bits, and each tells.

p1 = 1/2, q1 = 1/(e^inf + 1); p2 = 1 - q2 = (e^(inf+first) - 1) / (e^inf - e^first + e^(inf+first) - 1).
Source: Arcolezi et al. (2022), as there; Erlingsson, Pihur, Korolova, "RAPPOR" (CCS 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import checked_codes
from client_sdk.mechanisms.memoized import Memoized, Permanent, exact_digits, log_of, numerator
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many, in_blocks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_BLOCK: Final = 1 << 18
"""Bits per pass of the bulk half."""

_DIGITS: Final = bytes([48, 49]) + bytes(254)
"""A bit's byte -> its digit."""


@dataclass(frozen=True)
class MemoizedUnary(Memoized):
    """L-OSUE. A compact answer is the row of bits itself, in bytes."""

    @property
    def name(self) -> str:
        """The plan's word for the law of the permanent round."""
        return "optimized_unary"

    @property
    def ones(self) -> int | None:
        """Any number of bits may be 1."""
        return None

    def _first_numerator(self) -> int:
        return share_numerator(self.epsilon_inf, 1, 1)

    def _second_numerator(self) -> int:
        with localcontext(exact_digits()):
            inf, first = self.epsilon_inf.exp(), self.epsilon.exp()
            return numerator((inf * first - 1) / (inf - first + inf * first - 1))

    @property
    def _silent(self) -> int:
        return ONE // 2

    @property
    def _rounds(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """(p1, q1, p2, q2): a bit's chance to be 1, of its permanent value and then of its report."""
        q1, p2 = 1 - Fraction(self.first, ONE), Fraction(self.second, ONE)
        return Fraction(1, 2), q1, p2, 1 - p2

    @property
    def p(self) -> Fraction:
        """Chance that a report supports its device's own label, over both rounds."""
        p1, _, p2, q2 = self._rounds
        return p1 * p2 + (1 - p1) * q2

    @property
    def q(self) -> Fraction:
        """Chance that it supports one given other label."""
        _, q1, p2, q2 = self._rounds
        return q1 * p2 + (1 - q1) * q2

    @property
    def permanent_ratio(self) -> Fraction:
        """p1 (1-q1) / ((1-p1) q1)."""
        p1, q1, _, _ = self._rounds
        return p1 * (1 - q1) / ((1 - p1) * q1)

    def chain_ratio(self, reports: int) -> Fraction:
        """The one value's bit is always reported as 1, the other's always as 0."""
        return bits_ratio(*self._rounds, reports=reports)

    @property
    def change(self) -> float:
        """k ln(p2 / q2): two permanent answers may differ in every bit. Large: unary answers hide changes badly."""
        _, _, p2, q2 = self._rounds
        return self.k * log_of(p2 / q2)

    # --- device ---

    def permanent(self, code: int, entropy: Entropy) -> Permanent:
        """Every bit is drawn, the label's own too."""
        chances = (ONE // 2 if cell == code else ONE - self.first for cell in range(self.k))
        bits = bytes(bernoulli_2_64(chance, entropy) for chance in chances)
        return int(bits[::-1].translate(_DIGITS), 2)

    def instantaneous(self, answer: Permanent, entropy: Entropy) -> Vector:
        """Every bit of the permanent answer, kept or turned over independently."""
        kept = [bernoulli_2_64(self.second, entropy) for _ in range(self.k)]
        bits = reversed(f"{answer:0{self.k}b}")
        return [int((bit == "1") == keep) for bit, keep in zip(bits, kept, strict=True)]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.uint8]:
        """n places -> bits, shape (n, k), both rounds afresh."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty((checked.size, self.k), np.uint8)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, max(1, _BLOCK // self.k))

    def _answers(self, codes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.bool_]:
        import numpy as np

        shape = codes.size, self.k
        bits = bernoulli_2_64_many(ONE - self.first, codes.size * self.k, stream).reshape(shape)
        bits[np.arange(codes.size), codes] = bernoulli_2_64_many(ONE // 2, codes.size, stream)
        kept = bernoulli_2_64_many(self.second, codes.size * self.k, stream).reshape(shape)
        answers: npt.NDArray[np.bool_] = bits == kept
        return answers


def bits_ratio(p1: Fraction, q1: Fraction, p2: Fraction, q2: Fraction, *, reports: int) -> Fraction:
    """Largest ratio of `reports` reports of two values, each a row of bits that were drawn twice.

    A bit's permanent value is 1 with p1 (the value's own) or q1 (another's); a report shows a 1 with p2 where that is 1
    and with q2 where it is 0; p1 >= q1, p2 >= q2. Two values differ in two bits, which are drawn independently.
    """

    def chance(permanent: Fraction, one: Fraction, zero: Fraction) -> Fraction:
        return permanent * one**reports + (1 - permanent) * zero**reports

    set_ones = chance(p1, p2, q2) / chance(q1, p2, q2)
    return set_ones * chance(q1, 1 - p2, 1 - q2) / chance(p1, 1 - p2, 1 - q2)
