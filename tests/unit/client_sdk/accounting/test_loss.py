"""Losses of one report: exact, with the integers of the shipped law, and their plain sum."""

from __future__ import annotations

import itertools
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.accounting.loss import COMPOSITION, PrivacyLoss, compose, plain
from client_sdk.errors import ConfigurationError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.choice import categorical
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.optional import OptionalNumber
from client_sdk.mechanisms.parameters import ONE
from client_sdk.mechanisms.piecewise import Piecewise, Window
from client_sdk.mechanisms.quantiles import Quantiles
from client_sdk.plan import Plan, parse_plan

LABELS = tuple("abcdefgh")
EDGES = tuple(map(Decimal, range(9)))
EPSILONS = [Decimal(text) for text in ("0.1", "1", "3.7", "12")]


def number(kind: type, epsilon: Decimal, levels: int = 100) -> Mechanism:
    made: Mechanism = kind(Decimal(0), Decimal(10), epsilon, levels)
    return made


def only(mechanism: Mechanism) -> PrivacyLoss:
    (loss,) = mechanism.losses
    assert (loss.relation, loss.delta, loss.micro_rho) == ("replace one value", 0, 0)
    assert loss.epsilon == mechanism.epsilon
    assert loss.mechanism == mechanism.name
    return loss


# --- the parameters fix the shipped law: the largest ratio comes out of them alone, exactly --------------


RATIOS = {
    "randomized_response": lambda of: Fraction(of("keep") * (of("k") - 1), ONE - of("keep")),
    "symmetric_unary": lambda of: Fraction(of("own") * (ONE - of("others")), (ONE - of("own")) * of("others")),
    "optimized_unary": lambda of: Fraction(of("own") * (ONE - of("others")), (ONE - of("own")) * of("others")),
    "subset_selection": lambda of: Fraction(of("keep") * (of("k") - of("size")), (ONE - of("keep")) * of("size")),
    "hadamard": lambda of: Fraction(of("keep"), ONE - of("keep")),
    "square_wave": lambda of: Fraction(of("inside") * (of("k") - 1), (ONE - of("inside")) * of("window")),
}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("word", RATIOS)
def test_categories(word: str, epsilon: Decimal) -> None:
    mechanism = Histogram(EDGES, epsilon, word) if word == "square_wave" else categorical(word, LABELS, epsilon)
    loss = only(mechanism)
    assert loss.parameter("k") == 8
    assert RATIOS[word](loss.parameter) == mechanism.worst_ratio


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_numbers(epsilon: Decimal) -> None:
    laplace, one_bit, piecewise = (number(kind, epsilon) for kind in (Laplace, OneBit, Piecewise))
    assert dict(only(laplace).parameters) == {"levels": 100, "tail": laplace.bound - 100}
    keep = only(one_bit).parameter("keep")
    assert Fraction(keep, ONE - keep) == one_bit.worst_ratio
    of = only(piecewise).parameter
    assert Window(of("levels"), of("window"), of("inside")).worst_ratio == piecewise.worst_ratio
    assert of("levels") + of("window") == piecewise.bound + 1, "outputs"


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_hybrids_whole_law_comes_out_of_its_parameters(epsilon: Decimal) -> None:
    mechanism = Hybrid(Decimal(0), Decimal(10), epsilon, 6)
    of = only(mechanism).parameter
    window, coin, up = Window(of("levels"), of("window"), of("inside")), Fraction(of("coin"), ONE), Fraction(1, 6)
    to_high = up * Fraction(of("keep"), ONE) + (1 - up) * Fraction(ONE - of("keep"), ONE)
    bit = {of("low"): 1 - to_high, of("high"): to_high}
    for output in range(mechanism.outputs):
        mass = (coin * window.mass(1, output) if coin else 0) + (1 - coin) * bit.get(output, 0)
        assert mass == mechanism.mass(1, output)
    assert bool(coin) == (epsilon > Decimal("0.7")), "both kinds of hybrid were looked at"


def test_an_optional_label_is_one_more_category() -> None:
    assert only(categorical("hadamard", LABELS, Decimal(1), None, True)).parameter("k") == 9
    assert only(Histogram(EDGES, Decimal(1), "randomized_response", optional=True)).parameter("k") == 9


def test_quantiles_cost_what_their_histogram_costs() -> None:
    for word in ("square_wave", "optimized_unary"):
        assert Quantiles(EDGES, Decimal(2), word).losses == Histogram(EDGES, Decimal(2), word).losses


@pytest.mark.parametrize(("epsilon", "share"), [("1", "0.25"), ("0.333333", "0.3"), ("0.000012", "0.1"), ("40", "0.9")])
def test_an_optional_number_loses_a_bit_and_a_value(epsilon: str, share: str) -> None:
    whole, presence = Decimal(epsilon), Decimal(epsilon) * Decimal(share)
    mechanism = OptionalNumber(Laplace(Decimal(0), Decimal(1), whole - presence), whole, Decimal(share))
    bit, value = mechanism.losses
    assert (bit.mechanism, bit.epsilon, value.mechanism) == ("randomized_response", presence, "laplace")
    assert dict(bit.parameters) == {"k": 2, "keep": mechanism.keep}
    together = compose(mechanism.losses)
    assert together.epsilon == whole
    assert 0 <= together.micro_epsilon - PrivacyLoss.of("x", whole).micro_epsilon <= 1, "each part is rounded up"


# --- a plan's metrics ------------------------------------------------------------------------------------

TABLES = """
[plan]
name = "p"
version = 1
period = "1d"
[cohort]
min_size = 2
target_size = 20
max_wait = "30s"
[budget]
lifetime = 365
[metrics.a]
kind = "numeric"
lower = 0
upper = 1
epsilon = 0.1
[metrics.b]
kind = "numeric"
lower = 0
upper = 1
epsilon = 0.3333335
optional = true
[metrics.c]
kind = "categorical"
categories = ["x", "y"]
mechanism = "auto"
epsilon = 3
[metrics.d]
kind = "quantiles"
lower = 0
upper = 1
epsilon = 2.50
"""


def a_plan() -> Plan:
    return parse_plan(TABLES)


def test_a_metrics_losses_cost_its_epsilon_and_never_less_than_the_ledger_says() -> None:
    for metric in a_plan().metrics.values():
        together = compose(metric.losses)
        assert together.epsilon == metric.epsilon
        assert metric.micro_epsilon <= together.micro_epsilon < metric.micro_epsilon + len(metric.losses)
    assert {name: len(metric.losses) for name, metric in a_plan().metrics.items()} == {"a": 1, "b": 2, "c": 1, "d": 1}


# --- amounts -----------------------------------------------------------------------------------------------


# case C05
@pytest.mark.parametrize(
    "amount",
    [Decimal("nan"), Decimal("snan"), Decimal("inf"), Decimal("-inf"), Decimal(-1), Decimal(0), Decimal("1e-320"),
     Decimal("1e400"), Decimal("1e-999999"), Decimal("0.0000009"), 1.0, 1, "1", "", "1_000", "0x1", None, True],
)  # fmt: skip
def test_meaningless_amounts_are_refused(amount: object) -> None:
    with pytest.raises(ConfigurationError):
        PrivacyLoss.of("laplace", amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [{"micro_epsilon": 99_999}, {"micro_epsilon": 100_000.0}, {"delta": Decimal(1)}, {"delta": Decimal("nan")},
     {"delta": Decimal(-1)}, {"delta": 1e-6}, {"micro_rho": -1}, {"micro_rho": 0.5}, {"epsilon": Decimal("-0.1")}],
)  # fmt: skip
def test_a_loss_that_bounds_nothing_cannot_be_made(changes: dict[str, object]) -> None:
    fields: dict[str, object] = {"mechanism": "m", "epsilon": Decimal("0.1"), "micro_epsilon": 100_000}
    PrivacyLoss(**fields)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        PrivacyLoss(**(fields | changes))  # type: ignore[arg-type]


# case C04
def test_no_exponent_and_no_digit_that_was_not_put_in() -> None:
    for text in ("0.1", "0.333333", "0.000001", "10", "1000000000"):
        loss = PrivacyLoss.of("m", Decimal(text))
        assert str(loss) == f"epsilon {text}, delta 0 (replace one value): m"
    assert plain(Decimal("1E+1")) == "10"
    assert plain(Decimal("1E-6")) == plain(Decimal("0.00000100")) == "0.000001"
    assert plain(Decimal("-0.50")) == "-0.5"
    loss = PrivacyLoss("gauss", Decimal("1E+1"), 10_000_000, delta=Decimal("1E-9"))
    assert str(loss) == "epsilon 10, delta 0.000000001 (replace one value): gauss"
    ten = compose([PrivacyLoss.of("m", Decimal("0.1"))] * 10)
    assert (ten.epsilon, ten.micro_epsilon) == (1, 1_000_000), "no binary fraction crept in"


def test_epsilon_is_rounded_up_for_the_ledger() -> None:
    assert PrivacyLoss.of("m", Decimal("0.1000000000000001")).micro_epsilon == 100_001
    assert PrivacyLoss.of("m", Decimal("0.1")).micro_epsilon == 100_000


LOSSES = st.lists(
    st.builds(
        PrivacyLoss.of,
        st.just("m"),
        st.decimals(Decimal("0.000001"), 40, places=30).map(lambda x: x if x else Decimal(1)),
    ),
    max_size=6,
)


@given(LOSSES, st.randoms())
def test_the_sum_is_exact_whatever_the_order_and_wherever_it_is_split(
    losses: list[PrivacyLoss], random: object
) -> None:
    shuffled = list(losses)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    whole = compose(losses)
    assert compose(shuffled) == whole
    assert Fraction(whole.epsilon) == sum((Fraction(loss.epsilon) for loss in losses), Fraction(0))
    assert whole.micro_epsilon == sum(loss.micro_epsilon for loss in losses)
    for cut in range(len(losses) + 1):
        assert compose([compose(losses[:cut]), compose(losses[cut:])]) == whole


def test_nothing_composes_to_nothing_and_relations_do_not_mix() -> None:
    assert compose([]) == PrivacyLoss(COMPOSITION, Decimal(0), 0)
    other = PrivacyLoss("m", Decimal(1), 1_000_000, relation="add or remove one")
    with pytest.raises(ConfigurationError, match="relations"):
        compose([other, PrivacyLoss.of("m", Decimal(1))])
    assert compose([other, other]).relation == "add or remove one"


def test_delta_and_rho_add_up() -> None:
    one = PrivacyLoss("g", Decimal(1), 1_000_000, delta=Decimal("1E-9"), micro_rho=7)
    three = compose(itertools.repeat(one, 3))
    assert (three.delta, three.micro_rho) == (Decimal("3E-9"), 21)
