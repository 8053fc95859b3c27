"""What accounting costs: closed forms of millions, one lifetime, a fleet. Prints figures, asserts none about time.

    python tests/benchmarks/bench_accounting.py

CPU seconds of one process, because the machine may be shared, and wall-clock seconds beside them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from collector.accounting.history import FLEET_TOLERANCE, distinct_histories, fleet, lifetime
from collector.accounting.local import closed_form, discrete_laplace, pure, randomized_response, rho

USERS = 10_000_000
CHUNK = 1 << 20
FLEET_RATIO = 0.07
"""Leaves some 15,000 distinct histories of this fleet."""

EPSILONS = [0.5, 1.0, 2.0]
METRICS = [
    discrete_laplace(1000, 1.0),
    discrete_laplace(1000, 0.2),
    randomized_response(8, 0.2),
    discrete_laplace(100, 0.1),
    pure(0.5),
]


def timed(what: str, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:64} {cpu:8.3f} s CPU {wall:8.3f} s   {result}", flush=True)


def versions_of_a_fleet(users: int, rng: np.random.Generator) -> np.ndarray:
    """Reports under three plan versions: most users upgrade on the same two days, with a few missed days each."""
    days = np.array([[120, 150, 95]])
    missed = rng.geometric(0.18, (users, 3))
    return np.maximum(days - missed * rng.integers(0, 2, (users, 3)) - rng.integers(0, 60, (users, 3)), 0)


def closed_forms() -> None:
    counts = np.random.default_rng(1).integers(0, 366, (USERS, 3)).astype(np.uint16)
    sums = np.array([EPSILONS, [rho(epsilon) for epsilon in EPSILONS]]).T

    def largest() -> float:
        parts = (counts[start : start + CHUNK] @ sums for start in range(0, USERS, CHUNK))
        return max(float(closed_form(part[:, 0], part[:, 1], 1e-6).max()) for part in parts)

    timed(f"closed form, {USERS} users x 3 plan versions", largest)


def one_lifetime() -> None:
    timed("one lifetime, 365 days x 5 metrics, first time", lambda: lifetime(METRICS, [365] * 5, 1e-6))
    timed("one lifetime, five metrics of one epsilon", lambda: lifetime([pure(0.2)] * 5, [365] * 5, 1e-6))


def whole_fleet(users: int) -> None:
    counts = versions_of_a_fleet(users, np.random.default_rng(2))
    for ratio in (0.02, FLEET_RATIO, 0.1):
        timed(
            f"distinct histories of {users} users, rounded up by {ratio:.0%}",
            lambda r=ratio: len(distinct_histories(counts, r)[0]),
        )
    pairs = [discrete_laplace(1000, 0.5), randomized_response(8, 1.0), pure(2.0)]

    def told(done: int, total: int) -> None:
        if done % 500 == 0 or done == total:
            print(f"\r{done} of {total} histories", end="", file=sys.stderr, flush=True)

    timed(
        f"a fleet of {users}, counts to {FLEET_RATIO:.0%}, epsilons to {FLEET_TOLERANCE:g}",
        lambda: float(np.median(fleet(pairs, counts, 1e-6, ratio=FLEET_RATIO, progress=told))),
    )


@pytest.mark.bench
def test_bench_accounting() -> None:
    closed_forms()
    one_lifetime()
    whole_fleet(100_000)


if __name__ == "__main__":
    closed_forms()
    one_lifetime()
    whole_fleet(USERS)
