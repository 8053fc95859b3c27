"""Optional numbers: shares of epsilon, refusals, the ratio and its interval, adding up over plan versions."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.optional import CLEAR_ERRORS, OptionalNumber, ratio_of
from client_sdk.mechanisms.parameters import ONE
from client_sdk.mechanisms.piecewise import Piecewise
from tests.entropy import Scripted, Untouched, seeded

D = Decimal
KINDS: list[type[NumericMechanism]] = [Laplace, OneBit, Piecewise, Hybrid]


def optional(
    kind: type[NumericMechanism] = Laplace,
    epsilon: str = "1",
    share: str = "0.25",
    lower: str = "0",
    upper: str = "10",
) -> OptionalNumber:
    inner = D(epsilon) * (1 - D(share))
    return OptionalNumber(kind(D(lower), D(upper), inner), D(epsilon), D(share))


# --- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shape(kind: type[NumericMechanism]) -> None:
    mech = optional(kind)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.length, mech.labels, mech.answer) == (
        mech.inner.name,
        2,
        ("mean", "present"),
        "optional_mean",
    )
    assert mech.bound == max(mech.inner.bound, 1)
    assert mech.epsilon == D(1)
    assert mech.keep / ONE == pytest.approx(math.exp(0.25) / (math.exp(0.25) + 1))
    assert float(mech.worst_ratio) == pytest.approx(math.e)
    assert mech == pickle.loads(pickle.dumps(mech))  # noqa: S301 - our own bytes


def test_parameters_that_cannot_work_are_refused() -> None:
    inner = OneBit(D(0), D(10), D("0.75"))
    for epsilon, share, field in (
        ("1", "0", "presence_share"),
        ("1", "1", "presence_share"),
        ("1", "nan", "presence_share"),
        ("41", "0.25", "epsilon"),
        ("1", "0.26", "epsilon"),  # the number has 0.75 already
        ("0.9", "0.25", "epsilon"),
        ("0.8", "0.0000001", "presence_share"),
    ):
        with pytest.raises(PlanError, match=rf"^{field}: "):
            OptionalNumber(inner, D(epsilon), D(share))
    with pytest.raises(PlanError, match=r"^presence_share: must be a Decimal"):
        OptionalNumber(inner, D(1), 0.25)  # type: ignore[arg-type]


# --- reports ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["5", True, math.nan, math.inf])
def test_unusable_readings_are_refused_before_any_entropy(value: object) -> None:
    for attempt in (
        lambda: optional().perturb(value, Untouched()),  # type: ignore[arg-type]
        lambda: optional().perturb_many([None, 1.0, value], Untouched()),  # type: ignore[list-item]
        lambda: optional().perturb_many(np.array([1.0, math.nan]), Untouched()),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason in (RefusalReason.WRONG_TYPE, RefusalReason.NOT_FINITE)


def test_one_report_by_its_bytes() -> None:
    """One bit of the middle of the range (a fair rounding), then the presence bit."""
    mech = optional(OneBit)
    assert isinstance(mech.inner, OneBit)
    number_kept, kept, turned = (count.to_bytes(8, "big") for count in (mech.inner.keep - 1, mech.keep - 1, mech.keep))
    for value, presence, bit in ((None, kept, 0), (None, turned, 1), (5, kept, 1), (5, turned, 0)):
        for rounding, number in ((b"\x7f", 1), (b"\x80", 0)):  # below half of 2^64 rounds up
            assert mech.perturb(value, Scripted(rounding + bytes([1] * 7), number_kept, presence)) == [number, bit]


@pytest.mark.parametrize(
    "values",
    [
        [1.0, None, 3, None],
        [None, None],
        [],
        [1.0, 2.5],
        np.array([1.0, 2.5]),
        np.array([1, 2]),
        np.array([1.5, None, 10**400], object),
        np.array([]),
    ],
    ids=repr,
)
def test_perturb_many_takes_lists_and_arrays(values: list[float | None]) -> None:
    reports = optional(epsilon="40").perturb_many(values, seeded("kinds"))
    assert reports.shape == (len(values), 2)
    assert reports.dtype == np.int64
    expected = [5.0 if value is None else float(min(value, 10)) for value in values]
    assert reports[:, 1].tolist() == [int(value is not None) for value in values], "at epsilon 10 a lie is 1 in 20,000"
    assert np.abs(reports[:, 0] / 100 - np.array(expected)).max(initial=0) < 15


def test_both_halves_give_the_mean_over_those_with_a_reading() -> None:
    mech = optional(Hybrid, "3")
    rng = np.random.default_rng(3)
    readings = rng.uniform(6, 9, 30_000)
    values: list[float | None] = [
        float(x) if has else None for x, has in zip(readings, rng.random(30_000) < 0.6, strict=True)
    ]
    present = [value for value in values if value is not None]
    estimate = mech.estimate(mech.perturb_many(values, seeded("ratio")).sum(axis=0).tolist(), len(values))
    for value, error, truth in zip(
        estimate.values, estimate.standard_errors, (np.mean(present), len(present)), strict=True
    ):
        assert value is not None
        assert error is not None
        assert abs(value - truth) < 4 * error
    one = [mech.perturb(value, seeded(f"{i}")) for i, value in enumerate(values[:3000])]
    few = mech.estimate([sum(column) for column in zip(*one, strict=True)], 3000)
    assert abs(few.values[0] - np.mean(present)) < 4 * few.standard_errors[0]  # type: ignore[operator]


# --- the ratio ---------------------------------------------------------------------------------------------


def total_of(mech: OptionalNumber, mean: str, present: int, contributors: int) -> list[Fraction]:
    """The expected total of a cohort: `present` readings of this mean, the others without one. Not rounded."""
    p, law, lattice = Fraction(mech.keep, ONE), mech.inner.law, mech.inner.lattice
    shift = (Fraction(mean) - mech.absent) * present / contributors
    position = (mech.absent + shift - lattice.low) * lattice.levels / lattice.width
    cell = contributors * (law.centre + law.slope * (position - Fraction(lattice.levels, 2)))
    return [cell, present * p + (contributors - present) * (1 - p)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("lower", "upper", "mean"), [("0", "10", "7.25"), ("-3", "-1", "-2.9"), ("0", "1e250", "1e249")]
)
def test_an_expected_total_decodes_to_the_mean_and_the_count(
    kind: type[NumericMechanism], lower: str, upper: str, mean: str
) -> None:
    mech = optional(kind, "2", lower=lower, upper=upper)
    parts = mech.parts([int(cell * 10**9) for cell in total_of(mech, mean, 6000, 10_000)], 10_000 * 10**9)
    estimate = ratio_of([parts])
    assert estimate.values[0] == pytest.approx(float(Fraction(mean)), rel=1e-6)
    assert estimate.values[1] == pytest.approx(6000e9, rel=1e-9)
    assert all(error is not None and math.isfinite(error) for error in estimate.standard_errors)
    (interval, _) = estimate.interval()
    assert interval is not None
    assert interval[0] < estimate.values[0] < interval[1]  # type: ignore[operator]


def test_the_means_error_is_the_delta_methods() -> None:
    mech = optional(Laplace, "2")
    n, present, mean = 10_000, 6000, 8.0
    total = [round(cell) for cell in total_of(mech, "8", present, n)]
    estimate = mech.estimate(total, n)
    noise = n * (mech.inner.noise_variance + 0.25) / 100**2  # type: ignore[attr-defined]
    p = mech.keep / ONE
    count = n * p * (1 - p) / (2 * p - 1) ** 2
    expected = math.sqrt(noise + (mean - 5) ** 2 * count) / present
    assert estimate.standard_errors == pytest.approx((expected, math.sqrt(count)), rel=1e-3)
    spread = present * (mean - 0) * (10 - mean)
    expected = math.sqrt(noise + (mean - 5) ** 2 * count + spread) / present
    seen = 1 - p + (2 * p - 1) * 0.6
    population = math.sqrt(n * seen * (1 - seen)) / (2 * p - 1)
    assert estimate.population_errors == pytest.approx((expected, population), rel=1e-3)


@pytest.mark.parametrize("population", [False, True])
def test_the_means_interval_is_fiellers(population: bool) -> None:
    """At its ends, the mean's distance from the sum is exactly z standard errors of that distance."""
    mech = optional(OneBit, "2")
    n = 4000
    parts = mech.parts([round(cell) for cell in total_of(mech, "9", 800, n)], n)
    estimate = ratio_of([parts])
    (ends, present) = estimate.interval_at(2.5, population=population)
    count = parts.count_population_variance if population else parts.count_variance
    mean = estimate.values[0]
    assert mean is not None
    spread = float(parts.count) * mean * (10 - mean) if population else 0.0
    assert ends is not None
    for end in ends:
        distance = float(parts.excess) - (end - 5) * float(parts.count)
        variance = float(parts.excess_variance) + spread + (end - 5) ** 2 * float(parts.count_variance)
        variance += (end - mean) ** 2 * float(count - parts.count_variance)  # who has a reading: about the mean
        error = math.sqrt(variance)
        assert abs(distance) == pytest.approx(2.5 * error, rel=1e-6)
    assert ends[0] < mean < ends[1]
    assert mean - ends[0] != pytest.approx(ends[1] - mean, rel=0.01), "not symmetric"
    expected = [float(parts.count) + sign * 2.5 * math.sqrt(count) for sign in (-1, 1)]
    assert present == pytest.approx(expected), "the count's is the usual one"


def test_no_mean_where_the_count_is_not_clear_of_its_noise() -> None:
    mech = optional(OneBit, "2")
    n = 10_000
    error = mech.estimate([0, 0], n).standard_errors[1]
    assert error is not None
    below, above = (round(CLEAR_ERRORS * error * factor) for factor in (0.98, 1.02))
    none = mech.estimate([round(cell) for cell in total_of(mech, "6", below, n)], n)
    assert none.values[0] is None
    assert none.standard_errors[0] is none.population_errors[0] is None
    assert none.interval()[0] is None
    assert none.values[1] == pytest.approx(below, abs=5)
    assert none.interval()[1] is not None
    some = mech.estimate([round(cell) for cell in total_of(mech, "6", above, n)], n)
    assert some.values[0] is not None
    assert some.interval(0.95)[0] is not None
    assert some.interval_at(CLEAR_ERRORS + 0.5)[0] is None, "unbounded: the count might be nothing"
    assert mech.estimate([0, 0], n).values[0] is None, "a count below nothing"


def test_nobody_and_another_shape() -> None:
    mech = optional()
    empty = mech.estimate([0, 0], 0)
    assert (empty.values, empty.standard_errors, empty.contributors) == ((None, None), (None, None), 0)
    assert empty.interval() == empty.interval(population=True) == (None, None)
    for total, n in (([1], 1), ([1, 2, 3], 1), ([1, 2], -1)):
        with pytest.raises(ValueError, match="expected 2 totals"):
            mech.estimate(total, n)


def test_plausible_sums() -> None:
    mech = optional(OneBit)
    for cells, n, plausible in (
        ([3, 5], 5, True),
        ([0, 0], 5, True),
        ([3, 6], 5, False),
        ([3, -1], 5, False),
        ([6, 3], 5, False),
        ([3], 5, False),
    ):
        assert mech.is_plausible(cells, n) is plausible


# --- adding up ---------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=2, max_size=4),
)
def test_cohorts_add_up_to_the_whole(kind: type[NumericMechanism], totals: list[tuple[int, int]]) -> None:
    mech = optional(kind, "8")
    n = 400
    whole = mech.estimate([sum(column) for column in zip(*totals, strict=True)], n * len(totals))
    split = ratio_of([mech.parts(total, n) for total in totals])
    assert split.values[1] == pytest.approx(whole.values[1], abs=1e-9)
    assert (split.values[0] is None) == (whole.values[0] is None)
    if whole.values[0] is not None:
        assert split.values[0] == pytest.approx(whole.values[0], rel=1e-9)
    assert split.contributors == whole.contributors


def test_versions_with_other_ranges_are_pooled_by_those_with_a_reading() -> None:
    old, new = optional(Hybrid, "2"), optional(Laplace, "1", "0.5", "0", "40")
    n = 20_000
    parts = [
        mech.parts([round(cell) for cell in total_of(mech, mean, present, n)], n)
        for mech, mean, present in ((old, "4", 15_000), (new, "16", 5000))
    ]
    pooled = ratio_of(parts)
    assert pooled.values[0] == pytest.approx((4 * 15_000 + 16 * 5000) / 20_000, rel=1e-3)
    assert pooled.values[1] == pytest.approx(20_000, rel=1e-3)
    mean = pooled.values[0]
    assert mean is not None
    variance = sum(
        float(part.excess_variance) + (float(part.absent) - mean) ** 2 * float(part.count_variance) for part in parts
    )
    assert pooled.standard_errors[0] == pytest.approx(math.sqrt(variance) / pooled.values[1])  # type: ignore[operator]
    (ends, _) = pooled.interval(0.95)
    assert ends is not None
    assert ends[0] < mean < ends[1]
