"""Categories: parameters, refusals, `other`, one-hot reports, estimates."""

from __future__ import annotations

import pickle
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from tests.entropy import Scripted, Untouched, seeded

D = Decimal
KEEP = bytes(8)


def colours(epsilon: str = "1", other: str | None = None) -> RandomizedResponse:
    return RandomizedResponse(("red", "green", "blue"), D(epsilon), other)


# --- parameters ------------------------------------------------------------------------------------------


def test_shape() -> None:
    mech = colours(other="else")
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.length, mech.bound) == ("randomized_response", 4, 1)
    assert mech.labels == ("red", "green", "blue", "else")
    assert colours().labels == ("red", "green", "blue")
    assert mech == pickle.loads(pickle.dumps(mech)) != colours()  # noqa: S301 - our own bytes


@pytest.mark.parametrize("epsilon", ["800", "710", "40.1", "0", "-1", "nan", "inf", "0.0000001"])
def test_epsilon_out_of_range_is_refused(epsilon: str) -> None:
    # case A01
    with pytest.raises(PlanError, match=r"^epsilon: must lie between 0.000001 and 40"):
        RandomizedResponse(tuple("abcd"), D(epsilon), None)


@pytest.mark.parametrize(
    ("categories", "other", "field"),
    [
        ((), None, "categories"),
        (("a",), None, "categories"),
        ((), "other", "categories"),
        (("a", "a"), None, "categories"),
        (("a", ""), None, "categories"),
        (("a", 5), None, "categories"),
        (("a", "b"), "", "other"),
        (("a", "b"), "a", "other"),
    ],
)
def test_bad_categories_are_refused(categories: tuple[str, ...], other: str | None, field: str) -> None:
    with pytest.raises(PlanError, match=f"^{field}: "):
        RandomizedResponse(categories, D(1), other)


def test_all_problems_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        RandomizedResponse(("a",), D(0), "a")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["epsilon", "other"]


def test_one_category_and_other_are_two() -> None:
    mech = RandomizedResponse(("yes",), D(1), "no")
    assert mech.perturb("anything", Scripted(KEEP)) == [0, 1]


# --- reports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 1.0, None, True, b"red", ["red"], float("nan")], ids=repr)
@pytest.mark.parametrize("other", [None, "else"])
def test_values_of_another_type_are_refused_before_any_entropy(value: object, other: str | None) -> None:
    for attempt in (
        lambda: colours(other=other).perturb(value, Untouched()),  # type: ignore[arg-type]
        lambda: colours(other=other).perturb_many(["red", value], Untouched()),  # type: ignore[list-item]
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is RefusalReason.WRONG_TYPE


def test_unknown_categories_are_refused_without_other_and_never_sent() -> None:
    for value in ("violet", "", "RED", "red "):
        with pytest.raises(ValueRefusedError) as caught:
            colours().perturb(value, Untouched())
        assert caught.value.reason is RefusalReason.UNKNOWN_CATEGORY
        assert "violet" not in str(caught.value)
    with pytest.raises(ValueRefusedError):
        colours().perturb_many(["red", "violet"], Untouched())


def test_unknown_categories_go_to_other() -> None:
    mech = colours(other="else")
    for value in ("violet", "", "else"):
        assert mech.perturb(value, Scripted(KEEP, b"\x00")) == [0, 0, 0, 1]
    reports = mech.perturb_many(["violet"] * 30_000, seeded("other")).sum(axis=0)
    assert reports[3] == reports.max()


@pytest.mark.parametrize(
    "values", [["red", "blue"], ("red", "blue"), np.array(["red", "blue"]), np.array(["red", "blue"], object)]
)
def test_perturb_many_takes_lists_and_arrays(values: object) -> None:
    reports = colours("40").perturb_many(values, seeded("kinds"))  # type: ignore[arg-type]
    assert reports.dtype == np.int64
    assert reports.tolist() == [[1, 0, 0], [0, 0, 1]], "at epsilon 40 a lie has probability 2^-56"


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_perturb_codes_takes_any_integers(dtype: type) -> None:
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(100)), D(40))
    codes = np.arange(100).astype(dtype)
    rows = mech.rows(mech.perturb_codes(codes, seeded("codes")))
    assert (rows.shape, rows.dtype) == ((100, 100), np.uint8)
    assert (rows == np.eye(100)).all()


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (np.array([0.0]), RefusalReason.WRONG_TYPE),
        (np.array([True]), RefusalReason.WRONG_TYPE),
        (np.array(["red"]), RefusalReason.WRONG_TYPE),
        (np.array([[0]]), RefusalReason.WRONG_TYPE),
        (np.array([0, 3]), RefusalReason.UNKNOWN_CATEGORY),
        (np.array([-1, 0]), RefusalReason.UNKNOWN_CATEGORY),
        (np.array([2**64 - 1], np.uint64), RefusalReason.UNKNOWN_CATEGORY),
    ],
)
def test_bad_codes_are_refused_before_any_entropy(codes: np.ndarray, reason: RefusalReason) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        colours().perturb_codes(codes, Untouched())
    assert caught.value.reason is reason


@pytest.mark.parametrize("n", [0, 1, 16383, 16384, 16385, 40_000])
def test_every_row_is_one_hot_over_block_ends(n: int) -> None:
    rows = colours().rows(colours().perturb_codes(np.zeros(n, np.int64), seeded("rows")))
    assert rows.shape == (n, 3)
    assert (rows.sum(axis=1) == 1).all()
    assert rows.max(initial=0) <= 1


def test_the_same_entropy_gives_the_same_reports() -> None:
    mech = colours()
    codes = np.arange(3000) % 3
    a, b, c = (mech.perturb_codes(codes, seeded(label)) for label in "aab")
    assert (a == b).all()
    assert (a != c).any()
    assert mech.perturb("red", seeded("a")) == mech.perturb("red", seeded("a"))


def test_a_report_asks_for_the_same_bytes_whether_kept_or_lied() -> None:
    sizes = []
    for first in (KEEP, b"\xff" * 8):
        entropy = Scripted(first, b"\x00")
        colours().perturb("blue", entropy)
        sizes.append(entropy.asked)
    assert sizes[0] == sizes[1] == [8, 1]


# --- estimates ---------------------------------------------------------------------------------------------------


def test_negative_estimates_stay_and_error_bars_are_right() -> None:
    # case A09
    mech = RandomizedResponse(("a", "b"), D(1), None)
    first = mech.estimate([200, 800], 1000)
    assert first.values[0] == pytest.approx(-149.186, abs=0.01)
    assert sum(value for value in first.values if value is not None) == pytest.approx(1000, abs=1e-6)
    second = mech.estimate([5000, 5000], 10_000)
    assert second.values == pytest.approx((5000, 5000), abs=1e-6)
    (low, high), _ = second.interval(0.95)  # type: ignore[misc]
    assert 187 <= (high - low) / 2 <= 213


@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (3, "0.5"), (16, "1"), (5, "40"), (4, "0.000001")])
def test_estimate_undoes_the_rounded_law_exactly(k: int, epsilon: str) -> None:
    """The expected totals of any truth, from the shipped integer, decode to that truth."""
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(k)), D(epsilon), None)
    p = Fraction(mech.keep, 2**64)
    q = (1 - p) / (k - 1)
    n = 2**65 * (k - 1)  # so that expected totals are integers
    truth = [n // 2, n - n // 2] + [0] * (k - 2)
    totals = [t * p + (n - t) * q for t in truth]
    assert all(total.denominator == 1 for total in totals)
    assert mech.estimate([int(total) for total in totals], n).values == tuple(float(t) for t in truth)


@pytest.mark.parametrize(("k", "epsilon", "n"), [(2, "1", 1000), (4, "0.5", 1000), (16, "2", 500)])
def test_the_standard_error_is_that_of_this_cohort(k: int, epsilon: str, n: int) -> None:
    """Variance of a sum of independent cells: t p(1-p) + (n-t) q(1-q), over (p-q)^2; then over many cohorts."""
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(k)), D(epsilon), None)
    truth = [n * 6 // 10, n - n * 6 // 10] + [0] * (k - 2)
    codes = np.repeat(np.arange(k), truth)
    p, q = mech.keep / 2**64, (1 - mech.keep / 2**64) / (k - 1)
    exact = [(t * p * (1 - p) + (n - t) * q * (1 - q)) ** 0.5 / (p - q) for t in truth]
    expected_totals = [round(t * p + (n - t) * q) for t in truth]
    assert mech.estimate(expected_totals, n).standard_errors == pytest.approx(exact, rel=0.02)
    cohorts = 600
    rows = mech.rows(mech.perturb_codes(np.tile(codes, cohorts), seeded(f"se {k}")))
    totals = rows.reshape(cohorts, n, k).sum(axis=1, dtype=np.int64)
    counts = np.array([mech.estimate(row.tolist(), n).values for row in totals])
    assert counts.std(axis=0) == pytest.approx(exact, rel=0.15)
    assert np.abs(counts.mean(axis=0) - truth).max() < 5 * max(exact) / cohorts**0.5


def test_the_share_in_the_variance_is_cut_but_not_the_estimate() -> None:
    mech = RandomizedResponse(("a", "b", "c"), D(1), None)
    estimate = mech.estimate([0, 0, 1000], 1000)
    assert estimate.values[0] is not None
    assert estimate.values[0] < 0
    assert estimate.values[2] is not None
    assert estimate.values[2] > 1000
    p, q = mech.keep / 2**64, (1 - mech.keep / 2**64) / 2
    at_zero, at_one = ((1000 * x * (1 - x)) ** 0.5 / (p - q) for x in (q, p))
    assert estimate.standard_errors == pytest.approx((at_zero, at_zero, at_one))


def test_nobody_gives_none_and_other_shapes_are_refused() -> None:
    mech = colours()
    assert mech.estimate([0, 0, 0], 0).values == (None, None, None)
    for total, n in (([1], 1), ([1, 2, 3, 4], 1), ([1, 2, 3], -1)):
        with pytest.raises(ValueError, match="expected 3 totals"):
            mech.estimate(total, n)


def test_a_hundred_thousand_categories() -> None:
    """One report for c0 out of a thousand: the estimate and its error say that it means nothing, and say so soon."""
    # case G05
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(100_000)), D(1))
    start = time.process_time()
    total = mech.total_of(mech.perturb_codes(np.arange(1000) + 1, seeded("G05")))
    assert total.shape == (100_000,)
    estimate = mech.estimate([1, 999] + [0] * 99_998, 1000)
    assert len(mech.perturb_code(7, seeded("one"))) == 100_000
    assert time.process_time() - start < 20
    assert estimate.values[0] == pytest.approx(57616.694, abs=1)
    assert estimate.standard_errors[0] is not None
    assert 5500 <= estimate.standard_errors[0] <= 59000
