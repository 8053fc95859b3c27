"""What accounting costs: closed forms of millions, one lifetime. Prints figures, asserts none about time.

    python tests/benchmarks/bench_accounting.py

CPU seconds of one process, because the machine may be shared, and wall-clock seconds beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from collector.accounting.composition import Composer
from collector.accounting.local import closed_form, discrete_laplace, pure, randomized_response, rho

USERS = 10_000_000
CHUNK = 1 << 20

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


def closed_forms() -> None:
    counts = np.random.default_rng(1).integers(0, 366, (USERS, 3)).astype(np.uint16)
    sums = np.array([EPSILONS, [rho(epsilon) for epsilon in EPSILONS]]).T

    def largest() -> float:
        parts = (counts[start : start + CHUNK] @ sums for start in range(0, USERS, CHUNK))
        return max(float(closed_form(part[:, 0], part[:, 1], 1e-6).max()) for part in parts)

    timed(f"closed form, {USERS} users x 3 plan versions", largest)


def one_lifetime() -> None:
    timed("one lifetime, 365 days x 5 metrics, first time", lambda: Composer(METRICS).epsilon([365] * 5, 1e-6))
    timed("one lifetime, five metrics of one epsilon", lambda: Composer([pure(0.2)] * 5).epsilon([365] * 5, 1e-6))


@pytest.mark.bench
def test_bench_accounting() -> None:
    closed_forms()
    one_lifetime()


if __name__ == "__main__":
    closed_forms()
    one_lifetime()
