"""Decoding of counts: exact quotients, error bars of two kinds, Wilson's interval, mean squared error."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from client_sdk.mechanisms import normal_quantile
from client_sdk.mechanisms.pure import exact_mean_squared_error, mean_squared_error, pure_estimate

HALF, TENTH = Fraction(1, 2), Fraction(1, 10)


def test_each_count_is_the_float_nearest_to_the_exact_quotient() -> None:
    p, q = Fraction((1 << 63) + 12345, 1 << 64), Fraction(3, 7 << 40)
    supports = [0, 1, 17, 10**6, 10**15]
    values = pure_estimate(supports, 10**15, p, q).values
    assert values == tuple(float((c - 10**15 * q) / (p - q)) for c in supports)


def test_counts_may_be_negative_and_above_n() -> None:
    values = pure_estimate([0, 100], 100, HALF, TENTH).values
    assert values == (-25.0, 225.0)


def test_both_kinds_of_error() -> None:
    """n=100, p=1/2, q=1/10: half of the devices have label 0, 10 label 1, and an estimate below 0 counts as none."""
    estimate = pure_estimate([30, 14, 0, 100], 100, HALF, TENTH)
    assert estimate.values == pytest.approx((50, 10, -25, 225))
    own, other, gap = 0.25, 0.09, 0.4
    cohort = [(50 * own + 50 * other), (10 * own + 90 * other), 100 * other, 100 * own]
    assert estimate.standard_errors == pytest.approx([c**0.5 / gap for c in cohort])
    population = [100 * s * (1 - s) for s in (0.3, 0.14, 0.1, 0.5)]
    assert estimate.population_errors == pytest.approx([v**0.5 / gap for v in population])
    low, high = estimate.interval(0.95, population=True)[0] or (0, 0)
    assert (high - low) / 2 == pytest.approx(1.959964 * estimate.population_errors[0])


def test_population_errors_hold_the_sampling_too() -> None:
    """Their variance is the cohort's plus that of who is drawn: n f(1-f)."""
    estimate = pure_estimate([30, 14], 100, HALF, TENTH)
    for value, cohort, population in zip(
        estimate.values, estimate.standard_errors, estimate.population_errors, strict=True
    ):
        assert value is not None
        assert cohort is not None
        assert population is not None
        assert population**2 == pytest.approx(cohort**2 + value * (1 - value / 100))


def test_nobody() -> None:
    estimate = pure_estimate([0, 0], 0, HALF, TENTH)
    assert estimate.values == estimate.standard_errors == estimate.population_errors == (None, None)
    assert estimate.interval() == estimate.wilson() == (None, None)


def test_supports_may_be_numpys() -> None:
    estimate = pure_estimate(np.array([30, 14]), 100, HALF, TENTH)  # type: ignore[arg-type]
    assert estimate == pure_estimate([30, 14], 100, HALF, TENTH)
    assert all(type(cell) is int for cell in estimate.supports)
    assert all(type(value) is float for value in (*estimate.values, *estimate.standard_errors))


# --- Wilson's interval -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("support", [0, 1, 30, 99, 100])
def test_wilson_ends_are_where_the_score_test_turns(support: int, level: float) -> None:
    """At either end s, |C - n s| is z standard errors under s itself."""
    ends = pure_estimate([support], 100, HALF, TENTH).wilson(level)[0]
    z = normal_quantile(level)
    assert ends is not None
    for end, side in zip(ends, (1, -1), strict=True):
        s = 0.1 + end / 100 * 0.4
        assert side * (support - 100 * s) == pytest.approx(z * max(100 * s * (1 - s), 0) ** 0.5, abs=1e-6)
    assert ends[0] < ends[1], "a width even at none and at all"


def test_wilson_for_all_rows_at_once_is_wider() -> None:
    estimate = pure_estimate([30, 14, 5], 100, HALF, TENTH)
    one, three = estimate.wilson(0.95)[0], estimate.wilson(0.95, simultaneous=True)[0]
    assert one is not None
    assert three is not None
    assert three == estimate.wilson(1 - 0.05 / 3)[0]
    assert three[0] < one[0] < one[1] < three[1]


def test_wilson_covers_the_sampled_population_on_average() -> None:
    """Exactly, over all supports of 200 reports, and over the shares: 95 % or close to it."""
    n, covered = 200, []
    for f in (0.01, 0.05, 0.2, 0.5, 0.8):
        s = 0.1 + 0.4 * f
        estimates = pure_estimate(range(n + 1), n, HALF, TENTH)
        inside = [low <= f * n <= high for low, high in estimates.wilson()]  # type: ignore[misc]
        covered.append(sum(comb(n, c) * s**c * (1 - s) ** (n - c) for c in range(n + 1) if inside[c]))
    assert min(covered) > 0.93
    assert sum(covered) / len(covered) == pytest.approx(0.95, abs=0.01)


# --- mean squared error --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 5, 100])
def test_mean_squared_error_is_the_average_over_labels(k: int) -> None:
    p, q = Fraction(7, 11), Fraction(2, 9)
    one_label = [
        (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2 for f in [Fraction(1)] + [Fraction(0)] * (k - 1)
    ]
    assert exact_mean_squared_error(k, p, q) == sum(one_label) / k
    assert mean_squared_error(k, p, q) == pytest.approx(mean_squared_error(k, float(p), float(q)), rel=1e-12)
