"""Rounds on a sparse graph, in memory, with real participants: the exact sum, the collector's CPU time, the memory.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_large_rounds.py      (about two minutes: n = 1,000)
LDP_BENCH_FULL=1 python -m pytest ...                                         (n = 10,000 as well: a quarter of an hour)

All participants live in this process, one after the other, and remember together which signatures hold: the same
advert is verified by each of its neighbours, and here once. What they cost is therefore not what a device costs
(bench_secagg.py says that); the collector's half is as it is. Messages are passed on as values, without the wire.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter, process_time

import pytest

from client_sdk import identity
from client_sdk.secagg import checks, cohort, shamir
from client_sdk.secagg.messages import CollectorMessage
from collector.secagg.opening import Opening, open_sum
from collector.secagg.round import STEPS, Phase, Round
from tests.fleet import FORMED_AT, Fleet, rules

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

FULL = os.environ.get("LDP_BENCH_FULL") == "1"


class Stopwatch:
    """CPU seconds of this process while it runs."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        start = process_time()
        yield
        self.cpu_s += process_time() - start


class LargeRound:
    """`size` participants with `elements` elements, every tenth of which drops after it has dealt its shares."""

    def __init__(self, size: int, elements: int) -> None:
        self.size, self.elements = size, elements
        self.rules = rules(elements, min_size=size // 2, bound=1000, corrupt="0.1", dropout="0.1")
        self.dropped = range(0, size, 10)
        self.fleet = Fleet([[index % 7 - 3] * elements for index in range(size)], self.rules)
        self.collector = Stopwatch()

    def opening(self) -> Opening:
        adverts = [self.fleet.advert_of(index) for index in range(self.size)]
        with self.collector.running():
            round_ = self.fleet.round = Round("round-1", self.rules, adverts, FORMED_AT)
        messages: Mapping[int, CollectorMessage] = {}
        for step in STEPS:
            self._forget()
            self._step(step, messages)
            with self.collector.running():
                messages = round_.close()
        return round_.opening()

    def _step(self, step: Phase, messages: Mapping[int, CollectorMessage]) -> None:
        for index in range(self.size):
            if step is not Phase.SHARES and index not in messages:
                continue
            if step is Phase.MASKED_INPUT and index in self.dropped:
                self.fleet.leave(index)
                continue
            with self.collector.running():
                message = messages[index] if step is not Phase.SHARES else self.fleet.round.roster_for(index)
            for reply in self.fleet.tell(index, message):
                with self.collector.running():
                    self.fleet.round.receive(index, reply)
            if len(self.fleet.sent) > 100:
                self._forget()

    def _forget(self) -> None:
        self.fleet.sent.clear()
        self.fleet.received.clear()

    @property
    def total(self) -> list[int]:
        return [sum(index % 7 - 3 for index in range(self.size) if index not in self.dropped)] * self.elements


@pytest.fixture(autouse=True)
def signatures_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = lru_cache(maxsize=100_000)(identity.verify)
    for module in (checks, cohort):
        monkeypatch.setattr(module, "verify", remembered)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(size: int, elements: int) -> float:
    """Play and open one; the CPU seconds of its opening."""
    gc.collect()
    started = perf_counter(), process_time()
    large = LargeRound(size, elements)
    opening = large.opening()
    played = process_time() - started[1]
    shamir.weights_at_zero.cache_clear()
    start = process_time()
    total = open_sum(opening)
    opened = process_time() - start
    assert total == large.total, "the sum is exact"
    assert large.fleet.refusals == {}
    round_ = large.fleet.round
    edges = sum(len(owner.survivors) for owner in opening.dropped)
    print(f"\nround of {size}, {elements} elements, {len(large.dropped)} dropped:")
    print(f"  degree {round_.roster.degree}, threshold {round_.threshold}, {round_.bits} bits; the sum is exact")
    print(f"  opening: {opened:.2f} s CPU ({edges} edges between dropouts and surviving neighbours)")
    per_member = large.collector.cpu_s * 1000 / size
    print(f"  collector's state machine: {large.collector.cpu_s:.1f} s CPU, {per_member:.2f} ms a participant")
    print(f"  participants: {(played - large.collector.cpu_s) * 1000 / size:.1f} ms CPU each, signatures verified once")
    print(f"  {perf_counter() - started[0]:.0f} s in all; peak memory of the process {peak_mb():.0f} MB")
    return opened


def test_a_thousand() -> None:
    report(1_000, 10_000)
    print("  (opening: reach <= 2.5 s CPU)")


@pytest.mark.skipif(not FULL, reason="takes a quarter of an hour: LDP_BENCH_FULL=1")
def test_ten_thousand() -> None:
    report(10_000, 1_000)
