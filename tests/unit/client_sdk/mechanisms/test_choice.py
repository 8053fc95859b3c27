"""What `auto` comes to: the published errors and crossovers, ties, and refusals."""

from __future__ import annotations

from decimal import Decimal

import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms.choice import (
    CATEGORICAL,
    NUMERIC,
    categorical,
    cheapest,
    costs,
    numeric_choice,
    numeric_costs,
)
from client_sdk.mechanisms.pure import mean_squared_error
from client_sdk.plan.build import number

D = Decimal
GRR, SUE, OUE, SS, HR = CATEGORICAL


def crossover(k: int, word: str, other: str) -> tuple[bool, bool, float]:
    """(does `word` cost less at the ends of [0.01, 20], the epsilon where that turns)."""

    def less(epsilon: float) -> bool:
        cost = costs(k, D(repr(epsilon)))
        return cost[word] < cost[other]

    low, high = 0.01, 20.0
    ends = less(low), less(high)
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if less(middle) else (middle, high)
    return *ends, high


@pytest.mark.parametrize(
    ("k", "published"),
    [(8, 0.810), (16, 1.716), (32, 2.501), (64, 3.237), (128, 3.950), (256, 4.654), (1024, 6.048)],
)
def test_where_randomized_response_beats_the_optimized_unary_encoding(k: int, published: float) -> None:
    assert crossover(k, GRR, OUE) == (False, True, pytest.approx(published, abs=0.001))


@pytest.mark.parametrize(("k", "published"), [(8, 3.53), (16, 5.27), (128, 9.67), (1024, 13.9)])
def test_where_the_symmetric_encoding_beats_the_optimized_one(k: int, published: float) -> None:
    assert crossover(k, SUE, OUE) == (False, True, pytest.approx(published, abs=0.05))


@pytest.mark.parametrize(("k", "word", "other"), [(3, GRR, OUE), (4, GRR, OUE), (2, SUE, OUE), (4, SUE, OUE)])
def test_where_one_always_has_less(k: int, word: str, other: str) -> None:
    for epsilon in ("0.01", "0.1", "0.5", "1", "2", "4", "8", "16"):
        assert costs(k, D(epsilon))[word] < costs(k, D(epsilon))[other]


@pytest.mark.parametrize(
    ("k", "epsilon", "word", "published"),
    [
        (2, "0.5", GRR, 3.92),
        (4, "0.5", GRR, 9.44),
        (4, "0.5", SS, 9.19),
        (16, "0.5", OUE, 15.73),
        (16, "0.5", SS, 13.7),
        (128, "0.5", OUE, 15.68),
        (128, "0.5", SS, 15.4),
        (2, "1", GRR, 0.921),
        (4, "1", GRR, 1.89),
        (16, "1", OUE, 3.75),
        (16, "1", SS, 3.19),
        (16, "1", GRR, 6.17),
        (128, "1", SS, 3.62),
        (128, "1", GRR, 44.2),
        (1024, "1", OUE, 3.68),
        (1024, "1", GRR, 348),
        (16, "2", GRR, 0.661),
        (16, "2", SS, 0.578),
        (128, "2", OUE, 0.732),
        (128, "2", SS, 0.705),
        (128, "3", OUE, 0.228),
        (128, "3", SS, 0.209),
        (128, "4", GRR, 0.0812),
        (128, "4", SS, 0.0675),
        (1024, "4", SS, 0.0749),
    ],
)
def test_the_published_errors(k: int, epsilon: str, word: str, published: float) -> None:
    assert costs(k, D(epsilon))[word] == pytest.approx(published, rel=0.008)


@pytest.mark.parametrize("k", [2, 3, 4, 5, 16, 33, 128, 1024])
@pytest.mark.parametrize("epsilon", ["0.000001", "0.1", "1", "2.5", "6", "40"])
def test_the_cheapest_is_the_cheapest(k: int, epsilon: str) -> None:
    """And what is weighed is what ships: each mechanism's own p and q."""
    cost = costs(k, D(epsilon))
    assert list(cost) == list(CATEGORICAL)
    assert cost[cheapest(k, D(epsilon))] == min(cost.values())
    assert cost[SS] <= min(cost[GRR], cost[OUE])
    for word, kind in CATEGORICAL.items():
        mech = kind(tuple(f"c{i}" for i in range(k)), D(epsilon))
        assert cost[word] == mean_squared_error(k, mech.p, mech.q)


@pytest.mark.parametrize(("k", "epsilon"), [(2, "0.1"), (2, "40"), (3, "1"), (16, "2.5"), (1024, "7")])
def test_of_equals_the_simplest(k: int, epsilon: str) -> None:
    """Sets of one label are randomised response, whose report is simpler to read."""
    assert costs(k, D(epsilon))[SS] == costs(k, D(epsilon))[GRR]
    assert cheapest(k, D(epsilon)) == GRR


@pytest.mark.parametrize("word", CATEGORICAL)
def test_words_are_the_mechanisms_names(word: str) -> None:
    mech = categorical(word, ("a", "b"), D(1), "else", True)
    assert (mech.name, mech.labels) == (word, ("a", "b", "else", "(no reading)"))


@pytest.mark.parametrize(
    ("listed", "other", "optional", "word"),
    [(8, None, False, SS), (2, None, False, GRR), (3, "else", True, SS), (3, None, False, GRR)],
)
def test_auto_counts_all_labels(listed: int, other: str | None, optional: bool, word: str) -> None:
    mech = categorical("auto", tuple(f"c{i}" for i in range(listed)), D("0.8"), other, optional)
    assert mech.name == word


def test_refusals() -> None:
    with pytest.raises(PlanError, match=r"mechanism: must be one of auto, randomized_response, .* not 'laplace'"):
        categorical("laplace", ("a", "b"), D(1))
    for categories, epsilon, field in ((("a", "a"), D(1), "categories"), (("a", "b"), D(0), "epsilon")):
        with pytest.raises(PlanError, match=f"^{field}: "):
            categorical("auto", categories, epsilon)


@pytest.mark.parametrize("word", ["randomized_response", "auto", "Laplace", ""])
def test_a_word_that_is_no_mechanism_for_a_mean_is_refused(word: str) -> None:
    with pytest.raises(
        PlanError, match=rf"mechanism: must be one of laplace, one_bit, piecewise, hybrid, not '{word}'"
    ):
        number(word, D(0), D(1), D(1), 100)
    for known, kind in NUMERIC.items():
        assert type(number(known, D(0), D(1), D(1), 100)) is kind


@pytest.mark.parametrize(
    ("epsilon", "word"), [("0.000001", "one_bit"), ("0.6", "one_bit"), ("0.62", "hybrid"), ("8", "hybrid")]
)
def test_auto_for_a_mean(epsilon: str, word: str) -> None:
    cost = numeric_costs(D(epsilon))
    assert list(cost) == list(NUMERIC)
    assert numeric_choice(D(epsilon)) == word
    assert cost[word] == min(cost.values())
