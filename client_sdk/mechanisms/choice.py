"""Which mechanism answers a question with the least error: what `mechanism = "auto"` in a plan comes to.

Rules of this file: a choice is a function of the plan alone (how many labels, which epsilon), in exact arithmetic, so
that every device and the collector come to the same. Equal errors go to the simpler mechanism.
What it does not do: weigh a report's length; a plan that needs short reports names its mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from client_sdk.errors import PlanError
from client_sdk.mechanisms import hadamard, randomized_response, subset_selection, unary
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.hadamard import Hadamard
from client_sdk.mechanisms.hybrid import Hybrid
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.numeric import NumericMechanism
from client_sdk.mechanisms.one_bit import OneBit
from client_sdk.mechanisms.piecewise import Piecewise
from client_sdk.mechanisms.pure import exact_mean_squared_error
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.mechanisms.subset_selection import SubsetSelection
from client_sdk.mechanisms.unary import OptimizedUnary, SymmetricUnary

AUTO = "auto"

CATEGORICAL: dict[str, type[CategoricalMechanism]] = {
    "randomized_response": RandomizedResponse,
    "symmetric_unary": SymmetricUnary,
    "optimized_unary": OptimizedUnary,
    "subset_selection": SubsetSelection,
    "hadamard": Hadamard,
}
"""The plan's words for mechanisms over labels, simplest first."""

NUMERIC: dict[str, type[NumericMechanism]] = {
    "one_bit": OneBit,
    "laplace": Laplace,
    "piecewise": Piecewise,
    "hybrid": Hybrid,
}
"""The plan's words for means, simplest first."""

LEVELS = 1000
"""Steps of the lattice that mechanisms for a mean are compared on: as many as a plan has without a word."""

_LAWS: dict[str, Callable[[int, Decimal], tuple[Fraction, Fraction]]] = {
    "randomized_response": randomized_response.probabilities,
    "symmetric_unary": unary.symmetric_probabilities,
    "optimized_unary": unary.optimized_probabilities,
    "subset_selection": subset_selection.probabilities,
    "hadamard": hadamard.probabilities,
}


def costs(k: int, epsilon: Decimal) -> dict[str, float]:
    """Word -> n times the mean squared error of one label's share, averaged over k labels; simplest first."""
    return {word: float(cost) for word, cost in _exact_costs(k, epsilon).items()}


@lru_cache(maxsize=256)
def cheapest(k: int, epsilon: Decimal) -> str:
    """The word of the mechanism with the least mean squared error over k labels, of equals the simplest."""
    exact = _exact_costs(k, epsilon)
    return min(exact, key=exact.__getitem__)


def _exact_costs(k: int, epsilon: Decimal) -> dict[str, Fraction]:
    return {word: exact_mean_squared_error(k, *law(k, epsilon)) for word, law in _LAWS.items()}


def categorical(
    word: str, categories: tuple[str, ...], epsilon: Decimal, other: str | None = None, optional: bool = False
) -> CategoricalMechanism:
    """The mechanism of a plan's word, or of `auto`. PlanError for an unknown word or parameters that cannot work."""
    if word == AUTO:
        simplest = RandomizedResponse(categories, epsilon, other, optional)  # checks what the choice is made from
        word = cheapest(simplest.k, simplest.epsilon)
    if word not in CATEGORICAL:
        raise PlanError(f"mechanism: must be one of {AUTO}, {', '.join(CATEGORICAL)}, not {word!r}")
    return CATEGORICAL[word](categories, epsilon, other, optional)


def numeric_costs(epsilon: Decimal, levels: int = LEVELS) -> dict[str, float]:
    """Word -> one report's worst-case variance, as if the range were [-1, 1]; simplest first."""
    return {word: float(cost) for word, cost in _exact_numeric_costs(epsilon, levels).items()}


@lru_cache(maxsize=256)
def numeric_choice(epsilon: Decimal, levels: int = LEVELS) -> str:
    """The word of the mechanism for a mean with the least worst-case variance, of equals the simplest.

    One bit up to an epsilon of about 0.61, hybrid above.
    """
    exact = _exact_numeric_costs(epsilon, levels)
    return min(exact, key=exact.__getitem__)


def _exact_numeric_costs(epsilon: Decimal, levels: int) -> dict[str, Fraction]:
    made = {word: mechanism(Decimal(-1), Decimal(1), epsilon, levels) for word, mechanism in NUMERIC.items()}
    return {word: mechanism.law.worst_variance() for word, mechanism in made.items()}
