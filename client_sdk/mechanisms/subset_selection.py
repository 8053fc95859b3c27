"""Categories: subset selection. A report is a set of w labels that holds the device's own one more often than not.

Rules of this file: the own label is in with a probability that is an integer over 2^64, rounded *down*; the other
labels of the set are a uniform subset of the other k-1, drawn exactly. A report is k bits, w of them 1: it has no
order, so none can tell which label is the device's. The estimator undoes the rounded integer.
What it does not do: clip or rescale estimates.

Privacy: a set that holds the own label has probability p / C(k-1, w-1), any other (1-p) / C(k-1, w); the largest
ratio is p (k-w) / ((1-p) w) <= e^epsilon, because p <= w e^epsilon / (w e^epsilon + k - w).
Source: Ye, Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy" (IEEE
Trans. Inf. Theory 2018); Wang et al., "Mutual Information Optimally Local Private Discrete Distribution Estimation"
(2016). Uniform subsets: Fan, Muller, Rezucha (JASA 1962), and Floyd (Bentley, CACM 1987).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from client_sdk.mechanisms import Entropy, Vector
from client_sdk.mechanisms.categories import CategoricalMechanism, checked_codes
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.mechanisms.pure import exact_mean_squared_error
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many, in_blocks, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK = 1 << 22
"""Bits per pass: enough rows to make the many small steps of `choose_many` cheap."""

LISTED = 1 << 16
"""Bytes that a list of all subsets may have: where it fits a processor's caches, picking from it is quickest."""


@lru_cache(maxsize=1024)
def best_size(k: int, epsilon: Decimal) -> int:
    """w: the better of the two whole numbers around k / (e^epsilon + 1), at least 1."""
    below = (k * (ONE - share_numerator(epsilon, 1, 1))) // ONE
    sizes = sorted({max(below, 1), max(min(below + 1, k - 1), 1)})
    return min(sizes, key=lambda size: exact_mean_squared_error(k, *_probabilities(k, size, epsilon)))


def _probabilities(k: int, size: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:
    p = Fraction(share_numerator(epsilon, size, k - size), ONE)
    return p, (p * (size - 1) + (1 - p) * size) / (k - 1)


def probabilities(k: int, epsilon: Decimal) -> tuple[Fraction, Fraction]:
    """(p, q) as drawn, over k labels."""
    return _probabilities(k, best_size(k, epsilon), epsilon)


@dataclass(frozen=True)
class SubsetSelection(CategoricalMechanism):
    """A category -> `size` of k bits. A compact answer is the row of bits itself, in bytes."""

    size: int = field(init=False, repr=False, compare=False)
    """Labels in each report's set."""
    keep: int = field(init=False, repr=False, compare=False)
    """The own label is in the set with probability keep / 2^64."""

    def _prepare(self) -> None:
        size = best_size(self.k, self.epsilon)
        self._set(size=size, keep=share_numerator(self.epsilon, size, self.k - size))

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "subset_selection"

    @property
    def p(self) -> Fraction:
        """Chance that the own label is in the set."""
        return Fraction(self.keep, ONE)

    @property
    def q(self) -> Fraction:
        """Chance that one given other label is."""
        return (self.p * (self.size - 1) + (1 - self.p) * self.size) / (self.k - 1)

    def _integers(self) -> dict[str, int]:
        return {"size": self.size, "keep": self.keep}

    @property
    def worst_ratio(self) -> Fraction:
        """Of one set's probabilities, with the own label in it and not."""
        return self.p * (self.k - self.size) / ((1 - self.p) * self.size)

    @property
    def ones(self) -> int:
        """As many bits are 1 as the set has labels."""
        return self.size

    # --- device ---------------------------------------------------------------------------------------

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One label's place -> k bits, `size` of them 1."""
        own = bernoulli_2_64(self.keep, entropy)
        chosen = self._others(own, entropy)
        bits = [0] * self.k
        for place in chosen:  # a place among the others: the own label's stands for the last label
            bits[place if place != code else self.k - 1] = 1
        bits[code] = int(own)
        return bits

    def _others(self, own: bool, entropy: Entropy) -> set[int]:
        """A uniform subset of 0 .. k-2, one smaller if the own label is in (Floyd). The draws are the same."""
        chosen: set[int] = set()
        for last in range(self.k - 1 - self.size, self.k - 1):
            place = uniform_below(last + 1, entropy)
            chosen.add(last if place in chosen else place)
            if own and last == self.k - 1 - self.size:
                chosen.clear()
        return chosen

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.uint8]:
        """n places -> bits, shape (n, k). ValueRefusedError before any entropy is drawn."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty((checked.size, self.k), np.uint8)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, max(1, BLOCK // self.k))

    def _answers(self, codes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.uint8]:
        """Others' places first, 0 .. k-2; then the own label's place there is moved to the last label."""
        import numpy as np

        own = bernoulli_2_64_many(self.keep, codes.size, stream)
        sizes = self.size - own.astype(np.int64)
        listed = math.comb(self.k - 1, self.size) * self.k <= LISTED
        bits = (choose_listed if listed else choose_many)(self.k - 1, sizes, stream)
        every = np.arange(codes.size)
        bits[:, -1] = bits[every, np.minimum(codes, self.k - 2)]
        bits[every, codes] = own
        return bits


def choose_listed(places: int, sizes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.uint8]:
    """As `choose_many`, by a uniform pick from the list of all subsets of a size."""
    import numpy as np

    rows = np.empty((sizes.size, places + 1), np.uint8)
    for size in range(int(sizes.min(initial=places)), int(sizes.max(initial=0)) + 1):
        wanted = np.flatnonzero(sizes == size)
        if wanted.size:
            subsets = _subsets(places, size)
            rows[wanted] = subsets[uniform_below_many(len(subsets), wanted.size, stream)]
    return rows


@lru_cache(maxsize=64)
def _subsets(places: int, size: int) -> npt.NDArray[np.uint8]:
    """All subsets of that size as bits, shape (how many, places + 1), the last 0."""
    import numpy as np

    subsets = list(combinations(range(places), size))
    bits = np.zeros((len(subsets), places + 1), np.uint8)
    for row, subset in zip(bits, subsets, strict=True):
        row[list(subset)] = 1
    bits.flags.writeable = False
    return bits


def choose_many(places: int, sizes: npt.NDArray[np.int64], stream: Keystream) -> npt.NDArray[np.uint8]:
    """For each of n sizes a uniform subset of that many of `places`: bits, shape (n, places + 1), the last unused.

    Every place is taken with one probability, and then places drawn at random are taken or dropped until the size is
    right. All places are treated alike, so subsets of one size are equally probable, whatever that probability is.
    """
    import numpy as np

    keys = np.frombuffer(stream(sizes.size * (places + 1)), np.uint8)
    bits = (keys < _first_share(places, sizes)).view(np.uint8)
    rows = bits.reshape(sizes.size, places + 1)
    missing = sizes.copy()
    for start in range(0, places, 255):
        missing -= rows[:, start : min(start + 255, places)].sum(axis=1, dtype=np.uint8)
    _even_out(bits, places, missing, stream)
    return rows


def _even_out(bits: npt.NDArray[np.uint8], places: int, missing: npt.NDArray[np.int64], stream: Keystream) -> None:
    """Take that many places more in each row, or drop them where it is negative; in place, one a row and pass."""
    import numpy as np

    open_rows = np.flatnonzero(missing)
    missing = missing[open_rows]
    changed, missing = (
        (missing < 0).astype(np.uint8),
        np.abs(missing),
    )  # a place that is 1 is changed, where too many are
    starts = open_rows * (places + 1)
    while starts.size:
        drawn = starts + uniform_below_many(places, starts.size, stream)
        fits = bits[drawn] == changed
        bits[drawn] ^= fits
        missing -= fits
        left = np.flatnonzero(missing)
        starts, missing, changed = starts[left], missing[left], changed[left]


def _first_share(places: int, sizes: npt.NDArray[np.int64]) -> int:
    """How probable each place is at first, of 256: so that most sets are a little small, for adding is quicker."""
    few = int(sizes.min(initial=places))
    return max(few - math.isqrt(few * (places - few) // places), 0) * 256 // places
