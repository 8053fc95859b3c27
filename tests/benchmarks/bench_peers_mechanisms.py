"""CPU time of both halves beside pure-ldp, multi-freq-ldpy and opendp, in one run: GRR, SUE, OUE, SS, HR. A table.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_peers_mechanisms.py      (about two minutes)
LDP_BENCH_S=2 python -m pytest ...                                               (CPU seconds per peer and half)

Client: n category codes in, n reports held in memory out. Server: n held reports in, k estimates out, unbiased; ours by
`total_of` and `estimate`. Peers make and take one report at a time, their only interface. Ratios are to the fastest of
them, whichever that is. multi-freq-ldpy's estimates are clipped and made to add up to 1, which its time includes;
opendp has no estimator for GRR. n times the mean squared error, over the formula's, is ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from math import exp
from time import process_time
from typing import Any

import numpy as np
import pytest

from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.hadamard import Hadamard
from client_sdk.mechanisms.pure import mean_squared_error
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.mechanisms.subset_selection import SubsetSelection
from client_sdk.mechanisms.unary import OptimizedUnary, SymmetricUnary
from collector.audit import audit_sampler
from collector.audit.draws import one_by_one

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

KS = (16, 128, 1024)
EPSILON = 1.0
N = 100_000
"""Reports of ours per turn: peers' rates hold for any number, and are taken from as many as their time allows."""
PEER_S = float(os.environ.get("LDP_BENCH_S", "0.5"))
TURNS_TIMES_K = 2000
"""Few cells take more turns: their mean squared error is an average over fewer numbers."""
OURS: dict[str, type[CategoricalMechanism]] = {
    "GRR": RandomizedResponse,
    "SUE": SymmetricUnary,
    "OUE": OptimizedUnary,
    "SS": SubsetSelection,
    "HR": Hadamard,
}

Codes = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peer:
    """One library's two halves: a code -> a report, and held reports -> estimates (None: it has none)."""

    library: str
    client: Callable[[int], Any]
    server: Callable[[Sequence[Any]], Any] | None


def target(mechanism: str, k: int, half: str) -> float:
    """How many times the fastest peer's rate ours must be."""
    if (mechanism, half) == ("SS", "client") and k >= 128:
        return 3
    return 8 if (mechanism, half) == ("OUE", "server") else 10


# --- peers ----------------------------------------------------------------------------------------------


def pure_ldp(mechanism: str, k: int) -> list[Peer]:
    load = partial(_attribute, "pure_ldp.frequency_oracles.")
    clients: dict[str, Callable[[], tuple[Any, Callable[[], Any]]]] = {
        "GRR": lambda: (
            load("direct_encoding", "DEClient")(EPSILON, k, _same),
            lambda: load("direct_encoding", "DEServer")(EPSILON, k, _same),
        ),
        "SUE": lambda: _unary(load, k, use_oue=False),
        "OUE": lambda: _unary(load, k, use_oue=True),
        "HR": lambda: _hadamard_response(load, k),
    }
    if mechanism not in clients:
        return []
    client, new_server = clients[mechanism]()

    def serve(reports: Sequence[Any]) -> list[float]:
        server = new_server()
        for report in reports:
            server.aggregate(report)
        return [server.estimate(value, suppress_warnings=True) for value in range(k)]

    return [Peer("pure-ldp", client.privatise, serve)]


def _unary(load: Callable[[str, str], Any], k: int, *, use_oue: bool) -> tuple[Any, Callable[[], Any]]:
    client = load("unary_encoding", "UEClient")(EPSILON, k, use_oue, _same)
    return client, lambda: load("unary_encoding", "UEServer")(EPSILON, k, use_oue, _same)


def _hadamard_response(load: Callable[[str, str], Any], k: int) -> tuple[Any, Callable[[], Any]]:
    def new_server() -> Any:
        return load("hadamard_response", "HadamardResponseServer")(EPSILON, k, index_mapper=_same)

    hashes = new_server().get_hash_funcs()
    return load("hadamard_response", "HadamardResponseClient")(EPSILON, k, hashes, index_mapper=_same), new_server


def multi_freq(mechanism: str, k: int) -> list[Peer]:
    forms: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
        "GRR": ("GRR", (k, EPSILON), (k, EPSILON)),
        "SUE": ("UE", (k, EPSILON, False), (EPSILON, False)),
        "OUE": ("UE", (k, EPSILON, True), (EPSILON, True)),
        "SS": ("SS", (k, EPSILON), (k, EPSILON)),
    }
    if mechanism not in forms:
        return []
    module, for_client, for_server = forms[mechanism]
    client, server = (
        _attribute("multi_freq_ldpy.pure_frequency_oracles.", module, f"{module}_{half}")
        for half in ("Client", "Aggregator_MI")
    )
    return [
        Peer("multi-freq-ldpy", lambda code: client(code, *for_client), lambda held: server(list(held), *for_server))
    ]


def opendp(mechanism: str, k: int) -> list[Peer]:
    if mechanism not in ("GRR", "SUE"):
        return []
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    if mechanism == "GRR":
        keep = exp(EPSILON) / (exp(EPSILON) + k - 1)
        return [Peer("opendp", dp.m.make_randomized_response(list(range(k)), prob=keep, T=int), None)]
    flip = 2 / (exp(EPSILON / 2) + 1)
    domain = dp.bitvector_domain(max_weight=1)
    release = dp.m.make_randomized_response_bitvec(domain, dp.discrete_distance(), f=flip)
    encoded = [(1 << code).to_bytes((k + 7) // 8, "little") for code in range(k)]
    return [
        Peer(
            "opendp",
            lambda code: release(encoded[code]),
            lambda held: dp.m.debias_randomized_response_bitvec(list(held), flip),
        )
    ]


PEERS = {"pure_ldp": pure_ldp, "multi_freq_ldpy": multi_freq, "opendp": opendp}


def _same(value: int) -> int:
    return value


def _attribute(package: str, module: str, name: str) -> Any:
    return getattr(import_module(package + module), name)


# --- rates ----------------------------------------------------------------------------------------------


def peer_rates(peer: Peer, codes: list[int]) -> tuple[float, float]:
    """Reports per CPU second of client and server (0: it has none), from as many as fit into the time."""
    peer.client(codes[0])  # compiles, where it does
    held, start = [], process_time()
    for code in codes:
        held.append(peer.client(code))
        if not len(held) & 15 and process_time() - start > PEER_S:
            break
    client = len(held) / (process_time() - start)
    if peer.server is None:
        return client, 0.0
    peer.server(held[:50])
    start = process_time()
    peer.server(held)
    return client, len(held) / (process_time() - start)


def our_rates(mech: CategoricalMechanism, codes: Codes) -> tuple[float, float, float]:
    """Reports per CPU second of both halves, the best of some turns; and n times the MSE over the formula's."""
    clients, servers, errors = [], [], []
    true = np.bincount(codes, minlength=mech.k)
    for _ in range(max(5, TURNS_TIMES_K // mech.k)):
        start = process_time()
        answers = mech.perturb_codes(codes, os.urandom)
        clients.append(process_time() - start)
        start = process_time()
        estimate = mech.estimate(mech.total_of(answers).tolist(), codes.size)
        servers.append(process_time() - start)
        errors.append(np.mean((np.array(estimate.values) - true) ** 2) / codes.size)
    formula = mean_squared_error(mech.k, mech.p, mech.q)
    return codes.size / min(clients), codes.size / min(servers), float(np.mean(errors)) / formula


@pytest.mark.parametrize("k", KS)
def test_beside_peers(k: int) -> None:
    missing = [name for name in PEERS if not _is_there(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed: pip install 'ldp-telemetry[dev,bench]'")
    weights = 1 / np.arange(1, k + 1) ** 1.1
    codes = np.random.default_rng(1).choice(k, N, p=weights / weights.sum())
    print(f"\nk = {k}, epsilon {EPSILON}, reports per CPU second")
    print(f"  {'':4} {'half':8} {'ours':>9} {'fastest peer':>26} {'ratio':>8}   target     MSE/formula")
    for name, mechanism in OURS.items():
        mech = mechanism(tuple(f"c{i}" for i in range(k)), Decimal(str(EPSILON)))
        *ours, error = our_rates(mech, codes)
        peers = [peer for make in PEERS.values() for peer in make(name, k)]
        rates = [peer_rates(peer, codes.tolist()) for peer in peers]
        for half in (0, 1):
            fastest, peer = max((rate[half], peer.library) for rate, peer in zip(rates, peers, strict=True))
            ratio, wanted = ours[half] / fastest, target(name, k, ("client", "server")[half])
            verdict = f">= {wanted:>2g} x {'met' if ratio >= wanted else 'MISSED'}"
            print(
                f"  {name:4} {('client', 'server')[half]:8} {_short(ours[half]):>9} {peer:>16} {_short(fastest):>9} "
                f"{ratio:>6.1f} x   {verdict:14} {error if half else '':{'.3f' if half else ''}}"
            )


def test_what_the_audit_says_of_them() -> None:
    """Our audit on two samplers of theirs that leak, as they are installed, and on two that do not; epsilon 1."""
    for package in ("pure_ldp", "multi_freq_ldpy"):
        pytest.importorskip(package)
    ss, ue = (_attribute("multi_freq_ldpy.pure_frequency_oracles.", m, f"{m}_Client") for m in ("SS", "UE"))
    rappor = partial(_attribute, "pure_ldp.frequency_oracles.", "rappor")
    flip = round(1 / (0.5 * exp(EPSILON / 2) + 0.5), 2)
    hashes = rappor("RAPPORServer")(flip, 8, 1, 2, 4, index_mapper=_same).get_hash_funcs()
    client = rappor("RAPPORClient")(flip, 8, hashes, 2, index_mapper=_same)

    def bloom(code: int) -> tuple[int, ...]:
        bits, cohort = client.privatise(code)
        return (cohort, *map(int, bits))

    samplers: dict[str, Callable[[Any], Sequence[int]]] = {
        "pure-ldp RAPPOR (a true bit is never cleared)": bloom,
        "multi-freq-ldpy SS as sent (the truth comes first)": lambda code: [int(x) for x in ss(code, 16, EPSILON)],
        "multi-freq-ldpy SS, sorted": lambda code: sorted(int(x) for x in ss(code, 16, EPSILON)),
        "multi-freq-ldpy OUE": lambda code: [int(x) for x in ue(code, 4, EPSILON, True)],
    }
    print("\nour audit, claimed epsilon 1:")
    for name, sampler in samplers.items():
        evidence = audit_sampler(one_by_one(sampler), (0, 1), samples=40_000)
        verdict = "convicted" if evidence.convicts(Decimal(1)) else "not convicted"
        print(f"  {name:52} epsilon at least {evidence.lower_bound:.2f}: {verdict}")


def _is_there(package: str) -> bool:
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def _short(rate: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.3g}"
