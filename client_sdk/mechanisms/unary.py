"""Categories: unary encodings. Every label has a bit of its own; each bit is noisy, independently of the others.

Rules of this file: the device's own bit is 1 with probability p, every other bit with probability q; p and q are
integers over 2^64, rounded towards more privacy, and the estimator undoes the rounded ones. Every bit is drawn, the
true one too: a bit that is never cleared would rule out every other label. Every report is k integers, 0 or 1.
What it does not do: hold the number of 1s (0 .. k may be sent), clip or rescale estimates.

Symmetric (basic one-time RAPPOR): p = h/(h+1), q = 1-p, h = e^(epsilon/2). Optimised: p = 1/2, q = 1/(e^epsilon+1).
Privacy: two labels differ in two bits, so the largest ratio is p (1-q) / ((1-p) q) <= e^epsilon.
Source: Erlingsson, Pihur, Korolova, "RAPPOR" (CCS 2014), one-time basic form; Wang, Blocki, Li, Jha, "Locally
Differentially Private Protocols for Frequency Estimation" (USENIX Security 2017), section 4.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism, checked_codes
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many, in_blocks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK = 1 << 18
"""Bits per pass: above, each of the pass's arrays would leave a processor's caches."""


def symmetric_numerators(epsilon: Decimal) -> tuple[int, int]:
    """2^64 p and 2^64 q of the symmetric encoding."""
    own = share_numerator(Fraction(epsilon) / 2, 1, 1)
    return own, ONE - own


def optimized_numerators(epsilon: Decimal) -> tuple[int, int]:
    """2^64 p and 2^64 q of the optimised encoding; q is rounded up."""
    return ONE // 2, ONE - share_numerator(epsilon, 1, 1)


@dataclass(frozen=True)
class _Unary(CategoricalMechanism):
    """A category -> k noisy bits. A compact answer is the row of bits itself, in bytes."""

    own: int = field(init=False, repr=False, compare=False)
    """The device's own bit is 1 with probability own / 2^64."""
    others: int = field(init=False, repr=False, compare=False)
    """Each other bit is 1 with probability others / 2^64."""

    def _prepare(self) -> None:
        own, others = self._numerators()
        self._set(own=own, others=others)

    @abstractmethod
    def _numerators(self) -> tuple[int, int]:
        """2^64 p and 2^64 q."""

    @property
    def p(self) -> Fraction:
        """Chance that a report supports its device's own label."""
        return Fraction(self.own, ONE)

    @property
    def q(self) -> Fraction:
        """Chance that it supports one given other label."""
        return Fraction(self.others, ONE)

    def _integers(self) -> dict[str, int]:
        return {"own": self.own, "others": self.others}

    @property
    def worst_ratio(self) -> Fraction:
        """p (1-q) / ((1-p) q): one label's bit is 1 and another's is 0."""
        return self.p * (1 - self.q) / ((1 - self.p) * self.q)

    @property
    def ones(self) -> int | None:
        """Any number of bits may be 1."""
        return None

    # --- device ---------------------------------------------------------------------------------------

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One label's place -> k bits, each from eight bytes."""
        chances = [self.own if cell == code else self.others for cell in range(self.k)]
        return [int(bernoulli_2_64(chance, entropy)) for chance in chances]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.uint8]:
        """n places -> bits, shape (n, k). ValueRefusedError before any entropy is drawn."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty((checked.size, self.k), np.uint8)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, max(1, BLOCK // self.k))

    def _answers(self, codes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.uint8]:
        """Every bit as an other label's; then each row's own bit anew."""
        import numpy as np

        bits = bernoulli_2_64_many(self.others, codes.size * self.k, stream).reshape(codes.size, self.k)
        bits[np.arange(codes.size), codes] = bernoulli_2_64_many(self.own, codes.size, stream)
        return bits


@dataclass(frozen=True)
class SymmetricUnary(_Unary):
    """p = 1 - q: each bit is told truly with probability h/(h+1), h = e^(epsilon/2)."""

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "symmetric_unary"

    def _numerators(self) -> tuple[int, int]:
        return symmetric_numerators(self.epsilon)


@dataclass(frozen=True)
class OptimizedUnary(_Unary):
    """p = 1/2, q = 1/(e^epsilon+1): the least error for rare labels that unary encodings have."""

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "optimized_unary"

    def _numerators(self) -> tuple[int, int]:
        return optimized_numerators(self.epsilon)


def symmetric_probabilities(k: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:  # noqa: ARG001 - as its peers
    """(p, q) as drawn, over k labels."""
    own, others = symmetric_numerators(epsilon)
    return Fraction(own, ONE), Fraction(others, ONE)


def optimized_probabilities(k: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:  # noqa: ARG001 - as its peers
    """(p, q) as drawn, over k labels."""
    own, others = optimized_numerators(epsilon)
    return Fraction(own, ONE), Fraction(others, ONE)
