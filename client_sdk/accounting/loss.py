"""The privacy loss of one report: what it costs, against whom, and the law that whoever adds losses up must know.

Relation: replace one value. Two inputs of one metric are neighbours when one device's reading is any other value of
the declared range; who takes part is public.

Rules of this file: epsilon is the exact decimal that the mechanism was made for; beside it stands the ledger's amount,
micro-epsilon rounded up. A loss never goes without its relation and its delta, and never with an exponent.
What it does not do: amplify, or use any composition but the plain sum: that bound holds for every adversary, and
whatever was chosen after seeing earlier answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from client_sdk.accounting.budget import MAX_EPSILON, MICRO
from client_sdk.errors import ConfigurationError

RELATION: Final = "replace one value"
COMPOSITION: Final = "composition"
"""The mechanism's name of a sum of losses."""

_EXACT = Context(prec=400)


@dataclass(frozen=True, slots=True)
class PrivacyLoss:
    """Of one report of one metric, or of a part of it that is drawn independently of the rest.

    epsilon: exact. micro_epsilon: at least that, in the ledger's unit. parameters: the whole numbers that, with
    epsilon, fix the shipped law. delta: 0 for everything but Gaussian noise, whose zero-concentrated loss, in
    millionths and rounded up, is micro_rho. ConfigurationError for amounts that bound nothing.
    """

    mechanism: str
    epsilon: Decimal
    micro_epsilon: int
    parameters: tuple[tuple[str, int], ...] = ()
    relation: str = RELATION
    delta: Decimal = Decimal(0)
    micro_rho: int = 0

    def __post_init__(self) -> None:
        if not _is_amount(self.epsilon) or type(self.micro_epsilon) is not int:
            raise ConfigurationError("the epsilon of a loss must be 0 or a Decimal of at least 0.000001")
        if Fraction(self.epsilon) * MICRO > self.micro_epsilon:
            raise ConfigurationError("the ledger's amount of a loss must not be below its epsilon")
        if not (isinstance(self.delta, Decimal) and self.delta.is_finite() and 0 <= self.delta < 1):
            raise ConfigurationError("the delta of a loss must be a Decimal in [0, 1)")
        if type(self.micro_rho) is not int or self.micro_rho < 0:
            raise ConfigurationError("the rho of a loss must be a whole number of millionths, 0 or more")

    @classmethod
    def of(cls, mechanism: str, epsilon: Decimal, **parameters: int) -> PrivacyLoss:
        """Of a pure mechanism. ConfigurationError for an epsilon that is no amount of the ledger."""
        if not _is_amount(epsilon) or not 0 < epsilon <= MAX_EPSILON:
            raise ConfigurationError(f"the epsilon of a loss must be a Decimal, 0.000001 to {MAX_EPSILON}")
        return cls(mechanism, epsilon, math.ceil(Fraction(epsilon) * MICRO), tuple(parameters.items()))

    def parameter(self, name: str) -> int:
        """One of `parameters`. KeyError where this mechanism has none of that name."""
        return dict(self.parameters)[name]

    def __str__(self) -> str:
        law = ", ".join(f"{name} {value}" for name, value in self.parameters)
        amounts = f"epsilon {plain(self.epsilon)}, delta {plain(self.delta)} ({self.relation})"
        return f"{amounts}: {self.mechanism} {law}".strip()


def compose(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """All of them together, by the plain sum: exact in epsilon, delta, and the ledger's amounts. Of none: nothing.

    ConfigurationError where the relations differ: such losses do not add up.
    """
    listed = list(losses)
    relations = {loss.relation for loss in listed} or {RELATION}
    if len(relations) > 1:
        raise ConfigurationError("losses under different relations do not add up")
    epsilon = delta = Decimal(0)
    for loss in listed:
        epsilon, delta = _EXACT.add(epsilon, loss.epsilon), _EXACT.add(delta, loss.delta)
    return PrivacyLoss(
        COMPOSITION,
        epsilon,
        sum(loss.micro_epsilon for loss in listed),
        relation=relations.pop(),
        delta=delta,
        micro_rho=sum(loss.micro_rho for loss in listed),
    )


def _is_amount(epsilon: object) -> bool:
    """A finite Decimal: 0, or not below the ledger's unit, so that its digits can be written out."""
    if not isinstance(epsilon, Decimal) or not epsilon.is_finite():
        return False
    return epsilon == 0 or (epsilon > 0 and -6 <= epsilon.adjusted() <= 60)


def plain(amount: Decimal) -> str:
    """A decimal without an exponent and without digits that say nothing: 1E-7 -> "0.0000001", 1.50 -> "1.5"."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
