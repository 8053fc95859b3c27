"""Mechanisms for vectors: parameters, both halves, what is stated about privacy and error."""

from __future__ import annotations

import math
from array import array
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.gaussian import ROUNDING_VARIANCE, VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace, VectorMechanism
from tests.entropy import seeded

ONE = Decimal(1)


def both(dimension: int = 4, clip: str = "2", epsilon: str = "1", levels: int = 100) -> list[VectorMechanism]:
    given = dimension, Decimal(clip), Decimal(epsilon), levels
    return [VectorLaplace(*given), VectorGaussian(*given)]


@pytest.mark.parametrize("mechanism", both(), ids=lambda m: m.name)
def test_shape(mechanism: VectorMechanism) -> None:
    assert isinstance(mechanism, Mechanism)
    assert (mechanism.length, mechanism.answer, mechanism.labels) == (4, "vector", ("0", "1", "2", "3"))
    report = mechanism.perturb([1.0, -1.0, 0.5, 0.0], seeded("shape"))
    assert len(report) == 4
    assert all(type(element) is int and abs(element) <= mechanism.bound for element in report)
    assert mechanism.bound == 100 + mechanism.tail


@pytest.mark.parametrize("dimension", [1, 15, 16, 300])
@pytest.mark.parametrize("kind", [0, 1])
def test_short_and_long_vectors_are_estimated_without_bias(dimension: int, kind: int) -> None:
    mechanism = both(dimension, epsilon="20", levels=4096)[kind]
    truth = np.linspace(-1.0, 1.0, dimension) if dimension > 1 else np.array([0.7])
    truth *= 1.5 / (np.abs(truth).sum() if kind == 0 else math.sqrt((truth**2).sum()))
    n = 200
    entropy = seeded(f"unbiased {dimension} {kind}")
    total = np.sum([mechanism.perturb(truth.tolist(), entropy) for _ in range(n)], axis=0)
    estimate = mechanism.estimate(total.tolist(), n)
    off = (np.array(estimate.values) - truth) / estimate.standard_errors[0]
    assert np.abs(off).max() < 5.5
    assert off.std() < 1.7 if dimension > 10 else True
    assert len(set(estimate.standard_errors)) == 1
    assert all(p >= s for p, s in zip(estimate.population_errors, estimate.standard_errors, strict=True))


@pytest.mark.parametrize("kind", [0, 1])
def test_a_vector_beyond_the_ball_counts_as_its_clipped_self(kind: int) -> None:
    mechanism = both(2, clip="1", epsilon="40", levels=4096)[kind]
    reports = mechanism.perturb_many(np.array([[300.0, -400.0]] * 4000), seeded(f"clipped {kind}"))
    estimate = mechanism.estimate(reports.sum(axis=0).tolist(), 4000)
    wanted = (3 / 7, -4 / 7) if kind == 0 else (0.6, -0.8)
    assert all(
        abs(value - want) < 5.5 * error
        for value, want, error in zip(estimate.values, wanted, estimate.standard_errors, strict=True)
    )


@pytest.mark.parametrize("mechanism", both(), ids=lambda m: m.name)
def test_standard_errors_are_those_of_the_noise(mechanism: VectorMechanism) -> None:
    reports = mechanism.perturb_many(np.tile([1.0, 0.3, -0.2, 0.0], (20_000, 1)), seeded("spread"))
    spread = reports.std(axis=0) * float(mechanism.unit)
    (error,) = set(mechanism.estimate([0] * 4, 20_000).standard_errors)
    assert spread == pytest.approx([error * math.sqrt(20_000)] * 4, rel=0.03)


def test_nobody_is_an_explicit_answer() -> None:
    for mechanism in both():
        assert mechanism.estimate([0] * 4, 0).values == (None,) * 4
        with pytest.raises(ValueError, match="expected 4 totals"):
            mechanism.estimate([0] * 3, 1)


def test_plausible_is_what_so_many_reports_can_add_up_to() -> None:
    for mechanism in both():
        most = 3 * mechanism.bound
        assert mechanism.is_plausible([most, -most, 0, 0], 3)
        assert not mechanism.is_plausible([most + 1, 0, 0, 0], 3)
        assert not mechanism.is_plausible([0, 0, 0, -most - 1], 3)
        assert not mechanism.is_plausible([0, 0, 0], 3)
        assert mechanism.is_plausible([0] * 4, 0)


def test_what_l1_states() -> None:
    """Under replacement two points lie 2 levels apart: the loss is that of a number on such a lattice."""
    mechanism = VectorLaplace(1000, ONE, Decimal("0.5"), 100)
    assert mechanism.scale == Fraction(200) / Fraction(1, 2)
    (loss,) = mechanism.losses
    assert (loss.mechanism, loss.parameter("levels"), loss.delta, loss.relation) == (
        "laplace", 200, 0, "replace one value",
    )  # fmt: skip
    assert loss.micro_epsilon == 500_000
    assert math.isclose(mechanism.worst_ratio, math.exp(0.5))
    clamped = 1000 * math.exp(-mechanism.tail / float(mechanism.scale))
    assert clamped * math.exp(0.5) < math.exp(-45)


def test_what_l2_states() -> None:
    mechanism = VectorGaussian(1000, ONE, ONE, 4096, Decimal("1e-6"))
    (loss,) = mechanism.losses
    assert loss.mechanism == "gaussian"
    assert (loss.epsilon, loss.delta, loss.relation) == (1, Decimal("1e-6"), "replace one value")
    squared = 4 * (4097**2 + 250)
    assert loss.parameter("sensitivity_squared") == squared
    sigma = math.sqrt((mechanism.variance - ROUNDING_VARIANCE) / squared)
    assert sigma == pytest.approx(4.224679, abs=1e-5)
    assert Fraction(loss.micro_rho, 10**6) >= mechanism.rho > Fraction(loss.micro_rho - 1, 10**6)
    assert float(mechanism.rho) == pytest.approx(1 / (2 * 4.224679**2), rel=1e-5)
    assert mechanism.worst_ratio <= math.exp(1) * (1 + 1e-12)
    assert mechanism.worst_ratio == pytest.approx(math.e, rel=1e-6)


def test_the_sensitivity_of_two_clips_is_what_is_noised() -> None:
    """2 clip, and what rounding adds: below a hundredth at the default levels, even for a million coordinates."""
    for dimension, more in ((1, 1.0003), (1000, 1.0003), (1_000_000, 1.01)):
        mechanism = VectorGaussian(dimension, Decimal(3), ONE)
        sensitivity = float(mechanism.unit) * math.sqrt(mechanism.ball.sensitivity_squared)
        assert 6.0 < sensitivity < 6.0 * more


def test_classic_calibration() -> None:
    classic = VectorGaussian(10, ONE, Decimal("0.5"), calibration="classic")
    analytic = VectorGaussian(10, ONE, Decimal("0.5"))
    assert classic.variance > analytic.variance
    assert classic.worst_ratio < math.exp(0.373 + 0.001), "its true epsilon: accounting reference"
    with pytest.raises(PlanError, match=r"calibration: .*epsilon below 1 only"):
        VectorGaussian(10, ONE, Decimal(10), calibration="classic")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dimension": 0}, "dimension"), ({"dimension": 1_000_001}, "dimension"), ({"dimension": True}, "dimension"),
        ({"clip": Decimal(0)}, "clip"), ({"clip": Decimal(-1)}, "clip"), ({"clip": Decimal("NaN")}, "clip"),
        ({"clip": Decimal("1e-300")}, "clip"), ({"clip": Decimal("1e308")}, "clip"), ({"clip": 1.0}, "clip"),
        ({"epsilon": Decimal(0)}, "epsilon"), ({"epsilon": Decimal(41)}, "epsilon"),
        ({"levels": 0}, "levels"), ({"levels": (1 << 20) + 1}, "levels"),
    ],
)  # fmt: skip
def test_parameters_that_cannot_work(change: dict[str, object], field: str) -> None:
    given = {"dimension": 3, "clip": ONE, "epsilon": ONE, "levels": 100} | change
    for kind in (VectorLaplace, VectorGaussian):
        with pytest.raises(PlanError) as refused:
            kind(**given)  # type: ignore[arg-type]
        assert refused.value.problems[0].startswith(f"{field}: ")


@pytest.mark.parametrize(("change", "field"), [({"delta": Decimal("0.1")}, "delta"), ({"calibration": "x"}, "calibr")])
def test_gaussian_parameters_that_cannot_work(change: dict[str, object], field: str) -> None:
    with pytest.raises(PlanError, match=field):
        VectorGaussian(3, ONE, ONE, **change)  # type: ignore[arg-type]


def test_a_report_is_of_one_length_and_type_whatever_the_vector() -> None:
    for mechanism in both(40):
        for vector in ([0.0] * 40, [1e300] * 40, array("d", range(40)), np.arange(40)):
            report = mechanism.perturb(vector, seeded("one length"))
            assert len(report) == 40
            assert {type(element) for element in report} == {int}


def test_bulk_takes_rows_and_sequences() -> None:
    """Whatever the dress, from the same entropy the same reports: of these rows, in their order."""
    rows = [[1, 0, 2, -1], [0, 0, 0, 0], [-2, 1, 0, 0]]
    for mechanism in both():
        wanted = mechanism.perturb_many(np.array(rows, float), seeded("dress"))
        assert wanted.shape == (3, 4)
        for values in (np.array(rows), rows, [np.array(row) for row in rows], [array("d", row) for row in rows]):
            assert (mechanism.perturb_many(values, seeded("dress")) == wanted).all()
        other = mechanism.perturb_many(rows[::-1], seeded("dress"))
        assert not (other == wanted).all()


SAMPLERS = [
    ("client_sdk.mechanisms.vector.discrete_laplace", 0),
    ("client_sdk.mechanisms.gaussian.discrete_gaussian", 1),
]


@pytest.mark.parametrize(("sampler", "kind"), SAMPLERS)
def test_a_single_report_is_its_point_and_the_noise_that_was_drawn(
    sampler: str, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros lie on a point: each element is the draw itself, and a draw beyond the bound is the bound."""
    mechanism = both(5)[kind]
    bound = mechanism.bound
    draws = [7, -3, 10**30, -(10**30), bound + 1]
    left = list(draws)
    monkeypatch.setattr(sampler, lambda parameter, entropy: left.pop(0))
    assert mechanism.perturb([0.0] * 5, seeded("scripted")) == [7, -3, bound, -bound, bound]
    assert not left, "one draw a coordinate"


@pytest.mark.parametrize(("sampler", "kind"), SAMPLERS)
def test_the_noise_is_never_clamped_only_the_output(sampler: str, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point at the ball's edge with noise of a whole bound ends where zeros with more of it do."""
    mechanism = both(1, clip="2", levels=100)[kind]
    monkeypatch.setattr(sampler, lambda parameter, entropy: -mechanism.bound + 30)
    assert mechanism.perturb([2.0], seeded("edge")) == [-mechanism.bound + 130]
    monkeypatch.setattr(sampler, lambda parameter, entropy: mechanism.bound - 30)
    assert mechanism.perturb([2.0], seeded("edge")) == [mechanism.bound]


@pytest.mark.parametrize("kind", [0, 1])
def test_single_reports_spread_to_both_sides_as_the_noise_does(kind: int) -> None:
    mechanism = both(8, epsilon="2", levels=16)[kind]
    entropy = seeded(f"single spread {kind}")
    elements = np.array([mechanism.perturb([0.0] * 8, entropy) for _ in range(400)]).reshape(-1)
    deviation = math.sqrt(mechanism.noise_variance)
    assert elements.std() == pytest.approx(deviation, rel=0.1)
    for side in (elements, -elements):
        share = float((side > deviation).mean())
        assert 0.08 < share < 0.2, "a seventh of the mass, of either law, lies beyond one deviation on each side"


def test_totals_beyond_64_bits_are_decoded() -> None:
    """Many rounds add up to more than a round's ring holds."""
    for mechanism in both():
        n = 2**70
        estimate = mechanism.estimate([50 * n, -100 * n, 2**63, -(2**63) - 1], n)
        assert estimate.values[:2] == (1.0, -2.0)
        assert estimate.values[2] == pytest.approx(2.0**-7 / 50)
        assert all(error is not None and 0 < error < 1e-6 for error in estimate.population_errors[2:])
