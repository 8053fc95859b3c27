"""The complete law of a one-hot report that is drawn by one biased coin and uniform choices, from the shipped integers.

Both halves of such a mechanism, one report alone and many at once, are run for every outcome of every draw, by putting
`choose` (`tests.branching`) in place of the samplers that its module imports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from client_sdk.sampling_vectorised import Keystream
from tests.branching import exact_law
from tests.entropy import Untouched, seeded

ONE = 1 << 64
Law = dict[int, Fraction]
Choose = Callable[[Sequence[Fraction]], int]
Half = Callable[[ModuleType, Any, int, pytest.MonkeyPatch], Law]


def one_by_one(module: ModuleType, mech: Any, truth: int, monkeypatch: pytest.MonkeyPatch) -> Law:
    """The law of the cell that `perturb_code` marks."""

    def run(choose: Choose) -> int:
        def kept(numerator: int, entropy: object) -> bool:
            return choose([Fraction(numerator, ONE), 1 - Fraction(numerator, ONE)]) == 0

        monkeypatch.setattr(module, "bernoulli_2_64", kept)
        monkeypatch.setattr(module, "uniform_below", lambda n, entropy: choose([Fraction(1, n)] * n))
        report = mech.perturb_code(truth, Untouched())
        assert sorted(report) == [0] * (mech.length - 1) + [1]
        return int(report.index(1))

    return exact_law(run)


def vectorised(module: ModuleType, mech: Any, truth: int, monkeypatch: pytest.MonkeyPatch) -> Law:
    """The law of the cell that the vectorised half draws."""

    def run(choose: Choose) -> int:
        def kept(numerator: int, count: int, stream: object) -> np.ndarray:
            weights = [1 - Fraction(numerator, ONE), Fraction(numerator, ONE)]
            return np.array([choose(weights) for _ in range(count)], np.uint8)

        def place(n: int, count: int, stream: object) -> np.ndarray:
            return np.array([choose([Fraction(1, n)] * n) for _ in range(count)])

        monkeypatch.setattr(module, "bernoulli_2_64_many", kept)
        monkeypatch.setattr(module, "uniform_below_many", place)
        return int(mech._answers(np.array([truth], np.uint8), Keystream(seeded("unused")))[0])

    return exact_law(run)
