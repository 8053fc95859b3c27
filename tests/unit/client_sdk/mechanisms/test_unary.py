"""Unary encodings: parameters, reports over block ends, estimates."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, unary
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.unary import OptimizedUnary, SymmetricUnary
from tests.entropy import Scripted, Untouched, seeded

BOTH = pytest.mark.parametrize("kind", [SymmetricUnary, OptimizedUnary])


def mechanism(kind: type[CategoricalMechanism], k: int, epsilon: str = "1") -> SymmetricUnary | OptimizedUnary:
    return kind(tuple(f"c{i}" for i in range(k)), Decimal(epsilon))  # type: ignore[return-value]


@BOTH
def test_shape(kind: type[CategoricalMechanism]) -> None:
    mech = kind(("a", "b"), Decimal(1), "else", optional=True)
    assert isinstance(mech, Mechanism)
    assert mech.name == {SymmetricUnary: "symmetric_unary", OptimizedUnary: "optimized_unary"}[kind]
    assert (mech.length, mech.bound, mech.ones, mech.answer) == (4, 1, None, "counts")
    assert mech.labels == ("a", "b", "else", "(no reading)")
    assert mech == pickle.loads(pickle.dumps(mech)) != mechanism(kind, 4)  # noqa: S301 - our own bytes
    with pytest.raises(PlanError, match=r"^epsilon: "):
        kind(("a", "b"), Decimal(41))


@pytest.mark.parametrize(
    ("kind", "epsilon", "p", "q"),
    [
        (SymmetricUnary, "1", 0.622459331, 0.377540669),
        (OptimizedUnary, "1", 0.5, 0.268941421),
        (SymmetricUnary, "4", 0.880797078, 0.119202922),
        (OptimizedUnary, "4", 0.5, 0.01798621),
    ],
)
def test_the_probabilities_of_the_papers(kind: type[CategoricalMechanism], epsilon: str, p: float, q: float) -> None:
    mech = mechanism(kind, 3, epsilon)
    assert (float(mech.p), float(mech.q)) == pytest.approx((p, q), abs=1e-8)


@BOTH
@pytest.mark.parametrize("epsilon", ["0.000001", "40"])
def test_every_bit_can_be_either_at_the_ends_of_epsilon(kind: type[CategoricalMechanism], epsilon: str) -> None:
    mech = mechanism(kind, 3, epsilon)
    assert 0 < mech.q < mech.p < 1


@BOTH
def test_one_report_is_eight_bytes_a_bit_whatever_the_value(kind: type[CategoricalMechanism]) -> None:
    mech = mechanism(kind, 3)
    own, others = mech.own.to_bytes(8, "big"), mech.others.to_bytes(8, "big")
    below_own, below_others = ((n - 1).to_bytes(8, "big") for n in (mech.own, mech.others))
    assert mech.perturb("c1", Scripted(below_others, below_own, below_others)) == [1, 1, 1]
    assert mech.perturb("c1", Scripted(others, own, others)) == [0, 0, 0], "the true bit too is cleared at times"
    asked = Scripted(others, others, own)
    mech.perturb("c2", asked)
    assert asked.asked == [8, 8, 8]


@BOTH
@pytest.mark.parametrize("k", [2, 5, 300])
def test_reports_over_block_ends(kind: type[CategoricalMechanism], k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 40 symmetric bits are the truth's; the optimised one clears half of the own bits, and no other."""
    monkeypatch.setattr(unary, "BLOCK", 1000)
    mech = mechanism(kind, k, "40")
    for n in (0, 1, 1000 // k, 1000 // k + 1, 1501):
        codes = (np.arange(n) * 7) % k
        answers = mech.perturb_codes(codes.astype(np.uint16), seeded("blocks"))
        rows = mech.rows(answers)
        assert (rows.shape, rows.dtype) == ((n, k), np.uint8)
        truth = codes[:, np.newaxis] == np.arange(k)
        assert (rows[~truth] == 0).all()
        if kind is SymmetricUnary:
            assert (rows[truth] == 1).sum() >= n - 1, "each is cleared with probability 2e-9"
        assert (mech.total_of(answers) == rows.sum(axis=0, dtype=np.int64)).all()


@BOTH
def test_the_same_entropy_gives_the_same_reports(kind: type[CategoricalMechanism]) -> None:
    mech = mechanism(kind, 16)
    codes = np.arange(3000) % 16
    a, b, c = (mech.perturb_codes(codes, seeded(label)) for label in "aab")
    assert (a == b).all()
    assert (a != c).any()


@BOTH
def test_bad_codes_and_values_are_refused_before_any_entropy(kind: type[CategoricalMechanism]) -> None:
    mech = mechanism(kind, 3)
    for attempt, reason in (
        (lambda: mech.perturb("c3", Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_many(["c1", "c3"], Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([3]), Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([1.0]), Untouched()), RefusalReason.WRONG_TYPE),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is reason


@BOTH
@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (16, "0.000001"), (5, "40")])
def test_estimate_undoes_the_rounded_law_exactly(kind: type[CategoricalMechanism], k: int, epsilon: str) -> None:
    mech = mechanism(kind, k, epsilon)
    n = 2**65
    truth = [n // 2, n - n // 2] + [0] * (k - 2)
    totals = [t * mech.p + (n - t) * mech.q for t in truth]
    assert all(total.denominator == 1 for total in totals)
    assert mech.estimate([int(total) for total in totals], n).values == tuple(float(t) for t in truth)


@BOTH
def test_the_standard_error_is_that_of_this_cohort(kind: type[CategoricalMechanism]) -> None:
    """Against the spread of the estimates over many cohorts."""
    mech, n, cohorts = mechanism(kind, 3, "2"), 400, 2000
    codes = np.repeat([0, 1], [300, 100])
    rows = mech.rows(mech.perturb_codes(np.tile(codes, cohorts), seeded("cohorts"))).reshape(cohorts, n, 3)
    totals = rows.sum(axis=1, dtype=np.int64)
    values = np.array([mech.estimate(total, n).values for total in totals.tolist()])
    expected = np.array(
        [(t * mech.p * (1 - mech.p) + (n - t) * mech.q * (1 - mech.q)) / (mech.p - mech.q) ** 2 for t in (300, 100, 0)],
        float,
    )
    assert values.mean(axis=0) == pytest.approx([300, 100, 0], abs=5 * (expected.max() / cohorts) ** 0.5)
    assert values.var(axis=0) == pytest.approx(expected, rel=0.16), "five standard deviations of a variance"
    at_truth = mech.estimate([int(t * mech.p + (n - t) * mech.q) for t in (300, 100, 0)], n).standard_errors
    assert at_truth == pytest.approx(expected**0.5, rel=0.02)


@BOTH
def test_what_sums_are_plausible(kind: type[CategoricalMechanism]) -> None:
    """Any number of bits may be 1: only each cell is held to 0 .. n."""
    mech = mechanism(kind, 3)
    assert mech.is_plausible([0, 0, 0], 5)
    assert mech.is_plausible([5, 5, 5], 5)
    for total in ([0, 0, 6], [-1, 0, 0], [0, 0], [0, 0, 0, 0]):
        assert not mech.is_plausible(total, 5)


def test_worst_ratio_is_exact() -> None:
    assert isinstance(mechanism(SymmetricUnary, 3).worst_ratio, Fraction)
    assert float(mechanism(OptimizedUnary, 3).worst_ratio) == pytest.approx(np.e, rel=1e-15)
