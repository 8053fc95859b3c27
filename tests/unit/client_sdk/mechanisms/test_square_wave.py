"""The square wave outside of its law: parameters, shapes, refusals, the smoothed estimate and its errors."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import exp, sqrt

import numpy as np
import pytest

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms.smoothing import WindowLaw, smoothed_shares, weight
from client_sdk.mechanisms.square_wave import SquareWave, best_reach
from tests.entropy import Untouched, seeded

D = Decimal


def mechanism(places: int, epsilon: str = "1") -> SquareWave:
    return SquareWave(tuple(f"bin {i}" for i in range(places)), D(epsilon))


def test_shapes() -> None:
    mech = mechanism(20)
    assert (mech.name, mech.k, mech.reach, mech.window, mech.length, mech.bound) == ("square_wave", 20, 5, 11, 30, 1)
    assert (mech.answer, mech.smoothed, mech.labels[0], len(mech.labels)) == ("counts", True, "bin 0", 20)
    assert mech == mechanism(20) != mechanism(20, "2")
    answers = mech.perturb_codes(np.array([0, 7, 19]), seeded("shapes"))
    rows = mech.rows(answers)
    assert rows.shape == (3, 30)
    assert rows.sum(axis=0).tolist() == mech.total_of(answers).tolist()
    assert rows.argmax(axis=1).tolist() == answers.tolist()


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "4"])
def test_the_width_is_the_papers(epsilon: str) -> None:
    e, odds = float(epsilon), exp(float(epsilon))
    width = (e * odds - odds + 1) / (2 * odds * (odds - 1 - e))
    for places in (2, 20, 100, 4096):
        assert best_reach(places, D(epsilon)) == int(width * places)


def test_the_width_at_the_ends_of_epsilon() -> None:
    """1/2 of the line at epsilon 0, where floats would divide 0 by 0; nothing at 40."""
    assert [best_reach(places, D("0.000001")) for places in (2, 3, 100)] == [0, 1, 49]
    assert best_reach(4096, D(40)) == 0
    reaches = [best_reach(1000, D(step) / 10) for step in range(1, 60)]
    assert all(a >= b for a, b in pairwise(reaches))


@pytest.mark.parametrize(
    ("places", "epsilon", "field"), [(1, "1", "bins"), (4097, "1", "bins"), (5, "0", "epsilon"), (5, "41", "epsilon")]
)
def test_parameters_that_cannot_work(places: int, epsilon: str, field: str) -> None:
    with pytest.raises(PlanError, match=field):
        mechanism(places, epsilon)


def test_labels_must_differ() -> None:
    with pytest.raises(PlanError, match="different"):
        SquareWave(("a", "a"), D(1))


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ([0, 20], RefusalReason.UNKNOWN_CATEGORY),
        ([-1], RefusalReason.UNKNOWN_CATEGORY),
        ([0.0], RefusalReason.WRONG_TYPE),
        ([[0]], RefusalReason.WRONG_TYPE),
    ],
)
def test_codes_that_are_refused_draw_nothing(codes: list[object], reason: RefusalReason) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        mechanism(20).perturb_codes(np.array(codes), Untouched())
    assert caught.value.reason is reason


def test_plausible_totals() -> None:
    mech = mechanism(20)
    assert mech.is_plausible([1] * 30, 30)
    for total, n in (([1] * 29, 29), ([1] * 30, 29), ([-1, 2, *[0] * 28], 1)):
        assert not mech.is_plausible(total, n)


# --- the estimate -------------------------------------------------------------------------------------------


def hump(places: int) -> np.ndarray:
    x = (np.arange(places) + 0.5) / places
    shares: np.ndarray = np.exp(-0.5 * ((x - 0.4) / 0.12) ** 2)
    return shares / shares.sum()


def test_nobody_gives_none_and_another_shape_is_refused() -> None:
    mech = mechanism(20)
    assert mech.estimate([0] * 30, 0).values == (None,) * 20
    for total, n in (([1] * 29, 29), ([0] * 30, -1)):
        with pytest.raises(ValueError, match="expected 30 totals"):
            mech.estimate(total, n)


@pytest.mark.parametrize("epsilon", ["0.000001", "0.5", "1", "4", "40"])
@pytest.mark.parametrize("places", [2, 3, 20, 300])
@pytest.mark.parametrize("n", [1, 50, 100_000])
def test_counts_are_positive_add_up_and_have_finite_errors(epsilon: str, places: int, n: int) -> None:
    mech = mechanism(places, epsilon)
    codes = np.random.default_rng(3).choice(places, n, p=hump(places))
    estimate = mech.estimate(mech.total_of(mech.perturb_codes(codes, seeded("adds up"))).tolist(), n)
    values = np.array(estimate.values, np.float64)
    assert (values >= 0).all()
    assert values.sum() == pytest.approx(n, rel=1e-9)
    errors = np.array([estimate.standard_errors, estimate.population_errors], np.float64)
    assert np.isfinite(errors).all()
    assert (errors[0] <= errors[1] * (1 + 1e-6) + 1e-6 * n).all(), "who takes part is random too"


def test_what_no_reports_can_add_up_to_has_an_answer_too() -> None:
    mech = mechanism(5)
    for total in ([-3] * mech.length, [0] * mech.length, [10**18, *[-5] * (mech.length - 1)]):
        assert np.isfinite(np.array(mech.estimate(total, 10).values, np.float64)).all()


def test_smooth_shares_come_back() -> None:
    """From the expected total itself: what is left is the smoothing's own bias."""
    mech, n = mechanism(32), 100_000
    estimated = mech.shares((n * (hump(32) @ mech.table())).astype(int).tolist())
    assert np.abs(np.cumsum(estimated.shares) - np.cumsum(hump(32))).max() < 0.004


def test_long_lines_take_the_same_steps() -> None:
    """Sliding sums are the dense product."""
    law = WindowLaw(300, 101, 0.006, 0.001)
    dense = law.table()
    forward, backward = law.products()
    values = np.random.default_rng(4).random(law.cells)
    assert forward(values[:300]) == pytest.approx(values[:300] @ dense, rel=1e-12)
    assert backward(values) == pytest.approx(dense @ values, rel=1e-12)


def test_gain_is_the_answer_to_a_change_of_the_total() -> None:
    """Moved by finite differences, on a total that is as expected (where the slope is taken)."""
    mech = mechanism(16, "2")
    law = WindowLaw(16, mech.window, float(mech.p), float(mech.q))
    n = 1e8
    total = n * ((hump(16) / 2 + 1 / 32) @ law.table())
    for _ in range(40):  # the fixed point of "expected total of the estimate" has no residual
        total = n * (smoothed_shares(total, law).shares @ law.table())
    at = smoothed_shares(total, law)
    change = np.zeros(law.cells)
    change[[5, 12]] = 1e-3 * n, -1e-3 * n
    moved = (smoothed_shares(total + change, law).shares - smoothed_shares(total - change, law).shares) / 2
    assert moved == pytest.approx(at.gain @ change, abs=0.02 * float(np.abs(moved).max()))


def test_smoothing_weighs_less_the_more_reports_there_are() -> None:
    assert weight(240, 1) == 0.25
    assert weight(60, 10_000) == pytest.approx(0.0025)
    assert weight(60, 40_000) == pytest.approx(weight(60, 10_000) / 2)


def test_standard_errors_are_what_estimates_spread_by() -> None:
    mech, n, rounds = mechanism(16, "2"), 5000, 120
    codes = np.random.default_rng(6).choice(16, n, p=hump(16))
    entropy = seeded("spread of shares")
    estimates = [mech.estimate(mech.total_of(mech.perturb_codes(codes, entropy)).tolist(), n) for _ in range(rounds)]
    spread = np.std([np.cumsum(e.values)[[4, 6, 8, 10]] for e in estimates], axis=0)
    table = mech.table()
    expected = []
    for place in (4, 6, 8, 10):
        shares = mech.shares((np.bincount(codes, minlength=16) @ table).astype(int).tolist())
        gain = n * shares.gain[: place + 1].sum(axis=0)
        counts = n * shares.shares
        expected.append(sqrt((gain**2) @ (counts @ table) - ((table @ gain) ** 2) @ counts))
    assert spread[:3] == pytest.approx(expected[:3], rel=0.25)
    assert spread[3] < expected[3], "where hardly anything is above, no share can be negative: less than the error bar"


def test_an_estimate_takes_well_under_a_second() -> None:
    for places in (20, 200):
        mech = mechanism(places)
        total = (100_000 * (hump(places) @ mech.table())).astype(int).tolist()
        start = time.process_time()
        mech.estimate(total, sum(total))
        assert time.process_time() - start < 2.0, "an order of magnitude above what an idle machine takes"


def test_p_and_q_are_the_shipped_integers() -> None:
    mech = mechanism(10)
    assert mech.p * mech.window + mech.q * (mech.k - 1) == 1
    assert mech.p == Fraction(mech.inside, (1 << 64) * mech.window)
