"""Hadamard response: the transform, reports over block ends, estimates."""

from __future__ import annotations

import pickle
from decimal import Decimal

import numpy as np
import pytest

from client_sdk.errors import RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, hadamard
from client_sdk.mechanisms.hadamard import Hadamard, parity, walsh_hadamard
from tests.entropy import Scripted, Untouched, seeded

D = Decimal


def mechanism(k: int, epsilon: str = "1") -> Hadamard:
    return Hadamard(tuple(f"c{i}" for i in range(k)), D(epsilon))


def sign(row: int, place: int) -> int:
    return -1 if bin(row & place).count("1") % 2 else 1


def test_shape() -> None:
    mech = Hadamard(("a", "b"), D(1), "else", optional=True)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.length, mech.bound, mech.ones) == ("hadamard", 8, 1, 1)
    assert mech.labels == ("a", "b", "else", "(no reading)")
    assert mech == pickle.loads(pickle.dumps(mech)) != mechanism(4)  # noqa: S301 - our own bytes


@pytest.mark.parametrize(("k", "length"), [(2, 4), (3, 4), (4, 8), (7, 8), (8, 16), (1023, 1024), (1024, 2048)])
def test_length_is_the_least_power_of_two_above_k(k: int, length: int) -> None:
    assert mechanism(k).length == length


@pytest.mark.parametrize("large", [False, True], ids=["64 bits", "above"])
@pytest.mark.parametrize("order", [1, 2, 4, 32])
def test_walsh_hadamard_is_the_matrix(order: int, large: bool) -> None:
    total = [(i * 37 + 5) % 101 + (1 << 70) * large * (i % 3) for i in range(order)]
    expected = [sum(sign(row, place) * total[place] for place in range(order)) for row in range(order)]
    assert walsh_hadamard(total) == expected


def test_parity() -> None:
    numbers = [0, 1, 2, 3, 7, 255, 1 << 20, (1 << 21) - 1, (1 << 32) - 1, 0x8000_0001]
    assert parity(np.array(numbers)).tolist() == [bin(number).count("1") % 2 for number in numbers]


@pytest.mark.parametrize("first", [bytes(8), b"\xff" * 8], ids=["supports", "against"])
def test_one_report_asks_for_the_same_bytes_either_way(first: bytes) -> None:
    mech = mechanism(6)
    for code in range(6):
        for byte in range(0, 256, 32):
            entropy = Scripted(first, bytes([byte]))
            report = mech.perturb(f"c{code}", entropy)
            assert entropy.asked == [8, 1]
            assert (sign(code + 1, report.index(1)) == 1) == (first == bytes(8))


@pytest.mark.parametrize("k", [2, 7, 100])
def test_reports_over_block_ends(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 40 every report supports its label."""
    monkeypatch.setattr(hadamard, "BLOCK", 100)
    mech = mechanism(k, "40")
    for n in (0, 1, 99, 100, 101, 250):
        codes = (np.arange(n) * 7) % k
        answers = mech.perturb_codes(codes.astype(np.int8), seeded("blocks"))
        rows = mech.rows(answers)
        assert (rows.shape, rows.dtype) == ((n, mech.length), np.uint8)
        assert (rows.sum(axis=1) == 1).all()
        assert all(
            sign(code + 1, place) == 1 for code, place in zip(codes.tolist(), rows.argmax(axis=1).tolist(), strict=True)
        )
        assert (mech.total_of(answers) == rows.sum(axis=0, dtype=np.int64)).all()


def test_bad_codes_and_values_are_refused_before_any_entropy() -> None:
    mech = mechanism(3)
    for attempt, reason in (
        (lambda: mech.perturb("c3", Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([3]), Untouched()), RefusalReason.UNKNOWN_CATEGORY),
        (lambda: mech.perturb_codes(np.array([True]), Untouched()), RefusalReason.WRONG_TYPE),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is reason


def test_supports_count_the_reports_that_support_each_label() -> None:
    mech = mechanism(6)
    answers = mech.perturb_codes(np.arange(500) % 6, seeded("supports"))
    total = mech.total_of(answers)
    expected = [sum(sign(label + 1, place) == 1 for place in answers.tolist()) for label in range(6)]
    assert list(mech.supports(total.tolist(), 500)) == expected
    assert list(mech.supports(total, 500)) == expected
    assert mech.estimate(total.tolist(), 500).supports == tuple(expected)


@pytest.mark.parametrize(("k", "epsilon"), [(2, "1"), (7, "0.000001"), (8, "3"), (3, "40")])
def test_estimate_undoes_the_rounded_law_exactly(k: int, epsilon: str) -> None:
    mech = mechanism(k, epsilon)
    n = 2**66 * mech.length
    truth = [n // 2, n - n // 2] + [0] * (k - 2)
    totals = [
        sum(t * (mech.p if sign(v + 1, y) == 1 else 1 - mech.p) * 2 / mech.length for v, t in enumerate(truth))
        for y in range(mech.length)
    ]
    assert all(total.denominator == 1 for total in totals)
    assert mech.estimate([int(total) for total in totals], n).values == tuple(float(t) for t in truth)


def test_estimates_of_many_cohorts() -> None:
    """No bias, and the spread of the formula."""
    mech, n, cohorts, k = mechanism(7), 300, 2000, 7
    truth = np.array([150, 90, 60] + [0] * 4)
    answers = mech.perturb_codes(np.tile(np.repeat(np.arange(k), truth), cohorts), seeded("cohorts"))
    cells = mech.rows(answers).reshape(cohorts, n, mech.length).sum(axis=1, dtype=np.int64)
    values = np.array([mech.estimate(total, n).values for total in cells.tolist()])
    p, q = float(mech.p), 0.5
    variance = (truth * p * (1 - p) + (n - truth) * q * (1 - q)) / (p - q) ** 2
    assert (np.abs(values.mean(axis=0) - truth) < 5 * (variance / cohorts) ** 0.5).all()
    assert values.var(axis=0) == pytest.approx(variance, rel=0.16)


def test_what_sums_are_plausible() -> None:
    mech = mechanism(3)
    assert mech.is_plausible([5, 0, 0, 0], 5)
    for total in ([5, 1, 0, 0], [6, -1, 0, 0], [2, 2, 1], [4, 0, 0, 0]):
        assert not mech.is_plausible(total, 5)
    assert mech.estimate([0, 0, 0, 0], 0).values == (None, None, None)
    with pytest.raises(ValueError, match="expected 4 totals"):
        mech.estimate([1, 1, 1], 3)
