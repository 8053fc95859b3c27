"""The complete law of a report in exact fractions, and the bulk half run over every draw there is.

`complete_law` of `tests.branching` cuts numbers to 90 digits. Where all choices are finite, as in the mechanisms for
numbers, nothing needs to be cut: each draw's outcomes have rational probabilities, and a law's masses add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from client_sdk.sampling_vectorised import Keystream
from tests.entropy import Untouched, seeded

Law = dict[Any, Fraction]
ONE = 1 << 64


class _Branches:
    """Answers each draw with one of its outcomes; `run` visits all of them."""

    def __init__(self) -> None:
        self._todo: list[list[int]] = [[]]
        self._prefix: list[int] = []
        self._taken: list[int] = []
        self._mass = Fraction(1)

    def law(self, run: Callable[[], Any]) -> Law:
        law: Law = {}
        while self._todo:
            self._prefix, self._taken, self._mass = self._todo.pop(), [], Fraction(1)
            outcome = run()
            law[outcome] = law.get(outcome, Fraction(0)) + self._mass
        assert sum(law.values()) == 1
        return law

    def _choose(self, weights: list[Fraction]) -> int:
        possible = [pick for pick, weight in enumerate(weights) if weight]
        step = len(self._taken)
        if step < len(self._prefix):
            pick = self._prefix[step]
        else:
            pick = possible[0]
            self._todo.extend([*self._taken, other] for other in possible[1:])
        self._taken.append(pick)
        self._mass *= weights[pick]
        return pick

    def bernoulli_2_64(self, numerator: int, entropy: object) -> bool:
        return self.bernoulli(Fraction(numerator, ONE), entropy)

    def bernoulli(self, probability: Fraction, entropy: object) -> bool:
        return bool(self._choose([1 - probability, probability]))

    def uniform_below(self, n: int, entropy: object) -> int:
        return self._choose([Fraction(1, n)] * n)


def exact_law(run: Callable[[], Any], *modules: ModuleType) -> Law:
    """{outcome: probability} of `run`, whose draws are those of `client_sdk.sampling` as `modules` import them.

    Those samplers have the laws that they state (tests of `sampling`); here each is replaced by all its outcomes.
    """
    branches = _Branches()
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name in ("bernoulli_2_64", "bernoulli", "uniform_below"):
                if hasattr(module, name):
                    patch.setattr(module, name, getattr(branches, name))
        return branches.law(run)


def worst_ratio(laws: list[Law]) -> Fraction:
    """Over all pairs of laws and all outcomes; all must reach the same outcomes."""
    outcomes = set(laws[0])
    assert all(set(law) == outcomes for law in laws), "every input reaches the same outputs"
    return max(max(law[y] for law in laws) / min(law[y] for law in laws) for y in outcomes)


def e_to(epsilon: Decimal | str) -> Fraction:
    """e^epsilon, rounded down by less than one part in 10^110."""
    with localcontext(Context(prec=120)):
        return Fraction(Decimal(epsilon).exp() * (1 - Decimal("1e-115")))


def moments(law: Law, centre: Fraction = Fraction(0)) -> tuple[Fraction, Fraction]:
    """(mean, mean square about `centre`) of a law over integers."""
    return (
        sum((y * mass for y, mass in law.items()), Fraction(0)),
        sum(((y - centre) ** 2 * mass for y, mass in law.items()), Fraction(0)),
    )


# --- the bulk half -----------------------------------------------------------------------------------------


class _Script(Keystream):
    """Rows of given draws, one column per draw: 64-bit words as such, uniform integers by `below`."""

    def __init__(self, columns: np.ndarray, draws: list[int]) -> None:
        super().__init__(seeded("never drawn from"))
        self.columns = list(columns.T)
        self.draws = list(draws)

    def words(self, count: int, width: int) -> np.ndarray:
        assert width == 8, "thresholds are compared at 64 bits"
        assert self.draws.pop(0) < 0
        column = self.columns.pop(0).astype(np.uint64)
        assert column.shape == (count,)
        return column

    def below(self, n: int, count: int, stream: Keystream) -> np.ndarray:
        assert stream is self
        assert self.draws.pop(0) == n
        column = self.columns.pop(0).astype(np.int64)
        assert column.shape == (count,)
        return column


@contextmanager
def _one_by_one(modules: tuple[ModuleType, ...], outcomes: list[int], draws: list[int]) -> Iterator[None]:
    left = list(draws)

    def word(numerator: int, entropy: object) -> bool:
        assert left.pop(0) == -numerator
        return outcomes.pop(0) < numerator

    def below(n: int, entropy: object) -> int:
        assert left.pop(0) == n
        return outcomes.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name, fake in (("bernoulli_2_64", word), ("uniform_below", below)):
                if hasattr(module, name):
                    patch.setattr(module, name, fake)
        yield


def assert_bulk_follows(mechanism: Any, point: int, draws: list[int], *modules: ModuleType) -> int:
    """`perturb_points` answers every combination of draws as `perturb_point` does; returns how many there were.

    `draws`, one per draw in the order in which both halves make them: a positive integer is a uniform integer below
    it, tried in full; a negative one is a threshold that a 64-bit word is compared with: both its sides and the ends.
    """
    choices = [range(draw) if draw > 0 else sorted({0, -draw - 1, -draw, ONE - 1}) for draw in draws]
    combinations = list(product(*choices))
    columns = np.array(combinations, dtype=object)
    stream = _Script(columns, draws)
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if hasattr(module, "uniform_below_many"):
                patch.setattr(module, "uniform_below_many", lambda n, count, stream: stream.below(n, count, stream))
        bulk = mechanism.perturb_points(np.full(len(combinations), point, np.int32), stream)
    assert not stream.columns, "both halves make as many draws"
    assert bulk.dtype == np.int64
    for combination, answer in zip(combinations, bulk.tolist(), strict=True):
        left = list(combination)
        with _one_by_one(modules, left, draws):
            assert mechanism.perturb_point(point, Untouched()) == answer, combination
        assert not left
    return len(combinations)
