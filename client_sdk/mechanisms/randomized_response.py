"""Categories: k-ary randomised response, reported as a one-hot vector.

Rules of this file: the true category is kept with a probability that is an integer over 2^64, rounded *down*
(towards more privacy); a lie is uniform over the k-1 other categories, by exact rejection, never by modulo and
never over all k (that would keep the truth too often). The estimator undoes the rounded integer, not the
formula. An unknown category goes to the declared `other`, or is refused where there is none: what is sent
always comes from the plan's list. Every report is k integers, one of them 1.
What it does not do: clip or rescale estimates; a rare category's count may come out negative.

Privacy: largest ratio = keep (k-1) / (2^64 - keep) <= e^epsilon, because keep <= 2^64 e^epsilon/(e^epsilon+k-1).
Source: Kairouz, Bonawitz, Ramage, "Discrete Distribution Estimation under Local Privacy" (ICML 2016); variance:
Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (USENIX Security 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Entropy, Estimate, Value, Vector
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CATEGORIES_MAX = 1 << 20
BLOCK = 1 << 14
"""Reports per pass: above, each of the pass's arrays would cost fresh pages of memory."""


@dataclass(frozen=True)
class RandomizedResponse:
    """A category -> a one-hot vector over `labels`. PlanError for parameters that cannot work.

    categories: in plan order, all different, none empty.
    epsilon: of one report, in [1e-6, 40].
    other: the cell for every category not listed, last of the vector; None refuses unknown categories.
    """

    categories: tuple[str, ...]
    epsilon: Decimal
    other: str | None = None
    keep: int = field(init=False, repr=False, compare=False)
    """The true category is reported with probability keep / 2^64."""
    _codes: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon = as_decimal("epsilon", self.epsilon)
        categories = tuple(self.categories)
        labels = categories if self.other is None else (*categories, self.other)
        problems = [*epsilon_problems(epsilon), *_category_problems(categories, self.other)]
        if problems:
            raise PlanError(problems)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "categories", categories)
        object.__setattr__(self, "keep", keep_numerator(len(labels), epsilon))
        object.__setattr__(self, "_codes", {label: code for code, label in enumerate(labels)})

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "randomized_response"

    @property
    def length(self) -> int:
        """k: one element per label."""
        return len(self._codes)

    @property
    def bound(self) -> int:
        """A one-hot vector holds nothing above 1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories in plan order, `other` last."""
        return tuple(self._codes)

    # --- device ---------------------------------------------------------------------------------------

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One category -> k integers, one of them 1. ValueRefusedError before any entropy is drawn."""
        code = self._code(value)
        keep = bernoulli_2_64(self.keep, entropy)
        lie = uniform_below(self.length - 1, entropy)  # drawn in any case: a report's work is the same
        answer = code if keep else lie + (lie >= code)
        return [int(cell == answer) for cell in range(self.length)]

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n categories -> shape (n, k). ValueRefusedError where any is refused, before any entropy is drawn."""
        import numpy as np

        listed: Iterable[Value] = values.tolist() if isinstance(values, np.ndarray) else values
        codes = np.array([self._code(value) for value in listed], np.int64)
        return self.perturb_codes(codes, entropy).astype(np.int64)

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.uint8]:
        """n positions in `labels` (integers in 0 .. k-1) -> one-hot rows, shape (n, k).

        ValueRefusedError for another type or a position out of range, before any entropy is drawn.
        """
        import numpy as np

        codes = np.asarray(codes)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < self.length:
            raise ValueRefusedError("", RefusalReason.UNKNOWN_CATEGORY)
        stream = Keystream(entropy)
        rows = np.zeros((codes.size, self.length), np.uint8)
        for start in range(0, codes.size, BLOCK):
            self._fill(rows[start : start + BLOCK], codes[start : start + BLOCK], stream)
        return rows

    def _fill(self, rows: npt.NDArray[np.uint8], codes: npt.NDArray[np.integer], stream: Keystream) -> None:
        """Set the answer's cell in each zeroed row: code + a step, 0 with keep / 2^64, else uniform over 1 .. k-1."""
        import numpy as np

        keep = stream.words(codes.size, 8) < np.uint64(self.keep)
        steps = uniform_below_many(self.length - 1, codes.size, stream) + 1
        answers = codes.astype(np.int64)
        answers += np.where(keep, 0, steps)
        answers -= self.length * (answers >= self.length)
        rows.reshape(-1)[answers + np.arange(0, rows.size, self.length)] = 1

    def _code(self, value: Value) -> int:
        if not isinstance(value, str):
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        code = self._codes.get(value)
        if code is not None:
            return code
        if self.other is None:
            raise ValueRefusedError("", RefusalReason.UNKNOWN_CATEGORY)
        return self.length - 1

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """k summed cells of n reports -> k counts, unbiased, never clipped: each may be negative, they add up to n.

        count = (C - n q) / (p - q). Standard error for this cohort's values: n [f p(1-p) + (1-f) q(1-q)] / (p-q)^2,
        f the estimated share, cut to [0, 1] in this place only.
        """
        if len(total) != self.length or contributors < 0:
            raise ValueError(
                f"expected {self.length} totals and a count of contributors, got {len(total)}, {contributors}"
            )
        if contributors == 0:
            return Estimate.empty(self.length)
        p = Fraction(self.keep, 1 << 64)
        q = (1 - p) / (self.length - 1)
        counts = [float((int(cell) - contributors * q) / (p - q)) for cell in total]
        true_cell, other_cell, gap = float(p * (1 - p)), float(q * (1 - q)), float(p - q)
        shares = [min(max(count / contributors, 0.0), 1.0) for count in counts]
        errors = [math.sqrt(contributors * (f * true_cell + (1 - f) * other_cell)) / gap for f in shares]
        return Estimate(tuple(counts), tuple(errors), contributors)


def keep_numerator(k: int, epsilon: Decimal) -> int:
    """floor(2^64 e^epsilon / (e^epsilon + k - 1)): 20 digits before the point, of 100 that are computed.

    Taking 10^-70 off first keeps the floor on the private side whatever the last digits' rounding did.
    """
    with localcontext(Context(prec=100)):
        odds = epsilon.exp()
        return int(odds / (odds + (k - 1)) * 2**64 - Decimal("1e-70"))


def _category_problems(categories: tuple[str, ...], other: str | None) -> list[str]:
    problems = []
    if any(not isinstance(name, str) or not name for name in categories):
        problems.append("categories: each must be a text of at least one character")
    elif len(set(categories)) < len(categories):
        problems.append("categories: each may be listed once only")
    if other is not None and (not isinstance(other, str) or not other):
        problems.append("other: must be a text of at least one character")
    elif other in categories:
        problems.append("other: is listed among the categories already; give it a name of its own")
    k = len(categories) + (other is not None)
    if not 2 <= k <= CATEGORIES_MAX:
        problems.append(f"categories: at least 2 (with `other`) and at most {CATEGORIES_MAX} are needed, not {k}")
    return problems
