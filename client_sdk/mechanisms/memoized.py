"""Categories over time: a permanent answer per value, drawn once, and a noisy copy of it in every report.

Rules of this file: the permanent answer is drawn with the mechanism's law at epsilon_inf and never again for the same
value, so that any number of reports of an unchanged value tells at most epsilon_inf about it; each report draws its
instantaneous answer anew from the permanent one; both rounds' probabilities are integers over 2^64, rounded towards
more privacy, and the estimator undoes the exact chain of both. Who keeps the permanent answers, and lets no value
beyond `max_distinct` have one, is the device (`client_sdk.device.memos`).
What it does not do: hide for good *that* the value changed. Reports of two permanent answers look different, however
each was drawn: `change` bounds what one report tells of it, and grows with every report.

`perturb`, `perturb_code` and `perturb_codes` draw both rounds afresh: the law of a first report, for estimates and
audits. A device that called them twice for one value would pay epsilon_first each time, without the epsilon_inf bound.

L-GRR: k-ary randomised response twice; L-OSUE: `memoized_unary`.
Source: Arcolezi, Couchot, Al Bouna, Xiao, "Improving the Utility of Locally Differentially Private Protocols for
Longitudinal and Multidimensional Frequency Estimates" (2022).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING, Final

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError
from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism, checked_codes
from client_sdk.mechanisms.parameters import ONE, as_decimal, epsilon_problems, share_numerator
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LAWS: Final = ("randomized_response", "optimized_unary")
"""The plan's words of mechanisms that can be memoised."""

Permanent = int
"""A permanent answer: a label's place (L-GRR), or the bits of all labels as one integer, the first label's lowest."""


@dataclass(frozen=True)
class Memoized(CategoricalMechanism):
    """A category -> a report of the chain. PlanError for parameters that cannot work.

    epsilon: epsilon_first, what one report alone loses. epsilon_inf: what any number of reports of one value loses;
    above epsilon. max_distinct: how many values a device ever answers for.
    """

    epsilon_inf: Decimal = Decimal(40)
    max_distinct: int = 1
    first: int = field(init=False, repr=False, compare=False)
    """L-GRR: the permanent answer is the true label with probability first / 2^64; L-OSUE: a bit that is not the
    label's own is 1 with probability 1 - first / 2^64."""
    second: int = field(init=False, repr=False, compare=False)
    """The permanent answer (L-OSUE: each of its bits) is reported as it is with probability second / 2^64."""

    def _prepare(self) -> None:
        inf = as_decimal("epsilon_inf", self.epsilon_inf)
        problems = epsilon_problems(inf, "epsilon_inf")
        if not problems and inf <= self.epsilon:
            problems = [
                f"epsilon_inf: must lie above epsilon ({self.epsilon}), which one report alone loses, not {inf}"
            ]
        if type(self.max_distinct) is not int or not 1 <= self.max_distinct <= self.k:
            problems.append(f"max_distinct: must be a whole number from 1 to the {self.k} labels")
        if problems:
            raise PlanError(problems)
        self._set(epsilon_inf=inf)
        self._set(first=self._first_numerator())
        self._set(second=self._second_numerator())
        if not self.second > self._silent:
            raise PlanError("epsilon: too small beside epsilon_inf: no report would tell anything; raise epsilon")

    @abstractmethod
    def _first_numerator(self) -> int:
        """2^64 times the permanent round's likely share, rounded down."""

    @abstractmethod
    def _second_numerator(self) -> int:
        """2^64 times the instantaneous round's likely share, rounded down."""

    @property
    @abstractmethod
    def _silent(self) -> int:
        """`second` where a report says nothing."""

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """Of one report alone; several do not add up (`client_sdk.accounting.memo`)."""
        integers = {"k": self.k, "first": self.first, "second": self.second}
        return (PrivacyLoss.of(f"memoized_{self.name}", self.epsilon, **integers),)

    def _integers(self) -> dict[str, int]:
        return {"first": self.first, "second": self.second}

    @property
    def worst_ratio(self) -> Fraction:
        """Of one report alone."""
        return self.chain_ratio(1)

    @property
    @abstractmethod
    def permanent_ratio(self) -> Fraction:
        """Largest P(permanent answer | value) / P(the same | another value); at most e^epsilon_inf."""

    @abstractmethod
    def chain_ratio(self, reports: int) -> Fraction:
        """Largest ratio of the probabilities of `reports` reports of one value and of another, unchanged, exact."""

    @property
    @abstractmethod
    def change(self) -> float:
        """The epsilon by which one report can tell two permanent answers apart: whether the value is the one of an
        earlier report. Of r reports r times that. Never as a ratio: that of many labels has more digits than memory.
        """

    # --- device ---------------------------------------------------------------------------------------

    @abstractmethod
    def permanent(self, code: int, entropy: Entropy) -> Permanent:
        """A label's place -> its permanent answer. The same entropy gives the same answer: draw it once per value."""

    @abstractmethod
    def instantaneous(self, answer: Permanent, entropy: Entropy) -> Vector:
        """A permanent answer -> one report of k bits, drawn anew each time."""

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """Both rounds afresh: the law of a first report."""
        return self.instantaneous(self.permanent(code, entropy), entropy)


@dataclass(frozen=True)
class MemoizedResponse(Memoized):
    """L-GRR. A compact answer is the place of the report's 1."""

    @property
    def name(self) -> str:
        """The plan's word for the law of each round."""
        return "randomized_response"

    def _first_numerator(self) -> int:
        return share_numerator(self.epsilon_inf, 1, self.k - 1)

    def _second_numerator(self) -> int:
        """Of odds R with (e^inf R + k-1) / (e^inf + R + k-2) = e^first."""
        with localcontext(exact_digits()):
            inf, first = self.epsilon_inf.exp(), self.epsilon.exp()
            odds = (first * (inf + self.k - 2) - (self.k - 1)) / (inf - first)
            return numerator(odds / (odds + self.k - 1))

    @property
    def _silent(self) -> int:
        return ONE // self.k

    @property
    def _rounds(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """(p1, q1, p2, q2)."""
        p1, p2 = Fraction(self.first, ONE), Fraction(self.second, ONE)
        return p1, (1 - p1) / (self.k - 1), p2, (1 - p2) / (self.k - 1)

    @property
    def p(self) -> Fraction:
        """Chance that a report names the device's own label, over both rounds."""
        p1, q1, p2, q2 = self._rounds
        return p1 * p2 + (self.k - 1) * q1 * q2

    @property
    def q(self) -> Fraction:
        """Chance that it names one given other label."""
        return (1 - self.p) / (self.k - 1)

    @property
    def permanent_ratio(self) -> Fraction:
        """p1 / q1."""
        p1, q1, _, _ = self._rounds
        return p1 / q1

    def chain_ratio(self, reports: int) -> Fraction:
        """All reports name the one value: every other sequence of reports tells less."""
        p1, q1, p2, q2 = self._rounds
        odds = (p2 / q2) ** reports
        return (p1 * odds + (self.k - 1) * q1) / (p1 + q1 * (odds + self.k - 2))

    @property
    def change(self) -> float:
        """ln(p2 / q2)."""
        _, _, p2, q2 = self._rounds
        return log_of(p2 / q2)

    # --- device ---

    def permanent(self, code: int, entropy: Entropy) -> Permanent:
        """The label's place, or uniformly one of the others."""
        return _named(code, self.k, self.first, entropy)

    def instantaneous(self, answer: Permanent, entropy: Entropy) -> Vector:
        """A one-hot report: the permanent answer, or uniformly one of the others."""
        reported = _named(answer, self.k, self.second, entropy)
        return [int(cell == reported) for cell in range(self.k)]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.int64]:
        """n places -> n reported places, shape (n,), both rounds afresh."""
        checked, stream = checked_codes(codes, self.k, entropy)
        return _named_many(_named_many(checked, self.k, self.first, stream), self.k, self.second, stream)


def memoized(
    word: str,
    categories: tuple[str, ...],
    epsilon: Decimal,
    other: str | None,
    optional: bool,
    epsilon_inf: Decimal,
    max_distinct: int,
) -> Memoized:
    """The memoised form of a plan's word. PlanError for parameters that cannot work."""
    if word not in LAWS:
        raise PlanError(f"mechanism: memoize goes with {' or '.join(LAWS)}, not {word!r}")
    given = categories, epsilon, other, optional, epsilon_inf, max_distinct
    if word == "randomized_response":
        return MemoizedResponse(*given)
    from client_sdk.mechanisms.memoized_unary import MemoizedUnary

    return MemoizedUnary(*given)


def log_of(ratio: Fraction) -> float:
    """ln of a ratio whose terms may be too large for floats."""
    return log(ratio.numerator) - log(ratio.denominator)


def exact_digits() -> Context:
    """Enough for what `numerator` rounds."""
    return Context(prec=110)


def numerator(share: Decimal) -> int:
    """floor(2^64 share), kept on that side of the last digits' rounding."""
    return max(0, int(share * ONE - Decimal("1e-60")))


def _named(code: int, k: int, keep: int, entropy: Entropy) -> int:
    """`code` with keep / 2^64, else uniformly one of the k - 1 others."""
    kept = bernoulli_2_64(keep, entropy)
    lie = uniform_below(k - 1, entropy)  # drawn in any case: a report's work is the same
    return code if kept else lie + (lie >= code)


def _named_many(codes: npt.NDArray[np.int64], k: int, keep: int, stream: Keystream) -> npt.NDArray[np.int64]:
    """The same for n codes: a step of 0, else of 1 .. k-1, modulo k."""
    import numpy as np

    kept = stream.words(codes.size, 8) < np.uint64(keep)
    steps = uniform_below_many(k - 1, codes.size, stream) + 1
    return np.where(kept, codes, (codes + steps) % k)
