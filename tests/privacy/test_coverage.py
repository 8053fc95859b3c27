"""Measured coverage of the error bars: the table of `tests.benchmarks.bench_coverage`, asserted. Seeded throughout.

python -m pytest -n0 -m slow tests/privacy/test_coverage.py        (minutes)
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from client_sdk.mechanisms import Estimate
from client_sdk.mechanisms.laplace import Laplace
from tests.benchmarks.bench_coverage import CASES, COHORTS, HEADER, Tally, as_markdown, measure


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_as_often_as_they_say(name: str) -> None:
    case = CASES[name]()
    row = measure(case, COHORTS)
    print("\n" + as_markdown(row))
    assert 94.0 <= row.this_cohort <= case.most
    assert row.population >= 94.0
    assert row.given == 100.0
    if case.formula is not None:
        assert row.mse_over_formula == pytest.approx(1.0, abs=0.05)
    if case.mech.answer == "counts":
        assert row.wilson >= 94.0


def test_a_short_table_comes_out_the_same_each_time() -> None:
    one, again = (measure(CASES["laplace"](), 40) for _ in range(2))
    assert (one.this_cohort, one.population, one.mse_over_formula) == (
        again.this_cohort,
        again.population,
        again.mse_over_formula,
    )
    assert isnan(one.wilson)
    assert {line.count("|") for line in (*HEADER, as_markdown(one))} == {8}


def test_error_bars_that_are_too_short_are_seen() -> None:
    """Half the standard error covers two thirds; a quarter of the formula's error is four times too much."""

    class Boastful(Laplace):
        def estimate(self, total: object, contributors: int) -> Estimate:
            honest = super().estimate(total, contributors)  # type: ignore[arg-type]
            return replace(honest, standard_errors=tuple((error or 0.0) / 2 for error in honest.standard_errors))

    case = CASES["laplace"]()
    row = measure(replace(case, mech=Boastful(case.mech.lower, case.mech.upper, case.mech.epsilon)), 200)  # type: ignore[attr-defined]
    assert 55 < row.this_cohort < 80
    assert 0.7 < row.mse_over_formula < 1.3


def test_a_row_without_an_interval_is_not_given() -> None:
    tally = Tally(2)
    tally.add(Estimate((None, 5.0), (None, 1.0), 10), np.array([1.0, 6.0]), population=False)
    tally.add(Estimate((1.0, 5.0), (1.0, 1.0), 10), np.array([1.0, 8.0]), population=False)
    assert tally.given.tolist() == [1, 2]
    assert tally.held.tolist() == [1, 1]
    assert tally.squares.tolist() == [0.0, 10.0]
