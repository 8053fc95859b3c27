"""Quantiles: parameters, what `auto` comes to, estimates and how often their intervals hold."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache

import numpy as np
import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.choice import CATEGORICAL
from client_sdk.mechanisms.histogram import Histogram, histogram_choice
from client_sdk.mechanisms.quantiles import Quantiles, quantiles_choice, reference_shares
from client_sdk.plan.prices import _expected_cells, _whole
from tests.entropy import seeded

D = Decimal
USUAL = (D("0.5"), D("0.9"), D("0.99"))
WORDS = [*CATEGORICAL, "square_wave"]


def edges(bins: int, upper: int = 100) -> tuple[Decimal, ...]:
    return tuple(D(upper) * place / bins for place in range(bins + 1))


@pytest.mark.parametrize("word", WORDS)
def test_it_is_a_mechanism_and_sends_what_the_histogram_sends(word: str) -> None:
    mech, histogram = Quantiles(edges(20), D(1), word, USUAL), Histogram(edges(20), D(1), word)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.answer, mech.length, mech.bound) == (word, "quantiles", histogram.length, 1)
    assert (mech.worst_ratio, mech.smoothed) == (histogram.worst_ratio, word == "square_wave")
    assert mech.perturb(33.3, seeded("same")) == histogram.perturb(33.3, seeded("same"))
    values = np.linspace(-5, 120, 50)
    reports = mech.perturb_many(values, seeded("same"))
    assert (reports == histogram.perturb_many(values, seeded("same"))).all()
    assert mech.is_plausible(reports.sum(axis=0).tolist(), 50)
    assert mech == Quantiles(edges(20), D(1), word, USUAL) != Quantiles(edges(20), D(1), word, USUAL[:1])


def test_labels() -> None:
    mech = Quantiles(edges(4), D(1), "square_wave", (D("0.05"), D("0.50"), D("0.999")))
    assert mech.labels == ("p5", "p50", "p99.9")


@pytest.mark.parametrize("shares", [(), (D(0),), (D(1),), (D("0.9"), D("0.5")), (D("0.5"), D("0.5")), (D("nan"),)])
def test_quantiles_that_cannot_be_asked(shares: tuple[Decimal, ...]) -> None:
    with pytest.raises(PlanError, match="quantiles"):
        Quantiles(edges(4), D(1), "square_wave", shares)


def test_all_problems_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        Quantiles((D(1), D(0), D(2)), D(1), "square_wave", (D(2),))
    assert [line.partition(":")[0] for line in caught.value.problems] == ["edges", "quantiles"]


@pytest.mark.parametrize("word", WORDS)
def test_quantiles_come_back_with_intervals_around_them(word: str) -> None:
    n = 40_000
    values = np.random.default_rng(5).normal(40, 12, n)
    mech = Quantiles(edges(20), D(2), word, (D("0.1"), D("0.5"), D("0.9")))
    codes = mech.histogram.codes(values)
    total = mech.inner.total_of(mech.inner.perturb_codes(codes, seeded(f"back {word}"))).tolist()
    estimate = mech.estimate(total, n)
    truth = np.quantile(values, [0.1, 0.5, 0.9])
    assert np.array(estimate.values, np.float64) == pytest.approx(truth, abs=4)
    for interval, value, true in zip(estimate.interval(0.9999), estimate.values, truth, strict=True):
        assert interval is not None
        assert value is not None
        assert interval[0] <= value <= interval[1]
        assert interval[0] - 0.5 <= true <= interval[1] + 0.5
    distribution = estimate.distribution
    assert distribution is not None
    assert (np.array(distribution.errors) <= np.array(distribution.population_errors)).all()
    assert mech.estimate([0] * mech.length, 0).values == (None,) * 3


def test_of_devices_that_had_a_reading() -> None:
    n = 30_000
    values = np.random.default_rng(6).normal(40, 12, n)
    present = np.random.default_rng(7).random(n) < 0.6
    mech = Quantiles(edges(20), D(3), "subset_selection", (D("0.5"),), optional=True)
    codes = np.where(present, mech.histogram.codes(values), 20)
    total = mech.inner.total_of(mech.inner.perturb_codes(codes, seeded("present"))).tolist()
    found = mech.distribution(total, n)
    assert abs(found.weight - present.sum()) < 5 * found.weight_error
    (interval,) = mech.estimate(total, n).interval(0.9999)
    assert interval is not None
    assert interval[0] < np.median(values[present]) < interval[1]


# --- auto ------------------------------------------------------------------------------------------------------


BETA_CDF = [1 - (1 - x) ** 5 * (1 + 5 * x) for x in np.linspace(0, 1, 100_001)]
GRID_BINS = (4, 5, 6, 8, 10, 12, 13, 16, 20, 27, 32, 36, 64, 128)
GRID_EPSILONS = ("0.25", "0.5", "1", "2", "3", "4", "6")
CENTRAL = (D("0.2"), D("0.4"), D("0.5"), D("0.6"), D("0.8"))
ASKED = {"p50": (D("0.5"),), "p20 .. p80": CENTRAL, "default": USUAL, "p99": (D("0.99"),)}


@cache
def expected_errors(word: str, bins: int, epsilon: str) -> dict[Decimal, float]:
    """Root mean squared error of each quantile at 10,000 readings spread like Beta(2, 5): noise and bias."""
    shares, asked = reference_shares(bins), tuple(sorted({share for each in ASKED.values() for share in each}))
    mech = Quantiles(edges(bins, 1), D(epsilon), word, asked)
    estimate = mech.estimate(_whole(_expected_cells(mech.inner, shares), 10_000), 10_000)
    truth = np.interp([float(share) for share in asked], BETA_CDF, np.linspace(0, 1, 100_001))
    rows = zip(asked, estimate.noise_errors(), estimate.values, truth, strict=True)
    return {share: math.hypot(noise or 0.0, (value or 0.0) - true) for share, noise, value, true in rows}


@pytest.mark.parametrize(("asked", "margin"), [("p50", 1.15), ("p20 .. p80", 1.15), ("default", 1.08), ("p99", 1.08)])
def test_auto_has_the_least_expected_error_or_nearly(asked: str, margin: float) -> None:
    """What the docstring of `quantiles_choice` and the README say of the grid."""
    worst = {}
    for bins in GRID_BINS:
        for epsilon in GRID_EPSILONS:
            words = [word for word in WORDS if word != "hadamard" or bins <= 16]  # never the best; slow to price
            total = {word: sum(expected_errors(word, bins, epsilon)[share] for share in ASKED[asked]) for word in words}
            choice = quantiles_choice(edges(bins), D(epsilon), ASKED[asked])
            worst[bins, epsilon] = total[choice] / min(total.values())
    assert max(worst.values()) <= margin, max(worst, key=lambda key: worst[key])


def test_what_auto_comes_to() -> None:
    central, tail = (D("0.5"),), USUAL
    for asked, slope in ((central, 7), (tail, 2)):
        for epsilon in ("0.25", "1", "1.5"):
            fewest = math.ceil(6 + slope * D(epsilon))
            assert quantiles_choice(edges(fewest), D(epsilon), asked) == "square_wave"
            assert quantiles_choice(edges(fewest - 1), D(epsilon), asked) == histogram_choice(fewest - 1, D(epsilon))
    assert quantiles_choice(edges(20), D(5), USUAL) == "randomized_response", "where its window is one cell"
    for bins in (17, 31):  # of both the square wave has less than half of the error
        assert quantiles_choice(edges(bins), D("0.25"), central) == "square_wave"


# --- the standard error -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bins", "epsilon"), [(5, "6"), (20, "1"), (20, "6"), (100, "2")])
def test_a_standard_error_is_half_the_widened_interval_at_one(bins: int, epsilon: str) -> None:
    """Five bins at epsilon 6: the noise is 0.3 of a hundred, but nothing is known within a bin of twenty."""
    mech = Quantiles(edges(bins), D(epsilon), "subset_selection", USUAL)
    estimate = mech.estimate(_whole(_expected_cells(mech.inner, reference_shares(bins)), 10_000), 10_000)
    for population, errors in ((False, estimate.standard_errors), (True, estimate.population_errors)):
        halves = [(row[1] - row[0]) / 2 for row in estimate.interval_at(1.0, population=population) if row is not None]
        assert errors == pytest.approx(halves)
    narrow = estimate.noise_errors()
    for noise, error in zip(narrow, estimate.standard_errors, strict=True):
        assert noise is not None
        assert error is not None
        if noise < 25 / bins:  # its interval is shorter than half a bin
            assert error >= 50 / bins - 1e-9
    if bins == 5:
        assert (estimate.standard_errors[0] or 0) >= 10
        assert (narrow[0] or 1) < 0.5


# --- how often intervals hold ------------------------------------------------------------------------------------


def coverage(word: str, epsilon: str, bins: int, n: int, cohorts: int) -> np.ndarray:
    """Share of cohorts with the same readings whose 95 % intervals hold the readings' own p50 and p90."""
    mech = Quantiles(edges(bins), D(epsilon), word, (D("0.5"), D("0.9")))
    generator = np.random.default_rng(11)
    values = np.clip(generator.normal(40, 10, n), 0, 100)
    codes, truth = mech.histogram.codes(values), np.quantile(values, [0.5, 0.9])
    entropy = seeded(f"coverage {word} {epsilon} {bins}")
    held = np.zeros(2)
    for _ in range(cohorts):
        total = mech.inner.total_of(mech.inner.perturb_codes(codes, entropy))
        intervals = mech.estimate(total.tolist(), n).interval()
        held += [row is not None and row[0] <= true <= row[1] for row, true in zip(intervals, truth, strict=True)]
    return held / cohorts


@pytest.mark.parametrize("word", ["randomized_response", "symmetric_unary", "subset_selection", "hadamard"])
def test_intervals_of_categories_hold_as_often_as_they_say(word: str) -> None:
    """Of bins that hold less than noise can explain: fuller ones are taken whole, and intervals hold more often."""
    held = coverage(word, "2", 40, 3000, 400)
    assert (held > 0.95 - 4 * 0.011).all(), held
    assert held[1] < 0.95 + 4 * 0.009, "p50's is shorter than half a bin, and so widened"


def test_intervals_of_the_square_wave_hold_at_least_as_often_where_readings_are_smooth() -> None:
    held = coverage("square_wave", "1", 20, 3000, 200)
    assert (held > 0.95 - 4 * 0.0155).all(), held
