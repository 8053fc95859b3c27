"""What rounds of federated averaging cost one device: locally, and against whoever sees the sums alone.

Two neighbouring relations, and every sensitivity is printed with its own: *replace* (ours, as everywhere): one device's
clipped update becomes any other one, which is 2C apart, and its bit the other bit, 1 apart; *add or remove*, which
papers on federated averaging mean: it becomes nothing, so C and 1/2. Who takes part is public here, so "removed" is a
device whose vectors are zeros, its noise still in the sum.

Rules of this file: composed are the losses of the integers that ship. A round is two releases (update and bit) with
coins of their own, rounds are independent; a later round's model and C depend on earlier sums, but its law has the same
dominating pair whatever they were, so composition holds although each round is chosen after the last. The local figure
is against whoever holds the device's own reports, and nothing amplifies it: who was in a round is not secret, and no
sampling is counted anywhere. PLD is exact up to 1e-5 of itself and never too low; RDP is the second opinion.
Sources: accounting of McMahan et al. 2018; Mironov 2017; Koskela et al. 2020 (`composition.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from client_sdk.accounting.loss import PrivacyLoss, compose
from collector.accounting import local, rdp
from collector.accounting.composition import Composer
from collector.accounting.losses import central_pair, local_pair
from collector.accounting.pairs import LossPair, check_delta
from collector.federated.checks import known_relation, whole_number

Relation = Literal["replace", "add_or_remove"]
RELATIONS: Final[tuple[Relation, ...]] = ("replace", "add_or_remove")

RELATION_TEXT: Final[dict[Relation, str]] = {
    "replace": "replace a value",
    "add_or_remove": "add or remove a device",
}
SENSITIVITY: Final[dict[Relation, tuple[str, str]]] = {"replace": ("2C", "1"), "add_or_remove": ("C", "1/2")}
"""Of the sum of updates clipped to C, and of the sum of centred bits, under each relation."""

ORDERS: Final[NDArray[np.float64]] = 1.0 + np.geomspace(1e-2, 1e3, 240)
"""Renyi orders: the best of them is within a thousandth of the best of all in every setting of the tests."""


@dataclass(frozen=True, slots=True)
class Epsilons:
    """The same releases by two accountants, at one delta."""

    pld: float
    rdp: float


def loss_under(loss: PrivacyLoss, relation: Relation) -> PrivacyLoss:
    """A vector's loss with its sensitivity under `relation`: half of its own where a vector is taken away to zeros.

    ValueError for a loss that is no vector's, or an unknown relation.
    """
    known_relation(relation, RELATIONS)
    if relation == "replace":
        return loss
    if loss.mechanism == "laplace":
        halved = PrivacyLoss.of("laplace", loss.epsilon / 2, levels=loss.parameter("levels") // 2)
        return replace(halved, parameters=(*halved.parameters, ("tail", loss.parameter("tail"))))
    if loss.mechanism == "gaussian":
        parameters = dict(loss.parameters)
        parameters["sensitivity_squared"] //= 4
        return replace(loss, parameters=tuple(parameters.items()))
    raise ValueError(f"only vectors are averaged, not {loss.mechanism}")


class CostMeter:
    """Costs of a device that took part in every round. Not to be shared by threads.

    losses: of one report's metrics that count, update and bit. n_h: honest contributors of the smallest cohort, the
    device itself among them. delta: at which every epsilon is shown. ValueError for a delta outside (0, 1), for counts
    that are not whole, and for an unknown relation; 0 rounds have been none yet.
    """

    def __init__(self, losses: Sequence[PrivacyLoss], n_h: int, delta: float) -> None:
        check_delta(delta)
        if delta == 0.0 or not losses:
            raise ValueError(
                f"a delta above 0 and at least one loss are needed, got {delta!r} and {len(losses)} losses"
            )
        self.n_h, self.delta = whole_number("n_h", n_h, 1), delta
        self._losses = tuple(losses)
        self._local = _Accountants([local_pair(loss) for loss in losses])
        self._central = {
            relation: _Accountants([central_pair(loss_under(loss, relation), self.n_h) for loss in losses])
            for relation in RELATIONS
        }

    @property
    def report(self) -> PrivacyLoss:
        """One report to whoever sees it, by the plain sum: an epsilon and the delta that belongs to it."""
        return compose(self._losses)

    def plain(self, rounds: int) -> tuple[Decimal, Decimal]:
        """(epsilon, delta) of so many reports to whoever sees them, by the plain sum."""
        rounds = whole_number("rounds", rounds, 0)
        return self.report.epsilon * rounds, self.report.delta * rounds

    def local(self, rounds: int) -> Epsilons:
        """Of so many reports, to whoever sees each of them. Relation: replace."""
        return self._local.epsilons(whole_number("rounds", rounds, 0), self.delta)

    def central(self, rounds: int, relation: Relation = "replace") -> Epsilons:
        """Of so many reports, to whoever sees only the sums that they are in."""
        known_relation(relation, RELATIONS)
        return self._central[relation].epsilons(whole_number("rounds", rounds, 0), self.delta)


class _Accountants:
    def __init__(self, pairs: Sequence[LossPair]) -> None:
        self._composer = Composer(pairs)
        self._count = len(pairs)
        self._divergences = np.sum([divergences(pair) for pair in pairs], axis=0)
        self._left_out = math.fsum(pair.slack + float(pair.upper[pair.lower == 0.0].sum()) for pair in pairs)

    def epsilons(self, rounds: int, delta: float) -> Epsilons:
        room = delta - rounds * self._left_out
        renyi = rdp.epsilon_of(rounds * self._divergences, room, ORDERS) if room > 0.0 else math.inf
        return Epsilons(self._composer.epsilon([rounds] * self._count, delta), renyi)


def divergences(pair: LossPair, orders: NDArray[np.float64] = ORDERS) -> NDArray[np.float64]:
    """Renyi divergences of P from Q over the atoms that both have, shape as `orders`; at least 0.

    The rest of P, atoms that Q has not and the pair's slack, is left to a delta.
    """
    both = (pair.upper > 0.0) & (pair.lower > 0.0)
    logs, losses = np.log(pair.upper[both]), pair.losses[both]
    powers = [_log_sum(logs + (order - 1.0) * losses) / (order - 1.0) for order in orders.tolist()]
    return np.asarray(np.maximum(powers, 0.0))


def _log_sum(logs: NDArray[np.float64]) -> float:
    """ln of the sum of e^logs: with one shift, several times as fast as adding them pair by pair."""
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def averaging_cost(noise_multiplier: float, rounds: int, delta: float, relation: Relation) -> Epsilons:
    """Of federated averaging with Gaussian noise of deviation noise_multiplier x C in each round's sum of everybody.

    The textbook setting, with one release a round: what a planner compares settings by. ValueError for noise that
    protects nobody, rounds that are no whole number of at least one, or an unknown relation.
    """
    known_relation(relation, RELATIONS)
    return _averaging_cost(noise_multiplier, whole_number("rounds", rounds, 1), delta, relation)


@lru_cache(maxsize=256)  # looked up after the checks: to a cache 1.0 and True are 1
def _averaging_cost(noise_multiplier: float, rounds: int, delta: float, relation: Relation) -> Epsilons:
    pair = local.gaussian(noise_multiplier, 2.0 if relation == "replace" else 1.0)
    return _Accountants([pair]).epsilons(rounds, delta)
