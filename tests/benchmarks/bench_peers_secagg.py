"""CPU time beside Flower's SecAgg+ (`flwr`): the same neighbours, elements and dropouts in one run. Prints a table.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_peers_secagg.py      (about half a minute)
LDP_BENCH_FULL=1 python -m pytest ...                                         (Flower's opening in full: minutes)

Both ends are called as functions, without any transport. Flower's client is its four stages; its opening is what its
workflow's last stage does with the shares, by its own functions: a secret from every share that it got, a mask for
every survivor, an agreement and a mask for every neighbour of a dropout. Ours verifies certificates, adverts and
confirmations, which Flower has not, and is taken with empty caches, as in a process that does one round.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pytest

from client_sdk import certificate
from client_sdk.secagg import graph, parameters, shamir
from client_sdk.secagg.messages import CollectorMessage
from collector.secagg.opening import open_sum
from tests.fleet import Fleet, column_sums, rules

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MEMBERS, ELEMENTS, DROPPED = 101, 10_000, 10
SURVIVORS = MEMBERS - DROPPED
RULES = rules(ELEMENTS, min_size=50, bound=1000, corrupt="0.1", dropout="0.1")
FLOWER_THRESHOLD = 51
FLOWER_MODULUS = 1 << 32
CLIENT_TARGET, OPENING_TARGET = 25, 300
SAMPLE_SURVIVORS, SAMPLE_DROPPED = 4, 2
"""Of so many owners Flower's opening is taken, and scaled to all of them: each costs the same work."""

FULL = os.environ.get("LDP_BENCH_FULL") == "1"
REPEATS = 9


def cpu_s(work: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds of this process, all threads, after one run to warm up where there are several."""
    times = []
    for _ in range(repeats + (repeats > 1)):
        forget()
        gc.collect()
        start = process_time()
        work()
        times.append(process_time() - start)
    return median(times[-repeats:])


def forget() -> None:
    """What a process may know from an earlier round."""
    for cached in (
        certificate._is_signed,
        shamir.weights_at_zero,
        shamir._signed_binomials,
        graph._order,
        parameters.round_parameters,
    ):
        cached.cache_clear()


# --- Flower ---------------------------------------------------------------------------------------------


@dataclass
class Flower:
    """Flower's own functions. All of them stand in the client mod's and the workflow's modules."""

    mod: Any = field(init=False)
    workflow: Any = field(init=False)

    def __post_init__(self) -> None:
        os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
        # By import_module: the packages export functions of the same names as these modules.
        self.mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
        self.workflow = import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")

    def client(self, nid: int) -> Any:
        """A client after stage 0, and its two public keys."""
        state = self.mod.SecAggPlusState()
        state.nid = nid
        key = self.mod.Key
        settings = {
            key.SAMPLE_NUMBER: MEMBERS,
            key.SHARE_NUMBER: MEMBERS,
            key.THRESHOLD: FLOWER_THRESHOLD,
            key.CLIPPING_RANGE: 8.0,
            key.TARGET_RANGE: 1 << 22,
            key.MOD_RANGE: FLOWER_MODULUS,
            key.MAX_WEIGHT: 1000.0,
        }
        self.mod._setup(state, settings)
        return state

    def ciphertexts_for(self, client: Any, others: dict[int, Any], shares: tuple[bytes, bytes]) -> list[bytes]:
        """What the others would send it in stage 1. One pair of shares serves for all: its content costs nothing."""
        sealed = []
        for nid, other in others.items():
            agreed = self.agree(other.sk2, client.pk2)
            plain = self.mod.share_keys_plaintext_concat(nid, client.nid, *shares)
            sealed.append(self.mod.encrypt(agreed, plain))
        return sealed

    def agree(self, private: bytes, public: bytes) -> bytes:
        agreed: bytes = self.mod.generate_shared_key(
            self.mod.bytes_to_private_key(private), self.mod.bytes_to_public_key(public)
        )
        return agreed

    def mask(self, seed: bytes) -> Any:
        (mask,) = self.mod.pseudo_rand_gen(seed, FLOWER_MODULUS, [(ELEMENTS,)])
        return mask


@cache
def flower() -> Flower:
    try:
        return Flower()
    except ImportError as error:
        pytest.skip(f"Flower's SecAgg+ is not installed ({error}): pip install 'ldp-telemetry[dev,bench]'")


def flower_client_s() -> float:
    """One client's full round among 100 neighbours: keys, shares, masked vector, unmask."""
    peer = flower()
    key, mod = peer.mod.Key, peer.mod
    others = {nid: peer.client(nid) for nid in range(1, MEMBERS)}
    parameters_ = import_module("flwr.common").ndarrays_to_parameters([np.zeros(ELEMENTS)])
    spent = 0.0

    def timed(stage: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal spent
        start = process_time()
        result = stage(*arguments)
        spent += process_time() - start
        return result

    client = timed(peer.client, 0)
    everybody = {0: client, **others}
    dealt = timed(mod._share_keys, client, {str(nid): [one.pk1, one.pk2] for nid, one in everybody.items()})
    assert len(dealt[key.CIPHERTEXT_LIST]) == MEMBERS - 1
    shares = client.rd_seed_share_dict[0], client.sk1_share_dict[0]
    delivered = {key.CIPHERTEXT_LIST: peer.ciphertexts_for(client, others, shares), key.SOURCE_LIST: list(others)}
    masked = timed(mod._collect_masked_vectors, client, delivered, 1, parameters_)
    assert masked[key.MASKED_PARAMETERS]
    alive, dead = list(range(SURVIVORS)), list(range(SURVIVORS, MEMBERS))
    answer = timed(mod._unmask, client, {key.ACTIVE_NODE_ID_LIST: alive, key.DEAD_NODE_ID_LIST: dead})
    assert len(answer[key.SHARE_LIST]) == MEMBERS
    return spent


def flower_opening_s(survivors: int, dropped: int) -> tuple[float, float]:
    """CPU seconds for all survivors and for all dropouts, scaled up from so many of each; the sum is checked."""
    peer = flower()
    create_shares, combine = peer.mod.create_shares, peer.workflow.combine_shares
    clients = {nid: peer.client(nid) for nid in range(MEMBERS)}
    gone = range(SURVIVORS, SURVIVORS + dropped)
    seeds = {nid: os.urandom(32) for nid in range(survivors)}
    # A share of every survivor, as Flower asks for and combines.
    seed_shares = {nid: create_shares(seed, FLOWER_THRESHOLD, MEMBERS)[:SURVIVORS] for nid, seed in seeds.items()}
    key_shares = {nid: create_shares(clients[nid].sk1, FLOWER_THRESHOLD, MEMBERS)[:SURVIVORS] for nid in gone}
    truth = np.arange(ELEMENTS, dtype=np.int64)
    vector = truth.copy()
    for seed in seeds.values():
        vector = vector + peer.mask(seed)
    for nid in gone:
        for other in range(SURVIVORS):
            # The survivor, with the smaller id, took this mask off; the opening puts it back.
            vector = vector - peer.mask(peer.agree(clients[other].sk1, clients[nid].pk1))

    start = process_time()
    for shares in seed_shares.values():
        vector = vector - peer.mask(combine(shares))
    survivors_s = process_time() - start
    start = process_time()
    for nid in gone:
        secret = combine(key_shares[nid])
        for other in range(SURVIVORS):
            vector = vector + peer.mask(peer.agree(secret, clients[other].pk1))
    dropped_s = process_time() - start
    assert (vector % FLOWER_MODULUS == truth).all()
    return survivors_s * SURVIVORS / survivors, dropped_s * DROPPED / dropped


# --- ours -----------------------------------------------------------------------------------------------


def recorded_round() -> tuple[Fleet, list[CollectorMessage]]:
    """A finished round with 10 dropouts after sharing, and all that member 0 was told in it."""
    fleet = Fleet([[index % 7] * ELEMENTS for index in range(MEMBERS)], RULES)
    result = fleet.run(dict.fromkeys(range(SURVIVORS, MEMBERS), "masked_input"))
    assert result.total == column_sums(fleet.vectors, range(SURVIVORS))
    assert result.recovered == DROPPED
    return fleet, [message for index, message in fleet.received if index == 0]


def our_client_s(told: list[CollectorMessage]) -> float:
    """Member 0's full round again: the same entropy gives the same keys, so what it was told still fits."""

    def replay() -> None:
        (participant,) = Fleet([[0] * ELEMENTS], RULES).participants
        participant.hello()
        for message in told:
            participant.receive(message, 0.0)
        assert participant.outcome is not None

    return cpu_s(replay, REPEATS)


def our_opening_s(fleet: Fleet) -> float:
    opening, expected = fleet.round.opening(), column_sums(fleet.vectors, range(SURVIVORS))
    assert open_sum(opening) == expected
    return cpu_s(lambda: open_sum(opening), REPEATS)


def test_beside_flower() -> None:
    flower()
    fleet, told = recorded_round()
    taken = (SURVIVORS, DROPPED) if FULL else (SAMPLE_SURVIVORS, SAMPLE_DROPPED)
    theirs, ours = flower_client_s(), our_client_s(told)
    their_opening, our_opening = sum(flower_opening_s(*taken)), our_opening_s(fleet)
    name = f"flwr {version('flwr')}"
    print(f"\nCPU ms, {MEMBERS - 1} neighbours, {ELEMENTS} elements, {DROPPED} of {MEMBERS} dropped:")
    print(f"  {'':34} {'ours':>9} {name:>12} {'ratio':>9}   target")
    for what, mine, other, target in (
        ("client, full round", ours, theirs, CLIENT_TARGET),
        ("opening", our_opening, their_opening, OPENING_TARGET),
    ):
        verdict = "met" if other / mine >= target else "MISSED"
        numbers = f"{mine * 1000:>9.1f} {other * 1000:>12,.0f} {other / mine:>7.0f} x"
        print(f"  {what:34} {numbers}   >= {target} x {verdict}")
    print(f"  ours: signed, threshold {fleet.round.threshold}, {fleet.round.bits} bits; flwr: threshold")
    print(f"  {FLOWER_THRESHOLD} and 64 bits on the wire, nothing signed")
    if not FULL:
        print(f"  flwr's opening: {taken[0]} of {SURVIVORS} survivors and {taken[1]} of {DROPPED} dropouts taken,")
        print("  scaled to all (LDP_BENCH_FULL=1 takes all)")
