"""Shares below edges: exact errors of every mechanism, mixtures, quantiles and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import combinations, pairwise, product
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.choice import CATEGORICAL
from client_sdk.mechanisms.cumulative import _hadamard_least, distribution_of
from client_sdk.mechanisms.distribution import Distribution, mix, non_decreasing, quantiles_of
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.subset_selection import SubsetSelection
from tests.entropy import seeded

D = Decimal


def reports_of(mech: CategoricalMechanism, code: int) -> list[tuple[np.ndarray, float]]:
    """Every report of one label and its probability, from p, q and the mechanism's definition."""
    k, p, q = mech.k, float(mech.p), float(mech.q)
    rows = []
    if mech.name == "hadamard":
        for place in range(mech.length):
            own = bin(place & (code + 1)).count("1") % 2 == 0
            rows.append((np.eye(mech.length)[place], (p if own else 1 - p) * 2 / mech.length))
    elif mech.ones is None:
        for bits in product((0, 1), repeat=k):
            chance = np.prod(
                [(p if i == code else q) if bit else 1 - (p if i == code else q) for i, bit in enumerate(bits)]
            )
            rows.append((np.array(bits, float), float(chance)))
    else:
        w = mech.ones
        for chosen in combinations(range(k), w):
            own = code in chosen
            rows.append(
                (
                    np.isin(np.arange(k), chosen).astype(float),
                    p / comb(k - 1, w - 1) if own else (1 - p) / comb(k - 1, w),
                )
            )
    assert sum(chance for _, chance in rows) == pytest.approx(1)
    return rows


def share_below(mech: CategoricalMechanism, bins: int, edge: int, total: np.ndarray, below: float) -> float:
    """(share below the edge) - `below` times (share of all bins), from one report, the labels' shares shifted to 1."""
    if mech.name == "hadamard":
        signs = [[1 - 2 * (bin(y & (v + 1)).count("1") % 2) for y in range(mech.length)] for v in range(mech.k)]
        supports = [(total.sum() + np.dot(row, total)) / 2 for row in signs]
    else:
        supports = list(total)
    shares = (np.array(supports) - float(mech.q)) / float(mech.p - mech.q)
    shares -= (shares.sum() - 1) / mech.k
    return float(shares[:edge].sum() - below * shares[:bins].sum())


@pytest.mark.parametrize("word", CATEGORICAL)
@pytest.mark.parametrize("epsilon", ["0.7", "3"])
@pytest.mark.parametrize("optional", [False, True])
def test_errors_are_the_exact_ones_of_the_law(word: str, epsilon: str, optional: bool) -> None:
    """Over the complete law of a report of each label: mean and variance of what it adds to the share below an edge."""
    bins, n = 4, 10**12  # so many that rounding the expected total to integers is nothing
    mech = CATEGORICAL[word](tuple("abcd"), D(epsilon), None, optional)
    shares = [0.1, 0.4, 0.2, 0.15, 0.15] if optional else [0.1, 0.4, 0.2, 0.3]
    counts = n * np.array(shares)
    laws = [reports_of(mech, code) for code in range(mech.k)]
    expected = sum(c * sum(chance * row for row, chance in law) for c, law in zip(counts, laws, strict=True))
    present = counts[:bins].sum() / n
    found = distribution_of(mech, [0.0, 1.0, 2.0, 3.0, 4.0], np.rint(expected).astype(int).tolist(), n)
    assert found.cdf == pytest.approx(np.cumsum([0, *counts[:bins]]) / counts[:bins].sum(), abs=1e-9)
    assert found.weight == pytest.approx(counts[:bins].sum())
    for edge in range(1, bins):
        below = found.cdf[edge]
        cohort, seen = 0.0, []
        for count, law in zip(counts, laws, strict=True):
            values = [(share_below(mech, bins, edge, row, below), chance) for row, chance in law]
            mean = sum(value * chance for value, chance in values)
            square = sum(value**2 * chance for value, chance in values)
            cohort += count * (square - mean**2)
            seen.append((count, mean, square))
        assert found.errors[edge] == pytest.approx(sqrt(cohort) / n / present, rel=1e-6)
        mean = sum(c * m for c, m, _ in seen) / n
        population = sum(c * s for c, _, s in seen) / n - mean**2
        assert found.population_errors[edge] == pytest.approx(sqrt(population / n) / present, rel=1e-6)
    assert found.errors[0] == found.errors[-1] == 0.0


def test_long_sums_gain_from_what_all_bins_add_up_to() -> None:
    """The share below the last inner edge is as sure as the share above it: unary bits alone would not be."""
    mech = CATEGORICAL["optimized_unary"](tuple(f"b{i}" for i in range(20)), D(1))
    total = (10_000 * (0.05 * float(mech.p) + 0.95 * float(mech.q)) * np.ones(20)).tolist()
    errors = distribution_of(mech, list(range(21)), total, 10_000).errors
    assert errors == pytest.approx(errors[::-1], rel=1e-9)
    assert max(errors) == errors[10]


@pytest.mark.parametrize("epsilon", ["0.2", "1", "4"])
@pytest.mark.parametrize("optional", [False, True])
def test_hadamards_least_variance_is_below_every_labels(epsilon: str, optional: bool) -> None:
    """Of a report's contribution to the share below each edge, over the complete law of each label."""
    bins = 6 if optional else 7
    mech = CATEGORICAL["hadamard"](tuple(f"b{i}" for i in range(bins)), D(epsilon), None, optional)
    laws = [reports_of(mech, code) for code in range(mech.k)]
    for edge in range(1, bins):
        sizes = np.array([[edge, bins - edge, mech.k - bins]])
        below = 0.35
        weights = np.array([[1 - below, -below, 0.0]])
        weights = weights - (weights * sizes).sum() / mech.k
        (least,) = _hadamard_least(mech, weights, sizes)
        variances = []
        for law in laws:
            values = [(share_below(mech, bins, edge, row, below), chance) for row, chance in law]
            mean = sum(value * chance for value, chance in values)
            variances.append(sum(value**2 * chance for value, chance in values) - mean**2)
        assert 0.0 < least <= min(variances) * (1 + 1e-9)


@pytest.mark.parametrize("word", CATEGORICAL)
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_no_error_is_0_however_few_reports(word: str, epsilon: str) -> None:
    mech = Histogram(tuple(D(place) for place in range(9)), D(epsilon), word)
    generator = np.random.default_rng(8)
    for n in (1, 2, 5):
        for cohort in range(40):
            total = mech.perturb_many(8 * generator.random(n), seeded(f"few {word} {n} {cohort}")).sum(axis=0)
            errors = mech.distribution(total.tolist(), n).errors[1:-1]
            assert min(errors) > 0.1 / sqrt(n)


def test_nobody_and_not_clearly_anybody() -> None:
    mech = SubsetSelection(("a", "b", "c"), D(1), None, True)
    edges = [0.0, 1.0, 2.0, 3.0]
    for total, n in (([0] * 4, 0), ((100 * np.array([float(mech.q)] * 3 + [float(mech.p)])).tolist(), 100)):
        found = distribution_of(mech, edges, total, n)
        assert (found.cdf, found.contributors) == ((), n)
        estimate = quantiles_of(found, (D("0.5"),))
        assert (estimate.values, estimate.standard_errors, estimate.interval()) == ((None,), (None,), (None,))


# --- mixtures ----------------------------------------------------------------------------------------------------


def distribution(
    edges: list[float], cdf: list[float], weight: float, errors: list[float] | None = None
) -> Distribution:
    errors = errors or [0.0] * len(edges)
    return Distribution(tuple(edges), tuple(cdf), tuple(errors), tuple(errors), int(weight), weight)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 60), min_size=3, max_size=8, unique=True).map(sorted),
            st.lists(st.integers(0, 50), min_size=7, max_size=7),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_mixture_is_the_distribution_of_the_union(versions: list[tuple[list[int], list[int]]]) -> None:
    """Readings spread evenly in bins, by version: the mixture has the union's share below every value, to rounding."""
    parts, pieces = [], []
    for edges, all_counts in versions:
        counts = [count + (place == 0) for place, count in enumerate(all_counts[: len(edges) - 1])]
        below = np.cumsum([0, *counts]) / sum(counts)
        parts.append(distribution([float(edge) for edge in edges], below.tolist(), float(sum(counts))))
        pieces += [(low, high, count) for low, high, count in zip(edges, edges[1:], counts, strict=False)]
    mixed = mix(parts)
    readings = sum(count for _, _, count in pieces)
    assert (mixed.weight, mixed.contributors) == (readings, readings), "totals add up"
    assert mixed.edges == tuple(sorted({edge for part in parts for edge in part.edges}))
    for edge, share in zip(mixed.edges, mixed.cdf, strict=True):
        below = sum(count * min(max((edge - low) / (high - low), 0), 1) for low, high, count in pieces)
        assert share == pytest.approx(below / readings, abs=1e-12)
    assert mixed.cdf[0] == 0.0
    assert mixed.cdf[-1] == pytest.approx(1.0)


def test_two_plan_versions_with_other_bins_mix_to_the_union() -> None:
    """Through the mechanisms, where nothing is moved: 20 bins of 0 .. 100 and 50 of 0 .. 200."""
    generator = np.random.default_rng(3)
    parts, union = [], []
    for bins, upper, n in ((20, 100, 4000), (50, 200, 6000)):
        mech = Histogram(tuple(D(upper) * i / bins for i in range(bins + 1)), D(40), "randomized_response")
        values = generator.normal(50, 12, n)
        total = mech.perturb_many(values, seeded(f"mix {bins}")).sum(axis=0).tolist()
        parts.append(mech.distribution(total, n))
        union += values.tolist()
    mixed = mix(parts)
    assert mixed.contributors == mixed.weight == 10_000
    within = max(
        abs(np.mean(np.array(union) < edge) - share) for edge, share in zip(mixed.edges, mixed.cdf, strict=True)
    )
    assert within < 0.015, "a bin's readings are not quite evenly spread"
    shared = mixed.cdf[mixed.edges.index(40.0)]
    assert shared == pytest.approx(np.mean(np.array(union) < 40), abs=1e-9), "an edge of both: no interpolation"


def test_a_mixtures_errors() -> None:
    one = distribution([0, 1, 2], [0, 0.5, 1], 100, [0, 0.1, 0])
    other = distribution([0, 2], [0, 1], 300, [0, 0])
    mixed = mix([one, other])
    assert mixed.errors == pytest.approx((0, 0.1 * 100 / 400, 0))
    unsure = Distribution((0, 1, 2), (0, 0.9, 1), (0, 0, 0), (0, 0, 0), 100, 100.0, 20.0)
    assert mix([unsure, other]).errors[1] == pytest.approx(20 * (0.9 - 0.6) / 400), "20 readings more or fewer"
    assert mix([one, Distribution.empty((0, 5), 7)]).cdf == one.cdf
    assert mix([Distribution.empty((0, 5), 7), Distribution.empty((0, 3))]).contributors == 7
    assert not mix([one, other]).smoothed


# --- quantiles -------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=30))
def test_non_decreasing(shares: list[float]) -> None:
    rising = non_decreasing(shares)
    assert len(rising) == len(shares)
    assert all(0 <= low <= high <= 1 for low, high in pairwise(rising))
    if shares == sorted(shares):
        assert rising == pytest.approx([min(max(share, 0), 1) for share in shares])


def test_non_decreasing_pools_neighbours() -> None:
    assert non_decreasing([0.0, 0.4, 0.2, 0.9, 1.0]) == pytest.approx([0.0, 0.3, 0.3, 0.9, 1.0])


def test_points_lie_where_the_line_passes() -> None:
    found = distribution([0, 10, 20, 40], [0, 0.5, 0.5, 1], 100)
    estimate = quantiles_of(found, (D("0.25"), D("0.5"), D("0.75")))
    assert estimate.values == pytest.approx((5, 15, 30)), "the middle of a flat piece"


def test_intervals_invert_the_band() -> None:
    edges = [float(edge) for edge in range(11)]
    found = distribution(edges, [edge / 10 for edge in edges], 100, [0, *[0.05] * 9, 0])
    estimate = quantiles_of(found, (D("0.5"), D("0.05"), D("0.97")))
    middle, low, high = estimate.interval_at(2.0)
    assert middle == pytest.approx((4, 6))
    assert low == pytest.approx((0.5 / 2, 1.5)), "within the first bin the error runs straight from 0"
    assert high is not None
    assert high[1] <= 10
    assert estimate.standard_errors[0] == pytest.approx(0.5)
    wide = estimate.interval(0.95, simultaneous=True)[0]
    usual = estimate.interval(0.95)[0]
    assert wide is not None
    assert usual is not None
    assert wide[0] < usual[0] < usual[1] < wide[1]


def test_an_interval_is_not_finer_than_the_bins() -> None:
    found = distribution([0, 10, 20, 30], [0, 0.3, 0.7, 1], 10**6, [0, 1e-4, 1e-4, 0])
    within, across = quantiles_of(found, (D("0.5"), D("0.3"))).interval()
    assert within == (10, 20)
    assert across == (0, 20)
    sharp = quantiles_of(distribution([0, 10, 20, 30], [0, 0.3, 0.7, 1], 10**6), (D("0.5"), D("0.3"))).interval()
    assert sharp[0] == (10, 20)
    assert sharp[1] is not None
    assert sharp[1][0] <= 10 <= sharp[1][1]


def held(bins: Sequence[int], sizes: Sequence[int], epsilon: str, cohorts: int) -> np.ndarray:
    """How often the 95 % intervals of p10, p50 and p90 hold the readings' own; most lie in a tenth of 0 .. 1."""
    generator = np.random.default_rng(4)
    versions, union = [], []
    for count, n in zip(bins, sizes, strict=True):
        mech = Histogram(tuple(D(place) / count for place in range(count + 1)), D(epsilon), "randomized_response")
        values = np.clip(generator.exponential(0.08, n), 0, 1)
        versions.append((mech, mech.codes(values), n))
        union += values.tolist()
    asked = (D("0.1"), D("0.5"), D("0.9"))
    truth, entropy, found = np.quantile(union, [0.1, 0.5, 0.9]), seeded(f"held {bins}"), np.zeros(3)
    for _ in range(cohorts):
        parts = []
        for mech, codes, n in versions:
            total = mech.inner.total_of(mech.inner.perturb_codes(codes, entropy)).tolist()
            parts.append(mech.distribution(total, n))
        intervals = quantiles_of(mix(parts), asked).interval()
        found += [row is not None and row[0] <= true <= row[1] for row, true in zip(intervals, truth, strict=True)]
    return found / cohorts


@pytest.mark.parametrize(
    ("bins", "sizes", "epsilon"),
    [((4, 40), (20_000, 2_000), "4"), ((4, 40), (5_000, 500), "1"), ((4, 5), (5_000, 5_000), "3"), ((4,), (500,), "1")],
)
def test_intervals_hold_though_readings_lie_unevenly_in_their_bins(
    bins: tuple[int, ...], sizes: tuple[int, ...], epsilon: str
) -> None:
    """A later version's finer bins make no finer what was counted in coarse ones; nor does noise a full bin's end."""
    assert (held(bins, sizes, epsilon, 60) >= 0.88).all()


def test_of_a_mixture_what_is_left_open_is_each_parts_own_bin() -> None:
    """A quarter of the readings in two bins, of which 0.8 in the first, and three quarters in narrower ones."""
    coarse = distribution([0, 4, 8], [0, 0.8, 1], 100)
    fine = distribution([0, 1, 2, 3, 4, 8], [0, 0.1, 0.2, 0.3, 0.4, 1], 300, [0, 0.1, 0.1, 0.1, 0.1, 0])
    both = mix([coarse, fine])
    assert both.parts == mix([both]).parts == (coarse, fine)
    (interval,) = quantiles_of(both, (D("0.26"),)).interval_at(1.0)
    # Below x in 0 .. 1: at most 0.2 + 0.075 x, and 0.075 x of noise. Below 4 at least 0 + 0.3 - 0.075; beyond, 0.425.
    assert interval == pytest.approx((0.4, 4.0))


def test_a_populations_interval_holds_the_cohorts() -> None:
    """The second bin is fuller than the cohort's noise explains, so taken whole; the population's would explain it."""
    found = distribution([0, 10, 20, 30], [0, 0.3, 0.7, 1], 100, [0, 0.19, 0.19, 0])
    estimate = quantiles_of(replace(found, population_errors=(0, 0.2001, 0.2001, 0)), (D("0.32"),))
    (cohort,), (population,) = estimate.interval_at(1.0), estimate.interval_at(1.0, population=True)
    assert cohort is not None
    assert population is not None
    assert population[0] < cohort[0] < cohort[1] == population[1] == 20


def test_dips_in_the_band_are_filled() -> None:
    """Every value that any crossing allows lies in the interval."""
    found = distribution([0, 1, 2, 3, 4], [0, 0.6, 0.4, 0.6, 1], 100, [0, 0.01, 0.01, 0.01, 0])
    (interval,) = quantiles_of(found, (D("0.5"),)).interval_at(1.0)
    assert interval == (0, 3), "and so do all values of the first and the last such bin, as full as they are"
