"""How much noise a Gaussian takes: analytic against published and independent numbers, classic where it holds."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms import calibration
from client_sdk.mechanisms.calibration import (
    analytic_ratio,
    classic_ratio,
    delta_problems,
    gaussian_delta,
    normal_below,
    smallest_epsilon,
)
from collector.accounting import local

# accounting reference, section 3: eps, delta, classic sigma, analytic sigma
ROWS = [
    ("0.5", "1e-6", 10.5976, 8.05762),
    ("1", "1e-6", None, 4.22468),
    ("1", "1e-5", None, 3.730632),
    ("2", "1e-6", None, 2.23048),
    ("5", "1e-6", None, 0.98005),
    ("10", "1e-6", None, 0.54109),
]


@pytest.mark.parametrize(("epsilon", "delta", "classic", "analytic"), ROWS)
def test_published_rows(epsilon: str, delta: str, classic: float | None, analytic: float) -> None:
    assert float(analytic_ratio(Decimal(epsilon), Decimal(delta))) == pytest.approx(analytic, abs=6e-6)
    if classic is None:
        with pytest.raises(PlanError, match=r"calibration: the classic formula .* proven for epsilon below 1 only"):
            classic_ratio(Decimal(epsilon), Decimal(delta))
    else:
        assert float(classic_ratio(Decimal(epsilon), Decimal(delta))) == pytest.approx(classic, abs=5e-5)


@pytest.mark.parametrize("epsilon", ["0.01", "0.7", "3", "40"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-9", "1e-18"])
def test_the_accountants_floats_agree(epsilon: str, delta: str) -> None:
    """Two independent ways: decimals and a series here, erfc there."""
    ratio = float(analytic_ratio(Decimal(epsilon), Decimal(delta)))
    assert ratio == pytest.approx(local.gaussian_sigma(float(epsilon), float(delta), 1.0), rel=2e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.000001", "1e-18"), ("0.3", "1e-6"), ("40", "1e-5")])
def test_the_ratio_is_the_smallest_that_holds(epsilon: str, delta: str) -> None:
    exact_epsilon, exact_delta = Decimal(epsilon), Decimal(delta)
    ratio = analytic_ratio(exact_epsilon, exact_delta)
    with localcontext(Context(prec=80)):
        shift = Decimal(ratio.denominator) / ratio.numerator
        assert gaussian_delta(shift, exact_epsilon) <= exact_delta
        assert gaussian_delta(shift * (1 + Decimal("1e-8")), exact_epsilon) > exact_delta
        assert smallest_epsilon(shift, exact_delta, Decimal(41)) / exact_epsilon <= 1


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-6"), ("0.999", "1e-5")])
def test_the_classic_formula_takes_more_noise_where_it_holds(epsilon: str, delta: str) -> None:
    assert classic_ratio(Decimal(epsilon), Decimal(delta)) > analytic_ratio(Decimal(epsilon), Decimal(delta))


def test_the_classic_formula_would_have_broken_its_claim_at_ten() -> None:
    """Why it is refused: at (10, 1e-6) its noise has epsilon 10.254."""
    with localcontext(Context(prec=60)):
        shift = 10 / (2 * (Decimal("1.25") / Decimal("1e-6")).ln()).sqrt()
        assert float(smallest_epsilon(shift, Decimal("1e-6"), Decimal(20))) == pytest.approx(10.254, abs=5e-4)


@pytest.mark.parametrize("x", ["-17", "-5", "-1", "-0.001", "0", "0.5", "3", "12"])
def test_normal_distribution(x: str) -> None:
    with localcontext(Context(prec=70)):
        value = normal_below(Decimal(x))
        assert abs(value + normal_below(-Decimal(x)) - 1) < Decimal("1e-60")
    assert float(value) == pytest.approx(local._normal_below(float(x)), rel=1e-12)


@pytest.mark.parametrize("delta", ["0", "-1e-6", "1e-19", "0.0001", "NaN", "Infinity"])
def test_deltas_that_are_refused(delta: str) -> None:
    assert delta_problems(Decimal(delta))


def test_floats_only_say_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = analytic_ratio(Decimal("0.77"), Decimal("1e-7"))
    guess = calibration._guessed_shift(0.77, 1e-7)
    for off in (1 - 3e-9, 1 + 3e-9):
        analytic_ratio.cache_clear()
        monkeypatch.setattr(calibration, "_guessed_shift", lambda e, d, off=off: guess * off)
        assert analytic_ratio(Decimal("0.77"), Decimal("1e-7")) == wanted


def test_ratios_are_exact_fractions_of_thirty_digits() -> None:
    ratio = analytic_ratio(Decimal(1), Decimal("1e-6"))
    assert isinstance(ratio, Fraction)
    assert len(str(ratio.numerator)) <= 31
