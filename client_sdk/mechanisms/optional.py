"""Numbers that may be missing: the number, always sent, and a noisy bit that says whether there was one.

Rules of this file: a report is the number mechanism's integer and one bit, kept with a probability that is an integer
over 2^64, rounded *down*. A device without a reading sends the middle of the range, through the same noise: nothing but
the bit's and the number's own noise lies between the two kinds of devices. Each part has its own share of epsilon.
The mean over the devices that had a reading is a *ratio*: with d the middle, S' the sum of the readings' distances from
d (devices without one add 0) and C the number of devices with one, it is d + S'/C. Both are unbiased and independent;
their ratio is nearly so only where C stands clear of its own noise, and no mean is given where it does not.
What it does not do: hide how many devices had a reading from the reader of the totals; that is a row of its own.

Privacy: the two parts are drawn independently; their ratios multiply, and the two epsilons add up to at most epsilon.
Source: Warner, "Randomized Response" (JASA 1965); Fieller, "Some Problems in Interval Estimation" (JRSS B 1954).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.errors import PlanError
from client_sdk.mechanisms import Answer, Entropy, Estimate, Value, Vector, check_total
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.parameters import EPSILON_MIN, ONE, as_decimal, epsilon_problems, share_numerator
from client_sdk.sampling import bernoulli_2_64
from client_sdk.sampling_vectorised import Keystream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EXACT = Context(prec=200)
CLEAR_ERRORS = 4
"""A mean is given where the number of devices with a reading is at least so many of its standard errors.

The ratio's bias is then below a quarter of its standard error: about r V(C)/C^2 against at least r sqrt(V(C))/C.
"""


@dataclass(frozen=True, slots=True)
class RatioParts:
    """What one plan version's total says of a mean over devices with a reading; parts of several versions add up.

    excess: S', in the metric's unit, for this cohort; count: C. The variances are those of this cohort's noise.
    absent: d. lower, upper: the range. The population's errors need them. contributors: reports in the total.
    count_population_variance: of C, the contributors taken as a sample.
    """

    excess: Fraction
    excess_variance: Fraction
    count: Fraction
    count_variance: Fraction
    absent: Fraction
    lower: Fraction
    upper: Fraction
    contributors: int
    count_population_variance: Fraction


@dataclass(frozen=True, slots=True)
class RatioEstimate(Estimate):
    """(mean, present): `mean` is a ratio of two estimates, `present` a count.

    fieller: what the mean's interval is made from, (sum, its variance, covariance with the count, count, its variance)
    about the estimated mean, for this cohort and for the population; sums are in `unit`.
    """

    centre: float = 0.0
    unit: float = 1.0
    fieller: tuple[tuple[float, float, float, float, float], ...] = ()

    def interval_at(self, z: float, *, population: bool = False) -> tuple[tuple[float, float] | None, ...]:
        """Fieller's interval for the mean, None where it is unbounded; z standard errors for the count."""
        # super() without arguments does not work in a class with slots
        mean, present = Estimate.interval_at(self, z, population=population)
        if mean is None:
            return (None, present)
        ends = fieller_interval(z, *self.fieller[population])
        if ends is None:
            return (None, present)
        return (tuple(self.centre + self.unit * end for end in ends), present)  # type: ignore[return-value]

    def total(self) -> tuple[float | None, float | None]:
        """The sum of the readings, S' + d C, and its standard error for this cohort; None without a mean.

        With t the mean: S' + d C = (S' + (d - t) C) + t C.
        """
        mean, present = self.values
        if mean is None or present is None or not self.fieller:
            return None, None
        _, variance, covariance, _, count_variance = self.fieller[False]
        at = mean / self.unit
        variance += 2.0 * at * covariance + at * at * count_variance
        return mean * present, self.unit * math.sqrt(max(variance, 0.0))


@dataclass(frozen=True)
class OptionalNumber:
    """A number or None -> the inner mechanism's cells, then one bit. PlanError for parameters that cannot work.

    inner: sends the number, at its own epsilon, which must be what `presence_share` leaves of `epsilon`, or less.
    epsilon: of one report, in [1e-6, 40]. presence_share: the part of it that the bit gets, between 0 and 1.
    """

    inner: NumericMechanism
    epsilon: Decimal
    presence_share: Decimal = Decimal("0.25")
    keep: int = field(init=False, repr=False, compare=False)
    """The bit is kept with probability keep / 2^64."""

    def __post_init__(self) -> None:
        epsilon, share = as_decimal("epsilon", self.epsilon), as_decimal("presence_share", self.presence_share)
        problems = [*epsilon_problems(epsilon), *_share_problems(share)]
        if problems:
            raise PlanError(problems)
        presence = Fraction(epsilon) * Fraction(share)
        if presence < Fraction(EPSILON_MIN):
            raise PlanError(
                f"presence_share: leaves less than {EPSILON_MIN:f} of epsilon to the bit; raise one of them"
            )
        if Fraction(self.inner.epsilon) + presence > Fraction(epsilon):
            raise PlanError(f"epsilon: the number's {self.inner.epsilon} and the bit's share are more than {epsilon}")
        keep = share_numerator(presence, 1, 1)
        for name, value in (("epsilon", epsilon), ("presence_share", share), ("keep", keep)):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The plan's word for the inner mechanism."""
        return self.inner.name

    @property
    def length(self) -> int:
        """The inner mechanism's cells and the bit."""
        return self.inner.length + 1

    @property
    def bound(self) -> int:
        """Largest absolute value of any cell."""
        return max(self.inner.bound, 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The mean over devices with a reading, and how many had one."""
        return ("mean", "present")

    @property
    def answer(self) -> Answer:
        """A mean that is a ratio."""
        return "optional_mean"

    @property
    def worst_ratio(self) -> Fraction | float:
        """The product of both parts' ratios: none is larger."""
        bit = Fraction(self.keep, ONE - self.keep)
        inner = self.inner.worst_ratio
        return inner * bit if isinstance(inner, Fraction) else math.nextafter(inner * float(bit), math.inf)

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """The bit's and the number's: sums of their own, drawn independently."""
        presence = EXACT.multiply(self.epsilon, self.presence_share)
        return (PrivacyLoss.of("randomized_response", presence, k=2, keep=self.keep), *self.inner.losses)

    @property
    def absent(self) -> Fraction:
        """What a device without a reading sends: the middle of the range."""
        lattice = self.inner.lattice
        return lattice.low + lattice.width / 2

    # --- device ---------------------------------------------------------------------------------------

    def perturb(self, value: Value, entropy: Entropy) -> Vector:
        """One reading, or None -> the number's integer and the bit. ValueRefusedError before any entropy."""
        cells = self.inner.perturb(self.absent if value is None else value, entropy)
        present = value is not None
        return [*cells, int(present == bernoulli_2_64(self.keep, entropy))]

    def perturb_many(
        self, values: Sequence[Value] | npt.NDArray[np.generic], entropy: Entropy
    ) -> npt.NDArray[np.int64]:
        """n readings, some None -> shape (n, 2). ValueRefusedError before any entropy is drawn."""
        import numpy as np

        present = np.ones(len(values), bool)
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            numbers = self.inner.perturb_many(values, entropy)
        else:
            listed: list[Value] = list(values)
            present[:] = [value is not None for value in listed]
            numbers = np.empty((len(listed), self.inner.length), np.int64)
            numbers[present] = self.inner.perturb_many([value for value in listed if value is not None], entropy)
            count, middle = int((~present).sum()), float(self.absent)
            exact = middle == self.absent  # then it is placed in bulk
            numbers[~present] = self.inner.perturb_many([middle] * count if exact else [self.absent] * count, entropy)
        kept = Keystream(entropy).words(len(values), 8) < np.uint64(self.keep)
        return np.column_stack([numbers, present == kept])

    # --- collector ------------------------------------------------------------------------------------

    def estimate(self, total: Sequence[int], contributors: int) -> RatioEstimate:
        """The summed cells of n reports -> (mean over the devices with a reading, how many there were)."""
        return ratio_of([self.parts(total, contributors)])

    def parts(self, total: Sequence[int], contributors: int) -> RatioParts:
        """What the total adds to a mean over several plan versions; see `ratio_of`."""
        check_total(self.length, total, contributors)
        lattice, law, n, p = self.inner.lattice, self.inner.law, contributors, Fraction(self.keep, ONE)
        ends = (lattice.low, lattice.low + lattice.width)
        if n == 0:
            nothing = Fraction(0)
            return RatioParts(nothing, nothing, nothing, nothing, self.absent, *ends, 0, nothing)
        position = law.position(int(total[0]), n)
        step = lattice.width / lattice.levels
        excess = n * step * (position - Fraction(lattice.levels, 2))
        variance = n * law.cohort_variance(position) * (step / law.slope) ** 2
        count = (int(total[-1]) - n * (1 - p)) / (2 * p - 1)
        seen = 1 - p + (2 * p - 1) * min(max(count / n, Fraction(0)), Fraction(1))
        return RatioParts(
            excess,
            variance,
            count,
            n * p * (1 - p) / (2 * p - 1) ** 2,
            self.absent,
            *ends,
            n,
            n * seen * (1 - seen) / (2 * p - 1) ** 2,
        )

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """The number's cells as the inner mechanism's, the bits between 0 and n."""
        if len(total) != self.length or not 0 <= total[-1] <= contributors:
            return False
        return self.inner.is_plausible(total[:-1], contributors)


def ratio_of(parts: Sequence[RatioParts]) -> RatioEstimate:
    """The mean over all devices with a reading, and their number, from one or more plan versions' parts.

    The mean is sum(S' + d C) / sum(C). With t the mean, its error is that of sum(S' + (d - t) C) / sum(C) (delta
    method); its interval is Fieller's. For the population, readings may lie as far apart as a population with this
    mean can have them, at the ends of their range.
    """
    contributors = sum(part.contributors for part in parts)
    if contributors == 0:
        return RatioEstimate((None, None), (None, None), 0, (None, None))
    count = sum((part.count for part in parts), Fraction(0))
    count_errors = tuple(
        math.sqrt(sum(variances))
        for variances in (
            [part.count_variance for part in parts],
            [part.count_population_variance for part in parts],
        )
    )
    if count < CLEAR_ERRORS * Fraction(count_errors[0]):
        return RatioEstimate((None, float(count)), (None, count_errors[0]), contributors, (None, count_errors[1]))
    mean = sum((part.excess + part.absent * part.count for part in parts), Fraction(0)) / count
    unit = max(part.upper - part.lower for part in parts)
    noise = _about(mean, parts, unit, population=False)
    sampled = _about(mean, parts, unit, population=True)
    errors = [float(unit) * math.sqrt(terms[1]) / float(count) for terms in (noise, sampled)]
    return RatioEstimate(
        (float(mean), float(count)),
        (errors[0], count_errors[0]),
        contributors,
        (errors[1], count_errors[1]),
        float(mean),
        float(unit),
        (noise, sampled),
    )


def _about(
    mean: Fraction, parts: Sequence[RatioParts], unit: Fraction, *, population: bool
) -> tuple[float, float, float, float, float]:
    """(sum, its variance, covariance with the count, count, its variance) for sum(S' + (d - mean) C), in `unit`."""
    variance = covariance = count_variance = Fraction(0)
    for part in parts:
        shift = (part.absent - mean) / unit
        variance += part.excess_variance / unit**2 + shift**2 * part.count_variance
        covariance += shift * part.count_variance
        count_variance += part.count_population_variance if population else part.count_variance
        if population:  # who has a reading, and which, is random too: independent of the mean's place to first order
            inside = min(max(mean, part.lower), part.upper)
            readers = min(max(part.count, Fraction(0)), Fraction(part.contributors))
            variance += readers * (inside - part.lower) * (part.upper - inside) / unit**2
    count = sum((part.count for part in parts), Fraction(0))
    return 0.0, float(variance), float(covariance), float(count), float(count_variance)


def fieller_interval(
    z: float, excess: float, variance: float, covariance: float, count: float, count_variance: float
) -> tuple[float, float] | None:
    """{x: (excess - x count)^2 <= z^2 (variance - 2 x covariance + x^2 count_variance)}; None where unbounded."""
    a = count**2 - z**2 * count_variance
    if a <= 0.0:
        return None
    b = excess * count - z**2 * covariance
    root = math.sqrt(max(b**2 - a * (excess**2 - z**2 * variance), 0.0))
    return (b - root) / a, (b + root) / a


def _share_problems(share: Decimal) -> list[str]:
    if share.is_finite() and 0 < share < 1:
        return []
    return [f"presence_share: must lie between 0 and 1, not {share}"]
