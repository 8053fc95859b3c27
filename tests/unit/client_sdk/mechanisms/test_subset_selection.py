"""Subset selection: the set's size, reports over block ends, estimates."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.errors import RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, subset_selection
from client_sdk.mechanisms.parameters import ONE, share_numerator
from client_sdk.mechanisms.pure import exact_mean_squared_error
from client_sdk.mechanisms.subset_selection import SubsetSelection, best_size
from tests.entropy import Scripted, Untouched, seeded

D = Decimal


def mechanism(k: int, epsilon: str = "1") -> SubsetSelection:
    return SubsetSelection(tuple(f"c{i}" for i in range(k)), D(epsilon))


def test_shape() -> None:
    mech = SubsetSelection(tuple("abcdefghijklmn"), D(1), "else", optional=True)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.length, mech.bound, mech.ones, mech.size) == ("subset_selection", 16, 1, 4, 4)
    assert mech.labels[-2:] == ("else", "(no reading)")
    assert mech == pickle.loads(pickle.dumps(mech)) != mechanism(16)  # noqa: S301 - our own bytes


# --- the set's size ----------------------------------------------------------------------------------------


def law(k: int, size: int, epsilon: str) -> tuple[Fraction, Fraction]:
    p = Fraction(share_numerator(D(epsilon), size, k - size), ONE)
    return p, (p * (size - 1) + (1 - p) * size) / (k - 1)


def test_the_published_errors_of_two_sizes() -> None:
    """k=32, epsilon 3, a label that nobody has: 0.159 with w=2, 0.138 with w=1. Over all labels w=2 has less."""
    for size, rare, mean in ((1, 0.138, 0.1866), (2, 0.159, 0.1812)):
        p, q = law(32, size, "3")
        assert float(q * (1 - q) / (p - q) ** 2) == pytest.approx(rare, abs=5e-4)
        assert float(exact_mean_squared_error(32, p, q)) == pytest.approx(mean, abs=1e-4)
    assert best_size(32, D(3)) == 2


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 16, 33, 64])
@pytest.mark.parametrize("epsilon", ["0.000001", "0.3", "1", "1.7", "2.3", "3", "4", "6", "40"])
def test_no_size_at_all_has_less_error(k: int, epsilon: str) -> None:
    """Not only of the two around k / (e^epsilon + 1) that are looked at."""
    errors = {size: exact_mean_squared_error(k, *law(k, size, epsilon)) for size in range(1, k)}
    assert errors[best_size(k, D(epsilon))] == min(errors.values())


@pytest.mark.parametrize(("k", "published"), [(16, 2.27), (128, 4.4), (1024, 6.5)])
def test_where_the_set_is_one_label(k: int, published: float) -> None:
    """It becomes randomised response near the published epsilons."""
    assert best_size(k, D(str(published)) - D("0.1")) > 1
    assert best_size(k, D(str(published)) + D("0.1")) == 1


# --- reports -----------------------------------------------------------------------------------------------


def test_one_report_asks_for_the_same_bytes_in_and_out() -> None:
    mech = mechanism(16)
    for first, expected in ((bytes(8), [0, 1, 2, 3]), (b"\xff" * 8, [0, 1, 2, 15])):
        entropy = Scripted(first, b"\x30", b"\x10", b"\x20", b"\x00")  # of 12, 13, 14, 15 places: 3, 1, 2, 0
        report = mech.perturb("c3", entropy)
        assert [place for place in range(16) if report[place]] == expected
        assert entropy.asked == [8, 1, 1, 1, 1]


@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (3, "0.1"), (16, "1"), (60, "1"), (300, "0.5"), (1000, "5")])
def test_reports_over_block_ends(k: int, epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_selection, "BLOCK", 20_000)
    mech = mechanism(k, epsilon)
    step = 20_000 // k
    for n in (0, 1, step, step + 1, 2 * step + 1):
        codes = (np.arange(n) * 7) % k
        answers = mech.perturb_codes(codes.astype(np.uint16), seeded("blocks"))
        rows = mech.rows(answers)
        assert (rows.shape, rows.dtype) == ((n, k), np.uint8)
        assert (rows.sum(axis=1) == mech.size).all()
        assert rows.max(initial=0) <= 1
        assert (mech.total_of(answers) == rows.sum(axis=0, dtype=np.int64)).all()


def test_the_own_label_is_in_nearly_always_at_epsilon_40() -> None:
    mech = mechanism(50, "40")
    rows = mech.rows(mech.perturb_codes(np.arange(50), seeded("forty")))
    assert mech.size == 1
    assert (rows == np.eye(50)).all()
    assert [mech.perturb_code(code, seeded(str(code))).index(1) for code in range(50)] == list(range(50))


def test_the_same_entropy_gives_the_same_reports() -> None:
    mech = mechanism(16)
    codes = np.arange(3000) % 16
    a, b, c = (mech.perturb_codes(codes, seeded(label)) for label in "aab")
    assert (a == b).all()
    assert (a != c).any()


def test_bad_codes_and_values_are_refused_before_any_entropy() -> None:
    mech = mechanism(3)
    for attempt, reason in (
        (lambda: mech.perturb("c3", Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([-1]), Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([[1]]), Untouched()), RefusalReason.WRONG_TYPE),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is reason


# --- estimates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (16, "0.000001"), (16, "1"), (5, "40")])
def test_estimate_undoes_the_rounded_law_exactly(k: int, epsilon: str) -> None:
    mech = mechanism(k, epsilon)
    n = 2**65 * (k - 1)
    truth = [n // 2, n - n // 2] + [0] * (k - 2)
    totals = [t * mech.p + (n - t) * mech.q for t in truth]
    assert all(total.denominator == 1 for total in totals)
    assert sum(totals) == n * mech.size
    assert mech.estimate([int(total) for total in totals], n).values == tuple(float(t) for t in truth)


def test_estimates_of_many_cohorts() -> None:
    """No bias, and the spread of the formula."""
    mech, n, cohorts, k = mechanism(16), 300, 2000, 16
    truth = np.array([150, 90, 60] + [0] * 13)
    codes = np.repeat(np.arange(k), truth)
    rows = mech.rows(mech.perturb_codes(np.tile(codes, cohorts), seeded("cohorts"))).reshape(cohorts, n, k)
    values = np.array([mech.estimate(total, n).values for total in rows.sum(axis=1, dtype=np.int64).tolist()])
    p, q = float(mech.p), float(mech.q)
    variance = (truth * p * (1 - p) + (n - truth) * q * (1 - q)) / (p - q) ** 2
    assert (np.abs(values.mean(axis=0) - truth) < 5 * (variance / cohorts) ** 0.5).all()
    assert values.var(axis=0) == pytest.approx(variance, rel=0.16)


def test_what_sums_are_plausible() -> None:
    mech = mechanism(16)
    assert mech.is_plausible([5] * 4 + [0] * 12, 5)
    assert not mech.is_plausible([5] * 4 + [1] + [0] * 11, 5), "4 of 16 bits in each of 5 reports"
    assert not mech.is_plausible([6, 4, 5, 5] + [0] * 12, 5)
    assert not mech.is_plausible([5] * 4, 5)
