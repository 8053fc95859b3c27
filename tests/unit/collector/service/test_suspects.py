"""One liar in a fleet: with rosters that are parted after an impossible sum, the honest get through.

The fleet is a simulated one: real decisions about rosters and real memory of suspects, devices that come back after
failures as the SDK does, and rounds that are released where no liar is among their members.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from client_sdk.device.booking import BACKOFF_BASE_S, BACKOFF_CAP_S
from collector.cohorts import Form, FormingRules, SendAway, Wait, Waiting, decide
from collector.service import suspects
from collector.service.suspects import Suspects

END = 1_700_006_400
KEY = (b"plan", END - 86_400)
SMALL = FormingRules(10, 12, 30, Fraction(0), END, 6 * 3600)
LARGE = FormingRules(50, 100, 30, Fraction(1, 10), END, 6 * 3600)  # floor 56
ROUND_S = 2.0


@dataclass
class Ended:
    """spoiled: rounds that the liars spoiled; waiting: honest devices that were never counted; smallest: roster."""

    spoiled: int
    waiting: int
    smallest: int


def fleet(devices: int, rules: FormingRules, liars: set[int], parted: bool, seed: int = 1, days: int = 3) -> Ended:
    """All come within a few seconds of the period's end, and come back until they are counted or `days` have passed."""
    rng, memory = random.Random(seed), Suspects()
    names = [rng.randbytes(16).hex() for _ in range(devices)]
    lying = {names[i] for i in liars}
    honest, failures = set(names) - lying, dict.fromkeys(names, 0)
    arrivals = [(END + rng.uniform(0, 20), name) for name in names]
    heapq.heapify(arrivals)
    waiting: dict[str, Waiting] = {}
    spoiled, smallest, timer = 0, devices, float("inf")
    while honest and (arrivals or waiting):
        now = min(timer, arrivals[0][0] if arrivals else float("inf"))
        if now > END + days * 86_400:
            break
        while arrivals and arrivals[0][0] <= now:
            at, name = heapq.heappop(arrivals)
            waiting[name] = Waiting(name, at, failures[name] > 0, 0)
        timer = float("inf")
        while waiting:
            seen = [replace(one, suspicion=memory.suspicion(KEY, name) * parted) for name, one in waiting.items()]
            decision = decide(seen, rules, now)
            if isinstance(decision, Wait):
                timer = decision.until
                break
            gone = [waiting.pop(member.device_id).device_id for member in decision.members]
            if isinstance(decision, SendAway):
                for name in gone:
                    heapq.heappush(arrivals, (decision.come_back_at + rng.uniform(0, decision.jitter_s), name))
                continue
            assert isinstance(decision, Form)
            memory.left(KEY, (member.device_id for member in decision.left))
            smallest = min(smallest, len(gone))
            if not lying & set(gone):
                honest -= set(gone)
                continue
            spoiled += 1
            memory.spoiled(KEY, gone)
            for name in gone:
                backoff = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** failures[name])
                failures[name] += 1
                heapq.heappush(arrivals, (now + ROUND_S + rng.uniform(0, backoff), name))
    return Ended(spoiled, len(honest), smallest)


def ends(rules: FormingRules, parted: bool) -> list[Ended]:
    return [fleet(48, rules, {i}, parted, seed=i) for i in range(0, 48, 3)]


@pytest.mark.slow
def test_in_a_fleet_that_comes_and_goes_far_fewer_are_kept_out_by_one_liar() -> None:
    """Not all get through: what is left in the end, with the liar, is less than a roster, and nobody else comes."""
    together, parted = ends(SMALL, False), ends(SMALL, True)
    assert min(end.smallest for end in parted) == SMALL.floor
    kept_out, fewer = (sum(end.waiting for end in some) / len(some) for some in (together, parted))
    assert kept_out > 9
    assert fewer < 0.67 * kept_out
    roomy = replace(SMALL, target_size=24)
    kept_out, fewer = (sum(end.waiting for end in ends(roomy, parted)) / 16 for parted in (False, True))
    assert fewer < 0.5 * kept_out


def until_counted(rules: FormingRules, devices: int, liar: int, parted: bool, most: int = 60) -> tuple[int, int]:
    """All who are not counted meet at once, again and again: rounds until the honest are counted, and honest left."""
    memory, rounds = Suspects(), 0
    coming = [Waiting(f"d{i}", END + i / 100, False, 0) for i in range(devices)]
    liars = f"d{liar}"
    while len(coming) > 1 and rounds < most:
        back: list[Waiting] = []
        waiting = [replace(one, suspicion=memory.suspicion(KEY, one.device_id) * parted) for one in coming]
        while waiting:
            decision = decide(waiting, rules, END + 100)
            if isinstance(decision, Form):
                rounds += 1
                memory.left(KEY, (member.device_id for member in decision.left))
                assert len(decision.members) >= rules.floor
                members = [member.device_id for member in decision.members]
                if liars in members:
                    memory.spoiled(KEY, members)
                    back += [replace(member, resent=True) for member in decision.members]
            else:
                assert isinstance(decision, SendAway)
                back += decision.members
            gone = {member.device_id for member in decision.members}
            waiting = [
                replace(member, suspicion=memory.suspicion(KEY, member.device_id) * parted)
                for member in waiting
                if member.device_id not in gone
            ]
        coming = sorted(back, key=lambda member: member.joined_at)
    return rounds, len(coming) - 1


def test_all_honest_are_counted_within_a_cohorts_rounds_and_never_without_parting() -> None:
    """48 devices, floor 10, target 12: four rounds, one of them spoiled. Then one of its twelve is left each time."""
    parted = [until_counted(SMALL, 48, liar, True) for liar in range(48)]
    assert {left for _, left in parted} == {0}
    rounds = [n for n, _ in parted]
    assert max(rounds) <= 4 + 12
    assert sum(rounds) / 48 < 4 + 8
    assert {until_counted(SMALL, 48, liar, False) for liar in range(48)} == {(60, 11)}


def test_halves_first_where_a_cohort_is_large() -> None:
    """Cohorts of 96: in halves of 48, 24 and 12, then one by one."""
    rules = replace(SMALL, target_size=96)
    parted = [until_counted(rules, 192, liar, True, 200) for liar in range(0, 192, 8)]
    assert max(n for n, _ in parted) <= 2 + 2 * 3 + 2 * 13
    assert max(left for _, left in parted) < rules.floor


def test_nobody_is_left_more_often_than_its_rounds_were_spoiled() -> None:
    """One old suspect among ever new devices, and no liar: left once, then in."""
    memory = Suspects()
    memory.spoiled(KEY, ["old"])
    rosters = []
    for day in range(3):
        come = [Waiting(f"{day}-{i}", END + i / 100, True, 0) for i in range(11)]
        old = Waiting("old", END, True, 0, memory.suspicion(KEY, "old"))
        decision = decide([old, *come], SMALL, END + 1)
        assert isinstance(decision, Form)
        memory.left(KEY, (member.device_id for member in decision.left))
        rosters.append(old in decision.members)
    assert rosters == [False, True, True]
    memory.spoiled(KEY, ["old"])
    assert memory.suspicion(KEY, "old") == 2


def test_memory_is_bounded_and_of_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "MOST_POOLS", 2)
    memory = Suspects()
    for pool in (0, 1, 0, 2):
        memory.spoiled((b"plan", pool), ["a"])
    assert [memory.suspicion((b"plan", pool), "a") for pool in range(4)] == [2, 0, 1, 0]
    assert memory.suspicion((b"plan", 0), "b") == 0
