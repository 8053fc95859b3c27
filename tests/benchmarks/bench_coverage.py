"""Do the error bars hold? Each mechanism over 10,000 simulated cohorts of its own samplers; prints a Markdown table.

python -m tests.benchmarks.bench_coverage                  (five to ten minutes)
python -m tests.benchmarks.bench_coverage --cohorts 1000   (a look)

For every row of an estimate (a label's count, a mean, a quantile) and cohort: does the 95 % interval hold the truth?
*This cohort*: the same readings each time, only the noise differs; the truth is theirs. *Population*: readings drawn
anew from the population each time; the truth is the population's. *Wilson*: the score interval of counts, against the
population. MSE/formula: mean squared error against this cohort's truth, over what the mechanism's exact constants and
the true readings give; for rows without a formula over the mean of the squared standard errors. All shares are averages
over rows. Entropy is seeded: the table comes out the same each time.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from math import nan
from typing import Any

import numpy as np

from client_sdk.mechanisms import Estimate, Mechanism
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.hadamard import Hadamard
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.optional import OptionalNumber
from client_sdk.mechanisms.piecewise import Piecewise
from client_sdk.mechanisms.pure import CountEstimate
from client_sdk.mechanisms.quantiles import Quantiles
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.mechanisms.subset_selection import SubsetSelection
from client_sdk.mechanisms.unary import OptimizedUnary, SymmetricUnary
from client_sdk.sampling_vectorised import Keystream

COHORTS = 10_000
REPORTS_PER_CALL = 250_000

Floats = np.ndarray[Any, np.dtype[np.float64]]
Readings = np.ndarray[Any, Any]
D = Decimal


@dataclass(frozen=True)
class Case:
    """One mechanism and the population that its cohorts come from.

    draw: n readings of the population (labels' places, or numbers; NaN: no reading). truth: readings -> the rows that
    an estimate should give. population_truth: the same of the population. formula: readings -> the mean squared error
    of each row, or None. most: percent that the interval for this cohort may hold in.
    """

    name: str
    population: str
    mech: Mechanism
    n: int
    draw: Callable[[np.random.Generator, int], Readings]
    truth: Callable[[Readings], Floats]
    population_truth: Floats
    formula: Callable[[Readings], Floats] | None = None
    most: float = 96.0


@dataclass
class Tally:
    """Sums over cohorts, one element per row of the estimate."""

    rows: int
    cohorts: int = 0
    given: Floats = field(init=False)
    held: Floats = field(init=False)
    wilson: Floats = field(init=False)
    squares: Floats = field(init=False)
    variances: Floats = field(init=False)

    def __post_init__(self) -> None:
        for name in ("given", "held", "wilson", "squares", "variances"):
            setattr(self, name, np.zeros(self.rows))

    def add(self, estimate: Estimate, truth: Floats, *, population: bool) -> None:
        """One cohort. A row without an interval holds nothing and is not counted as given."""
        self.cohorts += 1
        intervals = estimate.interval(0.95, population=population)
        wilson = estimate.wilson(0.95) if population and isinstance(estimate, CountEstimate) else ()
        for row, interval in enumerate(intervals):
            value, error = estimate.values[row], estimate.standard_errors[row]
            if interval is None or value is None or error is None:
                continue
            self.given[row] += 1
            self.held[row] += interval[0] <= truth[row] <= interval[1]
            self.squares[row] += (value - truth[row]) ** 2
            self.variances[row] += error**2
            if wilson:
                low, high = wilson[row]
                self.wilson[row] += low <= truth[row] <= high


@dataclass(frozen=True)
class Row:
    """One line of the table; shares in percent, NaN where there is none. given: rows with an interval at all."""

    case: Case
    this_cohort: float
    population: float
    wilson: float
    mse_over_formula: float
    given: float


def measure(case: Case, cohorts: int) -> Row:
    """Both variants, each over `cohorts` cohorts."""
    generator = np.random.default_rng(_seed(case.name))
    fixed = case.draw(generator, case.n)
    truth = case.truth(fixed)
    this = Tally(len(truth))
    for estimate in estimates(case, lambda: fixed, cohorts, "this cohort"):
        this.add(estimate, truth, population=False)
    sampled = Tally(len(truth))
    for estimate in estimates(case, lambda: case.draw(generator, case.n), cohorts, "population"):
        sampled.add(estimate, case.population_truth, population=True)
    expected = this.variances / this.given if case.formula is None else case.formula(fixed)
    counted = case.mech.answer == "counts" and sampled.wilson.any()
    return Row(
        case,
        100 * float(np.mean(this.held / this.given)),
        100 * float(np.mean(sampled.held / sampled.given)),
        100 * float(np.mean(sampled.wilson / sampled.given)) if counted else nan,
        float(np.mean(this.squares / this.given) / np.mean(expected)),
        100 * float(np.mean(this.given) / this.cohorts),
    )


def estimates(case: Case, readings: Callable[[], Readings], cohorts: int, label: str) -> Iterator[Estimate]:
    """One estimate per cohort, of totals as masks would have left them."""
    entropy = Keystream(lambda size: hashlib.shake_256(f"{case.name} {label}".encode()).digest(size))
    block = max(1, REPORTS_PER_CALL // case.n)
    for start in range(0, cohorts, block):
        count = min(block, cohorts - start)
        reports = report_rows(case.mech, np.concatenate([readings() for _ in range(count)]), entropy)
        totals = reports.reshape(count, case.n, -1).sum(axis=1, dtype=np.int64)
        for total in totals.tolist():
            yield case.mech.estimate(total, case.n)


def report_rows(mech: Mechanism, readings: Readings, entropy: Callable[[int], bytes]) -> Readings:
    """The bulk samplers, which take codes of categories; NaN stands for no reading."""
    if isinstance(mech, CategoricalMechanism):
        return mech.rows(mech.perturb_codes(readings, entropy))
    if not np.isnan(readings).any():
        return mech.perturb_many(readings, entropy)
    return mech.perturb_many([None if np.isnan(value) else value for value in readings.tolist()], entropy)


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


# --- categories -----------------------------------------------------------------------------------------

K, CATEGORY_N = 8, 1000
ZIPF = 1 / np.arange(1, K + 1)
ZIPF = ZIPF / ZIPF.sum()


def categorical(mechanism: type[CategoricalMechanism], epsilon: str) -> Case:
    mech = mechanism(tuple(f"c{i}" for i in range(K)), D(epsilon))
    p, q = float(mech.p), float(mech.q)

    def counts(codes: Readings) -> Floats:
        return np.bincount(codes, minlength=K).astype(np.float64)

    return Case(
        f"{mech.name}, epsilon {epsilon}",
        f"{K} categories, shares as 1/rank",
        mech,
        CATEGORY_N,
        lambda generator, n: generator.choice(K, n, p=ZIPF),
        counts,
        CATEGORY_N * ZIPF,
        lambda codes: (counts(codes) * p * (1 - p) + (codes.size - counts(codes)) * q * (1 - q)) / (p - q) ** 2,
    )


# --- numbers --------------------------------------------------------------------------------------------

NUMBER_N = 500
LOWER, UPPER = 0.0, 100.0


def from_ends(generator: np.random.Generator, n: int) -> Floats:
    """Most readings at either end of the range: the largest variances that a mean allows."""
    return np.where(generator.random(n) < 0.3, UPPER, LOWER)


def skewed(generator: np.random.Generator, n: int) -> Floats:
    """Mean 100/6, none beyond the range: a beta (1, 5) variable."""
    return generator.beta(1.0, 5.0, n) * UPPER


POPULATIONS = {
    "30 % at the upper end, the others at the lower": (from_ends, 30.0),
    "skewed, mean a sixth of the range": (skewed, 100 / 6),
}


def numeric(mechanism: type[NumericMechanism], epsilon: str, population: str) -> Case:
    mech = mechanism(D(0), D(100), D(epsilon))
    draw, mean = POPULATIONS[population]
    law, steps = mech.law, mech.lattice.levels

    def formula(values: Readings) -> Floats:
        """Exact: each reading's variance, by its place t from the middle and its rounding."""
        place = values / UPPER * steps
        part = place - np.floor(place)
        t = place - steps / 2
        square = t**2 + part * (1 - part)
        each = float(law.base) + float(law.growth) * square - float(law.slope**2) * t**2
        return np.array([each.sum() * (UPPER / steps / float(law.slope)) ** 2 / values.size**2])

    return Case(
        f"{mech.name}, epsilon {epsilon}",
        population,
        mech,
        NUMBER_N,
        draw,
        lambda values: np.array([values.mean()]),
        np.array([mean]),
        formula,
    )


def optional(mechanism: type[NumericMechanism], epsilon: str) -> Case:
    """Four of five devices have a reading."""
    inner = mechanism(D(0), D(100), D(epsilon) * D("0.75"))
    mech = OptionalNumber(inner, D(epsilon))

    def draw(generator: np.random.Generator, n: int) -> Floats:
        return np.where(generator.random(n) < 0.8, skewed(generator, n), nan)

    n = 2 * NUMBER_N
    return Case(
        f"{mech.name}, optional, epsilon {epsilon}",
        "skewed, a fifth without a reading",
        mech,
        n,
        draw,
        lambda values: np.array([np.nanmean(values), np.isfinite(values).sum()]),
        np.array([100 / 6, 0.8 * n]),
    )


# --- distributions --------------------------------------------------------------------------------------

BINS, FINE_BINS = 16, 64
SHARES = (D("0.5"), D("0.9"))


def even_edges(bins: int) -> tuple[Decimal, ...]:
    return tuple(D(100) * place / bins for place in range(bins + 1))


def histogram(mechanism: str, epsilon: str) -> Case:
    mech = Histogram(even_edges(BINS), D(epsilon), mechanism)
    edges = [float(edge) for edge in mech.edges]

    def counts(values: Readings) -> Floats:
        return np.histogram(values, edges)[0].astype(np.float64)

    shares = np.diff([1 - (1 - edge / UPPER) ** 5 for edge in edges])
    population = CATEGORY_N * shares
    return Case(
        f"histogram by {mechanism}, epsilon {epsilon}",
        f"skewed, {BINS} bins",
        mech,
        CATEGORY_N,
        skewed,
        counts,
        population,
    )


def quantiles(mechanism: str, epsilon: str, bins: int = BINS, n: int = 4000) -> Case:
    mech = Quantiles(even_edges(bins), D(epsilon), mechanism, SHARES)
    asked = [float(share) for share in SHARES]
    return Case(
        f"quantiles by {mechanism}, epsilon {epsilon}",
        f"skewed, {bins} bins, p50 and p90",
        mech,
        n,
        skewed,
        lambda values: np.quantile(values, asked),
        np.array([UPPER * (1 - (1 - share) ** 0.2) for share in asked]),
        most=99.0,  # where a band over all shares meets the asked one: wider than need be, more so where bins are few
    )


ENDS, SKEWED = POPULATIONS

CASES: dict[str, Callable[[], Case]] = {
    "randomized_response": lambda: categorical(RandomizedResponse, "1"),
    "symmetric_unary": lambda: categorical(SymmetricUnary, "1"),
    "optimized_unary": lambda: categorical(OptimizedUnary, "1"),
    "subset_selection": lambda: categorical(SubsetSelection, "1"),
    "hadamard": lambda: categorical(Hadamard, "1"),
    "laplace": lambda: numeric(Laplace, "1", SKEWED),
    "one_bit": lambda: numeric(OneBit, "0.5", SKEWED),
    "piecewise": lambda: numeric(Piecewise, "1", ENDS),
    "hybrid": lambda: numeric(Hybrid, "1", SKEWED),
    "laplace, optional": lambda: optional(Laplace, "2"),
    "histogram": lambda: histogram("subset_selection", "1"),
    "quantiles": lambda: quantiles("subset_selection", "1"),
    "quantiles, square_wave": lambda: quantiles("square_wave", "1"),
    "quantiles, square_wave, fine bins": lambda: quantiles("square_wave", "1", FINE_BINS),
}
"""One per mechanism. Where an error bar is a bound over all cohorts with the same mean (piecewise), the readings are
those that reach it."""


COLUMNS = ("mechanism", "readings", "n", "this cohort, %", "population, %", "Wilson, %", "MSE/formula")
HEADER = (f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}")


def as_markdown(row: Row) -> str:
    """One line under `HEADER`."""
    shares = ("" if np.isnan(share) else f"{share:.2f}" for share in (row.this_cohort, row.population, row.wilson))
    cells = [row.case.name, row.case.population, f"{row.case.n:,}", *shares, f"{row.mse_over_formula:.3f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured coverage of 95 % intervals, per mechanism.")
    parser.add_argument("--cohorts", type=int, default=COHORTS)
    parser.add_argument("--only", choices=CASES, action="append", help="may be given several times")
    args = parser.parse_args()
    print(f"95 % intervals, {args.cohorts:,} cohorts per mechanism and variant:\n", *HEADER, sep="\n", flush=True)
    notes = []
    for name in args.only or CASES:
        row = measure(CASES[name](), args.cohorts)
        print(as_markdown(row), flush=True)
        if row.given < 100:
            notes.append(f"\n{row.case.name}: an interval in {row.given:.2f} % of rows, in the others none is claimed")
    print(*notes, sep="\n")


if __name__ == "__main__":
    main()
