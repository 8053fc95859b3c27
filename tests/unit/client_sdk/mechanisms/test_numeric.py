"""What all mechanisms for numbers share: parameters, refusals, error bars that hold for every cohort, `auto`."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, numeric
from client_sdk.mechanisms.choice import numeric_choice, numeric_costs
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism, OutputLaw
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.piecewise import Piecewise
from tests.entropy import Scripted, Untouched, seeded

D = Decimal
KINDS: list[type[NumericMechanism]] = [Laplace, OneBit, Piecewise, Hybrid]
FINITE: list[type[NumericMechanism]] = [OneBit, Piecewise, Hybrid]


def zero_to_ten(kind: type[NumericMechanism], epsilon: str = "1", levels: int = 1000) -> NumericMechanism:
    return kind(D(0), D(10), D(epsilon), levels)


# --- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lower", "upper"), [("0", "0"), ("3", "-3"), ("-1", "-1"), ("nan", "1"), ("0", "inf")])
def test_ranges_without_a_width_are_refused(kind: type[NumericMechanism], lower: str, upper: str) -> None:
    # case D08
    with pytest.raises(PlanError, match=r"^(lower|upper): "):
        kind(D(lower), D(upper), D(1))


@pytest.mark.parametrize("kind", FINITE)
def test_all_problems_at_once_and_floats_refused(kind: type[NumericMechanism]) -> None:
    with pytest.raises(PlanError) as caught:
        kind(D(5), D(5), D(99), 1)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["epsilon", "levels", "upper"]
    with pytest.raises(PlanError, match=r"^epsilon: must be a Decimal"):
        kind(D(0), D(1), 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FINITE)
@pytest.mark.parametrize("epsilon", ["0.000001", "0.5", "40"])
@pytest.mark.parametrize("levels", [2, 1000, 1 << 20])
def test_extreme_parameters_work(kind: type[NumericMechanism], epsilon: str, levels: int) -> None:
    mech = zero_to_ten(kind, epsilon, levels)
    assert isinstance(mech, Mechanism)
    assert mech == pickle.loads(pickle.dumps(mech))  # noqa: S301 - our own bytes
    assert (mech.length, mech.labels, mech.answer) == (1, ("mean",), "mean")
    assert 1 <= mech.bound == mech.law.highest <= 2 * levels
    assert mech.law.lowest == 0
    assert math.isfinite(mech.worst_case_variance)
    (one,) = mech.perturb(3.3, seeded("extreme"))
    many = mech.perturb_many(np.array([0.0, 3.3, 10.0]), seeded("extreme"))
    assert many.shape == (3, 1)
    assert all(0 <= y <= mech.bound for y in (one, *many[:, 0].tolist()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_whose_estimates_would_not_be_finite_is_refused(kind: type[NumericMechanism]) -> None:
    for epsilon in ("0.000001", "1"):
        mech = kind(D("-1e298"), D("1e298"), D(epsilon))
        for total in (mech.law.lowest, mech.law.highest):
            estimate = mech.estimate([total], 1)
            cells = (estimate.values[0], estimate.standard_errors[0], estimate.population_errors[0])
            assert all(cell is not None and math.isfinite(cell) for cell in cells)
    with pytest.raises(PlanError, match=r"not be finite"):
        kind(D("-1e307"), D("1e307"), D("0.000001"))


# --- readings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FINITE)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, RefusalReason.NOT_FINITE),
        (-math.inf, RefusalReason.NOT_FINITE),
        (True, RefusalReason.WRONG_TYPE),
        ("5", RefusalReason.WRONG_TYPE),
        (None, RefusalReason.WRONG_TYPE),
    ],
)
def test_unusable_readings_are_refused_before_any_entropy(
    kind: type[NumericMechanism], value: object, reason: RefusalReason
) -> None:
    # case A04
    mech = zero_to_ten(kind)
    attempts = (
        lambda: mech.perturb(value, Untouched()),  # type: ignore[arg-type]
        lambda: mech.perturb_many([1.0, value], Untouched()),  # type: ignore[list-item]
    )
    for attempt in attempts:
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is reason


@pytest.mark.parametrize("kind", FINITE)
def test_outputs_are_integers_of_one_set_whatever_the_reading(kind: type[NumericMechanism]) -> None:
    # case A05
    mech = kind(D(0), D(1), D(1), 8)
    entropy = seeded("A05")
    outputs = {value: [mech.perturb(value, entropy)[0] for _ in range(2000)] for value in (0.0, 1.0, 0.3)}
    assert all(type(y) is int for drawn in outputs.values() for y in drawn)
    assert {tuple(sorted(set(drawn))) for drawn in outputs.values()} == {tuple(range(mech.law.highest + 1))}
    (mean,) = mech.estimate([sum(outputs[0.3])], 2000).values
    assert mean == pytest.approx(0.3, abs=0.15)


@pytest.mark.parametrize("kind", FINITE)
def test_both_halves_have_the_mean_and_spread_that_are_stated(kind: type[NumericMechanism]) -> None:
    mech = zero_to_ten(kind, "1.5")
    values = np.random.default_rng(5).uniform(-2, 12, 40_000)
    clipped = np.clip(values, 0, 10)
    many = mech.perturb_many(values, seeded("bulk"))[:, 0]
    few = [mech.perturb(value, seeded(f"{i}"))[0] for i, value in enumerate(values[:2000].tolist())]
    for reports, truth in ((many, clipped), (np.array(few), clipped[:2000])):
        estimate = mech.estimate([int(reports.sum())], reports.size)
        error = estimate.standard_errors[0]
        assert error is not None
        assert abs(estimate.values[0] - truth.mean()) < 4.5 * error  # type: ignore[operator]
    centre = float(mech.law.centre)
    t = (clipped - 5) / 10 * mech.lattice.levels
    square = float(mech.law.base) + float(mech.law.growth) * (t**2).mean()
    assert ((many - centre) ** 2).mean() == pytest.approx(square, rel=0.03)


def test_negative_ranges_decode_to_where_they_came_from() -> None:
    # case D08: the expected sum of reports, exactly, whatever the mechanism
    for kind in FINITE:
        mech = kind(D(-3), D(3), D(1), 65536)
        total = sum(
            mech.law.centre + mech.law.slope * (mech.lattice.position(value) - Fraction(mech.lattice.levels, 2))
            for value in (-2.5, -1.5, -0.5)
        )
        mean = mech.lattice.value_at(mech.law.position(total, 3))  # type: ignore[arg-type]
        assert 3 * mean == Fraction(-9, 2)
        assert mean == Fraction(-3, 2)


@pytest.mark.parametrize("kind", FINITE)
def test_every_block_has_its_own_points(kind: type[NumericMechanism], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric, "BLOCK", 4)
    mech = zero_to_ten(kind, "40", 100)
    ends = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 1]) * 10.0
    reports = mech.perturb_many(ends, seeded("blocks"))[:, 0]
    assert ((reports > mech.law.highest / 2) == (ends > 5)).all(), "at epsilon 40 a report is next to its reading"


def test_perturb_many_keys_its_stream_with_32_bytes() -> None:
    for kind in FINITE:
        entropy = Scripted(bytes(range(32)))
        zero_to_ten(kind).perturb_many(np.array([1.0, 2.0]), entropy)
        assert entropy.asked == [32]


ONE_REPORT = """
import os, sys
from decimal import Decimal
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.optional import OptionalNumber
from client_sdk.mechanisms.piecewise import Piecewise
for kind in (OneBit, Piecewise, Hybrid):
    kind(Decimal(0), Decimal(10), Decimal(1)).perturb(5.0, os.urandom)
OptionalNumber(OneBit(Decimal(0), Decimal(10), Decimal("0.75")), Decimal(1)).perturb(None, os.urandom)
print(sorted({"numpy", "cryptography", "grpc", "google.protobuf"} & set(sys.modules)))
"""


def test_one_report_needs_the_standard_library_only() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_REPORT], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


# --- estimates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_of_nobody_of_another_shape_and_beyond_the_range(kind: type[NumericMechanism]) -> None:
    mech = zero_to_ten(kind)
    empty = mech.estimate([0], 0)
    assert (empty.values, empty.standard_errors, empty.contributors) == ((None,), (None,), 0)
    assert empty.interval() == empty.interval(population=True) == (None,)
    for total, n in (([], 1), ([1, 2], 1), ([1], -1)):
        with pytest.raises(ValueError, match="expected 1 total"):
            mech.estimate(total, n)
    (low,), (high,) = (mech.estimate([10 * end], 10).values for end in (mech.law.lowest, mech.law.highest))
    assert low is not None
    assert high is not None
    assert low < 0, "never clipped"
    assert high > 10
    assert low + high == pytest.approx(10), "the outputs lie alike on both sides of the middle"


@pytest.mark.parametrize("kind", KINDS)
def test_plausible_sums(kind: type[NumericMechanism]) -> None:
    mech = zero_to_ten(kind)
    low, high = mech.law.lowest, mech.law.highest
    for cells, n, plausible in (
        ([7 * low], 7, True),
        ([7 * high], 7, True),
        ([7 * low - 1], 7, False),
        ([7 * high + 1], 7, False),
        ([0], 0, True),
        ([1], 0, False),
        ([], 7, False),
        ([0, 0], 7, False),
    ):
        assert mech.is_plausible(cells, n) is plausible
    if isinstance(mech, Laplace):
        assert (low, high) == (-mech.tail, mech.levels + mech.tail)


shares = st.fractions(0, 1, max_denominator=50)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["0.1", "0.6", "1", "3", "8"]),
    st.sampled_from([2, 7, 100]),
    st.lists(shares, min_size=1, max_size=8),
)
def test_no_cohort_and_no_population_has_more_variance_than_is_stated(
    kind: type[NumericMechanism], epsilon: str, levels: int, cohort: list[Fraction]
) -> None:
    """Exactly, from the law's moments at each reading's position, its rounding included."""
    law = zero_to_ten(kind, epsilon, levels).law
    positions = [share * law.steps for share in cohort]
    squares = [second_moment(law, position) for position in positions]
    middles = [law.slope * (position - Fraction(law.steps, 2)) for position in positions]
    n = len(cohort)
    mean = sum(positions) / n
    own = (sum(squares) - sum(middle**2 for middle in middles)) / n
    drawn = sum(squares) / n - (sum(middles) / n) ** 2
    assert own <= law.cohort_variance(mean)
    assert drawn <= law.population_variance(mean)
    assert law.cohort_variance(mean) <= law.population_variance(mean)
    assert law.cohort_variance(mean) / law.slope**2 * Fraction(4, law.steps**2) <= law.worst_variance()


def second_moment(law: OutputLaw, position: Fraction) -> Fraction:
    """Of y about its centre for a reading at this position: the mixture over the two points beside it."""
    whole, rest = divmod(position, 1)
    return sum(
        (
            share * (law.base + law.growth * (point - Fraction(law.steps, 2)) ** 2)
            for point, share in ((whole, 1 - rest), (whole + 1, rest))
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_stated_variances_are_reached(kind: type[NumericMechanism]) -> None:
    """By readings at the ends, or all alike: a bound that nobody reaches would be wasted."""
    law = zero_to_ten(kind, "1").law
    rise = law.growth - law.slope**2
    if rise >= 0:
        assert law.cohort_variance(Fraction(0)) == law.base + rise * Fraction(law.steps, 2) ** 2 + law.growth / 4
    else:
        third = Fraction(law.steps, 3)
        assert law.cohort_variance(third) == law.base + rise * Fraction(law.steps, 6) ** 2 + law.growth / 4
    ends = law.base + law.growth * Fraction(law.steps, 2) ** 2  # half of them at either end
    assert law.population_variance(Fraction(law.steps, 2)) == ends + law.growth / 4


def test_a_bits_population_error_is_the_binomial_one() -> None:
    mech = OneBit(D(0), D(10), D(2))
    ones, n = 700, 1000
    (error,), (population,) = mech.estimate([ones], n).standard_errors, mech.estimate([ones], n).population_errors
    unit = 10 / float(mech.law.slope)
    assert error == population == pytest.approx(unit * math.sqrt(0.7 * 0.3 / n))


def test_laplace_errors_for_a_cohort_and_for_a_population() -> None:
    mech = zero_to_ten(Laplace)
    estimate = mech.estimate([300 * 400], 400)  # a mean of 3 in 0 .. 10
    noise = mech.law.base + Fraction(1, 4)
    assert estimate.standard_errors[0] == pytest.approx(math.sqrt(noise / 400) / 100)
    assert estimate.population_errors[0] == pytest.approx(math.sqrt((float(noise) / 100**2 + 3 * 7) / 400))


# --- against the reference, and `auto` -----------------------------------------------------------------------

WORST = {  # worst-case variance per report on [-1, 1]: Laplace, Duchi, and the piecewise and hybrid of the paper
    "0.1": (800, 400.7, 533.2, 400.7),
    "0.5": (32.0, 16.67, 21.22, 16.67),
    "1": (8.00, 4.68, 5.22, 4.29),
    "1.5": (3.56, 2.48, 2.26, 1.89),
    "2": (2.00, 1.72, 1.23, 1.04),
    "3": (0.889, 1.22, 0.493, 0.432),
    "4": (0.500, 1.076, 0.241, 0.219),
    "6": (0.222, 1.010, 0.0735, 0.0704),
    "8": (0.125, 1.001, 0.0253, 0.0249),
}


@pytest.mark.parametrize("epsilon", WORST)
def test_worst_case_variances_of_the_literature(epsilon: str) -> None:
    """Equal where the mechanism is the paper's; the two with a window of their own are never worse."""
    costs = numeric_costs(D(epsilon))
    laplace, duchi, paper_piecewise, paper_hybrid = WORST[epsilon]
    assert costs["laplace"] == pytest.approx(laplace, rel=0.003)
    assert costs["one_bit"] == pytest.approx(duchi, rel=0.003)
    assert costs["piecewise"] <= paper_piecewise * 1.0005
    assert costs["hybrid"] <= min(paper_hybrid, duchi) * 1.0005
    assert costs["hybrid"] <= costs["piecewise"] * (1 + 1e-9)


def test_auto_is_the_least_worst_case_variance() -> None:
    assert [numeric_choice(D(epsilon)) for epsilon in ("0.000001", "0.6075", "0.608", "1", "2.5", "10")] == [
        *["one_bit"] * 2,
        *["hybrid"] * 4,
    ]
    for epsilon in ("0.3", "0.607", "0.61", "1.3", "5"):
        costs = numeric_costs(D(epsilon))
        assert costs[numeric_choice(D(epsilon))] == min(costs.values())


def test_one_bit_is_left_by_laplace_where_the_literature_says() -> None:
    assert numeric_costs(D("2.3241"))["laplace"] > numeric_costs(D("2.3241"))["one_bit"]
    assert numeric_costs(D("2.3243"))["laplace"] < numeric_costs(D("2.3243"))["one_bit"]
