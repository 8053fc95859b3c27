"""CPU time of the secure-aggregation machines, beside their primitives in the same run. Prints, asserts no time.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_secagg.py

Large rosters: bench_large_rounds.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from time import process_time

import pytest

from client_sdk import certificate
from client_sdk.secagg import checks, cohort, keys, masking, shamir
from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage
from client_sdk.secagg.parameters import RoundRules
from collector.secagg.opening import open_sum
from tests.fleet import Fleet, column_sums, rules

pytestmark = pytest.mark.bench

MEMBERS, ELEMENTS, DROPPED = 101, 10_000, 10
REPEATS = 15


def cpu_ms(*works: Callable[[], object]) -> list[float]:
    """Median CPU milliseconds of each, taken in turn so that a busy machine troubles them alike; one warm-up each."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS + 1):
        for work, taken in zip(works, times, strict=True):
            start = process_time()
            work()
            taken.append((process_time() - start) * 1000)
    return [median(taken[1:]) for taken in times]


def bench_rules() -> RoundRules:
    return rules(ELEMENTS, min_size=50, bound=1000, corrupt="0.1", dropout="0.1")


def bench_fleet() -> Fleet:
    return Fleet([[index % 7] * ELEMENTS for index in range(MEMBERS)], bench_rules())


def recorded_fleet() -> tuple[Fleet, list[CollectorMessage]]:
    """A finished round, and all that member 0 was told in it."""
    fleet = bench_fleet()
    fleet.run(dict.fromkeys(range(MEMBERS - DROPPED, MEMBERS), "masked_input"))
    return fleet, [message for index, message in fleet.received if index == 0]


def replay(told: list[CollectorMessage]) -> list[ParticipantMessage]:
    """Member 0's whole round: the same entropy gives the same keys, so what was told still fits."""
    (participant,) = Fleet([[0] * ELEMENTS], bench_rules()).participants
    sent: list[ParticipantMessage] = [participant.hello()]
    for message in told:
        sent.extend(participant.receive(message, 0.0))
    assert participant.outcome is not None
    return sent


def primitives(neighbours: int, threshold: int, bits: int) -> None:
    """What a participant cannot do without: two key pairs, n agreements of each kind, shares, seals, keystreams."""
    seeds = keys.RoundSecrets.draw(os.urandom)
    mask, channel = keys.load_private(seeds.mask_seed), keys.load_private(seeds.channel_seed)
    peer_key = keys.public_bytes(mask)
    assert keys.public_bytes(channel)
    digest = bytes(32)
    for seed in (seeds.mask_seed, seeds.self_mask_seed):
        shares = shamir.split(seed, threshold, neighbours + 1, os.urandom)
    pair = keys.SharePair(shares[0], shares[1])
    vector = masking.zero_ring(ELEMENTS, bits)
    for other in range(1, neighbours + 1):
        sending, receiving = keys.channel_keys(channel, keys.load_public(peer_key), digest, 0, other)
        sealed = keys.seal_pair(sending, pair, digest)
        assert keys.open_pair(sending, sealed, digest)
        assert receiving
    masks = [keys.pairwise_mask(mask, keys.load_public(peer_key), digest, 0, o) for o in range(1, neighbours + 1)]
    masking.add_masks(vector, [(keys.self_mask(seeds.self_mask_seed, digest, 0), 1), *masks])


def test_participant(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, told = recorded_fleet()
    neighbours = MEMBERS - 1
    assert replay(told)[:2] == [message for index, message in fleet.sent if index == 0][:2]

    def afresh() -> None:
        certificate._is_signed.cache_clear()
        replay(told)

    def unsigned() -> None:
        with monkeypatch.context() as patch:
            for module in (checks, cohort):
                patch.setattr(module, "verify", lambda *_: True)
            replay(told)

    first, signed, alone, floor = cpu_ms(
        afresh,
        lambda: replay(told),
        unsigned,
        lambda: primitives(neighbours, fleet.round.threshold, fleet.round.bits),
    )
    print(f"\nparticipant, {neighbours} neighbours, {ELEMENTS} elements, {fleet.round.bits} bits:")
    print(f"  {first:.1f} ms CPU the first time: certificates, adverts and confirmations verified (reach: <= 50 ms)")
    print(f"  {signed:.1f} ms CPU among neighbours whose certificates it has seen")
    print(f"  {alone:.1f} ms CPU without any verification (reach: <= 15 ms)")
    print(f"  {floor:.1f} ms CPU for the primitives alone: {alone / floor:.2f} x (reach: <= 2 x)")


def test_opening() -> None:
    fleet, _ = recorded_fleet()
    opening = fleet.round.opening()
    assert open_sum(opening) == column_sums(fleet.vectors, range(MEMBERS - DROPPED))

    def afresh() -> None:
        shamir.weights_at_zero.cache_clear()
        open_sum(opening)

    print(f"\nopening, {MEMBERS} participants, {DROPPED} dropped, {ELEMENTS} elements:")
    print(f"  {cpu_ms(afresh)[0]:.1f} ms CPU (reach: <= 120 ms)")


def test_collector_steps() -> None:
    fleet = bench_fleet()
    messages = fleet.join()
    spent = 0.0
    for _ in range(4):
        replies = [(index, reply) for index, message in messages.items() for reply in fleet.tell(index, message)]
        start = process_time()
        for index, reply in replies:
            fleet.round.receive(index, reply)
        messages = fleet.round.close()
        spent += process_time() - start
    print(f"\ncollector's state machine: {spent * 1000 / MEMBERS:.2f} ms CPU a participant, without the opening")
