"""Places on a line: the square wave mechanism, reported as a one-hot vector that is longer than the line.

Rules of this file: the answer lies in the window of 2b+1 cells around the true place with a probability that is an
integer over 2^64, rounded *down* (towards more privacy), uniform within; else uniform over the d-1 cells outside, by
exact rejection. Every place has the same number of cells inside and outside, so the line's ends need no care. Every
report is d + 2b integers, one of them 1.
The estimate is the smoothed one (expectation maximisation, each step averaged with its neighbours): far less error
than d unbiased counts where the distribution is smooth, and *biased* where it is not. It is labelled `smoothed`.
What it does not do: serve categories without an order.

Privacy: largest ratio = inside (d-1) / ((2^64 - inside) (2b+1)) <= e^epsilon.
Source: Li, Wang, Lopuhaa-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local Differential
Privacy" (SIGMOD 2020): section 5.2 (mechanism), 5.3 (the width b), 5.5 (EM with smoothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError
from client_sdk.mechanisms import Answer, Entropy, Estimate, Vector, check_total
from client_sdk.mechanisms.categories import checked_codes, counted, one_hot
from client_sdk.mechanisms.parameters import ONE, as_decimal, epsilon_problems, share_numerator
from client_sdk.mechanisms.smoothing import Shares, WindowLaw, smoothed_shares
from client_sdk.sampling import bernoulli_2_64, uniform_below
from client_sdk.sampling_vectorised import Keystream, bernoulli_2_64_many, in_blocks, uniform_below_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK = 1 << 14
"""Reports per pass, as in `randomized_response`."""
BINS_MAX = 4096
PLANNED_BINS_MAX = 1024
"""Of a metric in a plan: smoothing takes time and memory with the square of the bins, minutes and gigabytes above."""


@dataclass(frozen=True)
class SquareWave:
    """A place on a line of d -> a one-hot vector over d + 2b cells. PlanError for parameters that cannot work.

    labels: of the places, in order, 2 .. 4096, all different. epsilon: of one report, in [1e-6, 40].
    A compact answer (`perturb_codes`) is the cell of its 1.
    """

    labels: tuple[str, ...]
    epsilon: Decimal
    reach: int = field(init=False, repr=False, compare=False)
    """b: cells of the window to either side of the true place."""
    inside: int = field(init=False, repr=False, compare=False)
    """The answer lies in the window with probability inside / 2^64."""

    def __post_init__(self) -> None:
        epsilon, labels = as_decimal("epsilon", self.epsilon), tuple(self.labels)
        problems = epsilon_problems(epsilon)
        if not 2 <= len(labels) <= BINS_MAX or len(set(labels)) < len(labels):
            problems.append(f"bins: 2 to {BINS_MAX} different ones are needed, not {len(labels)}")
        if problems:
            raise PlanError(problems)
        reach = best_reach(len(labels), epsilon)
        inside = share_numerator(epsilon, 2 * reach + 1, len(labels) - 1)
        for name, value in {"epsilon": epsilon, "labels": labels, "reach": reach, "inside": inside}.items():
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The plan's word for this mechanism."""
        return "square_wave"

    @property
    def k(self) -> int:
        """Places."""
        return len(self.labels)

    @property
    def window(self) -> int:
        """Cells that the true place makes likely."""
        return 2 * self.reach + 1

    @property
    def length(self) -> int:
        """Cells of a report."""
        return self.k + 2 * self.reach

    @property
    def bound(self) -> int:
        """A vector of bits holds nothing above 1."""
        return 1

    @property
    def answer(self) -> Answer:
        """Counts."""
        return "counts"

    @property
    def smoothed(self) -> bool:
        """The estimates are smoothed, so biased."""
        return True

    @property
    def p(self) -> Fraction:
        """Chance of each one cell of the window."""
        return Fraction(self.inside, ONE * self.window)

    @property
    def q(self) -> Fraction:
        """Chance of each one cell outside."""
        return Fraction(ONE - self.inside, ONE * (self.k - 1))

    @property
    def worst_ratio(self) -> Fraction:
        """p / q."""
        return self.p / self.q

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """One, with the places, and the integers that the mechanism draws with."""
        return (PrivacyLoss.of(self.name, self.epsilon, k=self.k, window=self.window, inside=self.inside),)

    # --- device ---------------------------------------------------------------------------------------

    def perturb_code(self, code: int, entropy: Entropy) -> Vector:
        """One place, 0 .. d-1 -> d + 2b integers, one of them 1."""
        likely = bernoulli_2_64(self.inside, entropy)
        near = code + uniform_below(self.window, entropy)
        far = uniform_below(self.k - 1, entropy)  # both drawn in any case: a report's work is the same
        answer = near if likely else far + self.window * (far >= code)
        return [int(cell == answer) for cell in range(self.length)]

    def perturb_codes(self, codes: npt.NDArray[np.integer], entropy: Entropy) -> npt.NDArray[np.int64]:
        """n places -> n cells, shape (n,). ValueRefusedError before any entropy is drawn."""
        import numpy as np

        checked, stream = checked_codes(codes, self.k, entropy)
        answers = np.empty(checked.size, np.int64)
        return in_blocks(lambda part: self._answers(part, stream), checked, answers, BLOCK)

    def _answers(self, codes: npt.NDArray[np.integer], stream: Keystream) -> npt.NDArray[np.int64]:
        import numpy as np

        likely = bernoulli_2_64_many(self.inside, codes.size, stream) == 1
        near = uniform_below_many(self.window, codes.size, stream) + codes
        far = uniform_below_many(self.k - 1, codes.size, stream)
        far += self.window * (far >= codes)
        return np.where(likely, near, far)

    def rows(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Cells -> one-hot rows, shape (n, d + 2b)."""
        return one_hot(answers, self.length)

    # --- collector ------------------------------------------------------------------------------------

    def total_of(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How often each cell was reported, shape (d + 2b,)."""
        return counted(answers, self.length)

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """Cells between 0 and n that add up to n."""
        cells = [int(cell) for cell in total]
        return len(cells) == self.length and all(cell >= 0 for cell in cells) and sum(cells) == contributors

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """Summed cells of n reports -> d smoothed counts that add up to n."""
        check_total(self.length, total, contributors)
        if contributors == 0:
            return Estimate.empty(self.k)
        import numpy as np

        from client_sdk.mechanisms.cumulative import report_variances

        estimated = self.shares(total)
        variances = report_variances(estimated.gain, self.table(), contributors * estimated.shares)
        errors = [tuple((contributors * np.sqrt(each)).tolist()) for each in variances]
        return Estimate(tuple((contributors * estimated.shares).tolist()), errors[0], contributors, errors[1])

    def shares(self, total: Sequence[int]) -> Shares:
        """Summed cells of at least one report, shape (d + 2b,) -> smoothed shares of the places."""
        import numpy as np

        cells = np.maximum(
            np.asarray(total, np.float64), 0.0
        )  # a total that no reports can add up to has an answer too
        return smoothed_shares(cells if cells.any() else cells + 1.0, self._law)

    def table(self) -> npt.NDArray[np.float64]:
        """P(cell | place), shape (d, d + 2b), each row adding up to 1."""
        return self._law.table()

    @property
    def _law(self) -> WindowLaw:
        return WindowLaw(self.k, self.window, float(self.p), float(self.q))


def best_reach(bins: int, epsilon: Decimal) -> int:
    """The paper's half width b(epsilon), which makes the answer's information about the place largest, in cells.

    b = (e E - E + 1) / (2 E (E - 1 - e)), E = exp(e), of a line of length 1: 1/2 at epsilon 0, 0 at infinity. In
    decimals, because it is part of what ships: the same integer on every machine.
    """
    with localcontext(Context(prec=60)):
        odds = epsilon.exp()
        width = (epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - epsilon))
        return int(width * bins)
