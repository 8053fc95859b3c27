"""What figures cost: a price as a process, one user's year in all views, a fleet. Prints, asserts nothing about time.

    python tests/benchmarks/bench_figures.py

CPU seconds, because the machine may be shared, and wall-clock seconds beside them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.plan import Plan, parse_plan
from collector.accounting import losses
from collector.accounting.basic import FleetHistory
from collector.accounting.figures import figures
from collector.accounting.fleet import fleet_figures

DAY_S = 86_400
DAYS = 365
WORDS = ("laplace", "randomized_response", "optimized_unary", "hadamard", "square_wave", "piecewise", "hybrid")

PLAN = parse_plan("""
[plan]
name = "p"
version = 1
period = "1d"
[cohort]
min_size = 50
target_size = 200
max_wait = "30s"
[budget]
lifetime = 10000
[metrics.a]
kind = "numeric"
lower = 0
upper = 1
epsilon = 1
[metrics.b]
kind = "numeric"
lower = 0
upper = 1
epsilon = 0.2
[metrics.c]
kind = "categorical"
categories = ["a", "b", "c", "d", "e", "f", "g", "h"]
epsilon = 0.2
[metrics.d]
kind = "numeric"
lower = 0
upper = 1
levels = 100
epsilon = 0.1
[metrics.e]
kind = "categorical"
categories = ["a", "b"]
epsilon = 0.5
""")
PLANS: dict[str, Plan] = {PLAN.hash.hex(): PLAN}


def timed(what: str, work: Callable[[], object], who: int = resource.RUSAGE_SELF) -> None:
    before, wall = resource.getrusage(who), time.perf_counter()
    result = work()
    wall, after = time.perf_counter() - wall, resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what:64} {cpu:8.3f} s CPU {wall:8.3f} s   {result}", flush=True)


def a_price(word: str) -> str:
    command = [sys.executable, "-m", "collector.service", "price", "--mechanism", word, "--epsilon", "1", "--json"]
    command += ["--contributors", "1000", "--rounds", "365"]
    command += [] if word in {"laplace", "piecewise", "hybrid"} else ["--k", "8"]
    return next(line for line in subprocess.check_output(command, text=True).splitlines() if "central" in line)


def prices() -> None:
    for word in WORDS:
        timed(f"price {word}, import included", lambda w=word: a_price(w), resource.RUSAGE_CHILDREN)


def year(sizes: Callable[[int], int]) -> Ledger:
    entries = tuple(
        LedgerEntry(
            PLAN.hash.hex(), day * DAY_S, (day + 1) * DAY_S, PLAN.report_micro_epsilon,
            "counted", left_device=True, resent=day % 30 == 0, round=f"r{day}", cohort=Cohort(sizes(day), 210, day % 3),
        )
        for day in range(DAYS)
    )  # fmt: skip
    return Ledger("device", "c" * 32, DAYS * DAY_S, (LedgerPlan(PLAN.hash.hex(), "p", 1, DAY_S),), entries)


def one_year() -> None:
    for name, sizes in (("one size of cohort", lambda _: 180), ("60 sizes", lambda day: 150 + day * 7 % 60)):
        losses.central_pair.cache_clear()
        losses.local_pair.cache_clear()
        book = year(sizes)
        timed(f"one year, five metrics, {name}, first time", lambda b=book: _shown(b))
        timed(f"one year, five metrics, {name}, pairs known", lambda b=book: _shown(b))


def _shown(book: Ledger) -> str:
    found = figures(book, PLANS)
    return f"{found.eps_local_pure} {found.eps_local:.4f} {found.eps_central:.4f} n_h {found.n_h}"


def fleet(size: int) -> None:
    """So many different histories: reports in three sizes of sums, and in none."""
    counts = np.minimum(np.random.default_rng(1).geometric(0.02, (size, 4)), 120) - 1
    histories = [
        FleetHistory(1, tuple((PLAN.hash, n_h, count) for n_h, count in zip((72, 108, 180, 1), row, strict=True)))
        for row in np.unique(counts, axis=0).tolist()
    ]

    def largest() -> float:
        return max(found.eps_central for found in fleet_figures(histories, PLANS, 1e-6))

    timed(f"a fleet of {len(histories)} different histories, local and central", largest)


@pytest.mark.bench
def test_bench_figures() -> None:
    one_year()
    fleet(300)


if __name__ == "__main__":
    prices()
    one_year()
    fleet(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
