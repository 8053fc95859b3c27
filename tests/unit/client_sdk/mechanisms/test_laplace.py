"""Laplace noise on the lattice: parameters, refusals, reports, estimates."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk import sampling_vectorised
from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, laplace, lattice
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.sampling_vectorised import Keystream
from tests.entropy import Scripted, Untouched, seeded

D = Decimal


def zero_to_ten(epsilon: str = "1", levels: int = 1000) -> Laplace:
    return Laplace(D(0), D(10), D(epsilon), levels)


# --- parameters ------------------------------------------------------------------------------------------


def test_shape() -> None:
    mech = Laplace(D("-2.5"), D("7.5"), D("0.7"))
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.length, mech.labels, mech.levels) == ("laplace", 1, ("mean",), 1000)
    assert mech.scale == Fraction(10000, 7)
    assert mech.tail == math.ceil(45 * Fraction(10000, 7))
    assert mech.bound == 1000 + mech.tail
    assert mech == pickle.loads(pickle.dumps(mech)) == Laplace(D("-2.50"), D("7.5"), D("0.7"))  # noqa: S301 - our own bytes
    assert mech != Laplace(D("-2.5"), D("7.5"), D("0.8"))


BAD_BOUNDS = [  # case A04, case D08
    ("-1.7e308", "1.7e308"),
    ("nan", "1"),
    ("0", "inf"),
    ("10", "0"),
    ("0", "0"),
    ("3", "-3"),
    ("-1", "-1"),
    ("sNaN", "1"),
    ("0", "1e999999999"),
    ("0", "1e-999999999"),
    ("1e-400", "1"),
    ("1e15", "1000000000000000." + "0" * 300 + "1"),
    ("0", "1e300"),
]


@pytest.mark.parametrize(("lower", "upper"), BAD_BOUNDS)
def test_ranges_without_a_usable_width_are_refused(lower: str, upper: str) -> None:
    with pytest.raises(PlanError, match=r"^(lower|upper): ") as caught:
        Laplace(D(lower), D(upper), D("0.000001"))
    assert all(len(problem.splitlines()) == 1 for problem in caught.value.problems)


@pytest.mark.parametrize(
    "epsilon", ["800", "710", "40.0000001", "0", "-1", "0.0000009", "nan", "sNaN", "inf", "1e-320"]
)
def test_epsilon_out_of_range_is_refused(epsilon: str) -> None:
    # case A01
    with pytest.raises(PlanError, match=r"^epsilon: must lie between 0.000001 and 40"):
        zero_to_ten(epsilon)


@pytest.mark.parametrize("epsilon", ["0.000001", "40", "1", "0.333333"])
def test_epsilon_at_the_ends(epsilon: str) -> None:
    mech = zero_to_ten(epsilon, 1 << 20)
    assert mech.scale * Fraction(D(epsilon)) == 1 << 20
    assert mech.perturb_many(np.array([1.0, 2.0]), seeded("ends")).shape == (2, 1)
    assert abs(mech.perturb(1.0, seeded("ends"))[0]) <= mech.bound < 1 << 46


@pytest.mark.parametrize("levels", [1, 0, -5, (1 << 20) + 1, True, 2.5])
def test_levels_out_of_range_are_refused(levels: int) -> None:
    with pytest.raises(PlanError, match=r"^levels: "):
        zero_to_ten(levels=levels)


def test_all_problems_at_once_and_floats_refused() -> None:
    with pytest.raises(PlanError) as caught:
        Laplace(D(5), D(5), D(99), 1)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["epsilon", "levels", "upper"]
    with pytest.raises(PlanError, match=r"^epsilon: must be a Decimal"):
        Laplace(D(0), D(1), 0.1)  # type: ignore[arg-type]


# --- readings ----------------------------------------------------------------------------------------------

NOT_FINITE = [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")]
WRONG_TYPE = [True, False, "5", None, b"5", [5], D(5), 5 + 0j, np.bool_(True), np.array([5.0]), np.array(5.0)]


@pytest.mark.parametrize("value", NOT_FINITE, ids=repr)
def test_non_finite_readings_are_refused_before_any_entropy(value: float) -> None:
    # case A04
    for attempt in (
        lambda: zero_to_ten().perturb(value, Untouched()),
        lambda: zero_to_ten().encode(value, Untouched()),
        lambda: zero_to_ten().perturb_many([1.0, float(value)], Untouched()),
        lambda: zero_to_ten().perturb_many([1, value], Untouched()),
        lambda: zero_to_ten().perturb_many(np.array([1.0, value, 2.0]), Untouched()),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is RefusalReason.NOT_FINITE


@pytest.mark.parametrize(("value", "point"), [(Fraction(10**400), 10), (Fraction(-(10**400)), 0), (Fraction(5), 5)])
def test_fractions_are_taken_exactly_also_beyond_floats(value: Fraction, point: int) -> None:
    assert zero_to_ten(levels=10).encode(value, seeded("fraction")) == point  # type: ignore[arg-type]


@pytest.mark.parametrize("value", WRONG_TYPE, ids=repr)
def test_readings_of_another_type_are_refused_before_any_entropy(value: object) -> None:
    for attempt in (
        lambda: zero_to_ten().perturb(value, Untouched()),  # type: ignore[arg-type]
        lambda: zero_to_ten().perturb_many([1.0, value], Untouched()),  # type: ignore[list-item]
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is RefusalReason.WRONG_TYPE


@pytest.mark.parametrize("array", [np.array([True]), np.array(["5"]), np.array([5j]), np.zeros((2, 2)), np.array(1.0)])
def test_arrays_of_another_type_or_shape_are_refused_before_any_entropy(array: np.ndarray) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        zero_to_ten().perturb_many(array, Untouched())
    assert caught.value.reason is RefusalReason.WRONG_TYPE


def test_a_refusal_never_holds_the_reading() -> None:
    with pytest.raises(ValueRefusedError) as caught:
        zero_to_ten().perturb("very private", seeded("x"))
    assert "private" not in repr(caught.value) + str(caught.value)


# --- estimates of what was placed ---------------------------------------------------------------------------


def test_negative_ranges_decode_to_where_they_came_from() -> None:
    # case D08
    mech = Laplace(D(-3), D(3), D(1), 65536)
    for attempt in range(20):
        entropy = seeded(f"D08 {attempt}")
        points = [mech.encode(value, entropy) for value in (-2.5, -1.5, -0.5)]
        (mean,) = mech.estimate([sum(points)], 3).values
        assert mean is not None
        assert 3 * mean == pytest.approx(-4.5, abs=0.00014)
        assert mean == pytest.approx(-1.5, abs=5e-5)


def test_large_integers_are_not_rounded_to_floats() -> None:
    mech = Laplace(D(2**60), D(2**60 + 1000), D(40))
    n = 20_000
    for values in (np.full(n, 2**60 + 100), [2**60 + 100] * n):
        mean = mech.perturb_many(values, seeded("large")).mean()
        assert abs(mean - 100) < 5 * (mech.noise_variance / n) ** 0.5


@pytest.mark.parametrize(
    "values",
    [
        [1.5, 2.5, 11.0],
        [1, 2, 11],
        [1, 2.5, 10**400],
        np.array([1.5, 2.5, 11.0], np.float32),
        np.array([1, 2, 200], np.uint8),
        np.array([1, 2, 2**63], np.uint64),
        np.array([1, 2.5, -(10**400)], object),
        (1.5, 2.5, 3.5),
    ],
    ids=repr,
)
def test_perturb_many_takes_what_perturb_takes(values: object) -> None:
    reports = zero_to_ten("40").perturb_many(values, seeded("kinds"))  # type: ignore[arg-type]
    assert reports.shape == (3, 1)
    assert reports.dtype == np.int64
    clipped = [min(max(float(min(max(v, -100), 100)), 0.0), 10.0) for v in values]  # type: ignore[attr-defined]
    assert np.abs(reports[:, 0] - 100 * np.array(clipped)).max() < 1125, "noise of 25 steps, 45 scales of room"


def test_perturb_many_over_nobody() -> None:
    for values in ([], np.array([], np.float64), np.array([], np.int64)):
        assert zero_to_ten().perturb_many(values, seeded("x")).shape == (0, 1)


def test_perturb_many_has_the_mean_and_spread_that_estimate_states() -> None:
    mech = zero_to_ten()
    n = 100_000
    values = np.random.default_rng(5).uniform(-2, 12, n)
    truth = float(np.clip(values, 0, 10).mean())
    reports = mech.perturb_many(values, seeded("spread"))
    estimate = mech.estimate([int(reports.sum())], n)
    assert abs(estimate.values[0] - truth) < 5 * estimate.standard_errors[0]  # type: ignore[operator]
    residuals = reports[:, 0] / 100 - np.clip(values, 0, 10)
    assert residuals.std() / n**0.5 == pytest.approx(estimate.standard_errors[0], rel=0.02)


def test_clamped_ends_are_reached_and_kept() -> None:
    """At epsilon 40 and the smallest room the clamp is hit only by noise beyond 45 scales: given here."""
    mech = zero_to_ten()
    for noise, expected in ((10**9, mech.levels + mech.tail), (-(10**9), -mech.tail), (7, 507)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(laplace, "discrete_laplace", lambda *_, noise=noise: noise)
            assert mech.perturb(5, seeded("x")) == [expected]


class Extreme(Keystream):
    """A stream of ones, or of zeros: every digit at its end, every tail begun."""

    fill = b"\xff"

    def __call__(self, size: int) -> bytes:
        return self.fill * size


@pytest.mark.parametrize("fill", [b"\xff", b"\x00"])
def test_clamped_ends_are_kept_in_bulk(fill: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extreme, "fill", fill)
    monkeypatch.setattr(lattice, "Keystream", Extreme)
    monkeypatch.setattr(sampling_vectorised, "geometric", lambda *_: 1 << 70)
    mech = zero_to_ten()
    reports = mech.perturb_many(np.full(3, 5.0), seeded("x"))
    assert reports.tolist() == [[mech.levels + mech.tail if fill == b"\xff" else -mech.tail]] * 3


# --- estimates ---------------------------------------------------------------------------------------------------


def test_estimate_and_its_error() -> None:
    mech = zero_to_ten()
    estimate = mech.estimate([np.int64(123_456)], 400)
    assert estimate.values == (float(Fraction(123_456, 40_000)),)
    variance = 2 * 1000**2 - 1 / 6 + 1 / 4  # 2r/(1-r)^2 = 2t^2 - 1/6 + O(t^-2), and the rounding
    assert estimate.standard_errors[0] == pytest.approx((variance / 400) ** 0.5 / 100, rel=1e-9)
    assert estimate.contributors == 400
    (interval,) = estimate.interval(0.95)
    assert interval is not None
    assert interval[1] - interval[0] == pytest.approx(2 * 1.959964 * estimate.standard_errors[0], rel=1e-6)  # type: ignore[operator]


def test_noise_variance_is_the_formula() -> None:
    for epsilon, levels in (("1", 1000), ("40", 2), ("40", 1000), ("0.000001", 1 << 20)):
        mech = zero_to_ten(epsilon, levels)
        r = (-1 / (D(mech.scale.numerator) / D(mech.scale.denominator))).exp()
        assert mech.noise_variance == pytest.approx(float(2 * r / (1 - r) ** 2), rel=1e-9)


def test_estimates_are_not_clipped_and_nobody_gives_none() -> None:
    mech = zero_to_ten()
    assert mech.estimate([-500_000], 10).values == (-500.0,)
    assert mech.estimate([5_000_000], 10).values == (5000.0,)
    empty = mech.estimate([0], 0)
    assert (empty.values, empty.standard_errors, empty.contributors) == ((None,), (None,), 0)
    assert empty.interval() == (None,)


def test_estimate_refuses_another_shape() -> None:
    for total, n in (([], 1), ([1, 2], 1), ([1], -1)):
        with pytest.raises(ValueError, match="expected 1 total"):
            zero_to_ten().estimate(total, n)


# --- low bits, seeds -----------------------------------------------------------------------------------------------


def test_outputs_are_lattice_points_whatever_the_reading() -> None:
    # case A05
    mech = Laplace(D(0), D(1), D(1))
    entropy = seeded("A05")
    outputs = {value: [mech.perturb(value, entropy)[0] for _ in range(2000)] for value in (0.0, 1.0, 0.3)}
    assert all(type(y) is int for drawn in outputs.values() for y in drawn), "one grid: the integers"
    smallest_bit = {value: min(y & -y for y in drawn if y) for value, drawn in outputs.items()}
    assert set(smallest_bit.values()) == {1}
    (mean,) = mech.estimate([sum(outputs[0.3])], 2000).values
    assert mean == pytest.approx(0.3, abs=0.15)


PERTURB_64 = """
import os, random
random.seed(0)
import numpy as np
np.random.seed(0)
from decimal import Decimal
from client_sdk.mechanisms.laplace import Laplace
mech = Laplace(Decimal(0), Decimal(10), Decimal(1))
print([mech.perturb(5.0, os.urandom)[0] for _ in range(64)])
print(mech.perturb_many(np.full(64, 5.0), os.urandom)[:, 0].tolist())
"""


def test_the_hosts_seeds_change_nothing() -> None:
    # case B02, first step
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
    runs = [
        subprocess.run([sys.executable, "-c", PERTURB_64], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    for one, other in zip(runs[0].stdout.splitlines(), runs[1].stdout.splitlines(), strict=True):
        assert one.startswith("[")
        assert one != other


ONE_REPORT = """
import os, sys
from decimal import Decimal
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.randomized_response import RandomizedResponse
Laplace(Decimal(0), Decimal(10), Decimal(1)).perturb(5.0, os.urandom)
RandomizedResponse(("a", "b"), Decimal(1), None).perturb("a", os.urandom)
print(sorted({"numpy", "cryptography", "grpc", "google.protobuf"} & set(sys.modules)))
"""


def test_one_report_needs_the_standard_library_only() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_REPORT], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_one_test_seed_for_two_metrics_gives_unrelated_noise() -> None:
    # case B02, second step
    entropy = seeded("one seed")
    first, second = zero_to_ten(), zero_to_ten()
    pairs = [(first.perturb(3.0, entropy)[0], second.perturb(5.0, entropy)[0]) for _ in range(32)]
    differences = {b - a for a, b in pairs}
    assert len(differences) > 20
    assert (
        len(
            {
                b - a
                for a, b in zip(*[zero_to_ten().perturb_many([v] * 32, entropy)[:, 0] for v in (3.0, 5.0)], strict=True)
            }
        )
        > 20
    )


def test_the_same_entropy_gives_the_same_report_and_any_other_another() -> None:
    mech = zero_to_ten()
    assert mech.perturb(3.3, seeded("a")) == mech.perturb(3.3, seeded("a"))
    many = [mech.perturb_many(np.linspace(0, 10, 50), seeded(label)).tolist() for label in "aab"]
    assert many[0] == many[1] != many[2]


def test_perturb_many_keys_its_stream_with_32_bytes() -> None:
    entropy = Scripted(bytes(range(32)))
    zero_to_ten().perturb_many(np.array([1.0, 2.0]), entropy)
    assert entropy.asked == [32]
