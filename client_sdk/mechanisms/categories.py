"""What every mechanism for categories shares: labels, codes, refusals, and the shape of its two halves.

Rules of this file: a category becomes its code (its place in `labels`) before anything is drawn; an unknown one goes
to the declared `other`, or is refused where there is none, so that what is sent always comes from the plan's list.
No reading at all (None) is the label `absent`, a category like any other, where the metric is optional, and refused
elsewhere.
A mechanism adds three things to this: `perturb_code` (one report, standard library alone), `perturb_codes` (many,
numpy, as compact answers), and `p`, `q`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Answer, Entropy, Value, Vector, check_total
from client_sdk.mechanisms.parameters import as_decimal, epsilon_problems
from client_sdk.mechanisms.pure import CountEstimate, pure_estimate
from client_sdk.sampling_vectorised import Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CATEGORIES_MAX = 1 << 20
ABSENT = "(no reading)"
"""The label for devices without a reading of an optional metric."""

STRIP = 1 << 14
"""Bytes that `column_sums` adds at once: few enough for a processor's first cache."""


@dataclass(frozen=True)
class CategoricalMechanism(ABC):
    """A category -> a vector whose cells support labels. PlanError for parameters that cannot work.

    categories: in plan order, all different, none empty.
    epsilon: of one report, in [1e-6, 40].
    other: the cell for every category not listed; None refuses unknown categories.
    optional: one more label, `ABSENT`, last of all, for devices without a reading.
    """

    categories: tuple[str, ...]
    epsilon: Decimal
    other: str | None = None
    optional: bool = False
    _codes: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon = as_decimal("epsilon", self.epsilon)
        categories = tuple(self.categories)
        labels = [*categories, *([] if self.other is None else [self.other]), *([ABSENT] if self.optional else [])]
        problems = [*epsilon_problems(epsilon), *_category_problems(categories, self.other, optional=self.optional)]
        if problems:
            raise PlanError(problems)
        self._set(epsilon=epsilon, categories=categories, _codes={label: code for code, label in enumerate(labels)})
        self._prepare()

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def _prepare(self) -> None:
        """Work out the mechanism's integers, once the labels and epsilon stand."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The plan's word for this mechanism."""

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """Chance that a report supports its device's own label, as drawn."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """Chance that a report supports any other label, as drawn."""

    @property
    @abstractmethod
    def worst_ratio(self) -> Fraction:
        """Largest P(report | label) / P(report | another label), of the integers as drawn."""

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """One, with `k` and the integers that the mechanism draws with."""
        return (PrivacyLoss.of(self.name, self.epsilon, k=self.k, **self._integers()),)

    @abstractmethod
    def _integers(self) -> dict[str, int]:
        """What fixes the shipped law, beside k."""

    @property
    def k(self) -> int:
        """Labels."""
        return len(self._codes)

    @property
    def length(self) -> int:
        """Elements of the vector: k, one per label, unless a mechanism says otherwise."""
        return self.k

    @property
    def bound(self) -> int:
        """A vector of bits holds nothing above 1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories in plan order, then `other`, then `ABSENT`, where they exist."""
        return tuple(self._codes)

    @property
    def answer(self) -> Answer:
        """Counts."""
        return "counts"

    @property
    def ones(self) -> int | None:
        """How many cells of each report are 1, where that is always the same."""
        return 1

    # --- device ---------------------------------------------------------------------------------------

    @abstractmethod
    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One label's place, 0 .. k-1 -> one report."""

    @abstractmethod
    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[Any]:
        """n places (integers in 0 .. k-1) -> n answers in compact form, for `rows` and `total_of`.

        Compact: the place of a report's only 1, shape (n,), or its bits in bytes, shape (n, length).
        ValueRefusedError for another type or a place out of range, before any entropy is drawn.
        """

    def rows(self, answers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Compact answers -> reports as they are masked, shape (n, length)."""
        return answers if answers.ndim == 2 else one_hot(answers, self.length)

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One category -> `length` bits. ValueRefusedError before any entropy is drawn."""
        return self.perturb_code(self.code(value), entropy)

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n categories -> shape (n, length). ValueRefusedError where any is refused, before any entropy is drawn."""
        import numpy as np

        listed: Iterable[Value] = values.tolist() if isinstance(values, np.ndarray) else values
        codes = np.array([self.code(value) for value in listed], np.int64)
        return self.rows(self.perturb_codes(codes, entropy)).astype(np.int64)

    def code(self, value: Value) -> int:
        """The place in `labels` that a reading counts under. Raises ValueRefusedError."""
        if value is None and self.optional:
            return self.k - 1
        if not isinstance(value, str):
            raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
        code = self._codes.get(value)
        if code is not None and not (self.optional and code == self.k - 1):
            return code
        if self.other is None:
            raise ValueRefusedError("", RefusalReason.UNKNOWN_CATEGORY)
        return self._codes[self.other]

    # --- collector ------------------------------------------------------------------------------------

    def total_of(self, answers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Compact answers -> the sum of their reports, shape (length,): what masks would have left."""
        return column_sums(answers) if answers.ndim == 2 else counted(answers, self.length)

    def supports(self, total: Sequence[int], contributors: int) -> Sequence[int]:  # noqa: ARG002 - Hadamard needs it
        """A total's cells -> how many reports support each label; the cells themselves unless a mechanism says."""
        return total

    def estimate(self, total: Sequence[int], contributors: int) -> CountEstimate:
        """Summed cells of n reports -> k counts, unbiased, never clipped: each may be negative."""
        check_total(self.length, total, contributors)
        supports = [0] * self.k if contributors == 0 else self.supports(total, contributors)
        return pure_estimate(supports, contributors, self.p, self.q)

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """Cells between 0 and n, which add up to n times `ones` where every report has as many."""
        if len(total) != self.length or not all(0 <= cell <= contributors for cell in total):
            return False
        return self.ones is None or sum(total) == contributors * self.ones


def checked_codes(codes: npt.NDArray[np.integer], k: int, entropy: Entropy) -> tuple[npt.NDArray[np.int64], Keystream]:
    """Codes that all lie in 0 .. k-1, and the stream to draw from. Raises ValueRefusedError first."""
    import numpy as np

    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise ValueRefusedError("", RefusalReason.WRONG_TYPE)
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < k:
        raise ValueRefusedError("", RefusalReason.UNKNOWN_CATEGORY)
    return codes.astype(np.int64, copy=False), Keystream(entropy)


def one_hot(answers: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
    """Places in 0 .. length-1, shape (n,) -> rows with a 1 there and else 0, shape (n, length)."""
    import numpy as np

    rows = np.zeros((answers.size, length), np.uint8)
    rows.reshape(-1)[answers + np.arange(0, rows.size, length)] = 1
    return rows


def counted(answers: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """How often each place was reported, shape (length,): the sum of their `one_hot` rows."""
    import numpy as np

    return np.bincount(answers, minlength=length).astype(np.int64)


def column_sums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Rows of bits, shape (n, length) -> how many 1s each column holds, shape (length,).

    Up to 255 rows add up in bytes. Several rows at a time stand side by side, so that each pass adds long runs.
    """
    import numpy as np

    n, length = rows.shape
    side = max(1, STRIP // length)
    total = np.zeros(length, np.int64)
    for start in range(0, n, 255 * side):
        block = rows[start : start + 255 * side]
        whole = len(block) // side
        strip = block[: whole * side].reshape(whole, side * length).sum(axis=0, dtype=np.uint8)
        total += strip.reshape(side, length).sum(axis=0, dtype=np.int64)
        total += block[whole * side :].sum(axis=0, dtype=np.int64)
    return total


def _category_problems(categories: tuple[str, ...], other: str | None, *, optional: bool) -> list[str]:
    problems = []
    if any(not isinstance(name, str) or not name for name in categories):
        problems.append("categories: each must be a text of at least one character")
    elif len(set(categories)) < len(categories):
        problems.append("categories: each may be listed once only")
    if other is not None and (not isinstance(other, str) or not other):
        problems.append("other: must be a text of at least one character")
    elif other in categories:
        problems.append("other: is listed among the categories already; give it a name of its own")
    if optional and ABSENT in (*categories, other):
        problems.append(f"categories: {ABSENT!r} is the label of devices without a reading")
    k = len(categories) + (other is not None) + optional
    if not 2 <= k <= CATEGORIES_MAX:
        problems.append(f"categories: at least 2 (with `other`) and at most {CATEGORIES_MAX} are needed, not {k}")
    return problems
