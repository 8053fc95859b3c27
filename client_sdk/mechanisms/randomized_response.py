"""Categories: k-ary randomised response, reported as a one-hot vector.

Rules of this file: the true category is kept with a probability that is an integer over 2^64, rounded *down*
(towards more privacy); a lie is uniform over the k-1 other categories, by exact rejection, never by modulo and
never over all k (that would keep the truth too often). The estimator undoes the rounded integer, not the
formula. Every report is k integers, one of them 1.
What it does not do: clip or rescale estimates; a rare category's count may come out negative.

Privacy: largest ratio = keep (k-1) / (2^64 - keep) <= e^epsilon, because keep <= 2^64 e^epsilon/(e^epsilon+k-1).
Source: Kairouz, Bonawitz, Ramage, "Discrete Distribution Estimation under Local Privacy" (ICML 2016); variance:
Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (USENIX Security 2017).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism, checked_codes
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, in_blocks, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK = 1 << 14
"""Reports per pass: above, each of the pass's arrays would cost fresh pages of memory."""


def probabilities(k: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:
    """(p, q) as drawn, over k labels."""
    p = Fraction(share_numerator(epsilon, 1, k - 1), ONE)
    return p, (1 - p) / (k - 1)


@dataclass(frozen=True)
class RandomizedResponse(CategoricalMechanism):
    """A category -> a one-hot vector over `labels`; a compact answer is the place of its 1."""

    keep: int = field(init=False, repr=False, compare=False)
    """The true category is reported with probability keep / 2^64."""

    def _prepare(self) -> None:
        self._set(keep=share_numerator(self.epsilon, 1, self.k - 1))

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "randomized_response"

    @property
    def p(self) -> Fraction:
        """Chance that the true category is reported."""
        return Fraction(self.keep, ONE)

    @property
    def q(self) -> Fraction:
        """Chance that one given other category is."""
        return (1 - self.p) / (self.k - 1)

    def _integers(self) -> dict[str, int]:
        return {"keep": self.keep}

    @property
    def worst_ratio(self) -> Fraction:
        """p / q."""
        return self.p / self.q

    # --- device ---------------------------------------------------------------------------------------

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One label's place -> k integers, one of them 1."""
        keep = bernoulli_2_64(self.keep, entropy)
        lie = uniform_below(self.k - 1, entropy)  # drawn in any case: a report's work is the same
        answer = code if keep else lie + (lie >= code)
        return [int(cell == answer) for cell in range(self.k)]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.int64]:
        """n places -> n reported places, shape (n,). ValueRefusedError before any entropy is drawn."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty(checked.size, np.int64)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, BLOCK)

    def _answers(self, codes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.int64]:
        """code + a step, modulo k: 0 with keep / 2^64, else uniform over 1 .. k-1."""
        import numpy as np

        keep = stream.words(codes.size, 8) < np.uint64(self.keep)
        steps = uniform_below_many(self.k - 1, codes.size, stream) + 1
        steps[keep] = 0
        steps += codes
        steps -= self.k * (steps >= self.k)
        return steps
