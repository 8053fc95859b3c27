"""The Harary graph: its shape, its order from the digest, its holders, and that the bounds on it really bound."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from client_sdk.secagg import parameters
from client_sdk.secagg.graph import COMPLETE_UP_TO, MAX_NEIGHBOURS, Graph, graph_of
from client_sdk.secagg.parameters import round_parameters
from tests.hypergeometric import Oracle

TENTH = Fraction(1, 10)
Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


def digest_of(number: int) -> bytes:
    return hashlib.sha256(b"a roster %d" % number).digest()


def order_by_hand(size: int, digest: bytes) -> list[int]:
    """The rule of `graph.py`, without numpy."""
    key = hashlib.sha256(b"ldp-telemetry/secagg/v1/graph" + digest).digest()
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(8 * size))
    words = struct.unpack(f"<{size}Q", stream)
    return sorted(range(size), key=lambda index: (words[index], index))


def neighbours_by_hand(size: int, degree: int, digest: bytes) -> list[set[int]]:
    order, found = order_by_hand(size, digest), [set[int]() for _ in range(size)]
    for place, member in enumerate(order):
        for step in range(1, degree // 2 + 1):
            other = order[(place + step) % size]
            found[member].add(other)
            found[other].add(member)
    return found


def reached(graph: Graph, alive: set[int]) -> set[int]:
    """Whom the first of `alive` is connected to, through `alive` alone."""
    seen = {min(alive)}
    edge = list(seen)
    while edge:
        fresh = alive.intersection(graph.neighbours(edge.pop())) - seen
        seen |= fresh
        edge += fresh
    return seen


@pytest.mark.parametrize(("size", "degree"), [(4, 2), (7, 4), (8, 6), (257, 70), (300, 2), (1000, 138)])
def test_shape(size: int, degree: int) -> None:
    """Regular, mutual, nobody its own neighbour, ascending, connected; and the rule's own graph."""
    graph = graph_of(size, degree, digest_of(size))
    assert (graph.size, graph.degree, graph.is_complete) == (size, degree, False)
    lists = [graph.neighbours(index) for index in range(size)]
    for index, near in enumerate(lists):
        assert len(near) == degree
        assert list(near) == sorted(set(near) - {index})
        assert all(index in lists[other] for other in near)
        assert graph.holders(index) == near
    assert reached(graph, set(range(size))) == set(range(size))
    assert [set(near) for near in lists] == neighbours_by_hand(size, degree, digest_of(size))


def test_a_known_order() -> None:
    """For whoever writes another client: member 0's neighbours of 1,000 under the digest 00 01 ... 1f."""
    graph = graph_of(1000, 4, bytes(range(32)))
    assert graph.neighbours(0) == tuple(sorted(neighbours_by_hand(1000, 4, bytes(range(32)))[0]))
    assert graph.neighbours(0) == (336, 549, 788, 884)


@pytest.mark.parametrize("size", [1, 2, 3, 100, COMPLETE_UP_TO, MAX_NEIGHBOURS + 1])
def test_complete_graph(size: int) -> None:
    graph = graph_of(size, size - 1, digest_of(1))
    assert graph.is_complete
    for index in {0, size // 2, size - 1}:
        assert set(graph.neighbours(index)) == set(range(size)) - {index}
        assert list(graph.neighbours(index)) == sorted(graph.neighbours(index))
        assert graph.holders(index) == tuple(range(size))
        assert [graph.share_x(index, holder) for holder in range(size)] == list(range(1, size + 1))


def test_share_coordinates_are_places_among_the_owners_holders() -> None:
    graph = graph_of(300, 82, digest_of(1))
    for owner in range(300):
        assert [graph.share_x(owner, holder) for holder in graph.holders(owner)] == list(range(1, 83))
        with pytest.raises(ValueError, match="holds no share"):
            graph.share_x(owner, owner)
    stranger = next(i for i in range(1, 300) if i not in graph.holders(0))
    for nobody in (stranger, 300, -1):
        with pytest.raises(ValueError, match="holds no share"):
            graph.share_x(0, nobody)


@pytest.mark.parametrize(("size", "degree"), [(0, -1), (5, 0), (5, 1), (5, 3), (5, 5), (5, 6), (300, 81), (300, -2)])
def test_no_such_graph(size: int, degree: int) -> None:
    with pytest.raises(ValueError, match="there is no graph"):
        graph_of(size, degree, digest_of(1))


def test_a_digest_of_another_length_is_refused() -> None:
    for digest in (b"", bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="32 bytes"):
            graph_of(5, 2, digest)


@pytest.mark.parametrize("degree", [2, 4])
def test_nobody_has_neighbours_that_is_no_member(degree: int) -> None:
    graph = graph_of(5, degree, digest_of(1))
    for index in (-1, 5):
        with pytest.raises(IndexError):
            graph.neighbours(index)
        with pytest.raises(IndexError):
            graph.holders(index)


def test_another_digest_gives_another_graph() -> None:
    first, second = digest_of(1), bytes([digest_of(1)[0] ^ 1]) + digest_of(1)[1:]
    one, other = graph_of(1000, 138, first), graph_of(1000, 138, second)
    assert one.neighbours(0) == graph_of(1000, 138, first).neighbours(0)
    common = [len({*one.neighbours(i)} & {*other.neighbours(i)}) for i in range(1000)]
    assert 17 < sum(common) / 1000 < 21  # 138 x 138 / 999 = 19 by chance


def test_every_pair_meets_equally_often() -> None:
    """190 pairs of 20 members over 2,000 digests: 4 neighbours of 19 others, within five deviations; no favourite."""
    met: Counter[tuple[int, int]] = Counter()
    for number in range(2000):
        graph = graph_of(20, 4, digest_of(number))
        met.update((index, other) for index in range(20) for other in graph.neighbours(index) if index < other)
    expected = 2000 * 4 / 19
    deviation = (expected * (1 - 4 / 19)) ** 0.5
    assert len(met) == 190
    assert all(abs(times - expected) < 5 * deviation for times in met.values())


# --- do the bounds bound? At few bits, where failures can be seen -------------------------------------


def corrupt_neighbours(size: int, degree: int, corrupt: int, graphs: int) -> list[int]:
    """The most corrupt neighbours that an honest member has, in each of many graphs; the first members are corrupt."""
    worst = []
    for number in range(graphs):
        graph = graph_of(size, degree, digest_of(number))
        counts = (sum(other < corrupt for other in graph.neighbours(i)) for i in range(corrupt, size))
        worst.append(max(counts))
    return worst


def test_too_many_corrupt_neighbours_are_as_rare_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """(b), (d) and (a) at 5 bits over 1,500 real graphs of 60 members, and that two neighbours fewer are too few."""
    sigma, size, graphs = 5, 60, 1500
    monkeypatch.setattr(parameters, "SIGMA", sigma)
    monkeypatch.setattr(parameters, "ETA", sigma)
    found = parameters._sparse_parameters(size, 6, 6)
    assert found is not None
    degree, t = found
    assert found == Oracle(size, TENTH, TENTH, sigma=sigma, eta=sigma).parameters()
    t1 = Oracle(size, TENTH, TENTH, sigma=sigma).most_corrupt(degree)
    allowed = graphs * 2 ** -(sigma + 1)
    worst = corrupt_neighbours(size, degree, 6, graphs)
    too_many = sum(most > t1 for most in worst)
    both_opened = sum(2 * t <= degree + most for most in worst)
    assert 0 < both_opened <= too_many <= allowed, "rare, but seen"
    assert sum(2 * (t - 1) <= degree + most for most in worst) > 3 * allowed, "a smaller threshold is not enough"
    thin = cut_off = 0
    for number in range(graphs):
        graph = graph_of(size, degree, digest_of(number))
        alive = set(range(12, size))
        # Corrupt members answer too: only the dropped ones are missing.
        thin += any(sum(not 6 <= other < 12 for other in graph.neighbours(i)) < t for i in range(12, size))
        cut_off += reached(graph, alive) != alive
    assert 0 < thin <= graphs * 2**-sigma
    assert cut_off <= allowed


def test_connectivity_bound_bounds() -> None:
    """(a): its probability over 3,000 rings of 30 with 20 bad members, for degrees where cuts do happen."""
    graphs, size, bad = 3000, 30, 20
    for degree in (4, 6, 8):
        pairs = size * (size - degree - 1) / 2
        bound = pairs * np.prod([(bad - i) / (size - i) for i in range(degree)])
        cut = 0
        for number in range(graphs):
            graph = graph_of(size, degree, digest_of(number))
            alive = set(range(bad, size))
            cut += reached(graph, alive) != alive
        assert 0 < cut / graphs <= bound


HONEST, CORRUPT, GONE = range(3)


def windows(marks: Bools, steps: Iterable[int]) -> Counts:
    """For each place of each ring, how many marks stand at these steps from it. Shape (rings, places)."""
    return sum((np.roll(marks, -step, axis=1).astype(np.int64) for step in steps), np.zeros(marks.shape, np.int64))


@pytest.mark.parametrize(("size", "half", "too_low"), [(11, 2, 0), (11, 2, 1), (12, 3, 0)])
def test_a_chosen_cut_needs_more_than_t1_corrupt_on_two_runs(size: int, half: int, too_low: int) -> None:
    """Every ring of 11 with 4 neighbours (12 with 6): each member honest, corrupt or gone as the collector likes.

    The claim of `parameters.py`: where all who stay can be opened (t givers each, corrupt ones give too) and are cut
    in two all the same, two disjoint runs of k/2 places hold more than t1 corrupt ones, t1 being the most that an
    honest member has around it. With a threshold lower by one the claim is wrong, so this test can fail.
    """
    rings = np.array(list(product((HONEST, CORRUPT, GONE), repeat=size)), dtype=np.int8)
    corrupt, honest = rings == CORRUPT, rings == HONEST
    around = [step for step in range(-half, half + 1) if step]
    t1 = np.where(corrupt, 0, windows(corrupt, around)).max(axis=1)
    t = (2 * half + t1) // 2 + 1 - too_low
    opened = ~honest | (windows(corrupt | honest, around) >= t[:, None])
    # An honest member with `half` others behind it: the beginning of a run that parts the ring, if there are two.
    edges = honest & (windows(honest, range(1, half + 1)) == 0)
    cut = opened.all(axis=1) & (edges.sum(axis=1) >= 2)
    run = windows(corrupt, range(half))
    most_on_two = np.zeros(len(rings), np.int64)
    for first, second in combinations(range(size), 2):
        if half <= second - first <= size - half:
            np.maximum(most_on_two, run[:, first] + run[:, second], out=most_on_two)
    assert cut.sum() > 100, "the interesting case was reached"
    assert (cut & (most_on_two <= t1)).any() == bool(too_low)


def test_neighbours_of_a_large_roster_are_computed_on_both_sides_alike() -> None:
    """A participant draws only its own; a collector draws all: the same graph."""
    degree, _ = round_parameters(10_000, TENTH, TENTH)
    whole, own = graph_of(10_000, degree, digest_of(7)), graph_of(10_000, degree, digest_of(7))
    lists = [whole.neighbours(index) for index in range(10_000)]
    for index in (0, 5000, 9999):
        assert own.neighbours(index) == lists[index]
        assert all(index in lists[other] for other in own.neighbours(index))
