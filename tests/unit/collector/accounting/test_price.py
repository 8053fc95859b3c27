"""What a setting costs: every word of a plan, the issue's values, and figures that agree with it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from client_sdk.accounting.ledger import Cohort
from client_sdk.errors import PlanError
from client_sdk.plan.build import MECHANISMS
from collector.accounting.figures import figures
from collector.accounting.local import gaussian_epsilon
from collector.accounting.price import WORDS, Price, losses_of, price
from tests.unit.collector.accounting.ledgers import by_hash, entry, ledger, plan_of


def price_of(
    word: str, epsilon: str, n: int | None = None, *, k: int | None = None, corrupt: str = "0", releases: int = 1
) -> Price:
    losses = losses_of(word, Decimal(epsilon), k)
    return price(losses, contributors=n, corrupt=Fraction(corrupt), releases=releases, delta=1e-6)


def test_the_issues_values() -> None:
    assert price_of("randomized_response", "1", 1000, k=2).eps_central == pytest.approx(0.1486706, abs=1e-6)
    assert price_of("laplace", "1", 1000).eps_central == pytest.approx(0.0796048, abs=1e-6)
    corrupt = price_of("laplace", "1", 1000, corrupt="0.9")
    assert (corrupt.n_h, corrupt.eps_central) == (100, pytest.approx(0.2602247, abs=1e-6))
    assert price_of("optimized_unary", "4", 1000, k=8).eps_central == pytest.approx(0.6687, abs=3e-4)
    hundred = price_of("randomized_response", "1", k=2, releases=100)
    assert (hundred.eps_local_pure, hundred.eps_local) == (Decimal(100), pytest.approx(83.5307, abs=1e-3))
    assert (hundred.eps_central, hundred.n_h) == (hundred.eps_local, 1)


def test_composed_values_of_the_reference() -> None:
    assert price_of("laplace", "1", releases=30).eps_local == pytest.approx(27.7725, abs=1e-3)
    assert price_of("randomized_response", "1", k=64, releases=30).eps_local == pytest.approx(8.16472, abs=1e-3)
    # the reference's 1.915 has losses rounded up to its grid; a thousand noises are nearly Gaussian
    year = price_of("laplace", "1", 1000, releases=365).eps_central
    assert gaussian_epsilon(1e-6, math.sqrt(2000 / 365), 1.0) == pytest.approx(year, rel=1e-3)
    assert year < 1.915
    assert price_of("randomized_response", "1", 1000, k=2, releases=5).eps_central == pytest.approx(0.3510, abs=2e-4)
    assert price_of("laplace", "0.2", releases=1825).eps_local == pytest.approx(72.4148, abs=2e-2)


def test_every_word_of_a_plan_has_a_price() -> None:
    priced = {kind: words for kind, words in MECHANISMS.items() if kind != "vector"}  # `plan check` prices those
    assert set(WORDS) == {word for words in priced.values() for word in words} - {"auto"}
    for word in WORDS:
        numeric = word in MECHANISMS["numeric"]
        found = price_of(word, "2", 50, k=None if numeric else 6)
        assert 0.0 < found.eps_central < found.eps_local <= float(found.eps_local_pure) == 2.0
        if not numeric:
            with pytest.raises(PlanError, match="k: is missing"):
                price_of(word, "2", 50)


@pytest.mark.parametrize(
    ("word", "epsilon", "k", "field"),
    [
        ("nonsense", "1", None, "mechanism"),
        ("auto", "1", 4, "mechanism"),
        ("laplace", "1", 4, "k"),
        ("hadamard", "1", 1, "k"),
        ("square_wave", "1", 5000, "k"),
        # case A01
        ("randomized_response", "800", 4, "epsilon"),
        ("laplace", "800", None, "epsilon"),
        ("laplace", "0.0000001", None, "epsilon"),
    ],
)
def test_what_has_no_price_is_named(word: str, epsilon: str, k: int | None, field: str) -> None:
    with pytest.raises(PlanError, match=f"^{field}: ") as caught:
        losses_of(word, Decimal(epsilon), k)
    assert len(caught.value.problems) == 1


def test_a_price_is_the_figure_of_such_a_ledger() -> None:
    plan = plan_of('[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 1\nepsilon = 1')
    book = ledger(*(entry(day, plan, cohort=Cohort(500, 500, 0)) for day in range(40)), plans=(plan,))
    found = figures(book, by_hash(plan), corrupt=Fraction(1, 10))
    priced = price_of("laplace", "1", 500, corrupt="0.1", releases=40)
    assert (found.eps_local, found.eps_central, found.n_h) == (priced.eps_local, priced.eps_central, priced.n_h)


def test_a_price_grows_with_rounds_and_falls_with_contributors() -> None:
    rising = [price_of("laplace", "1", 100, releases=r).eps_central for r in (1, 2, 5, 20)]
    assert rising == sorted(rising)
    falling = [price_of("laplace", "1", n, releases=3).eps_central for n in (1, 2, 3, 10, 100, 10_000)]
    assert falling == sorted(falling, reverse=True)


def test_the_largest_numbers_that_are_taken() -> None:
    """case A01: e^40 is nowhere formed where it would overflow, and a million contributors are not too many."""
    for word, k in (("laplace", None), ("randomized_response", 4), ("optimized_unary", 4)):
        found = price_of(word, "40", 1_000_000, k=k, releases=1000)
        assert 0.0 < found.eps_central <= found.eps_local <= float(found.eps_local_pure) == 40_000.0
