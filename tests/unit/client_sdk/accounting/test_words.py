"""Epsilon in words: the reference's table, no overflow, no exponent, no figure where there is no protection."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.accounting.words import NO_PROTECTION, in_words
from client_sdk.errors import ConfigurationError


@pytest.mark.parametrize(
    ("epsilon", "factor", "certainty"),
    [("0", "1", "50"), ("0.1", "1.11", "52.5"), ("1", "2.72", "73.1"), ("3", "20.1", "95.3"), ("7", "1100", "99.9")],
)
@pytest.mark.parametrize("kind", [Decimal, float])
def test_the_table(epsilon: str, factor: str, certainty: str, kind: type) -> None:
    words = in_words(kind(epsilon))
    assert words.sentence == (
        f"the odds of any one guess change at most {factor}-fold; a 50/50 guess becomes at most {certainty} % certain"
    )
    with localcontext() as context:
        context.prec = 40
        exact = Decimal(epsilon).exp()
        assert words.factor == pytest.approx(float(exact), rel=1e-15)
        assert words.certainty == pytest.approx(float(exact / (1 + exact)), rel=1e-15)


# case A01
@pytest.mark.parametrize(
    "epsilon", [7.000001, 800, 1e308, math.inf, 10**400, Decimal("1e999999"), Decimal("inf"), Decimal("7.0000000001")]
)
def test_above_seven_there_is_no_protection_and_nothing_overflows(epsilon: Any) -> None:
    words = in_words(epsilon, 1e-6)
    assert (words.factor, words.certainty, words.sentence) == (None, None, NO_PROTECTION)


# case C04
@pytest.mark.parametrize("delta", [1e-6, Decimal("1e-6"), Decimal("0.00000100")])
def test_delta_is_said_in_plain_digits(delta: Any) -> None:
    assert in_words(1, delta).sentence.endswith(" (except with probability 0.000001)")
    assert "except" not in in_words(1, 0).sentence


# case C05
@pytest.mark.parametrize("bad", [math.nan, -1, -math.inf, Decimal("nan"), Decimal("snan"), Decimal(-1)])
def test_meaningless_amounts_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError):
        in_words(bad)
    with pytest.raises(ConfigurationError):
        in_words(1, bad)


@pytest.mark.parametrize("delta", [1, 1.5, math.inf])
def test_a_delta_of_one_says_nothing(delta: float) -> None:
    with pytest.raises(ConfigurationError):
        in_words(1, delta)


@given(st.floats(0, 7), st.floats(0, 7))
def test_more_epsilon_never_sounds_better(one: float, other: float) -> None:
    less, more = in_words(min(one, other)), in_words(max(one, other))
    assert less.factor is not None
    assert more.factor is not None
    assert less.certainty is not None
    assert more.certainty is not None
    assert less.factor <= more.factor
    assert 0.5 <= less.certainty <= more.certainty < 1.0
    assert "e+" not in more.sentence
